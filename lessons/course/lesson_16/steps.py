"""Lesson 16's way to the flash forward: a tile of scores, the softmax over blocks of keys, and its output."""

import math
from typing import Any

import numpy as np

from ..checks import distinct, require, unpack
from ..exercise import Attempt, Wrong, exercise
from ..gpu import torch
from ..sanitizer import (
    AccessReport,
    require_few_launches,
    require_float32_products,
    require_safe_access,
    require_single_pass,
    sanitize,
)
from ..tensors import as_numbers, needs_kernels, tensor
from . import solutions

FLOAT32 = 2e-5  # tolerance


def attention(arrays, causal=False):
    """out and lse by the definition, in float64."""
    query, key, value = (array.astype(np.float64) for array in arrays)
    (_, Tq, D), Tk = query.shape, key.shape[1]
    scores = query @ key.mT / math.sqrt(D) * math.log2(math.e)
    if causal:
        scores[:, np.arange(Tk) > np.arange(Tq)[:, None] + (Tk - Tq)] = -np.inf
    m = scores.max(axis=2, keepdims=True)
    powers = np.exp2(scores - np.where(m == -np.inf, 0.0, m))
    l = powers.sum(axis=2, keepdims=True)
    nothing = l == 0
    l = np.where(nothing, 1.0, l)
    return powers @ value / l, np.where(nothing, np.inf, m + np.log2(l))[..., 0]


def worst(name: str, found: np.ndarray, right: np.ndarray, tolerance: float = FLOAT32) -> str:
    """Describe the place of a result's largest error; return an empty string if all of it is right."""
    with np.errstate(invalid="ignore"):
        off = np.where(found == right, 0.0, np.abs(found - right))
    off = np.where(np.isnan(off), np.inf, off)
    if off.max() <= tolerance * max(1.0, np.abs(right[np.isfinite(right)]).max(initial=0.0)):
        return ""
    place = tuple(int(i) for i in np.unravel_index(off.argmax(), off.shape))
    shown, must_be = distinct(found[place], right[place])
    return f"{name} at {place} is {shown} and must be {must_be}"


def drawn(rng: np.random.Generator, Tq: int, Tk: int, D: int = 16) -> list[np.ndarray]:
    """A query, a key and a value of one head."""
    return [rng.standard_normal((T, D)).astype(np.float32) for T in (Tq, Tk, Tk)]


def ordered(rng: np.random.Generator) -> list[np.ndarray]:
    """16 queries and 32 keys: scores fall along the keys for half of the queries, and rise for the others."""
    query, key, value = drawn(rng, 16, 32)
    return [np.repeat([[-1], [1]], 8, axis=0) * np.abs(query), np.sort(np.abs(key), axis=0), value]


def extreme(rng: np.random.Generator) -> list[np.ndarray]:
    """16 queries and as many keys: scores about 288 for half of the queries, and about −288 for the others."""
    query, key, value = drawn(rng, 16, 16)
    query[:, 0], key[:, 0] = np.repeat([100.0, -100.0], 8), 8.0
    return [query, key, value]


def long_tail() -> list[np.ndarray]:
    """16 queries and 512 keys: the first has all of the weight but a hundredth, which the others share."""
    query, key, value = np.zeros((16, 16)), np.zeros((512, 16)), np.ones((512, 16))
    query[:, 0] = 4.0
    key[1:, 0] = -11.1  # scores of −16 in base 2: a block of such weights, 2^−12 in all, is lost beside 1 in float16
    return [query, key, value]


