"""Activations, alone and gated, and dropout: one pass over memory each."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import (
    DEVICE,
    DTYPES,
    assert_same_bits,
    check,
    few,
    on_device,
    prove_kernel,
    seeds,
    to_numpy,
)
from torch import Tensor

import kernels
from kernels.dropout import dropout_naive
from kernels.eager.arrays import concatenate
from kernels.elementwise import gated_naive
from kernels.functional.rows import _gated_kept
from kernels.proof.cases import draw
from minitransformer import ops
from minitransformer.ops import Dropout, dropout_mask
from minitransformer.ops.elementwise import ACTIVATIONS

shapes = st.sampled_from([(3,), (2, 5), (2, 3, 4), (2, 0, 4), (0,), (2, 3, 2, 7), (1, 4500), (70, 33)])


ALONE: dict[str, tuple[str, dict]] = {
    "relu": ("relu", {}),
    "silu": ("silu", {}),
    "gelu": ("gelu", {}),
    "gelu, tanh": ("gelu", {"approximate": "tanh"}),
}
"""The activations of one array, and their options."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ALONE)
@few
@given(shape=shapes, seed=seeds)
def test_an_activation(dtype, name, shape, seed):
    op, options = ALONE[name]
    x = 3 * np.random.default_rng(seed).standard_normal(shape)
    prove_kernel(op, {"x": x}, dtype, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@few
@given(shape=shapes, seed=seeds)
def test_gated(dtype, activation, shape, seed):
    gate, up = np.random.default_rng(seed).standard_normal((2, *shape))
    prove_kernel("gated", {"gate": gate, "up": up}, dtype, activation=activation)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ALONE)
def test_activations_of_very_large_numbers_and_of_nan(name, dtype):
    """Nothing overflows: an activation is 0 or x there, and its slope 0 or 1. At 0 relu's is 0, the others' ½."""
    op, options = ALONE[name]
    large, larger = (6e4, 65504) if dtype == torch.float16 else (1e20, 3e38)
    x = torch.tensor([-larger, -large, -200.0, 0.0, 200.0, large, larger, torch.nan], dtype=dtype, device=DEVICE)
    y, cache = getattr(kernels, f"{op}_forward")(x, **options)
    dx = getattr(kernels, f"{op}_backward")(torch.ones_like(x), cache)
    assert y.tolist()[:-1] == [0, 0, 0, 0, *x[4:-1].tolist()]
    assert dx.tolist()[:-1] == [0, 0, 0, 0 if op == "relu" else 0.5, 1, 1, 1]
    assert y[-1].isnan()


def test_gelu_in_float32_is_good_to_its_last_digits():
    x = torch.linspace(-1, 1, 2001, device=DEVICE)
    y, _ = kernels.gelu_forward(x)
    check("output", y, ops.gelu_forward(to_numpy(x))[0], 1.2e-7)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != torch.float32], ids=str)
def test_gelu_in_half_precision_keeps_its_tail(dtype):
    """As a share of y, which far below 0 is small: `½ + ½ erf(x/√2)` in float32 would lose a 20th at −5."""
    x = torch.linspace(-5, 0, 2001, device=DEVICE).to(dtype)
    y, _ = kernels.gelu_forward(x)
    expected, _ = ops.gelu_forward(to_numpy(x))
    info = torch.finfo(dtype)
    np.testing.assert_allclose(to_numpy(y), expected, rtol=info.eps, atol=info.smallest_normal * info.eps)


def test_the_small_numbers_of_gelu_keep_their_digits():
    """`x · σ(2u)` is x/2 + O(x²): a tanh computed as a difference of exponentials would be rounded to 2⁻²⁴."""
    x = torch.logspace(-30, -4, 50, device=DEVICE)
    expected, _ = ops.gelu_forward(to_numpy(x), approximate="tanh")
    y, _ = kernels.gelu_forward(x, approximate="tanh")
    np.testing.assert_allclose(to_numpy(y), expected, rtol=1e-6)


def test_parts_of_a_projection_are_taken_as_they_lie(monkeypatch):
    """As a gated feed-forward network hands over the halves of its first map: no copy is made."""
    gate, up, dy = (torch.randn(2, 5, parts * 33, device=DEVICE)[..., -33:] for parts in (2, 3, 1))
    expected, expected_cache = kernels.gated_forward(gate.clone(), up.clone())
    wanted = kernels.gated_backward(dy, expected_cache)
    monkeypatch.setattr(Tensor, "contiguous", None)
    y, cache = kernels.gated_forward(gate, up)
    assert_same_bits((y, *kernels.gated_backward(dy, cache)), (expected, *wanted))


def test_the_gradients_of_halves_are_halves():
    """Joined without a copy, with the bits of gradients that lie apart, which those of separate arrays do."""
    projected, dy = torch.randn(2, 5, 66, device=DEVICE), torch.randn(2, 5, 33, device=DEVICE)
    gate, up = projected[..., :33], projected[..., 33:]
    halves = kernels.gated_backward(dy, kernels.gated_forward(gate, up)[1])
    apart = kernels.gated_backward(dy, kernels.gated_forward(gate.clone(), up.clone())[1])
    assert_same_bits(halves, apart)
    assert concatenate(halves).data_ptr() == halves[0].data_ptr()
    assert concatenate(halves).is_contiguous()
    assert concatenate(apart).data_ptr() != apart[0].data_ptr()
    for each in kernels.gated_backward(dy, _gated_kept().cache([], gate, up, "silu")):  # an operator's may not share it
        assert each.untyped_storage().nbytes() == each.nbytes
    swapped = kernels.gated_backward(dy, kernels.gated_forward(up, gate)[1])  # neighbours in the other order
    assert_same_bits(swapped, kernels.gated_backward(dy, kernels.gated_forward(up.clone(), gate.clone())[1]))


