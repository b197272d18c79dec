"""Lesson 13: where attention's operations overtake others', how far dilation reaches, the window's gradient."""

import numpy as np

from minitransformer import ops
from paper.experiments.table1 import complexity

from ..checks import (
    count_lines,
    peak_memory,
    require,
    require_close,
    require_gradients,
    require_none_of,
    type_name,
    unpack,
)
from ..exercise import Attempt, Wrong, exercise
from . import solutions


def _window_backward(dout, query, key, value, weights, r):
    """Run the package's windowed attention of one sequence and one head, forward again and then backward."""
    one_head = (array[None, None] for array in (query, key, value))
    _, cache = ops.attention_forward(*one_head, window=r)
    dquery, dkey, dvalue = (gradient[0, 0] for gradient in ops.attention_backward(dout[None, None], cache))
    return dquery, dkey, dvalue


@exercise(answer=solutions.crossover)
def crossover(attempt: Attempt) -> None:
    def at(d: float, c: float) -> float:
        n = attempt(d, c)
        require(isinstance(n, int | float | np.number), f"it must return one number, not {type_name(n)}")
        return float(n)

    n = at(64, 8)
    require(n > 0, f"for d = 64 and c = 8 it returns {n:g}: there is one length above 0 at which the two are equal")
    wider, dearer = at(128, 8) / n, at(64, 16) / n
    require(
        abs(wider - 2) < 1e-9,
        f"twice the width gives {wider:.3g} times the length: in 4 n² d = c n d² divide both sides by n and by d, and "
        "what is left is proportional to d",
    )
    require(
        abs(dearer - 2) < 1e-9,
        f"twice the c gives {dearer:.3g} times the length: the other computation costs twice as much at any n, so "
        "attention may be twice as long",
    )
    attention, other = 4 * n**2 * 64, 8 * n * 64**2
    require(
        abs(attention / other - 1) < 1e-9,
        f"at the length that it returns attention takes {attention / other:.3g} times the other's operations",
    )
    for d, c, right in ((3, 6, 4.5), (1, 1, 0.25), (7, 1.3, 2.275), (4_000_000, 24, 24e6)):
        require(
            abs(at(d, c) / right - 1) < 1e-12,
            f"for d = {d:,} and c = {c} it returns {at(d, c):.12g} and must return {right:.12g}, not rounded",
        )


@exercise(answer=complexity.dilated_layers)
def dilated_layers(attempt: Attempt) -> None:
    def layers(n: int, k: int) -> int:
        found = attempt(n, k)
        require(
            isinstance(found, int | np.integer) and not isinstance(found, bool),
            f"it must return an int, not {type_name(found)}: a number of layers",
        )
        return int(found)

    for n, k in ((100, 5), (20, 3), (700, 2)):
        more = layers(n * k, k) - layers(n, k)
        require(
            more == 1,
            f"{n * k} positions take {more} layers more than {n}, with k = {k}: each further layer multiplies by k how "
            "many positions are heard of, so k times the positions take one more",
        )
    for n, k in ((100, 5), (20, 3), (700, 2), (2, 2), (1, 3)):
        found, right = layers(n, k), complexity.dilated_layers(n, k)
        after = f"after {right} layer{'s' * (right != 1)}"
        require(
            found == right,
            f"for n = {n} and k = {k} it says {found}: {after} a position has heard of {k**right} positions, "
            f"itself included{f', and after {right - 1} of {k ** (right - 1)}' if right else ''}",
        )
    # An answer may count positions one by one; then large numbers of them would take too long.
    counts = count_lines(lambda: layers(200_001, 2)) > 10_000 or peak_memory(lambda: layers(200_001, 2)) > 100_000
    largest = 200_000 if counts else 2**60
    hair = ". A logarithm less a hair is wrong where n + 1 lies within the hair; integers are always right"
    for k in range(2, 12):
        for power in range(1, int(np.log(largest) / np.log(k)) + 1):
            n = k**power
            if (found := layers(n, k)) != power:
                raise Wrong(
                    f"for n = {k}**{power} = {n} it says {found} and not {power}: a logarithm in floating point may "
                    "lie a hair beside the whole number; integers do not"
                )
            require(
                layers(n + 1, k) == power + 1,
                f"for n = {k}**{power} + 1 = {n + 1} it says {layers(n + 1, k)}: {power} layers hear of {n} positions, "
                f"one too few{hair if n > 200_000 else ''}",
            )


