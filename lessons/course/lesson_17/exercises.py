"""Lesson 17: the roofline, and swapping kernels in."""

import math
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..checks import require, require_close, require_none_of, unpack
from ..compiled import compiled
from ..exercise import Attempt, Wrong, exercise
from ..limits import LimitExceeded
from ..sanitizer import require_few_launches, require_safe_access, sanitize
from ..tensors import as_numbers, needs_kernels, tensor
from . import solutions
from .roofline import GPUS, Gpu

MEMORY, ARITHMETIC = "memory", "arithmetic"
FLOAT32 = 1e-5  # tolerance


def _tokens(operations, item, C_in, C_out, gpu):
    """Return the number of tokens that suffices if a term costs `operations` and a number takes `item` bytes."""
    each = operations * C_in * C_out / gpu.flops - item * (C_in + C_out) / gpu.bandwidth  # seconds for each token
    return math.ceil(item * C_in * C_out / gpu.bandwidth / each) if each > 0 else math.inf


def _enough_tokens(C_in, C_out, gpu):
    return _tokens(2, 2, C_in, C_out, gpu)


@exercise(answer=solutions.least_seconds)
def least_seconds(attempt: Attempt) -> None:
    gpu = Gpu("made up", 2000, "float32", flops=8e9, bandwidth=1e9)  # 8 operations for each byte

    def answer(flops: float, moved: float, gpu: Gpu = gpu) -> tuple[float, str]:
        result = attempt(flops, moved, gpu)
        unpack(result, "the seconds", "what decides")
        seconds, limit = result
        require(limit in (MEMORY, ARITHMETIC), f'what decides must be "memory" or "arithmetic", and it is {limit!r}')
        return float(seconds), limit

    far, near = answer(80e9, 2e9), answer(1e9, 10e9)  # 10 s against 2 s; 0.125 s against 10 s
    for (seconds, _), slower, quicker in ((far, 10.0, 2.0), (near, 10.0, 0.125)):
        together = abs(seconds - slower - quicker) < 1e-9
        require(not together, f"{slower:g} s of one and {quicker:g} s of the other make their sum: but they overlap")
        require(abs(seconds - quicker) > 1e-9, "the time is the quicker one's: it cannot end before the slower is done")
    for (seconds, _), mean, by_flops, product in ((far, 6.0, 10.0, 6.4e20), (near, 5.0625, 1.25, 8e18)):
        require(abs(seconds - mean) > 1e-9, "the time is the mean of the two: the slower one decides, as both overlap")
        require(
            by_flops == 10.0 or abs(seconds - by_flops) > 1e-9,
            "the bytes are divided by the operations per second: bytes by the bandwidth, operations by flops",
        )
        require(abs(seconds / product - 1) > 1e-9, "the operations are multiplied by flops, and must be divided by it")
    require(far[0] != 80e9, "it returns how many operations there are, and must return how long they take")
    require_close("with 80e9 operations and 2e9 bytes, at 8e9 and 1e9 a second, the time", far[0], 10.0)
    require_close("with 1e9 operations and 10e9 bytes, at 8e9 and 1e9 a second, the time", near[0], 10.0)
    require(
        (far[1], near[1]) != (MEMORY, ARITHMETIC),
        "40 operations for each byte, where the machine does 8, are called bound by memory: the names are swapped",
    )
    between = answer(4e9, 1e9)  # more operations than bytes, and fewer than 8 for each
    require(
        between[1] == MEMORY,
        "4 operations for each byte are called bound by arithmetic: compare seconds, not operations with bytes",
    )
    require(far[1] == ARITHMETIC, "40 operations for each byte, where the machine does 8, are bound by arithmetic")
    require_close("with 1e9 operations and 0.3e9 bytes, at 8e9 and 1e9 a second, the time", answer(1e9, 0.3e9)[0], 0.3)
    other = replace(gpu, flops=2e9, bandwidth=5e9)
    require_close("of another gpu, with 1e9 operations at 2e9 a second, the time", answer(1e9, 1e9, other)[0], 0.5)
    slow = replace(gpu, bandwidth=1e6)
    require(
        answer(80e9, 1e9, slow)[1] == MEMORY, "with a memory 1,000 times as slow, the memory decides: use the gpu's own"
    )


