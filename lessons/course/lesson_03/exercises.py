"""Lesson 03: additive attention's scores, and recurrent networks back through time."""

import numpy as np

from minitransformer import ops

from ..checks import require, require_close, require_gradients, require_none_of, unpack
from ..exercise import Attempt, exercise
from . import solutions


def _rnn_backward(dhidden, hidden, recurrent):
    """Do the backward of `layers.Recurrent` with a `TanhCell`, without the input's projection."""
    dprojected = np.empty_like(dhidden)
    dbefore = np.zeros_like(hidden[:, 0])
    for t in reversed(range(dhidden.shape[1])):
        dprojected[:, t] = ops.tanh_backward(dhidden[:, t] + dbefore, hidden[:, t + 1])
        dbefore = dprojected[:, t] @ recurrent.T  # (B, C)
    width = len(recurrent)
    drecurrent = hidden[:, :-1].reshape(-1, width).T @ dprojected.reshape(-1, width)
    return dprojected, dbefore, drecurrent


def _additive_scores_backward(dscores, features, score_weight):
    """Do the part of `ops.additive_attention_backward` that comes after its softmax's backward."""
    dsum = dscores[..., None] * score_weight * (1 - features**2)  # (B, Tq, Tk, C)
    dscore_weight = dscores.reshape(-1) @ features.reshape(-1, len(score_weight))
    return dsum.sum(axis=2), dsum.sum(axis=1), dscore_weight


def _states(projected, first, recurrent):
    hidden = np.empty((len(first), projected.shape[1] + 1, len(recurrent)))
    hidden[:, 0] = first
    for t in range(projected.shape[1]):
        hidden[:, t + 1] = np.tanh(projected[:, t] + hidden[:, t] @ recurrent)
    return hidden


