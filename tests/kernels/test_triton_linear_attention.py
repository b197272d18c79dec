"""Linear attention in chunks: both ways, grouped heads, padding, any length; and the rung below."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, DTYPES, check, few, on_device, prove_kernel, seeds, to_numpy
from support.kernels.traffic import Traffic
from triton._C.libtriton.ir import INPUT_PRECISION
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

import kernels
from kernels.eager import linear_attention as eager
from kernels.linear_attention import CHUNKS, WIDEST, linear_attention_forward_kernel, linear_attention_naive
from kernels.proof.cases import draw
from kernels.tuning import KIBIBYTE, Capability, pretending
from minitransformer import ops

CHUNK = CHUNKS["ieee"]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def arrays(T: int, D: int = 5, Dv: int = 7, H: int = 2, Hk: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """Queries, keys and values of two sentences."""
    return draw("linear_attention", np.random.default_rng(seed), B=2, H=H, Hk=Hk, T=T, D=D, Dv=Dv)


@dtypes
@few
@given(
    T=st.sampled_from([1, CHUNK - 1, CHUNK, 2 * CHUNK, 2 * CHUNK + 3]),
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1)]),
    widths=st.sampled_from([(1, 1), (5, 7), (16, 16), (33, 20)]),
    causal=st.booleans(),
    padded=st.booleans(),
    eps=st.sampled_from([1e-6, 0.1]),
    seed=seeds,
)
def test_linear_attention(dtype, T, heads, widths, causal, padded, eps, seed):
    options: dict[str, Any] = {"causal": causal, "eps": eps}
    if padded:  # the first key is real, so that a causal query always sees one
        options["key_mask"] = np.random.default_rng(seed).random((2, T)) < 0.6
        options["key_mask"][:, 0] = True
    prove_kernel("linear_attention", arrays(T, *widths, *heads, seed=seed), dtype, **options)


@pytest.mark.skipif(
    DEVICE == "cuda",
    reason="hide the GPU, CUDA_VISIBLE_DEVICES='': the interpreter's products are changed",
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("T", "draws"), [(3, 2), (40, 1), *(pytest.param(T, 5, marks=pytest.mark.slow) for T in (1, 3, 40))]
)
def test_hardware_that_cuts_operands_off(monkeypatch, causal, T, draws):
    """A Hopper takes the upper 19 bits of float32 operands in tf32, and does not round; half precision needs tf32."""
    multiply, cut = InterpreterBuilder.create_dot, []

    def upper_bits(x: TensorHandle) -> TensorHandle:
        cut.append(x.data.dtype)
        return TensorHandle((x.data.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32), x.dtype)

    def create_dot(self, a, b, d, input_precision, *rest):
        assert input_precision == INPUT_PRECISION.TF32
        return multiply(self, upper_bits(a), upper_bits(b), d, input_precision, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
    for seed in range(draws):
        prove_kernel("linear_attention", arrays(T, 64, 64, seed=seed), torch.float16, causal=causal)
    assert set(cut) == {np.dtype(np.float32)}


@pytest.mark.skipif(
    DEVICE == "cuda",
    reason="hide the GPU, CUDA_VISIBLE_DEVICES='': the interpreter's products are changed",
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_nan_is_not_lost(monkeypatch, causal, name):
    """A GPU writes it as 0x7FFFFFFF, which a carry would make 0, and its maximum of NaN and 0 is 0."""
    multiply = InterpreterBuilder.create_dot

    def create_dot(self, *operands):
        product = multiply(self, *operands)
        product.data[np.isnan(product.data)] = np.uint32(0x7FFFFFFF).view(np.float32)
        return product

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
    for op, of_a_gpu in (("create_maxnumf", np.fmax), ("create_minnumf", np.fmin)):
        monkeypatch.setattr(
            InterpreterBuilder, op, lambda self, a, b, of_a_gpu=of_a_gpu: self.binary_op(a, b, of_a_gpu)
        )
    given = arrays(2 * CHUNKS["tf32"] + 3)
    given[name][1, 0, 5, 2] = np.nan
    out, cache = kernels.linear_attention_forward(*on_device(given, torch.float16), causal=causal)
    gradients = kernels.linear_attention_backward(torch.ones_like(out), cache)
    assert np.isnan(to_numpy(out)[1, 0, 5]).any()
    expected, reference = ops.linear_attention_forward(*given.values(), causal=causal)
    for found, right in zip(gradients, ops.linear_attention_backward(np.ones_like(expected), reference), strict=True):
        assert np.isnan(to_numpy(found)).any() == np.isnan(right).any()


@dtypes
@pytest.mark.parametrize("causal", [False, True])
def test_nothing_to_attend_to(dtype, causal):
    """A sentence of padding alone gives zeros, and so do empty ones."""
    mask = np.stack([np.ones(20, bool), np.zeros(20, bool)])
    prove_kernel("linear_attention", arrays(20), dtype, causal=causal, key_mask=mask)
    prove_kernel("linear_attention", arrays(0), dtype, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_wide_heads(causal):
    """As wide as registers hold, and wider, where PyTorch's arithmetic takes over."""
    for width in (WIDEST["ieee"], WIDEST["ieee"] + 1):
        prove_kernel("linear_attention", arrays(20, width, width), torch.float32, causal=causal)


