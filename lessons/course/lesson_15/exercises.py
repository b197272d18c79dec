"""Lesson 15: the ladder into Triton, kernels over rows, and number formats."""

from unittest import mock

import numpy as np

import kernels
from minitransformer import ops

from ..checks import require, require_close, require_none_of, type_name, unpack
from ..exercise import Attempt, exercise
from ..gpu import require_kernels, torch
from ..sanitizer import partly_written, require_few_launches, require_safe_access, require_single_pass, sanitize
from ..tensors import as_numbers, needs_kernels, tensor
from . import ladder, solutions

add, relu, contiguous = ladder.add, ladder.relu, ladder.contiguous  # in the lesson's order
row_sums, matmul, max_and_sum = ladder.row_sums, ladder.matmul, ladder.max_and_sum

FLOAT32 = 1e-5  # tolerance
HALF_ULP = 2.0**-11  # the largest relative error of rounding a number to float16 once


def _softmax_rows(x):
    require_kernels()
    return kernels.softmax_forward(x)[0]


def _layernorm_backward_rows(dy, x, gamma, mean, rstd, programs):
    require_kernels()
    from kernels.norms import whole as norms

    # The private cache of the package's forward, built from the exercise's arguments.
    cache = norms.Normalised(x, None, gamma, True, mean, rstd, norms.NO_DROPOUT, x.shape)
    with mock.patch.object(norms, "programs_at_once", return_value=programs):
        return kernels.layernorm_backward(dy, cache)


@exercise(answer=_softmax_rows)
def softmax_rows(attempt: Attempt) -> None:
    needs_kernels(attempt, None)
    rng = np.random.default_rng(0)

    def judged(x):
        """Return y in float64, the largest error of each row, True for right rows, the report, and y itself."""
        with sanitize() as seen:
            found = attempt(x)
        y = as_numbers("what it returns", found, tuple(x.shape), x.dtype)
        require(
            found.is_contiguous(),
            f"y has strides of {tuple(found.stride())} and must be contiguous, {(x.shape[1], 1)}: a kernel that is "
            "given its pointer looks for row r at r · n",
        )
        off = np.abs(y - ops.softmax_forward(x.double().cpu().numpy())[0]).max(axis=1)
        return y, off, off <= FLOAT32, seen, found

    x = tensor(rng.standard_normal((3, 8)))
    _, off, right, seen, _ = judged(x)
    require(
        not right[0] or right.all(),
        "of 3 rows of 8, the first is right and another is not: is there a program for each row?",
    )
    require(right.all(), f"3 rows of 8, a power of two, are off by {off.max():.1g}: is it e^x / Σ e^x?")
    require_few_launches(seen, "softmax_rows_kernel", 1, "3 rows")

    for rows, width in ((4, 5), (4, 100), (2, 5000), (3, 1)):
        x = tensor(rng.standard_normal((rows, width)))
        y, off, right, seen, found = judged(x)
        require(
            not right[0] or right.all(),
            f"of {rows} rows of {width} the first is right and another is not: row r begins at r · {width}, "
            "whatever the block's length",
        )
        require(
            not partly_written(seen, found),
            f"rows of 8 are right, and of rows of {width} the kernel writes {seen.written(found) // rows} numbers: "
            "BLOCK must be as long as a row at least",
        )
        require(
            not np.isnan(y).any(),
            f"rows of 8 are right, and rows of {width} hold NaN: where tl.load is given a mask and no `other`, lanes "
            "whose mask is off hold anything",
        )
        require(
            width > 1 or not 0 < off.max() < 1e-3,
            f"a row of a single number must have a weight of 1, and has {y[0, 0]:.7f}: is a small number added to the "
            "sum? Divide by 1 where the sum is 0 (tl.where), and by the sum elsewhere",
        )
        total = y.sum(axis=1).min()
        require(
            total >= 1 - FLOAT32,
            f"rows of 8 are right, and a row of {width} sums to {total:.3f}: lanes beyond the row add to the sum. "
            "What must they hold, for their exponential to be 0?",
        )
        require(right.all(), f"rows of 8 are right, rows of {width} are off by {off.max():.1g}")
        require_safe_access(seen, f"in rows of {width}")
        require(
            not seen.interpreted or width < 1000 or seen.programs == [rows],
            f"for {rows} rows the kernel ran {seen.programs[0]} program{'s' * (seen.programs[0] != 1)}: with a program "
            "for each row they run side by side",
        )
        require_single_pass(seen, x=("read", x), y=("written", found))

    large = tensor(np.array([[1e4, 1e4 - 1, -1e4], [-1e4, -1e4, -1e4 - 1], [-1e30, -1e30, -2e30]]))
    y, _, right, *_ = judged(large)
    require(
        right[:2].all(),
        f"a row with {'NaN: e^10000 overflows' if np.isnan(y).any() else 'scores of ±10000 is wrong'}. "
        "What is subtracted from x first, and is it the maximum of the row alone, without the lanes beyond?",
    )
    require(
        right.all(),
        "a row of scores of −1e30 is wrong: lanes beyond the row must hold less than anything in it, and only −inf is",
    )

    wide = tensor(rng.standard_normal((4, 130)))
    _, _, right, *_ = judged(wide[:, 10:110])
    require(
        right.all(),
        "rows that lie further apart in memory than they are long (100 columns of 130) come out wrong: row r of x "
        "begins at r · x.stride(0), and of y at r · n",
    )

    nothing = tensor(np.array([[0.0, 1, -np.inf], [-np.inf, -np.inf, -np.inf]]))
    y, _, right, *_ = judged(nothing)
    require(
        not y[1].any(),
        f"a row of all −inf must give zeros and gives {y[1, 0]:g}: −inf − (−inf) is NaN, and so is 0/0. Begin the "
        "maximum at LOWEST, and divide by 1 where the sum is 0",
    )
    require(right[0], "a row with one −inf among its numbers is wrong: there the weight is 0, and the others are not")
    half = tensor(4 * rng.standard_normal((2, 300)), torch.float16)
    y, _, _, seen, found = judged(half)
    exact = ops.softmax_forward(half.double().cpu().numpy())[0]
    normal = exact > 2.0**-14  # below this, float16 is subnormal and has fewer digits
    worst = np.abs(y / exact - 1)[normal].max()
    require(
        worst <= 1.1 * HALF_ULP,
        f"in float16 a weight is off by {worst:.2g} of itself, and rounding it once costs at most {HALF_ULP:.2g}: "
        "convert x to float32 right after the load, and the result back right before the store",
    )
    require_single_pass(seen, x=("read", half), y=("written", found))


