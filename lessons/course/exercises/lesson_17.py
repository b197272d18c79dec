"""Lesson 17: the roofline, and swapping kernels in."""

import math
from dataclasses import replace

from ..exercise import Attempt, exercise
from ..judging import agree, require, several
from ..roofline import GPUS, Gpu

MEMORY, ARITHMETIC = "memory", "arithmetic"


def _least_seconds(flops, moved, gpu):
    arithmetic, memory = flops / gpu.flops, moved / gpu.bandwidth
    return max(arithmetic, memory), ARITHMETIC if arithmetic > memory else MEMORY


def _attention_work(T, D, fused):
    return 4 * T * T * D, 2 * (4 * T * D + (0 if fused else 4 * T * T))


def _enough_tokens(C_in, C_out, gpu):
    arithmetic = 2 * C_in * C_out / gpu.flops - 2 * (C_in + C_out) / gpu.bandwidth  # seconds for each token
    return math.ceil(2 * C_in * C_out / gpu.bandwidth / arithmetic) if arithmetic > 0 else math.inf


@exercise(answer=_least_seconds)
def least_seconds(attempt: Attempt) -> None:
    gpu = Gpu("made up", 2000, "float32", flops=8e9, bandwidth=1e9)  # 8 operations for each byte

    def answer(flops: float, moved: float, gpu: Gpu = gpu) -> tuple[float, str]:
        result = attempt(flops, moved, gpu)
        several(result, "the seconds", "what decides")
        seconds, limit = result
        require(limit in (MEMORY, ARITHMETIC), f'what decides must be "memory" or "arithmetic", and it is {limit!r}')
        return float(seconds), limit

    far, near = answer(80e9, 1e9), answer(1e9, 10e9)  # 10 s against 1 s; 0.125 s against 10 s
    for (seconds, _), slower, quicker in ((far, 10.0, 1.0), (near, 10.0, 0.125)):
        together = abs(seconds - slower - quicker) < 1e-9
        require(not together, f"{slower:g} s of one and {quicker:g} s of the other make their sum: but they overlap")
        require(abs(seconds - quicker) > 1e-9, "the time is the quicker one's: it cannot end before the slower is done")
    agree("with 80e9 operations and 1e9 bytes, at 8e9 and 1e9 a second, the time", far[0], 10.0)
    agree("with 1e9 operations and 10e9 bytes, at 8e9 and 1e9 a second, the time", near[0], 10.0)
    require(
        (far[1], near[1]) != (MEMORY, ARITHMETIC),
        "80 operations for each byte, where the machine does 8, are called bound by memory: the names are swapped",
    )
    between = answer(4e9, 1e9)  # more operations than bytes, and fewer than 8 for each
    require(
        between[1] == MEMORY,
        "4 operations for each byte are called bound by arithmetic: compare seconds, not operations with bytes",
    )
    require(far[1] == ARITHMETIC, "80 operations for each byte, where the machine does 8, are bound by arithmetic")
    slow = replace(gpu, bandwidth=1e6)
    require(
        answer(80e9, 1e9, slow)[1] == MEMORY, "with a memory 1,000 times as slow, the memory decides: use the gpu's own"
    )


@exercise(answer=_attention_work)
def attention_work(attempt: Attempt) -> None:
    T, D = 6, 10

    def answer(T: int, D: int, fused: bool) -> tuple[float, float]:
        flops, moved = several(attempt(T, D, fused), "operations", "bytes")
        return float(flops), float(moved)

    for fused in (True, False):
        factors = {"½: there are two products, and a multiplication and an addition in each term": 0.5}
        factors |= {"¼: two products, each term a multiplication and an addition": 0.25}
        agree("the operations", answer(T, D, fused)[0], 4.0 * T * T * D, factors=factors)
    fused, unfused = answer(T, D, True)[1], answer(T, D, False)[1]
    longer = answer(2 * T, D, True)[1]
    require(
        abs(longer - 2 * fused) < 1e-9,
        f"fused, twice the tokens move {longer / fused:.3g} times the bytes, and must move 2 times: "
        "no T × T array leaves the chip",
    )
    factors = {"2: half precision has 2 bytes": 2.0, "½: half precision has 2 bytes": 0.5}
    factors |= {"¾: query, key, value and out are four": 0.75}
    agree("fused, the bytes", fused, 8.0 * T * D, factors=factors)
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

    def seconds(N: float, C_in: int, C_out: int) -> tuple[float, float]:
        moved = 2 * (N * C_in + C_in * C_out + N * C_out)
        return 2 * N * C_in * C_out / gpu.flops, moved / gpu.bandwidth

    narrow = answer(100, 100)
    require(
        narrow == math.inf,
        f"for 100 → 100 it says {narrow:g}, and no number is enough: a token alone brings 400 bytes for 20,000 "
        "operations, where the machine does 100 for each byte; return math.inf",
    )
    square, wide = answer(1000, 1000), answer(400, 1600)
    for C_in, C_out, N in ((1000, 1000, square), (400, 1600, wide)):
        require(math.isfinite(N), f"for {C_in} → {C_out} it says {N:g}: this layer is wide enough")
        weights_only = math.ceil(gpu.flops / gpu.bandwidth)
        require(
            weights_only != N,
            f"for {C_in} → {C_out} it says {N:g}, which would do if only the weights moved: the tokens that go in and "
            "come out move too",
        )
        arithmetic, memory = seconds(N, C_in, C_out)
        require(
            arithmetic >= memory * (1 - 1e-9),
            f"for {C_in} → {C_out} and {N:g} tokens arithmetic takes {arithmetic:.3e} s and memory {memory:.3e} s: "
            "memory still decides",
        )
        arithmetic, memory = seconds(N - 1, C_in, C_out)
        require(arithmetic < memory, f"for {C_in} → {C_out} it says {N:g}, and {N - 1:g} would be enough")
        require(int(N) == N, f"it says {N}, and tokens come whole")
    require(answer(512, 2048, GPUS[-1]) == _enough_tokens(512, 2048, GPUS[-1]), "with another gpu it is wrong")
