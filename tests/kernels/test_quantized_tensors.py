"""The affine map with a weight in few bits, over tensors: as NumPy's, with autograd's gradients."""

from typing import Any

import numpy as np
import pytest
import torch
from support.kernels.prove_kernel import DEVICE

from kernels.eager import quantized
from kernels.eager.quantized import on_device, quantized_linear_backward, quantized_linear_forward
from minitransformer import ops
from minitransformer.gradcheck import error
from minitransformer.ops import dequantize, quantize

TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 3e-2}
every_kind = pytest.mark.parametrize(("bits", "symmetric"), [(8, True), (8, False), (4, True), (4, False)])


def double(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()


@every_kind
def test_the_weights_are_numpys_to_the_last_bit(bits, symmetric, monkeypatch):
    weight = quantize(np.random.default_rng(bits).standard_normal((96, 7)), bits, symmetric=symmetric)
    monkeypatch.setattr(quantized, "AT_ONCE", 200)
    parts = list(quantized.columns(on_device(weight, DEVICE)))
    assert [part for part, _ in parts] == [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 7)]
    assert torch.cat([rows for _, rows in parts]).cpu().numpy().tobytes() == dequantize(weight).T.tobytes()


@every_kind
@pytest.mark.parametrize("at_once", [100, 1 << 18])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_the_op_is_numpys_and_its_gradients_are_autograds(bits, symmetric, at_once, dtype, monkeypatch):
    monkeypatch.setattr(quantized, "AT_ONCE", at_once)
    rng = np.random.default_rng(bits)
    weight = quantize(rng.standard_normal((64, 5)) / 8, bits, symmetric=symmetric)
    arrays = [rng.standard_normal(shape) for shape in ((2, 3, 64), 5, (2, 3, 5))]
    x, bias, dy = (torch.tensor(array, dtype=getattr(torch, dtype), device=DEVICE) for array in arrays)
    for b in (bias, None):
        y, cache = quantized_linear_forward(x, on_device(weight, DEVICE), b)
        gradients = quantized_linear_backward(dy, cache)
        expected, their_cache = ops.quantized_linear_forward(double(x), weight, None if b is None else double(b))
        wanted = ops.quantized_linear_backward(double(dy), their_cache)
        assert (b is None) == (gradients[1] is None)
        for ours, theirs in zip((y, *gradients), (expected, *wanted), strict=True):
            if ours is not None and theirs is not None:
                assert ours.dtype == x.dtype
                assert error(double(ours), theirs) <= TOLERANCES[dtype]
    x.requires_grad_()
    y, cache = quantized_linear_forward(x, on_device(weight, DEVICE), None)
    (wanted,) = torch.autograd.grad(y, x, dy)
    assert error(double(quantized_linear_backward(dy, cache)[0]), double(wanted)) <= TOLERANCES[dtype]


PACKED = on_device(quantize(np.ones((32, 5))), DEVICE)
X = torch.ones(2, 32, device=DEVICE)


@pytest.mark.parametrize(
    ("x", "weight", "bias", "kind", "says"),
    [
        (X, torch.ones(32, 5), None, TypeError, "weight must be a Quantized, which quantize makes, got Tensor"),
        (X, quantize(np.ones((32, 5))), None, TypeError, "weight's packed must be a torch.Tensor, got ndarray"),
        (np.ones((2, 32)), PACKED, None, TypeError, "x must be a torch.Tensor, got ndarray"),
        (X[:, 1:], PACKED, None, ValueError, r"weight has shape \(32, 5\), expected \(31, C_out\) beside x \(2, 31\)"),
        (X, PACKED, X[0, :4], ValueError, r"bias has shape \(4,\), expected \(5,\) beside weight \(32, 5\)"),
        (X.to("meta"), PACKED, None, ValueError, "x is on meta and weight on .*, expected one device"),
        (X, PACKED, X[0, :5].half(), TypeError, "x is torch.float32 and bias is torch.float16: types are never mixed"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(x: Any, weight: Any, bias: Any, kind, says):
    with pytest.raises(kind, match=f"^{says}$"):
        quantized_linear_forward(x, weight, bias)


def test_a_gradient_of_another_shape_is_refused():
    _, cache = quantized_linear_forward(X, PACKED, None)
    with pytest.raises(ValueError, match=r"^dy has shape \(2, 4\), expected "):
        quantized_linear_backward(X[:, :4], cache)
