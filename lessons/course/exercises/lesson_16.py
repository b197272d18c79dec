"""Lesson 16: flash attention."""

import contextlib
import math
from unittest import mock

import numpy as np

import kernels
from minitransformer import gradcheck, ops

from ..exercise import Attempt, Wrong, exercise
from ..fence import fence
from ..gpu import DEVICE, require
from ..judging import agree, several
from ..judging import require as must
from ..tensors import as_numbers, needs_kernels, tensor

FLOAT32 = 2e-5  # tolerance
TILE = (16, 16)


def _merge(left, right):
    m = np.maximum(left[0], right[0])
    shift = np.where(m == -np.inf, 0.0, m)  # −inf − (−inf) is NaN
    a, b = np.exp(left[0] - shift), np.exp(right[0] - shift)
    return m, a * left[1] + b * right[1], a[:, None] * left[2] + b[:, None] * right[2]


def _causal_blocks(block, tile, Tq, Tk):
    QUERIES, KEYS = tile
    first = block * QUERIES + (Tk - Tq)
    last = min((block + 1) * QUERIES, Tq) - 1 + (Tk - Tq)
    return max(first + 1, 0) // KEYS, -(-max(last + 1, 0) // KEYS)


def _flash_forward(query, key, value, causal=False, tile=TILE):
    require()
    from kernels.attention import tiles
    from kernels.tuning import Tile

    asked = contextlib.nullcontext()
    if DEVICE == "cpu":
        asked = mock.patch.object(tiles, "candidates", return_value=(Tile(tile[0], tile[1], 4, 1),))
    with asked:
        out, cache = kernels.attention_forward(query[None], key[None], value[None], causal=causal)
    return out[0], cache[-1][0]


def _backward_block(dout, out, lse, query, key, value):
    scale = 1 / math.sqrt(query.shape[-1])
    weights = np.exp(scale * query @ key.T - lse[:, None])
    delta = (dout * out).sum(axis=1)
    dscores = weights * (dout @ value.T - delta[:, None])
    return scale * dscores @ key, scale * dscores.T @ query, weights.T @ dout


def _state(scores, value):
    """(m, l, acc) of a block, by the definition."""
    m = scores.max(axis=1)
    e = np.exp(scores - np.where(m == -np.inf, 0.0, m)[:, None])
    return m, e.sum(axis=1), e @ value


def first(numbers):
    """The first of a list, which may be empty: for a hint that is then not given."""
    return numbers[0] if numbers else None


