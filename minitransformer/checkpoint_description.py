"""What a checkpoint says beside its arrays, checked: whoever reads a file may rely on every field's type.

    version, step   whole numbers
    config          an object: the model's configuration, which the model judges
    tokenizer       text or null
    state           an object; of what may be in it, `settings` and `data` are objects, `tokens` is a whole number,
                    `languages` two names or null, `averaged_steps` a list of whole numbers

Objects are nested a few levels deep and integers fit into 64 bits, so that nothing here is expensive to handle.
"""

import json
import sys
from collections.abc import Callable, Collection, Mapping
from reprlib import repr as shortened
from typing import Any, NamedTuple

from .data.corpus import is_language

DEEPEST = 8
"""Levels of objects and lists in each other; four are needed."""


class Kind(NamedTuple):
    """What a field may hold: its name for readers, and whether a value is such."""

    name: str
    holds: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_languages(value: Any) -> bool:
    if not isinstance(value, list):
        return value is None
    return len(value) == 2 and all(isinstance(name, str) and is_language(name) for name in value)


WHOLE = Kind("a whole number", _is_whole)
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
STEPS = Kind("a list of whole numbers", lambda value: isinstance(value, list) and all(map(_is_whole, value)))
TEXT = Kind("text or null", lambda value: value is None or isinstance(value, str))
LANGUAGES = Kind("two languages or null", _are_languages)

FIELDS = {"version": WHOLE, "step": WHOLE, "config": OBJECT, "tokenizer": TEXT, "state": OBJECT}
STATE_FIELDS = {"settings": OBJECT, "data": OBJECT, "tokens": WHOLE, "languages": LANGUAGES, "averaged_steps": STEPS}


def read_description(text: str, version: int) -> dict[str, Any]:
    """The description in a file's metadata. Raises ValueError for another version, and saying what is wrong with it."""
    try:
        description = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its description is not valid JSON ({error})") from None
    _check_sizes(description)
    if not isinstance(description, dict):
        raise ValueError("its description is not an object")
    if description.get("version") != version:
        written = shortened(description.get("version"))
        raise ValueError(f"it has version {written} of the checkpoint format; this program reads {version}")
    _check_fields(description, FIELDS, required=FIELDS)
    _check_fields(description["state"], STATE_FIELDS)
    return description


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def _check_sizes(description: Any) -> None:
    """Raise ValueError for nesting too deep and integers too long, without recursion."""
    level, depth = [description], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"its description is nested more than {DEEPEST} levels deep")
        if any(isinstance(value, int) and abs(value) > sys.maxsize for value in level):
            raise ValueError("its description holds an integer of more than 64 bits")
        lists = [list(value.values()) if isinstance(value, dict) else value for value in level]
        level = [value for values in lists if isinstance(values, list) for value in values]


def _check_fields(values: Mapping[str, Any], kinds: Mapping[str, Kind], required: Collection[str] = ()) -> None:
    """Raise ValueError where a field is missing that is required, or is not of its kind."""
    for name, kind in kinds.items():
        if name in required and name not in values:
            raise ValueError(f"it has no {name}")
        if name in values and not kind.holds(values[name]):
            raise ValueError(f"its {name} is {shortened(values[name])}, expected {kind.name}")
