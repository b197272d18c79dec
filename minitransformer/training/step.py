"""The training step: the gradient of some batches, its norm, and Adam; the same lines on every backend."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..layers import DropoutStream
from ..models import Model
from ..ops import Array
from .data import TrainingBatch
from .optimizer import Adam, clip_scale

# If a loss grows beyond all numbers, TrainingDiverged says so; NumPy's warnings before it would only repeat it.
without_overflow_warnings = np.errstate(over="ignore", invalid="ignore")


class TrainingDiverged(RuntimeError):
    """The loss or the gradient is no longer a finite number."""


@without_overflow_warnings
def training_step(
    worker: "Worker",
    optimizer: Adam,
    batches: Sequence[TrainingBatch],
    *,
    learning_rate: float,
    label_smoothing: float = 0.1,
    clip_norm: float | None = None,
    seed: int = 0,
) -> tuple[float, float]:
    """Take one step on `batches`; return their loss and the norm of its gradient, before clipping.

    The optimiser counts steps, from 1; the step's number determines its dropout masks. If the loss or the gradient is
    not finite, raises `TrainingDiverged`, naming the step, and leaves the parameters unchanged.
    """
    step = optimizer.num_steps + 1
    loss = worker.gradients(batches, label_smoothing, seed, step)
    norm = optimizer.grad_norm()
    for name, value in (("loss", loss), ("gradient norm", norm)):
        if not math.isfinite(value):
            raise TrainingDiverged(f"the {name} of step {step} is {value}")
    optimizer.step(learning_rate, clip_scale(norm, clip_norm))
    return loss, norm


def loss_and_gradient(
    model: Model[Any], batch: TrainingBatch, share: float | Array, label_smoothing: float, dropout: DropoutStream | None
) -> Array:
    """Return the loss of a batch, and add `share` times its gradient to the gradient of the model's parameters.

    It is a function of its own so that `ops.repeated` can make a CUDA graph of it.
    """
    loss, cache = model.loss(*batch.inputs, label_smoothing=label_smoothing, dropout=dropout, **batch.masks)
    model.loss_backward(share, cache)
    return loss


class Worker:
    """Computes a model's gradients in this thread; `parallel.data_parallel` shares it among threads and processes."""

    def __init__(self, model: Model[Any]) -> None:
        self.model = model
        self._run = model.ops.repeated(loss_and_gradient)

    def gradients(self, batches: Sequence[TrainingBatch], label_smoothing: float, seed: int, step: int) -> float:
        """Return the mean loss over all targets of `batches`, and write its gradient to `model.parameters.grad`.

        Several batches give the gradient of one batch with all their sentences: each is weighted by its share of the
        targets, and `first` numbers the sentences through the whole step.
        """
        self.model.parameters.zero_grad()
        num_targets = sum(batch.num_targets for batch in batches)
        loss, first = 0.0, 0
        for batch in batches:
            loss += self.add_part(self.model, replace(batch, first=first), num_targets, label_smoothing, seed, step)
            first += batch.num_sentences
        return loss

    @without_overflow_warnings  # again, because NumPy keeps this setting for each thread
    def add_part(
        self, model: Model[Any], part: TrainingBatch, num_targets: int, label_smoothing: float, seed: int, step: int
    ) -> float:
        """Add the gradient of a part to that of `model`, return its loss: both times its share of `num_targets`."""
        weight = part.num_targets / num_targets
        return weight * float(self._run(model, part, weight, label_smoothing, DropoutStream(seed, step, part.first)))
