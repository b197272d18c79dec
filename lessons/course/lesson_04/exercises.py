"""Lesson 04: scaled dot-product attention and masks."""

import math
from typing import Any

import numpy as np

from minitransformer import gradcheck, ops

from ..checks import in_case, largest_error, require, require_close, require_float64, require_none_of, type_name, unpack
from ..exercise import Attempt, exercise
from . import solutions


def _weights(query: Any, key: Any, mask: Any = True) -> Any:
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    return ops.softmax_forward(np.where(mask, scores, -np.inf))[0]


def _attention(query: Any, key: Any, value: Any) -> Any:
    weights = _weights(query, key)
    return weights @ value, weights


def _attention_backward(dout, query, key, value, weights):
    scale = 1 / math.sqrt(query.shape[-1])
    dweights = dout @ value.swapaxes(-1, -2)
    dscores = ops.softmax_backward(dweights, weights)
    return scale * dscores @ key, scale * dscores.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ dout


def _masked_softmax(scores: Any, mask: Any) -> Any:
    return ops.softmax_forward(np.where(mask, scores, -np.inf))[0]


@exercise(answer=_attention)
def attention(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal(shape) for shape in ((5, 8), (4, 8), (4, 3)))
    result = attempt(query, key, value)
    require(
        not (isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], tuple)),
        "what is returned as weights is a pair: softmax_forward returns two, the softmax and a cache; take the first",
    )
    out, weights = unpack(result, "out", "weights")
    require(
        not (out.shape == (5, 4) and weights.shape == (5, 3)),
        "the two are returned in the other order: out first, then the weights",
    )
    for name, found, shape in (("the weights have", weights, (5, 4)), ("out has", out, (5, 3))):
        require(
            found.shape == shape,
            f"with 5 queries and 4 keys, 8 wide, and values 3 wide {name} shape {found.shape} and must have {shape}",
        )
    require_float64("out", out)
    require_float64("the weights", weights)
    scores = query @ key.T / math.sqrt(8)
    require(
        not np.allclose(weights, scores),
        "what is returned as weights are the scores: the softmax makes weights of them",
    )
    require(
        not np.allclose(weights.sum(axis=0), 1),
        "the weights sum to 1 over the queries, in each column: each query divides itself among the keys, so the "
        "softmax goes over the last axis",
    )
    sums = weights.sum(axis=-1)
    require(
        np.allclose(sums, 1),
        f"the weights of a query sum to {largest_error(sums, 1)[1]} and not to 1: nothing may touch them after the "
        "softmax, which goes over the keys, the last axis",
    )
    require((weights >= 0).all(), "a weight is negative: are these the weights that the softmax gave?")
    names = {
        "not divided at all": 1,
        "divided by D: the root is missing": 8,
        "multiplied by √D: the scores are too large, not too small": 1 / math.sqrt(8),
        "divided by the root of the number of keys: what they sum over is D": 2,
        "divided by the root of the number of queries: what they sum over is D": math.sqrt(5),
        "divided by the root of the values' width: what they sum over is D, the width of the queries": math.sqrt(3),
        "divided by √(D · the number of keys): what they sum over is D alone": math.sqrt(8 * 4),
        "divided by D²: divide by its root": 64,
        "turned round: the larger the product, the larger the weight": -math.sqrt(8),
    }
    for name, divisor in names.items():
        other = ops.softmax_forward(query @ key.T / divisor)[0]
        require(not np.allclose(weights, other), f"the weights are those of scores that are {name}")
    lengths = np.linalg.norm(query, axis=-1, keepdims=True)
    mistakes = {
        "are the softmax of a softmax: it is taken once": ops.softmax_forward(_weights(query, key))[0],
        "hide the keys after a query's own place: no mask is asked for": _weights(query, key, np.tri(5, 4, dtype=bool)),
        "are those of scores that are divided by the queries' lengths: divide by √D": (
            ops.softmax_forward(query @ key.T / lengths)[0]
        ),
    }
    require_none_of("the weights", weights, _weights(query, key), mistakes)
    require_close("weights", weights, _weights(query, key))
    require(
        np.allclose(out, weights @ value),
        "out is not weights @ value: row i of out is the mean of the rows of value with the weights of query i",
    )
    large = unpack(attempt(1e4 * query, key, value), "out", "weights")
    require(
        all(np.isfinite(part).all() for part in large),
        "where the scores are in the thousands there is NaN: the softmax subtracts each row's own largest score before "
        "the exponential (lesson 01)",
    )
    require_close("where the scores are in the thousands, weights", large[1], _weights(1e4 * query, key))
    for leading, Tq, Tk, D, Dv in (((), 3, 6, 11, 2), ((2,), 4, 4, 4, 4), ((2, 3), 1, 5, 2, 3)):
        shapes = ((*leading, Tq, D), (*leading, Tk, D), (*leading, Tk, Dv))
        query, key, value = (rng.standard_normal(shape) for shape in shapes)
        axes = ", where .T reverses all axes and .swapaxes(-1, -2) the last two," if leading else ""
        with in_case(f"with queries of shape {query.shape}{axes}"):
            found = unpack(attempt(query, key, value), "out", "weights")
        for name, mine, right in zip(("out", "the weights"), found, _attention(query, key, value), strict=True):
            likely = (
                "is something transposed or summed over another axis than the last two (.T reverses all axes)"
                if leading
                else "is a number written where a length belongs"
            )
            require(
                mine.shape == right.shape and np.allclose(mine, right),
                f"with queries of shape (5, 8) it is right, with {query.shape} and keys {key.shape} {name} is wrong: "
                f"{likely}?",
            )


