"""The training step: the gradient of some batches, its norm, and Adam; the same lines on every backend.

A batch is split over replicas of the model, each in a Python thread, unless the backend has threads of its own.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ..layers import DropoutStream
from ..models import Model
from ..ops import Array
from ..threads import Threads
from .data import TrainingBatch
from .optimizer import Adam, clip_scale

# If a loss grows beyond all numbers, TrainingDiverged says so; NumPy's warnings before it would only repeat it.
without_overflow_warnings = np.errstate(over="ignore", invalid="ignore")


class TrainingDiverged(RuntimeError):
    """The loss or the gradient is no longer a finite number."""


@without_overflow_warnings
def training_step(
    workers: "DataParallel",
    optimizer: Adam,
    batches: Sequence[TrainingBatch],
    *,
    learning_rate: float,
    label_smoothing: float = 0.1,
    clip_norm: float | None = None,
    seed: int = 0,
) -> tuple[float, float]:
    """Takes one step on `batches`; returns their loss and the norm of its gradient, before clipping.

    The optimiser counts steps, from 1; the step's number determines its dropout masks. If the loss or the gradient is
    not finite, raises `TrainingDiverged`, naming the step, and leaves the parameters unchanged.
    """
    step = optimizer.num_steps + 1
    loss = workers.gradients(batches, label_smoothing, seed, step)
    norm = optimizer.grad_norm()
    for name, value in (("loss", loss), ("gradient norm", norm)):
        if not math.isfinite(value):
            raise TrainingDiverged(f"the {name} of step {step} is {value}")
    optimizer.step(learning_rate, clip_scale(norm, clip_norm))
    return loss, norm


def loss_and_gradient(
    model: Model[Any], batch: TrainingBatch, share: float | Array, label_smoothing: float, dropout: DropoutStream | None
) -> Array:
    """The loss of a batch; adds `share` times its gradient into the gradient of the model's parameters.

    It is a function of its own so that `ops.repeated` can make a CUDA graph of it.
    """
    loss, cache = model.loss(*batch.inputs, label_smoothing=label_smoothing, dropout=dropout)
    model.loss_backward(share, cache)
    return loss


class DataParallel:
    """A model and its replicas: the same parameters, each with a gradient array of its own.

    With the same number of threads results repeat exactly; with another number they agree up to rounding. For this each
    part's loss is weighted by its share of the targets, gradients are summed in a fixed order, and a dropout mask
    depends on a sentence's number, not on its part. Use it as a context manager, like `Threads`.
    """

    def __init__(self, model: Model[Any], threads: int) -> None:
        self.model = model
        threads = 1 if model.ops.has_threads else threads
        self.replicas = [model, *(model.replica() for _ in range(threads - 1))]
        self._run = model.ops.repeated(loss_and_gradient)
        self._threads = Threads(threads)

    def __enter__(self) -> Self:
        self._threads.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.__exit__(*exception)

    def gradients(self, batches: Sequence[TrainingBatch], label_smoothing: float, seed: int, step: int) -> float:
        """The mean loss over all targets of `batches`; writes its gradient to `model.parameters.grad`.

        Several batches give the gradient of one batch with all their sentences: each is weighted by its share of the
        targets, and `first` numbers the sentences through the whole step.
        """
        num_targets = sum(batch.num_targets for batch in batches)

        @without_overflow_warnings  # again, because NumPy keeps this setting for each thread
        def part_loss(replica: Model[Any], part: TrainingBatch) -> float:
            share = part.num_targets / num_targets
            return share * float(
                self._run(replica, part, share, label_smoothing, DropoutStream(seed, step, part.first))
            )

        for replica in self.replicas:
            replica.parameters.zero_grad()
        loss, first = 0.0, 0
        for batch in batches:
            parts = replace(batch, first=first).split(len(self.replicas))
            loss += sum(self._threads.map(part_loss, self.replicas, parts))
            first += batch.num_sentences
        grad = self.model.parameters.grad
        for replica in self.replicas[1:]:
            grad += replica.parameters.grad
        return loss

    def mean_loss(self, batches: Iterable[TrainingBatch]) -> float:
        """The negative log-likelihood of a target, averaged over all of `batches`; no smoothing, no dropout."""

        @without_overflow_warnings
        def part_loss(replica: Model[Any], part: TrainingBatch) -> float:
            loss, _ = replica.loss(*part.inputs, with_grad=False)
            return part.num_targets * float(loss)

        total, num_targets = 0.0, 0
        for batch in batches:
            total += sum(self._threads.map(part_loss, self.replicas, batch.split(len(self.replicas))))
            num_targets += batch.num_targets
        return total / num_targets
