"""The hyper-parameters of a training; those of the model are its own configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..config import SMALLEST, Config, positive, rate, whole
from ..system.threads import MOST_THREADS
from .checkpoint import Checkpoint, CheckpointError
from .optimizer import Schedule
from .parallel.shards import MOST_SHARDS

MOST_ACCUMULATED = 4096  # all of a step's batches are in memory at once; at the default size these have 16 M tokens
RESUMED = {"settings", "data", "tokens"}
"""The keys in a checkpoint's state that a training needs in order to resume."""

FREE_TO_CHANGE = ("steps", "minutes", "threads", "valid_interval", "keep")


@dataclass(frozen=True)
class TrainingSettings(Config):
    """The settings of a training; the defaults are the paper's (Vaswani 2017, §5). Raises as `Config` does."""

    steps: int = whole(100_000, "optimiser steps in all", least=0)
    minutes: float | None = positive(None, "stop after this long, ready to be resumed")
    # Paper: about 25,000 source and 25,000 target tokens, too many for a CPU.
    tokens_per_batch: int = whole(4096, "longest side × sentences of a batch, at most")
    accumulate: int = whole(1, "batches whose gradients make one step", most=MOST_ACCUMULATED)
    label_smoothing: float = rate(0.1, "share of the target's probability that is spread over the vocabulary")
    clip_norm: float | None = positive(None, "longest norm of a step's gradient (default: no limit)")
    warmup_steps: int = whole(4000, "steps until the learning rate's peak")
    peak_lr: float | None = positive(
        None, "that peak (default of base and big: the paper's, (d_model × warmup_steps)^-0.5)"
    )
    cooldown: float = rate(0.0, "share of the steps, the last ones, in which the rate falls to zero")
    beta1: float = rate(0.9, "Adam's decay of the mean gradient")
    beta2: float = rate(0.98, "Adam's decay of the mean squared gradient")
    eps: float = positive(1e-9, "Adam's ε", SMALLEST, 1)  # in float32 less is 0, and with more Adam is no longer Adam
    seed: int = whole(0, "of the initial weights, the order of the data and dropout", least=0)
    threads: int = whole(2, "threads that share a batch", most=MOST_THREADS)
    shards: int | None = whole(
        None, "parts of a batch that processes share (default: 8 under torchrun, else one a thread)", most=MOST_SHARDS
    )
    valid_interval: int = whole(1000, "steps from one validation to the next")
    checkpoint_interval: int = whole(1000, "steps from one checkpoint to the next")
    keep: int = whole(5, "how many checkpoints stay")

    def schedule(self, d_model: int) -> Schedule:
        """Return the learning rate of each step for a model of this width: the paper's, unless `peak_lr` is given."""
        peak = self.peak_lr or Schedule.paper(d_model, self.warmup_steps).peak_lr
        return Schedule(peak, self.warmup_steps, self.steps, round(self.cooldown * self.steps))

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, path: Path) -> Self:
        """Return the settings of the training that wrote `checkpoint` to `path`. Raises CheckpointError for none."""
        if not checkpoint.state.keys() >= RESUMED:
            raise CheckpointError(f"{path} holds a model but no training to resume")
        try:
            return cls.from_dict(checkpoint.state["settings"])
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{path} holds settings that no training can have: {error}") from None

    def check_weighted(self, together: int) -> None:
        """Raise ValueError for settings that an objective can't have, of which `together` steps use the same texts."""
        if self.label_smoothing:
            raise ValueError(f"label_smoothing is {self.label_smoothing}, expected 0: what was drawn is no label")
        for name in ("steps", "checkpoint_interval"):
            value = getattr(self, name)
            if value % together:
                raise ValueError(f"{name} is {value}, expected a multiple of the {together} updates of a rollout")
        if together > 1 and self.accumulate > 1:
            raise ValueError(f"accumulate is {self.accumulate}, expected 1 with several updates of a rollout")

    def check_undivided(self) -> None:
        """Raise ValueError, naming it, for a setting by which a step's pairs would not all be compared at once."""
        for name in ("threads", "shards", "accumulate"):
            value = getattr(self, name)
            if value not in (None, 1):
                raise ValueError(
                    f"{name} is {value}, expected 1: the loss compares all pairs of a batch, so --{name} 1"
                )

    def check_continues(self, earlier: "TrainingSettings") -> None:
        """Raise ValueError, naming them, if settings differ that a resumed training must keep from `earlier`."""
        changed = [
            f"{name} was {value!r} and is {getattr(self, name)!r}"
            for name, value in earlier.to_dict().items()
            if name not in FREE_TO_CHANGE and getattr(self, name) != value
        ]
        if changed:
            raise ValueError(f"a resumed training keeps its settings, but {', '.join(changed)}")
