"""Positions as vectors: the paper's sinusoids, and one position of a translation after the other."""

import math

import numpy as np
import pytest
from support import torch_twins
from support.prove_layer import placed

from minitransformer.gradcheck import error
from minitransformer.layers import (
    Cache,
    Context,
    InputEmbedding,
    LearnedPositions,
    SinusoidalPositions,
    TokenEmbedding,
)
from minitransformer.ops import numpy_ops

V, C = 5, 4
IDS = np.array([[1, 3, 3], [4, 1, 0]])


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_are_the_formula_of_the_paper(d_model):
    layer = SinusoidalPositions(numpy_ops, 600, d_model, "float64")
    assert error(layer.table, torch_twins.sinusoids(600, d_model)) <= 1e-12


def test_sinusoids_are_as_exact_in_float32_at_late_positions_as_at_early_ones():
    layer = SinusoidalPositions(numpy_ops, 5000, 64, "float32")
    assert layer.table.dtype == np.float32
    assert abs(layer.table - torch_twins.sinusoids(5000, 64).numpy()).max() <= 4e-7


def test_late_positions_are_made_once_a_sentence_reaches_them(monkeypatch):
    monkeypatch.setattr("minitransformer.layers.embedding.FIRST_POSITIONS", 4)
    layer, whole = SinusoidalPositions(numpy_ops, 10**15, 8, "float64"), torch_twins.sinusoids(60, 8).numpy()
    for start, length in ((0, 3), (2, 2), (2, 3), (20, 1), (0, 60)):
        added, _ = layer.forward(np.zeros((1, length, 8)), start)
        np.testing.assert_allclose(added[0], whole[start : start + length], rtol=0, atol=1e-12)


@pytest.mark.parametrize("shift", [1, 7, -3])
def test_a_shift_is_a_rotation_of_every_pair_of_channels(shift):
    """Why sinusoids: "for any fixed offset k, PE(pos+k) can be represented as a linear function of PE(pos)" (§3.5)."""
    d_model, table = 8, SinusoidalPositions(numpy_ops, 50, 8, "float64").table
    for pair in range(d_model // 2):
        angle = shift / 10000 ** (2 * pair / d_model)
        rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        here, there = table[10:40, 2 * pair : 2 * pair + 2], table[10 + shift : 40 + shift, 2 * pair : 2 * pair + 2]
        assert error(here @ rotation, there) <= 1e-12


@pytest.mark.parametrize("start", [0, 3])
def test_sinusoidal_positions_are_added(start):
    layer = SinusoidalPositions(numpy_ops, 7, C, "float64")
    x = np.random.default_rng(0).standard_normal((2, 3, C))
    out, cache = layer.forward(x, start)
    assert error(out, x + layer.table[None, start : start + 3]) <= 1e-15
    np.testing.assert_array_equal(layer.backward(x, cache), x)


@pytest.mark.parametrize(
    "positions", [LearnedPositions(numpy_ops, 6, C), SinusoidalPositions(numpy_ops, 6, C, "float64")]
)
def test_a_step_is_one_position_of_the_whole(positions):
    layer = InputEmbedding(numpy_ops, TokenEmbedding(numpy_ops, V, C), positions, dropout=0.1)
    placed(layer)
    whole, _ = layer.forward(IDS)
    cache = Cache(numpy_ops, batch=2, num_beams=1)
    for cache.position in range(3):
        now = slice(cache.position, cache.position + 1)
        np.testing.assert_array_equal(layer.forward(IDS[:, now], Context(cache=cache))[0], whole[:, now])
