"""Toy language models for lesson 11: functions from a prefix to log P of each next token, small enough to list."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from minitransformer import decoding

from ..checks import type_name

EOS = 0  # the end token of the toy vocabularies
VOCAB_SIZE, MAX_LENGTH = 4, 4  # of the random models

Prefix = tuple[int, ...]
NextLogProbs = Callable[[Any], np.ndarray]


class ToyModel:
    """`next_log_probs` as a table; `asked` holds the prefixes that it was asked for.

    Raises TypeError for a prefix that is no tuple, ValueError for one that has ended or is too long.
    """

    def __init__(self, table: dict[Prefix, np.ndarray]):
        self.table, self.kept = table, np.stack(list(table.values()))
        self.asked: list[Prefix] = []

    def __call__(self, prefix: Any) -> np.ndarray:
        if not isinstance(prefix, tuple):
            raise TypeError(f"next_log_probs takes a tuple of ids, and was given one {type_name(prefix)}")
        if not all(isinstance(token, int | np.integer) for token in prefix):
            raise TypeError(f"next_log_probs takes a tuple of whole numbers, and was given {prefix}")
        prefix = tuple(int(token) for token in prefix)
        if EOS in prefix:
            raise ValueError(f"the prefix {prefix} has ended, and nothing follows an end")
        if prefix not in self.table:
            raise ValueError(f"the prefix {prefix} is longer than any sentence: max_length is reached")
        self.asked.append(prefix)
        return self.table[prefix]

    def __deepcopy__(self, memo: Any) -> "ToyModel":
        return self  # `Attempt` copies arguments to detect changes; `untouched` does that here without the cost

    @property
    def untouched(self) -> bool:
        """True if all rows are as they were made."""
        return np.array_equal(np.stack(list(self.table.values())), self.kept)


def toy_model(seed: int) -> ToyModel:
    """A random language model: every sentence ends with EOS, at the latest at `MAX_LENGTH`."""
    return ToyModel({prefix: row.copy() for prefix, row in _random_table(seed).items()})


@cache
def _random_table(seed: int) -> dict[Prefix, np.ndarray]:
    rng = np.random.default_rng(seed)
    table: dict[Prefix, np.ndarray] = {}
    for length in range(MAX_LENGTH):
        for prefix in product(range(1, VOCAB_SIZE), repeat=length):
            logits = 1.5 * rng.standard_normal(VOCAB_SIZE)
            if length == MAX_LENGTH - 1:
                logits[np.arange(VOCAB_SIZE) != EOS] = -np.inf
            table[prefix] = logits - np.log(np.exp(logits).sum())
    return table


def all_sentences(next_log_probs: NextLogProbs) -> dict[Prefix, float]:
    """Every sentence of a random model with its log-probability."""
    found = {}
    for length in range(MAX_LENGTH):
        for prefix in product(range(1, VOCAB_SIZE), repeat=length):
            sentence = (*prefix, EOS)
            found[sentence] = sum(float(next_log_probs(sentence[:t])[sentence[t]]) for t in range(len(sentence)))
    return found


def greedy(next_log_probs: NextLogProbs) -> Prefix:
    """Return the result of greedy search."""
    ids: Prefix = ()
    while EOS not in ids:
        ids = (*ids, int(np.argmax(next_log_probs(ids))))
    return ids


def narrow_search(next_log_probs: NextLogProbs, places: int, alpha: float, longest: int) -> tuple[Prefix, float]:
    """Return the result of a beam search with `places` places, written with dictionaries: ids and their log P."""
    beam: dict[Prefix, float] = {(): 0.0}
    ended: dict[Prefix, float] = {}
    for _ in range(longest):
        grown = {(*p, v): s + row[v] for p, s in beam.items() for row in [next_log_probs(p)] for v in range(len(row))}
        best = dict(sorted(grown.items(), key=lambda item: -item[1])[:places])
        ended |= {p: s for p, s in best.items() if p[-1] == EOS}
        beam = {p: s for p, s in best.items() if p[-1] != EOS}
        places -= len(best) - len(beam)
    return max((ended or beam).items(), key=lambda found: found[1] / decoding.penalty(len(found[0]), alpha))


def closing_place(prefix: Any) -> np.ndarray:
    """A model in which two prefixes go on after a sentence has ended only if its place stays open."""
    probabilities = {(): [0.2, 0.55, 0.15, 0.1], (1,): [0.0, 0.1, 0.4, 0.5], (1, 3): [0.25] * 4, (1, 2): [1, 0, 0, 0]}
    return _row(probabilities.get(tuple(int(token) for token in prefix), [1, 0, 0, 0]))


def late_winner(prefix: Any) -> np.ndarray:
    """A model whose best sentence begins with the worst of the nine prefixes of two tokens."""
    prefix = tuple(int(token) for token in prefix)
    if prefix == (3, 3) or len(prefix) == 3:
        return _row([1, 0, 0, 0])
    return _row([[0.01, 0.34, 0.33, 0.32], [0.01, 0.34, 0.33, 0.32], [0.25] * 4][len(prefix)])


def ends_in_three(prefix: Any) -> np.ndarray:
    """The model `late_winner` with tokens 0 and 3 exchanged."""
    return late_winner([{0: 3, 3: 0}.get(int(token), token) for token in prefix])[[3, 1, 2, 0]]


def slow_but_sure(prefix: Any) -> np.ndarray:
    """A model whose short sentence leads in log P and, until the long one is complete, in the score with α = 1."""
    sure = [0.01, 0.97, 0.01, 0.01]
    return _row([[0.5, 0.45, 0.03, 0.02], sure, sure, [1, 0, 0, 0]][len(prefix)])


def two_sentences(short: int, long: int, ratio: float) -> NextLogProbs:
    """A model of two sentences, 1 1 … 0 of `short` tokens and 2 2 … 0 of `long`; the first token decides.

    log P of the long one is `ratio` times that of the short one.
    """
    low, high = 0.0, 1.0  # P of the short one: P + P^ratio = 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle + middle**ratio < 1 else (low, middle)

    def next_log_probs(prefix: Any) -> np.ndarray:
        tokens = [int(token) for token in prefix]
        if not tokens:
            return _row([0, low, low**ratio])
        goes_on = len(set(tokens)) == 1 and len(tokens) < {1: short, 2: long}.get(tokens[0], 0) - 1
        return _row(np.eye(3)[tokens[0] if goes_on else EOS])

    return next_log_probs


def _row(probabilities: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, dtype=float))
