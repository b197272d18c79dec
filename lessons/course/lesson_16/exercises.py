"""Lesson 16: flash attention."""

import contextlib
import math
from unittest import mock

import numpy as np

import kernels
from minitransformer import gradcheck

from ..checks import require, require_close, require_float64, unpack
from ..exercise import Attempt, Wrong, exercise
from ..gpu import DEVICE, require_kernels, torch
from ..sanitizer import require_float32_products, sanitize
from ..tensors import as_numbers, needs_kernels, tensor
from . import solutions, steps
from .steps import FLOAT32, adds_long, attention, long_tail, worst

TILE = (16, 16)


def _flash_forward(query, key, value, causal=False, tile=TILE):
    require_kernels()
    from kernels.attention import host, tiles
    from kernels.tuning import Tile

    with contextlib.ExitStack() as asked:
        if DEVICE == "cpu":  # use the given tile, and one program for each block of queries, as the exercise does
            one_tile = mock.patch.object(tiles, "candidates", return_value=(Tile(tile[0], tile[1], 4, 1),))
            asked.enter_context(one_tile)
            asked.enter_context(mock.patch.object(host, "parts_of", return_value=1))
        out, cache = kernels.attention_forward(query[None], key[None], value[None], causal=causal)
    return out[0], cache[-1][0]


def _state(scores, value):
    """(m, l, acc) of a block, by the definition."""
    m = scores.max(axis=1)
    e = np.exp(scores - np.where(m == -np.inf, 0.0, m)[:, None])
    return m, e.sum(axis=1), e @ value


def close(found, right):
    """Return True if all numbers are right to the last digits of float64."""
    return np.allclose(found, right, rtol=1e-9, atol=1e-12)


def first(numbers):
    """The first of a list, which may be empty: for a hint that is then not given."""
    return numbers[0] if numbers else None


