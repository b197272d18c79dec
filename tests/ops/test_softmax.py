"""Softmax over the last axis, and its logarithm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.prove import batches, evaluate, normal, seeds

from minitransformer.gradcheck import error
from minitransformer.ops import log_softmax, softmax_backward, softmax_forward

FLOAT32_MAX = np.finfo(np.float32).max


@given(batch=batches, n=st.integers(0, 5), seed=seeds)
def test_log_softmax(batch, n, seed):
    x = normal(np.random.default_rng(seed), *batch, n) * 100
    x.flags.writeable = False
    assert error(log_softmax(x), evaluate(oracles.log_softmax, x)) <= 1e-12


@pytest.mark.parametrize("function", [lambda x: softmax_forward(x)[0], lambda x: np.exp(log_softmax(x))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("large", [1e4, FLOAT32_MAX])
def test_never_overflows(function, dtype, large):
    x = np.array([[large, -large, 0], [-large, -large, -large], [large, large, -large]], dtype)
    y = function(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]], rtol=1e-6)


def test_nothing_to_attend_to_gives_zeros():
    x = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    y, cache = softmax_forward(x)
    np.testing.assert_array_equal(y, [[0, 0], [1, 0]])
    np.testing.assert_array_equal(softmax_backward(np.ones((2, 2)), cache), np.zeros((2, 2)))


def test_log_softmax_of_minus_infinity():
    np.testing.assert_array_equal(log_softmax(np.array([[-np.inf, 0.0]])), [[-np.inf, 0.0]])
    np.testing.assert_array_equal(log_softmax(np.full((1, 2), -np.inf)), [[-np.inf, -np.inf]])


def test_log_softmax_float32_accuracy():
    x = normal(np.random.default_rng(0), 512, 64).astype(np.float32)
    exact = evaluate(oracles.log_softmax, x.astype(np.float64))
    assert error(log_softmax(x), exact) <= 2 * error(evaluate(oracles.log_softmax, x), exact)
