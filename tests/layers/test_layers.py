"""Properties of a layer that no whole model shows: sinusoids at any position, and the state of a recurrent layer."""

import math

import numpy as np
import pytest
from support import torch_twins
from support.prove_layer import placed

from minitransformer.gradcheck import error
from minitransformer.layers import Context, Recurrent, SinusoidalPositions
from minitransformer.ops import numpy_ops


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_are_the_formula_of_the_paper(d_model):
    layer = SinusoidalPositions(numpy_ops, 600, d_model, "float64")
    assert error(layer.table, torch_twins.sinusoids(600, d_model)) <= 1e-12


def test_sinusoids_are_as_exact_in_float32_at_late_positions_as_at_early_ones():
    layer = SinusoidalPositions(numpy_ops, 5000, 64, "float32")
    assert layer.table.dtype == np.float32
    assert abs(layer.table - torch_twins.sinusoids(5000, 64).numpy()).max() <= 4e-7


def test_late_positions_are_made_once_a_sentence_reaches_them(monkeypatch):
    monkeypatch.setattr("minitransformer.layers.positions.FIRST_POSITIONS", 4)
    layer, whole = SinusoidalPositions(numpy_ops, 10**15, 8, "float64"), torch_twins.sinusoids(60, 8).numpy()
    for start, length in ((0, 3), (2, 2), (2, 3), (20, 1), (0, 60)):
        added, _ = layer.forward(np.zeros((1, length, 8)), start)
        np.testing.assert_allclose(added[0], whole[start : start + length], rtol=0, atol=1e-12)


@pytest.mark.parametrize("shift", [1, 7, -3])
def test_a_shift_is_a_rotation_of_every_pair_of_channels(shift):
    """§3.5: "for any fixed offset k, PE(pos+k) can be represented as a linear function of PE(pos)"."""
    d_model, table = 8, SinusoidalPositions(numpy_ops, 50, 8, "float64").table
    for pair in range(d_model // 2):
        angle = shift / 10000 ** (2 * pair / d_model)
        rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        here, there = table[10:40, 2 * pair : 2 * pair + 2], table[10 + shift : 40 + shift, 2 * pair : 2 * pair + 2]
        assert error(here @ rotation, there) <= 1e-12


@pytest.mark.parametrize(("cell", "states"), [("tanh", 1), ("lstm", 2)])
def test_padding_carries_a_recurrent_state_unchanged(cell, states):
    """To the last bit; and nothing that stands in padding is seen or gets a gradient."""
    layer, rng = Recurrent(numpy_ops, cell, 2, 3), np.random.default_rng(0)
    placed(layer)
    mask = np.array([[True] * 4, [True, True, False, False], [False] * 4])
    x, state = rng.standard_normal((3, 4, 2)), tuple(rng.standard_normal((3, 3)) for _ in range(states))
    (out, final), cache = layer.forward(x, state, Context(mask))
    dx, dstate = layer.backward(np.zeros_like(out), final, cache)
    np.testing.assert_array_equal(out[1, 2:], out[1, [1, 1]])
    np.testing.assert_array_equal(dx[~mask], 0)
    for before, after, gradient in zip(state, final, dstate, strict=True):
        np.testing.assert_array_equal(after[2], before[2])
        np.testing.assert_array_equal(gradient[2], after[2])
    np.testing.assert_equal(layer.forward(np.where(mask[..., None], x, 1e3), state, Context(mask))[0], (out, final))


def test_an_lstm_keeps_much_at_first():
    """The forget gate's bias starts at 1, every other at 0."""
    layer = Recurrent(numpy_ops, "lstm", 2, 3)
    placed(layer).initialize(0)
    np.testing.assert_array_equal(layer.cell.input.bias.data, [0] * 3 + [1] * 3 + [0] * 6)
