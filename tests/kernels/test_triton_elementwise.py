"""ReLU and dropout: one pass over memory each."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, DTYPES, assert_same_bits, few, on_device, prove_kernel, seeds

import kernels
from kernels.bench.cases import draw
from kernels.dropout import dropout_naive
from minitransformer.ops import Dropout, dropout_mask

shapes = st.sampled_from([(3,), (2, 5), (2, 3, 4), (2, 0, 4), (0,), (2, 3, 2, 7), (1, 4500), (70, 33)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(shape=shapes, seed=seeds)
def test_relu(dtype, shape, seed):
    x = np.random.default_rng(seed).standard_normal(shape)
    prove_kernel("relu", {"x": x}, dtype)


def test_relu_keeps_nan():
    y, _ = kernels.relu_forward(torch.tensor([float("nan"), -1.0, 2.0], device=DEVICE))
    assert torch.isnan(y[0])
    assert y[1:].tolist() == [0.0, 2.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(shape=shapes, rate=st.sampled_from([0.0, 0.1, 0.5, 0.99999]), seed=seeds, packed=st.booleans())
def test_dropout(dtype, shape, rate, seed, packed):
    rng = np.random.default_rng(seed)
    dropout = Dropout(rate, key=seed << 31 | 5, sentence=2, position=3)
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
