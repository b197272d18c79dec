"""The base of configurations: each field declares the values that it may hold, and all convert to and from JSON.

    @dataclass(frozen=True)
    class Settings(Config):
        steps: int = whole(1000, "optimiser steps in all")
        minutes: float | None = positive(None, "stop after this long")

A field with the default None may hold None; a field without a default must be given.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, field, fields
from functools import cache
from typing import Any, Self, cast, get_args, get_type_hints

SMALLEST, LARGEST = 1.2e-38, 3.4e38
"""The bounds of positive numbers in float32: smaller ones become 0 or lose digits, larger ones become infinite."""


class Config:
    """The base class of configurations, which are frozen dataclasses: fields are checked when one is made."""

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError, naming the field, its value and the values that it may hold."""
        parts = _parts(type(self))
        for each in fields(cast(Any, self)):
            value = getattr(self, each.name)
            if value is None and each.default is None:
                continue
            if "check" in each.metadata:
                each.metadata["check"](each.name, value)
            elif each.name in parts and not isinstance(value, parts[each.name]):
                raise TypeError(f"{each.name} must be a {parts[each.name].__name__}, got {type(value).__name__}")

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON holds them, with lists for tuples."""
        return json.loads(json.dumps(asdict(cast(Any, self))))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the configuration that `to_dict` wrote, with its parts. Raises ValueError for an unknown field."""
        unknown = set(values) - {each.name for each in fields(cast(Any, cls))}
        if unknown:
            raise ValueError(f"unknown configuration fields: {', '.join(sorted(unknown))}")
        parts = _parts(cls)
        restored = {
            name: parts[name].from_dict(value)
            if name in parts and isinstance(value, Mapping)
            else tuple(value)  # JSON has no tuples
            if isinstance(value, list)
            else value
            for name, value in values.items()
        }
        return cls(**restored)


def whole(default: Any = MISSING, help: str = "", least: int = 1, most: int = sys.maxsize) -> Any:
    """Declare a field for an integer from `least` to `most`."""
    bounds = f"{least} or more" if most == sys.maxsize else f"{least} to {most}"

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
        if value > sys.maxsize:  # the message leaves it out: it may have more digits than Python can print
            raise ValueError(f"{name} is larger than {sys.maxsize}, the most that an axis of an array can be")
        if not least <= value <= most:
            raise ValueError(f"{name} is {value}, expected {bounds}")

    return _field(default, help, check)


def ids(default: tuple[int, ...] = (), help: str = "") -> Any:
    """Declare a field for the ids of some tokens: integers that are 0 or more."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, tuple) or any(type(each) is not int or not 0 <= each <= sys.maxsize for each in value):
            raise TypeError(f"{name} must be ids, integers of 0 or more, got {value!r}")

    return _field(default, help, check)


def rate(default: Any = MISSING, help: str = "") -> Any:
    """Declare a field for a number in [0, 1)."""

    def check(name: str, value: Any) -> None:
        if not 0 <= _number(name, value) < 1:
            raise ValueError(f"{name} is {value}, expected a number in [0, 1)")

    return _field(default, help, check)


def positive(default: Any = MISSING, help: str = "", least: float = 0.0, most: float = math.inf) -> Any:
    """Declare a field for a finite number above 0 and from `least` to `most`."""
    bounds = f": {least} to {most:g}" if least else "" if most == math.inf else f" and at most {most:g}"

    def check(name: str, value: Any) -> None:
        if not (0 < _number(name, value) < math.inf and least <= value <= most):
            raise ValueError(f"{name} is {value}, expected a finite number above 0{bounds}")

    return _field(default, help, check)


def not_negative(default: Any = MISSING, help: str = "") -> Any:
    """Declare a field for a finite number that is 0 or more."""

    def check(name: str, value: Any) -> None:
        if not 0 <= _number(name, value) < math.inf:
            raise ValueError(f"{name} is {value}, expected a finite number that is 0 or more")

    return _field(default, help, check)


def flag(default: Any = MISSING, help: str = "") -> Any:
    """Declare a field for True or False."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {type(value).__name__}")

    return _field(default, help, check)


def choice(*choices: str | bool, default: Any = MISSING, help: str = "") -> Any:
    """Declare a field for one of some words, of which True and False may be two."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, str | bool) or value not in choices:
            raise ValueError(f"{name} is {value!r}, expected {' or '.join(map(repr, choices))}")

    return _field(default, help, check)


def require(condition: bool, message: str) -> None:
    """Raise ValueError with this message unless the condition holds; for conditions on several fields."""
    if not condition:
        raise ValueError(message)


def help_of(cls: Any) -> dict[str, str]:
    """Return the help text of each field of a configuration, by name."""
    return {each.name: each.metadata["help"] for each in fields(cls) if "help" in each.metadata}


@cache
def _parts(cls: type[Config]) -> dict[str, type[Config]]:
    """Return the fields of a configuration that hold another one, each with its type."""
    hints = get_type_hints(cls)
    return {
        each.name: kind
        for each in fields(cast(Any, cls))
        for kind in (hints[each.name], *get_args(hints[each.name]))  # `RotaryConfig | None` has two
        if isinstance(kind, type) and issubclass(kind, Config)
    }


def _field(default: Any, help: str, check: Callable[[str, Any], None]) -> Any:
    return field(default=default, metadata={"help": help, "check": check})


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    return value
