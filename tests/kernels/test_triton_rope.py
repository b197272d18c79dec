"""Rotary positions: one pass over memory, whatever the widths are and however the heads lie."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, DTYPES, few, prove_kernel, seeds, to_numpy
from support.kernels.traffic import Traffic, counted_loads
from torch import Tensor

import kernels
from kernels.attention.host import _heads
from kernels.proof.cases import draw
from kernels.rope import WIDEST, rope_naive
from minitransformer import ops
from minitransformer.layers.attention import merge_heads, split_heads

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
both_pairings = pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
interpreted = pytest.mark.skipif(
    DEVICE == "cuda",
    reason="hide the GPU, CUDA_VISIBLE_DEVICES='': only the interpreter's loads can be counted",
)


def drawn(B: int = 2, H: int = 6, T: int = 5, D: int = 16, pairs: int = 8, seed: int = 0) -> dict[str, np.ndarray]:
    sizes: dict[str, Any] = {"B": B, "H": H, "T": T, "D": D, "R/2": pairs}
    return draw("rope", np.random.default_rng(seed), **sizes)


def tensors(**sizes: int) -> list[Tensor]:
    """x, cos and sin in float32."""
    return [torch.from_numpy(array).float().to(DEVICE) for array in drawn(**sizes).values()]


def projection(B: int = 2, H: int = 6, T: int = 5, D: int = 16) -> Tensor:
    """Queries and keys `(B, H, T, D)` as the layer takes them from its projection, whose other columns are NaN."""
    projected = torch.full((B, T, (H + 2) * D), torch.nan, device=DEVICE)
    heads = split_heads(projected[..., : H * D], H)
    return heads.copy_(torch.randn(heads.shape))


@dtypes
@few
@given(data=st.data(), interleaved=st.booleans(), seed=seeds)
def test_rope(dtype, data, interleaved, seed):
    """Any number of sentences, heads and positions, none among them; R from 0 to D."""
    B, H, T = (data.draw(st.integers(0, most), name) for most, name in ((2, "B"), (9, "H"), (21, "T")))
    D = data.draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 80, 128])), "D")
    pairs = data.draw(st.sampled_from([D // 2, D // 4, 0]), "pairs")
    prove_kernel("rope", drawn(B, H, T, D, pairs, seed), dtype, interleaved=interleaved)


@dtypes
@both_pairings
@pytest.mark.parametrize(("D", "pairs"), [(2 * WIDEST + 7, WIDEST + 3), (2 * WIDEST + 6, 2), (2 * WIDEST, WIDEST)])
def test_heads_wider_than_a_block(dtype, interleaved, D, pairs):
    prove_kernel("rope", drawn(1, 2, 3, D, pairs), dtype, interleaved=interleaved)


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_angles_may_be_float32_beside_narrower_activations(dtype, interleaved):
    """Then the result is the exact one, rounded once."""
    x, cos, sin = tensors(D=20)
    x = x.to(dtype)
    expected, reference = ops.rope_forward(*map(to_numpy, (x, cos, sin)), interleaved=interleaved)
    y, cache = kernels.rope_forward(x, cos, sin, interleaved)
    dx = kernels.rope_backward(x, cache)
    for found, wanted in ((y, expected), (dx, ops.rope_backward(to_numpy(x), reference))):
        assert found.dtype == dtype
        np.testing.assert_allclose(to_numpy(found), wanted, rtol=torch.finfo(dtype).eps, atol=1e-6)


@both_pairings
def test_angles_of_a_longer_table_in_any_layout(interleaved):
    x, cos, sin = tensors()
    expected, _ = kernels.rope_forward(x, cos, sin, interleaved)
    longer = torch.full((2, 11, 2 * cos.shape[1]), torch.nan, device=DEVICE)
    rows = longer[:, 4 : 4 + len(cos), ::2]
    rows[0], rows[1] = cos, sin
    columns = cos.T.contiguous().T, sin.T.contiguous().T
    for angles in ((rows[0], rows[1]), columns, (cos, rows[1])):
        assert torch.equal(kernels.rope_forward(x, *angles, interleaved)[0], expected)


@both_pairings
def test_turned_back_it_is_what_it_was(interleaved):
    x, angles, _ = tensors()
    y, cache = kernels.rope_forward(x, angles.cos(), angles.sin(), interleaved)
    torch.testing.assert_close(kernels.rope_backward(y, cache), x, rtol=1e-6, atol=1e-6)


def test_channels_that_stay_keep_their_bits():
    """NaN, infinities and numbers too small for a product too; so does everything at angle 0."""
    x, cos, sin = tensors(D=16, pairs=2)
    x[..., 4:9] = torch.tensor([torch.nan, torch.inf, -0.0, 1e-45, -1e-45], device=DEVICE)
    y, cache = kernels.rope_forward(x, cos, sin)
    for found in (y, kernels.rope_backward(x, cache)):
        assert torch.equal(found[..., 4:].contiguous().view(torch.int32), x[..., 4:].contiguous().view(torch.int32))
    still, _ = kernels.rope_forward(x[..., 9:], torch.ones_like(cos), torch.zeros_like(sin))
    assert torch.equal(still, x[..., 9:])


# --- One pass -------------------------------------------------------------------------------------------------


@interpreted
@both_pairings
def test_each_number_is_loaded_once(interleaved):
    """And each angle once for all heads of a program, of which there are two here."""
    x, (_, cos, sin) = projection(), tensors()
    with counted_loads() as loads:
        y, cache = kernels.rope_forward(x, cos, sin, interleaved)
        kernels.rope_backward(y, cache)
    assert loads.elements == 2 * (x.numel() + 2 * 3 * (cos.numel() + sin.numel()))


@both_pairings
def test_neither_the_split_of_a_projection_nor_the_merge_of_heads_copies(interleaved, monkeypatch):
    x, (_, cos, sin) = projection(), tensors()
    expected, _ = kernels.rope_forward(x.contiguous(), cos, sin, interleaved)
    with monkeypatch.context() as patched:
        for copying in ("contiguous", "clone", "reshape"):
            patched.setattr(Tensor, copying, None)
        y, cache = kernels.rope_forward(x, cos, sin, interleaved)
        dx = kernels.rope_backward(x, cache)
    assert torch.equal(y, expected)
    for turned in (y, dx):
        assert merge_heads(turned).data_ptr() == turned.data_ptr()
        for heads in (turned[:, :4], turned[:, 4:]):  # queries, keys
            assert _heads(heads).ptr.data_ptr() == heads.data_ptr(), "attention makes a copy"


def test_the_naive_rung_takes_nine_passes():
    x, cos, sin = tensors()
    with Traffic(x.numel()) as wholes, Traffic(x.numel() // 2) as halves:
        rope_naive(x, cos, sin)
    assert wholes.passes + halves.passes / 2 == 9


@both_pairings
@pytest.mark.parametrize("pairs", [8, 3, 0])
def test_the_naive_rung(interleaved, pairs):
    x, cos, sin = tensors(pairs=pairs)
    y, _ = kernels.rope_forward(x, cos, sin, interleaved)
    torch.testing.assert_close(rope_naive(x, cos, sin, interleaved), y, rtol=1e-5, atol=1e-6)


# --- Further apart than 32 bits reach -------------------------------------------------------------------------


@pytest.mark.skipif(DEVICE == "cuda", reason="hide the GPU, CUDA_VISIBLE_DEVICES='': its memory is not lazy")
@both_pairings
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_offsets_pass_31_bits(monkeypatch, axis, interleaved):
    """Three of sentences, heads, positions or channels, 2³⁰ numbers apart; as much memory lies before them."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    shape: Any = [3 if i == axis else 1 for i in range(3)] + [3 if axis == 3 else 2]
    near, (cos, sin) = torch.randn(shape).half(), torch.randn(2, shape[2], 1)
    strides = [2, 2, 2, 1]
    strides[axis] = 2**30
    try:
        far = torch.empty(2**32 + 16, dtype=torch.float16).as_strided(shape, strides, 2**31).copy_(near)
    except RuntimeError:
        pytest.skip("needs 8 GiB of addresses: raise `ulimit -v`")
    y, cache = kernels.rope_forward(near, cos, sin, interleaved)
    assert torch.equal(kernels.rope_forward(far, cos, sin, interleaved)[0], y)
    assert torch.equal(kernels.rope_backward(far, cache), kernels.rope_backward(near, cache))


