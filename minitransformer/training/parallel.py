"""Data parallelism: replicas of a model on parts of a batch, one Python thread each, then one sum.

The same lines would serve processes or GPUs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from ..data.batching import Batch
from ..layers import DropoutStream
from ..models import Model
from ..threads import Threads

# Of a loss that grows beyond all numbers the trainer tells in one sentence; NumPy's warnings on the way add nothing.
without_overflow_warnings = np.errstate(over="ignore", invalid="ignore")


class DataParallel:
    """A model and its replicas: the same parameters, each with a gradient array of its own.

    The results repeat exactly for one number of threads, and between numbers of threads agree up to rounding: each
    part's loss is weighted by its share of the targets, gradients are summed in a fixed order, and a dropout mask
    depends on a sentence's number, not on the part it is in. Use it as a context manager, as `Threads`.
    """

    def __init__(self, model: Model, threads: int) -> None:
        self.model = model
        if not isinstance(model.parameters.data, np.ndarray):
            threads = 1  # another backend shares out its work by itself
        self.replicas = [model, *(model.replica() for _ in range(threads - 1))]
        self._threads = Threads(threads)

    def __enter__(self) -> Self:
        self._threads.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.__exit__(*exception)

    def gradients(self, batches: Sequence[Batch], label_smoothing: float, seed: int, step: int) -> float:
        """The mean loss over all targets of `batches`; its gradient is left in `model.parameters.grad`.

        Several batches give what one batch of all their sentences would, since a batch's loss too is weighted by its
        share of the targets and no two sentences of a step have the same number.
        """
        num_targets = sum(batch.num_target_tokens for batch in batches)

        @without_overflow_warnings
        def part_loss(replica: Model, part: Batch) -> float:
            share = part.num_target_tokens / num_targets
            dropout = DropoutStream(seed, step, sentence=part.first)
            loss, cache = replica.loss(part.source, part.target_in, part.target_out, label_smoothing, dropout)
            replica.loss_backward(share, cache)
            return share * float(loss)

        for replica in self.replicas:
            replica.parameters.zero_grad()
        loss, first = 0.0, 0
        for batch in batches:
            loss += sum(self._map(part_loss, replace(batch, first=first)))
            first += batch.num_sentences
        grad = self.model.parameters.grad
        for replica in self.replicas[1:]:
            grad += replica.parameters.grad
        return loss

    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """The negative log-likelihood of a target token, averaged over all of `batches`; no smoothing, no dropout."""

        @without_overflow_warnings
        def part_loss(replica: Model, part: Batch) -> float:
            loss, _ = replica.loss(part.source, part.target_in, part.target_out, with_grad=False)
            return part.num_target_tokens * float(loss)

        total, num_targets = 0.0, 0
        for batch in batches:
            total += sum(self._map(part_loss, batch))
            num_targets += batch.num_target_tokens
        return total / num_targets

    def _map(self, part_loss: Callable[[Model, Batch], float], batch: Batch) -> list[float]:
        """Run `part_loss` on the parts of `batch`, one thread each."""
        return list(self._threads.map(part_loss, self.replicas, batch.split(len(self.replicas))))