@exercise(answer=_layernorm_backward_rows)
def layernorm_backward_rows(attempt: Attempt) -> None:
    needs_kernels(attempt, *[None] * 6)
    rng = np.random.default_rng(0)

    def case(num_rows, width, programs):
        """Return the attempt's and the right arrays in float64, x, the report, and the tensors dy, x and dx."""
        x, dy = (rng.standard_normal((num_rows, width)).astype(np.float32) for _ in range(2))
        x, gamma = x + np.float32(2), (1 + rng.random(width)).astype(np.float32)
        mean, rstd = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + 1e-5)
        arrays = [tensor(array) for array in (dy, x, gamma, mean, rstd)]
        with sanitize() as seen:
            found = attempt(*arrays, programs)
        unpack(found, "dx", "dgamma", "dbeta")
        shapes = {"dx": x.shape, "dgamma": gamma.shape, "dbeta": gamma.shape}
        numbers = [as_numbers(name, f, shapes[name], torch.float32) for name, f in zip(shapes, found, strict=True)]
        x64, gamma64 = x.astype(np.float64), gamma.astype(np.float64)
        _, cache = ops.layernorm_forward(x64, gamma64, np.zeros_like(gamma64))
        right = [np.asarray(gradient) for gradient in ops.layernorm_backward(dy.astype(np.float64), cache)]
        if width == 8:  # the first case
            for name, mine, exact, mistakes in zip(
                shapes, numbers, right, _row_mistakes(dy.astype(np.float64), x64, gamma64, cache), strict=True
            ):
                require_none_of(name, mine, exact, mistakes, tolerance=FLOAT32)
        return numbers, right, x, seen, [*arrays[:2], found[0]]

    # One program, and a width that fills its block.
    (dx, dgamma, dbeta), expected, x, seen, tensors = case(5, 8, 1)
    require(
        not partly_written(seen, tensors[2]),
        "with 1 program for 5 rows not all of dx is written: program p takes the rows p, p + programs, p + 2 · "
        "programs, …, so that every row is taken",
    )
    require(
        np.isnan(dx).any() or np.abs(dx.sum(axis=1)).max() <= 1e-4,
        f"a row of dx sums to {dx.sum(axis=1)[np.abs(dx.sum(axis=1)).argmax()]:.2g} and must sum to 0: y does not "
        "change where all of a row's x grow by the same, so the mean of dnormed is subtracted",
    )
    along = (dx * (x - x.mean(axis=1, keepdims=True))).sum(axis=1)
    require(
        np.isnan(dx).any() or np.abs(along).max() <= 1e-3,
        f"along its row's own normed, dx is {along[np.abs(along).argmax()]:.2g} and must be 0: y does not change where "
        "a row grows away from its mean, so normed · mean(dnormed · normed) is subtracted",
    )
    require_close("dx", dx, expected[0], tolerance=FLOAT32)
    require_close(
        "dgamma, the sum over rows of dy · normed with normed = (x − mean) · rstd,",
        dgamma,
        expected[1],
        tolerance=FLOAT32,
    )
    require_close("dbeta, the sum over rows of dy,", dbeta, expected[2], tolerance=FLOAT32)
    require_few_launches(seen, "layernorm_backward_kernel", 3, "5 rows")  # its own, and one for each sum over programs

    for width, lanes in ((12, 16), (1100, 2048)):
        (dx, dgamma, dbeta), expected, _, seen, tensors = case(2, width, 1)
        require(
            not partly_written(seen, tensors[2]),
            f"rows of 8 are right, and of rows of {width} not all of dx is written: BLOCK must be as long as a row at "
            "least",
        )
        require(
            not np.isnan(dx).any(),
            f"rows of 8 are right, and in rows of {width} dx holds NaN: where tl.load is given a mask and no `other`, "
            "lanes whose mask is off hold anything",
        )
        likely = f"is a mean taken over the block's {lanes} lanes?"
        require_close(f"dx of rows of {width} (rows of 8 are right: {likely})", dx, expected[0], tolerance=FLOAT32)
        require_close(f"dgamma of rows of {width} (rows of 8 are right)", dgamma, expected[1], tolerance=FLOAT32)
        require_close(f"dbeta of rows of {width} (rows of 8 are right)", dbeta, expected[2], tolerance=FLOAT32)
        require_safe_access(seen, f"in rows of {width}")

    for num_rows, programs in ((4, 3), (1, 2)):
        (dx, dgamma, dbeta), expected, _, seen, (dy_in, x_in, dx_out) = case(num_rows, 1100, programs)
        require(
            np.abs(dx - expected[0]).max() <= 1e-4,
            f"with {programs} programs for {num_rows} rows dx is wrong, with 1 it is right: program p takes the rows "
            "p, p + programs, p + 2 · programs, …, so that every row is taken",
        )
        for name, found, right in (("dgamma", dgamma, expected[1]), ("dbeta", dbeta, expected[2])):
            factor = float(np.vdot(right, found) / np.vdot(right, right))
            averaged = np.abs(found - right / programs).max() <= 1e-4
            require(
                not averaged,
                f"with {programs} programs {name} is {factor:.2g} times what it should be: partial sums are added, "
                "not averaged",
            )
            require(
                np.abs(found - right).max() <= 1e-4,
                f"with {programs} programs for {num_rows} rows {name} is wrong, with 1 it is right: does each program "
                "write its sum to a row of its own, also one that had nothing to add, and are all of them added up?",
            )
        require_safe_access(seen, f"with {programs} programs for {num_rows} rows")
        require_few_launches(seen, "layernorm_backward_kernel", 3, f"{num_rows} rows")
        require_single_pass(seen, dy=("read", dy_in), x=("read", x_in), dx=("written", dx_out))
        require(
            not seen.interpreted or any(min(programs, num_rows) <= ran <= programs for ran in seen.programs),
            f"the numbers are right, but of `programs` = {programs} for {num_rows} rows the kernel made "
            f"{seen.programs[0]}: its partial sums, which memory has to take, are as many as its programs",
        )
        beside, least = seen.written_beside(dx_out), 2 * min(programs, num_rows) * 1100
        require(
            not seen.interpreted or beside >= least,
            f"the numbers are right, but beside dx kernels have written {beside:,} numbers, and the partial sums of "
            f"dgamma and dbeta are {least:,}: does PyTorch make them, which loads dy and x a second time? The kernel "
            "has dy and n at hand, and adds them up as it goes",
        )


