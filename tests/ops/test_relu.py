"""`y = max(0, x)`."""

import numpy as np
from hypothesis import given
from support import oracles
from support.prove import Proof, batches, normal, prove, prove_float32_accuracy, seeds, sizes

from minitransformer.ops import relu_backward, relu_forward


@given(batch=batches, width=sizes, seed=seeds)
def test_relu(proof: Proof, batch, width, seed):
    x = normal(np.random.default_rng(seed), *batch, width)
    x += 0.1 * np.sign(x)  # off the kink
    prove("relu", relu_forward, relu_backward, oracles.relu, {"x": x}, proof)


def test_subgradient_at_zero_is_zero():
    _, cache = relu_forward(np.array([-1.0, -0.0, 0.0, 1.0]))
    np.testing.assert_array_equal(relu_backward(np.full(4, 7.0), cache), [0, 0, 0, 7])


def test_nan_is_not_hidden():
    assert np.isnan(relu_forward(np.array([np.nan]))[0]).all()


def test_float32_accuracy():
    prove_float32_accuracy(relu_forward, relu_backward, oracles.relu, lambda rng: {"x": normal(rng, 64, 64)})
