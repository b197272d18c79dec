"""Arrays that lie in memory as they like: expanded, in the midst of others, or further apart than 32 bits reach."""

from typing import Any

import numpy as np
import pytest
import torch
from support.kernels.prove_kernel import DEVICE, assert_same_bits, check, on_device, to_numpy
from torch import Tensor

import kernels
from kernels.norms.whole import ONE_BLOCK
from kernels.proof.cases import SMOOTHED, draw
from kernels.softmax import ONE_PASS, ONE_PASS_BACKWARD
from minitransformer import ops
from minitransformer.ops import Dropout

EPS = torch.finfo(torch.float16).eps
DROPPING = {"dropout": Dropout(0.5, key=1)}


def drawn(op: str, dtype: torch.dtype, width: int) -> list[Tensor]:
    """Three rows of an op so wide, or two heads of attention."""
    sizes = {"rows": (3,), "N": 3, "n": width, "C": width, "F": width, "V": width if op == "cross_entropy" else 3}
    arrays = draw(op, np.random.default_rng(0), **sizes, B=2, H=1, Tq=5, Tk=7, D=width, Dv=width)
    return on_device(arrays, dtype)


def several(found: Any) -> tuple:
    """Gradients as a tuple, where there is one too."""
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize(
    ("op", "width", "bound"),
    [
        *(("softmax", n, 1e-6) for n in (7, ONE_PASS_BACKWARD + 1)),
        *((op, width, 1e-6) for op in ("layernorm", "add_layernorm", "add_rmsnorm") for width in (7, ONE_BLOCK + 1)),
        *((op, 4, 0.0) for op in ("attention", "embedding", "relu", "gated", "dropout")),
    ],
)
def test_an_expanded_gradient(op, width, bound):
    """The gradient of a sum has stride 0."""
    options = DROPPING if op == "dropout" else {}
    out, cache = getattr(kernels, f"{op}_forward")(*drawn(op, torch.float32, width), **options)
    dout, backward = torch.tensor(0.5, device=DEVICE).expand(out.shape), getattr(kernels, f"{op}_backward")
    for found, wanted in zip(*(several(backward(each, cache)) for each in (dout, dout.clone())), strict=True):
        check("gradient", found, to_numpy(wanted), bound)


# --- Further apart than 32 bits reach -------------------------------------------------------------------------


def far_apart(rows: Tensor) -> Tensor:
    """The three rows of a `(3, C)`, 2³⁰ elements apart: twice that is more than 32 bits hold, signed.

    A system hands out memory when it is first touched, so hardly any of it is; where there is not enough all the same,
    the test is skipped. For three columns far apart: `far_apart(x.T).T`.
    """
    poison: Any = torch.utils.deterministic
    poison.fill_uninitialized_memory = False  # nor touch it to fill it with NaN
    try:
        memory = torch.empty(2**31 + rows.shape[1], dtype=rows.dtype, device=DEVICE)
    except RuntimeError:
        pytest.skip("needs memory for 2³¹ elements, up to 8 GiB of addresses")
    finally:
        poison.fill_uninitialized_memory = True
    return memory.as_strided(rows.shape, (2**30, 1)).copy_(rows)


@pytest.mark.parametrize(
    ("op", "width", "options", "bound"),
    [
        *(("softmax", n, {}, EPS) for n in (10, ONE_PASS + 1)),
        *(("add_layernorm", width, DROPPING, EPS) for width in (10, ONE_BLOCK + 1)),
        *(("rmsnorm", width, {}, EPS) for width in (10, ONE_BLOCK + 1)),
        ("cross_entropy", 5, SMOOTHED, EPS),
        ("gated", 5, {}, EPS),
        ("embedding", 4, {}, 0.0),  # sums of whole numbers
    ],
)
def test_rows_may_lie_further_apart_than_32_bits_reach(op, width, options, bound):
    """Equal to near rows to rounding, not to the bit: those are other kernels, which may add in another order."""
    tensors = [far_apart((3 * x).round()) if x.ndim == 2 else x for x in drawn(op, torch.float16, width)]
    forward, backward = (getattr(kernels, f"{op}_{way}") for way in ("forward", "backward"))
    expected, reference = getattr(ops, f"{op}_forward")(*map(to_numpy, tensors), **options)
    out, cache = forward(*tensors, **options)
    check("output", out, expected, bound)
    dout: Any = far_apart((3 * torch.randn_like(out)).round()) if out.ndim else 1.0
    wanted = several(getattr(ops, f"{op}_backward")(to_numpy(dout) if out.ndim else dout, reference))
    gradients = several(backward(dout, cache))
    for found, gradient in zip(gradients, wanted, strict=True):
        check("gradient", found, gradient, bound)
    assert_same_bits(several(backward(dout, cache)), gradients)


def test_a_table_whose_columns_lie_so_far_apart():
    table = torch.randn(4, 3, dtype=torch.float16, device=DEVICE)
    ids = torch.tensor([2, 0, 1, 3], device=DEVICE)
    y, _ = kernels.embedding_forward(ids, far_apart(table.T).T)
    assert torch.equal(y, table[ids])


@pytest.mark.parametrize("apart", [far_apart, lambda start: far_apart(start.T).T], ids=["rows", "columns"])
@pytest.mark.parametrize("op", ["embedding", "linear_cross_entropy"])
def test_a_gradient_added_into_rows_and_columns_so_far_apart(op, apart):
    ids = torch.tensor([2, 0, 1], device=DEVICE)
    table, dy = torch.randn(2, 3, 3, device=DEVICE)
    arguments = (ids, table) if op == "embedding" else (dy, table, ids)
    _, cache = getattr(kernels, f"{op}_forward")(*arguments)
    backward, received = getattr(kernels, f"{op}_backward"), dy if op == "embedding" else 1.0
    start = torch.ones_like(table)
    far = apart(start)
    assert several(backward(received, cache, out=far))[-1] is far
    assert torch.equal(far, start + several(backward(received, cache))[-1])


# --- Attention's ----------------------------------------------------------------------------------------------


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
    """The memory behind them does not matter: here it is NaN."""
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


@pytest.mark.skipif(DEVICE == "cuda", reason="hide the GPU, CUDA_VISIBLE_DEVICES='': its memory is not lazy")
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_attentions_offsets_pass_31_bits(monkeypatch, axis):
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
        pytest.skip("needs 8 GiB of addresses: raise `ulimit -v`")
    far.copy_(near)
    outs, caches = zip(*(kernels.attention_forward(near, keys, keys) for keys in (near, far)), strict=True)
    assert torch.equal(*outs)
    assert_same_bits(*(kernels.attention_backward(near, cache) for cache in caches))
