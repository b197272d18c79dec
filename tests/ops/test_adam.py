"""Adam over a flat array, and the global norm."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.prove import normal, read_only, seeds

from minitransformer.gradcheck import error
from minitransformer.ops import adam_step, global_norm

PAPER = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9}


def ours(start: np.ndarray, grads: np.ndarray, rates: list, **options) -> np.ndarray:
    data, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for step, (grad, lr) in enumerate(zip(grads, rates, strict=True), start=1):
        assert adam_step(data, read_only(grad.copy()), m, v, step=step, lr=lr, **options) is None
    return data


def theirs(start: np.ndarray, grads: np.ndarray, rates: list, beta1: float, beta2: float, eps: float) -> np.ndarray:
    data = torch.nn.Parameter(torch.tensor(start.copy()))
    optimizer = torch.optim.Adam([data], betas=(beta1, beta2), eps=eps)
    for grad, lr in zip(grads, rates, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        data.grad = torch.tensor(grad.copy())
        optimizer.step()
    return data.detach().numpy()


@given(
    size=st.integers(0, 20),
    beta1=st.sampled_from([0.0, 0.9]),
    beta2=st.sampled_from([0.98, 0.999]),
    eps=st.sampled_from([1e-9, 1e-3]),
    seed=seeds,
)
def test_follows_pytorch(size, beta1, beta2, eps, seed):
    rng = np.random.default_rng(seed)
    start, grads, rates = normal(rng, size), normal(rng, 10, size), list(rng.uniform(1e-4, 1e-1, 10))
    options = {"beta1": beta1, "beta2": beta2, "eps": eps}
    assert error(ours(start, grads, rates, **options), theirs(start, grads, rates, **options)) <= 1e-12


def test_defaults_are_the_papers():
    rng = np.random.default_rng(0)
    start, grads = normal(rng, 5), normal(rng, 3, 5)
    assert error(ours(start, grads, [0.1] * 3), theirs(start, grads, [0.1] * 3, **PAPER)) <= 1e-12


def test_large_arrays_and_zero_gradients():
    """More elements than any block that the update may work in; rows of the table that no token used."""
    rng = np.random.default_rng(0)
    start, grads = normal(rng, 200_003), normal(rng, 2, 200_003)
    grads[:, ::3] = 0.0
    assert error(ours(start, grads, [0.1, 0.2]), theirs(start, grads, [0.1, 0.2], **PAPER)) <= 1e-12


def test_grad_scale_scales_the_gradient():
    rng = np.random.default_rng(0)
    start, grads = normal(rng, 50), normal(rng, 3, 50)
    scaled = theirs(start, 0.25 * grads, [0.1] * 3, **PAPER)
    assert error(ours(start, grads, [0.1] * 3, grad_scale=0.25), scaled) <= 1e-12


def test_numbers_may_be_one_element_arrays():
    rng = np.random.default_rng(0)
    start, grad = normal(rng, 50), normal(rng, 50)
    plain, boxed = ([start.copy(), np.zeros(50), np.zeros(50)] for _ in range(2))
    for data, m, v in [plain]:
        adam_step(data, grad, m, v, step=7, lr=0.1, grad_scale=0.5)
    for data, m, v in [boxed]:
        adam_step(data, grad, m, v, step=np.array([7]), lr=np.array([0.1]), grad_scale=np.array([0.5]))
    np.testing.assert_array_equal(boxed, plain)


def test_float32_accuracy():
    rng = np.random.default_rng(0)
    start, grads = normal(rng, 5000).astype(np.float32), normal(rng, 20, 5000).astype(np.float32)
    exact = theirs(start.astype(np.float64), grads.astype(np.float64), [0.01] * 20, **PAPER)
    single = ours(start, grads, [0.01] * 20)
    assert single.dtype == np.float32
    assert error(single, exact) <= 2 * error(theirs(start, grads, [0.01] * 20, **PAPER), exact)


def test_an_array_that_is_not_flat_is_refused():
    """Flattening a transposed array would copy it, and the update would be lost."""
    data, m, v = (np.ones((3, 4)).T for _ in range(3))
    with pytest.raises(ValueError, match="data"):
        adam_step(data, np.ones((4, 3)), m, v, step=1, lr=0.1)


@given(size=st.sampled_from([0, 1, 5, 200_003]), seed=seeds)
def test_global_norm(size, seed):
    grad = read_only(normal(np.random.default_rng(seed), size))
    norm = global_norm(grad)
    assert float(norm) == pytest.approx(torch.tensor(grad.copy()).norm().item(), rel=1e-12)
    assert float(global_norm(grad.astype(np.float32))) == pytest.approx(float(norm), rel=1e-5)
