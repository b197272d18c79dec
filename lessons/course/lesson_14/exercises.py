"""Lesson 14: NumPy speed."""

import copy
import math
from typing import Any

import numpy as np

from ..checks import peak_memory, require, require_close, require_none_of
from ..exercise import Attempt, Wrong, exercise
from ..measuring import Machine
from . import solutions

ENDLESS = 1e30
"""A rate so high that it is never the limit."""


@exercise(answer=solutions.predicted_seconds)
def predicted_seconds(attempt: Attempt) -> None:
    m, k, n = 30, 50, 70

    def answer(flops: float, bandwidth: float, call: float, m: int = m, k: int = k, n: int = n) -> float:
        return float(attempt(m, k, n, Machine(flops, bandwidth, call)))

    arithmetic = answer(1e9, ENDLESS, 0.0)
    require(arithmetic > 1e-9, "with an endlessly fast memory it predicts no time: the slower decides, not the faster")
    require(arithmetic < 1e20, "with an endlessly fast memory it takes for ever: bytes are divided by the bandwidth")
    for wrong, why in (
        (2 * m * k * n * 1e9, "multiplied by flops"),
        (1e9 / (2 * m * k * n), "what flops is divided by"),
    ):
        require(abs(arithmetic / wrong - 1) > 1e-9, f"the operations are {why}, and must be divided by it")
    require_close(
        "where the memory is endlessly fast, 2·m·k·n / flops",
        arithmetic,
        2 * m * k * n / 1e9,
        factors={
            "½: a multiplication and an addition are two operations": 0.5,
            "2: a multiplication and an addition are two operations, not four": 2.0,
        },
    )
    moved = 4 * (m * k + k * n + m * n)
    memory = answer(ENDLESS, 1.0, 0.0)
    require(memory > 1e-9, "with endlessly fast arithmetic it predicts no time, and the matrices still have to travel")
    for name, rows, columns in (("the left matrix", m, k), ("the right one", k, n), ("the product", m, n)):
        forgotten = abs(memory / (moved - 4 * rows * columns) - 1) < 1e-9
        require(not forgotten, f"{name}, {rows} × {columns}, goes through memory too")
    case = "where arithmetic is endlessly fast, the bytes of the three matrices / bandwidth"
    mistakes = {
        "counts the product twice: it is written once": moved + 4 * m * n,
        "counts m · k · n numbers: that is how many products there are, and a matrix has rows · columns": 4 * m * k * n,
        "counts m + k + n numbers: a matrix has rows · columns": 4 * (m + k + n),
    }
    require_none_of(case, memory, moved, mistakes)
    require_close(
        case,
        memory,
        float(moved),
        factors={
            "¼: a float32 has 4 bytes": 0.25,
            "½: a float32 has 4 bytes, a float16 has 2": 0.5,
            "2: a float32 has 4 bytes, a float64 has 8": 2.0,
        },
    )
    alone = answer(ENDLESS, ENDLESS, 1e-6)
    require(abs(alone - 1e-6) < 1e-12, f"a product of nothing takes {alone:.1e} s, and a call alone is 1.0e-06 s")
    equal = answer(2 * m * k * n, moved, 0.0)  # a second of arithmetic, a second of memory
    require(
        equal != 2.0,
        "a second of arithmetic and a second of memory make 2 s: but it computes while it moves, so the slower decides",
    )
    require_close("with a second of arithmetic and a second of memory it", equal, 1.0)
    for call in (0.5, 2.0):
        called = answer(2 * m * k * n, moved, call)
        require_close(f"with a second of each and a call of {call:g} s, which comes on top, it", called, 1.0 + call)