@exercise(answer=_merge)
def merge(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    scores, value = rng.standard_normal((3, 8)), rng.standard_normal((8, 2))
    whole = _state(scores, value)

    def merged(left, right):
        found = attempt(left, right)
        return several(found, "m", "l", "acc")

    def halves(scores, value):
        n = scores.shape[1] // 2
        return _state(scores[:, :n], value[:n]), _state(scores[:, n:], value[n:])

    def judge(scores, value, hint):
        """Compare with the state of the whole; l and acc as if their maximum were right."""
        whole, found = _state(scores, value), merged(*halves(scores, value))
        for name, a, e in zip(("m", "l", "acc"), found, whole, strict=True):
            must(a.shape == e.shape, f"{name} has shape {a.shape} and must have {e.shape}")
        must(np.allclose(found[0], whole[0]), "m must be the larger of the two maxima, row by row")
        must(
            np.isfinite(found[1]).all() and np.isfinite(found[2]).all(),
            "l or acc holds NaN or infinity: e^(1000) overflows. Both exponents are an old maximum minus the new one, "
            "and so never above 0",
        )
        must(np.allclose(found[1], whole[1]) and np.allclose(found[2], whole[2]), hint)

    ordered = np.sort(scores, axis=1)
    equal = np.concatenate([scores[:, :4], scores[:, 3::-1]], axis=1)
    judge(
        equal,
        value,
        "where both maxima are the same, l and acc are the sums of the two: nothing is rescaled yet, nothing divided, "
        "nothing averaged",
    )
    for shown, side, other in ((ordered, "left", "right"), (ordered[:, ::-1].copy(), "right", "left")):
        judge(
            shown,
            value,
            f"where the {other} block has the larger maximum, what the {side} one summed up (l and acc) must shrink by "
            "e^(its old m − the new m)",
        )
    judge(1000 + 10 * ordered, value, "with scores about 1000 it is wrong, with scores about 0 it is right")

    nothing = np.full(3, -np.inf), np.zeros(3), np.zeros((3, 2))
    for left, right in ((whole, nothing), (nothing, whole)):
        for a, e in zip(merged(left, right), whole, strict=True):
            must(
                np.allclose(a, e),
                "a block in which a query sees nothing (m = −inf, l = 0, acc = 0) must change nothing",
            )
    for a, e in zip(merged(nothing, nothing), nothing, strict=True):
        must(
            not np.isnan(a).any(),
            "two blocks in which a query sees nothing give NaN: −inf − (−inf). Take 0 for m there, in the exponents",
        )
        must(np.array_equal(a, e), "two blocks in which a query sees nothing must give m = −inf, l = 0, acc = 0")


@exercise(answer=_causal_blocks)
def causal_blocks(attempt: Attempt) -> None:
    cases = ((4, 4), 12, 12), ((4, 2), 12, 12), ((2, 4), 12, 12), ((4, 4), 10, 13), ((4, 2), 9, 9), ((4, 4), 9, 5)
    for tile, Tq, Tk in cases:
        QUERIES, KEYS = tile
        seen = np.arange(Tk) <= np.arange(Tq)[:, None] + (Tk - Tq)  # (Tq, Tk)
        for block in range(-(-Tq // QUERIES)):
            found = attempt(block, tile, Tq, Tk)
            must(
                isinstance(found, tuple | list) and len(found) == 2,
                "it must return two numbers: how many blocks all of the queries see whole, and how many are visited",
            )
            whole, stop = found
            where = f"with tiles of {QUERIES} × {KEYS}, Tq = {Tq} and Tk = {Tk}, for block {block} of the queries"
            rows = seen[block * QUERIES : (block + 1) * QUERIES]
            tiles = [rows[:, start : start + KEYS] for start in range(0, Tk, KEYS)]
            aligned = "; query i stands at position Tk − Tq + i" if Tq != Tk else ""
            must(
                whole <= stop,
                f"{where} it returns {whole} and {stop}: (whole, stop), and whole blocks are among those visited",
            )
            must(
                0 <= whole <= stop <= len(tiles),
                f"{where} it returns {whole} and {stop}, and there are {len(tiles)} blocks of keys{aligned}",
            )
            missed = [n for n, part in enumerate(tiles) if part.any() and n >= stop]
            must(
                not missed,
                f"{where} it stops before block {first(missed)} of the keys, which some of them see{aligned}",
            )
            idle = [n for n, part in enumerate(tiles) if not part.any() and n < stop]
            must(
                not idle,
                f"{where} it visits block {first(idle)} of the keys, which lies in the future of them all: work for "
                f"nothing{aligned}",
            )
            leaks = [n for n, part in enumerate(tiles) if not part.all() and n < whole]
            must(
                not leaks,
                f"{where} block {first(leaks)} of the keys is to go without a mask, and the first of the queries would "
                f"see its own future{aligned}",
            )
            short = [n for n, part in enumerate(tiles) if part.all() and part.shape[1] == KEYS and n >= whole]
            must(
                not short,
                f"{where} block {first(short)} of the keys is masked, and every query sees all of it: right, and "
                f"slower than it need be{aligned}",
            )


@exercise(answer=_flash_forward)
def flash_forward(attempt: Attempt) -> None:
    needs_kernels(attempt, *[None] * 3)
    rng = np.random.default_rng(0)
    trespasses = []  # of each run, lanes

    def run(query, key, value, causal=False, tile=TILE):
        arrays = [np.asarray(array, np.float32) for array in (query, key, value)]
        with fence() as seen:
            found = attempt(*map(tensor, arrays), causal, tile)
        several(found, "out", "lse")
        out = as_numbers("out", found[0], arrays[0].shape)
        lse = as_numbers("lse", found[1], arrays[0].shape[:2])
        trespasses.append(seen.stores + seen.loads + seen.races)
        return out, lse

    def right(query, key, value, causal=False):
        arrays = [np.asarray(array, np.float32).astype(np.float64)[None] for array in (query, key, value)]
        return ops.attention_forward(*arrays, causal=causal)[0][0]

    def draw(heads, Tq, Tk, D=16):
        return (rng.standard_normal((heads, T, D)) for T in (Tq, Tk, Tk))

    def close(a, e):
        return np.isfinite(a).all() and gradcheck.error(a, e) <= FLOAT32

    # One program, one block of keys.
    query, key, value = draw(1, 16, 16)
    out, lse = run(query, key, np.ones_like(value))
    must(
        close(out, np.ones_like(out)),
        f"where all values are 1, out must be 1 and is {out[0, 0, 0]:.4g}: the weights do not add up to 1. Is acc "
        "divided by l in the end?",
    )
    _, lse = run(0 * query, key, value)
    must(
        close(lse, np.full_like(lse, 4.0)),
        f"where all of 16 scores are 0, lse must be log2(16) = 4 and is {lse[0, 0]:.4g}: it is log2 Σ_j 2^score_j, "
        "which is m + log2(l)",
    )
    out, lse = run(query, key, value)
    must(
        close(out, right(query, key, value)),
        "with queries of 0 it is right, with others it is not: scores are query · key / √D, times log2(e) where powers "
        "are of 2",
    )
    scores = query[0] @ key[0].T / 4 * math.log2(math.e)
    must(close(lse[0], np.log2(np.exp2(scores).sum(axis=1))), "out is right, lse is not: m and l are those of base 2")

    # Several blocks of keys: the largest score first, then last.
    query, key, value = draw(1, 16, 48)
    query, rising = np.abs(query), np.sort(np.abs(key), axis=1)
    falling = rising[:, ::-1]
    must(
        close(run(query, falling, value)[0], right(query, falling, value)),
        "with one block of keys it is right, with three, the largest score in the first, it is wrong: does it visit "
        "all of the blocks that stop_ptr tells it?",
    )
    must(
        close(run(query, rising, value)[0], right(query, rising, value)),
        "with three blocks of keys and the largest score in the first it is right, with the largest in the last it is "
        "wrong: what was summed up so far, l and acc, must shrink by 2^(old m − new m)",
    )
    query, key, value = draw(1, 16, 37)
    must(
        close(run(query, key, value)[0], right(query, key, value)),
        "with 48 keys it is right, with 37 it is not: lanes beyond the last key must have a score of −inf",
    )
    query, key, value = draw(3, 37, 20, D=32)
    out, expected = run(query, key, value)[0], right(query, key, value)
    wrong = [head for head in range(3) if not close(out[head], expected[head])]
    must(
        not wrong,
        f"with one head and one block of queries it is right; of 3 heads of 37 queries, head {first(wrong)} is wrong: "
        "head h begins at h · T · D, queries at h · Tq, keys at h · Tk",
    )
    must(
        not trespasses[-1],
        f"37 queries come out right, but {trespasses[-1]} lanes beyond the last query read or write what is not "
        "theirs, the next head's or nobody's: the store of lse wants a mask, queries < Tq",
    )

    query, key, value = draw(1, 40, 40)
    out, _ = run(query, key, value, True)
    moved, _ = run(query, np.concatenate([key[:, :20], 3 + key[:, 20:]], axis=1), value, True)
    must(
        np.allclose(out[:, :20], moved[:, :20]),
        "causal: moving keys 20 and later moves the outputs of queries before 20, which must not see them",
    )
    must(
        close(out, right(query, key, value, True)),
        "causal: without a mask it is right, with one it is wrong: are all the keys up to the query's own among those "
        "that it visits?",
    )
    query, key, value = draw(1, 20, 40)
    must(
        close(run(query, key, value, True)[0], right(query, key, value, True)),
        "causal with 20 queries and 40 keys is wrong: query i stands at position Tk − Tq + i",
    )
    query, key, value = draw(1, 40, 20)
    out, lse = run(query, key, value, True)
    must(
        close(out, right(query, key, value, True)),
        "causal with 40 queries and 20 keys: the first 20 queries see nothing, out must be 0 there and is "
        f"{out[0, 0, 0]:.3g} (0/0, or −inf − (−inf)?)",
    )
    must(
        np.isposinf(lse[0, :20]).all(),
        f"lse of a query that sees nothing is {lse[0, 0]:.3g}: make it +inf, and the backward's weights 2^(score − "
        "lse) are 0 by themselves",
    )


@exercise(answer=_backward_block)
def backward_block(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    query, key, value = rng.standard_normal((5, 4)), rng.standard_normal((6, 4)), rng.standard_normal((6, 3))

    def forward(query, key, value):
        scores = query @ key.T / 2  # D = 4
        e = np.exp(scores)
        out = e @ value / e.sum(axis=1, keepdims=True)
        return out, (out, np.log(e.sum(axis=1)), query, key, value)

    def backward(blocks):
        def gradients(dout, cache):
            out, lse, query, key, value = cache
            parts = [
                several(attempt(dout, out, lse, query, key[part], value[part]), "dquery", "dkey", "dvalue")
                for part in blocks
            ]
            dqueries, dkeys, dvalues = zip(*parts, strict=True)
            must(dqueries[0].shape == query.shape, f"dquery has shape {dqueries[0].shape} and must have {query.shape}")
            for name, d, array in (("dkey", dkeys[0], key), ("dvalue", dvalues[0], value)):
                shape = array[blocks[0]].shape
                must(d.shape == shape, f"{name} has shape {d.shape} and must have its block's, {shape}")
            return sum(dqueries), np.concatenate(dkeys), np.concatenate(dvalues)

        return gradients

    arrays = {"query": query, "key": key, "value": value}
    dout = rng.standard_normal((5, 3))
    _, cache = forward(query, key, value)
    expected = backward([slice(0, 6)])(dout, cache)
    must(
        np.allclose(expected[2].sum(axis=0), dout.sum(axis=0)),
        "with all keys in one block, dvalue summed over the keys must be dout summed over the queries, as each query's "
        "weights add up to 1: weights are e^(query · key / √D − lse), and dvalue is weightsᵀ · dout",
    )
    must(
        np.abs(expected[1].sum(axis=0)).max() <= 1e-9,
        "with all keys in one block, dkey summed over the keys must be 0: the same vector added to all keys adds the "
        "same to all scores of a query, and moves no weight. From dweights, a row's Σ_j weights · dweights is "
        "subtracted first",
    )
    try:
        gradcheck.check_gradients(forward, backward([slice(0, 6)]), arrays)
    except gradcheck.GradientError as wrong:
        raise Wrong(f"with all keys in one block: {wrong}") from None
    found = backward([slice(0, 3), slice(3, 6)])(dout, cache)
    must(
        np.allclose(found[2], expected[2]),
        "with all keys in one block it is right, in two blocks dvalue is wrong: the weights are e^(scores − lse), of "
        "all keys; a softmax over the block alone knows nothing of the others",
    )
    for name, a, e in zip(("dquery", "dkey"), found, expected, strict=False):
        must(
            np.allclose(a, e),
            f"with all keys in one block it is right, in two blocks {name} is wrong: Σ_j weights · dweights runs over "
            "all keys, and the block has only some. What is dout · out?",
        )
    agree("dvalue", found[2], expected[2])