@exercise(answer=solutions.additive_scores)
def additive_scores(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4))
    score_weight = rng.standard_normal(4)
    scores, features = unpack(attempt(query, key, score_weight), "scores", "features")
    require(
        not (scores.shape == (2, 3, 5, 4) and features.shape == (2, 3, 5)),
        "they are returned in the other order: the scores first, then the features",
    )
    require(
        features.shape != (2, 5, 3, 4),
        "features has shape (2, 5, 3, 4), a row for each key: the queries' axis comes first, (B, Tq, Tk, C)",
    )
    require(
        scores.shape != (2, 3, 5, 4),
        "the scores still have an axis of the C numbers: a score is one number, the sum over c of score_weight[c] "
        "times the feature c",
    )
    for name, array, shape in (("features", features, (2, 3, 5, 4)), ("scores", scores, (2, 3, 5))):
        require(
            array.shape == shape,
            f"for 2 sentences of 3 queries and 5 keys, 4 wide, {name} has shape {array.shape} and must have {shape}: "
            "every query of a sentence meets every key of it, and the queries' axis comes first",
        )
    require(
        np.abs(features).max() < 1,
        "a feature lies outside of (−1, 1), where every tanh lies: is the tanh taken at all?",
    )
    sums = query[:, :, None] + key[:, None]
    mistakes = {
        "is 1 / (1 + e^−x) of the sums, and must be their tanh": 1 / (1 + np.exp(-sums)),
        "is the tanh of the mean of query and key, and must be that of their sum": np.tanh(sums / 2),
        "has the score_weight inside the tanh: it multiplies what comes out": np.tanh(sums * score_weight),
    }
    require_none_of("features", features, np.tanh(sums), mistakes)
    moved = np.abs(unpack(attempt(query, key + 1, score_weight), "scores", "features")[1] - features).max()
    require(moved > 1e-9, "another key makes no other feature: is it query + key inside the tanh?")
    for changed, other in ((0, 1), (1, 0)):
        keys = key.copy()
        keys[changed] += 1
        require(
            np.allclose(unpack(attempt(query, keys, score_weight), "scores", "features")[1][other], features[other]),
            "the features of a sentence change with the keys of another: each sentence stands for itself",
        )
    same = unpack(attempt(key[:, :3], key[:, :3], score_weight), "scores", "features")[1]
    require(
        not np.allclose(same[:, range(3), range(3)], 0),
        "where the query equals the key the features are 0, as if the one were subtracted from the other: it is their "
        "sum that goes into the tanh",
    )
    opposite = unpack(attempt(-key[:, :3], key[:, :3], score_weight), "scores", "features")[1]
    require(
        np.allclose(opposite[:, range(3), range(3)], 0),
        "where the query is minus the key, their sum is 0 and so is its tanh, but the features are not 0: is it the "
        "sum that goes into the tanh, and not a product?",
    )
    far = unpack(attempt(query + 2, key + 3, score_weight), "scores", "features")[1]
    require(
        np.allclose(far, np.tanh(query[:, :, None] + key[:, None] + 5)),
        "the features are not tanh(query + key): the sum comes first, then one tanh of it",
    )
    doubled = unpack(attempt(query, key, 2 * score_weight), "scores", "features")[0]
    require(
        np.allclose(doubled, 2 * scores),
        "twice the score_weight must give twice the scores, and does not: it multiplies the features, which the tanh "
        "has made, and after their sum comes nothing",
    )
    factors = {
        "1/C: the score is a sum over the C numbers, not their mean": 1 / 4,
        "1/√C: additive attention's scores are not scaled": 1 / 2,
    }
    require_close("scores", scores, features @ score_weight, factors=factors)
    require_close("features", features, solutions.additive_scores(query, key, score_weight)[1])
    for B, Tq, Tk, C in ((3, 4, 4, 6), (1, 1, 7, 2)):
        query, key = rng.standard_normal((B, Tq, C)), rng.standard_normal((B, Tk, C))
        weight = rng.standard_normal(C)
        found = unpack(attempt(query, key, weight), "scores", "features")
        right = solutions.additive_scores(query, key, weight)
        require(
            all(a.shape == e.shape and np.allclose(a, e) for a, e in zip(found, right, strict=True)),
            f"with B, Tq, Tk, C = 2, 3, 5, 4 it is right, with {B}, {Tq}, {Tk}, {C} it is wrong: is a number written "
            "where a length belongs, or an axis of length 1 lost?",
        )
    _keeps_float32(attempt(*(array.astype(np.float32) for array in (query, key, weight))))


