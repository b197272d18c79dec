"""Answers to lesson 06: right ones written in another way, and plausible wrong ones (see `answers`)."""

import math

import numpy as np


def _angles(num_positions, d_model, first=0, exponent=1.0):
    frequencies = 10000.0 ** (-exponent * np.arange(0, d_model, 2) / d_model)
    return np.arange(first, num_positions + first)[:, None] * frequencies


def _in_turn(sines, cosines):
    return np.stack([sines, cosines], axis=-1).reshape(len(sines), -1)


def _sines_and_cosines(*args, kind="float64", **options):
    angles = _angles(*args, **options).astype(kind)
    return _in_turn(np.sin(angles), np.cos(angles))


KEPT = {}


def _kept(num_positions, d_model):
    """A table that is made once, as long as it was first asked for."""
    if len(KEPT.get(d_model, ())) < num_positions:
        KEPT[d_model] = _sines_and_cosines(num_positions, d_model)
    return KEPT[d_model]


def _every_column_its_own(num_positions, d_model):
    angles = np.arange(num_positions)[:, None] * 10000.0 ** (-np.arange(d_model) / d_model)
    return _in_turn(np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2]))


def _halves(num_positions, d_model):
    angles = _angles(num_positions, d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _cosines_first(num_positions, d_model):
    angles = _angles(num_positions, d_model)
    return _in_turn(np.cos(angles), np.sin(angles))


def _blocks(offset, d_model, block, exponent=1.0):
    matrix = np.zeros((d_model, d_model))
    for pair in range(0, d_model, 2):
        angle = offset * 10000 ** (-exponent * pair / d_model)
        matrix[pair : pair + 2, pair : pair + 2] = block(math.cos(angle), math.sin(angle))
    return matrix


def _shifted(offset, d_model):
    return np.eye(d_model) + offset * np.eye(d_model, k=1)


def _rotated(offset, d_model):
    return _blocks(offset, d_model, block=lambda cosine, sine: [[cosine, -sine], [sine, cosine]])


def _by_least_squares(offset, d_model):
    here, there = (_sines_and_cosines(9 * d_model, d_model, first=first) for first in (10, 10 + offset))
    return np.linalg.lstsq(here, there, rcond=None)[0]


def _in_halves(offset, d_model):
    cosines, sines = (np.diag(f(offset * _angles(2, d_model)[1])) for f in (np.cos, np.sin))
    return np.block([[cosines, -sines], [sines, cosines]])


def _summed(dout, max_length):
    return np.pad(dout.sum(axis=0), ((0, max_length - dout.shape[1]), (0, 0)))


def _counted_from_the_end(dout, max_length):
    dtable = np.zeros((max_length, dout.shape[2]))
    dtable[: -(max_length - dout.shape[1])] = dout.sum(axis=0)
    return dtable


def _averaged(dout, max_length):
    dtable = np.zeros((max_length, dout.shape[2]))
    dtable[: dout.shape[1]] = dout.mean(axis=0)
    return dtable


def _summed_over_positions(dout, max_length):
    return np.zeros((max_length, dout.shape[2])) + dout.sum(axis=(0, 1))


def _backwards(dout, max_length):
    dtable = np.zeros((max_length, dout.shape[2]))
    dtable[: dout.shape[1]] = dout.sum(axis=0)[::-1]
    return dtable


def _sines_in_loops(num_positions, d_model):
    table = np.zeros((num_positions, d_model))
    for pos in range(num_positions):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i], table[pos, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


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


def _rows_added(dout, max_length):
    dtable = np.zeros((max_length, dout.shape[2]))
    for sentence in dout:
        dtable[: len(sentence)] += sentence
    return dtable


def _rows_added_at(dout, max_length):
    dtable = np.zeros((max_length, dout.shape[2]))
    np.add.at(dtable, np.tile(np.arange(dout.shape[1]), len(dout)), dout.reshape(-1, dout.shape[2]))
    return dtable


RIGHT = {
    "sinusoids": [_sines_in_loops, _sines_of_complex_numbers],
    "encoding_length": [
        lambda d_model: np.linalg.norm(_sines_in_loops(4, d_model)[3]),
        lambda d_model: (d_model / 2) ** 0.5,
    ],
    "rotation": [lambda offset, d_model: np.linalg.matrix_power(_one_turn(d_model), offset)],
    "learned_positions_backward": [_rows_added, _rows_added_at],
}


WRONG = {
    "sinusoids": {
        "all sines, then all cosines": (_halves, "in turn"),
        "cosines first": (_cosines_first, "sin 0 in the even columns"),
        "positions from 1": (lambda *args: _sines_and_cosines(*args, first=1), "position 0 is (0.84, 0.54"),
        "a frequency for each column": (_every_column_its_own, "the squares of pair"),
        "i/d_model for 2i/d_model": (
            lambda *args: _sines_and_cosines(*args, exponent=0.5),
            "is the exponent 2i/d_model",
        ),
        "frequencies that grow": (lambda *args: _sines_and_cosines(*args, exponent=-1), "with its minus"),
        "transposed": (lambda *args: _sines_and_cosines(*args).T, "a row for each position"),
        "in float32": (lambda *args: _sines_and_cosines(*args).astype(np.float32), "float32, which rounds"),
        "angles in float32": (
            lambda *args: _sines_and_cosines(*args, kind="float32").astype(float),
            "computed in float32, on the way?",
        ),
        "rounded": (lambda *args: _sines_and_cosines(*args).round(5), "the table is right to about 5e-06 only"),
        "a row too many": (lambda n, d_model: _sines_and_cosines(n + 1, d_model), "its shape is (51, 8)"),
        "a width of 8": (
            lambda n, d_model: _sines_and_cosines(n, d_model, exponent=d_model / 8),
            "with d_model = 64, row 5000",
        ),
        "kept": (_kept, "is a table kept from call to call?"),
        "by way of float32": (
            lambda *args: _sines_and_cosines(*args).astype(np.float32).astype(float),
            "the table is right to about 3e-08 only",
        ),
    },
    "encoding_length": {
        "the squared length": (lambda d_model: d_model / 2, "take its root"),
        "as if every column had length 1": (math.sqrt, "how many pairs are there"),
        "one": (lambda d_model: 1.0, "its square is 1"),
        "whole": (lambda d_model: int(math.sqrt(d_model / 2)), "you say 1; a length need not be a whole number"),
        "rounded": (lambda d_model: round(math.sqrt(d_model / 2)), "you say 2; a length need not be a whole number"),
        "the other root": (lambda d_model: -math.sqrt(d_model / 2), "a length is not negative"),
    },
    "rotation": {
        "transposed": (
            lambda *args: _blocks(*args, block=lambda cosine, sine: [[cosine, sine], [-sine, cosine]]),
            "it turns the hands back",
        ),
        "no minus": (
            lambda *args: _blocks(*args, block=lambda cosine, sine: [[cosine, sine], [sine, cosine]]),
            "a minus before one of its sines",
        ),
        "one frequency": (
            lambda *args: _blocks(*args, block=lambda cosine, sine: [[cosine, -sine], [sine, cosine]], exponent=0),
            "each pair has its own ω_i",
        ),
        "sines on the diagonal": (
            lambda *args: _blocks(*args, block=lambda cosine, sine: [[sine, cosine], [cosine, -sine]]),
            "an offset of 0 must leave everything where it is",
        ),
        "a shift of columns": (_shifted, "it mixes columns of different pairs"),
        "another pace": (
            lambda offset, d_model: _blocks(
                2 * offset, d_model, block=lambda cosine, sine: [[cosine, -sine], [sine, cosine]]
            ),
            "is not PE[pos + 3]",
        ),
        "in float32": (lambda *args: _rotated(*args).astype(np.float32), "float32, which rounds"),
        "rounded": (lambda *args: _rotated(*args).round(5), "PE[pos] @ M is right to about"),
        "by least squares": (_by_least_squares, "outside the blocks of two columns"),
        "sines and cosines in halves": (_in_halves, "by up to 0.3: hands turn each for itself"),
        "the size of the offset": (lambda offset, d_model: _rotated(abs(offset), d_model), "for the offset −5"),
        "a width of 8": (lambda offset, d_model: _rotated(offset, 8), "has shape (8, 8) and must have (16, 16)"),
    },
    "learned_positions_backward": {
        "averaged": (_averaged, "they are not averaged"),
        "only the rows in use": (lambda dout, max_length: dout.sum(axis=0), "every row of the table"),
        "over positions": (_summed_over_positions, "rows 4 and 5 were not used"),
        "the order turned round": (_backwards, "the gradient of table is wrong"),
        "of each sentence": (lambda dout, max_length: dout, "the batch is summed over"),
        "in float32": (lambda *args: _summed(*args).astype(np.float32), "float32, which rounds"),
        "rows counted from the end": (_counted_from_the_end, "as long as the table, T = max_length, it raises"),
        "a tuple": (lambda *args: (_summed(*args),), "an array, not tuple"),
    },
}
