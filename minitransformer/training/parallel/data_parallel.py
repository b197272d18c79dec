"""A training step shared by threads and processes: each shard of the batch is computed by a replica of the model."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ...models import Model
from ...system.threads import Threads
from ..data import TrainingBatch
from ..step import Worker, without_overflow_warnings
from .processes import ALONE, Processes
from .shards import TreeSum, exchange, share


class DataParallel(Worker):
    """A model and its replicas, which share the parameters and have a gradient array each.

    A batch is cut into `shards`, by default one a thread. Each is computed by one thread of one process, and their
    gradients are added along a fixed tree, so the bits depend on the number of shards alone, and with another number
    they agree up to rounding. For this each part's loss is weighted by its share of the targets, and a dropout mask
    depends on a sentence's number, not on its part. A backend that has threads of its own gets one. Use it as a context
    manager, like `Threads`.
    """

    def __init__(
        self, model: Model[Any], threads: int, shards: int | None = None, processes: Processes = ALONE
    ) -> None:
        super().__init__(model)
        threads = 1 if model.ops.has_threads else threads
        self.processes, self.num_shards = processes, threads if shards is None else shards
        self._replicas = [model]
        self._threads = Threads(threads)

    def __enter__(self) -> Self:
        self._threads.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.__exit__(*exception)

    def gradients(self, batches: Sequence[TrainingBatch], label_smoothing: float, seed: int, step: int) -> float:
        """Write the gradient that a `Worker` computes, and return its loss; of several processes each gets its slice.

        Which slice that is, and how it is summed, is in `shards.py`.
        """
        if self.num_shards == self.processes.size == 1:
            return super().gradients(batches, label_smoothing, seed, step)
        num_targets, num_sentences, split = 0, 0, []
        for batch in batches:
            split.append(replace(batch, first=num_sentences).split(self.num_shards))
            num_targets, num_sentences = num_targets + batch.num_targets, num_sentences + batch.num_sentences
        losses = np.zeros((len(batches), self.num_shards))

        def add_shard(replica: Model[Any], shard: int) -> None:
            """Add the gradient of a shard: its part of each batch, and no part of a batch with too few rows."""
            replica.parameters.zero_grad()
            for row, parts in zip(losses, split, strict=True):
                if shard < len(parts):
                    row[shard] = self.add_part(replica, parts[shard], num_targets, label_smoothing, seed, step)

        free = self._replicas[::-1]  # the model itself takes the first shard, so that the sum is its gradient

        def add(left: Model[Any], right: Model[Any]) -> None:
            left.parameters.grad += right.parameters.grad
            free.append(right)

        tree, mine = TreeSum(add), share(self.num_shards, self.processes.rank, self.processes.size)
        for start in range(0, len(mine), self._threads.count):
            shards = mine[start : start + self._threads.count]
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
        """Return the negative log-likelihood of a target, averaged over all of `batches`; no smoothing, no dropout."""

        @without_overflow_warnings
        def part_loss(part: TrainingBatch) -> float:
            loss, _ = self.model.loss(*part.inputs, with_grad=False, **part.masks)
            return part.num_targets * float(loss)

        def batch_loss(batch: TrainingBatch) -> tuple[float, int]:
            return sum(self._threads.map(part_loss, batch.split(self.num_shards))), batch.num_targets

        losses, num_targets = zip(*self.processes.map(batch_loss, batches), strict=True)
        return sum(losses) / sum(num_targets)