@exercise(answer=solutions.attention_work)
def attention_work(attempt: Attempt) -> None:
    T, D = 6, 10

    def answer(T: int, D: int, fused: bool) -> tuple[float, float]:
        flops, moved = unpack(attempt(T, D, fused), "operations", "bytes")
        return float(flops), float(moved)

    products, least = 4.0 * T * T * D, 8.0 * T * D
    require(answer(T, D, True) != (least, products), "operations and bytes are exchanged: (operations, bytes)")
    for fused in (True, False):
        more = (answer(T, D, fused)[0] - products) / (T * T)
        require(
            not (0 < more < 4 * D and more == int(more)),
            f"beside the two products it counts {more:.0f} operations for each score: count the products alone",
        )
        factors = {"½: there are two products, and a multiplication and an addition in each term": 0.5}
        factors |= {"¼: two products, each term a multiplication and an addition": 0.25}
        squares = {"is 4 · T · D²: there is a score for each of T × T pairs, and each sums over D": 4.0 * T * D * D}
        require_none_of("the number of operations", answer(T, D, fused)[0], products, squares)
        require_close("the number of operations", answer(T, D, fused)[0], products, factors=factors)
    fused, unfused = answer(T, D, True)[1], answer(T, D, False)[1]
    longer = answer(2 * T, D, True)[1]
    require(
        abs(longer - 2 * fused) < 1e-9,
        f"fused, twice the tokens move {longer / fused:.3g} times the bytes, and must move 2 times: "
        "no T × T array leaves the chip",
    )
    factors = {"2: half precision has 2 bytes": 2.0, "½: half precision has 2 bytes": 0.5}
    factors |= {"¾: query, key, value and out are four": 0.75, "1½: query, key, value and out are four": 1.5}
    narrow = {"is that of 4 · T numbers: each of the four arrays is T × D": 8.0 * T}
    require_none_of("fused, the number of bytes", fused, least, narrow)
    require_close("fused, the number of bytes", fused, least, factors=factors)
    other = answer(5, 12, True)
    require(
        other == (1200, 480),
        f"with T = {T} and D = {D} it is right; fused, with T = 5 and D = 12, it says {other[0]:g} operations and "
        f"{other[1]:g} bytes, and they are 1200 and 480: is a number written where T or D belongs?",
    )
    extra = (unfused - fused) / (2 * T * T)
    require(
        abs(extra - 4) < 1e-9,
        f"unfused, {extra:.3g} arrays of T × T numbers pass beside what the fused one moves, and it is 4: "
        "the scores are written, then read, and the weights are written, then read",
    )


@exercise(answer=_enough_tokens)
def enough_tokens(attempt: Attempt) -> None:
    gpu = Gpu("made up", 2000, "float16", flops=100e9, bandwidth=1e9)

    def answer(C_in: int, C_out: int, gpu: Gpu = gpu) -> float:
        return float(attempt(C_in, C_out, gpu))

    def seconds(N: float, C_in: int, C_out: int, gpu: Gpu) -> tuple[float, float]:
        moved = 2 * (N * C_in + C_in * C_out + N * C_out)
        return 2 * N * C_in * C_out / gpu.flops, moved / gpu.bandwidth

    narrow = answer(100, 100)
    require(
        narrow == math.inf,
        f"for 100 → 100 it says {narrow:g}, and no number is enough: a token alone brings 400 bytes for 20,000 "
        "operations, where the machine does 100 for each byte; return math.inf",
    )
    even = replace(gpu, flops=2.0**36, bandwidth=2.0**30)  # 64 operations for each byte, without rounding
    N = answer(128, 128, even)
    require(
        math.isinf(N),
        f"where a token's own bytes take exactly as long as its operations it says {N:g}: the weights come on top, so "
        "memory decides however many tokens there are; return math.inf",
    )
    for C_in, C_out, other in ((900, 900, gpu), (400, 1600, gpu), (256, 256, even)):
        N = answer(C_in, C_out, other)
        require(math.isfinite(N), f"for {C_in} → {C_out} it says {N:g}: this layer is wide enough")
        weights_only = math.ceil(other.flops / other.bandwidth)
        require(
            weights_only != N,
            f"for {C_in} → {C_out} it says {N:g}, which would do if only the weights moved: the tokens that go in and "
            "come out move too",
        )
        require(
            _tokens(1, 2, C_in, C_out, other) != N,
            f"for {C_in} → {C_out} it says {N:g}, which would be right for half the operations or twice the bytes: a "
            "multiplication and an addition are two operations, a half-precision number has 2 bytes",
        )
        arithmetic, memory = seconds(N, C_in, C_out, other)
        require(
            arithmetic >= memory * (1 - 1e-9),
            f"for {C_in} → {C_out} and {N:g} tokens arithmetic takes {arithmetic:.3e} s and memory {memory:.3e} s: "
            "memory still decides",
        )
        arithmetic, memory = seconds(N - 1, C_in, C_out, other)
        require(arithmetic < memory, f"for {C_in} → {C_out} it says {N:g}, and {N - 1:g} would be enough")
        require(int(N) == N, f"it says {N}, and tokens come whole")
    require(answer(512, 2048, GPUS[-1]) == _enough_tokens(512, 2048, GPUS[-1]), "with another gpu it is wrong")


