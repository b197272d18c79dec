"""Convolution over time."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.prove import Proof, normal, prove, prove_float32_accuracy, seeds

from minitransformer.gradcheck import error
from minitransformer.ops import conv1d_backward, conv1d_forward, linear_forward

PADDINGS = ["causal", "same", "valid"]
small = st.integers(1, 3)


def arrays_of(rng, batch=2, time=5, taps=3, width_in=2, width_out=3, bias=True) -> dict:
    return {
        "x": normal(rng, batch, time, width_in),
        "weight": normal(rng, taps, width_in, width_out),
        "bias": normal(rng, width_out) if bias else None,
    }


def prove_conv1d(proof: Proof, arrays: dict, padding: str) -> None:
    forward, oracle = partial(conv1d_forward, padding=padding), partial(oracles.conv1d, padding=padding)
    prove("conv1d", forward, conv1d_backward, oracle, arrays, proof)


@given(
    batch=st.integers(1, 2),
    time=st.integers(1, 6),
    taps=st.integers(1, 5),
    width_in=small,
    width_out=small,
    bias=st.booleans(),
    padding=st.sampled_from(PADDINGS),
    seed=seeds,
)
def test_conv1d(proof: Proof, batch, time, taps, width_in, width_out, bias, padding, seed):
    if padding == "same":
        taps = taps // 2 * 2 + 1
    if padding == "valid":
        taps = min(taps, time)
    prove_conv1d(proof, arrays_of(np.random.default_rng(seed), batch, time, taps, width_in, width_out, bias), padding)


@pytest.mark.parametrize("padding", PADDINGS[:2])
@pytest.mark.parametrize(("batch", "time"), [(0, 5), (2, 0)])
def test_empty_arrays(proof: Proof, padding, batch, time):
    prove_conv1d(proof, arrays_of(np.random.default_rng(0), batch, time), padding)


def test_one_position_wide_it_is_a_linear_map():
    x, weight, bias = arrays_of(np.random.default_rng(0), taps=1).values()
    for padding in PADDINGS:
        y, _ = conv1d_forward(x, weight, bias, padding=padding)
        assert error(y, linear_forward(x, weight[0], bias)[0]) <= 1e-12


def test_the_causal_one_sees_no_future_and_the_last_positions():
    arrays = arrays_of(np.random.default_rng(0), time=6)
    y, _ = conv1d_forward(*arrays.values(), padding="causal")
    moved = arrays["x"].copy()
    moved[:, 3] += 1.0
    y_moved, _ = conv1d_forward(moved, arrays["weight"], arrays["bias"], padding="causal")
    assert (y_moved != y).any(axis=(0, 2)).tolist() == [False, False, False, True, True, True]


def test_one_window_at_a_time_equals_all_at_once():
    """What a search does: the last K positions, without padding."""
    x, weight, bias = arrays_of(np.random.default_rng(0), time=6).values()
    whole, _ = conv1d_forward(x, weight, bias, padding="causal")
    padded = np.concatenate([np.zeros_like(x[:, :2]), x], axis=1)
    for t in range(6):
        window = padded[:, t : t + 3]
        assert error(conv1d_forward(window, weight, bias, padding="valid")[0], whole[:, t : t + 1]) <= 1e-12


@pytest.mark.parametrize("padding", PADDINGS)
def test_float32_accuracy(padding):
    prove_float32_accuracy(
        partial(conv1d_forward, bias=None, padding=padding),
        lambda dy, cache: conv1d_backward(dy, cache)[:2],
        partial(oracles.conv1d, bias=None, padding=padding),
        lambda rng: {"x": normal(rng, 4, 20, 16), "weight": normal(rng, 5, 16, 32)},
    )


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ({"x": (5, 2)}, {}, r"x has shape \(5, 2\), expected 3 axes \(B, T, C_in\)"),
        ({"x": (2, 5, 4)}, {}, r"weight has shape \(3, 2, 3\), expected \(3, 4, C_out\) beside x \(2, 5, 4\)"),
        ({"weight": (2, 3)}, {}, r"weight has shape \(2, 3\), expected 3 axes \(K, C_in, C_out\)"),
        ({"weight": (0, 2, 3)}, {}, r"weight has shape \(0, 2, 3\), expected \(K, C_in, C_out\) with K ≥ 1"),
        ({"bias": (2,)}, {}, r"bias has shape \(2,\), expected \(3,\)"),
        ({"weight": (4, 2, 3)}, {"padding": "same"}, "weight has 4 positions: padding 'same' needs an odd number"),
        ({"x": (2, 2, 2)}, {"padding": "valid"}, "padding 'valid' needs at least weight's 3 positions"),
        ({}, {"padding": "full"}, "padding is 'full', expected one of causal, same, valid"),
    ],
)
def test_what_does_not_fit(shapes, options, message):
    defaults = {"x": (2, 5, 2), "weight": (3, 2, 3), "bias": (3,)}
    with pytest.raises(ValueError, match=message):
        conv1d_forward(*(np.ones(shape) for shape in {**defaults, **shapes}.values()), **options)
