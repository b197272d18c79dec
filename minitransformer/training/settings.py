"""The hyper-parameters of a training, apart from the model's own."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from ..checkpoint import Checkpoint, CheckpointError
from ..models.model_config import SMALLEST
from ..optimizer import Schedule
from ..threads import MOST_THREADS

INTEGERS_AT_LEAST = {
    "steps": 0, "tokens_per_batch": 1, "accumulate": 1, "warmup_steps": 1, "seed": 0, "threads": 1,
    "valid_interval": 1, "checkpoint_interval": 1, "keep": 1,
}  # fmt: skip
INTEGERS_AT_MOST = {
    "accumulate": 4096,  # all of a step's batches are in memory at once; at the default size these have 16 M tokens
    "threads": MOST_THREADS,
}
POSITIVE_OR_NONE = ("minutes", "clip_norm", "peak_lr")
RESUMED = {"settings", "data", "tokens"}
"""What the state of a checkpoint holds if a training can go on from it."""

FREE_TO_CHANGE = ("steps", "minutes", "threads", "valid_interval", "keep")


@dataclass(frozen=True)
class TrainingSettings:
    """What a training does, the defaults being the paper's (Vaswani 2017, §5). Raises ValueError or TypeError.

    steps                optimiser steps in all
    minutes              stop earlier, after this long in one go, or None
    tokens_per_batch     padded size of a batch: longest side × sentences
    accumulate           batches whose gradients make one step
    label_smoothing      ε_ls of §5.4
    clip_norm            longest global norm of a gradient, or None
    warmup_steps         steps until the learning rate's peak
    peak_lr              that peak, or None for the paper's, (d_model · warmup_steps)^-0.5
    beta1, beta2, eps    Adam's
    seed                 of the order of the data and of dropout
    threads              Python threads that share a batch
    valid_interval       steps from one validation to the next
    checkpoint_interval  steps from one checkpoint to the next
    keep                 how many checkpoints stay
    """

    steps: int = 100_000
    minutes: float | None = None
    tokens_per_batch: int = 4096  # Paper: 25,000 source and as many target tokens, too many for a CPU.
    accumulate: int = 1
    label_smoothing: float = 0.1
    clip_norm: float | None = None
    warmup_steps: int = 4000
    peak_lr: float | None = None
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    seed: int = 0
    threads: int = 2
    valid_interval: int = 1000
    checkpoint_interval: int = 1000
    keep: int = 5

    def __post_init__(self) -> None:
        for name, least in INTEGERS_AT_LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
            if value > INTEGERS_AT_MOST.get(name, sys.maxsize):
                raise ValueError(f"{name} must be at most {INTEGERS_AT_MOST.get(name, sys.maxsize)}, got {value}")
        for name in POSITIVE_OR_NONE:
            if getattr(self, name) is not None and not 0 < self._number(name) < float("inf"):
                raise ValueError(f"{name} must be positive and finite, or None, got {getattr(self, name)}")
        for name in ("label_smoothing", "beta1", "beta2"):
            if not 0 <= self._number(name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        if not SMALLEST <= self._number("eps") <= 1:  # in float32 less is 0, and with more Adam is no longer Adam
            raise ValueError(f"eps must be positive, from {SMALLEST} to 1, got {self.eps}")

    def _number(self, name: str) -> float:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number, got {value!r}")
        return value

    def schedule(self, d_model: int) -> Schedule:
        """The learning rate of each step for a model of this width."""
        if self.peak_lr is None:
            return Schedule.paper(d_model, self.warmup_steps)
        return Schedule(self.peak_lr, self.warmup_steps)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The settings of `to_dict`; raises ValueError naming what is not one, and as the settings themselves."""
        unknown = sorted(set(values) - {f.name for f in fields(cls)})
        if unknown:
            raise ValueError(f"not a training setting: {', '.join(unknown)}")
        return cls(**values)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, path: Path) -> Self:
        """The settings of the training that left `checkpoint` at `path`; raises CheckpointError without such."""
        if not checkpoint.state.keys() >= RESUMED:
            raise CheckpointError(f"{path} holds a model but no training to resume")
        try:
            return cls.from_dict(checkpoint.state["settings"])
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{path} holds settings that no training can have: {error}") from None

    def check_continues(self, earlier: "TrainingSettings") -> None:
        """Raise ValueError where a training begun with `earlier` would not go on as it began, naming the settings."""
        changed = [
            f"{name} was {value!r} and is {getattr(self, name)!r}"
            for name, value in earlier.to_dict().items()
            if name not in FREE_TO_CHANGE and getattr(self, name) != value
        ]
        if changed:
            raise ValueError(f"a resumed training keeps its settings, but {', '.join(changed)}")