@exercise(answer=solutions.running_sums)
def running_sums(attempt: Attempt) -> None:
    needs_kernels(attempt, None)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 128))
    given = tensor(x)
    with sanitize() as seen:
        found = attempt(given)
    y, right = as_numbers("what it returns", found, x.shape), np.cumsum(x, axis=1)
    for distances, why in (
        ([], "nothing is added up: it is x"),
        ([1], "each number has its left neighbour added, and no more: the distance doubles, 1, 2, 4, … below n"),
        ([1, 2, 4, 8, 16, 32], "the last round is missing: half of a row, n / 2, is a distance too"),
        ([2, 4, 8, 16, 32, 64], "the first round is missing: the first distance is 1"),
        (range(1, 128), "terms are added many times: the distance doubles from round to round, 1, 2, 4, … below n"),
    ):
        require(not np.allclose(y, _in_rounds(x, distances), rtol=1e-3, atol=1e-4), f"in rows of 128 {why}")
    short = x
    for distance in (1, 2, 4, 8, 16, 32, 64):
        short = short + np.pad(short, ((0, 0), (distance, 0)))[:, :128] * (np.arange(128) != distance)
    require(
        not np.allclose(y, short, rtol=1e-3, atol=1e-4),
        "the number at i = distance does not add its neighbour, which is number 0 of the row: who adds is where i >= "
        "distance",
    )
    backwards = np.cumsum(x[:, ::-1], axis=1)[:, ::-1]
    require(
        not np.allclose(y, backwards, rtol=1e-3, atol=1e-4),
        "each number has what stands behind it added: a running sum goes from the left, with place − distance",
    )
    require(not np.isnan(y[1]).all(), "only row 0 is written: row r begins at r · n, in x and in y")
    sums = x[1]
    for distance in (1, 2, 4, 8, 16, 32, 64):
        sums = sums + np.concatenate([y[0], sums])[128 - distance : 256 - distance]
    require(
        not np.allclose(y[1], sums, rtol=1e-3),
        "row 1 is wrong: the first numbers of a row have no left neighbour at this distance, and what lies there in "
        "memory is the row before. Who adds is where i >= distance",
    )
    require_close("the running sums of 2 rows of 128", y, right, tolerance=FLOAT32)
    require_few_launches(seen, "running_sums_kernel", 1, "2 rows")
    require_safe_access(seen, "in rows of 128")
    require(
        not seen.interpreted or seen.written_beside(given) >= 2 * x.size,
        "the numbers are right, and no thread reads what another has stored: tl.cumsum does it in registers and shared "
        "memory. Write down what it is made of, with y in the place of shared memory",
    )
    x = rng.standard_normal((3, 200))
    with sanitize() as seen:
        found = attempt(tensor(x))
    y, right = as_numbers("what it returns", found, x.shape), np.cumsum(x, axis=1)
    require_close("the running sums of 3 rows of 200", y, right, tolerance=FLOAT32)
    require_safe_access(seen, "in rows of 200")
    for order in ("together", "in reverse"):
        y = _as_machine_code(attempt, x, order)
        require_close("in the interpreter it is right; as machine code what it returns", y, right, tolerance=FLOAT32)


def _in_rounds(x: np.ndarray, distances: Iterable[int]) -> np.ndarray:
    """Add to each number the one at a distance before it, in one round for each of `distances`."""
    with np.errstate(all="ignore"):
        for distance in distances:
            x = x + np.pad(x, ((0, 0), (distance, 0)))[:, : x.shape[1]]
    return x


def _as_machine_code(attempt: Attempt, x: np.ndarray, order: str) -> np.ndarray:
    """Return the attempt's result as machine code. Raises `Wrong` for a fault or an exception."""
    before = "in the interpreter it is right; as machine code"
    try:
        found = compiled(attempt.function, x, order=order)
    except LimitExceeded as endless:
        raise Wrong(f"{before} {endless}") from None
    require(not found["raises"], f"in the interpreter it is right, and it does not compile: {found['raises']}")
    fault, launch = re.sub(r", '[^']*'", "", found["fault"], count=1), found["launches"][0]
    why = "all waves must have stored before any of them loads"
    if " writes " in fault:
        why = "all waves must have loaded before any of them stores the next round's sums"
    if not launch["barriers"]:
        why = "nothing makes the waves wait for each other: tl.debug_barrier() does"
    require(not fault, f"{before}, {fault}: {why}")
    require(
        launch["waves"] > 1,
        "a program is launched as one wave, so there is no other wave to race with: leave num_warps as it is, and make "
        "the waves wait",
    )
    return np.asarray(found["returned"])
