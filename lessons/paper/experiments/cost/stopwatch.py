"""How long a training step takes on this machine, with a batch that is a small part of the paper's."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from minitransformer.costs import flops_per_token, num_parameters, training_bytes
from minitransformer.data.batching import Batch
from minitransformer.memory import keep_freed_memory
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.ops import Ops
from minitransformer.optimizer import Adam
from minitransformer.training import DataParallel

SMOOTHING, LEARNING_RATE = 0.1, 1e-4
SMALLER = 4
"""How many times smaller the other batch is."""

MARGIN = 1.5
"""Of memory that is free, over what weights and activations take: temporary arrays come on top."""


@dataclass(frozen=True)
class StepTime:
    """A step takes `fixed` seconds (the update of all parameters), and `per_token` for each token of a side.

    flops            operations that a token of a side takes: its source's and its target's matrix products
    tokens_per_side  of the largest batch that was timed
    rounds           `fixed` and `per_token` by the times of each round alone
    """

    fixed: float
    per_token: float
    flops: float
    tokens_per_side: int
    rounds: list[tuple[float, float]]

    def seconds(self, tokens_per_side: float) -> float:
        """A step on a batch of that size."""
        return self.fixed + self.per_token * tokens_per_side

    def between(self, tokens_per_side: float) -> tuple[float, float]:
        """The least and the most seconds that a round alone, or all of them together, would say."""
        lines = [(self.fixed, self.per_token), *self.rounds]
        said = [fixed + per_token * tokens_per_side for fixed, per_token in lines]
        return min(said), max(said)


def time_step(
    config: TransformerConfig, ops: Ops, dtype: str, threads: int, sentences: int, length: int, rounds: int = 3
) -> StepTime:
    """Times steps on batches of `sentences` and of a quarter of them, in turn.

    Of either the fastest counts, and how far single rounds are apart is kept. Random tokens, `length` on each side of a
    sentence, none of them padding; gradients as the trainer takes them, and Adam. One step before is not counted.
    """
    keep_freed_memory()
    model = Transformer(config, ops, dtype)
    optimizer = Adam(model.parameters, ops)
    counts = max(1, sentences // SMALLER), max(2, sentences)
    batches = [_batch(config, count, length) for count in counts]
    taken: list[list[float]] = []
    with DataParallel(model, threads) as workers:
        _step(workers, optimizer, batches[1], 1)
        for _ in range(rounds):
            taken.append([])
            for batch in batches:
                began = perf_counter()
                _step(workers, optimizer, batch, optimizer.num_steps + 1)
                taken[-1].append(perf_counter() - began)
    tokens = counts[0] * length, counts[1] * length
    (fixed, per_token), *lines = (_line(tokens, times) for times in (np.min(taken, axis=0), *taken))
    return StepTime(fixed, per_token, 2 * flops_per_token(config, length).training, tokens[1], lines)


def _step(workers: DataParallel, optimizer: Adam, batch: Batch, number: int) -> None:
    workers.gradients([batch], SMOOTHING, seed=0, step=number)
    optimizer.step(LEARNING_RATE)
    workers.model.ops.to_numpy(workers.model.parameters.data[:1])  # a GPU computes on until something is asked for


def _line(tokens: tuple[int, int], times: Sequence[float]) -> tuple[float, float]:
    """At zero, and a token, of the line through two times; where the larger took no longer, through it and zero."""
    small, large = tokens
    per_token = (times[1] - times[0]) / (large - small)
    fixed = times[0] - small * per_token
    if per_token <= 0 or fixed < 0:
        fixed, per_token = 0.0, times[1] / large
    return float(fixed), float(per_token)


def fits(config: TransformerConfig, sentences: int, length: int, threads: int) -> bool:
    """Whether there is free memory for `time_step`; False where the system does not tell."""
    names = ("SC_AVPHYS_PAGES", "SC_PAGE_SIZE")
    if not set(names) <= set(getattr(os, "sysconf_names", {})):
        return False
    pages, size = map(os.sysconf, names)
    needed = training_bytes(config, num_parameters(config), sentences * length, length, threads)
    return MARGIN * needed < pages * size


def _batch(config: TransformerConfig, sentences: int, length: int) -> Batch:
    ids = np.random.default_rng(0).integers(config.eos_id + 1, config.vocab_size, (2, sentences, length + 1))
    return Batch(ids[0, :, 1:], ids[1, :, :-1], ids[1, :, 1:])