@pytest.mark.parametrize(
    ("width", "kibibytes", "ours"),
    [(64, 64, True), (65, 99, False), (65, 163, True), (128, 227, True), (129, 227, False)],
)
def test_heads_for_which_a_gpu_has_no_room(width, kibibytes, ours, monkeypatch):
    """A state of a wide head is staged in shared memory: 136 KiB for 128 numbers, and more than any GPU has for 256."""
    taken = []
    monkeypatch.setattr(eager, "linear_attention_forward", lambda *arrays, **options: taken.append("eager"))
    monkeypatch.setattr(linear_attention_forward_kernel, "run", lambda *given, **options: taken.append("kernel"))
    heads = torch.zeros(1, 1, 16, width, dtype=torch.float16, device=DEVICE)
    with pretending(Capability("cuda", 80, kibibytes * KIBIBYTE)):
        kernels.linear_attention_forward(heads, heads, heads)
    assert taken == (["kernel"] if ours else ["eager"])


@pytest.mark.parametrize("causal", [False, True])
def test_heads_of_128_in_half_precision(causal):
    """A GPU that has room; the kernels that own keys take chunks of 16 there."""
    with pretending(Capability("cuda", 80, 163 * KIBIBYTE)):
        prove_kernel("linear_attention", arrays(40, 128, 100), torch.float16, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_the_rung_below(causal):
    given, mask = arrays(20, H=4, Hk=2), np.arange(20) % 3 != 1
    mask = np.stack([mask, mask[::-1]])
    expected, _ = ops.linear_attention_forward(*given.values(), causal=causal, key_mask=mask)
    tensors = on_device(given)
    out = linear_attention_naive(*tensors, causal=causal, key_mask=torch.from_numpy(mask).to(DEVICE))
    check("output", out, expected, 1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_nothing_is_as_large_as_the_weights(causal):
    """Nor does anything but the states grow with the number of chunks."""
    T = 12 * CHUNK
    tensors = on_device(draw("linear_attention", np.random.default_rng(0), B=1, H=1, Hk=1, T=T, D=3, Dv=3))
    with Traffic() as traffic:
        out, cache = kernels.linear_attention_forward(*tensors, causal=causal)
        kernels.linear_attention_backward(out, cache)
    assert traffic.largest <= T * 4 < T * T
    with Traffic() as traffic:
        linear_attention_naive(*tensors, causal=causal)
    assert traffic.largest == T * T


def test_a_future_token_changes_nothing():
    tensors = on_device(arrays(2 * CHUNK + 5))
    whole, _ = kernels.linear_attention_forward(*tensors, causal=True)
    for t in (1, CHUNK, CHUNK + 3):
        part, _ = kernels.linear_attention_forward(*(x[:, :, :t] for x in tensors), causal=True)
        np.testing.assert_allclose(to_numpy(part), to_numpy(whole[:, :, :t]), rtol=1e-6, atol=1e-6)