@exercise(answer=solutions.merge)
def merge(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    scores, value = rng.standard_normal((3, 8)), rng.standard_normal((8, 2))
    whole = _state(scores, value)

    def merged(left, right):
        found = attempt(left, right)
        return unpack(found, "m", "l", "acc")

    def halves(scores, value):
        n = scores.shape[1] // 2
        return _state(scores[:, :n], value[:n]), _state(scores[:, n:], value[n:])

    def judge(scores, value, hint):
        """Compare with the state of the whole; l and acc as if their maximum were right."""
        whole, found = _state(scores, value), merged(*halves(scores, value))
        for name, a, e in zip(("m", "l", "acc"), found, whole, strict=True):
            require(a.shape == e.shape, f"{name} has shape {a.shape} and must have {e.shape}")
            require_float64(name, a)
        require(close(found[0], whole[0]), "m must be the larger of the two maxima, row by row")
        require(
            np.isfinite(found[1]).all() and np.isfinite(found[2]).all(),
            "l or acc holds NaN or infinity: e^(1000) overflows. Both exponents are an old maximum minus the new one, "
            "and so never above 0",
        )
        require(close(found[1], whole[1]) and close(found[2], whole[2]), hint)

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
            require(
                close(a, e),
                "a block in which a query sees nothing (m = −inf, l = 0, acc = 0) must change nothing",
            )
    for a, e in zip(merged(nothing, nothing), nothing, strict=True):
        require(
            not np.isnan(a).any(),
            "two blocks in which a query sees nothing give NaN: −inf − (−inf). Take 0 for m there, in the exponents",
        )
        require(np.array_equal(a, e), "two blocks in which a query sees nothing must give m = −inf, l = 0, acc = 0")
    # The first query may attend to keys of the left block alone, the second of the right one, the third of neither.
    left, right, both = (
        tuple(np.concatenate([part[first:last], no[last - first :]]) for part, no in zip(whole, nothing, strict=True))
        for first, last in ((0, 1), (1, 2), (0, 2))
    )
    right = tuple(part[[1, 0, 2]] for part in right)
    for a, e in zip(merged(left, right), both, strict=True):
        require(
            close(a, e),
            "it is right where all queries of a block see nothing, and wrong where some do and others see something: "
            "each row is a case of its own (np.where, not one `if` for all)",
        )


attention_scores, attention_lse, attention_out = steps.attention_scores, steps.attention_lse, steps.attention_out


@exercise(answer=solutions.causal_blocks)
def causal_blocks(attempt: Attempt) -> None:
    cases = [((4, 4), 12, 12), ((4, 2), 12, 12), ((2, 4), 12, 12), ((4, 4), 10, 13), ((4, 2), 9, 9), ((4, 4), 9, 5)]
    cases += [((4, 2), 6, 11), ((2, 4), 5, 14), ((4, 3), 11, 4), ((3, 5), 17, 7), ((8, 2), 5, 5), ((2, 8), 7, 6)]
    for tile, Tq, Tk in cases:
        QUERIES, KEYS = tile
        seen = np.arange(Tk) <= np.arange(Tq)[:, None] + (Tk - Tq)  # (Tq, Tk)
        for block in range(-(-Tq // QUERIES)):
            found = attempt(block, tile, Tq, Tk)
            require(
                isinstance(found, tuple | list) and len(found) == 2,
                "it must return two numbers: how many blocks all of the queries see whole, and how many are visited",
            )
            require(
                all(isinstance(number, int | np.integer) for number in found),
                f"it returns {found[0]!r} and {found[1]!r}: they are to be ints, as a loop over blocks counts to them",
            )
            whole, stop = map(int, found)
            where = f"with tiles of {QUERIES} × {KEYS}, Tq = {Tq} and Tk = {Tk}, for block {block} of the queries"
            rows = seen[block * QUERIES : (block + 1) * QUERIES]
            tiles = [rows[:, start : start + KEYS] for start in range(0, Tk, KEYS)]
            aligned = "; query i stands at position Tk − Tq + i" if Tq != Tk else ""
            require(
                whole <= stop,
                f"{where} it returns {whole} and {stop}: (whole, stop), and whole blocks are among those visited",
            )
            require(
                0 <= whole <= stop <= len(tiles),
                f"{where} it returns {whole} and {stop}, and there are {len(tiles)} blocks of keys{aligned}",
            )
            missed = [n for n, part in enumerate(tiles) if part.any() and n >= stop]
            require(
                not missed,
                f"{where} it stops before block {first(missed)} of the keys, which some of them see{aligned}",
            )
            idle = [n for n, part in enumerate(tiles) if not part.any() and n < stop]
            require(
                not idle,
                f"{where} it visits block {first(idle)} of the keys, which lies in the future of them all: work for "
                f"nothing{aligned}",
            )
            leaks = [n for n, part in enumerate(tiles) if not part.all() and n < whole]
            require(
                not leaks,
                f"{where} block {first(leaks)} of the keys is to go without a mask, and the first of the queries would "
                f"see its own future{aligned}",
            )
            short = [n for n, part in enumerate(tiles) if part.all() and part.shape[1] == KEYS and n >= whole]
            require(
                not short,
                f"{where} block {first(short)} of the keys is masked, and every query sees all of it: right, and "
                f"slower than it need be{aligned}",
            )


@exercise(answer=_flash_forward)
def flash_forward(attempt: Attempt) -> None:
    needs_kernels(attempt, *[None] * 3)
    rng = np.random.default_rng(0)

    def draw(heads, Tq, Tk, D=16):
        return [rng.standard_normal((heads, T, D)).astype(np.float32) for T in (Tq, Tk, Tk)]

    def run(arrays, causal=False, tile=TILE, dtype=None):
        """Return out and lse in float64, the report, and the tensors that the attempt was given."""
        given = [tensor(array, dtype) for array in arrays]
        with sanitize() as seen:
            found = attempt(*given, causal, tile) if causal or tile != TILE else attempt(*given)
        unpack(found, "out", "lse")
        out = as_numbers("out", found[0], arrays[0].shape, given[0].dtype)
        lse = as_numbers("lse", found[1], arrays[0].shape[:2], torch.float32)
        for name, part in zip(("out", "lse"), found, strict=True) if seen.programs else ():
            require(
                seen.given(part) and (seen.written(part) or not seen.interpreted),
                f"a kernel is launched, but {name} is not an array that it wrote: PyTorch made it afterwards, from "
                "what the kernel wrote or from the scores. Return what the kernel stores, as the stub does",
            )
        return out, lse, seen, given

    def judge(arrays, hint, causal=False, tile=TILE, tolerance=FLOAT32, found=None):
        """Raise `Wrong` for a wrong out or lse; `hint` says what is special about these arrays and likely wrong."""
        out, lse, seen, given = found or run(arrays, causal, tile)
        right_out, right_lse = attention(arrays, causal)
        require(not (wrong := worst("out", out, right_out, tolerance)), f"{hint} ({wrong})")
        require(
            not (wrong := worst("lse", lse, right_lse, tolerance)),
            f"out is right, and lse is not, {wrong}: it is m + log2(l) of a query in the end, at head · Tq + query",
        )
        return seen, given

    # One program, one block of keys.
    query, key, value = draw(1, 16, 16)
    out, lse, *_ = run([0 * query, key, np.ones_like(value)])
    wrong = worst("out", out, np.ones_like(out))
    require(
        not wrong, f"where all values are 1, {wrong}: the weights do not add up to 1. Is acc divided by l in the end?"
    )
    wrong = worst("lse", lse, np.full_like(lse, 4.0))
    require(
        not wrong,
        f"where all of 16 scores are 0, lse must be log2(16) = 4, and {wrong}: it is log2 Σ_j 2^score_j, which is m + "
        "log2(l)",
    )
    seen, _ = judge(
        [query, key, value],
        "with queries of 0 it is right, with others it is not: scores are query · key / √D, times log2(e) where powers "
        "are of 2, which is what `scale` holds",
    )
    require(
        seen.programs,
        "the numbers are right, and no kernel was launched: PyTorch computed them, and wrote the scores into memory. "
        "Write flash_forward_kernel, and launch it as the stub does",
    )
    require_float32_products(seen)
    judge(draw(1, 16, 16, D=32), "with D = 16 it is right, with D = 32 it is not: is a number written where D belongs?")

    try:
        out, lse, *_ = run([query, key, value], dtype=torch.float16)
    except Wrong as wrong:
        likely = ". tl.dot wants both sides alike: weights.to(value.dtype)" if "it raises" in str(wrong) else ""
        raise Wrong(f"in float32 it is right, and in float16 {wrong}{likely}") from None
    right, right_lse = attention([array.astype(np.float16) for array in (query, key, value)])
    wrong = worst("out", out, right, 2e-3) or worst("lse", lse, right_lse, 2e-3)
    require(not wrong, f"in float32 it is right, and in float16 {wrong}: are m, l and acc in float32?")

    # Two blocks of keys: the largest score comes first for half of the queries, and last for the others.
    query, key, value = draw(1, 16, 32)
    arrays = [np.repeat([[-1], [1]], 8, axis=0) * np.abs(query), np.sort(np.abs(key), axis=1), value]
    out, *_ = found = run(arrays)
    right, _ = attention(arrays)
    require(
        worst("out", out, attention([array[:, :16] for array in arrays])[0]),
        "of two blocks of keys the first alone is in out: does it visit all of the blocks that stop_ptr tells it?",
    )
    wrong = worst("out", out[:, :8], right[:, :8])
    require(
        not wrong,
        "with one block of keys it is right, with two, the largest score in the first, it is wrong: l and acc go on "
        f"from block to block, and only in the end is acc divided by l ({wrong})",
    )
    judge(
        arrays,
        "with two blocks of keys and the largest score in the first it is right, with the largest in the last it is "
        "wrong: what was summed up so far, l and acc, must shrink by 2^(old m − new m)",
        found=found,
    )
    query, key = np.random.default_rng(1).standard_normal((2, 1, 16, 16)).astype(np.float32)
    query[..., 0], key[..., 0] = np.repeat([100.0, -100.0], 8), 8.0
    arrays = [query, key, value[:, :16]]
    out, *_ = found = run(arrays)
    right, _ = attention(arrays)
    for rows, score, likely in (
        (slice(8), "288", "2^288 is beyond float32. Subtract the maximum m from the scores before tl.exp2"),
        (slice(8, 16), "−288", "2^−288 is 0 in float32. Does m begin at LOWEST, has each query its own?"),
    ):
        wrong = worst("out", out[:, rows], right[:, rows], 1e-3)
        require(not wrong, f"with scores about {score} it is wrong: {likely} ({wrong})")
    judge(arrays, "", tolerance=1e-3, found=found)
    arrays = draw(1, 16, 10)
    out, *_ = found = run(arrays)
    require(
        not np.isnan(out).any(),
        "with 16 keys it is right, with 10 out holds NaN: where tl.load is given a mask and no `other`, lanes whose "
        "mask is off hold anything, and 0 · NaN is NaN",
    )
    judge(
        arrays,
        "with 16 keys it is right, with 10 it is not: lanes beyond the last key must have a score of −inf",
        found=found,
    )

    arrays = draw(2, 21, 10, D=32)
    out, _, seen, _ = found = run(arrays)
    lanes = seen.stores + seen.races
    require(
        not lanes or np.isnan(out).any(),
        f"with 2 heads of 21 queries in blocks of 16, {lanes} lanes beyond the last query write outside their rows, "
        "into the next head's or beyond the array: each tl.store wants a mask, queries < Tq",
    )
    right, _ = attention(arrays)
    wrong = [head for head in range(2) if worst("out", out[head], right[head])]
    require(
        not wrong,
        f"with one head and one block of queries it is right; of 2 heads of 21 queries, head {first(wrong)} is wrong: "
        "head h begins at h · T · D, queries at h · Tq, keys at h · Tk",
    )
    judge(arrays, "", found=found)
    require(
        not seen.loads,
        f"the numbers are right, but the kernel also reads where there is no array ({seen.loads} lanes, stopped here; "
        "a GPU may crash): each tl.load wants a mask, queries < Tq or keys < Tk",
    )
    require(
        not seen.interpreted or len(seen.programs) == 1,
        f"for 2 heads kernels were launched {len(seen.programs)} times: one launch is enough, as in the stub, "
        "where a program's head is tl.program_id(1)",
    )

    query, key, value = arrays = draw(1, 24, 24)
    out, *_ = found = run(arrays, True)
    if worst("out", out, attention(arrays, True)[0]):
        moved, *_ = run([query, np.concatenate([key[:, :12], 3 + key[:, 12:]], axis=1), value], True)
        require(
            np.allclose(out[:, :12], moved[:, :12]),
            "causal: moving keys 12 and later moves the outputs of queries before 12, which must not see them",
        )
    judge(
        arrays,
        "causal: without a mask it is right, with one it is wrong: are all the keys up to the query's own among those "
        "that it visits?",
        True,
        found=found,
    )
    judge(draw(1, 8, 24), "causal with 8 queries and 24 keys is wrong: query i stands at position Tk − Tq + i", True)
    arrays = draw(1, 24, 4)
    out, lse, *_ = found = run(arrays, True)
    wrong = worst("out", out[:, :20], np.zeros_like(out[:, :20]))
    require(
        not wrong,
        f"causal with 24 queries and 4 keys: the first 20 queries see nothing, their out must be 0, and {wrong} (0/0, "
        "or −inf − (−inf)?)",
    )
    wrong = worst("lse", lse[:, :20], np.full((1, 20), np.inf))
    require(
        not wrong,
        f"lse of a query that sees nothing must be +inf, and {wrong}: then the backward's weights 2^(score − lse) are "
        "0 by themselves",
    )
    judge(arrays, "causal with 24 queries and 4 keys: the queries that see something are wrong", True, found=found)

    for tile, T in (((32, 16), 64), ((16, 32), 48)):
        rows, columns = tile
        arrays = draw(1, T, T)
        seen, given = judge(
            arrays,
            f"with tiles of 16 × 16 it is right, with tiles of {rows} queries × {columns} keys it is wrong: which "
            "lengths are QUERIES, and which KEYS?",
            True,
            tile,
        )
        blocks = range(T // rows)
        needed = sum(min(solutions.causal_blocks(block, tile, T, T)[1] * columns, T) for block in blocks)
        visits = max(seen.read(array) for array in given[1:]) // given[1].shape[2]
        likely = "does a program stop before block tl.load(stop_ptr + tl.program_id(0))?"
        if visits != len(blocks) * T:
            likely = "is `tile` what the kernel is launched with?"
        require(
            visits <= needed,
            f"causal, with {T} queries and as many keys in tiles of {rows} × {columns}, the numbers are right, but the "
            f"programs read {visits} keys in all, where {needed} hold all that any query sees: {likely}",
        )
    out, lse, *_ = run([array[None] for array in long_tail()], dtype=torch.float16)
    adds_long(out[0], lse[0])


@exercise(answer=solutions.backward_block)
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
                unpack(attempt(dout, out, lse, query, key[part], value[part]), "dquery", "dkey", "dvalue")
                for part in blocks
            ]
            dqueries, dkeys, dvalues = zip(*parts, strict=True)
            require(
                dqueries[0].shape == query.shape, f"dquery has shape {dqueries[0].shape} and must have {query.shape}"
            )
            for name, d, array in (("dkey", dkeys[0], key), ("dvalue", dvalues[0], value)):
                shape = array[blocks[0]].shape
                require(d.shape == shape, f"{name} has shape {d.shape} and must have its block's, {shape}")
            return sum(dqueries), np.concatenate(dkeys), np.concatenate(dvalues)

        return gradients

    arrays = {"query": query, "key": key, "value": value}
    dout = rng.standard_normal((5, 3))
    _, cache = forward(query, key, value)
    expected = backward([slice(0, 6)])(dout, cache)
    require(
        np.allclose(expected[2].sum(axis=0), dout.sum(axis=0)),
        "with all keys in one block, dvalue summed over the keys must be dout summed over the queries, as each query's "
        "weights add up to 1: weights are e^(query · key / √D − lse), and dvalue is weightsᵀ · dout",
    )
    require(
        np.abs(expected[1].sum(axis=0)).max() <= 1e-9,
        "with all keys in one block, dkey summed over the keys must be 0: the same vector added to all keys adds the "
        "same to all scores of a query, and moves no weight. From dweights, a row's Σ_j weights · dweights is "
        "subtracted first",
    )
    right = solutions.backward_block(dout, *cache)
    scaled = {
        "√D: scores = query · keyᵀ / √D, so their gradient is divided by it too": 2.0,
        "1/√D: is the scale in there twice?": 0.5,
        "D: the scale must divide": 4.0,
    }
    for name, mine, wanted in zip(("dquery", "dkey"), expected, right, strict=False):
        require_close(f"with all keys in one block {name}", mine, wanted, factors=scaled)
    try:
        gradcheck.check_gradients(forward, backward([slice(0, 6)]), arrays)
    except gradcheck.GradientError as wrong:
        raise Wrong(f"with all keys in one block: {wrong}") from None
    found = backward([slice(0, 3), slice(3, 6)])(dout, cache)
    require(
        np.allclose(found[2], expected[2]),
        "with all keys in one block it is right, in two blocks dvalue is wrong: the weights are e^(scores − lse), of "
        "all keys; a softmax over the block alone knows nothing of the others",
    )
    for name, a, e in zip(("dquery", "dkey"), found, expected, strict=False):
        require(
            np.allclose(a, e),
            f"with all keys in one block it is right, in two blocks {name} is wrong: Σ_j weights · dweights runs over "
            "all keys, and the block has only some. What is dout · out?",
        )

    def compare(hint, query, key, value):
        scores = query @ key.T / math.sqrt(query.shape[1])
        m, l, acc = _state(scores, value)
        arguments = dout, acc / l[:, None], m + np.log(l), query, key[:2], value[:2]
        found, right = attempt(*arguments), solutions.backward_block(*arguments)
        for name, a, e in zip(("dquery", "dkey", "dvalue"), found, right, strict=True):
            require(np.allclose(a, e), f"{name} is wrong {hint}")

    compare(
        "with D = 9, and with D = 4 it is right: is a number written where D belongs?",
        rng.standard_normal((5, 9)),
        rng.standard_normal((6, 9)),
        value,
    )
    compare(
        "with scores about 1000, and with scores about 1 it is right: e^1000 is beyond float64, and e^(score − lse) is "
        "never above 1",
        np.full_like(query, 100.0),
        20 + key,
        value,
    )
