"""Lesson 15: number formats, and kernels over rows."""

import numpy as np

import kernels
from minitransformer import ops

from ..exercise import Attempt, exercise
from ..fence import Trespasses, fence
from ..gpu import require, torch
from ..judging import agree, several
from ..judging import require as must
from ..tensors import as_numbers, needs_kernels, result, tensor

FLOAT32, FLOAT16 = 1e-5, 2e-3  # tolerances


def _round_to(x, bits):
    fraction, exponent = np.frexp(x)  # x = fraction · 2^exponent, ½ ≤ |fraction| < 1
    return np.ldexp(np.rint(np.ldexp(fraction, bits + 1)), exponent - bits - 1)


def _softmax_rows(x):
    require()
    return kernels.softmax_forward(x)[0]


def _layernorm_backward_rows(dy, x, gamma, mean, rstd, programs):
    require()
    from kernels.layernorm import NO_DROPOUT

    # The forward's cache, which nobody but the pair looks into, made of what the exercise is given.
    return kernels.layernorm_backward(dy, (x, None, gamma, mean, rstd, NO_DROPOUT, x.shape))


@exercise(answer=_round_to)
def round_to(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(200) * 2.0 ** rng.integers(-8, 8, 200)).astype(np.float32)

    def rounded(x, bits):
        found = attempt(np.asarray(x, np.float32), bits)
        must(np.shape(found) == np.shape(x), f"it has shape {np.shape(found)} and must have x's, {np.shape(x)}")
        return np.asarray(found, np.float64)

    found = rounded(x, 10)
    agree("of −x, the result", rounded(-x, 10), -found)
    for bits in (10, 7):
        step = 2.0**-bits
        must(
            np.allclose(rounded(1024 * x, bits), 1024 * rounded(x, bits), rtol=1e-7),
            "rounding 1024·x does not give 1024 times what rounding x gives: the spacing of floating-point numbers is "
            "relative, it doubles with each power of 2",
        )
        must(
            rounded([1 + step], bits)[0] == 1 + step,
            f"1 + 2^−{bits} has a fraction of {bits} bits and must stay as it is: the leading 1 is not one of them",
        )
        must(
            rounded([1 + step / 4], bits)[0] == 1,
            f"1 + 2^−{bits + 2} must become 1: the fraction keeps more than {bits} bits",
        )
        must(
            (np.abs(rounded(x, bits)) > np.abs(x)).any(),
            "no number of 200 moves away from zero: the bits that do not fit are cut off, and must be rounded",
        )
        ties = np.array([1 + step / 2, 1 + 1.5 * step])
        must(
            np.array_equal(rounded(ties, bits), [1, 1 + 2 * step]),
            "half-way between two neighbours, x goes to the one whose last bit is 0: 2.5 to 2, but 3.5 to 4",
        )
    agree("with 10 bits, the result", found, x.astype(np.float16).astype(np.float64), tolerance=1e-7)


def stays_inside(seen: Trespasses, name: str, width: int) -> None:
    """What is right in the interpreter, where one program comes after the other, may be luck."""
    found = f"{name} of rows of {width} is right, but "
    must(
        not seen.stores,
        f"{found}the kernel also writes behind the last row ({seen.stores} lanes, stopped here; on a GPU somebody "
        "else's memory is overwritten): tl.store wants the mask too",
    )
    must(
        not seen.loads,
        f"{found}the kernel also reads where there is no array ({seen.loads} lanes, stopped here; a GPU may crash): "
        "tl.load wants the mask too",
    )
    must(
        not seen.races,
        f"{found}a program reads or writes what another has written ({seen.races} lanes): on a GPU they run side by "
        "side, and who comes first is chance. Each program writes places of its own",
    )


@exercise(answer=_softmax_rows)
def softmax_rows(attempt: Attempt) -> None:
    needs_kernels(attempt, None)
    rng = np.random.default_rng(0)
    seen = Trespasses()

    def error_by_row(x):
        nonlocal seen
        with fence() as seen:
            y = result(attempt, x, shape=tuple(x.shape), dtype=x.dtype)
        return y, np.abs(y - ops.softmax_forward(x.double().cpu().numpy())[0]).max(axis=1)

    full = tensor(rng.standard_normal((3, 8)))
    _, wrong = error_by_row(full)
    must(
        wrong[0] > FLOAT32 or not wrong.max() > FLOAT32,
        "of 3 rows of 8, the first is right and another is not: is there a program for each row?",
    )
    must(wrong.max() <= FLOAT32, f"3 rows of 8, a power of two, are off by {wrong.max():.1g}: is it e^x / Σ e^x?")

    for width in (5, 100):
        y, wrong = error_by_row(tensor(rng.standard_normal((4, width))))
        total = y.sum(axis=1)
        must(
            wrong[0] > FLOAT32 or not wrong.max() > FLOAT32,
            f"of 4 rows of {width} the first is right and another is not: row r begins at r · {width}, "
            "whatever the block's length",
        )
        must(
            not (total < 1 - FLOAT32).any(),
            f"rows of 8 are right, and a row of {width} sums to {total[0]:.3f}: lanes beyond the row add to the sum. "
            "What must they hold, for their exponential to be 0?",
        )
        must(wrong.max() <= FLOAT32, f"rows of 8 are right, rows of {width} are off by {wrong.max():.1g}")
        stays_inside(seen, "y", width)

    large = tensor(np.array([[1e4, 1e4 - 1, -1e4], [-1e4, -1e4, -1e4 - 1]]))
    y, wrong = error_by_row(large)
    must(
        wrong.max() <= FLOAT32,
        f"a row with {'NaN: e^10000 overflows' if np.isnan(y).any() else 'scores of ±10000 is wrong'}. "
        "What is subtracted from x first, and is it the maximum of the row alone, without the lanes beyond?",
    )

    wide = tensor(rng.standard_normal((4, 130)))
    _, wrong = error_by_row(wide[:, :100])
    must(
        wrong.max() <= FLOAT32,
        "rows that lie further apart in memory than they are long (the first 100 columns of 130) come out wrong: "
        "row r of x begins at r · x.stride(0), and of y at r · y.stride(0)",
    )

    nothing = tensor(np.array([[0.0, 1, 2], [-np.inf, -np.inf, -np.inf]]))
    y, _ = error_by_row(nothing)
    must(
        not y[1].any(),
        f"a row of all −inf must give zeros and gives {y[1, 0]:g}: −inf − (−inf) is NaN, and so is 0/0. Begin the "
        "maximum at LOWEST, and divide by 1 where the sum is 0",
    )
    half = tensor(rng.standard_normal((2, 300)), torch.float16)
    _, wrong = error_by_row(half)
    must(wrong.max() <= FLOAT16, f"in float16 it is off by {wrong.max():.1g}: are sums in float32?")


