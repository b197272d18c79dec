"""Cross-entropy: the loss over logits, and what holds of it and of its fusion with the output projection."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.losses import (
    bare,
    bare_backward,
    both,
    draw_targets,
    fused_arguments,
    ignored,
    on_device,
    smoothings,
    vocab_sizes,
)
from support.kernels.prove_kernel import DEVICE, DTYPES, check, few, prove_kernel, seeds, to_numpy
from support.kernels.traffic import Traffic, far_apart

import kernels
from kernels.cross_entropy import ELEMENTS, cross_entropy_naive
from minitransformer import ops


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(
    batch=st.sampled_from([(), (3,), (5,), (2, 3), (0, 2)]),
    vocab_size=vocab_sizes,
    smoothing=smoothings,
    ignore_index=ignored,
    seed=seeds,
)
def test_cross_entropy(dtype, batch, vocab_size, smoothing, ignore_index, seed):
    rng = np.random.default_rng(seed)
    targets = draw_targets(rng, batch, vocab_size, ignore_index)
    arrays = {"logits": rng.standard_normal((*batch, vocab_size)), "targets": np.asarray(targets)}
    prove_kernel("cross_entropy", arrays, dtype, label_smoothing=smoothing, ignore_index=ignore_index)


# --- Both -----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("count", [0, 3], ids=["no rows", "all ignored"])
def test_no_target_at_all_gives_zero_and_zero_gradients(forward, backward, count):
    x, table = torch.ones(count, 4, device=DEVICE), torch.ones(5, 4, device=DEVICE)
    loss, cache = forward(x, table, torch.full((count,), -100, device=DEVICE), 0.1, -100)
    assert loss.item() == 0
    assert loss.shape == ()
    for gradient in backward(1.0, cache):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@both
@pytest.mark.parametrize(
    "dloss", [2, 2.0, np.float32(2), torch.tensor(2.0), torch.tensor([2.0]), torch.tensor(2.0).half()]
)
def test_dloss_is_a_number_or_a_tensor(forward, backward, dloss):
    _, cache = forward(*fused_arguments(), 0.1, 0)
    dloss = dloss.to(DEVICE) if isinstance(dloss, torch.Tensor) else dloss
    for gradient, single in zip(backward(dloss, cache), backward(1.0, cache), strict=True):
        assert torch.equal(gradient, 2 * single)
    for wrong, kind in ((torch.ones(2, device=DEVICE), ValueError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(kind, match="dloss"):
            backward(wrong, cache)


@both
def test_large_logits_do_not_overflow(forward, backward):
    x, table = torch.tensor([[1e4], [-1e4]], device=DEVICE), torch.tensor([[1.0], [-1.0], [0.0]], device=DEVICE)
    loss, cache = forward(x, table, torch.tensor([1, 1], device=DEVICE))
    assert loss.item() == pytest.approx(1e4)
    assert all(torch.isfinite(gradient).all() for gradient in backward(1.0, cache))


@both
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_any_integers_are_targets(forward, backward, dtype):
    x, table, targets = fused_arguments()
    loss, _ = forward(x, table, targets, 0.1)
    apart = torch.stack([targets, targets], dim=-1).to(dtype)[:, 0]
    check("loss", forward(x, table, apart, 0.1)[0], loss.item(), 1e-6)


# --- Rows that are long, far apart or extreme -------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_common_offset_costs_no_accuracy(smoothing):
    """Near 20,000 a log-sum-exp is known to 1e-3 only, but the loss and its gradient must be exact."""
    rng = np.random.default_rng(0)
    logits = (2e4 + rng.standard_normal((9, 5000))).astype(np.float32)
    targets = rng.integers(5000, size=9)
    expected, reference = ops.cross_entropy_forward(logits.astype(np.float64), targets, smoothing)
    loss, cache = kernels.cross_entropy_forward(*on_device(logits, targets), label_smoothing=smoothing)
    check("loss", loss, expected, 1e-6)
    gradient = kernels.cross_entropy_backward(1e3, cache)
    check("gradient", gradient, ops.cross_entropy_backward(1e3, reference), 1e-5)
    check("its rows' sums", gradient.sum(-1), np.zeros(9), 1e-4)


def test_a_row_of_131073():
    rng = np.random.default_rng(0)
    logits, targets = 3 * rng.standard_normal((2, 131_073)), np.array([131_072, 0])
    expected, reference = ops.cross_entropy_forward(logits, targets, 0.1)
    loss, cache = kernels.cross_entropy_forward(*on_device(logits, targets), label_smoothing=0.1)
    check("loss", loss, expected, 1e-6)
    check("gradient", kernels.cross_entropy_backward(1.0, cache), ops.cross_entropy_backward(1.0, reference), 1e-6)


def test_rows_whose_offsets_pass_31_bits():
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.standard_normal((3, 5))).to(DEVICE, torch.float16)
    targets = torch.tensor([0, 4, 2], device=DEVICE)
    expected, reference_cache = ops.cross_entropy_forward(to_numpy(logits), to_numpy(targets), 0.1)
    loss, cache = kernels.cross_entropy_forward(far_apart(logits), targets, 0.1)
    check("loss", loss, expected, 1e-6)
    gradient = ops.cross_entropy_backward(1.0, reference_cache)
    check("gradient", kernels.cross_entropy_backward(1.0, cache), gradient, torch.finfo(torch.float16).eps)


@pytest.mark.parametrize("width", [3, ELEMENTS + 1])
@pytest.mark.parametrize("others", [[-torch.inf, 1.0], [-3e38, 0.0]], ids=["-inf", "-3e38"])
def test_a_token_that_is_ruled_out(others, width):
    """Without smoothing its −inf takes no part, wherever it stands, even if a whole block is ruled out."""
    logits = torch.full((1, width), others[0], device=DEVICE)
    logits[0, -2:] = torch.tensor([0.0, others[1]])
    targets = torch.tensor([width - 2], device=DEVICE)
    loss, cache = kernels.cross_entropy_forward(logits, targets)
    assert loss.item() == pytest.approx(torch.nn.functional.cross_entropy(logits, targets).item(), abs=1e-6)
    gradient = kernels.cross_entropy_backward(1.0, cache)
    assert torch.isfinite(gradient).all()
    assert not gradient[0, :-2].any()


def test_ruling_out_the_target_or_smoothing_over_it_costs_everything():
    logits = torch.tensor([[0.0, -torch.inf, 1.0]], device=DEVICE)
    for target, smoothing in ((1, 0.0), (1, 0.1), (0, 0.1)):
        loss, _ = kernels.cross_entropy_forward(logits, torch.tensor([target], device=DEVICE), smoothing)
        assert loss.item() == torch.inf


def test_ignored_rows_are_not_even_read():
    rng = np.random.default_rng(0)
    targets = np.array([1, -100, 4, -100, 2, 0])
    logits, targets = on_device(rng.standard_normal((6, 50)), targets)
    real = targets != -100
    alone, alone_cache = kernels.cross_entropy_forward(logits[real], targets[real], 0.1)
    logits[~real] = torch.nan
    loss, cache = kernels.cross_entropy_forward(logits, targets, 0.1, -100)
    gradient = kernels.cross_entropy_backward(1.0, cache)
    check("loss", loss, alone.item(), 1e-6)  # zeros between the losses: they are added in another order
    assert torch.equal(gradient[real], kernels.cross_entropy_backward(1.0, alone_cache))
    assert not gradient[~real].any()


@both
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1 / 3, 1.0])
def test_a_vocabulary_of_one_leaves_nothing_to_learn(forward, backward, smoothing):
    """Its only token is certain, and `softmax − q` is 0 whatever ε is: q is to round to 1."""
    x, table = torch.randn(300, 1, device=DEVICE), torch.tensor([[1.7]], device=DEVICE)
    loss, cache = forward(x, table, torch.zeros(300, dtype=torch.int64, device=DEVICE), smoothing)
    assert loss.item() == 0
    assert not any(gradient.any() for gradient in backward(1.0, cache))


def test_nan_stays_nan():
    logits = torch.tensor([[0.0, torch.nan, 1.0]], device=DEVICE)
    assert torch.isnan(kernels.cross_entropy_forward(logits, torch.tensor([0], device=DEVICE))[0])


# --- The first rung -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_naive_rung(smoothing):
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((5, 2, 7)), draw_targets(rng, (5, 2), 7, 0)
    expected, reference = ops.cross_entropy_forward(logits, targets, smoothing, 0)
    tensors = on_device(logits, targets)
    with Traffic(logits.size) as traffic:
        loss, dlogits = cross_entropy_naive(*tensors, label_smoothing=smoothing, ignore_index=0)
    assert traffic.passes == 20
    check("loss", loss, expected, 1e-6)
    check("dlogits", dlogits, ops.cross_entropy_backward(1.0, reference), 1e-6)


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_nothing_waits_for_the_gpu():
    x, table, targets = fused_arguments()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for forward, backward in (
            (bare, bare_backward),
            (kernels.linear_cross_entropy_forward, kernels.linear_cross_entropy_backward),
        ):
            backward(1.0, forward(x, table, targets, 0.1, 0)[1])
    finally:
        torch.cuda.set_sync_debug_mode("default")
