"""Lesson 06: positions."""

import math
from typing import Any

import numpy as np

from minitransformer import ops
from minitransformer.layers import LearnedPositions, SinusoidalPositions
from minitransformer.layers.parameter import FlatParameters

from ..checks import (
    distinct,
    in_case,
    require,
    require_array,
    require_close,
    require_gradients,
    require_none_of,
    require_precision,
    type_name,
)
from ..exercise import Attempt, exercise
from . import solutions


def _sinusoids(num_positions: int, d_model: int) -> Any:
    return SinusoidalPositions(ops.numpy_ops, num_positions, d_model, "float64").table


def _learned_positions_backward(dout, max_length):
    positions = LearnedPositions(ops.numpy_ops, max_length, dout.shape[2])
    FlatParameters(dict(positions.named_parameters()), ops.numpy_ops, str(dout.dtype))
    _, cache = positions.forward(dout)
    positions.backward(dout, cache)
    return positions.table.grad


@exercise(answer=_sinusoids)
def sinusoids(attempt: Attempt) -> None:
    table = require_array(attempt(50, 8))
    require(table.shape == (50, 8), f"for 50 positions of width 8 its shape is {table.shape}: a row for each position")
    start = ", ".join(f"{value:.2g}" for value in table[0])
    require(
        not np.array_equal(table[0], [0, 0, 0, 0, 1, 1, 1, 1]),
        "position 0 is (0, 0, 0, 0, 1, 1, 1, 1): all sines, then all cosines; the formula has them in turn",
    )
    require(
        np.allclose(table[0], [0, 1] * 4),
        f"position 0 is ({start}) and must be (0, 1, 0, 1, 0, 1, 0, 1): sin 0 in the even columns and cos 0 in the odd "
        "ones, counting positions from 0",
    )
    require_precision("the table", table, _sinusoids(50, 8))
    pairs = (table**2).reshape(50, 4, 2).sum(axis=-1)
    worst = np.unravel_index(np.argmax(abs(pairs - 1)), pairs.shape)
    require(
        np.allclose(pairs, 1),
        f"in row {worst[0]} the squares of pair {worst[1]} sum to {distinct(pairs[worst], 1)[0]} and not to 1: "
        "a sine and its cosine must have the same angle, so the same i",
    )
    angles = np.arctan2(table[1, 0::2], table[1, 1::2])
    require(
        abs(angles[0] - 1) < 1e-9,
        f"from position 0 to 1 the first pair turns by {distinct(angles[0], 1)[0]} radians and must turn by 1: "
        "10000⁰ = 1",
    )
    require(
        0 < angles[-1] < 0.5,
        f"from position 0 to 1 the last pair of 8 columns turns by {angles[-1]:.2g} radians, and each pair must turn "
        "more slowly than the one before: the exponent is −2i/d_model, with its minus",
    )
    ratio = angles[0] / angles[1]
    require(abs(ratio**4 - 1000) > 1e-6, "the frequencies are powers of 1000, and must be of 10000")
    require(
        abs(ratio - 10) < 1e-6,
        f"with d_model = 8 each pair turns {distinct(ratio, 10)[0]} times as slowly as the one before, and must "
        "10000^(2/8) = 10 times: is the exponent 2i/d_model, with i counting pairs?",
    )
    require_close("the table", table, _sinusoids(50, 8))
    row, expected = attempt(5001, 64)[5000], _sinusoids(5001, 64)[5000]
    require_precision("with d_model = 64, row 5000", row, expected)
    require_close("with d_model = 64, row 5000", row, expected)
    short = attempt(10, 64).shape
    require(
        short == (10, 64), f"after a table of 5001 rows one of 10 has shape {short}: is a table kept from call to call?"
    )


@exercise(answer=solutions.encoding_length)
def encoding_length(attempt: Attempt) -> None:
    for d_model in (2, 8, 512, 6, 100):
        length = attempt(d_model)
        require(isinstance(length, int | float | np.number), f"it must return a number, not {type_name(length)}")
        said, right = float(length), math.sqrt(d_model / 2)
        hints = {
            -right: "a length is not negative",
            d_model / 2: "that is the squared length: take its root",
            round(right): "a length need not be a whole number",
            math.floor(right): "a length need not be a whole number",
        }
        hint = f"its square is {said**2:.4g}: how many pairs are there, and what does each add to it?"
        require(
            abs(said - right) < 1e-6 * right, f"for d_model = {d_model} you say {said:.4g}; {hints.get(said, hint)}"
        )


