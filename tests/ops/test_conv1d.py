"""Convolution over time."""

import numpy as np
import pytest
from support.prove import normal

from minitransformer.gradcheck import error
from minitransformer.ops import conv1d_forward, linear_forward


def arrays_of(time=5, taps=3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return normal(rng, 2, time, 2), normal(rng, taps, 2, 3), normal(rng, 3)


def test_one_position_wide_it_is_a_linear_map():
    x, weight, bias = arrays_of(taps=1)
    for padding in ("causal", "same", "valid"):
        y, _ = conv1d_forward(x, weight, bias, padding=padding)
        assert error(y, linear_forward(x, weight[0], bias)[0]) <= 1e-12


def test_the_causal_one_sees_no_future_and_the_last_positions():
    x, weight, bias = arrays_of(time=6)
    y, _ = conv1d_forward(x, weight, bias, padding="causal")
    moved = x.copy()
    moved[:, 3] += 1.0
    y_moved, _ = conv1d_forward(moved, weight, bias, padding="causal")
    assert (y_moved != y).any(axis=(0, 2)).tolist() == [False, False, False, True, True, True]


def test_one_window_at_a_time_equals_all_at_once():
    """What a search does: the last K positions, without padding."""
    x, weight, bias = arrays_of(time=6)
    whole, _ = conv1d_forward(x, weight, bias, padding="causal")
    padded = np.concatenate([np.zeros_like(x[:, :2]), x], axis=1)
    for t in range(6):
        window = padded[:, t : t + 3]
        assert error(conv1d_forward(window, weight, bias, padding="valid")[0], whole[:, t : t + 1]) <= 1e-12


@pytest.mark.parametrize(
    ("shapes", "padding", "message"),
    [
        ({"weight": (4, 2, 3)}, "same", "weight has 4 positions: padding 'same' needs an odd number"),
        ({"x": (2, 2, 2)}, "valid", "padding 'valid' needs at least weight's 3 positions"),
        ({}, "full", "padding is 'full', expected one of causal, same, valid"),
    ],
)
def test_what_does_not_fit(shapes, padding, message):
    sizes = {"x": (2, 5, 2), "weight": (3, 2, 3), "bias": (3,)} | shapes
    with pytest.raises(ValueError, match=message):
        conv1d_forward(*map(np.ones, sizes.values()), padding=padding)