def of_one_head(arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """out and lse, in float64, of arrays without a head's axis."""
    out, lse = attention([array[None] for array in arrays])
    return out[0], lse[0]


def adds_long(out: np.ndarray, lse: np.ndarray) -> None:
    """Raise `Wrong` if the sums over a `long_tail` were kept in float16."""
    right, right_lse = of_one_head([array.astype(np.float16) for array in long_tail()])
    wrong = worst("out", out, right, 2e-3) or worst("lse", lse, right_lse, 2e-3)
    require(
        not wrong,
        f"in float16, with 512 keys whose weights are small beside the first's, {wrong}: in a float16 sum they are "
        "lost. m, l and acc stay in float32",
    )


@exercise(answer=solutions.attention_scores)
def attention_scores(attempt: Attempt) -> None:
    needs_kernels(attempt, None, None)
    rng = np.random.default_rng(0)

    def run(Tq: int, Tk: int, D: int) -> tuple[np.ndarray, np.ndarray, AccessReport, Any]:
        query, key, _ = drawn(rng, Tq, Tk, D)
        with sanitize() as seen:
            found = attempt(tensor(query), tensor(key))
        scores = as_numbers("what it returns", found, (Tq, Tk), torch.float32)
        return scores, query.astype(np.float64) @ key.astype(np.float64).T, seen, found

    def near(a: np.ndarray, b: np.ndarray) -> bool:
        return bool(np.allclose(a, b, atol=1e-4))

    scores, products, seen, _ = run(16, 16, 16)
    right = products / 4 * math.log2(math.e)
    require(not near(scores, products), "it is query · keyᵀ: scores are that times `scale`")
    require(
        not near(scores, right.T),
        "it is the transpose of what it should be: queries are the rows, keys the columns",
    )
    for divisor, why in (
        (4.0, "are in natural units: `scale` holds log2(e) too, as powers of 2 follow"),
        (16 / math.log2(math.e), "are divided by D: `scale` divides by √D"),
        (1 / math.log2(math.e), "are not divided by √D: `scale` does that too"),
        (0.25 / math.log2(math.e), "are multiplied by √D: `scale` divides by it"),
    ):
        require(not near(scores, products / divisor), f"the scores {why}")
    require(
        near(scores, right),
        "one tile is wrong, 16 queries and 16 keys with D = 16: each score is the product of a row of the query and a "
        f"row of the key, so that the key is transposed ({worst('scores', scores, right)})",
    )
    require_few_launches(seen, "scores_kernel", 1, "one tile")
    require_float32_products(seen)
    scores, products, seen, found = run(32, 48, 32)
    right = products / math.sqrt(32) * math.log2(math.e)
    require(
        not np.isnan(scores).any(),
        f"one tile is right, and of 2 × 3 tiles {np.isnan(scores).sum()} scores are not written: the block of queries "
        "is tl.program_id(0), the block of keys tl.program_id(1), and a row of scores is Tk long",
    )
    require(
        near(scores, right),
        "one tile is right, of 2 × 3 tiles some are wrong: does each program load its own queries and its own keys? "
        f"({worst('scores', scores, right)})",
    )
    require_safe_access(seen, "for 2 × 3 tiles")
    require_single_pass(seen, scores=("written", found))


@exercise(answer=solutions.attention_lse)
def attention_lse(attempt: Attempt) -> None:
    needs_kernels(attempt, None, None)
    rng = np.random.default_rng(0)

    def run(arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, AccessReport, list[Any]]:
        given = [tensor(array) for array in arrays[:2]]
        with sanitize() as seen:
            found = attempt(*given)
        lse = as_numbers("lse", found, arrays[0].shape[:1], torch.float32)
        return lse, of_one_head(arrays)[1], seen, given

    query, key, value = drawn(rng, 16, 16)
    lse, *_ = run([0 * query, key, value])
    wrong = worst("lse", lse, np.full(16, 4.0))
    require(
        not wrong,
        f"where all of 16 scores are 0, lse must be log2(16) = 4, and {wrong}: in the end it is m + log2(l)",
    )
    lse, right, seen, _ = run([query, key, value])
    scores = (query @ key.T / 4 * math.log2(math.e)).astype(np.float64)
    require(
        bool(worst("lse", lse, np.log2(np.exp2(scores).sum(axis=0)))),
        "one block of keys: it adds up over the queries, for each key: a query's scores are a row of the tile, and to "
        "add up along a row is axis=1",
    )
    require(
        not (wrong := worst("lse", lse, right)),
        f"with queries of 0 it is right, with others it is not ({wrong}): scores are query · keyᵀ · scale, m is the "
        "largest of a row, and l is Σ_j 2^(score_j − m)",
    )
    require_few_launches(seen, "lse_kernel", 1, "16 queries")
    require_float32_products(seen)
    arrays = ordered(rng)
    lse, right, *_ = run(arrays)
    one = "with one block of keys it is right, with two"
    first, last = (of_one_head([arrays[0], arrays[1][part], arrays[2][part]])[1] for part in (slice(16), slice(16, 32)))
    require(worst("lse", lse, first), f"{one} the first alone is in lse: does it go on to the last key?")
    require(worst("lse", lse, last), f"{one} the second alone is in lse: m and l go on from block to block")
    require(
        not (wrong := worst("lse", lse[:8], right[:8])),
        f"{one}, the largest score in the first, it is wrong ({wrong}): terms of a later block are relative to the "
        "running maximum too",
    )
    require(
        not (wrong := worst("lse", lse[8:], right[8:])),
        f"{one}, the largest score in the second, it is wrong ({wrong}): l must shrink by 2^(old m − new m)",
    )
    lse, right, *_ = run(extreme(rng))
    for rows, score, likely in (
        (slice(8), "288", "2^288 is beyond float32. Subtract m from the scores before tl.exp2"),
        (slice(8, 16), "−288", "2^−288 is 0 in float32. Does m begin at LOWEST, and has each query its own?"),
    ):
        wrong = worst("lse", lse[rows], right[rows], 1e-3)
        require(not wrong, f"with scores about {score} it is wrong: {likely} ({wrong})")
    arrays = drawn(rng, 32, 48, 32)
    lse, right, seen, given = run(arrays)
    require(
        not (wrong := worst("lse", lse, right)),
        f"16 queries are right, 32 are not ({wrong}): the block of queries is tl.program_id(0), also where lse is "
        "stored",
    )
    require_safe_access(seen, "for 32 queries")
    require(
        seen.read(given[1]) <= 2 * given[1].numel(),
        f"the numbers are right, but each number of the key is read {seen.read(given[1]) / given[1].numel():.3g} "
        "times, and 2 programs need it: one walk over the keys is enough",
    )


@exercise(answer=solutions.attention_out)
def attention_out(attempt: Attempt) -> None:
    needs_kernels(attempt, *[None] * 3)
    rng = np.random.default_rng(0)

    def run(arrays: list[np.ndarray], dtype: Any = None) -> tuple[np.ndarray, np.ndarray, AccessReport, list[Any]]:
        given = [tensor(array, dtype) for array in arrays]
        with sanitize() as seen:
            found = attempt(*given)
        unpack(found, "out", "lse")
        out = as_numbers("out", found[0], arrays[0].shape, given[0].dtype)
        return out, as_numbers("lse", found[1], arrays[0].shape[:1], torch.float32), seen, given

    query, key, value = drawn(rng, 16, 16)
    out, *_ = run([query, key, np.ones_like(value)])
    wrong = worst("out", out, np.ones_like(out))
    require(
        not wrong, f"where all values are 1, {wrong}: the weights do not add up to 1. Is acc divided by l in the end?"
    )
    arrays = [query, key, value]
    out, lse, seen, _ = run(arrays)
    right, right_lse = of_one_head(arrays)
    require(
        not (wrong := worst("out", out, right)),
        f"with one block of keys out is wrong ({wrong}): it is Σ_j weight_j · value_j, a product of the tile of "
        "weights (M, N) and the block of values (N, D)",
    )
    require(not (wrong := worst("lse", lse, right_lse)), f"out is right, and lse is not ({wrong}): it is m + log2(l)")
    require_few_launches(seen, "attention_kernel", 1, "16 queries")
    require_float32_products(seen)

    arrays = ordered(rng)
    out, lse, *_ = run(arrays)
    right, right_lse = of_one_head(arrays)
    one = "with one block of keys it is right; with two"
    still = of_one_head([arrays[0], arrays[1], np.concatenate([arrays[2][:16]] * 2)])[0]
    require(
        worst("out", out, still),
        f"{one} the values of the first are used for both: key and value move along together",
    )
    for rows, where, likely in (
        (slice(8), "first", "acc goes on from block to block, and is divided by l once, after the last"),
        (slice(8, 16), "second", "acc, like l, must shrink by 2^(old m − new m)"),
    ):
        wrong = worst("out", out[rows], right[rows])
        require(not wrong, f"{one}, the largest score in the {where}, out is wrong ({wrong}): {likely}")
    require(not (wrong := worst("lse", lse, right_lse)), f"{one} out is right, and lse is not ({wrong})")
    arrays = drawn(rng, 32, 48, 32)
    out, lse, seen, given = run(arrays)
    right, right_lse = of_one_head(arrays)
    wrong = worst("out", out, right) or worst("lse", lse, right_lse)
    require(not wrong, f"16 queries are right, 32 are not: {wrong}. Which rows of out are this program's?")
    require_safe_access(seen, "for 32 queries")
    for name, array in zip(("key", "value"), given[1:], strict=True):
        require(
            seen.read(array) <= 2 * array.numel(),
            f"the numbers are right, but each number of the {name} is read {seen.read(array) / array.numel():.3g} "
            "times, and 2 programs need it: one walk over the blocks is enough",
        )
    try:
        out, *_ = run(arrays, torch.float16)
    except Wrong as wrong:
        likely = ". tl.dot wants both sides alike: weights.to(value.dtype)" if "it raises" in str(wrong) else ""
        raise Wrong(f"in float32 it is right, and in float16 {wrong}{likely}") from None
    right, _ = of_one_head([array.astype(np.float16) for array in arrays])
    require(not (wrong := worst("out", out, right, 2e-3)), f"in float32 it is right, and in float16 {wrong}")
    adds_long(*run(long_tail(), torch.float16)[:2])
