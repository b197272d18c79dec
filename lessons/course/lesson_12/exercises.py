"""Lesson 12: what the heads learned."""

import numpy as np

from ..checks import require, require_array, require_close, require_none_of
from ..exercise import Attempt, exercise
from . import solutions

SINGLE = 1e-6  # tolerance: a result in float32, the type of the model's weights, is right too


def _looks_at(weights, lengths, offset):
    query = np.arange(weights.shape[2])
    key = query + offset
    pairs = (query < lengths[:, None]) & (key >= 0) & (key < lengths[:, None])  # (B, Tq): query and key are no padding
    exists = (key >= 0) & (key < weights.shape[3])
    picked = weights[:, :, query[exists], key[exists]]  # (B, H, some)
    kept = pairs[:, None, exists]  # (B, 1, some)
    return np.where(kept, picked, 0).sum(axis=(0, 2)) / kept.sum()


@exercise(answer=_looks_at)
def looks_at(attempt: Attempt) -> None:
    def scored(weights: np.ndarray, lengths: np.ndarray, offset: int) -> np.ndarray:
        return require_array(attempt(weights, lengths, offset), single=True)

    time = 6
    back, ahead, even = np.eye(time, k=-1), np.eye(time, k=1), np.full((time, time), 1 / time)
    weights = np.stack([back, ahead, even])[None]  # (1, H, T, T)
    lengths = np.array([time])
    scores = attempt(weights, lengths, -1)
    require(
        np.shape(scores) == (3,), f"it returns shape {np.shape(scores)} and must return one number for each head, (3,)"
    )
    scores = require_array(scores, single=True)
    require(
        not np.allclose(scores[:2], [0, 1]),
        "offset −1 finds the head that looks one ahead: rows are queries, columns keys, and the key is query + offset",
    )
    require(
        not np.allclose(scores[0], (time - 1) / time),
        f"a head with all of its weight one back gets {scores[0]:.3f} and must get 1: the first token has nothing one "
        "back, and is no pair to divide by",
    )
    own = {"is what each token sends to itself: the key is query + offset": np.array([0.0, 0.0, 1 / time])}
    require_none_of("the result", scores, np.array([1.0, 0.0, 1 / time]), own)
    require_close(
        "for a head that looks one back, one that looks one ahead and one that looks everywhere, the result",
        scores,
        np.array([1.0, 0.0, 1 / time]),
        tolerance=SINGLE,
        factors={
            "the number of pairs: a mean is wanted": time - 1,
            "1 / the number of pairs: divided once too often, or one pair alone": 1 / (time - 1),
            "1 / the number of heads: each head has a mean of its own": 1 / 3,
        },
    )
    require_close(
        "the same at offset +1", scored(weights, lengths, 1), np.array([0.0, 1.0, 1 / time]), tolerance=SINGLE
    )

    rng = np.random.default_rng(0)
    two = rng.random((2, 2, time, time))
    lengths = np.array([time, 2])
    garbage = two.copy()
    garbage[1, :, 2:], garbage[1, :, :, 2:] = 7.0, 7.0
    scores = scored(garbage, lengths, -1)
    other = garbage.copy()
    other[1, :, 2:], other[1, :, :, 2:] = 70.0, 70.0
    for offset in (-1, 1):
        require(
            np.allclose(scored(garbage, lengths, offset), scored(other, lengths, offset)),
            f"what stands at padding changes the result at offset {offset:+d}: only pairs count whose query and key "
            "both lie before the length",
        )
    expected = _looks_at(garbage, lengths, -1)
    alone = [_looks_at(garbage[i : i + 1], lengths[i : i + 1], -1) for i in range(2)]
    require(
        not np.allclose(scores, np.mean(alone, axis=0)),
        "a sentence of two tokens counts as much as one of six: the mean is over pairs, not over sentences",
    )
    mistakes = {
        "is that of the first sentence alone": alone[0],
        "is that of sentences one token shorter: the last one, at length − 1, is no padding": (
            _looks_at(garbage, lengths - 1, -1)
        ),
    }
    require_none_of("for two sentences of different lengths, the result", scores, expected, mistakes)
    padded = {"what padded pairs make of it: they are no pairs to divide by": time / (2 * (time - 1))}
    require_close(
        "for two sentences of different lengths, the result", scores, expected, tolerance=SINGLE, factors=padded
    )
    for offset in (1, 0, -3, 3):
        none = ", where the sentence of two tokens has no pair" if abs(offset) == 3 else ""
        require_close(
            f"for two sentences at offset {offset}{none}, the result",
            scored(garbage, lengths, offset),
            _looks_at(garbage, lengths, offset),
            tolerance=SINGLE,
        )
    sparse = garbage * (garbage < 0.6)
    require_close(
        "where some weights are 0, which are pairs too, the result",
        scored(sparse, lengths, -1),
        _looks_at(sparse, lengths, -1),
        tolerance=SINGLE,
    )
    more, lengths = rng.random((3, 4, 9, 9)), np.array([9, 4, 7])
    for offset in (2, -7):
        found = scored(more, lengths, offset)
        require(
            found.shape == (4,) and np.allclose(found, _looks_at(more, lengths, offset), atol=SINGLE),
            "with sentences of up to 6 tokens it is right, with 3 sentences, 4 heads and up to 9 tokens it is wrong at "
            f"offset {offset:+d}: is a number written where B, H or T belongs?",
        )


