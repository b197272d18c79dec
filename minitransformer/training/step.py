"""The training step: the gradient of some batches, its norm, and Adam; the same lines on every backend.

A batch is cut into shards. Each is computed in one of the processes, if there are several, by a replica of the model in
a Python thread, unless the backend has threads of its own.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ..layers import DropoutStream
from ..models import Model
from ..ops import Array
from ..system.threads import Threads
from .data import TrainingBatch
from .distributed import ALONE, Processes
from .optimizer import Adam, clip_scale
from .sharded_adam import exchange
from .shards import TreeSum, share

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
    """A model and its replicas, which share the parameters and have a gradient array each.

    A batch is cut into `shards`, by default one a thread. Each is computed by one thread of one process, and their
    gradients are added along a fixed tree, so the bits depend on the number of shards alone, and with another number
    they agree up to rounding. For this each part's loss is weighted by its share of the targets, and a dropout mask
    depends on a sentence's number, not on its part. Use it as a context manager, like `Threads`.
    """

    def __init__(
        self, model: Model[Any], threads: int, shards: int | None = None, processes: Processes = ALONE
    ) -> None:
        threads = 1 if model.ops.has_threads else threads
        self.model, self.processes = model, processes
        self.num_shards = threads if shards is None else shards
        self.shards = share(self.num_shards, processes.rank, processes.size)
        self._replicas = [model]
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
        targets, and `first` numbers the sentences through the whole step. Of several processes each gets its slice of
        the gradient (see `sharded_adam.py`).
        """
        num_targets, num_sentences, split = 0, 0, []
        for batch in batches:
            split.append(replace(batch, first=num_sentences).split(self.num_shards))
            num_targets, num_sentences = num_targets + batch.num_targets, num_sentences + batch.num_sentences
        losses = np.zeros((len(batches), self.num_shards))

        @without_overflow_warnings  # again, because NumPy keeps this setting for each thread
        def add_shard(replica: Model[Any], shard: int) -> None:
            """The gradient of a shard: its part of each batch, and no part of a batch with too few rows."""
            replica.parameters.zero_grad()
            for row, parts in zip(losses, split, strict=True):
                if shard < len(parts):
                    part = parts[shard]
                    weight = part.num_targets / num_targets
                    dropout = DropoutStream(seed, step, part.first)
                    row[shard] = weight * float(self._run(replica, part, weight, label_smoothing, dropout))

        free = self._replicas[::-1]  # the model itself takes the first shard, so that the sum is its gradient

        def add(left: Model[Any], right: Model[Any]) -> None:
            left.parameters.grad += right.parameters.grad
            free.append(right)

        tree = TreeSum(add)
        for start in range(self.shards.start, self.shards.stop, self._threads.count):
            shards = self.shards[start - self.shards.start :][: self._threads.count]
            replicas = [free.pop() if free else self._new_replica() for _ in shards]
            list(self._threads.map(add_shard, replicas, shards))
            for shard, replica in zip(shards, replicas, strict=True):
                tree.push(shard, replica)
        if self.processes.size == 1:
            tree.total()
        else:
            sums = [replica.parameters.grad for replica in tree.sums]
            exchange(self.processes, sums, self.num_shards, self.model.parameters.grad)
            losses = self.processes.sum(losses)
        return sum(map(sum, losses.tolist()))

    def _new_replica(self) -> Model[Any]:
        self._replicas.append(self.model.replica())
        return self._replicas[-1]

    def mean_loss(self, batches: Iterable[TrainingBatch]) -> float:
        """The negative log-likelihood of a target, averaged over all of `batches`; no smoothing, no dropout."""

        @without_overflow_warnings
        def part_loss(part: TrainingBatch) -> float:
            loss, _ = self.model.loss(*part.inputs, with_grad=False)
            return part.num_targets * float(loss)

        def batch_loss(batch: TrainingBatch) -> tuple[float, int]:
            return sum(self._threads.map(part_loss, batch.split(self.num_shards))), batch.num_targets

        losses, num_targets = zip(*self.processes.map(batch_loss, batches), strict=True)
        return sum(losses) / sum(num_targets)
