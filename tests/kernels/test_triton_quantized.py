"""Weights in few bits unpacked in registers: as NumPy's op, for all levels, groups and sizes of x and of the weight."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, DTYPES, few, prove_kernel, seeds

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")

import kernels
from kernels.eager.quantized import on_device
from minitransformer.ops import quantize
from minitransformer.ops.quantized import Quantized

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def drawn(rows: tuple[int, ...], groups: int, width: int, *levels: Any, seed: int = 0) -> tuple[dict, Quantized]:
    """Return x and a bias, and a weight whose C_in is so many groups."""
    rng, (_, group, _) = np.random.default_rng(seed), levels
    weight = rng.standard_normal((groups * group, width)) / np.sqrt(groups * group)
    x, bias = rng.standard_normal((*rows, groups * group)), rng.standard_normal(width)
    return {"x": x, "bias": bias}, quantize(weight, *levels)


@dtypes
@few
@given(data=st.data(), seed=seeds)
def test_the_op_is_numpys(dtype, data, seed):
    """Any number of rows, groups and outputs, none among rows; groups of any size."""
    bits, symmetric = data.draw(st.sampled_from([4, 8]), "bits"), data.draw(st.booleans(), "symmetric")
    group = data.draw(st.sampled_from([2, 6, 32, 64]), "group")
    rows = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=2), "rows"))
    groups, width = data.draw(st.integers(1, 4), "groups"), data.draw(st.integers(1, 70), "C_out")
    arrays, weight = drawn(rows, groups, width, bits, group, symmetric, seed=seed)
    prove_kernel("quantized_linear", arrays, dtype, weight=weight)


@dtypes
@pytest.mark.parametrize("bits", [8, 4])
def test_many_rows(dtype, bits):
    """More than one block of each axis, which is never the last one's size."""
    arrays, weight = drawn((67,), 5, 70, bits, 32, bits == 8)
    prove_kernel("quantized_linear", arrays, dtype, weight=weight)


def test_without_a_bias_there_is_no_gradient_of_one():
    arrays, weight = drawn((3,), 2, 5, 4, 32, False)
    x = torch.tensor(arrays["x"], dtype=torch.float32, device=DEVICE)
    y, cache = kernels.quantized_linear_forward(x, on_device(weight, DEVICE), None)
    with_bias, _ = kernels.quantized_linear_forward(x, on_device(weight, DEVICE), torch.ones(5, device=DEVICE))
    torch.testing.assert_close(with_bias, y + 1)
    assert kernels.quantized_linear_backward(y, cache)[1] is None


PACKED = on_device(quantize(np.ones((32, 5))), DEVICE)
X = torch.ones(2, 32, device=DEVICE)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: kernels.quantized_linear_forward(X[:, 1:], PACKED, None), ValueError, r"weight has shape \(32, 5\)"),
        (lambda: kernels.quantized_linear_forward(X.double(), PACKED, None), TypeError, "x is torch.float64"),
        (
            lambda: kernels.quantized_linear_forward(X.clone().requires_grad_(), PACKED, None),
            ValueError,
            "requires a gradient",
        ),
        (lambda: kernels.quantized_linear_backward(X, (PACKED, False, X.shape, X.dtype)), ValueError, "dy has shape"),
    ],
)
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
