"""LayerNorm, and Add & Norm."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.prove import Proof, batches, evaluate, normal, prove, prove_float32_accuracy, seeds

from minitransformer.gradcheck import error
from minitransformer.ops import (
    Dropout,
    add_layernorm_backward,
    add_layernorm_forward,
    layernorm_backward,
    layernorm_forward,
)

widths = st.integers(1, 7)
epsilons = st.sampled_from([1e-5, 1e-3, 0.5])


def parameters(rng: np.random.Generator, width: int) -> dict[str, np.ndarray]:
    return {"gamma": normal(rng, width), "beta": normal(rng, width)}


@given(batch=batches, width=widths, eps=epsilons, seed=seeds)
def test_layernorm(proof: Proof, batch, width, eps, seed):
    rng = np.random.default_rng(seed)
    prove(
        "layernorm",
        partial(layernorm_forward, eps=eps),
        layernorm_backward,
        partial(oracles.layernorm, eps=eps),
        {"x": spread(rng, *batch, width), **parameters(rng, width)},
        proof,
    )


@given(
    rows=st.tuples(st.integers(0, 3), st.integers(1, 3)),
    width=widths,
    eps=epsilons,
    rate=st.sampled_from([None, 0.0, 0.5]),
    seed=seeds,
)
def test_add_layernorm(proof: Proof, rows, width, eps, rate, seed):
    rng = np.random.default_rng(seed)
    dropout = None if rate is None else Dropout(rate, key=seed, sentence=2, position=1)
    prove(
        "add_layernorm",
        partial(add_layernorm_forward, eps=eps, dropout=dropout),
        add_layernorm_backward,
        partial(oracles.add_layernorm, eps=eps, dropout=dropout),
        {
            "x": spread(rng, *rows, width),
            "sublayer_out": 0.1 * normal(rng, *rows, width),
            **parameters(rng, width),
        },
        proof,
    )


def spread(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows far from constant: where the variance vanishes, 1/√(var + eps) bends too sharply for differences."""
    return 0.3 * normal(rng, *shape) + np.linspace(-1, 1, shape[-1])


def test_eps_defaults_to_that_of_pytorch():
    rng = np.random.default_rng(0)
    x, gamma, beta = 1e-3 * normal(rng, 4, 8), *parameters(rng, 8).values()
    expected = evaluate(oracles.layernorm, x, gamma, beta)
    assert error(layernorm_forward(x, gamma, beta)[0], expected) <= 1e-10


def test_variance_is_the_biased_one():
    y, _ = layernorm_forward(np.array([[1.0, -1.0]]), np.ones(2), np.zeros(2), eps=0.0)
    np.testing.assert_allclose(y, [[1.0, -1.0]], rtol=1e-12)


def test_constant_row_gives_beta():
    y, cache = layernorm_forward(np.full((1, 3), 7.0), np.ones(3), np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(y, [[1.0, 2.0, 3.0]], atol=1e-12)
    assert np.isfinite(layernorm_backward(np.ones((1, 3)), cache)[0]).all()


def test_float32_accuracy():
    prove_float32_accuracy(
        layernorm_forward,
        layernorm_backward,
        oracles.layernorm,
        lambda rng: {"x": normal(rng, 4, 16, 1200), **parameters(rng, 1200)},
    )


def test_add_layernorm_float32_accuracy():
    dropout = Dropout(0.1, key=3)
    prove_float32_accuracy(
        partial(add_layernorm_forward, dropout=dropout),
        add_layernorm_backward,
        partial(oracles.add_layernorm, dropout=dropout),
        lambda rng: {
            "x": normal(rng, 4, 16, 1200),
            "sublayer_out": normal(rng, 4, 16, 1200),
            **parameters(rng, 1200),
        },
    )


@pytest.mark.parametrize("width", [1, 3, 100, 768, 1000])
def test_constant_rows_in_float32_give_beta_exactly(width):
    """1/C is rounded unless C is a power of two: a mean must divide by C, not multiply by it."""
    gamma, beta = np.ones(width, np.float32), np.linspace(-1, 1, width, dtype=np.float32)
    x = np.array([[110.0], [1100.0], [-11000.0]], np.float32) * np.ones(width, np.float32)
    np.testing.assert_array_equal(layernorm_forward(x, gamma, beta)[0], np.tile(beta, (3, 1)))
