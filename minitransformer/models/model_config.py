"""What the configuration of any model has, how it is written down, and the checks that configurations share."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, ClassVar, Self, cast

DEFAULT_KIND = "transformer"
"""The kind of model that a configuration without a kind is of: a file need not say what it always was."""

SMALLEST, LARGEST = 1.2e-38, 3.4e38
"""Positive numbers that float32 holds: a smaller one is 0 there, or loses its digits, and a larger one infinite."""


class ModelConfig(ABC):
    """What the trainer, the searches and checkpoints ask of a configuration; each model's is a frozen dataclass."""

    kind: ClassVar[str]
    vocab_size: int
    d_model: int
    max_length: int
    pad_id: int
    bos_id: int
    eos_id: int

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """All that is learned, computed without making the model: the one table of tokens and both stacks."""

    @property
    @abstractmethod
    def num_layers_in_all(self) -> int:
        """Layers of the encoder and of the decoder; each has several parameters, be they ever so small."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON, and the kind where it is not the default."""
        values = asdict(cast(Any, self))
        return values if self.kind == DEFAULT_KIND else {"kind": self.kind, **values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration that `to_dict` wrote.

        Raises `ValueError` for one of another kind of model, for an unknown field and without a vocab_size.
        """
        values = dict(values)
        kind = values.pop("kind", DEFAULT_KIND)
        if kind != cls.kind:
            raise ValueError(f"the configuration is of a model of kind {kind!r}, not {cls.kind!r}")
        unknown = set(values) - {field.name for field in fields(cast(Any, cls))}
        if unknown:
            raise ValueError(f"unknown configuration fields: {', '.join(sorted(unknown))}")
        if "vocab_size" not in values:
            raise ValueError("the configuration has no vocab_size")
        return cls(**values)


def check_counts(config: ModelConfig, least: int, *names: str) -> None:
    """These fields must be integers of at least `least`."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
        if value < least:
            raise ValueError(f"{name} is {value}, expected {least} or more")
        if value > sys.maxsize:
            raise ValueError(f"{name} is larger than {sys.maxsize}, the most that an axis of an array can be")


def check_rates(config: ModelConfig, *names: str) -> None:
    """These fields must be numbers in [0, 1)."""
    for name in names:
        rate = _number(config, name)
        if not 0 <= rate < 1:
            raise ValueError(f"{name} is {rate}, expected a number in [0, 1)")


def check_positive(config: ModelConfig, *names: str, most: float = LARGEST) -> None:
    """These fields must be numbers above 0 and at most `most`, as float32 holds them."""
    for name in names:
        value = _number(config, name)
        if not SMALLEST <= value <= most:
            raise ValueError(f"{name} is {value}, expected a finite number above 0: {SMALLEST} to {most:g}")


def check_flags(config: ModelConfig, *names: str) -> None:
    """These fields must be True or False."""
    for name in names:
        if not isinstance(getattr(config, name), bool):
            raise TypeError(f"{name} must be True or False, got {type(getattr(config, name)).__name__}")


def check_special_tokens(config: ModelConfig) -> None:
    """Padding, begin and end must be three tokens of the vocabulary."""
    check_counts(config, 0, "pad_id", "bos_id", "eos_id")
    specials = (config.pad_id, config.bos_id, config.eos_id)
    if len(set(specials)) != 3 or not all(0 <= token < config.vocab_size for token in specials):
        raise ValueError(f"pad_id, bos_id, eos_id are {specials}, expected three ids below {config.vocab_size}")


def _number(config: ModelConfig, name: str) -> float:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    return value
