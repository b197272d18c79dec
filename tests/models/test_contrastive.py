"""CLIP's loss against PyTorch's functions and autograd, and against finite differences."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.prove import Proof

import kernels
from minitransformer.gradcheck import check_gradients, error
from minitransformer.models.contrastive import (
    FIRST_LOG_SCALE,
    contrastive_loss_backward,
    contrastive_loss_forward,
)


def drawn(batch: int, width: int, log_scale: float = FIRST_LOG_SCALE) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    return dict(zip(("a", "b"), rng.standard_normal((2, batch, width)), strict=True)) | {
        "log_scale": np.array(log_scale)
    }


CASES = [drawn(1, 3), drawn(2, 2), drawn(7, 5), drawn(4, 6, 0.0), drawn(5, 3, -1.0)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("arrays", CASES, ids=lambda arrays: str(arrays["a"].shape))
def test_the_loss_and_its_gradients(arrays: dict[str, np.ndarray], smoothing: float, proof: Proof) -> None:
    forward = partial(contrastive_loss_forward, label_smoothing=smoothing)
    loss, cache = forward(arrays["a"], arrays["b"], arrays["log_scale"])
    a, b, log_scale = tensors = [torch.tensor(each, requires_grad=True) for each in arrays.values()]
    logits = log_scale.exp() * F.cosine_similarity(a[:, None], b[None], dim=-1)
    own = torch.arange(len(a))
    by_row, by_column = (F.cross_entropy(each, own, label_smoothing=smoothing) for each in (logits, logits.T))
    expected = (by_row + by_column) / 2
    (0.7 * expected).backward()
    assert error(loss, expected.item()) <= 1e-12
    for gradient, tensor in zip(contrastive_loss_backward(0.7, cache), tensors, strict=True):
        assert tensor.grad is not None
        worst = error(gradient, tensor.grad)
        proof.record("contrastive_loss", "autograd", worst)
        assert worst <= 1e-10
    worst = max(check_gradients(forward, contrastive_loss_backward, arrays).values())
    proof.record("contrastive_loss", "finite differences", worst)


def test_what_the_loss_says() -> None:
    """log B where all similarities are equal, next to nothing where each is nearest to its own."""
    ones, far = np.ones((5, 3)), 9 * np.eye(5)
    assert contrastive_loss_forward(ones, 2 * ones, np.array(1.0))[0] == pytest.approx(np.log(5))
    assert contrastive_loss_forward(far, far, np.array(4.0))[0] < 1e-20
    assert contrastive_loss_forward(far, far[::-1], np.array(1.0))[0] > np.log(5)


def test_float32_stays_and_a_row_of_zeros_has_no_length() -> None:
    a, b, log_scale = (each.astype(np.float32) for each in drawn(4, 6).values())
    a[1] = 0
    loss, cache = contrastive_loss_forward(a, b, log_scale)
    results = loss, *contrastive_loss_backward(1.0, cache)
    assert {np.asarray(each).dtype for each in results} == {np.dtype("float32")}
    assert all(np.isfinite(each).all() for each in results)


@pytest.mark.parametrize(("dtype", "length"), [("bfloat16", 1), ("float16", 300)])
def test_narrow_vectors_are_widened_and_their_gradients_are_narrow(dtype: str, length: float) -> None:
    """The square of 300 is more than float16 holds."""
    ops, given = kernels.torch_ops("cpu", dtype), drawn(7, 5, 4.0)
    a, b = (ops.activations(ops.asarray(length * given[name], "float32")) for name in "ab")
    log_scale = ops.asarray(given["log_scale"], "float32")
    loss, cache = contrastive_loss_forward(a, b, log_scale, ops=ops)
    wide, wide_cache = contrastive_loss_forward(a.double(), b.double(), log_scale.double(), ops=ops)
    assert float(loss) == pytest.approx(float(wide), rel=1e-5)
    gradients = contrastive_loss_backward(1.0, cache)
    assert [each.dtype for each in gradients] == [a.dtype, b.dtype, torch.float32]
    for gradient, expected in zip(gradients, contrastive_loss_backward(1.0, wide_cache), strict=True):
        assert error(gradient.double(), expected) <= 1e-2


@pytest.mark.parametrize(("one", "other"), [((3, 4), (3, 5)), ((3, 4), (2, 4)), ((3,), (3,))])
def test_vectors_that_are_no_pairs_are_refused(one: tuple, other: tuple) -> None:
    with pytest.raises(ValueError, match=r"a and b have shapes .*, expected the same, \(B, C\)"):
        contrastive_loss_forward(np.zeros(one), np.zeros(other), np.array(0.0))