@exercise(answer=_attention_backward)
def attention_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((2, 3, *shape)) for shape in ((5, 8), (4, 8), (4, 3)))
    weights, dout, scale = _weights(query, key), rng.standard_normal((2, 3, 5, 3)), math.sqrt(query.shape[-1])
    gradients = dict(
        zip(
            ("dquery", "dkey", "dvalue"),
            unpack(attempt(dout, query, key, value, weights), "dquery", "dkey", "dvalue"),
            strict=True,
        )
    )
    for (name, gradient), array in zip(gradients.items(), (query, key, value), strict=True):
        likely = "are they returned as dquery, dkey, dvalue, each product with its transpose on the right side"
        require(
            gradient.shape == array.shape,
            f"{name} has shape {gradient.shape}, and a gradient has its array's, {array.shape}: {likely}?",
        )
        require_float64(name, gradient)

    other_head = dout.copy()
    other_head[1, 2] += rng.standard_normal((5, 3))
    dvalue = unpack(attempt(other_head, query, key, value, weights), "dquery", "dkey", "dvalue")[2]
    moved = np.abs(dvalue - gradients["dvalue"]).max(axis=(2, 3)) > 1e-9
    require(
        moved[1, 2] and moved.sum() == 1,
        "a dvalue changes with the dout of another head, or does not change whose own dout does: the leading axes (a "
        "sentence, a head) stand side by side, each with products of its own",
    )

    def loss(query, key, value):
        return np.vdot(dout, _weights(query, key) @ value)

    measured = {
        "dquery": gradcheck.numerical_gradient(lambda query: loss(query, key, value), query),
        "dkey": gradcheck.numerical_gradient(lambda key: loss(query, key, value), key),
        "dvalue": gradcheck.numerical_gradient(lambda value: loss(query, key, value), value),
    }
    require(
        np.allclose(gradients["dvalue"].sum(-2), dout.sum(-2)),
        "dvalue does not sum to what dout sums to, over the places: each query's weights sum to 1, so whatever a query "
        "sends goes to the values in full: is it weightsᵀ @ dout?",
    )
    scores, dweights = query @ key.swapaxes(-1, -2), dout @ value.swapaxes(-1, -2)
    of_scores = {"the scores": scores / scale, "query @ keyᵀ": scores}
    mistakes = {
        f"is what comes out if softmax_backward gets {given}: it takes the softmax's result, the weights": (
            ops.softmax_backward(dweights, wrong) @ key / scale
        )
        for given, wrong in of_scores.items()
    }
    require_none_of("dquery", gradients["dquery"], measured["dquery"], mistakes)
    shifted = unpack(attempt(dout, query, key, value + 1, weights), "dquery", "dkey", "dvalue")[0]
    require(
        np.allclose(shifted, gradients["dquery"]),
        "adding 1 to all values changes dquery: it adds 1 to the output whatever the weights, so no score can matter "
        "more for it: does the softmax's backward subtract Σ_j dweights·weights, of each query?",
    )
    unseen = _weights(query, key, np.array([True, True, True, False]))
    dkey = unpack(attempt(dout, query, key, value, unseen), "dquery", "dkey", "dvalue")[1]
    require(
        not dkey[..., 3, :].any(),
        "a key that has weight 0 for every query gets a gradient: each dscore has its own weight as a factor, (a)",
    )
    require(
        np.allclose(gradients["dkey"].sum(-2), 0),
        "dkey does not sum to 0 over the keys: the same vector added to all keys changes no weight. The mean that the "
        "softmax's backward takes off is weighted, Σ_j dweights·weights, and dkey is dscoresᵀ @ query",
    )
    factors = {
        "√d_k: the scores were divided by it, and so is their gradient": scale,
        "1/√d_k: is the scale in there twice?": 1 / scale,
        "√d_k · √d_k: the scale must divide, once": scale**2,
        "√(d_k/d_v): the scale is of the width of the queries, not of the values": math.sqrt(8 / 3),
        "√(d_k/T_k): the scale is of the width of the queries, not of the number of keys": math.sqrt(8 / 4),
    }
    for name, gradient in gradients.items():
        require_close(name, gradient, measured[name], tolerance=1e-6, factors=factors)
    bare = attempt(dout[0, 0], query[0, 0], key[0, 0], value[0, 0], weights[0, 0])
    for name, gradient in zip(gradients, unpack(bare, "dquery", "dkey", "dvalue"), strict=True):
        require_close(f"without leading axes {name}", gradient, measured[name][0, 0], tolerance=1e-6)
    for Tq, Tk, D, Dv in ((3, 6, 11, 2), (7, 2, 3, 5)):
        query, key, value = (rng.standard_normal((2, 3, *shape)) for shape in ((Tq, D), (Tk, D), (Tk, Dv)))
        arguments = rng.standard_normal((2, 3, Tq, Dv)), query, key, value, _weights(query, key)
        found = unpack(attempt(*arguments), *gradients)
        for name, gradient, right in zip(gradients, found, _attention_backward(*arguments), strict=True):
            require_close(
                f"with Tq, Tk, D, Dv = 5, 4, 8, 3 it is right (is a number written where one of them belongs, or "
                f"another where D does?), with {Tq}, {Tk}, {D}, {Dv} {name}",
                gradient,
                right,
                factors={"√(D/8): the scores are divided by √D, and it was 8 before": math.sqrt(D / 8)},
            )


