"""ReLU, tanh and sigmoid where a derivative ends, and far from 0."""

import numpy as np
import pytest

from minitransformer.ops import numpy_ops, relu_backward, relu_forward


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
