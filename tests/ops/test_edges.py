"""Ops where numbers are large, small or missing, and where a derivative ends."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.prove import batches, evaluate, normal, seeds

from minitransformer.gradcheck import error
from minitransformer.ops import (
    layernorm_backward,
    layernorm_forward,
    log_softmax,
    numpy_ops,
    relu_backward,
    relu_forward,
    softmax_backward,
    softmax_forward,
)
from minitransformer.ops.normal import ENOUGH, NEAR, erf
from minitransformer.ops.normal import normal as normal_distribution
from minitransformer.ops.softmax import MANY_ROWS


def test_relu_s_subgradient_at_zero_is_zero():
    _, cache = relu_forward(np.array([-1.0, -0.0, 0.0, 1.0]))
    np.testing.assert_array_equal(relu_backward(np.full(4, 7.0), cache), [0, 0, 0, 7])


@pytest.mark.parametrize(("name", "low", "middle"), [("tanh", -1, 0), ("sigmoid", 0, 0.5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_numbers_do_not_overflow(name, low, middle, dtype):
    pair = getattr(numpy_ops, name)
    y, cache = pair.forward(np.array([-np.inf, -1e30, 0, 1e30, np.inf], dtype))
    np.testing.assert_array_equal(y, [low, low, middle, 1, 1])
    np.testing.assert_array_equal(pair.backward(np.ones(5, dtype), cache)[[0, 1, 3, 4]], 0)


@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_element_alone_is_an_array_too_and_nan_is_not_hidden(name, dtype):
    pair = getattr(numpy_ops, name)
    y, cache = pair.forward(np.asarray(0.5, dtype))
    rows, row_cache = pair.forward(np.array([0.5], dtype))
    dx = pair.backward(y, cache)
    assert (y, dx) == (rows[0], pair.backward(rows, row_cache)[0])
    assert (np.shape(dx), dx.dtype) == ((), dtype)
    assert np.isnan(pair.forward(np.asarray(np.nan, dtype))[0])


FLOAT32_MAX = np.finfo(np.float32).max


@pytest.mark.parametrize(("name", "options"), [("gelu", {}), ("gelu", {"approximate": "tanh"}), ("silu", {})])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_smooth_rectifier_far_from_zero(name, options: dict[str, Any], dtype):
    """x or 0, and a slope of 1 or 0; infinities and NaN give what they give in PyTorch."""
    pair, x = getattr(numpy_ops, name), np.array([-FLOAT32_MAX, -1e30, -1e4, 1e4, 1e30, FLOAT32_MAX], dtype)
    y, cache = pair.forward(x, **options)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(pair.backward(np.ones(6, dtype), cache), x > 0)
    edges = np.array([-np.inf, np.nan, np.inf])
    with np.errstate(invalid="ignore"):
        y, _ = pair.forward(edges.astype(dtype), **options)
    np.testing.assert_array_equal(y, evaluate(getattr(oracles, name), edges))


def test_erf_is_exact_but_for_a_few_units_of_its_last_place():
    """Over all that float64 tells from 0 and 1, and densely where the two fractions meet."""
    small = np.logspace(-300, 0, 5001)
    x = np.concatenate(
        [np.linspace(-ENOUGH - 1, ENOUGH + 1, 50001), np.linspace(NEAR - 0.01, NEAR + 0.01, 5001), small]
    )
    expected = np.array([math.erf(number) for number in x])
    assert (np.abs(erf(x) - expected) / np.spacing(np.abs(expected))).max() <= 6
    assert erf(np.array([0.0, -0.0, np.inf, -np.inf])).tolist() == [0.0, -0.0, 1.0, -1.0]


@pytest.mark.parametrize(("dtype", "largest"), [(np.float64, 2.5e-16), (np.float32, 3e-7)])
def test_the_normal_distribution(dtype, largest):
    x = np.linspace(-12, 12, 20001).astype(dtype)
    below, density = normal_distribution(x)
    assert below.dtype == density.dtype == dtype
    assert np.abs(below - [math.erfc(-number / math.sqrt(2)) / 2 for number in x.tolist()]).max() <= largest
    expected = [math.exp(-number * number / 2) / math.sqrt(2 * math.pi) for number in x.tolist()]
    assert np.abs(density - expected).max() <= largest


def test_eps_defaults_to_that_of_pytorch():
    rng = np.random.default_rng(0)
    x, gamma, beta = 1e-3 * normal(rng, 4, 8), normal(rng, 8), normal(rng, 8)
    assert error(layernorm_forward(x, gamma, beta)[0], evaluate(oracles.layernorm, x, gamma, beta)) <= 1e-10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 100, 768, 1000])
def test_constant_rows_give_beta_exactly(width, dtype):
    """1/C is rounded unless C is a power of two: a mean must divide by C, not multiply by it."""
    gamma, beta = np.ones(width, dtype), np.linspace(-1, 1, width, dtype=dtype)
    x = np.array([[110.0], [1100.0], [-11000.0]], dtype) * np.ones(width, dtype)
    y, cache = layernorm_forward(x, gamma, beta)
    np.testing.assert_array_equal(y, np.tile(beta, (3, 1)))
    assert np.isfinite(layernorm_backward(y, cache)[0]).all()


def test_eps_may_be_0():
    y, _ = layernorm_forward(np.array([[1.0, -1.0]]), np.ones(2), np.zeros(2), eps=0.0)
    np.testing.assert_allclose(y, [[1.0, -1.0]], rtol=1e-12)


@given(batch=batches | st.just((MANY_ROWS, 2)), n=st.integers(0, 5), seed=seeds)
def test_log_softmax(batch, n, seed):
    x = normal(np.random.default_rng(seed), *batch, n) * 100
    x.flags.writeable = False
    assert error(log_softmax(x), evaluate(oracles.log_softmax, x)) <= 1e-12


@pytest.mark.parametrize("function", [lambda x: softmax_forward(x)[0], lambda x: np.exp(log_softmax(x))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("large", [1e4, FLOAT32_MAX])
@pytest.mark.parametrize("times", [1, MANY_ROWS])
def test_never_overflows(function, dtype, large, times):
    x = np.array([[large, -large, 0], [-large, -large, -large], [large, large, -large]] * times, dtype)
    y = function(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]] * times, rtol=1e-6)


@pytest.mark.parametrize("times", [1, MANY_ROWS])
def test_nothing_to_attend_to_gives_zeros(times):
    x = np.array([[-np.inf, -np.inf], [0.0, -np.inf]] * times)
    y, cache = softmax_forward(x)
    np.testing.assert_array_equal(y, [[0, 0], [1, 0]] * times)
    np.testing.assert_array_equal(softmax_backward(np.ones(x.shape), cache), np.zeros(x.shape))


def test_log_softmax_of_minus_infinity():
    np.testing.assert_array_equal(log_softmax(np.array([[-np.inf, 0.0]])), [[-np.inf, 0.0]])
    np.testing.assert_array_equal(log_softmax(np.full((1, 2), -np.inf)), [[-np.inf, -np.inf]])


def test_log_softmax_float32_accuracy():
    x = normal(np.random.default_rng(0), 512, 64).astype(np.float32)
    exact = evaluate(oracles.log_softmax, x.astype(np.float64))
    assert error(log_softmax(x), exact) <= 2 * error(evaluate(oracles.log_softmax, x), exact)
