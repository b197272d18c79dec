"""What each head of a trained model does, measured over sentences: where its weight lies, and what it resolves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minitransformer.grammar import Example
from minitransformer.translator import AttentionMaps, Translator

from ...trials.bootstrap import MEAN, Interval, interval
from .dependencies import Dependency, Kind, pieces

END = "</s>"
JOBS = ("same place", "one before", "one after", "first", "marks", "elsewhere")
"""Where a weight may lie, as seen from its query: each key counts as the first of these that it is; `marks` are
punctuation and the end of the sentence. In the decoder the same place is what was written last."""

SPREAD = "no one place"

EVEN = 0.1
"""A head that puts no more than so much more of its weight anywhere than even attention would has no job."""

FEWEST = 8
"""Sentences on which a dependency can be judged."""


def axes_of(maps: AttentionMaps, kind: Kind) -> tuple[list[str], list[str]]:
    """The labels of the queries and of the keys of one attention."""
    return {
        "encoder": (maps.source_tokens, maps.source_tokens),
        "decoder": (maps.target_tokens, maps.target_inputs),
        "cross": (maps.target_tokens, maps.source_tokens),
    }[kind]


def is_mark(token: str) -> bool:
    """Whether a token, as `AttentionMaps` labels it, is punctuation or the end of the sentence."""
    return token == END or not any(character.isalnum() for character in token)


def visible(kind: Kind, num_queries: int, num_keys: int) -> NDArray[np.bool_]:
    """What the mask lets a query see, `(Tq, Tk)`: in the decoder what was read so far."""
    everything = np.ones((num_queries, num_keys), bool)
    return np.tril(everything) if kind == "decoder" else everything


def even(seen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The weights of a head that attends evenly to all that it may see, `(Tq, Tk)`."""
    return seen / seen.sum(-1, keepdims=True)


def shares(weights: NDArray, keys: Sequence[str], seen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How much of the weights `(..., Tq, Tk)` lies where, and how evenly: `(..., 7)`, the mean over the queries.

    The last is the entropy as a part of even attention's, over the queries that may see more than one key.
    """
    num_queries, num_keys = weights.shape[-2:]
    row, column = np.arange(num_queries)[:, None], np.arange(num_keys)
    marks = np.array([is_mark(key) for key in keys])
    wheres = [column == row, column == row - 1, column == row + 1, column == 0, marks]
    left, parts = np.ones((num_queries, num_keys), bool), []
    for where in wheres:
        parts.append((weights * (where & left)).sum(-1))
        left = left & ~where
    parts.append((weights * left).sum(-1))
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)  # (..., Tq)
    count = seen.sum(-1)  # (Tq,)
    evenness = (entropy / np.log(np.maximum(count, 2)))[..., count > 1].mean(-1)
    return np.concatenate([np.stack(parts, axis=-1).mean(-2), evenness[..., None]], axis=-1)


def job_of(share: Sequence[float], evenly: Sequence[float]) -> str:
    """Where a head puts most weight beyond even attention's, one of JOBS; SPREAD where that is nowhere by much."""
    beyond = [ours - theirs for ours, theirs in zip(share[: len(JOBS)], evenly, strict=False)]
    best = max(range(len(JOBS)), key=beyond.__getitem__)
    return JOBS[best] if beyond[best] > EVEN else SPREAD


@dataclass(frozen=True)
class Observation:
    """A dependency in one sentence: every head's weight from the first piece of the dependent to its governor's pieces.

    weights  `(layers, heads)`
    even     that even attention would give
    query    the row, and `keys` the columns
    apart    tokens from the one to the other; between two texts None
    """

    dependent: str
    governor: str
    maps: AttentionMaps
    weights: NDArray
    even: float
    query: int
    keys: list[int]
    apart: int | None = None


def observe(translator: Translator, dependency: Dependency, examples: Iterable[Example]) -> list[Observation]:
    """The dependency wherever it is found, as the model reads the reference translation."""
    observations = []
    for example in examples:
        places = dependency.find(example)
        if places is None:
            continue
        maps = translator.attention(example.english, example.german)
        decoder = dependency.kind == "decoder"
        sides = (example.english, maps.source_tokens[:-1]), (example.german, maps.target_tokens[:-1])  # without </s>
        queries, keys = sides[dependency.kind != "encoder"], sides[decoder]
        of_dependent, of_governor = pieces(*queries, places[0]), pieces(*keys, places[1])
        if of_dependent is None or of_governor is None:
            continue
        query, columns = of_dependent[0], [number + decoder for number in of_governor]  # the decoder's begin with <s>
        weights = getattr(maps, dependency.kind)[:, :, query]  # (layers, heads, Tk)
        visible = query + 1 if decoder else weights.shape[-1]
        dependent, governor = queries[0][slice(*places[0])], keys[0][slice(*places[1])]
        found, evenly = weights[:, :, columns].sum(-1), len(columns) / visible
        apart = None if dependency.kind == "cross" else min(abs(query - number) for number in of_governor)
        observations.append(Observation(dependent, governor, maps, found, evenly, query, columns, apart))
    return observations


@dataclass(frozen=True)
class Resolution:
    """The head that resolves a dependency best: chosen on one half of the sentences, measured on the other.

    layer, head  counted from 0
    weight       its mean over `sentences`
    beyond       the same less even attention's
    others       the mean of all heads of this attention, and `even` of even attention
    apart        tokens from the one to the other, the mean; between two texts None
    typical      the observation whose weight is the median, of those that are drawn
    """

    layer: int
    head: int
    sentences: int
    weight: Interval
    beyond: Interval
    others: float
    even: float
    apart: float | None
    typical: Observation


def resolve(observations: Sequence[Observation], longest: int) -> Resolution | None:
    """The best head; `typical` has at most `longest` tokens on a side, where there is such. None with too few."""
    chosen_on, measured_on = observations[::2], observations[1::2]
    if len(measured_on) < FEWEST:
        return None
    means = np.mean([each.weights for each in chosen_on], axis=0)  # (layers, heads)
    layer, head = (int(i) for i in np.unravel_index(means.argmax(), means.shape))
    weights = np.array([each.weights[layer, head] for each in measured_on], dtype=np.float64)
    evenly, ones = np.array([each.even for each in measured_on]), np.ones(len(measured_on))
    distances = [each.apart for each in measured_on if each.apart is not None]
    short = [
        number
        for number, each in enumerate(measured_on)
        if max(len(each.maps.source_tokens), len(each.maps.target_tokens)) <= longest
    ]
    drawn = sorted(short or range(len(measured_on)), key=lambda number: weights[number])
    return Resolution(
        layer,
        head,
        len(measured_on),
        weight=interval(MEAN, np.stack([weights, ones], axis=1)),
        beyond=interval(MEAN, np.stack([weights - evenly, ones], axis=1)),
        others=float(np.mean([each.weights for each in measured_on])),
        even=float(evenly.mean()),
        apart=float(np.mean(distances)) if distances else None,
        typical=measured_on[drawn[len(drawn) // 2]],
    )
