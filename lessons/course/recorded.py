"""Results that a learner's machine may not be able to measure, recorded where it could be."""

import json
import os
from collections.abc import Callable
from typing import Any

from .sources import room

RECORD = "COURSE_RECORD"  # set by `make notebooks`


def recorded(name: str, measure: Callable[[], Any]) -> Any:
    """What `measure()` returns (JSON), or what it returned when the notebooks were built, where a package is missing.

    "04_pytorch" is kept as `recordings/pytorch.json` in the room of lesson 04. `measure` imports what it needs; where
    that raises `ImportError`, a line says so.
    """
    path = room(name[:2]) / "recordings" / f"{name[3:]}.json"
    try:
        result = measure()
    except ImportError as missing:
        print(f"{missing}: what follows was recorded where it is installed (see lessons/README.md)")
        return json.loads(path.read_text(encoding="utf-8"))
    if os.environ.get(RECORD):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result
