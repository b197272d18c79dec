"""Lesson 23: how far a pattern hears, the gradient of a global token, linear attention as a recurrent network."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from minitransformer import ops
from minitransformer.gradcheck import error

from ..checks import (
    count_lines,
    in_case,
    peak_memory,
    require,
    require_array,
    require_arrays,
    require_close,
    require_float64,
    require_gradients,
    require_none_of,
    type_name,
)
from ..compiled import compiled
from ..counting import Counted, counted
from ..exercise import Attempt, Wrong, exercise
from ..limits import LimitExceeded
from ..sanitizer import require_few_launches, require_float32_products, require_safe_access, sanitize
from ..tensors import as_numbers, needs_kernels, tensor
from . import solutions

# --- How many layers ----------------------------------------------------------------------------------------------


def _window(T: int, left: int, right: int = 0) -> np.ndarray:
    back = np.arange(T)[:, None] - np.arange(T)
    return (back <= left) & (back >= -right)


@exercise(answer=solutions.layers_until_heard)
def layers_until_heard(attempt: Attempt) -> None:
    def layers(allowed: np.ndarray) -> np.ndarray:
        results = list[Any]()
        # Three loops over the positions in each of their layers run far fewer lines.
        count_lines(lambda: results.append(attempt(allowed)), 10_000 + 200 * len(allowed) ** 3)
        (found,) = results
        require(isinstance(found, np.ndarray), f"it must return an array of whole numbers, not {type_name(found)}")
        require(
            found.shape == allowed.shape, f"it returns shape {found.shape} and must return {allowed.shape}, as allowed"
        )
        require(found.dtype.kind == "i", f"it must return an array of whole numbers, not of {found.dtype}")
        return found

    T = 7
    chain = _window(T, 1)
    found, back = layers(chain), np.arange(T)[:, None] - np.arange(T)
    right = np.where(back >= 0, back, -1)
    past, early = found[back >= 0], np.argwhere((back < 0) & (found != -1))
    require(
        not np.array_equal(found, right.T),
        "it is transposed: row i is the position that listens, column j the one that it hears of",
    )
    if len(early):
        i, j = early[0]
        raise Wrong(
            f"in a causal window, {found[i, j]} stands where position {i} hears of position {j}, and it never does: "
            "that is −1"
        )
    require(
        not (past.max() > 1 and (past == past.max()).all()),
        "every number is that of the last layer: write a layer's number only where something was heard just now",
    )
    itself = np.diag(found)
    require(
        not itself.any(),
        f"{itself[np.argmax(itself != 0)]} stands where a position hears of itself: it knows itself before the first "
        "layer, that is 0",
    )
    require(
        not np.array_equal(found, np.minimum(right, 1)),
        "after one layer all is heard: in a layer, a position hears what the others knew before it, and not what they "
        "hear in it",
    )
    require(
        not np.array_equal(found, np.where(right > 0, right + 1, right)),
        "every number is one too many: the keys that a query sees directly are heard of after 1 layer",
    )
    require(
        not np.array_equal(found, np.where(right > 0, right - 1, right)),
        "every number is one too few: the keys that a query sees directly are heard of after 1 layer, not 0",
    )
    doubled = np.ceil(np.log2(np.maximum(right, 1))).astype(int) + 1
    require(
        not np.array_equal(found, np.where(right > 0, doubled, right)),
        "three back takes as many layers as four back: what was heard is joined with itself, as if the next layer "
        "reached twice as far. Each layer adds one window, the same one",
    )
    require(
        not (found[back > 1] == -1).all(),
        "nobody hears of what lies outside its own window: the next layer listens to positions that have heard too",
    )
    require(
        not np.array_equal(found, np.where(back > 2, -1, right)),
        "it ends after 2 layers: go on until nobody hears of anything new",
    )
    require_close("where each position sees itself and the one before it, the result", found, right)

    for name, allowed in _patterns():
        found, right = layers(allowed), solutions.layers_until_heard(allowed)
        itself = allowed | np.eye(len(allowed), dtype=bool)
        require(
            np.array_equal(found, right) or np.array_equal(itself, allowed) or error(layers(itself), right) > 0,
            "where a query does not see its own position it is wrong, and elsewhere right: the residual connection "
            "keeps what a position has, so that in every layer it listens to itself anyway",
        )
        with in_case(f"{name}:"):
            require_close("the result", found, right)


def _patterns() -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    two = np.kron(np.eye(2, dtype=bool), np.ones((3, 3), dtype=bool))
    ring = np.roll(np.eye(9, dtype=bool), 1, axis=1)
    marked = _window(12, 1, 1)
    marked[4], marked[:, 4] = True, True
    return [
        ("a window to both sides", _window(9, 2, 2)),
        ("all see all", np.ones((5, 5), dtype=bool)),
        ("two halves that never meet", two),
        ("a ring, where each position sees the next one", ring),
        ("a window and one global token", marked),
        ("one position", np.ones((1, 1), dtype=bool)),
        ("nobody sees anybody", np.zeros((4, 4), dtype=bool)),
        ("a causal window of 40 positions", _window(40, 3)),
        *((f"pairs drawn at random, {share:.0%}", rng.random((15, 15)) < share) for share in (0.05, 0.1, 0.2)),
    ]


# --- A global token -----------------------------------------------------------------------------------------------


@exercise(answer=solutions.global_token_backward)
def global_token_backward(attempt: Attempt) -> None:
    for T, D, Dv, g in ((6, 4, 3, 2), (9, 3, 5, 0), (5, 2, 2, 4), (2, 6, 1, 1)):
        _judge_global(attempt, T, D, Dv, g)


def _judge_global(attempt: Attempt, T: int, D: int, Dv: int, g: int) -> None:
    rng = np.random.default_rng(T)
    query, key, value = rng.standard_normal((T, D)), rng.standard_normal((T, D)), rng.standard_normal((T, Dv))
    dout, root = rng.standard_normal((T, Dv)), np.sqrt(D)
    pattern = ops.Pattern(window=1, global_tokens=(g,))

    def forward(key_g: np.ndarray, value_g: np.ndarray) -> tuple[np.ndarray, tuple]:
        keys, values = key.copy(), value.copy()
        keys[g], values[g] = key_g, value_g
        one = query[None, None], keys[None, None]
        out, _ = ops.attention_forward(*one, values[None, None], pattern=pattern)
        weights = ops.attention_weights(*one, pattern=pattern)[0, 0]
        return out[0, 0], (out[0, 0], query, value_g, weights[:, g].copy())

    def gradients(dout: np.ndarray, out: Any, query: Any, value_g: Any, weights_g: Any) -> list[np.ndarray]:
        found = require_arrays(attempt(dout, out, query, value_g, weights_g), "dkey_g", "dvalue_g")
        for name, mine, width in zip(("dkey_g", "dvalue_g"), found, (D, Dv), strict=True):
            require(
                not (mine.shape == (T, width) and (T, width) != (width,)),
                f"{name} has a row for each query, {mine.shape}: there is one token, which gets the sum of what all "
                f"send, ({width},)",
            )
        require(
            Dv == D or [mine.shape for mine in found] != [(Dv,), (D,)],
            "the two are returned in the other order: dkey_g, dvalue_g",
        )
        for name, mine, width in zip(("dkey_g", "dvalue_g"), found, (D, Dv), strict=True):
            require(mine.shape == (width,), f"{name} has shape {mine.shape} and must have {(width,)}, as the token's")
        return found

    out, cache = forward(key[g], value[g])
    _, _, value_g, weights_g = cache
    dkey_g, dvalue_g = gradients(dout, *cache)
    place = f"with {T} queries, D = {D} and Dv = {Dv},"

    dweights = dout @ value_g
    mean = np.sum(dout * out, axis=1)
    right = (weights_g * (dweights - mean)) @ query / root
    require(
        not np.allclose(dvalue_g, weights_g[g] * dout[g]),
        "dvalue_g is what the token's own query sends: all queries see it, and all of them send",
    )
    require(
        not np.allclose(dvalue_g, dout.sum(axis=0)),
        "dvalue_g is the plain sum of dout: each query took the value times its weight, so each gradient comes back "
        "times that weight",
    )
    require(
        not np.allclose(dvalue_g, weights_g @ dout / T),
        "dvalue_g is the mean over the queries: one value was used T times, so it gets the sum of T gradients",
    )
    mistakes = {
        "has the weights squared: out_i takes value_g times its weight, once": weights_g**2 @ dout,
        "is made of out, and must be of dout": weights_g @ out,
    }
    require_none_of(f"{place} dvalue_g", dvalue_g, weights_g @ dout, mistakes)
    require_close(f"{place} dvalue_g", dvalue_g, weights_g @ dout)
    for wrong, hint in (
        (right * root, "dkey_g is √D times too large: the scores were divided by √D"),
        (right / root, "dkey_g is √D times too small: the scores were divided by √D, once"),
        (right * root / np.sqrt(Dv), "dkey_g is divided by √Dv: the scores are products of D numbers"),
        (right / T, "dkey_g is the mean over the queries: one key was used T times, so it gets the sum"),
        (-right, "dkey_g has the wrong sign everywhere"),
        (
            (weights_g * dweights) @ query / root,
            "dkey_g misses half of the softmax's backward: from dweights its row's mean is taken, which is dout · out",
        ),
        (
            (weights_g * (dweights - weights_g * dweights)) @ query / root,
            "dkey_g takes only this token's share from dweights: the mean is over all keys of a row, and is dout · out",
        ),
        (
            (dweights - mean) @ query / root,
            "dkey_g misses the weights: the softmax's backward is weights · (dweights − Σ dweights · weights)",
        ),
        (
            (weights_g * (dweights - mean / Dv)) @ query / root,
            "dkey_g takes the mean of dout · out over the Dv columns: dout · out is their sum",
        ),
        (
            (weights_g * (dweights + mean)) @ query / root,
            "dkey_g adds dout · out: the softmax's backward subtracts it from dweights",
        ),
        (
            (weights_g * (out @ value_g - mean)) @ query / root,
            "dkey_g has dweights = out · value_g, and it is dout · value_g: what comes from above is dout",
        ),
        (
            (weights_g * (1 - weights_g) * (dweights - mean)) @ query / root,
            "dkey_g has a factor 1 − weights: in weights · (dweights − dout · out) that part is in dout · out already",
        ),
        (
            weights_g[g] * (dweights - mean)[g] * query[g] / root,
            "dkey_g is what the token's own query sends: all queries have a score with its key",
        ),
    ):
        require(error(wrong, right) < 1e-9 or error(dkey_g, wrong) > 1e-9, hint)
    with in_case(place):
        require_close("dkey_g", dkey_g, right)
        require_gradients(
            forward, lambda dout, cache: attempt(dout, *cache), {"key_g": key[g], "value_g": value[g]}, tolerance=1e-6
        )


# --- Linear attention ---------------------------------------------------------------------------------------------

SHAPES = ((6, 3, 4), (5, 4, 2), (1, 2, 3), (80, 3, 3))
"""T, D, Dv."""


def _linear_attention(query, key, value, eps=1e-6):
    """Run the package's linear attention of one sequence and one head."""
    out, _ = ops.linear_attention_forward(query[None, None], key[None, None], value[None, None], causal=True, eps=eps)
    return out[0, 0]