def _row_mistakes(dy, x, gamma, cache):
    """Return what likely mistakes give for dx, dgamma and dbeta."""
    normed, rstd, _ = cache
    ones = np.ones_like(gamma)
    dx = ops.layernorm_backward(dy, cache)[0]
    return (
        {
            "is made with dy where dn = dy · gamma belongs": ops.layernorm_backward(dy, (normed, rstd, ones))[0],
            "has no factor rstd: normed = (x − mean) · rstd": dx / rstd,
            "has normed = (x − mean) / rstd, and rstd is 1 / √variance already: multiply": (
                ops.layernorm_backward(dy, (normed / rstd**2, rstd, gamma))[0]
            ),
        },
        {
            "is what dbeta must be: the order is dx, dgamma, dbeta, and dgamma is the sum of dy · normed": dy.sum(
                axis=0
            ),
            "has gamma in it: y is linear in gamma, so the slope is normed": (dy * gamma * normed).sum(axis=0),
        },
        {
            "is what dgamma must be: dbeta is the sum of dy": (dy * normed).sum(axis=0),
            "is the sum of normed, and must be that of dy": normed.sum(axis=0),
        },
    )


@exercise(answer=solutions.round_to)
def round_to(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(200) * 2.0 ** rng.integers(-8, 8, 200)).astype(np.float32)

    def rounded(x, bits):
        x = np.asarray(x, np.float32)
        found = attempt(x, bits)
        require(np.shape(found) == x.shape, f"it has shape {np.shape(found)} and must have x's, {x.shape}")
        require(
            isinstance(found, np.ndarray | np.generic) and found.dtype == np.float32,
            f"it must return float32, as x is, not {getattr(found, 'dtype', type_name(found))}",
        )
        return np.asarray(found, np.float64)

    zero = rounded([0.0], 10)[0]
    require(zero == 0, f"0 becomes {zero:g} and must stay 0: it has no leading 1, and its logarithm is −inf")
    rounded(np.ones((2, 3)), 10)
    found = rounded(x, 10)
    for direction, all_of_them in (("up", (found >= x).all()), ("down", (found <= x).all())):
        require(not all_of_them, f"of 200 numbers all are rounded {direction}: each goes to the nearest")
    require_close("of −x, the result", rounded(-x, 10), -found)
    for bits in (10, 7):
        step = 2.0**-bits
        require(
            np.allclose(rounded(1024 * x, bits), 1024 * rounded(x, bits), rtol=1e-7),
            "rounding 1024·x does not give 1024 times what rounding x gives: the spacing of floating-point numbers is "
            "relative, it doubles with each power of 2",
        )
        require(
            rounded([1 + step], bits)[0] == 1 + step,
            f"1 + 2^−{bits} has a fraction of {bits} bits and must stay as it is: the leading 1 is not one of them",
        )
        for part in (2, 4):
            require(
                rounded([1 + step / part], bits)[0] != 1 + step / part,
                f"1 + 2^−{bits + part // 2} stays as it is: the fraction keeps more than {bits} bits",
            )
        require(rounded([1 + step / 4], bits)[0] == 1, f"1 + 2^−{bits + 2} must become 1, the nearest")
        require(
            (np.abs(rounded(x, bits)) > np.abs(x)).any(),
            "no number of 200 moves away from zero: the bits that do not fit are cut off, and must be rounded",
        )
        ties = np.array([1 + step / 2, 1 + 1.5 * step])
        require(
            np.array_equal(rounded(ties, bits), [1, 1 + 2 * step]),
            "half-way between two neighbours, x goes to the one whose last bit is 0: 2.5 to 2, but 3.5 to 4",
        )
    ends = np.array([1.2e-38, 3.3e38], np.float32)
    for numbers, bits in ((x, 10), (x, 7), (x, 22), (x, 1), (ends, 7)):
        found, right = rounded(numbers, bits).astype(np.float32), solutions.round_to(numbers, bits)
        wrong = np.flatnonzero(found != right)
        require(
            not len(wrong),
            "with {} bits {} becomes {} and should become {}".format(
                bits, *(str(each[wrong[:1]].squeeze()) for each in (numbers, found, right))
            ),
        )
