"""Lesson 15's ladder: six short puzzles before the first real kernel."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..checks import require, require_close, require_none_of, unpack
from ..exercise import Attempt, exercise
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

CLOSE = 1e-5  # float32, and sums of a few hundred numbers
OUT = "what it returns"


def run_sanitized(call: Callable[[], Any]) -> tuple[Any, AccessReport]:
    """Return the result of a call, and the report of its kernels."""
    with sanitize() as seen:
        found = call()
    return found, seen


def near(found: np.ndarray, right: Any) -> bool:
    """Return True if all numbers are right; NaN is not."""
    return bool(np.allclose(found, right, rtol=CLOSE, atol=CLOSE))


@exercise(answer=solutions.add)
def add(attempt: Attempt) -> None:
    needs_kernels(attempt, None, None)
    rng = np.random.default_rng(0)
    x, y = (tensor(rng.standard_normal(24)) for _ in range(2))
    found, seen = run_sanitized(lambda: attempt(x, y))
    out = as_numbers(OUT, found, (24,), torch.float32)
    x64, y64 = x.double().cpu().numpy(), y.double().cpu().numpy()
    missing = np.isnan(out)
    require(
        not (seen.interpreted and seen.stores and missing[0]),
        f"number 0 is never written, and {seen.stores} lanes write behind the last one: positions count from 0, as "
        "tl.arange does",
    )
    require(
        not (missing[8:].all() and not missing[:8].any()),
        "the first 8 numbers are written and no others: all programs work on the same block. Which program is it, "
        "tl.program_id(0), and where does its block begin?",
    )
    require(
        not missing.any(),
        f"only {(~missing).sum()} of 24 numbers are written: do the blocks of two programs overlap? Program p's block "
        "begins at p · BLOCK",
    )
    require(
        not (near(out, x64) or near(out, y64)),
        "it returns one of the two vectors: load a block of each, and add the blocks",
    )
    by_one = [np.ptp(out - a) < CLOSE or np.ptp((out - a).reshape(3, 8), axis=1).max() < CLOSE for a in (x64, y64)]
    require(
        not any(by_one),
        "all lanes of a block get the same number of one vector: y_ptr is a pointer to one number, y_ptr + i is a "
        "block of pointers",
    )
    mistakes = {
        "is x + x: the second tl.load is from y_ptr": 2 * x64,
        "is y + y: the first tl.load is from x_ptr": 2 * y64,
        "is x · y, and must be the sum": x64 * y64,
    }
    require_none_of("what it returns", out, x64 + y64, mistakes, tolerance=CLOSE)
    require_close("x + y", out, x64 + y64, tolerance=CLOSE)
    require_safe_access(seen, "for 24 numbers")
    require_few_launches(seen, "add_kernel", 1, "24 numbers")
    require_single_pass(seen, x=("read", x), y=("read", y), out=("written", found))


@exercise(answer=solutions.relu)
def relu(attempt: Attempt) -> None:
    needs_kernels(attempt, None)
    rng = np.random.default_rng(0)
    for n in (16, 3, 13):
        x = tensor(rng.standard_normal(n))
        found, seen = run_sanitized(lambda x=x: attempt(x))
        y = as_numbers(OUT, found, (n,), torch.float32)
        right = np.maximum(x.double().cpu().numpy(), 0)
        missing = np.isnan(y)
        if n == 16:
            require(
                not missing[8:].all(),
                "of 16 numbers the second block of 8 is not written: n is the whole vector's length, and i is counted "
                "from its beginning",
            )
            require(
                not missing.any(), f"of 16 numbers {missing.sum()} are not written, and all 16 belong to the vector"
            )
            x64 = x.double().cpu().numpy()
            mistakes = {
                "is min(x, 0), and must be max(x, 0)": np.minimum(x64, 0),
                "is 1 where x is above 0, and must be x itself there": 1.0 * (x64 > 0),
            }
            require_none_of("y", y, right, mistakes, tolerance=CLOSE)
            require_close("max(x, 0), with 2 full blocks of 8,", y, right, tolerance=CLOSE)
            require_safe_access(seen, "for 16 numbers")
            require_few_launches(seen, "relu_kernel", 1, "16 numbers")
            continue
        lanes = -n % 8
        where = f"{n} numbers lie under {'a block' if n < 8 else 'blocks'} of 8, so that {lanes} lanes stick out"
        require(
            seen.stores != 1,
            f"{where}, and 1 of them writes: position n is already behind the last number, which is n − 1",
        )
        require(
            not seen.stores,
            f"{where}, and {seen.stores} of them write where there is no array: tl.store wants a mask that is off there"
            + "; compare i, the position in the vector, with n" * (n > 8),
        )
        require(
            not missing.any(),
            f"{where}, and the last {missing.sum()} of the {n} numbers are not written: their lanes must be on",
        )
        require(
            not seen.loads,
            f"{where}. They do not write, but {seen.loads} of them read where there is no array: tl.load wants the "
            "mask too",
        )
        require_close(f"max(x, 0) for {n} numbers", y, right, tolerance=CLOSE)
        require_single_pass(seen, x=("read", x), y=("written", found))


@exercise(answer=solutions.contiguous)
def contiguous(attempt: Attempt) -> None:
    needs_kernels(attempt, None)
    rng = np.random.default_rng(0)

    def copied(x: Any) -> tuple[np.ndarray, np.ndarray, AccessReport, Any]:
        found, seen = run_sanitized(lambda: attempt(x))
        y = as_numbers(OUT, found, tuple(x.shape), torch.float32)
        require(
            found.is_contiguous(),
            f"y has strides of {tuple(found.stride())} and must be contiguous, {(x.shape[1], 1)}: leave the launch as "
            "it is",
        )
        return y, x.double().cpu().numpy(), seen, found

    x = tensor(rng.standard_normal((6, 16)))  # full tiles
    y, right, seen, found = copied(x)
    missing = np.isnan(y)
    require(
        not (missing[:, 8:].all() and not missing[:, :8].any()),
        "columns 8 and later are not written: the grid has two dimensions. tl.program_id(0) counts the tiles down, "
        "tl.program_id(1) the tiles across",
    )
    require(
        not (missing[2:4, :8].all() and not missing[2:4, 8:].any()),
        "only tiles on the diagonal are written: the number of a tile down is tl.program_id(0), across it is "
        "tl.program_id(1)",
    )
    steps = np.arange(6)[:, None] + 6 * np.arange(16)
    exchanged = np.where(steps < 96, right.ravel()[steps.clip(max=95)], np.nan)
    by_columns = np.arange(6)[:, None] + 16 * np.arange(16)
    exchanged_too = np.where(by_columns < 96, right.ravel()[by_columns.clip(max=95)], np.nan)
    require(
        not any(np.allclose(y, e, equal_nan=True) for e in (exchanged, exchanged_too)),
        "rows and columns are exchanged: element (row, column) of x is row · stride_row + column · stride_column "
        "behind the first",
    )
    require(
        not missing.any(),
        f"of a (6, 16) array {missing.sum()} numbers are missing: which rows and which columns are a program's?",
    )
    require_close("a copy of a contiguous (6, 16) array", y, right, tolerance=0)
    require_few_launches(seen, "copy_kernel", 1, "6 rows")

    for shape, beyond, what in (((6, 11), "column < n", "columns"), ((5, 16), "row < num_rows", "rows")):
        x = tensor(rng.standard_normal(shape))
        y, right, seen, found = copied(x)
        require(
            not seen.stores and not seen.races,
            f"a {shape} array under tiles of 2 × 8: lanes stick out beyond its {what}, and they write, into what comes "
            f"next in memory: the mask of tl.store wants {beyond}",
        )
        require(
            not seen.loads,
            f"a {shape} array under tiles of 2 × 8: lanes that stick out beyond its {what} read what is not the "
            f"array's: the mask of tl.load wants {beyond}",
        )
        require_close(f"a copy of a contiguous {shape} array", y, right, tolerance=0)
        require_single_pass(seen, x=("read", x), y=("written", found))

    base = tensor(rng.standard_normal((6, 32)))
    x = base[:, ::2]
    y, right, seen, found = copied(x)
    require(
        not seen.stores,
        "a view of every second column is copied wrong: y is written with the strides of x, but y is a new array, "
        "contiguous: its element (row, column) is at row · n + column",
    )
    require(
        not near(y, base[:, :16].double().cpu().numpy()),
        "of a view of every second column it copies columns that lie side by side: within a row, too, elements have a "
        "distance, stride_column",
    )
    require_close("a copy of a view of every second column, with strides (32, 2),", y, right, tolerance=0)
    x = tensor(rng.standard_normal((11, 6))).T
    y, right, seen, found = copied(x)
    require_close("a copy of a transposed view, with strides (1, 6),", y, right, tolerance=0)
    require_single_pass(seen, x=("read", x), y=("written", found))


@exercise(answer=solutions.row_sums)
def row_sums(attempt: Attempt) -> None:
    needs_kernels(attempt, None)
    rng = np.random.default_rng(0)
    for rows, n in ((3, 8), (4, 5), (2, 100)):
        x = tensor(1 + rng.standard_normal((rows, n)))
        found, seen = run_sanitized(lambda x=x: attempt(x))
        sums = as_numbers(OUT, found, (rows,), torch.float32)
        numbers = x.double().cpu().numpy()
        right = numbers.sum(axis=1)
        if n == 8:
            require(
                not (np.isnan(sums[1:]).all() and not np.isnan(sums[0])),
                "only the first sum is written: row r's belongs at out_ptr + r",
            )
            require(
                not near(sums, right[:1]) or rows == 1,
                "all sums are that of row 0: row r begins at x_ptr + r · n",
            )
            require(not near(sums, numbers.max(axis=1)), "it returns the largest number of each row, not their sum")
            squares = {"are those of the squares": (numbers**2).sum(axis=1)}
            require_none_of("the sums", sums, right, squares, tolerance=CLOSE)
            require_close("the sums of 3 rows of 8, a full block,", sums, right, tolerance=CLOSE)
            require_few_launches(seen, "row_sums_kernel", 1, "3 rows")
            require_safe_access(seen, "in rows of 8")
            continue
        lanes, block = (3, 8) if n == 5 else (28, 128)
        where = f"a row of {n} lies under a block of {block}, so that {lanes} lanes stick out"
        off = np.abs(sums - right) > CLOSE * n
        require(
            not (off[1:].any() and not off[0] and not np.isnan(sums[0])),
            f"{where}, and of {rows} rows the first sum alone is right: row r begins at r · n, whatever the block",
        )
        require(
            not seen.loads,
            f"{where}. Without a mask they take the first numbers of the next row into the sum, and behind the last "
            "row memory outside the array",
        )
        require(
            not np.isnan(sums).any(),
            f"{where}, and the sums are NaN: lanes whose mask is off hold anything, unless tl.load is given `other`",
        )
        require(
            not off.any(),
            f"{where}, and they add {sums[0] - right[0]:.3g} to the sum of row 0: what must they hold to add nothing?",
        )
        require_safe_access(seen, f"in rows of {n}")
        require_single_pass(seen, x=("read", x), sums=("written", found))


@exercise(answer=solutions.matmul)
def matmul(attempt: Attempt) -> None:
    needs_kernels(attempt, None, None)
    rng = np.random.default_rng(0)

    def product(M: int, K: int, N: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, AccessReport, list[Any]]:
        a, b = tensor(rng.standard_normal((M, K))), tensor(rng.standard_normal((K, N)))
        found, seen = run_sanitized(lambda: attempt(a, b))
        c = as_numbers(OUT, found, (M, N), torch.float32)
        return c, a.double().cpu().numpy(), b.double().cpu().numpy(), seen, [a, b, found]

    c, a, b, seen, _ = product(16, 16, 16)
    require(not near(c, b @ a), "it is b · a: in tl.dot, as in the formula, the block of a comes first")
    require(not near(c, a * b), "it multiplies number by number: a product of matrices is tl.dot")
    off = np.abs(c - a @ b).max()
    require(
        not 1e-4 < off < 2e-2,
        f"it is off by {off:.0e}: this GPU rounds the inputs of tl.dot to 10 bits of fraction, unless it is told "
        'input_precision="ieee"',
    )
    require_close("a · b of 16 × 16, one tile, one step,", c, a @ b, tolerance=CLOSE)
    require_few_launches(seen, "matmul_kernel", 1, "one tile")
    require_float32_products(seen)

    c, a, b, seen, _ = product(16, 48, 16)
    parts = [a[:, k : k + 16] @ b[k : k + 16] for k in (0, 16, 32)]
    one = "one step it is right (K = 16), and with three (K = 48)"
    require(
        not near(c, parts[0]),
        f"with {one} c is the first step's product alone: a loop over K, 16 at a time, adds up the products",
    )
    require(
        not near(c, parts[2]), f"with {one} c is the last step's product alone: each step adds its own to the total"
    )
    require(
        not near(c, 3 * parts[0]),
        f"with {one} the first product is added three times: k must move along with the loop",
    )
    width = a.ravel()[np.arange(16)[:, None] * 16 + np.arange(48)]
    require(
        not near(c, width @ b),
        f"with {one} it is wrong: a has rows of K numbers, so that row r begins at r · K, not at r · N",
    )
    require(
        not seen.loads,
        f"with {one} it reads behind the end of an array: row r of a begins at r · K, row k of b at k · N (b has rows "
        "of N numbers), and k stays below K",
    )
    require_close(f"with {one} a · b", c, a @ b, tolerance=CLOSE)

    c, a, b, seen, (a_in, b_in, c_out) = product(32, 16, 48)
    require(
        not np.isnan(c).any(),
        "with one tile it is right, and of a (32, 48) product not all is written: a program's tile is tl.program_id(0) "
        "down and tl.program_id(1) across",
    )
    narrow = b.ravel()[np.arange(16)[:, None] * 16 + np.arange(48)]
    require(
        not near(c, a @ narrow),
        "with one tile it is right, with a b of (16, 48) it is wrong: b has rows of N numbers, so that row k begins at "
        "k · N",
    )
    require_close("with one tile it is right, but of (32, 16) · (16, 48) the product", c, a @ b, tolerance=CLOSE)
    require_safe_access(seen, "for a (32, 48) product")
    require_single_pass(seen, c=("written", c_out))
    for name, array, tiles in (("a", a_in, 3), ("b", b_in, 2)):
        require(
            seen.read(array) <= tiles * array.numel(),
            f"the numbers are right, but each number of {name} is read {seen.read(array) / array.numel():.3g} times, "
            f"and {tiles} programs need it: one load for a step is enough",
        )


@exercise(answer=solutions.max_and_sum)
def max_and_sum(attempt: Attempt) -> None:
    needs_kernels(attempt, None)
    rng = np.random.default_rng(0)

    def run(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, AccessReport, list[Any]]:
        """Return m and l, the right ones, the report, and the tensors x, m and l."""
        given = tensor(x)
        found, seen = run_sanitized(lambda: attempt(given))
        unpack(found, "m", "l")
        m, l = (as_numbers(n, f, (len(x),), torch.float32) for n, f in zip(("m", "l"), found, strict=True))
        exact = given.double().cpu().numpy()
        largest = exact.max(axis=1)
        return m, l, largest, np.exp(exact - largest[:, None]).sum(axis=1), seen, [given, *found]

    x = rng.standard_normal((3, 64))
    m, l, right_m, right_l, seen, _ = run(x)
    require(
        not (near(m[:1], right_m[:1]) and not near(m, right_m)),
        "m is right in row 0 and wrong in another: each program has a row of its own, which begins at row · n, and "
        "a place of its own in m and l",
    )
    require(not (near(m, right_l) and near(l, right_m)), "the two are returned in the other order: m, then l")
    require_close("m, the largest number of each of 3 rows of one block,", m, right_m, tolerance=CLOSE)
    require(
        not near(l, np.exp(x).sum(axis=1)),
        "l is Σ e^x: it must be Σ e^(x − m). With numbers of 100 the former is infinite",
    )
    require(
        not np.isnan(l).any(),
        "l is NaN: the factor for what was summed up before is e^(old m − new m), which is never above 1; the other "
        "way round it is infinite in the beginning, and ∞ · 0 is NaN",
    )
    powers = {"is Σ 2^(x − m), and must be Σ e^(x − m)": np.exp2(x - x.max(axis=1, keepdims=True)).sum(axis=1)}
    require_none_of("l", l, right_l, powers, tolerance=CLOSE)
    require_close("l, the sum of e^(x − m) of each of 3 rows of one block,", l, right_l, tolerance=CLOSE)
    require_few_launches(seen, "max_and_sum_kernel", 1, "3 rows")

    falling = -np.sort(-rng.standard_normal((2, 192)), axis=1)
    m, l, right_m, right_l, *_ = run(falling)
    one = "with one block it is right; with three"
    require(near(m, right_m), f"{one}, the largest number in the first, m is wrong: m never falls")
    first, last = (np.exp(falling[:, s] - falling[:, :1]).sum(axis=1) for s in (slice(0, 64), slice(128, 192)))
    require(not near(l, first), f"{one}, l is the first block's alone: does it go on to the end of the row?")
    require(not near(l, last), f"{one}, l is the last block's alone: what was summed up before is lost")
    require_close(
        f"{one}, the largest number in the first, l (each term is e^(x − m) with the running maximum, not with the "
        "block's own)",
        l,
        right_l,
        tolerance=CLOSE,
    )
    rising = falling[:, ::-1].copy()
    m, l, right_m, right_l, *_ = run(rising)
    require(near(m, right_m), f"{one}, the largest number in the last, m is wrong: it is the first block's alone")
    require_close(
        f"{one}, the largest number in the last, l (the maximum rises on the way, and what was summed up before must "
        "shrink with it)",
        l,
        right_l,
        tolerance=CLOSE,
    )
    m, l, right_m, right_l, *_ = run(rising - 20)
    require(
        near(m, right_m),
        f"in rows of numbers about −20 the maximum is {m[0]:.3g}: it must begin below all numbers, at −∞",
    )
    require_close("in rows of numbers about −20, l", l, right_l, tolerance=CLOSE)
    m, l, right_m, right_l, *_ = run(rising + 100)
    require_close(
        "in rows of numbers about 100, whose exponentials are beyond float32, l (each term is e^(x − the maximum so "
        "far), from the beginning)",
        l,
        right_l,
        tolerance=CLOSE,
    )
    m, l, right_m, right_l, seen, given = run(rng.standard_normal((2, 100)) - 20)
    where = "rows of 100 in blocks of 64: 28 lanes of the second block stick out"
    require(not seen.loads, f"{where}, and some read memory outside the array: tl.load needs a mask")
    require(
        not np.isnan([m, l]).any(),
        f"{where}, and a result is NaN: lanes whose mask is off hold anything, unless tl.load is given `other`",
    )
    require(
        near(m, right_m) and near(l, right_l),
        f"{where}, and they take part: what must they hold, to be no maximum, and to have an exponential of 0?",
    )
    require_safe_access(seen, "in rows of 100")
    require_single_pass(seen, x=("read", given[0]))
    require(
        all(seen.given(part) for part in given[1:]),
        "the numbers are right, but a result is not what the kernel has written: an operation of PyTorch before or "
        "after the kernel is one more pass through memory",
    )
    require(
        not seen.interpreted or seen.written_beside(given[0]) == 4,
        f"the numbers are right, but for 2 rows {seen.written_beside(given[0])} numbers are written, and m and l have "
        "4: they stay in registers until they are final",
    )
    lowest = -1e30 * np.arange(1, 101.0)
    m, l, right_m, right_l, *_ = run(np.stack([lowest, lowest[::-1]]))
    require(
        near(m / right_m, 1) and near(l, right_l),
        f"in rows of numbers of −1e30 and less m is {m[0]:.3g} and l {l[0]:.3g}: m must begin below all numbers, and "
        "lanes beyond the row must hold less than any of them. Only −inf does",
    )