def _linear_attention_backward(dout, query, key, value, eps=1e-6):
    one_head = (part[None, None] for part in (query, key, value))
    _, cache = ops.linear_attention_forward(*one_head, causal=True, eps=eps)
    dquery, dkey, dvalue = (gradient[0, 0] for gradient in ops.linear_attention_backward(dout[None, None], cache))
    return dquery, dkey, dvalue


def _by_weights(weights: np.ndarray, value: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    return weights @ value / (weights.sum(axis=1, keepdims=True) + eps)


@exercise(answer=_linear_attention)
def linear_attention(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for T, D, Dv in SHAPES:
        query, key, value = rng.standard_normal((T, D)), rng.standard_normal((T, D)), rng.standard_normal((T, Dv))
        found = require_array(attempt(query, key, value))
        place = f"with T = {T}, D = {D} and Dv = {Dv}"
        require(found.shape == value.shape, f"{place} it returns shape {found.shape} and must return {value.shape}")
        _judge_linear(found, query, key, value)
        require_close(f"{place} the output", found, _linear_attention(query, key, value))
    query, key, value = rng.standard_normal((3, 6, 4))
    right = _linear_attention(query, key, value, eps=0.5)
    require(
        not np.allclose(attempt(query, key, value, eps=0.5), _linear_attention(query, key, value)),
        "with eps = 0.5 the output is that with 1e-6: the denominator is φ(q) · z + eps",
    )
    require(
        np.allclose(attempt(query, key, value, eps=0.5), right),
        "with eps = 0.5 it is wrong: eps is added once to each denominator, after the sum over the keys",
    )
    large = 1000 * query
    require_close(
        "with queries in the thousands the output", attempt(large, key, value), _linear_attention(large, key, value)
    )
    _judge_cost(attempt, 3)


def _judge_linear(found: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> None:
    """Raise `Wrong` with the mistake that gives a wrong output, if it is a known one."""
    T = len(query)
    f, k = solutions.phi(query), solutions.phi(key)
    past = np.tri(T, dtype=bool)
    weights = (f @ k.T) * past
    right = _by_weights(weights, value)
    scores = np.where(past, query @ key.T / np.sqrt(query.shape[1]), -np.inf)
    softmax = np.exp(scores - scores.max(axis=1, keepdims=True))
    for wrong, hint in (
        (_by_weights(f @ k.T, value), "later keys move earlier outputs: at position t only the keys up to t are in S"),
        (
            _by_weights(weights * np.tri(T, k=-1), value),
            "a position does not see its own key: S and z take in key t before query t reads them",
        ),
        (weights @ value, "nothing is divided by φ(q) · z + eps: the weights of a row must sum to 1"),
        (
            _by_weights((query @ key.T) * past, value),
            "φ is missing: the features are φ(q) and φ(k), which are positive",
        ),
        (_by_weights((f @ key.T) * past, value), "φ is applied to the queries alone: keys have features too"),
        (_by_weights((query @ k.T) * past, value), "φ is applied to the keys alone: queries have features too"),
        (_by_weights(softmax, value, 0.0), "this is attention with a softmax: the weights are φ(q) · φ(k) instead"),
        (
            _by_weights((f @ k.T / np.sqrt(query.shape[1])) * past, value, 0.0),
            "it is right but for eps: the denominator is φ(q) · z + eps, eps added once",
        ),
        (
            _by_weights(weights / np.sqrt(query.shape[1]), value),
            "weights are divided by √D, so that eps counts √D times: φ(q) · φ(k) needs no scale",
        ),
        (
            weights @ value / (weights.sum(axis=1, keepdims=True) + 1e-6 * f.sum(axis=1, keepdims=True)),
            "eps is in z, so that φ(q) multiplies it: it is added after φ(q) · z",
        ),
        (
            _by_weights((solutions.phi(query / np.sqrt(query.shape[1])) @ k.T) * past, value),
            "queries are divided by √D, as before a softmax: φ takes them as they are",
        ),
        (
            weights @ value / ((weights * np.tri(T, k=-1)).sum(axis=1, keepdims=True) + 1e-6),
            "S takes in key t before query t reads it, z only after: both come first",
        ),
        (
            (weights * np.tri(T, k=-1)) @ value / (weights.sum(axis=1, keepdims=True) + 1e-6),
            "z takes in key t before query t reads it, S only after: both come first",
        ),
        (
            weights @ value / (np.arange(T) + 1)[:, None],
            "it is divided by the number of keys: the denominator is the sum of the weights, φ(q) · z + eps",
        ),
        *_feature_mistakes(query, key, value),
        (
            np.cumsum(_by_weights(weights, value), axis=0),
            "outputs add up from position to position: each output is read from S anew",
        ),
    ):
        require(error(wrong, right) < 1e-9 or error(found, wrong) > 1e-12, hint)


def _feature_mistakes(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> list[tuple[np.ndarray, str]]:
    """Return what likely mistakes of φ, of S and of z give, with their hints."""
    T = len(query)
    past, f, k = np.tri(T), solutions.phi(query), solutions.phi(key)
    weights = (f @ k.T) * past
    numerator, denominator = weights @ value, weights.sum(axis=1, keepdims=True) + 1e-6
    decays = 0.9 ** np.maximum(np.arange(T)[:, None] - np.arange(T), 0)

    def summed(weights: np.ndarray) -> np.ndarray:
        return (weights * past).sum(axis=1, keepdims=True) + 1e-6

    found = [
        (numerator / summed(query @ k.T), "the denominator has q · z: φ is missing there, it is φ(q) · z + eps"),
        ((query @ k.T * past) @ value / denominator, "the numerator has q S: φ is missing there, it is φ(q) S"),
        (numerator / summed(f @ key.T), "z adds up the keys themselves: φ is missing, it is the sum of φ(k)"),
        ((f @ key.T * past) @ value / denominator, "S adds up kᵀ v: φ is missing, it is the sum of φ(k)ᵀ v"),
        (numerator / (np.cumsum(k, axis=0).sum(axis=1, keepdims=True) + 1e-6), (
            "the denominator is the sum of z's numbers: it is φ(q) · z + eps")),
        ((weights * np.eye(T)) @ value / denominator, "S is that of position t alone: it adds up from 0 to t"),
        (numerator / summed(f @ k.T * np.eye(T)), "z is that of position t alone: it adds up from 0 to t"),
        (_by_weights(k @ k.T * past, value), "the keys' features read S and z: it is those of the query, φ(q)"),
        (weights @ solutions.phi(value) / denominator, "φ is applied to the values: they are added up as they are"),
        (numerator / ((denominator - 1e-6) * 1e-6), "the denominator is φ(q) · z times eps: eps is added"),
        ((weights * decays) @ value / denominator, "S forgets what lies behind: nothing shrinks it"),
    ]  # fmt: skip
    for name, phi in (
        ("max(x, 0)", lambda x: np.maximum(x, 0)),
        ("elu(x), without its + 1", lambda x: solutions.phi(x) - 1),
        ("elu(x) + 2", lambda x: solutions.phi(x) + 1),
        ("e^x", np.exp),
    ):
        found.append(
            (
                _by_weights(phi(query) @ phi(key).T * past, value),
                (f"φ is {name}: it is elu(x) + 1, which is x + 1 above 0 and e^x below"),
            )
        )
    return found


def _judge_cost(attempt: Attempt, count: int) -> None:
    """Raise `Wrong` for arrays (T, T) or (T, D, Dv), or if the counted cost grows faster than T; `count` arguments."""
    rng = np.random.default_rng(2)

    def call(T: int, D: int, function: Callable[..., Any] = attempt.function) -> Any:
        return Attempt(function, seconds=60.0)(*rng.standard_normal((count, T, D)))  # counting makes a call slow

    def numbers(T: int) -> int:
        call(T, 16, counted(attempt.function))
        require(
            Counted.numbers >= count * T * 16,
            "it is right, but its cost cannot be counted: compute with NumPy's functions and the arrays that are given",
        )
        return Counted.numbers

    def grows_as_T(cost: Callable[[int], int], what: str, few: int, many: int) -> None:
        growth = cost(many) / many / (cost(few) / few)
        require(
            growth < 1.5,
            f"it is right, but a token among {many:,} takes {growth:.1f} times as many {what} as one among {few:,}: "
            "something walks over all earlier or later positions again, where a running sum is enough",
        )

    grows_as_T(lambda T: count_lines(lambda: call(T, 2)), "lines of Python", 100, 400)
    T, D = 1000, 2
    peak = peak_memory(lambda: call(T, D))
    require(
        peak < T * T,
        f"it is right, but for T = {T:,} and D = {D} it takes {peak / 2**20:.1f} MiB, as arrays of (T, T) do: the "
        "weights are never needed at once, S and z are",
    )
    T, D = 100, 64
    peak = peak_memory(lambda: call(T, D))
    require(
        peak < 8 * T * D * D / 2,
        f"it is right, but for T = {T:,} and D = {D} it takes {peak / 2**20:.1f} MiB, as an array of (T, D, Dv) does: "
        "one state is enough, which is changed from position to position",
    )
    grows_as_T(numbers, "numbers read, written and multiplied", 500, 2500)


@exercise(answer=_linear_attention_backward)
def linear_attention_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(1)
    names = "dquery", "dkey", "dvalue"
    for T, D, Dv in SHAPES:
        query, key, value = rng.standard_normal((T, D)), rng.standard_normal((T, D)), rng.standard_normal((T, Dv))
        dout = rng.standard_normal((T, Dv))
        found = require_arrays(attempt(dout, query, key, value), *names)
        place = f"with T = {T}, D = {D} and Dv = {Dv}"
        for name, mine, of in zip(names, found, (query, key, value), strict=True):
            require(
                mine.shape == of.shape,
                f"{place} {name} has shape {mine.shape} and a gradient has its array's, {of.shape}",
            )
        if T > 1:
            _judge_gradients(found, dout, query, key, value)
        with in_case(f"{place}:"):
            for name, mine, right in zip(
                names, found, _linear_attention_backward(dout, query, key, value), strict=True
            ):
                require_close(name, mine, right)
    query, key, value = rng.standard_normal((3, 5, 3))
    require_gradients(
        lambda *given: (_linear_attention(*given), given),
        lambda dout, given: attempt(dout, *given),
        {"query": query, "key": key, "value": value},
    )
    dout = rng.standard_normal(value.shape)
    mine = require_arrays(attempt(dout, query, key, value, eps=0.5), *names)
    for name, each, right in zip(
        names, mine, _linear_attention_backward(dout, query, key, value, eps=0.5), strict=True
    ):
        require_float64(name, each)
        require(
            np.allclose(each, right),
            f"with eps = 0.5 {name} is wrong, with 1e-6 it is right: each denominator is φ(q) · z + eps, also "
            "where the forward is computed again",
        )
    _judge_cost(attempt, 4)


def _gradients(
    dout: Any,
    query: Any,
    key: Any,
    value: Any,
    query_slope: bool = True,
    key_slope: bool = True,
    to_query: Any = 1.0,
    to_key: Any = 1.0,
    divided: bool = True,
    keys_see: Any = None,
    queries_see: Any = None,
) -> list[np.ndarray]:
    """Return the gradients computed from all weights; the options leave out a part, as mistakes do.

    query_slope, key_slope  φ' is in the gradient
    to_query, to_key        the factor on what the denominator sends, one or (T, T)
    divided                 dout is divided by the denominator
    keys_see                which queries (T, T) send to which keys and values, by default those at or after them
    queries_see             which keys (T, T) are in the state that a query's gradient takes, by default those up to it
    """
    T = len(query)
    f, k, past = solutions.phi(query), solutions.phi(key), np.tri(T)
    weights = (f @ k.T) * past
    denominator = weights.sum(axis=1, keepdims=True) + 1e-6
    out = weights @ value / denominator
    dnumerator = dout / denominator if divided else dout
    ddenominator = -np.sum(dnumerator * out, axis=1, keepdims=True)
    sees = past if keys_see is None else keys_see
    read = past if queries_see is None else queries_see
    dquery = ((dnumerator @ value.T + to_query * ddenominator) * read) @ k
    dkey = ((dnumerator @ value.T + to_key * ddenominator) * sees).T @ f
    dvalue = ((f @ k.T) * sees).T @ dnumerator
    slopes = solutions.phi_slope(query) if query_slope else 1.0, solutions.phi_slope(key) if key_slope else 1.0
    return [dquery * slopes[0], dkey * slopes[1], dvalue]


def _judge_gradients(found: list[np.ndarray], dout: Any, query: Any, key: Any, value: Any) -> None:
    """Raise `Wrong` with the mistake that gives wrong gradients, if it is a known one."""
    T, right = len(query), _gradients(dout, query, key, value)
    dquery, dkey, _ = found

    def wrong(number: int, **changes: Any) -> bool:
        """Return True if a gradient is the one that a mistake gives."""
        made = _gradients(dout, query, key, value, **changes)[number]
        return error(made, right[number]) > 1e-9 and error(found[number], made) < 1e-9

    require(error(dquery, right[1]) > 1e-9, "dquery is what dkey must be: are the two exchanged?")
    if query.shape == value.shape:
        require(error(dquery, right[2]) > 1e-9, "dquery is what dvalue must be: the order is dquery, dkey, dvalue")
        require(error(dkey, right[2]) > 1e-9, "dkey is what dvalue must be: are the two exchanged?")
    require(
        not wrong(2, divided=False),
        "dvalue misses the denominator: out = numerator / denominator, so first dnumerator = dout / denominator",
    )
    before = (
        "sums over the queries *before* it: a key is in the states of its own position and all later ones, so the sum "
        "runs from the last position back"
    )
    own = (
        "misses its own position's query: S takes in key t before query t reads it, so on the way back query t comes "
        "first too"
    )
    everyone = (
        "sums over all queries: a key is in the states of its own position and the later ones, and in no earlier one"
    )
    alone = "has only its own position's query: the state of t is kept in all later states, so their gradients add up"
    for sees, hint in (
        (np.tri(T).T, before),
        (np.tri(T, k=-1), own),
        (np.ones((T, T)), everyone),
        (np.eye(T), alone),
    ):
        require(not wrong(2, keys_see=sees), f"the gradient of a value {hint}")
        for slope in (True, False):
            require(
                not wrong(1, keys_see=sees, key_slope=slope), f"the gradient of a key, unlike that of a value, {hint}"
            )
    require(
        not wrong(1, to_key=0.0),
        "dkey misses what comes through the denominator: key t is in z too, which has a running sum of its own",
    )
    require(
        not wrong(1, to_key=-1.0),
        "dkey has what comes through the denominator with the wrong sign: the derivative of 1 / x is negative",
    )
    require(
        not wrong(0, to_query=0.0),
        "dquery misses what comes through the denominator: φ(q) is read against z too, dφ(q) = S dnumerator + z "
        "ddenominator",
    )
    require(
        not wrong(0, to_query=-1.0),
        "dquery has what comes through the denominator with the wrong sign: ddenominator = −dnumerator · out",
    )
    require(
        not wrong(1, to_key=np.tri(T, k=-1)),
        "dkey misses what its own query sends through the denominator: z takes in key t before query t reads it",
    )
    weights = np.tril(solutions.phi(query) @ solutions.phi(key).T)
    denominator = weights.sum(axis=1, keepdims=True) + 1e-6
    require(
        not wrong(0, to_query=denominator),
        "what comes through the denominator misses a division: ddenominator = −dnumerator · out, not −dout · out",
    )
    require(
        not wrong(0, queries_see=np.ones((T, T))),
        "dquery is made with the last state: query t has read S_t and z_t, which the walk forward has at t",
    )
    require(not wrong(0, query_slope=False), "dquery is the gradient of φ(q): times φ'(q), the slope at q, it is q's")
    require(not wrong(1, key_slope=False), "dkey is the gradient of φ(k): times φ'(k), the slope at k, it is k's")
    for number, name, x in ((0, "dquery", query), (1, "dkey", key)):
        features = right[number] / solutions.phi_slope(x)
        mistakes = {
            "has φ(x) itself for the slope": features * solutions.phi(x),
            "has φ(x) − 1 for the slope: that of x + 1 is 1": features * (solutions.phi(x) - 1),
            "has the slope 0 below 0, as relu: that of e^x is e^x": features * (x > 0),
            "has the slope e^x above 0 too: there φ(x) is x + 1": features * np.exp(x),
            "has the slope at φ(x), and it is that at x": features * solutions.phi_slope(solutions.phi(x)),
        }
        if query.shape == key.shape:
            other = key if number == 0 else query
            mistakes["has the slope at the other one of query and key"] = features * solutions.phi_slope(other)
        require_none_of(name, found[number], right[number], mistakes)
    f, k, past = solutions.phi(query), solutions.phi(key), np.tri(T)
    dnumerator, slope = dout / denominator, solutions.phi_slope(key)
    ddenominator = -np.sum(dnumerator * (weights @ value / denominator), axis=1, keepdims=True)
    sent, through = (dnumerator @ value.T) * past, ddenominator * past
    mistakes = {
        "has dS += qᵀ dnumerator: φ is missing, it is φ(q)": (sent.T @ query + through.T @ f) * slope,
        "has dz += q ddenominator: φ is missing, it is φ(q)": (sent.T @ f + through.T @ query) * slope,
        "has twice what comes through the denominator: ddenominator = −dnumerator · out, once": (
            (sent + 2 * through).T @ f * slope
        ),
    }
    require_none_of("dkey", dkey, right[1], mistakes)
    query_slope, z = solutions.phi_slope(query), past @ k
    mistakes = {
        "has twice what comes through the denominator: ddenominator = −dnumerator · out, once": (
            ((sent + 2 * through) @ k) * query_slope
        ),
        "is divided by the denominator twice: dnumerator = dout / denominator": (
            _gradients(dout / denominator, query, key, value)[0]
        ),
        "is made with the denominator q · z + eps: φ is missing, it is φ(q) · z + eps": (
            _by_denominator(dout, query, key, value, np.sum(query * z, axis=1, keepdims=True) + 1e-6)
        ),
    }
    require_none_of("dquery", dquery, right[0], mistakes)
    raw = {"is made with the keys themselves: S += φ(k)ᵀ v, so dv = φ(k) dS": (np.tril(f @ key.T)).T @ dnumerator}
    require_none_of("dvalue", found[2], right[2], raw)
    both = "is the gradient of its features without φ', and without what comes through the denominator"
    require(not wrong(0, query_slope=False, to_query=0.0), f"dquery {both}")
    require(not wrong(1, key_slope=False, to_key=0.0), f"dkey {both}")


def _by_denominator(dout: Any, query: Any, key: Any, value: Any, denominator: np.ndarray) -> np.ndarray:
    """Return dquery as it comes of a wrong denominator."""
    k, past = solutions.phi(key), np.tri(len(query))
    dnumerator = dout / denominator
    out = ((solutions.phi(query) @ k.T) * past) @ value / denominator
    ddenominator = -np.sum(dnumerator * out, axis=1, keepdims=True)
    return ((dnumerator @ value.T + ddenominator) * past) @ k * solutions.phi_slope(query)


# --- As a kernel ----------------------------------------------------------------------------------------------------


def _chunk_sums(query: np.ndarray, dnumerator: np.ndarray, features: bool = True) -> np.ndarray:
    """Return the sum that each chunk's queries send to earlier states, (H, chunks, 16, 16)."""
    H, T, D = query.shape
    q = solutions.phi(query) if features else query
    q, d = (part.reshape(H, T // D, D, D) for part in (q, dnumerator))
    return q.swapaxes(-1, -2) @ d


def _untransposed(query: np.ndarray, dnumerator: np.ndarray) -> np.ndarray:
    """Return `_chunk_sums` as they are where φ(q) is not transposed."""
    H, T, D = query.shape
    q, d = (part.reshape(H, T // D, D, D) for part in (solutions.phi(query), dnumerator))
    return q @ d


def _later(sums: np.ndarray) -> np.ndarray:
    """The sums over the chunks after each one."""
    return np.cumsum(sums[:, ::-1], axis=1)[:, ::-1] - sums


@exercise(answer=solutions.chunk_states_backward)
def chunk_states_backward(attempt: Attempt) -> None:
    needs_kernels(attempt, None, None)
    rng = np.random.default_rng(0)
    for H, chunks in ((2, 3), (1, 1), (3, 4)):
        query, dnumerator = rng.standard_normal((2, H, 16 * chunks, 16))
        with sanitize() as seen:
            found = attempt(tensor(query), tensor(dnumerator))
        made = as_numbers("what it returns", found, (H, chunks, 16, 16))
        sums = _chunk_sums(query, dnumerator)
        place = f"with {H} head{'s' * (H > 1)} and {chunks} chunk{'s' * (chunks > 1)}"
        if chunks > 1:
            _judge_states(made, sums, query, dnumerator)
        require_close(f"{place} what it returns", made, _later(sums), tolerance=1e-5)
        require_safe_access(seen, place)
        require_float32_products(seen)
        require_few_launches(seen, "chunk_states_backward_kernel", 1, f"{H} heads")
    query, dnumerator = rng.standard_normal((2, 2, 48, 16))
    for order in ("together", "in reverse"):
        made = _as_machine_code(attempt, query, dnumerator, order)
        right = _later(_chunk_sums(query, dnumerator))
        require_close("in the interpreter it is right; as machine code what it returns", made, right, tolerance=1e-5)


def _judge_states(made: np.ndarray, sums: np.ndarray, query: np.ndarray, dnumerator: np.ndarray) -> None:
    """Raise `Wrong` with the mistake that gives wrong gradients of the states, if it is a known one."""
    later = _later(sums)
    for wrong, hint in (
        (later + sums, "a chunk's own queries have read the state before it, not its own: store first, then add"),
        (
            np.cumsum(sums, axis=1) - sums,
            "the sums are over the chunks before each one: walk from the last to the first",
        ),
        (
            np.cumsum(sums, axis=1),
            "the sums run from the first chunk on: walk from the last one, and store before adding",
        ),
        (sums, "nothing is added up: each chunk has what its own queries send"),
        (np.roll(sums, -1, axis=1) * (later != 0), "nothing is added up: each chunk has what the next one sends"),
        (later.swapaxes(-1, -2), "each state is transposed: it is φ(q)ᵀ dnumerator, (D, Dv)"),
        (_later(_chunk_sums(query, dnumerator, features=False)), "φ is missing: what reads the state is φ(q)"),
        (
            _later(_chunk_sums(solutions.phi(query) - 1, dnumerator, features=False)),
            "φ lacks its + 1: it is elu(x) + 1",
        ),
        (
            _later(_chunk_sums(solutions.phi_slope(query), dnumerator, features=False)),
            "φ's slope stands where φ belongs: what reads the state is φ(q)",
        ),
        (_later(_untransposed(query, dnumerator)), "φ(q) is not transposed: it is φ(q)ᵀ dnumerator, (D, Dv)"),
        (-later, "the wrong sign everywhere: the chunks' sums are added"),
    ):
        require(
            np.allclose(wrong, later, atol=1e-4) or not np.allclose(made, wrong, rtol=1e-4, atol=1e-4),
            hint,
        )
    require(not np.isnan(made[0, -1]).all(), "the last chunk's is not written: nobody comes after it, it is zeros")
    require(
        not np.isnan(made[-1]).all(),
        "only the first head is written: head h = tl.program_id(0) begins at h · chunks · D · D, in all three arrays",
    )
    missing = [(int(head), int(chunk)) for head, chunk in np.argwhere(np.isnan(made).any(axis=(2, 3)))]
    require(
        not missing,
        f"the states of these heads and chunks hold NaN: {', '.join(map(str, missing))}. They are not written, or made "
        "of what lies outside the arrays: chunk n of head h begins at (h · chunks + n) · D · D",
    )


def _as_machine_code(attempt: Attempt, query: np.ndarray, dnumerator: np.ndarray, order: str) -> np.ndarray:
    """Return the attempt's result as machine code. Raises `Wrong` for a fault or an exception."""
    before = "in the interpreter it is right"
    try:
        found = compiled(attempt.function, query, dnumerator, order=order)
    except LimitExceeded as endless:
        raise Wrong(f"{before}; as machine code {endless}") from None
    require(not found["raises"], f"{before}, and it does not compile: {found['raises']}")
    fault = re.sub(r", '[^']*'", "", found["fault"], count=1)
    why = "the running sum can stay in registers, and then nobody has to wait; or else tl.debug_barrier()"
    if "another program" in fault:
        why = "no barrier is between programs: one of them walks through all chunks of a head"
    require(not fault, f"{before}; as machine code, {fault}: {why}")
    return np.asarray(found["returned"])