@exercise(answer=solutions.causal_mask)
def causal_mask(attempt: Attempt) -> None:
    square = attempt(4, 4)
    require(isinstance(square, np.ndarray), f"it must return an array, not {type_name(square)}")
    require(square.shape == (4, 4), f"for 4 queries and 4 keys its shape is {square.shape} and must be (4, 4)")
    require(square.dtype == bool, f"it must be of bool, not {square.dtype}: a mask says yes or no")
    seen = [int(row.sum()) for row in square]
    require(
        not np.array_equal(square[:, ::-1], np.tri(4, dtype=bool)),
        "the columns stand in the reverse order: column j is key j, and the first query sees the first key",
    )
    require(
        seen[0] <= seen[-1],
        f"the first query sees {seen[0]} keys and the last one {seen[-1]}: that is the future; True must mean 'may "
        "attend', and key j lies in query i's past if j ≤ i",
    )
    require(
        square.diagonal().all(),
        "a query cannot see its own position: it is allowed, since the decoder's input is the sentence shifted by one "
        f"(the rows see {seen} keys)",
    )
    require(
        np.array_equal(square, np.tril(np.ones((4, 4), bool))),
        f"with 4 queries and 4 keys the rows see {seen} keys and must see [1, 2, 3, 4]",
    )
    for num_queries, num_keys in ((1, 5), (2, 5), (5, 2), (0, 3)):
        mask = np.asarray(attempt(num_queries, num_keys))
        shape = f"{num_queries} of the queries and {num_keys} of the keys"
        require(
            mask.shape == (num_queries, num_keys),
            f"for {shape} its shape is {mask.shape}: a row for each query, a column for each key",
        )
        if not num_queries:
            continue
        require(
            mask[-1].all(),
            f"with {shape} the last query sees {int(mask[-1].sum())} keys, and must see all: it stands at the last "
            "key, so the triangle's corner is at the bottom right, not at the top left",
        )
        seen, expected = mask.sum(axis=1).tolist(), [max(0, num_keys - num_queries + i + 1) for i in range(num_queries)]
        require(seen == expected, f"with {shape} the rows see {seen} keys and must see {expected}")
        unbroken = (np.diff(mask.astype(int), axis=1) <= 0).all()
        require(unbroken, f"with {shape} a query sees a key but not one before it")