@exercise(answer=_rnn_backward)
def rnn_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    B, T, C = 2, 5, 3
    projected, dhidden = rng.standard_normal((2, B, T, C))
    first, recurrent = rng.standard_normal((B, C)), rng.standard_normal((C, C))
    hidden = _states(projected, first, recurrent)

    def gradients(*arrays):
        return unpack(attempt(*arrays), "dprojected", "dfirst", "drecurrent")

    found = gradients(dhidden, hidden, recurrent)
    for name, gradient, shape in zip(
        ("dprojected", "dfirst", "drecurrent"), found, (projected.shape, first.shape, recurrent.shape), strict=True
    ):
        given, wanted = [each.shape for each in found], [projected.shape, first.shape, recurrent.shape]
        order = ": they are returned in the order dprojected, dfirst, drecurrent" * (sorted(given) == sorted(wanted))
        require(gradient.shape == shape, f"{name} has shape {gradient.shape} and must have {shape}{order}")

    for name, gradient, larger in zip(
        ("dprojected", "dfirst", "drecurrent"), found, gradients(1000 * dhidden, hidden, recurrent), strict=True
    ):
        require(
            np.allclose(larger, 1000 * gradient),
            f"1000 times the dhidden must give 1000 times the {name}, and does not: is something cut, or added?",
        )
    saturated = np.sign(hidden)
    require(
        not gradients(dhidden, saturated, recurrent)[0].any(),
        "where every state is 1 or −1, tanh is flat and no gradient can come through it, but dprojected is not zero: "
        "the slope of tanh is 1 − h²",
    )
    stateless = _states(projected, first, 0 * recurrent)
    alone, slope = gradients(dhidden, stateless, 0 * recurrent)[0], 1 - stateless[:, 1:] ** 2
    require(
        not np.allclose(alone[:, -1], 2 * (dhidden * slope)[:, -1]),
        "dprojected of the last position counts its dhidden twice: no state comes after it, so what comes back begins "
        "at 0",
    )
    require(
        np.allclose(alone, dhidden * slope),
        "with U = 0 each position stands alone, and dprojected must be dhidden_t (1 − h_t²): is the slope that of the "
        "state that the position made, hidden[:, t + 1] in the arrays?",
    )

    middle = np.zeros_like(dhidden)
    middle[:, 2] = dhidden[:, 2]
    reached = np.abs(gradients(middle, hidden, recurrent)[0]).max(axis=(0, 2)) > 0
    require(
        not reached[3:].any(),
        "a gradient given to h_3 alone reaches positions after it, on which h_3 does not depend: does the loop run "
        "from the last position to the first?",
    )
    require(
        reached[:2].all(),
        "a gradient given to h_3 alone does not reach every position before it: h_t also went into the next step, and "
        "what comes back from there, through U, adds to dhidden",
    )

    last = np.zeros_like(dhidden)
    last[:, -1] = dhidden[:, -1]
    reached = np.abs(gradients(last, hidden, recurrent)[0]).max(axis=(0, 2)) > 0
    require(
        reached.all(),
        f"a gradient given to h_5 alone reaches {reached.sum()} of the 5 positions and must reach all: is the way back "
        "cut off after some steps?",
    )

    one = gradients(dhidden[:1, :1], hidden[:1, :2], recurrent)
    require(
        not np.allclose(one[2].T, first[:1].T @ one[0][:, 0]),
        "drecurrent is transposed: U stands to the right of h, so its gradient is hᵀ dprojected, of U's own shape",
    )
    require(
        not np.allclose(one[1], one[0][:, 0]),
        "for a single position dfirst is dprojected_1 itself, as if h_0 had been added without going through U",
    )
    require(
        np.allclose(one[1], one[0][:, 0] @ recurrent.T),
        "for a single position dfirst is not dprojected_1 Uᵀ: h_0 went through U on its way into it",
    )
    require(one[2].any(), "for a single position drecurrent is 0: h_0 went through U as every other state did")
    require(
        np.allclose(one[2], first[:1].T @ one[0][:, 0]),
        "for a single position of one sentence drecurrent is not h_0ᵀ dprojected_1: U multiplied the state before the "
        "position, not the one that came of it, and what came out of the product went into the tanh",
    )
    twice = gradients(np.concatenate([dhidden, dhidden]), np.concatenate([hidden, hidden]), recurrent)
    require(
        np.allclose(twice[2], 2 * found[2]),
        "with each sentence given twice drecurrent must double: the same U served them all, so its gradients add",
    )

    def forward(projected, first, recurrent):
        hidden = _states(projected, first, recurrent)
        return hidden[:, 1:], (hidden, recurrent)

    require_gradients(
        forward,
        lambda dout, cache: attempt(dout, *cache),
        {"projected": projected, "first": first, "recurrent": recurrent},
    )
    B, T, C = 3, 40, 6
    dlong, long = rng.standard_normal((B, T, C)), rng.standard_normal((B, T, C))
    first, square = rng.standard_normal((B, C)), rng.standard_normal((C, C))
    arguments = dlong, _states(long, first, square), square
    for name, a, e in zip(
        ("dprojected", "dfirst", "drecurrent"), gradients(*arguments), _rnn_backward(*arguments), strict=True
    ):
        require(
            a.shape == e.shape and np.allclose(a, e),
            f"with B = 2, T = 5 and C = 3 it is right, with B = {B}, T = {T} and C = {C} {name} is wrong: is a number "
            "written where one of them belongs, or the way back cut off after some steps?",
        )
    _keeps_float32(gradients(*(array.astype(np.float32) for array in (dhidden, hidden, recurrent))))


