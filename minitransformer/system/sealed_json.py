"""JSON with a checksum, which shows a changed byte: its last field is the CRC-32 of everything before it.

    {"step": 1, "loss": 7.31, "crc32": "0b54a6f1"}

Other tools read it as ordinary JSON.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

KEY = "crc32"
_LENGTH = len(b', "crc32": "01234567"}\n')


def seal(content: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return an object with at least one field as JSON, with its checksum and a line break."""
    body = json.dumps(content, indent=indent).removesuffix("}").rstrip().encode()
    return body + _end(body)


def is_sealed(data: bytes) -> bool:
    """Return True if `data` is unchanged since `seal` made it."""
    return data[-_LENGTH:] == _end(data[:-_LENGTH])


def unseal(data: bytes) -> dict[str, Any]:
    """Return the object that `seal` made into `data`. Raises ValueError for any other data."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    if not is_sealed(data):
        raise ValueError("it does not match its checksum")
    del content[KEY]
    return content


def _end(body: bytes) -> bytes:
    return b', "%s": "%08x"}\n' % (KEY.encode(), zlib.crc32(body))