@exercise(answer=solutions.moved_by)
def moved_by(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 2)))
    seen = np.array([[1, 0, 0, 1, 0], [0, 1, 1, 0, 0], [0, 0, 1, 0, 1]], dtype=bool)

    def right(query, key, value):
        return _weights(query, key, seen) @ value

    moved = attempt(right, query, key, value)
    require(isinstance(moved, np.ndarray), f"it must return an array, not {type_name(moved)}")
    require(
        moved.shape == (3, 5),
        f"for 3 queries and 5 keys its shape is {moved.shape} and must be (3, 5): a row for each query",
    )
    require(moved.dtype == bool, f"it must be of bool, not {moved.dtype}: an output moves or it does not")
    require(
        not (moved == moved[0]).all(),
        "it says the same of all outputs for a key: compare row by row, since one output may move and another not",
    )
    require(
        not moved[~seen].any(),
        "it says that outputs move with keys that they cannot see: is one key at a time replaced, and every other as "
        "it was?",
    )

    def only_values(query, key, value):
        return np.ones((3, 5)) @ value

    def only_keys(query, key, value):
        return _weights(query, key) @ np.arange(10.0).reshape(5, 2) ** 2

    jumps = (
        (1, 0, "it misses a leak through the values: replace value j too, and compare with the first output"),
        (-1, 0, "it misses a move downwards: a difference loses its sign (np.abs) before it is compared"),
        ([0, 1], 0, "it misses a move of one component of an output: any of them counts, it need not be all"),
        ([1, 0], 0, "it misses a move of an output's first component: any of them counts"),
        (5e-9, 0, "it misses a move of 5·10⁻⁹: only what is below 1e-9 is rounding (np.isclose forgives 10⁻⁸)"),
        (1e-4, 1000, "it misses a move of 10⁻⁴ in outputs of 1000: 1e-9 does not grow with them (rtol of np.isclose)"),
    )
    for size, level, hint in jumps:

        def jump(query, key, other, size=size, level=level):
            return np.full((3, 2), float(level)) + (other != value).any() * np.array(size)

        require(attempt(jump, query, key, value.copy()).all(), hint)
    require(
        attempt(only_keys, query, key, value).all(),
        "it misses a leak through the keys: a forbidden key in the softmax's denominator moves the output too",
    )
    require(moved[seen].all(), "with attention that is right, outputs do not move with keys that they can see")
    for part in (slice(0, 1), slice(-1, None)):

        def partly(query, key, value, part=part):
            return np.ones((3, 5)) @ np.hstack([value[:, part]] * 2)

        def partly_keys(query, key, value, part=part):
            return np.ones((3, 5)) @ np.hstack([key[:, part]] * 2)

        for name, leak in (("value", partly), ("key", partly_keys)):
            require(
                attempt(leak, query, key, value).all(),
                f"it misses a leak through one component of a {name}: replace the whole row, not a number in it",
            )
    for number in (0, 1, 0.5):
        require(
            attempt(only_values, query, key, np.full_like(value, number)).all(),
            f"it misses a leak where the values are {number}: what takes a value's place must differ from it, whatever "
            "it was; adding to it does that, multiplying it or setting it to a number may not",
        )
        require(
            attempt(only_keys, query, np.full_like(key, number), value).all(),
            f"it misses a leak where the keys are {number}: what takes a key's place must differ from it, whatever it "
            "was; adding to it does that, multiplying it or setting it to a number may not",
        )

    def faintly(query, key, value):
        return np.ones((3, 5)) @ (1e-6 * value)

    require(
        attempt(faintly, query, key, value).all(), "it misses leaks of 10⁻⁶: what is below 1e-9 is rounding, no more"
    )

    for size, told in ((1e-15, "10⁻¹⁵"), (2e-10, "2·10⁻¹⁰")):
        noise = iter(size * rng.uniform(-1, 1, (1000, 3, 2)))
        require(
            not attempt(lambda query, key, value, noise=noise: next(noise), query, key, value).any(),
            f"differences of {told} count as moves: they are rounding",
        )

    def turning(query, key, value):
        angle = value.sum() * np.ones(3)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    require(
        attempt(turning, query, key, value).all(),
        "it misses a move that leaves the length of an output as it was: compare the outputs, not their lengths",
    )

    def cancelling(query, key, value):
        return only_keys(query, key, value)[:, :1] @ np.array([[1.0, -1.0]])

    require(
        attempt(cancelling, query, key, value).all(),
        "it misses a move whose components sum to 0: look at each component of an output, not at their sum",
    )
    query, key, value = (rng.standard_normal(shape) for shape in ((4, 3), (2, 3), (2, 6)))
    seen = np.array([[1, 0], [0, 1], [1, 1], [0, 1]], dtype=bool)
    moved = attempt(right, query, key, value)
    require(
        np.array_equal(moved, seen),
        "with 3 queries and 5 keys it is right, with 4 queries and 2 keys it is wrong: is a number written where Tq or "
        "Tk belongs?",
    )