@exercise(answer=solutions.without_head)
def without_head(attempt: Attempt) -> None:
    for heads, width in ((3, 4), (5, 2)):
        _judge_without_head(attempt, heads, width)


def _judge_without_head(attempt: Attempt, heads: int, width: int) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((heads * width, 15))
    mixed = rng.standard_normal((heads, 5, width))  # each head's output, (H, T, Dv)

    def out(weight: np.ndarray, mixed: np.ndarray) -> np.ndarray:
        return np.concatenate(list(mixed), axis=-1) @ weight  # (T, C), the heads side by side

    for head in range(heads):
        result = attempt(weight, head, heads)
        require(isinstance(result, np.ndarray), "it must return an array, the weight without the head")
        require(result.shape == weight.shape, f"it returns shape {result.shape}: the shape stays {weight.shape}")
        require(np.isfinite(result).all(), "it returns NaN or infinity, and a head is silent where its rows are 0")
        silent = mixed.copy()
        silent[head] = 0
        louder = mixed.copy()
        louder[head] += 1
        others = mixed + (np.arange(heads) != head)[:, None, None]
        still_moves = not np.allclose(out(result, louder), out(result, mixed))
        others_move = np.allclose(out(result, others) - out(result, mixed), out(weight, others) - out(weight, mixed))
        others_are_gone = np.allclose(out(result, others), out(result, mixed))
        require(
            not (still_moves and (result == 0).all(axis=0).any()),
            "some columns are zero: a column is a channel of the output, to which every head contributes; a head "
            "enters by its rows",
        )
        require(not (still_moves and others_are_gone), f"head {head} is all that is left: it is the one to be removed")
        require(
            not (still_moves and others_move),
            f"without head {head} the output still depends on what head {head} mixed: all {width} of its rows must be "
            "0 (heads are counted from 0)",
        )
        require(
            not still_moves,
            f"without head {head} the output still depends on what head {head} mixed, and less on the others: the "
            f"heads lie side by side, counted from 0, each {width} = {heads * width} / {heads} rows in a block",
        )
        require(
            others_move,
            f"without head {head} of {heads} the other heads' contributions must stay what they were: only rows "
            f"{head * width} to {(head + 1) * width - 1} change",
        )
        left = float(np.abs(result[head * width : (head + 1) * width]).max())
        require(left == 0, f"the rows of head {head} hold numbers of up to {left:.0e}: 0 itself silences it")
        require_close(f"the output without head {head}", out(result, mixed), out(weight, silent), tolerance=SINGLE)
