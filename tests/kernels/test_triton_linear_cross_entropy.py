"""The output projection and its loss in one op: chunks, evaluation, gradients that are added up."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.losses import draw_targets, fused_arguments, ignored, smoothings, vocab_sizes
from support.kernels.prove_kernel import DEVICE, DTYPES, check, few, prove_kernel, seeds, to_numpy
from support.kernels.traffic import Traffic, far_apart

import kernels
import kernels.linear_cross_entropy as fused


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(
    rows=st.sampled_from([0, 1, 5]),  # of 1500 logits two share a program: three programs, the last not full
    width=st.sampled_from([1, 8, 33]),
    vocab_size=vocab_sizes,
    smoothing=smoothings,
    ignore_index=ignored,
    chunk=st.sampled_from([1, 40_000, fused.CHUNK_LOGITS]),
    seed=seeds,
)
def test_linear_cross_entropy(dtype, rows, width, vocab_size, smoothing, ignore_index, chunk, seed):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.standard_normal((rows, width)), "table": rng.standard_normal((vocab_size, width))}
    arrays["targets"] = draw_targets(rng, (rows,), vocab_size, ignore_index)
    with mock.patch.object(fused, "CHUNK_LOGITS", chunk):
        prove_kernel("linear_cross_entropy", arrays, dtype, label_smoothing=smoothing, ignore_index=ignore_index)


def test_the_logits_never_exist_all_at_once():
    x, table, targets = fused_arguments()
    whole, cache = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0)
    with mock.patch.object(fused, "CHUNK_LOGITS", 1000), Traffic() as traffic:
        loss, chunked_cache = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0)
        gradients = kernels.linear_cross_entropy_backward(1.0, chunked_cache)
    assert traffic.largest <= 1000 < x.shape[0] * table.shape[0]
    check("loss", loss, whole.item(), 1e-6)
    for gradient, wanted in zip(gradients, kernels.linear_cross_entropy_backward(1.0, cache), strict=True):
        check("gradient", gradient, to_numpy(wanted), 1e-6)


def test_evaluation_does_no_work_for_gradients():
    x, table, targets = fused_arguments()
    with_grad, _ = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0)
    with Traffic() as traffic:
        loss, cache = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0, with_grad=False)
    check("loss", loss, with_grad.item(), 1e-6)  # by another kernel
    assert cache is None
    assert [name for name in traffic.operations if "mm" in name] == ["mm"]
    with pytest.raises(ValueError, match="with_grad=False"):
        kernels.linear_cross_entropy_backward(1.0, cache)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_out_adds_into_an_existing_tensor_which_may_be_wider(dtype, layout):
    x, table, targets = fused_arguments(dtype)
    _, cache = kernels.linear_cross_entropy_forward(x, table, targets)
    dx, dtable = kernels.linear_cross_entropy_backward(0.5, cache)
    into = torch.zeros(table.shape, device=DEVICE)
    if layout == "transposed":
        into = into.T.contiguous().T
    for times in (1, 2):
        dx_again, returned = kernels.linear_cross_entropy_backward(0.5, cache, out=into)
        assert returned is into
        assert torch.equal(dx_again, dx)
        assert torch.equal((into / times).to(dtype), dtable)
    assert dtable.dtype == dx.dtype == dtype


def test_out_whose_columns_pass_31_bits():
    rng = np.random.default_rng(0)
    x, table = (torch.from_numpy(rng.standard_normal((n, 3))).to(DEVICE, torch.float32) for n in (2, 4))
    _, cache = kernels.linear_cross_entropy_forward(x, table, torch.tensor([1, 3], device=DEVICE))
    _, dtable = kernels.linear_cross_entropy_backward(1.0, cache)
    far = far_apart(torch.ones_like(table).T).T
    _, total = kernels.linear_cross_entropy_backward(1.0, cache, out=far)
    assert torch.equal(total, 1 + dtable)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("chunk", [640, fused.CHUNK_LOGITS])
def test_dtable_is_summed_in_float32(dtype, chunk):
    """Logits of 0 make dlogits of ±½; half of 2048 + 299 is more than float16 can count."""
    x, table = torch.ones(300, 1, dtype=dtype, device=DEVICE), torch.zeros(2, 1, dtype=dtype, device=DEVICE)
    x[0] = 2048
    with mock.patch.object(fused, "CHUNK_LOGITS", chunk):
        _, cache = kernels.linear_cross_entropy_forward(x, table, torch.zeros(300, dtype=torch.int64, device=DEVICE))
    _, dtable = kernels.linear_cross_entropy_backward(300.0, cache, out=torch.zeros(2, 1, device=DEVICE))
    assert dtable[:, 0].tolist() == pytest.approx([-2347 / 2, 2347 / 2], rel=1e-6)


def test_the_naive_rung_of_the_fused_op():
    x, table, targets = fused_arguments()
    loss, cache = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0)
    naive, *naive_gradients = fused.linear_cross_entropy_naive(x, table, targets, 0.1, 0)
    check("loss", naive, loss.item(), 1e-6)
    for naive_gradient, gradient in zip(
        naive_gradients, kernels.linear_cross_entropy_backward(1.0, cache), strict=True
    ):
        check("gradient", naive_gradient, to_numpy(gradient), 1e-6)
