"""`y = x @ weight + bias`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.prove import Proof, batches, normal, prove, prove_float32_accuracy, seeds, sizes

from minitransformer.ops import linear_backward, linear_forward


@given(batch=batches, c_in=sizes, c_out=sizes, biased=st.booleans(), seed=seeds)
def test_linear(proof: Proof, batch, c_in, c_out, biased, seed):
    rng = np.random.default_rng(seed)
    arrays = {
        "x": normal(rng, *batch, c_in),
        "weight": normal(rng, c_in, c_out),
        "bias": normal(rng, c_out) if biased else None,
    }
    prove("linear", linear_forward, linear_backward, oracles.linear, arrays, proof)


def test_float32_accuracy():
    def draw(rng):
        return {"x": normal(rng, 4, 32, 16), "weight": normal(rng, 16, 1024), "bias": normal(rng, 1024)}

    prove_float32_accuracy(linear_forward, linear_backward, oracles.linear, draw)


@pytest.mark.parametrize("biased", [True, False])
def test_out_adds_into_existing_arrays(biased):
    rng = np.random.default_rng(0)
    x, weight, bias = normal(rng, 5, 3), normal(rng, 3, 4), normal(rng, 4) if biased else None
    y, cache = linear_forward(x, weight, bias)
    dy = normal(rng, *y.shape)
    dx, dweight, dbias = linear_backward(dy, cache)
    into = np.ones((3, 4)), np.ones(4) if biased else None
    dx_again, *returned = linear_backward(dy, cache, out=into)

    assert all(a is b for a, b in zip(returned, into, strict=True))
    np.testing.assert_array_equal(dx_again, dx)
    np.testing.assert_allclose(into[0], 1 + dweight, rtol=1e-12)
    if into[1] is not None and dbias is not None:
        np.testing.assert_allclose(into[1], 1 + dbias, rtol=1e-12)