@exercise(answer=solutions.rotation)
def rotation(attempt: Attempt) -> None:
    table = _sinusoids(60, 8)
    still = require_array(attempt(0, 8))
    require(still.shape == (8, 8), f"for d_model = 8 its shape is {still.shape} and must be (8, 8)")
    nowhere = "an offset of 0 must leave everything where it is: the matrix"
    require(
        not np.array_equal(np.diag(still)[0::2], -np.diag(still)[1::2]) or not np.diag(still).any(),
        f"{nowhere} turns over every second column, as a mirror does: in a rotation both cosines have a plus",
    )
    ahead = {"turns by one position: the angle is offset · ω_i": solutions.rotation(1, 8)}
    require_none_of(nowhere, still, np.eye(8), ahead)
    require_close(nowhere, still, np.eye(8))
    M = attempt(3, 8)
    blocks = np.kron(np.eye(4), np.ones((2, 2))).astype(bool)
    outside = float(np.abs(M[~blocks]).max())
    require(
        outside == 0,
        f"it mixes columns of different pairs, by up to {outside:.1g}: hands turn each for itself, so outside the "
        "blocks of two columns, 2i and 2i + 1, all is exactly 0",
    )
    require(
        np.allclose(M @ M.T, np.eye(8)),
        "M Mᵀ is not the identity, so M changes lengths: each block needs cos² + sin² = 1 in its rows, "
        "and a minus before one of its sines",
    )
    require(
        not np.allclose(table[3:] @ M, table[:-3]),
        "it turns the hands back: PE[pos] @ M is PE[pos − offset]. Here PE is a row and stands on the left",
    )
    moved = table[:-3] @ M
    require_precision("PE[pos] @ M", moved, table[3:])
    first = np.abs(moved - table[3:]).reshape(57, 4, 2).max(axis=(0, 2))
    require(
        not (first[0] < 1e-9 and first[1:].max() > 1e-9),
        "the first pair of columns arrives where it must, the others do not: each pair has its own "
        "ω_i = 10000^(−2i / d_model)",
    )
    require(
        np.allclose(moved, table[3:]),
        f"PE[pos] @ M is not PE[pos + 3] (pair 0 is off by {first[0]:.2g}): which of its two addition theorems is the "
        "first column of a block, and which the second?",
    )
    require_close("with d_model = 16 the matrix", attempt(3, 16), solutions.rotation(3, 16))
    require_close("for the offset −5 the matrix", attempt(-5, 16), solutions.rotation(-5, 16))


@exercise(answer=_learned_positions_backward)
def learned_positions_backward(attempt: Attempt) -> None:
    dout = np.random.default_rng(0).standard_normal((3, 4, 2))
    dtable = require_array(attempt(dout, 6))
    require(
        dtable.shape == (6, 2),
        f"its shape is {dtable.shape} and must be the table's, (6, 2): the batch is summed over, and every row of the "
        "table has a gradient, used or not",
    )
    require(not dtable[4:].any(), "rows 4 and 5 were not used by sentences of 4 words, and get no gradient")
    twice = attempt(np.concatenate([dout, dout]), 6)
    require(
        np.allclose(twice, 2 * dtable),
        "with every sentence given twice the gradient must double: sentences add up, they are not averaged, and none "
        "overwrites another's",
    )
    right = np.concatenate([dout.sum(axis=0), np.zeros((2, 2))])
    used = (np.arange(6) < 4)[:, None]
    mistakes = {
        "adds up over the positions: each row is used at its own position alone": np.cumsum(right, axis=0) * used,
        "stands one row too late: position 0 has row 0": np.roll(right, 1, axis=0) * used,
    }
    require_none_of("the gradient of the table", dtable, right, mistakes)
    require_close("the gradient of the table", dtable, right)
    require_gradients(
        lambda table: (np.zeros((3, 4, 2)) + table[:4], None), lambda dy, _: attempt(dy, 6), {"table": np.ones((6, 2))}
    )
    with in_case("for sentences as long as the table, T = max_length,"):
        require_close("the gradient", attempt(dout, 4), dout.sum(axis=0))