@exercise(answer=_additive_scores_backward)
def additive_scores_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4))
    score_weight, dscores = rng.standard_normal(4), rng.standard_normal((2, 3, 5))
    features = np.tanh(query[:, :, None] + key[:, None])

    def gradients(*arrays):
        return unpack(attempt(*arrays), "dquery", "dkey", "dscore_weight")

    found = gradients(dscores, features, score_weight)
    axes = {"dquery": "key", "dkey": "query"}
    for name, gradient, array in zip(
        ("dquery", "dkey", "dscore_weight"), found, (query, key, score_weight), strict=True
    ):
        summed = f": what is summed over is the {axes[name]}'s axis" if name in axes else ": it is one for all pairs"
        require(gradient.shape == array.shape, f"{name} has shape {gradient.shape} and must have {array.shape}{summed}")

    dquery, dkey, _ = found
    for name, gradient, larger in zip(
        ("dquery", "dkey", "dscore_weight"), found, gradients(1000 * dscores, features, score_weight), strict=True
    ):
        require(
            np.allclose(larger, 1000 * gradient),
            f"1000 times the dscores must give 1000 times the {name}, and does not: is something cut, or added?",
        )
    flat = gradients(dscores, np.sign(features), score_weight)
    require(
        not flat[0].any() and not flat[1].any(),
        "where every feature is 1 or −1, tanh is flat and nothing can come back to query and key, but something does: "
        "the slope of tanh is 1 − features²",
    )
    require(
        np.allclose(gradients(dscores, features, 2 * score_weight)[0], 2 * dquery),
        "twice the score_weight must give twice the dquery, and does not: features went into the score through "
        "score_weight, so it is a factor of their gradient",
    )
    alone = gradients(dscores[:1, :1, :1], features[:1, :1, :1], score_weight)[0][0, 0]
    require(
        np.allclose(alone, dscores[0, 0, 0] * score_weight * (1 - features[0, 0, 0] ** 2)),
        "for one query and one key dquery is not dscore · score_weight · (1 − features²): the three factors, nothing "
        "else",
    )
    require(
        np.allclose(dquery.sum(axis=1), dkey.sum(axis=1)),
        "query and key enter only as their sum, so dquery summed over the queries must be dkey summed over the keys: "
        "is one of them averaged, or summed over the wrong pairs?",
    )
    require(
        np.allclose(gradients(dscores, features, 2 * score_weight)[2], found[2]),
        "dscore_weight changes with score_weight, and the scores are linear in it: the slope is the features",
    )
    twice = gradients(np.concatenate([dscores, dscores]), np.concatenate([features, features]), score_weight)
    require(
        np.allclose(twice[2], 2 * found[2]),
        "with each sentence given twice dscore_weight must double: one vector served all pairs, so its gradients add",
    )

    def forward(query, key, score_weight):
        features = np.tanh(query[:, :, None] + key[:, None])
        return features @ score_weight, (features, score_weight)

    require_gradients(
        forward,
        lambda dscores, cache: attempt(dscores, *cache),
        {"query": query, "key": key, "score_weight": score_weight},
    )
    arguments = rng.standard_normal((3, 4, 2)), np.tanh(rng.standard_normal((3, 4, 2, 6))), rng.standard_normal(6)
    for name, a, e in zip(
        ("dquery", "dkey", "dscore_weight"), gradients(*arguments), _additive_scores_backward(*arguments), strict=True
    ):
        require(
            a.shape == e.shape and np.allclose(a, e),
            f"with features of shape {features.shape} it is right, with {arguments[1].shape} {name} is wrong: is a "
            "number written where a length belongs?",
        )
    _keeps_float32(gradients(*(array.astype(np.float32) for array in (dscores, features, score_weight))))


def _keeps_float32(gradients):
    require(all(isinstance(gradient, np.ndarray) for gradient in gradients), "it must return arrays, and returns lists")
    require(
        all(gradient.dtype == np.float32 for gradient in gradients),
        "it is right in float64, but given float32, in which the lesson trains, it returns float64: np.zeros makes "
        "float64 unless it is told otherwise, np.zeros_like does not",
    )