@exercise(answer=_window_backward)
def window_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    n, d, r = 9, 4, 2
    query, key, value = rng.standard_normal((3, n, d))
    dout = rng.standard_normal((n, d))

    def gradients(dout, query, key, value, r=r):
        _, weights = _window_forward(query, key, value, r)
        given = weights.astype(query.dtype)
        return unpack(attempt(dout, query, key, value, given, r), "dquery", "dkey", "dvalue")

    found = gradients(dout, query, key, value)
    for name, gradient in zip(("dquery", "dkey", "dvalue"), found, strict=True):
        require(gradient.shape == (n, d), f"{name} has shape {gradient.shape} and must have {(n, d)}")
        require(np.isfinite(gradient).all(), f"{name} holds NaN or infinity: what of the places where there is no key?")

    def same(a, b):
        return np.allclose(a, b, atol=1e-5)

    for name, gradient in (("dquery", found[0]), ("dkey", found[1])):
        require(
            not same(gradient.sum(axis=0), dout.sum(axis=0)),
            f"{name} adds up to what dvalue must: are the two exchanged?",
        )
    for position in range(n):
        alone = np.zeros_like(dout)
        alone[position] = dout[position]
        reached = [np.flatnonzero(gradient.any(axis=1)) for gradient in gradients(alone, query, key, value)]
        require(
            all(abs(each - position).max(initial=0) <= r for each in reached),
            f"a gradient at position {position} of {n} reaches a position further away than r = {r}: does the window "
            "wrap around, or is its index off?",
        )
        window = range(max(position - r, 0), min(position + r + 1, n))
        for name, each in (("key", reached[1]), ("value", reached[2])):
            missed = sorted(set(window) - set(each.tolist()))
            require(
                not missed,
                f"what the gradient at position {position} sends to {name} {min(missed, default='')} is lost: a {name} "
                "stands in several windows, and gets what all of them send (np.add.at, not +=)",
            )
    require(
        same(found[2].sum(axis=0), dout.sum(axis=0)),
        "a query's weights add up to 1, so dvalue summed over the positions must be dout summed over them, and is not: "
        "a value gets weight · dout from each query that sees it",
    )
    require(
        same(found[1].sum(axis=0), 0),
        "a vector added to all keys changes no weight, so dkey summed over the positions must be 0, and is not: the "
        "softmax's backward takes the weighted mean of dweights from each, weights · (dweights − Σ dweights · weights)",
    )
    right = _window_backward(dout, query, key, value, None, r)
    scaled = {
        "√d: the scores were divided by it, and so is their gradient": 2.0,
        "1/√d: is the scale in there twice?": 0.5,
        "d: the scale must divide": 4.0,
    }
    for name, gradient, wanted, mistakes in zip(
        ("dquery", "dkey", "dvalue"), found, right, _window_mistakes(dout, query, key, value, r), strict=True
    ):
        require_none_of(name, gradient, wanted, mistakes)
        require_close(name, gradient, wanted, tolerance=1e-5, factors=scaled)
    require_gradients(
        lambda query, key, value: (
            _window_forward(query, key, value, r)[0],
            (query, key, value, _window_forward(query, key, value, r)[1]),
        ),
        lambda dout, cache: attempt(dout, *cache, r),
        {"query": query, "key": key, "value": value},
    )
    for n, d, r in ((9, 5, 2), (9, 4, 3), (4, 5, 6)):
        dout, query, key, value = rng.standard_normal((4, n, d))
        actual = gradients(dout, query, key, value, r)
        expected = _window_backward(dout, query, key, value, None, r)
        for name, a, e in zip(("dquery", "dkey", "dvalue"), actual, expected, strict=True):
            require(
                np.allclose(a, e),
                f"with n = 9, d = 4 and r = 2 it is right, with n = {n}, d = {d} and r = {r} {name} is wrong: is a "
                "number written where one of them belongs?",
            )
    require(
        all(gradient.dtype == np.float64 for gradient in found),
        f"of arrays of float64 the gradients are {', '.join(str(gradient.dtype) for gradient in found)}",
    )
    single = [array.astype(np.float32) for array in (dout, query, key, value)]
    widened = [
        f"{name} is {gradient.dtype}"
        for name, gradient in zip(("dquery", "dkey", "dvalue"), gradients(*single), strict=True)
        if gradient.dtype != np.float32
    ]
    require(
        not widened,
        f"of arrays of float32 {' and '.join(widened)}: np.zeros without a dtype and np.sqrt of an int are float64, "
        "and widen what they meet; np.zeros_like and d**0.5 do not",
    )
    n, d, r = 2000, 4, 2
    dout, query, key, value = rng.standard_normal((4, n, d))
    _, weights = _window_forward(query, key, value, r)
    peak = peak_memory(lambda: attempt(dout, query, key, value, weights, r))
    require(
        peak < n * n,
        f"the gradients are right, but for n = {n:,} and r = {r} it takes {peak / 2**20:.0f} MiB, as much as arrays of "
        f"({n:,}, {n:,}) do: gather the keys of each window instead",
    )


def _window_mistakes(dout, query, key, value, r):
    """Return what likely mistakes give for dquery, dkey and dvalue, from all scores (n, n)."""
    places = np.arange(len(query))
    seen, scale = np.abs(places[:, None] - places) <= r, 1 / np.sqrt(query.shape[1])
    weights, _ = ops.softmax_forward(np.where(seen, scale * query @ key.T, -np.inf))

    def dscores(dweights):
        return scale * weights * (dweights - (weights * dweights).sum(axis=1, keepdims=True))

    right, by_keys = dscores(dout @ value.T), dscores(dout @ key.T)
    of_keys = "is made with dweights = dout · key: what was weighted are the values"
    return (
        {
            of_keys: by_keys @ key,
            "is made with the queries of the window: scores = query · key, so dquery holds the keys": right @ query,
        },
        {
            of_keys: by_keys.T @ query,
            "is made with the keys: scores = query · key, so dkey holds the queries": (
                right.sum(axis=0)[:, None] * key
            ),
            "is made with the keys of its window: scores = query · key, so dkey holds the queries": right.T @ key,
        },
        {},
    )


def _window_forward(query, key, value, r):
    seen = np.arange(len(query))[:, None] + np.arange(-r, r + 1)
    index, exists = seen.clip(0, len(query) - 1), (seen >= 0) & (seen < len(query))
    scores = np.einsum("id,iwd->iw", query, key[index]) / np.sqrt(query.shape[1])
    weights, _ = ops.softmax_forward(np.where(exists, scores, -np.inf))
    return np.einsum("iw,iwd->id", weights, value[index]), weights