@exercise(answer=solutions.adam_step, in_place=True)
def adam_step(attempt: Attempt) -> None:
    def arrays(size: int, dtype: type = np.float64) -> list[np.ndarray]:
        data, grad, m, v = np.random.default_rng(size).standard_normal((4, size)).astype(dtype)
        return [data, grad, m, np.abs(v)]

    def done(size: int, block: int, step: int = 3) -> tuple[list[np.ndarray], list[np.ndarray]]:
        actual, expected = arrays(size), arrays(size)
        attempt(*actual, step, 0.1, block)
        solutions.adam_step(*expected, step=step, lr=0.1)
        return actual, expected

    factor = (1 - 0.9**3) / math.sqrt(1 - 0.98**3)
    uncorrected = {
        "the sum without 1 − beta1^step and 1 − beta2^step below m and v": factor,
        "the sum without 1 − beta2^step below v": 1 / math.sqrt(1 - 0.98**3),
        "the sum without 1 − beta1^step below m": 1 - 0.9**3,
    }
    before = arrays(10)
    actual, expected = done(10, 10)
    require(np.array_equal(actual[1], before[1]), "it writes into grad: only data, m and v are to change")
    for i, name in ((2, "m"), (3, "v"), (0, "data")):
        require(
            not np.array_equal(actual[i], before[i]),
            f"{name} is as it was: `{name} = …` only makes a new array, `{name}[...] = …` writes into the old one",
        )
        what, change, right = name, actual[i], expected[i]
        if name == "data":
            what, change, right = "what is subtracted from data", before[i] - actual[i], before[i] - expected[i]
        require(
            np.isclose(actual[i][0], expected[i][0]) or name != "m" or not np.allclose(actual[i][1:], expected[i][1:]),
            "m is right but for the first parameter: blocks begin at 0",
        )
        require_none_of(f"with all parameters in one block, {what}", change, right, _adam_mistakes(before, name))
        require_close(f"with all parameters in one block, {what}", change, right, factors=uncorrected)
    for size, block in ((12, 4), (11, 4), (3, 8)):
        actual, expected = done(size, block)
        for i, name in ((2, "m"), (3, "v"), (0, "data")):
            wrong = np.flatnonzero(~np.isclose(actual[i], expected[i]))
            require(
                not (len(wrong) and wrong[0] == size // block * block),
                f"of {size} parameters in blocks of {block} the last {size % block} are not updated: "
                "the last block may be shorter",
            )
            require_close(f"of {size} parameters in blocks of {block}, {name}", actual[i], expected[i])
    for name, value in {"step": 7, "lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 0.1}.items():
        options: dict[str, Any] = {"step": 3, "lr": 0.1, name: value}
        actual, expected = arrays(11), arrays(11)
        attempt(*actual, **options)
        data, grad, m, v = expected
        solutions.adam_step(data, grad, m, v, **options)
        likely = f"is {name} ignored, or written as a number?"
        if name == "eps":
            likely = "is it used, and added to √(v / (1 − beta2^step)), outside the root and after the correction?"
        for i, changed in ((2, "m"), (3, "v"), (0, "data")):
            require(
                np.allclose(actual[i], expected[i]),
                f"with {name} = {value}, and all else as before, {changed} is wrong: {likely}",
            )
    small = [np.array([1.0, -1.0]), np.array([0.0, 1e-9]), np.zeros(2), np.zeros(2)]
    actual, expected = copy.deepcopy(small), copy.deepcopy(small)
    attempt(*actual, 1, 0.1)
    solutions.adam_step(*expected, step=1, lr=0.1)
    require(
        np.allclose(actual[0], expected[0]),
        "where no eps is given, and the gradients are 0 and 10⁻⁹ in the first step, data becomes "
        f"{actual[0][0]:.4g} and {actual[0][1]:.4g} and must become {expected[0][0]:.4g} and {expected[0][1]:.4g}: the "
        "contract's default is eps=1e-9, without which 0 is divided by 0",
    )
    size, block = 1 << 18, 1 << 14  # large in comparison with what Python itself allocates
    wide, narrow = (_temporaries(attempt, arrays(size, dtype), block) for dtype in (np.float64, np.float32))
    require(
        wide < 10 * 8 * block,
        f"on {size:,} parameters in blocks of {block:,} its temporary arrays are {wide / 8 / block:.0f} blocks large: "
        "is every operation on a slice of `block` elements?",
    )
    wider = _temporaries(attempt, arrays(size), 4 * block)
    require(
        wider > 2 * wide,
        f"its temporary arrays are as large with blocks of {4 * block:,} parameters as with blocks of {block:,}: is "
        "`block` ignored?",
    )
    require(
        narrow < 0.8 * wide,
        "on float32 its temporary arrays are as large as on float64: a scalar of type np.float64 makes float64 of all "
        "that it touches; take math.sqrt, or float(…)",
    )


def _adam_mistakes(before: list[np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Return what likely mistakes give for m, for v or for what is subtracted from data, in step 3 with lr = 0.1."""
    _, grad, m, v = before
    if name == "m":
        return {
            "has 1 − beta2 times grad: m's own is beta1": 0.9 * m + 0.02 * grad,
            "has all of grad added: its part is 1 − beta1": 0.9 * m + grad,
            "shrinks by beta2: m's own is beta1": 0.98 * m + 0.1 * grad,
        }
    if name == "v":
        return {
            "shrinks by beta1: v's own is beta2": 0.9 * v + 0.02 * grad**2,
            "has the size of grad, and must have its square": 0.98 * v + 0.02 * np.abs(grad),
            "has all of grad² added: its part is 1 − beta2": 0.98 * v + grad**2,
            "has 1 − beta1 times grad²: v's own is beta2": 0.98 * v + 0.1 * grad**2,
        }
    m, v = 0.9 * m + 0.1 * grad, 0.98 * v + 0.02 * grad**2
    m_hat, v_hat = m / (1 - 0.9**3), v / (1 - 0.98**3)
    root = math.sqrt(1 - 0.98**3)
    return {
        "is divided by v̂, and must be by its root": 0.1 * m_hat / (v_hat + 1e-9),
        "is divided by v, and must be by the root of v̂": 0.1 * root * m_hat / v,
        "is made of grad, and must be of m": 0.1 * grad / (np.sqrt(v_hat) + 1e-9),
    }


def _temporaries(attempt: Attempt, arrays: list[np.ndarray], block: int) -> int:
    """The bytes that a step needs at a time, beyond its arguments."""
    return peak_memory(lambda: attempt(*arrays, 3, 0.1, block))


@exercise(answer=solutions.speed_up)
def speed_up(attempt: Attempt) -> None:
    def answer(shares: list[float], times: list[float]) -> float:
        result = attempt(np.array(shares), np.array(times))
        if np.ndim(result):
            raise Wrong(f"it returns an array of shape {np.shape(result)}: it is one number, for the whole")
        return float(result)

    alone = answer([1.0], [4.0])
    over = {"1/16: the new time over the old": 1 / 16, "100: it is how many times as fast, not in percent": 100.0}
    require_close("where all of the step becomes 4 times as fast, the speed-up", alone, 4.0, factors=over)
    half = answer([0.5], [2.0])
    require(
        half < 2.0,
        f"half of the step twice as fast makes it {half:g} times as fast, as if the other half took no time",
    )
    require(
        abs(half - 1.5) > 1e-9,
        "half of the step twice as fast makes 1.5: the mean of the speed-ups. What adds up are seconds: ½ + ½ / 2",
    )
    require(
        abs(half - 1) > 1e-9,
        "half of the step twice as fast makes 1, no gain: that is Σ shares · times, without what is left as it was",
    )
    require(
        abs(half - 0.8) > 1e-9, "half of the step twice as fast makes 0.8, as if the other half took twice its time"
    )
    require_close("where half of the step becomes twice as fast, the speed-up", half, 1 / 0.75)
    require_close("where half of the step becomes endlessly fast, the speed-up", answer([0.5], [np.inf]), 2.0)
    require_close(
        "where a half becomes 2 times and a quarter 4 times as fast, the speed-up",
        answer([0.5, 0.25], [2.0, 4.0]),
        1 / (0.25 + 0.25 + 0.0625),
    )
    three = answer([0.25, 0.25, 0.25], [2.0, 4.0, 8.0])
    require_close("where three quarters become 2, 4 and 8 times as fast, the speed-up", three, 1 / 0.46875)
    slower = answer([0.5], [0.5])
    require(
        abs(slower - 2 / 3) < 1e-9,
        f"where half of the step becomes half as fast, it says {slower:.4g} times as fast, and it is 2/3: times below "
        "1 count too",
    )
