"""What attention takes and gives: layouts, and far-flung memory."""

import pytest
import torch
from support.kernels.attention_cases import on_device, qkv
from support.kernels.prove_kernel import DEVICE, assert_same_bits

import kernels


def test_heads_are_taken_where_they_lie_and_given_as_they_merge():
    """Queries, keys and values as one projection leaves them, `(B, T, 3, H, D)`."""
    B, T, H, D = 2, 18, 2, 16
    projected = torch.randn(B, T, 3, H, D, device=DEVICE)
    query, key, value = projected.permute(2, 0, 3, 1, 4)
    out, cache = kernels.attention_forward(query, key, value)
    assert cache[1].ptr.data_ptr() == query.data_ptr(), "a copy was made"
    expected, expected_cache = kernels.attention_forward(query.clone(), key.contiguous(), value.contiguous())
    assert torch.equal(out, expected)
    dout = torch.randn_like(out)
    gradients = kernels.attention_backward(dout, cache)
    assert_same_bits(gradients, kernels.attention_backward(dout, expected_cache))
    for heads in (out, *gradients):
        assert heads.swapaxes(1, 2).reshape(B, T, H * D).data_ptr() == heads.data_ptr()


@pytest.mark.parametrize("lying", ["in narrow rows", "in rows 24 apart", "from the third number on"])
def test_rows_that_do_not_start_at_multiples_of_16_numbers_are_copied(lying):
    """What lies behind them in memory does not matter: here it is NaN."""
    width = 9 if lying == "in narrow rows" else 16
    memory = torch.full((2, 1, 18, 24 if "24" in lying else 32), torch.nan, device=DEVICE)
    x = memory[..., 2 : 2 + width] if "third" in lying else memory[..., :width]
    x.copy_(torch.randn(x.shape))
    out, cache = kernels.attention_forward(x, x, x)
    expected, expected_cache = kernels.attention_forward(x.contiguous(), x.contiguous(), x.contiguous())
    assert torch.equal(out, expected)
    for operand in cache[1:4]:
        assert operand.ptr.data_ptr() not in range(memory.data_ptr(), memory.data_ptr() + memory.nbytes)
        assert not any(stride % 16 for stride in operand[1:])
    assert_same_bits(kernels.attention_backward(x, cache), kernels.attention_backward(x, expected_cache))


def test_expanded_gradients():
    out, cache = kernels.attention_forward(*on_device(qkv(batch=2, tq=20, tk=20)))
    dout = torch.tensor(0.5, device=DEVICE).expand(out.shape)
    assert_same_bits(kernels.attention_backward(dout, cache), kernels.attention_backward(dout.clone(), cache))


@pytest.mark.skipif(DEVICE == "cuda", reason="host memory is lazy, a GPU's is not")
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_offsets_beyond_31_bits(monkeypatch, axis):
    """Three keys, 2³⁰ numbers apart, in sentences, heads or rows: their memory is reserved but hardly touched.

    As much lies before them, so that an offset that has wrapped around reads zeros.
    """
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    near = torch.randn(*(3 if axis == i else 1 for i in range(3)), 16, dtype=torch.float16)
    strides = [16, 16, 16, 1]
    strides[axis] = 2**30
    try:
        far = torch.empty(2**32 + 16, dtype=torch.float16).as_strided(near.shape, strides, 2**31)
    except RuntimeError:
        pytest.skip("no 8 GiB of addresses")
    far.copy_(near)
    outs, caches = zip(*(kernels.attention_forward(near, keys, keys) for keys in (near, far)), strict=True)
    assert torch.equal(*outs)
    assert_same_bits(*(kernels.attention_backward(near, cache) for cache in caches))
