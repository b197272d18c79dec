"""Answers to lesson 06: right ones written in another way, and plausible wrong ones (see `answers`)."""

import math

import numpy as np

from course.lesson_06.solutions import sinusoids

KEPT = {}


def _kept(num_positions, d_model):
    """A table that is made once, as long as it was first asked for."""
    if len(KEPT.get(d_model, ())) < num_positions:
        KEPT[d_model] = sinusoids(num_positions, d_model)
    return KEPT[d_model]


def _by_least_squares(offset, d_model):
    table = sinusoids(20 * d_model, d_model)
    return np.linalg.lstsq(table[10 : 9 * d_model], table[10 + offset : 9 * d_model + offset], rcond=None)[0]


def _sines_of_complex_numbers(num_positions, d_model):
    tips = np.exp(1j * np.outer(np.arange(num_positions), np.exp(-np.log(1e4) * np.arange(0, d_model, 2) / d_model)))
    return np.stack([np.imag(tips), np.real(tips)], axis=-1).reshape(num_positions, d_model)


def _one_turn(d_model):
    turn = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        omega = 10000 ** (-i / d_model)
        turn[i, i : i + 2] = math.cos(omega), -math.sin(omega)
        turn[i + 1, i : i + 2] = math.sin(omega), math.cos(omega)
    return turn


def _rows_added_at(dout, max_length):
    dtable = np.zeros((max_length, dout.shape[2]))
    np.add.at(dtable, np.tile(np.arange(dout.shape[1]), len(dout)), dout.reshape(-1, dout.shape[2]))
    return dtable


RIGHT = {
    "sinusoids": [_sines_of_complex_numbers],
    "encoding_length": [lambda d_model: (d_model / 2) ** 0.5],
    "rotation": [lambda offset, d_model: np.linalg.matrix_power(_one_turn(d_model), offset)],
    "learned_positions_backward": [_rows_added_at],
}


MISTAKES = r"""
[sinusoids]
all sines, then all cosines
    table[:, 0::2], table[:, 1::2] → table[:, : d_model // 2], table[:, d_model // 2 :] | in turn
cosines first | np.sin(angles), np.cos(angles) → np.cos(angles), np.sin(angles) | sin 0 in the even columns
a frequency for each column
    np.arange(0, d_model, 2) → np.arange(d_model)
    np.sin(angles), np.cos(angles) → np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2]) | the squares of pair
i/d_model for 2i/d_model | (0, d_model, 2) / d_model) → (0, d_model, 2) / d_model / 2) | is the exponent 2i/d_model
frequencies that grow | (-np.arange → (np.arange | with its minus
transposed | returns answer.T | a row for each position
a width of 8 | np.arange(0, d_model, 2) / d_model) → np.arange(0, d_model, 2) / 8) | with d_model = 64, row 5000
by way of float32 | returns answer.astype(np.float32).astype(float) | the table is right to about 3e-08 only
kept | is _kept | is a table kept from call to call?
[rotation]
a mirror
    M[sines, sines] = M[cosines, cosines] = np.cos(angles) →
        M[sines, sines] = np.cos(angles); M[cosines, cosines] = -M[sines, sines]
    M[sines, cosines] = -np.sin → M[sines, cosines] = np.sin | as a mirror does
transposed | returns answer.T | it turns the hands back
no minus | -np.sin → np.sin | a minus before one of its sines
one frequency | offset * 10000.0 → offset * 1.0 | each pair has its own ω_i
sines on the diagonal
    M[cosines, cosines] = np.cos → M[cosines, cosines] = np.sin
    M[cosines, sines] = np.sin → M[cosines, sines] = np.cos | an offset of 0 must leave everything where it is
another pace | angles = offset → angles = 2 * offset | is not PE[pos + 3]
rounded | returns answer.round(5) | PE[pos] @ M is right to about
sines and cosines in halves
    = np.arange(0, d_model, 2), np.arange(1, d_model, 2) → = np.arange(d_model // 2), np.arange(d_model // 2, d_model)
    by up to 0.3: hands turn each for itself
the size of the offset | angles = offset → angles = abs(offset) | for the offset −5
by least squares | is _by_least_squares | outside the blocks of two columns
a width of 8 | returns solution(offset, 8) | has shape (8, 8) and must have (16, 16)
[learned_positions_backward]
averaged | dout.sum → dout.mean | they are not averaged
over positions
    dtable[: dout.shape[1]] = dout.sum(axis=0) → dtable[:] = dout.sum(axis=(0, 1)) | rows 4 and 5 were not used
the order turned round | dout.sum(axis=0) → dout.sum(axis=0)[::-1] | the gradient of the table is wrong
rows counted from the end
    dtable[: dout.shape[1]] → dtable[: -(max_length - dout.shape[1])] | as long as the table, T = max_length, it raises
a tuple | returns (answer,) | an array, not tuple
only the rows in use | returns dout.sum(axis=0) | every row of the table
of each sentence | returns dout | the batch is summed over
[encoding_length]
the squared length | returns d_model / 2 | take its root
as if every column had length 1 | is math.sqrt | how many pairs are there
rounded | returns round(math.sqrt(d_model / 2)) | you say 2; a length need not be a whole number
the other root | returns -math.sqrt(d_model / 2) | a length is not negative
"""
