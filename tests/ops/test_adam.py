"""Adam over a flat array, and the global norm."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.prove import normal, read_only, seeds

import kernels
from minitransformer.gradcheck import error
from minitransformer.ops import adam_step, global_norm, numpy_ops
from minitransformer.textbook import textbook_ops

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


@example(size=200_003, beta1=0.9, beta2=0.98, eps=1e-9, grad_scale=1.0, seed=0)  # more than one block of the update
@settings(max_examples=30)
@given(
    size=st.integers(0, 20),
    beta1=st.sampled_from([0.0, 0.9]),
    beta2=st.sampled_from([0.98, 0.999]),
    eps=st.sampled_from([1e-9, 1e-3]),
    grad_scale=st.sampled_from([1.0, 0.25]),
    seed=seeds,
)
def test_follows_pytorch(size, beta1, beta2, eps, grad_scale, seed):
    rng = np.random.default_rng(seed)
    start, grads, rates = normal(rng, size), normal(rng, 5, size), list(rng.uniform(1e-4, 1e-1, 5))
    grads = np.where(np.arange(size) % 3, grads, 0.0)  # rows of the table that no token used
    options = {"beta1": beta1, "beta2": beta2, "eps": eps}
    expected = theirs(start, grad_scale * grads, rates, **options)
    assert error(ours(start, grads, rates, grad_scale=grad_scale, **options), expected) <= 1e-12
    if options == PAPER:
        assert error(ours(start, grads, rates, grad_scale=grad_scale), expected) <= 1e-12  # the defaults


def test_numbers_may_be_one_element_arrays():
    rng = np.random.default_rng(0)
    start, grad = normal(rng, 50), normal(rng, 50)
    plain, boxed = ([start.copy(), np.zeros(50), np.zeros(50)] for _ in range(2))
    adam_step(plain[0], grad, *plain[1:], step=7, lr=0.1, grad_scale=0.5)
    adam_step(boxed[0], grad, *boxed[1:], step=np.array([7]), lr=np.array([0.1]), grad_scale=np.array([0.5]))
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


@settings(max_examples=12)
@given(size=st.sampled_from([0, 1, 5, 200_003]), seed=seeds)
def test_global_norm(size, seed):
    grad = read_only(normal(np.random.default_rng(seed), size))
    norm = global_norm(grad)
    assert float(norm) == pytest.approx(torch.tensor(grad.copy()).norm().item(), rel=1e-12)
    assert float(global_norm(grad.astype(np.float32))) == pytest.approx(float(norm), rel=1e-5)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_the_global_norm_of_float32_is_summed_in_float64(size):
    """A square of these is 0 or infinite in float32."""
    for ops in (numpy_ops, textbook_ops, kernels.torch_ops("cpu")):
        grad = ops.asarray(np.full(200_000, size, np.float32))
        assert float(ops.global_norm(grad)) == pytest.approx(size * 200_000**0.5, rel=1e-6, abs=0)