@exercise(answer=_layernorm_backward_rows)
def layernorm_backward_rows(attempt: Attempt) -> None:
    needs_kernels(attempt, *[None] * 6)
    rng = np.random.default_rng(0)
    seen = Trespasses()

    def case(num_rows, width, programs):
        """What the attempt returns, and what is right; all of it in float64."""
        nonlocal seen
        x, dy = (rng.standard_normal((num_rows, width)).astype(np.float32) for _ in range(2))
        x, gamma = x + np.float32(2), (1 + rng.random(width)).astype(np.float32)
        mean, rstd = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + 1e-5)
        arrays = [tensor(array) for array in (dy, x, gamma, mean, rstd)]
        with fence() as seen:
            found = attempt(*arrays, programs)
        several(found, "dx", "dgamma", "dbeta")
        shapes = {"dx": x.shape, "dgamma": gamma.shape, "dbeta": gamma.shape}
        numbers = [as_numbers(name, f, shapes[name]) for name, f in zip(shapes, found, strict=True)]
        x64, gamma64 = x.astype(np.float64), gamma.astype(np.float64)
        _, cache = ops.layernorm_forward(x64, gamma64, np.zeros_like(gamma64))
        return numbers, ops.layernorm_backward(dy.astype(np.float64), cache), x

    # One program, and a width that fills its block.
    (dx, dgamma, dbeta), expected, x = case(5, 8, 1)
    must(
        not np.isnan(dx).any() and np.abs(dx.sum(axis=1)).max() <= 1e-4,
        f"a row of dx sums to {dx.sum(axis=1)[np.abs(dx.sum(axis=1)).argmax()]:.2g} and must sum to 0: y does not "
        "change where all of a row's x grow by the same, so the mean of dn is subtracted",
    )
    along = (dx * (x - x.mean(axis=1, keepdims=True))).sum(axis=1)
    must(
        np.abs(along).max() <= 1e-3,
        f"along its row's own n, dx is {along[np.abs(along).argmax()]:.2g} and must be 0: y does not change where a "
        "row grows away from its mean, so n · mean(dn · n) is subtracted",
    )
    agree("dx", dx, expected[0], tolerance=FLOAT32)
    agree("dgamma, the sum over rows of dy · n with n = (x − mean) · rstd,", dgamma, expected[1], tolerance=FLOAT32)
    agree("dbeta, the sum over rows of dy,", dbeta, expected[2], tolerance=FLOAT32)

    (dx, dgamma, dbeta), expected, _ = case(5, 12, 1)
    agree("dx of rows of 12 (rows of 8 are right: is a mean taken over the block's 16 lanes?)", dx, expected[0],
          tolerance=FLOAT32)  # fmt: skip
    agree("dgamma of rows of 12 (rows of 8 are right)", dgamma, expected[1], tolerance=FLOAT32)
    stays_inside(seen, "all", 12)

    for num_rows, programs in ((7, 3), (2, 4)):
        (dx, dgamma, dbeta), expected, _ = case(num_rows, 12, programs)
        must(
            np.abs(dx - expected[0]).max() <= 1e-4,
            f"with {programs} programs for {num_rows} rows dx is wrong, with 1 it is right: program p takes the rows "
            "p, p + programs, p + 2 · programs, …, so that each row is somebody's",
        )
        for name, found, right in (("dgamma", dgamma, expected[1]), ("dbeta", dbeta, expected[2])):
            factor = float(np.vdot(right, found) / np.vdot(right, right))
            averaged = np.abs(found - right / programs).max() <= 1e-4
            must(
                not averaged,
                f"with {programs} programs {name} is {factor:.2g} times what it should be: partial sums are added, "
                "not averaged",
            )
            must(
                np.abs(found - right).max() <= 1e-4,
                f"with {programs} programs for {num_rows} rows {name} is wrong, with 1 it is right: does each program "
                "write its sum to a row of its own, also one that had nothing to add, and are all of them added up?",
            )
        stays_inside(seen, "all", 12)
