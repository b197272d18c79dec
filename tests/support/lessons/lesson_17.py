"""Plausible wrong answers to lesson 17 (see `answers`)."""

import math
from dataclasses import replace


def _limits(combine=max, names=("arithmetic", "memory"), by_seconds=True):
    def least_seconds(flops, moved, gpu):
        arithmetic, memory = flops / gpu.flops, moved / gpu.bandwidth
        first = arithmetic > memory if by_seconds else flops > moved
        return combine(arithmetic, memory), names[0] if first else names[1]

    return least_seconds


def _work(flops=4, arrays=4, item=2, squares=4, always=0):
    def attention_work(T, D, fused):
        return flops * T * T * D, item * (arrays * T * D + (always if fused else squares) * T * T)

    return attention_work


def _rounded(C_in, C_out, gpu, rounding=math.floor, memory=2.0, never=math.inf):
    arithmetic = 2 * C_in * C_out / gpu.flops - memory * (C_in + C_out) / gpu.bandwidth
    return rounding(2 * C_in * C_out / gpu.bandwidth / arithmetic) if arithmetic > 0 else never


EDITS = r"""

"""

WRONG = {
    "least_seconds": {
        "one after the other": (_limits(combine=lambda a, b: a + b), "they overlap"),
        "the quicker": (_limits(combine=min), "cannot end before the slower"),
        "the names are swapped": (_limits(names=("memory", "arithmetic")), "the names are swapped"),
        "operations against bytes": (_limits(by_seconds=False), "compare seconds, not operations with bytes"),
        "one gpu's operations": (
            lambda flops, moved, gpu: _limits()(flops, moved, replace(gpu, flops=8e9)),
            "another gpu",
        ),
        "whole seconds": (_limits(combine=lambda a, b: int(max(a, b))), "0.3e9 bytes"),
        "other words": (_limits(names=("compute", "memory")), "and it is 'compute'"),
        "the time alone": (lambda flops, moved, gpu: flops / gpu.flops, "must return 2 arrays"),
    },
    "attention_work": {
        "one product": (_work(flops=2), "there are two products"),
        "the softmax's operations": (
            lambda T, D, fused: (_work()(T, D, fused)[0] + 5 * T * T, _work()(T, D, fused)[1]),
            "count the products alone",
        ),
        "exchanged": (lambda T, D, fused: _work()(T, D, fused)[::-1], "(operations, bytes)"),
        "no output": (_work(arrays=3, squares=4), "query, key, value and out are four"),
        "float32": (_work(item=4), "half precision has 2 bytes"),
        "written and read once": (_work(squares=2), "unfused, 2 arrays of T × T"),
        "fused writes the weights": (_work(always=1), "no T × T array leaves the chip"),
    },
    "enough_tokens": {
        "the weights alone": (lambda C_in, C_out, gpu: math.ceil(gpu.flops / gpu.bandwidth), "no number is enough"),
        "the weights alone, and a guard": (
            lambda C_in, C_out, gpu: math.inf if C_in < 200 else math.ceil(gpu.flops / gpu.bandwidth),
            "if only the weights moved",
        ),
        "float32": (
            lambda C_in, C_out, gpu: _rounded(C_in, C_out, replace(gpu, bandwidth=gpu.bandwidth / 2), math.ceil),
            "a half-precision number has 2 bytes",
        ),
        "rounded down": (_rounded, "memory still decides"),
        "one too many": (lambda C_in, C_out, gpu: _rounded(C_in, C_out, gpu) + 2, "would be enough"),
        "a negative number": (
            lambda C_in, C_out, gpu: math.ceil(
                2 * C_in * C_out / gpu.bandwidth / (2 * C_in * C_out / gpu.flops - 2 * (C_in + C_out) / gpu.bandwidth)
            ),
            "for 100 → 100 it says -",
        ),
    },
}