@exercise(answer=_masked_softmax)
def masked_softmax(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    scores, triangle = rng.standard_normal((4, 4)), solutions.causal_mask(4, 4)
    weights = attempt(scores, triangle)
    require(isinstance(weights, np.ndarray), f"it must return an array, not {type_name(weights)}")
    require(weights.shape == (4, 4), f"for scores of shape (4, 4) its shape is {weights.shape}")
    given = np.nan_to_num(weights)
    require(
        given[triangle].any() or not given[~triangle].any(),
        "all weight is where the mask is False, and none where it is True: True means 'may attend'",
    )
    require(
        not weights[~triangle].any(),
        f"a forbidden key has weight {weights[~triangle].max():.2g} and must have exactly 0: is its score −∞? "
        "A score of 0 still counts as e⁰ = 1",
    )
    sums = weights.sum(axis=-1)
    require(
        np.allclose(sums, 1),
        f"the weights of a query sum to {largest_error(sums, 1)[1]} and not to 1: forbidden keys must be out "
        "of the denominator too, so the mask comes before the softmax and the sum goes over the last axis",
    )
    require_close("weights", weights, _masked_softmax(scores, triangle))

    for shift, what in ((900.0, "900 added to all scores"), (-900.0, "900 taken from all scores")):
        moved = attempt(scores + shift, triangle)
        require(
            np.allclose(moved, weights),
            f"with {what} the weights change, or are NaN: the softmax knows differences only; "
            "subtract each row's maximum before the exponential",
        )
    for large, what in ((900.0, "a forbidden score of 900"), (np.inf, "a forbidden score of infinity")):
        louder = attempt(np.where(triangle, scores, large), triangle)
        require(
            np.allclose(louder, weights),
            f"{what} changes the weights of what is allowed: the maximum that is subtracted must be taken over "
            "the allowed scores only",
        )
    higher = scores + np.array([[0.0], [2000], [0], [0]])
    require(
        np.allclose(attempt(higher, triangle), weights),
        "with one row's scores all 2000 higher the weights change, or are NaN: subtract each row's own maximum",
    )
    far = scores + 2000 * np.eye(4)
    require(
        np.allclose(attempt(far, triangle), np.eye(4)),
        "with one allowed score 2000 above the others it is wrong, or NaN: what you subtract before the exponential "
        "must be the maximum itself, not the mean or one of the scores",
    )
    empty = triangle.copy()
    empty[2] = False
    lonely = attempt(scores, empty)
    require(not np.isnan(lonely).any(), "a row that may see nothing gives NaN: −∞ − (−∞), or 0/0; it must give zeros")
    require(
        not lonely[2].any(),
        f"a row that may see nothing has weights that sum to {lonely[2].sum():.3g}, and must give zeros",
    )
    require(np.allclose(lonely[[0, 1, 3]], weights[[0, 1, 3]]), "one empty row changes the weights of the other rows")

    below = np.arange(16.0).reshape(4, 4) - 4e9
    require(
        np.allclose(attempt(below, triangle), _masked_softmax(below, triangle)),
        "with all scores below −10⁹ the weights change: a forbidden score must be lower than any other, and −10⁹ is a "
        "score like another; −∞ is not",
    )

    batch, key_mask = rng.standard_normal((2, 3, 4, 5)), np.arange(5) < np.array([[5], [0]])
    found = attempt(batch, key_mask[:, None, None, :])
    require(
        np.shape(found) != batch.shape or np.allclose(found.sum(axis=-1), np.reshape([1, 0], (2, 1, 1))),
        "a matrix is right, and of a batch (2, 3, 4, 5) the weights of a query do not sum to 1, or not to 0 where it "
        "sees nothing: the last axis is axis=-1 of any array, and axis=1 only of a matrix",
    )
    require_close(
        "for a batch, with a mask of shape (2, 1, 1, 5), weights",
        found,
        _masked_softmax(batch, key_mask[:, None, None, :]),
    )
