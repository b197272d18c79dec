"""`y = tanh(x)` and `y = 1 / (1 + exp(−x))`."""

import numpy as np
import pytest
from hypothesis import given
from support import oracles
from support.prove import Proof, batches, normal, prove, prove_float32_accuracy, seeds, sizes

from minitransformer.ops import sigmoid_backward, sigmoid_forward, tanh_backward, tanh_forward

PAIRS = {
    "tanh": (tanh_forward, tanh_backward, oracles.tanh),
    "sigmoid": (sigmoid_forward, sigmoid_backward, oracles.sigmoid),
}
every_pair = pytest.mark.parametrize("name", PAIRS)


@every_pair
@given(batch=batches, width=sizes, seed=seeds)
def test_output_and_gradient(proof: Proof, name, batch, width, seed):
    prove(name, *PAIRS[name], {"x": 2 * normal(np.random.default_rng(seed), *batch, width)}, proof)


@every_pair
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_numbers_do_not_overflow(name, dtype):
    forward, backward, _ = PAIRS[name]
    y, cache = forward(np.array([-np.inf, -1e30, 0, 1e30, np.inf], dtype))
    low, middle = {"tanh": (-1, 0), "sigmoid": (0, 0.5)}[name]
    np.testing.assert_array_equal(y, [low, low, middle, 1, 1])
    np.testing.assert_array_equal(backward(np.ones(5, dtype), cache)[[0, 1, 3, 4]], 0)


@every_pair
def test_nan_is_not_hidden(name):
    assert np.isnan(PAIRS[name][0](np.array([np.nan]))[0]).all()


@every_pair
def test_float32_accuracy(name):
    prove_float32_accuracy(*PAIRS[name], lambda rng: {"x": normal(rng, 64, 64)})