def test_the_naive_rung_of_gated():
    gate, up = torch.randn(2, 5, 7, device=DEVICE)
    check("output", gated_naive(gate, up), to_numpy(kernels.gated_forward(gate, up)[0]), 1e-6)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: kernels.gelu_forward(x, approximate="sigmoid"), ValueError, "approximate is 'sigmoid'"),
        (lambda x: kernels.gated_forward(x, x, activation="tanh"), ValueError, "activation is 'tanh'"),
        (lambda x: kernels.gated_forward(x, x[:1]), ValueError, r"up has shape \(1, 3\), expected \(2, 3\)"),
        (lambda x: kernels.gated_forward(x, x.half()), TypeError, "types are never mixed"),
        (lambda x: kernels.silu_forward(x.double()), TypeError, "x is torch.float64"),
        (lambda x: kernels.silu_backward(x[:1], kernels.silu_forward(x)[1]), ValueError, "dy has shape"),
    ],
)
def test_what_activations_refuse(call, error, says):
    with pytest.raises(error, match=says):
        call(torch.ones(2, 3, device=DEVICE))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(shape=shapes, rate=st.sampled_from([0.0, 0.1, 0.5, 0.99999]), seed=seeds, packed=st.booleans())
def test_dropout(dtype, shape, rate, seed, packed):
    rng = np.random.default_rng(seed)
    dropout = Dropout(rate, key=seed << 32 | ~seed & 0xFFFFFFFF, sentence=2, position=3)
    if packed and len(shape) == 2:
        dropout = Dropout(rate, seed, *(rng.integers(0, 9, shape[0]) for _ in range(2)))
    prove_kernel("dropout", {"x": rng.standard_normal(shape)}, dtype, dropout=dropout)


@pytest.mark.parametrize("key", [0, 1, 16, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
def test_masks_are_the_references_to_the_bit(key):
    dropout = Dropout(0.4, key, sentence=16, position=1)
    y, _ = kernels.dropout_forward(torch.ones(3, 2, 5, 37, device=DEVICE), dropout)
    np.testing.assert_array_equal((y != 0).cpu().numpy(), dropout_mask((3, 2, 5, 37), dropout))


@pytest.mark.parametrize("op", ["dropout", "add_layernorm", "attention"])
def test_the_key_may_live_in_device_memory(op):
    """A captured graph needs that: a replay reads the key that stands there then."""
    key = 0x9234567890ABCDEF
    halves = torch.tensor([key & 0xFFFFFFFF, key >> 32], dtype=torch.int64).to(torch.int32).to(DEVICE)
    arrays = draw(op, np.random.default_rng(0), (2, 5), B=2, H=2, Tq=5, Tk=7, D=4, Dv=4, C=10)
    tensors = on_device(arrays)
    found = []
    for which in (key, halves):
        out, cache = getattr(kernels, f"{op}_forward")(*tensors, dropout=Dropout(0.5, which, sentence=1))
        gradients = getattr(kernels, f"{op}_backward")(torch.ones_like(out), cache)
        found.append([out, *(gradients if isinstance(gradients, tuple) else [gradients])])
    assert_same_bits(*found)


@pytest.mark.parametrize("layout", ["strided", "expanded", "NumPy's"])
def test_coordinates_of_any_layout(layout):
    sentences = torch.arange(24, dtype=torch.int32)[::2]
    if layout == "expanded":
        sentences = torch.tensor([5], dtype=torch.int32).expand(12)
    positions = torch.arange(36, dtype=torch.int32)[::3]
    given = [each.numpy() if layout == "NumPy's" else each.to(DEVICE) for each in (sentences, positions)]
    y, _ = kernels.dropout_forward(torch.ones(12, 30, device=DEVICE), Dropout(0.5, 7, *given))
    reference = Dropout(0.5, 7, sentences.numpy(), positions.numpy())
    np.testing.assert_array_equal((y != 0).cpu().numpy(), dropout_mask((12, 30), reference))


def test_a_strided_key():
    keys = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32, device=DEVICE)
    x = torch.ones(4, 30, device=DEVICE)
    y, _ = kernels.dropout_forward(x, Dropout(0.5, keys[:, 1]))
    expected, _ = kernels.dropout_forward(x, Dropout(0.5, 2 + (4 << 32)))
    assert torch.equal(y, expected)


@pytest.mark.parametrize("forward", [kernels.dropout_forward, kernels.torch_ops(DEVICE).dropout.forward])
@pytest.mark.parametrize("key", [torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int64)])
def test_a_key_that_is_none(forward, key):
    with pytest.raises(ValueError, match=r"dropout's key is .*, expected two int32"):
        forward(torch.ones(2, 3, device=DEVICE), Dropout(0.5, key.to(DEVICE)))


def test_the_naive_rung_of_dropout():
    x = torch.randn(100, 100, device=DEVICE)
    y, mask = dropout_naive(x, 0.25)
    assert torch.equal(y, x * mask / 0.75)
    assert mask.float().mean().item() == pytest.approx(0.75, abs=0.02)
