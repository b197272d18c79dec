"""LayerNorm where the variance is small, or is none."""

import numpy as np
import pytest
from support import oracles
from support.prove import evaluate, normal

from minitransformer.gradcheck import error
from minitransformer.ops import layernorm_backward, layernorm_forward


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
