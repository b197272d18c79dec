"""Lesson 17: the roofline, and swapping kernels in."""

import math
from dataclasses import replace

from ..exercise import Attempt, exercise
from ..judging import agree, require, several
from . import solutions
from .roofline import GPUS, Gpu

MEMORY, ARITHMETIC = "memory", "arithmetic"


def _tokens(operations, item, C_in, C_out, gpu):
    """How many are enough, where a term of a product is so many operations and a number so many bytes."""
    each = operations * C_in * C_out / gpu.flops - item * (C_in + C_out) / gpu.bandwidth  # seconds for each token
    return math.ceil(item * C_in * C_out / gpu.bandwidth / each) if each > 0 else math.inf


def _enough_tokens(C_in, C_out, gpu):
    return _tokens(2, 2, C_in, C_out, gpu)


@exercise(answer=solutions.least_seconds)
def least_seconds(attempt: Attempt) -> None:
    gpu = Gpu("made up", 2000, "float32", flops=8e9, bandwidth=1e9)  # 8 operations for each byte

    def answer(flops: float, moved: float, gpu: Gpu = gpu) -> tuple[float, str]:
        result = attempt(flops, moved, gpu)
        several(result, "the seconds", "what decides")
        seconds, limit = result
        require(limit in (MEMORY, ARITHMETIC), f'what decides must be "memory" or "arithmetic", and it is {limit!r}')
        return float(seconds), limit

    far, near = answer(80e9, 2e9), answer(1e9, 10e9)  # 10 s against 2 s; 0.125 s against 10 s
    for (seconds, _), slower, quicker in ((far, 10.0, 2.0), (near, 10.0, 0.125)):
        together = abs(seconds - slower - quicker) < 1e-9
        require(not together, f"{slower:g} s of one and {quicker:g} s of the other make their sum: but they overlap")
        require(abs(seconds - quicker) > 1e-9, "the time is the quicker one's: it cannot end before the slower is done")
    agree("with 80e9 operations and 2e9 bytes, at 8e9 and 1e9 a second, the time", far[0], 10.0)
    agree("with 1e9 operations and 10e9 bytes, at 8e9 and 1e9 a second, the time", near[0], 10.0)
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
    agree("with 1e9 operations and 0.3e9 bytes, at 8e9 and 1e9 a second, the time", answer(1e9, 0.3e9)[0], 0.3)
    other = replace(gpu, flops=2e9, bandwidth=5e9)
    agree("of another gpu, with 1e9 operations at 2e9 a second, the time", answer(1e9, 1e9, other)[0], 0.5)
    slow = replace(gpu, bandwidth=1e6)
    require(
        answer(80e9, 1e9, slow)[1] == MEMORY, "with a memory 1,000 times as slow, the memory decides: use the gpu's own"
    )


@exercise(answer=solutions.attention_work)
def attention_work(attempt: Attempt) -> None:
    T, D = 6, 10

    def answer(T: int, D: int, fused: bool) -> tuple[float, float]:
        flops, moved = several(attempt(T, D, fused), "operations", "bytes")
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
        agree("the number of operations", answer(T, D, fused)[0], products, factors=factors)
    fused, unfused = answer(T, D, True)[1], answer(T, D, False)[1]
    longer = answer(2 * T, D, True)[1]
    require(
        abs(longer - 2 * fused) < 1e-9,
        f"fused, twice the tokens move {longer / fused:.3g} times the bytes, and must move 2 times: "
        "no T × T array leaves the chip",
    )
    factors = {"2: half precision has 2 bytes": 2.0, "½: half precision has 2 bytes": 0.5}
    factors |= {"¾: query, key, value and out are four": 0.75}
    agree("fused, the number of bytes", fused, least, factors=factors)
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