# --- What is refused ------------------------------------------------------------------------------------------

X, ANGLES = torch.ones(1, 2, 3, 8, device=DEVICE), torch.ones(3, 4, device=DEVICE)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: kernels.rope_forward(X[..., :7], ANGLES, ANGLES), ValueError, "expected at most 3 angles a position"),
        (lambda: kernels.rope_forward(X, ANGLES[:2], ANGLES[:2]), ValueError, "cos has shape"),
        (lambda: kernels.rope_forward(X, ANGLES, ANGLES[:, :2]), ValueError, "sin has shape"),
        (lambda: kernels.rope_forward(X[0], ANGLES, ANGLES), ValueError, "x has shape"),
        (lambda: kernels.rope_forward(X, ANGLES, ANGLES, interleaved=1), TypeError, "interleaved"),  # pyright: ignore
        (lambda: kernels.rope_forward(X, ANGLES.half(), ANGLES.half()), TypeError, "types are never mixed"),
        (lambda: kernels.rope_forward(X.double(), ANGLES, ANGLES), TypeError, "x is torch.float64"),
        (lambda: kernels.rope_backward(X[:, :1], kernels.rope_forward(X, ANGLES, ANGLES)[1]), ValueError, "dy has sh"),
        (lambda: kernels.rope_backward(X.half(), kernels.rope_forward(X, ANGLES, ANGLES)[1]), TypeError, "dy is torch"),
    ],
)
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
