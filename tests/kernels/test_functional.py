"""The pairs as PyTorch's functions: the same numbers as their namesakes, and all that PyTorch asks of an operator."""

import inspect
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.kernels.prove_kernel import DEVICE, assert_same_bits
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import kernels
from kernels import functional
from kernels.functional import attention
from kernels.functional.operators import runs_in_triton
from kernels.linear_attention import linear_attention_naive

TARGETS = torch.tensor([3, -100, 0, 6, 5], device=DEVICE)
SEEN = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(3)).to(DEVICE) > 0.4
SEEN[..., 0] = True
REAL = torch.tensor([[True] * 5, [True, True, True, False, False]], device=DEVICE)[:, None, None]
PROBABILITIES = torch.rand(2, 7, 5, generator=torch.Generator().manual_seed(4)).to(DEVICE).softmax(1)
SLOPES = torch.tensor([[0.5, 0.25, 1.0, 0.1], [1.5, 0.3, 0.03, 0.7]], device=DEVICE)
STARTS = torch.tensor([0, 2, 2, 5], dtype=torch.int32, device=DEVICE)
"""A case of three packed sentences, one of them without a token."""
IDS = torch.tensor([[3, 0, 6], [3, 3, 1]], device=DEVICE)
WIDE = 8193
"""More channels than a norm keeps in one block."""
ANGLES = torch.linspace(-3, 3, 10, device=DEVICE).reshape(5, 2)


def X(*shape: int) -> Tensor:
    return torch.ones(shape, device=DEVICE)


class Case(NamedTuple):
    """A function, its namesake, and the shapes of their floating arguments."""

    ours: Callable[..., Tensor]
    theirs: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]


def sdpa(*shapes: tuple[int, ...], **options: Any) -> Case:
    def with_options(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *tensors: function(*tensors, **options)

    return Case(
        with_options(functional.scaled_dot_product_attention), with_options(F.scaled_dot_product_attention), shapes
    )


def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Callable[[Tensor, Tensor], Tensor],
    softcap: float = 0.0,
    slopes: Tensor | None = None,
) -> Tensor:
    """Flash-attention's attention by the formula; `seen(i, j)` for positions of queries and keys."""
    query, key, value = (x.transpose(1, 2) for x in (q, k, v))
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT / q.shape[-1] ** 0.5
    scores = torch.tanh(scores / softcap) * softcap if softcap else scores
    last = k.shape[1] - q.shape[1]
    i, j = torch.arange(q.shape[1], device=q.device)[:, None] + last, torch.arange(k.shape[1], device=q.device)
    if slopes is not None:
        scores = scores - slopes.to(q.dtype)[..., None, None] * (i - j).abs()
    mask = seen(i, j).broadcast_to(q.shape[1], k.shape[1])
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0)
    return (weights @ value).transpose(1, 2)


def varlen(queries: list[int], keys: list[int], seen: Callable[[Tensor, Tensor], Tensor], **options: Any) -> Case:
    """Packed sentences, and flash-attention of each by the formula; four heads of queries for two of keys."""
    starts = [torch.tensor([0, *accumulate(each)], dtype=torch.int32, device=DEVICE) for each in (queries, keys)]
    softcap, slopes = options.get("softcap", 0.0), options.get("alibi_slopes", [None] * len(queries))

    def one_by_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = zip(q[None].split(queries, 1), k[None].split(keys, 1), v[None].split(keys, 1), slopes, strict=True)
        return torch.cat([flash(*qkv, seen, softcap, own)[0] for *qkv, own in parts])  # pyright: ignore

    shapes = (sum(queries), 4, 6), (sum(keys), 2, 6), (sum(keys), 2, 3)
    ours = partial(functional.flash_attn_varlen_func, **options)
    return Case(lambda *qkv: ours(*qkv, *starts, max(queries), max(keys)), one_by_one, shapes)


def turned(x: Tensor, interleaved: bool) -> Tensor:
    """Rotary positions: pairs of the first four channels turned; the others stay."""
    cos, sin = ANGLES.cos().to(x.dtype), ANGLES.sin().to(x.dtype)
    places = [0, 2, 1, 3] if interleaved else [0, 1, 2, 3]
    a, b = x[..., places].split(2, -1)
    pairs = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([pairs[..., places], x[..., 4:]], -1)


def rope(interleaved: bool) -> Case:
    return Case(
        lambda x: functional.rope(x, ANGLES.cos().to(x.dtype), ANGLES.sin().to(x.dtype), interleaved),
        lambda x: turned(x, interleaved),
        ((2, 2, 5, 6),),
    )


def losses(**options: Any) -> tuple[Case, Case]:
    theirs = dict(options)
    z_loss, reduction = theirs.pop("z_loss", 0.0), theirs.get("reduction", "mean")

    def torchs(logits: Tensor) -> Tensor:
        counted, each = TARGETS.ne(-100), F.cross_entropy(logits, TARGETS, **{**theirs, "reduction": "none"})
        each = each + counted * z_loss * logits.logsumexp(-1) ** 2
        return {"none": each, "sum": each.sum(), "mean": each.sum() / counted.sum()}[reduction]

    of_logits = torchs if z_loss else lambda logits: F.cross_entropy(logits, TARGETS, **theirs)
    return (
        Case(lambda x: functional.cross_entropy(x, TARGETS, **options), of_logits, ((5, 7),)),
        Case(
            lambda x, w: functional.linear_cross_entropy(x, w, TARGETS, **options),
            lambda x, w: of_logits(x @ w.T),
            ((5, 6), (7, 6)),
        ),
    )


def dropped(x: Tensor) -> Tensor:
    """Drop with the same draw each time."""
    torch.manual_seed(5)
    return functional.dropout(x)


def linear_attention(causal: bool) -> Case:
    """Grouped heads, and keys that are padding."""
    mask = REAL[:, 0, 0]
    return Case(
        lambda q, k, v: functional.linear_attention(q, k, v, mask, causal),
        lambda q, k, v: linear_attention_naive(q, k, v, key_mask=mask, causal=causal),
        ((2, 4, 5, 6), (2, 2, 5, 6), (2, 2, 5, 3)),
    )


PLAIN = (2, 2, 5, 6), (2, 2, 5, 6), (2, 2, 5, 3)
CASES = {
    "softmax": Case(functional.softmax, lambda x: F.softmax(x, -1), ((3, 5),)),
    "softmax, another axis": Case(lambda x: functional.softmax(x, 1), lambda x: F.softmax(x, 1), ((2, 5, 3),)),
    "layer_norm": Case(
        lambda x, w, b: functional.layer_norm(x, (6,), w, b, 1e-3),
        lambda x, w, b: F.layer_norm(x, (6,), w, b, 1e-3),
        ((2, 3, 6), (6,), (6,)),
    ),
    "layer_norm, two axes, no bias": Case(
        lambda x, w: functional.layer_norm(x, (3, 6), w), lambda x, w: F.layer_norm(x, (3, 6), w), ((4, 3, 6), (3, 6))
    ),
    "layer_norm, no weight": Case(lambda x: functional.layer_norm(x, 6), lambda x: F.layer_norm(x, (6,)), ((2, 3, 6),)),
    "rms_norm": Case(
        lambda x, w: functional.rms_norm(x, (6,), w, 1e-3), lambda x, w: F.rms_norm(x, (6,), w, 1e-3), ((2, 3, 6), (6,))
    ),
    "rms_norm, alone": Case(lambda x: functional.rms_norm(x, (6,)), lambda x: F.rms_norm(x, (6,)), ((2, 3, 6),)),
    "add_layer_norm": Case(
        lambda x, y, w, b: functional.add_layer_norm(x, y, w, b, 1e-3),
        lambda x, y, w, b: F.layer_norm(x + y, (6,), w, b, 1e-3),
        ((2, 3, 6), (2, 3, 6), (6,), (6,)),
    ),
    "add_rms_norm": Case(
        lambda x, y, w: functional.add_rms_norm(x, y, w, 1e-3),
        lambda x, y, w: F.rms_norm(x + y, (6,), w, 1e-3),
        ((2, 3, 6), (2, 3, 6), (6,)),
    ),
    "embedding": Case(lambda w: functional.embedding(IDS, w), lambda w: F.embedding(IDS, w), ((7, 6),)),
    "dropout": Case(dropped, lambda x: x * (dropped(torch.ones_like(x)) > 0) * 2, ((2, 3, 5, 6),)),
    "linear_attention": linear_attention(causal=False),
    "linear_attention, causal": linear_attention(causal=True),
    "gelu": Case(functional.gelu, F.gelu, ((3, 5),)),
    "gelu, tanh": Case(
        lambda x: functional.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh"), ((3, 5),)
    ),
    "silu": Case(functional.silu, F.silu, ((3, 5),)),
    "swiglu": Case(functional.swiglu, lambda gate, up: F.silu(gate) * up, ((3, 5), (3, 5))),
    "geglu": Case(functional.geglu, lambda gate, up: F.gelu(gate) * up, ((3, 5), (3, 5))),
    "geglu, tanh": Case(
        lambda gate, up: functional.geglu(gate, up, approximate="tanh"),
        lambda gate, up: F.gelu(gate, approximate="tanh") * up,
        ((3, 5), (3, 5)),
    ),
    "rope": rope(interleaved=False),
    "rope, neighbours": rope(interleaved=True),
    "sdpa": sdpa(*PLAIN),
    "sdpa, causal": sdpa(*PLAIN, is_causal=True),
    "sdpa, causal, fewer queries": sdpa((2, 2, 3, 6), (2, 2, 5, 6), (2, 2, 5, 6), is_causal=True),
    "sdpa, causal, fewer keys": sdpa((2, 2, 5, 6), (2, 2, 3, 6), (2, 2, 3, 6), is_causal=True),
    "sdpa, grouped heads": sdpa((1, 4, 5, 6), (1, 2, 5, 6), (1, 2, 5, 6), enable_gqa=True, scale=0.3),
    "sdpa, mask": sdpa(*PLAIN, attn_mask=SEEN),
    "sdpa, padding": sdpa(*PLAIN, attn_mask=REAL),
    "sdpa, a mask with a gradient": sdpa(*PLAIN, (2, 5, 5)),
    "sdpa, one matrix": sdpa((5, 6), (4, 6), (4, 3), is_causal=True),
    "sdpa, five axes": sdpa((2, 1, 2, 5, 6), (1, 2, 2, 5, 6), (1, 2, 2, 5, 3), attn_mask=SEEN[:, None]),
    "sdpa, one batch of keys": sdpa((2, 2, 5, 6), (1, 2, 5, 6), (1, 2, 5, 3), attn_mask=SEEN),
    "sdpa, one head of keys": sdpa((2, 2, 5, 6), (2, 1, 5, 6), (2, 1, 5, 3)),
    "sdpa, keys without a batch": sdpa((2, 2, 5, 6), (2, 5, 6), (2, 5, 3)),
    "sdpa, no heads": sdpa((2, 5, 6), (2, 5, 6), (2, 5, 6), attn_mask=SEEN[:, 0]),
    "flash_attn_func": Case(
        functional.flash_attn_func, lambda q, k, v: flash(q, k, v, lambda i, j: j >= 0), ((2, 5, 2, 6),) * 3
    ),
    "flash_attn_func, causal": Case(
        lambda q, k, v: functional.flash_attn_func(q, k, v, causal=True),
        lambda q, k, v: flash(q, k, v, lambda i, j: j <= i),
        ((1, 3, 4, 6), (1, 5, 2, 6), (1, 5, 2, 6)),
    ),
    "flash_attn_func, window, softcap": Case(
        lambda q, k, v: functional.flash_attn_func(q, k, v, window_size=(1, -1), softcap=0.7),
        lambda q, k, v: flash(q, k, v, lambda i, j: j >= i - 1, 0.7),
        ((2, 3, 2, 6), (2, 5, 2, 6), (2, 5, 2, 6)),
    ),
    "flash_attn_func, slopes": Case(
        lambda q, k, v: functional.flash_attn_func(q, k, v, alibi_slopes=SLOPES[0]),
        lambda q, k, v: flash(q, k, v, lambda i, j: j >= 0, slopes=SLOPES[0]),
        ((1, 3, 4, 6), (1, 5, 2, 6), (1, 5, 2, 6)),
    ),
    "flash_attn_func, all that it takes": Case(
        lambda q, k, v: functional.flash_attn_func(q, k, v, 0.0, None, True, (2, -1), 0.7, SLOPES, True),
        lambda q, k, v: flash(q, k, v, lambda i, j: (j <= i) & (j >= i - 2), 0.7, SLOPES),
        ((2, 3, 4, 6), (2, 5, 2, 6), (2, 5, 2, 3)),
    ),
    "flash_attn_varlen_func": varlen([3, 0, 1], [2, 1, 4], lambda i, j: j >= 0),
    "flash_attn_varlen_func, all that it takes": varlen(
        [3, 1, 2],
        [5, 0, 2],
        lambda i, j: (j <= i) & (j >= i - 2),
        causal=True,
        window_size=(2, -1),
        softcap=0.7,
        alibi_slopes=SLOPES[[0, 1, 0]],
    ),
    "cross_entropy": losses()[0],
    "linear_cross_entropy": losses()[1],
    "cross_entropy, sum": losses(reduction="sum", label_smoothing=0.1)[0],
    "linear_cross_entropy, sum": losses(reduction="sum", label_smoothing=0.1)[1],
    "cross_entropy, each": losses(reduction="none")[0],
    "cross_entropy, each, smoothed": losses(reduction="none", label_smoothing=0.1)[0],
    "cross_entropy, each of images": Case(
        lambda x: functional.cross_entropy(x, TARGETS[:4].abs().reshape(2, 2) % 7, reduction="none"),
        lambda x: F.cross_entropy(x, TARGETS[:4].abs().reshape(2, 2) % 7, reduction="none"),
        ((2, 7, 2),),
    ),
    "linear_cross_entropy, each": losses(reduction="none", label_smoothing=0.1)[1],
    "linear_cross_entropy, z-loss, each": losses(z_loss=0.1, reduction="none")[1],
    "cross_entropy, z-loss": losses(z_loss=0.1)[0],
    "cross_entropy, z-loss, sum": losses(z_loss=0.1, reduction="sum", label_smoothing=0.1)[0],
    "cross_entropy, z-loss, each": losses(z_loss=0.1, reduction="none", label_smoothing=0.1)[0],
    "linear_cross_entropy, z-loss": losses(z_loss=0.1, label_smoothing=0.1)[1],
    "cross_entropy, another ignored": losses(ignore_index=6, reduction="sum")[0]._replace(
        ours=lambda x: functional.cross_entropy(x, TARGETS.abs() % 7, ignore_index=6, reduction="sum"),
        theirs=lambda x: F.cross_entropy(x, TARGETS.abs() % 7, ignore_index=6, reduction="sum"),
    ),
    "cross_entropy of images": Case(
        lambda x: functional.cross_entropy(x, TARGETS[:4].abs().reshape(2, 2) % 7),
        lambda x: F.cross_entropy(x, TARGETS[:4].abs().reshape(2, 2) % 7),
        ((2, 7, 2),),
    ),
    "cross_entropy, one row": Case(
        lambda x: functional.cross_entropy(x, TARGETS[0]), lambda x: F.cross_entropy(x, TARGETS[0]), ((7,),)
    ),
    "cross_entropy, probabilities": Case(
        lambda x: functional.cross_entropy(x, PROBABILITIES.to(x.dtype), reduction="sum"),
        lambda x: F.cross_entropy(x, PROBABILITIES.to(x.dtype), reduction="sum"),
        ((2, 7, 5),),
    ),
    "cross_entropy, probabilities, each": Case(
        lambda x: functional.cross_entropy(x, PROBABILITIES.to(x.dtype), reduction="none", label_smoothing=0.1),
        lambda x: F.cross_entropy(x, PROBABILITIES.to(x.dtype), reduction="none", label_smoothing=0.1),
        ((2, 7, 5),),
    ),
}
HALF = "sdpa, grouped heads", "sdpa, a mask with a gradient"
"""The cases of PyTorch's attention that a quick test tries in half precision too, beside flash-attention's."""
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def drawn(case: Case, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for shape in case.shapes]


def gradients(function: Callable[..., Tensor], inputs: list[Tensor], received: Tensor | None) -> list[Tensor]:
    """The output, and the gradient of each input."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, received)]


def turned_in_memory(x: Tensor) -> Tensor:
    """Return the tensor with its axes in the opposite order in memory, and a gap after each number."""
    if not x.ndim:
        return x
    gaps = torch.full((*x.shape[::-1], 2), torch.nan, dtype=x.dtype, device=x.device)
    gaps[..., 0] = x.permute(*reversed(range(x.ndim)))
    return gaps[..., 0].permute(*reversed(range(x.ndim)))


@pytest.fixture
def plain_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, and nobody asks for the interpreter: `torch.nn.functional` itself runs where it means the same."""
    if DEVICE != "cpu":
        pytest.skip("there is a GPU, and the cases are on it")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture(params=["on kernels", "without a GPU"])
def everywhere(request: pytest.FixtureRequest) -> None:
    """On kernels, and then without a GPU."""
    if request.param == "without a GPU":
        request.getfixturevalue("plain_cpu")


def assert_zeros_where_nothing_is_seen(attention: Callable[..., Tensor]) -> None:
    """Not NaN, and a finite gradient: with a mask of truths, and with one of numbers."""
    q, unseen = torch.randn(1, 2, 2, 6, device=DEVICE), torch.tensor([[True, True], [False, False]], device=DEVICE)
    for mask in (unseen, torch.zeros(2, 2, device=DEVICE).masked_fill(~unseen, -torch.inf)):
        out, dq = gradients(lambda q, mask=mask: attention(q, q, q, mask), [q], torch.ones_like(q))
        assert not out[:, :, 1].any()
        assert dq.isfinite().all()


@every_case
def test_the_numbers_are_those_of_the_namesake(case):
    """Inputs and received gradients in any layout, and a received gradient that is one number for all."""
    inputs = drawn(case)
    shape = case.theirs(*inputs).shape
    received = torch.randn(shape, generator=torch.Generator().manual_seed(9)).to(DEVICE)
    expanded = torch.full((), 0.7, device=DEVICE).expand(shape)
    for given, dy in ((inputs, expanded), (list(map(turned_in_memory, inputs)), turned_in_memory(received))):
        expected = gradients(case.theirs, inputs, dy)
        for found, wanted in zip(gradients(case.ours, given, dy), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@every_case
def test_gradcheck(case):
    """In float64, which PyTorch's arithmetic takes; and the output is the namesake's."""
    inputs = [x.requires_grad_() for x in drawn(case, torch.float64)]
    torch.testing.assert_close(case.ours(*inputs), case.theirs(*inputs))
    assert torch.autograd.gradcheck(case.ours, inputs, fast_mode=True)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] if "sdpa, " in name and name not in HALF else [])
        for name, case in CASES.items()
    ],
)
def test_half_precision_is_as_exact_as_pytorchs(case):
    """Beside float64: at most twice the namesake's error, thrice a gradient's, and half a unit in the last place."""
    half = drawn(case, torch.float16)
    received = torch.ones_like(case.theirs(*half))
    expected = gradients(case.theirs, [x.double() for x in half], received.double())
    ours = gradients(case.ours, half, received.to(case.ours(*half).dtype))
    theirs = gradients(case.theirs, half, received)
    for i, (found, peer, wanted) in enumerate(zip(ours, theirs, expected, strict=True)):
        error, bound = ((x.double() - wanted).abs().max() for x in (found, peer))
        assert error <= (3 if i else 2) * bound + torch.finfo(torch.float16).eps / 2 * wanted.abs().max()


def test_scores_in_half_precision_do_not_overflow_on_a_cpu(monkeypatch):
    """Without the kernels: scores of 10⁵, the sum of a window's pieces among them, as in PyTorch's own attention."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 64, generator=generator).half() * size for size in (300, 300, 1))
    received = torch.ones_like(v)
    expected = gradients(F.scaled_dot_product_attention, [q, k, v], received)
    attention = kernels.torch_ops("cpu", "float16").attention  # functional calls PyTorch's own here
    out, cache = attention.forward(q, k, v)
    for found, wanted in zip([out, *attention.backward(received, cache)], expected, strict=True):
        assert found.dtype == torch.float16
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
    windowed = gradients(partial(functional.flash_attn_func, window_size=(1, 0), softcap=5.0), [q, k, v], received)
    assert all(each.isfinite().all() for each in windowed)


def test_alibi_is_not_rounded_to_half_precision():
    """Far keys count most, where bfloat16 would round slope · distance by a quarter."""
    slopes, generator = torch.full((2,), -1.03, device=DEVICE), torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 70, 2, 8, generator=generator).to(DEVICE, torch.bfloat16) for _ in range(3))
    expected = flash(q.double(), k.double(), v.double(), lambda i, j: j <= i, slopes=slopes)
    error = functional.flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes).double() - expected
    assert error.abs().max() <= 2 * torch.finfo(torch.bfloat16).eps * expected.abs().max()


def test_a_mask_in_float32_beside_half_precision():
    x = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0)).to(DEVICE, torch.bfloat16)
    mask = torch.randn(5, 5, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    ours, theirs = (f.scaled_dot_product_attention(x, x, x, attn_mask=mask) for f in (functional, F))
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def operator_inputs(dtype: torch.dtype) -> dict[str, tuple]:
    """Every operator with all its inputs."""

    def x(*shape: int) -> Tensor:
        return (
            torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype).requires_grad_()
        )

    key = torch.tensor([7, -3], dtype=torch.int32, device=DEVICE)
    return {
        "softmax": (x(3, 5),),
        "layernorm": (x(3, 5), x(5), x(5), 1e-5),
        "rmsnorm": (x(3, 5), x(5), 1e-5),
        "add_layernorm": (x(3, 5), x(3, 5), x(5), x(5), 1e-5, key, 0.4),
        "add_rmsnorm": (x(3, 5), x(3, 5), x(5), 1e-5, None, 0.0),
        "dropout": (x(3, 5), key, 0.4),
        "embedding": (x(7, 5), IDS),
        "linear_attention": (x(2, 2, 5, 6), x(2, 1, 5, 6), x(2, 1, 5, 3), REAL[:, 0, 0], True, 1e-6),
        "gelu": (x(3, 5), "tanh"),
        "silu": (x(3, 5),),
        "gated": (x(3, 5), x(3, 5), "silu"),
        "rope": (x(2, 2, 5, 6), ANGLES.cos().to(dtype), ANGLES.sin().to(dtype), False),
        "cross_entropy": (x(5, 7), TARGETS, 0.1, -100, 0.1),
        "each_cross_entropy": (x(5, 7), TARGETS, 0.1, -100, 0.1),
        "each_cross_entropy, probabilities": (x(5, 7), PROBABILITIES[0].T.to(dtype), 0.1, None, 0.0),
        "linear_cross_entropy": (x(5, 6), x(7, 6), TARGETS, 0.1, -100, True, 0.1),
        "each_linear_cross_entropy": (x(5, 6), x(7, 6), TARGETS, 0.1, -100, 0.1),
        "attention": (
            x(2, 2, 3, 6), x(2, 1, 5, 6), x(2, 1, 5, 3), x(2, 3, 5), SLOPES[:, :2] if dtype == torch.float32 else None,
            REAL[:, 0, 0], key, False, None, 1, 0.3, 2.0, 0.4, *[None] * 4,
        ),
        "attention, packed": (
            x(1, 2, 5, 6), x(1, 1, 5, 6), x(1, 1, 5, 3), None, None, None, key, True, None, None, 0.3, None, 0.4,
            *[STARTS] * 2, 3, 3,
        ),
        "attention_lse": (
            x(1, 2, 5, 6).detach(), x(1, 1, 5, 6).detach(), None, True, 2, None, 0.3, 2.0, *[STARTS] * 2, 3, 3,
        ),
    }  # fmt: skip


OPERATORS = list(operator_inputs(torch.float32))
SAMPLE = "layernorm", "embedding", "cross_entropy", "attention"
"""In float64, where PyTorch's arithmetic runs and not a kernel; what is traced is the same for both."""


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float32) for name in OPERATORS),
        *((name, torch.float64) for name in SAMPLE),
        *(pytest.param(name, torch.float64, marks=pytest.mark.slow) for name in OPERATORS if name not in SAMPLE),
    ],
)
def test_opcheck(name, dtype):
    """PyTorch's own test of an operator: its schema, its autograd, its tracing, and both together."""
    operator = getattr(torch.ops.minitransformer, name.split(",")[0]).default
    assert set(torch.library.opcheck(operator, operator_inputs(dtype)[name]).values()) == {"SUCCESS"}


def test_every_function_has_cases_and_every_pair_its_operator():
    assert {function for function in functional.__all__ if function != "scaled_dot_product_attention"} <= {
        name.split(",")[0].split(" of ")[0] for name in CASES
    }


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """A function's signature; of one in C, the line that its documentation begins with."""
    try:
        return inspect.signature(function)
    except ValueError:
        (arguments,) = re.findall(r"^\s*\w+(\(.*?\)) ->", function.__doc__ or "", re.DOTALL)
        scope: dict[str, Any] = {}
        exec(f"def documented{arguments}: ...", scope)
        return inspect.signature(scope["documented"])


@pytest.mark.parametrize("name", [name for name in functional.__all__ if hasattr(F, name)])
def test_the_arguments_are_those_of_the_namesake(name):
    """In their order and with their defaults; but softmax's axis, which PyTorch chooses itself with a warning, and the
    losses' z_loss, which it lacks."""
    ours, theirs = (dict(signature(getattr(module, name)).parameters) for module in (functional, F))
    ours.pop("z_loss", None)
    assert list(ours) == list(theirs)
    assert [each.kind for each in ours.values()] == [each.kind for each in theirs.values()]
    defaults = [{n: each.default for n, each in parameters.items()} for parameters in (ours, theirs)]
    if name == "softmax":
        assert (defaults[0].pop("dim"), defaults[1].pop("dim")) == (-1, None)
    assert defaults[0] == defaults[1]


def test_arguments_that_change_nothing_or_that_are_cheap_are_taken():
    x, table = X(3, 5), torch.randn(7, 6, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    assert functional.softmax(x, -1, 3, torch.float64).dtype == torch.float64
    assert torch.equal(functional.dropout(x, 0.5, False, False), x)
    assert torch.equal(functional.silu(x, inplace=False), functional.silu(x))
    for padding in (3, -4, 0, -7):
        ours, theirs = (
            gradients(partial(module.embedding, IDS, padding_idx=padding), [table], X(2, 3, 6))
            for module in (functional, F)
        )
        torch.testing.assert_close(ours, theirs)
    ours = functional.linear_cross_entropy(X(5, 6), table, TARGETS, ignore_index=None)
    torch.testing.assert_close(ours, F.cross_entropy(X(5, 6) @ table.T, TARGETS))
    ours, theirs = (
        f.cross_entropy(table, IDS.new_zeros(7), None, None, -100, None, "sum", 0.1) for f in (functional, F)
    )
    torch.testing.assert_close(ours, theirs)


# --- torch.compile, autocast, randomness -----------------------------------------------------------------------


def everything(x: Tensor, weight: Tensor, q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    h = functional.rms_norm(functional.layer_norm(x, (6,), weight, weight), (6,), weight)
    h = functional.swiglu(h, functional.gelu(h)) + functional.silu(functional.geglu(h, h))
    mixed = functional.flash_attn_func(q, k, k, causal=True, dropout_p=0.5, alibi_slopes=SLOPES[0])
    rows = functional.flash_attn_varlen_func(mixed[0], k[0], k[0], STARTS.clamp(max=3), STARTS, 2, 3, 0.5, causal=True)
    again = functional.scaled_dot_product_attention(mixed + rows, mixed, mixed, is_causal=True)
    h = h + functional.softmax(again.flatten()).max() + functional.rope(again, ANGLES[:4].cos(), ANGLES[:4].sin()).sum()
    return functional.linear_cross_entropy(h, table, TARGETS) + functional.cross_entropy(h @ table.T, TARGETS)


def everything_inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes = (5, 6), (6,), (1, 3, 4, 6), (1, 5, 2, 6), (7, 6)
    return [torch.randn(shape, generator=generator).to(DEVICE) for shape in shapes]


@pytest.mark.parametrize(
    ("dynamic", "autocast"),
    [
        (False, True),
        pytest.param(False, False, marks=pytest.mark.slow),
        pytest.param(True, True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("everywhere")
def test_compiled_in_one_graph(dynamic, autocast):
    """Loss, gradients and the draws of dropout are the same; no graph break."""
    torch.compiler.reset()
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    found = []
    for function in (everything, compiled):
        torch.manual_seed(2)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
            found.append(gradients(function, everything_inputs(), None))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def of_length(n: int) -> dict[str, tuple[Callable[..., Tensor], list[Any]]]:
    """Every function, and inputs of which one axis, that of tokens or of sentences, is n long."""
    x, tokens, heads = (
        torch.randn(shape, generator=torch.Generator().manual_seed(n)).to(DEVICE)
        for shape in ((n, 7), (2, n, 6), (1, 2, n, 6))
    )
    weight, table, longer = X(6), X(7, 6), torch.cat([heads, heads[:, :, :1]], 2)
    ids, angles = torch.arange(n, device=DEVICE) % 7, torch.linspace(-3, 3, 2 * n, device=DEVICE).reshape(n, 2)
    seen, padding = X(n, n).tril().bool(), X(1, n).bool()
    return {
        "softmax": (functional.softmax, [x]),
        "layer_norm": (lambda x: functional.layer_norm(x, (6,), weight, weight), [tokens]),
        "rms_norm": (lambda x: functional.rms_norm(x, (6,), weight), [tokens]),
        "add_layer_norm": (lambda x: functional.add_layer_norm(x, x, weight, weight, dropout_p=0.5), [tokens]),
        "add_rms_norm": (lambda x: functional.add_rms_norm(x, x, weight), [tokens]),
        "embedding": (lambda ids: functional.embedding(ids, table, padding_idx=0), [ids]),
        "dropout": (functional.dropout, [tokens]),
        "gelu": (functional.gelu, [tokens]),
        "silu": (functional.silu, [tokens]),
        "swiglu": (functional.swiglu, [tokens, tokens]),
        "geglu": (functional.geglu, [tokens, tokens]),
        "rope": (functional.rope, [heads, angles, angles]),
        "cross_entropy": (functional.cross_entropy, [x, ids]),
        "cross_entropy, each": (
            lambda x, target: functional.cross_entropy(x, target, reduction="none"), [x, ids]
        ),
        "cross_entropy, a sum towards probabilities": (
            lambda x, target: functional.cross_entropy(x, target, reduction="sum"), [x, x.softmax(1)]
        ),
        "linear_cross_entropy": (lambda x, t: functional.linear_cross_entropy(x, table, t), [tokens[0], ids]),
        "linear_cross_entropy, each": (
            lambda x, t: functional.linear_cross_entropy(x, table, t, reduction="none"), [tokens[0], ids]
        ),
        "linear_attention": (
            lambda q, mask: functional.linear_attention(q, q, q, mask, is_causal=True), [heads, padding]
        ),
        "scaled_dot_product_attention": (functional.scaled_dot_product_attention, [heads, longer, longer]),
        "scaled_dot_product_attention, causal": (
            lambda q, k: functional.scaled_dot_product_attention(q, k, k, is_causal=True), [heads, longer]
        ),
        "scaled_dot_product_attention, mask": (
            lambda q, seen: functional.scaled_dot_product_attention(q, q, q, seen), [heads, seen]
        ),
        "flash_attn_func": (
            lambda q: functional.flash_attn_func(q, q, q, causal=True, window_size=(2, -1)), [heads.transpose(1, 2)]
        ),
        "flash_attn_varlen_func": (
            lambda q, starts, longest: functional.flash_attn_varlen_func(
                q, q, q, starts, starts, longest, longest, causal=True, return_attn_probs=True
            )[0],
            [heads[0].transpose(0, 1), torch.tensor([0] * (n // 4 + 1) + [n]).int().to(DEVICE), n],
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if "attention, " in name else []) for name in of_length(3)],
)
def test_of_twelve_lengths_two_are_compiled(name):
    """The first, and one for any other: a graph that holds a length would be made again, and refused the ninth time."""
    torch.compiler.reset()
    counter = CompileCounter()
    compiled = torch.compile(of_length(3)[name][0], fullgraph=True, backend=counter)
    for n in range(3, 15):
        compiled(*of_length(n)[name][1])
    assert counter.frame_count <= 2


def test_every_function_is_compiled_for_any_length():
    assert {name.split(",")[0] for name in of_length(3)} == set(functional.__all__)


AUTOCAST = {
    "layer_norm": lambda f, x: f.layer_norm(x, (6,)),
    "rms_norm": lambda f, x: f.rms_norm(x, (6,)),
    "softmax": lambda f, x: f.softmax(x, -1),
    "gelu": lambda f, x: f.gelu(x),
    "silu": lambda f, x: f.silu(x),
    "cross_entropy": lambda f, x: f.cross_entropy(x[:, 0, 0], TARGETS[::2][:2]),
    "scaled_dot_product_attention": lambda f, x: f.scaled_dot_product_attention(x, x, x),
}


@pytest.mark.parametrize("name", AUTOCAST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_a_result_has_the_type_of_the_namesakes(name, dtype):
    x = torch.randn(2, 2, 5, 6, generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype)
    with torch.autocast(DEVICE, torch.bfloat16):
        ours, theirs = AUTOCAST[name](functional, x), AUTOCAST[name](F, x)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


MIXED = {
    "add_layer_norm": lambda f, x, y: f.layer_norm(x + y, (6,), X(6)),
    "add_rms_norm": lambda f, x, y: f.rms_norm(x + y, (6,), X(6)),
    "swiglu": lambda f, x, y: f.silu(x) * y,
    "geglu": lambda f, x, y: f.gelu(x) * y,
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("narrow", [0, 1])
def test_of_two_types_the_wider_one_is_the_outputs(name, autocast, narrow):
    """As under autocast, where a product is narrow and the residual stream is not; gradients in each one's own."""
    inputs = [torch.randn(5, 6, generator=torch.Generator().manual_seed(i)).to(DEVICE) for i in range(2)]
    inputs[narrow] = inputs[narrow].bfloat16()
    weight = (X(6),) if "norm" in name else ()
    with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
        ours = gradients(lambda x, y: getattr(functional, name)(x, y, *weight), inputs, torch.ones(5, 6).to(DEVICE))
        theirs = gradients(lambda x, y: MIXED[name](F, x, y), inputs, torch.ones(5, 6).to(DEVICE))
    for found, wanted in zip(ours, theirs, strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_dropout_follows_pytorchs_generator():
    q, k, v = (torch.randn(1, 64, 2, 8, device=DEVICE) for _ in range(3))

    def weights_left(seed: int, tokens: int = 5) -> Tensor:
        torch.manual_seed(seed)
        return functional.flash_attn_func(q[:, :tokens], k[:, :tokens], torch.ones_like(v[:, :tokens]), dropout_p=0.5)

    first = weights_left(1)
    assert not torch.equal(first, weights_left(2))
    assert torch.equal(first, weights_left(1))
    few = q[:, :5], k[:, :5], v[:, :5]
    assert not torch.equal(functional.flash_attn_func(*few, 0.5), functional.flash_attn_func(*few, 0.5))
    assert torch.equal(functional.flash_attn_func(*few), functional.flash_attn_func(*few, dropout_p=0.0))
    assert abs(weights_left(1, 64).mean() - 1) < 0.05  # the expectation is kept


def test_gradients_through_dropout():
    """The backward drops what the forward dropped: the same key gives the same mask."""
    q, k, v = (torch.randn(1, 4, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def seeded(*tensors: Tensor) -> Tensor:
        torch.manual_seed(0)
        return functional.flash_attn_func(*tensors, dropout_p=0.4)

    assert torch.autograd.gradcheck(seeded, (q, k, v))
    inputs = [x.detach().float().to(DEVICE) for x in (q, k, v)]
    found = gradients(seeded, inputs, torch.ones(1, 4, 2, 3, device=DEVICE))
    expected = gradients(seeded, [x.double() for x in inputs], torch.ones(1, 4, 2, 3, dtype=torch.float64).to(DEVICE))
    for ours, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), wanted, rtol=1e-5, atol=1e-5)


# --- Edges -----------------------------------------------------------------------------------------------------


@every_case
def test_a_gradient_of_a_gradient_is_refused(case):
    leaves = [x.requires_grad_() for x in drawn(case, torch.float64)]
    first = torch.autograd.grad(case.ours(*leaves).square().sum(), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match=r"^\w+: the gradient of a gradient is asked for, and a pair has no second"):
        first[0].sum().backward()


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (functional.softmax, ((0, 5),)),
        (lambda x, w: functional.layer_norm(x, (6,), w, w), ((0, 6), (6,))),
        (lambda x, w: functional.rms_norm(x, (6,), w), ((0, 6), (6,))),
        (functional.gelu, ((0, 3),)),
        (functional.silu, ((3, 0),)),
        (functional.swiglu, ((0, 3), (0, 3))),
        (lambda x: functional.rope(x, ANGLES[:0].cos(), ANGLES[:0].sin()), ((1, 2, 0, 6),)),
        (functional.flash_attn_func, ((2, 0, 2, 6), (2, 5, 2, 6), (2, 5, 2, 6))),
        (functional.flash_attn_func, ((2, 5, 2, 6), (2, 0, 2, 6), (2, 0, 2, 6))),
        (lambda x: functional.cross_entropy(x, TARGETS[:0]), ((0, 7),)),
        (lambda x: functional.cross_entropy(x, torch.full((2,), -100, device=DEVICE)), ((2, 7),)),
        (lambda x, w: functional.linear_cross_entropy(x, w, TARGETS[:0]), ((0, 6), (7, 6))),
    ],
)
def test_of_nothing_comes_nothing(function, shapes):
    for dtype in (torch.float32, torch.float64):
        out, *found = gradients(
            lambda *inputs: function(*inputs).sum(),
            [torch.ones(shape, dtype=dtype, device=DEVICE) for shape in shapes],
            None,
        )
        assert out == 0
        for gradient, shape in zip(found, shapes, strict=True):
            assert gradient.shape == shape
            assert not gradient.any()


def test_a_sum_counts_the_class_that_is_ignore_index_in_8_bits():
    x, target = torch.zeros(3, 200, device=DEVICE), torch.tensor([156, 2, 3], dtype=torch.uint8, device=DEVICE)
    expected = gradients(lambda x: F.cross_entropy(x, target, reduction="sum"), [x], None)
    found = gradients(lambda x: functional.cross_entropy(x, target, reduction="sum"), [x], None)
    torch.testing.assert_close(found, expected)
    table = torch.zeros(200, 6, device=DEVICE)
    fused = functional.linear_cross_entropy(torch.ones(3, 6, device=DEVICE), table, target, reduction="sum")
    torch.testing.assert_close(fused, expected[0])


def test_only_what_needs_a_gradient_gets_one():
    x, weight = torch.randn(3, 6, device=DEVICE, requires_grad=True), torch.ones(6, device=DEVICE)
    functional.rms_norm(x, (6,), weight).sum().backward()
    assert x.grad is not None
    assert weight.grad is None
    with torch.no_grad():
        assert not functional.rms_norm(x, (6,), weight).requires_grad
    loss = functional.linear_cross_entropy(x.detach(), torch.ones(7, 6, device=DEVICE), TARGETS[:3])
    assert not loss.requires_grad


@pytest.mark.parametrize("reentrant", [False, True])
def test_under_checkpointing_gradients_are_the_same(reentrant):
    """PyTorch hands out what a backward saved once, and computes it again then: so also the draws of dropout."""

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        h = functional.layer_norm(functional.rms_norm(x, (6,), weight), (6,), weight)
        mixed = functional.flash_attn_func(h, h, h, causal=True, dropout_p=0.5)
        return functional.cross_entropy(functional.swiglu(mixed, h).reshape(-1, 6), torch.arange(6, device=DEVICE))

    found = []
    for run in (loss, partial(checkpoint, loss, use_reentrant=reentrant)):
        torch.manual_seed(3)
        x, weight = (
            torch.randn(1, 3, 2, 6, device=DEVICE).requires_grad_(),
            torch.ones(6, device=DEVICE).requires_grad_(),
        )
        run(x, weight).backward()
        found.append((x.grad, weight.grad))
    assert_same_bits(*found)


@pytest.mark.parametrize("width", [6, WIDE])
@pytest.mark.parametrize("name", ["add_layer_norm", "add_rms_norm"])
def test_add_and_norm_with_dropout(name, width):
    """Rows in one block, and too wide for one: the sum's two gradients, of which one has the mask's zeros."""
    norm: Any = getattr(functional, name.removeprefix("add_"))
    inputs = [torch.randn(2, width, generator=torch.Generator().manual_seed(i)).to(DEVICE) for i in range(2)]
    weight = torch.linspace(0.5, 1.5, width, device=DEVICE)

    def fused(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        torch.manual_seed(5)
        return getattr(functional, name)(x, y, w, eps=1e-5, dropout_p=0.5)

    received = torch.randn(2, width, generator=torch.Generator().manual_seed(7)).to(DEVICE)
    found = gradients(fused, [*inputs, weight], received)
    expected = gradients(lambda x, y, w: norm(x + dropped(y), (width,), w, eps=1e-5), [*inputs, weight], received)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_out_of_training_and_at_a_rate_that_rounds_to_nothing_nothing_is_dropped():
    x = torch.randn(3, 5, device=DEVICE, requires_grad=True)
    assert functional.dropout(x, 0.5, training=False) is x
    assert functional.dropout(x, 0.0) is functional.dropout(x, 1e-6) is x
    assert_same_bits(
        functional.add_rms_norm(x, x, x[0], dropout_p=1e-6).detach(), functional.add_rms_norm(x, x, x[0]).detach()
    )


def test_dropout_of_a_single_number():
    """With several seeds it is dropped and it is kept."""
    found = set()
    for seed in range(16):
        torch.manual_seed(seed)
        y = functional.dropout(torch.tensor(1.5, device=DEVICE))
        assert y.shape == ()
        found.add(y.item())
    assert found == {0.0, 3.0}


def test_shapes_alone():
    """Meta tensors have no numbers, and no autocast."""
    x = torch.empty(4, 6, device="meta")
    assert functional.rms_norm(functional.layer_norm(x, (6,)), (6,)).shape == (4, 6)


def test_heads_are_merged_without_a_copy():
    q = torch.randn(2, 5, 4, 6, device=DEVICE)
    assert functional.flash_attn_func(q, q, q).is_contiguous()
    heads = q.transpose(1, 2)
    assert functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).is_contiguous()
    assert functional.rope(heads.contiguous(), ANGLES, ANGLES).transpose(1, 2).is_contiguous()


def test_rope_keeps_only_the_angles():
    """Neither the projection that it reads nor what it makes of it, which may then be changed in place."""
    projected = torch.randn(2, 5, 12, 6, device=DEVICE, requires_grad=True)
    y = functional.rope((2 * projected)[:, :, :4].transpose(1, 2), ANGLES, ANGLES)
    function: Any = y.grad_fn
    assert [saved.data_ptr() for saved in function.saved_tensors] == [ANGLES.data_ptr()] * 2


@pytest.mark.parametrize(
    "name",
    ["layer_norm", "add_rms_norm", "dropout", "embedding", "linear_attention", "gelu", "swiglu", "rope"],
)
def test_an_output_is_changed_in_place(name):
    case = CASES[name]
    inputs = drawn(case)
    expected = gradients(lambda *tensors: case.theirs(*tensors) + 1, inputs, torch.ones_like(case.theirs(*inputs)))
    found = gradients(lambda *tensors: case.ours(*tensors).add_(1), inputs, torch.ones_like(expected[0]))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attentions_output_is_changed_in_place(dtype):
    """A kernel's backward reads it again, as PyTorch's do: so only where there is none; the formulas' does not."""
    x = torch.randn(1, 2, 4, 3, dtype=dtype, device=DEVICE, requires_grad=True)
    expected = functional.scaled_dot_product_attention(x, x, x) + 1
    with torch.set_grad_enabled(dtype == torch.float64):
        y = functional.scaled_dot_product_attention(x, x, x)
        y += 1
    assert torch.equal(y, expected)
    if y.requires_grad:
        assert_same_bits(torch.autograd.grad(y.sum(), x), torch.autograd.grad(expected.sum(), x))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own use of it
@every_case
def test_a_derivative_in_forward_mode_is_refused(case):
    inputs = tuple(drawn(case))
    with pytest.raises(RuntimeError, match=r"^\w+: a derivative in forward mode is asked for, and a pair has only a"):
        torch.func.jvp(case.ours, inputs, inputs)


TRANSFORMS: dict[str, Callable[[Callable[..., Tensor], tuple[Tensor, ...]], Any]] = {
    "vmap": lambda f, inputs: torch.vmap(f, randomness="same")(*(x[None] for x in inputs)),
    "grad": lambda f, inputs: torch.func.grad(lambda *x: f(*x).sum())(*inputs),
    "jacrev": lambda f, inputs: torch.func.jacrev(f)(*inputs),
    "batched gradients": lambda f, inputs: torch.autograd.functional.jacobian(f, inputs, vectorize=True),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", ["silu", "dropout", "embedding", "sdpa, causal", "linear_cross_entropy"])
def test_a_transform_of_functions_is_refused(name, transform):
    case = CASES[name]
    inputs = tuple(drawn(case, torch.float64))
    with pytest.raises(RuntimeError, match=r"^\w+: a transform of torch.func's \(vmap, grad, jacrev, …\) is asked for"):
        TRANSFORMS[transform](case.ours, inputs)


def test_where_it_runs(monkeypatch):
    """A plain CPU runs PyTorch's arithmetic; the interpreter, where it is on, the kernels, but never bfloat16."""
    x = torch.ones(2, 4)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert runs_in_triton("softmax", x) == (kernels.availability.find_spec("triton") is not None)
    for left_out in (x.double(), x.bfloat16(), x.to("meta")):
        assert not runs_in_triton("softmax", left_out)
    assert not runs_in_triton("patches", x)
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not runs_in_triton("softmax", x)
    assert torch.equal(functional.softmax(x), torch.full((2, 4), 0.25))


def flashed(dtype: torch.dtype = torch.float32, **options: Any) -> Tensor:
    x = X(2, 5, 4, 6).to(dtype)
    return functional.flash_attn_func(x, x, x, **options)


def qkv(**replaced: Tensor) -> Tensor:
    given: dict[str, Any] = dict.fromkeys("qkv", X(2, 5, 4, 6)) | replaced
    return functional.flash_attn_func(**given)


def packed(**options: Any) -> Tensor:
    given: dict[str, Any] = {
        "q": X(5, 4, 6),
        "k": X(5, 2, 6),
        "v": X(5, 2, 6),
        "cu_seqlens_q": STARTS,
        "cu_seqlens_k": STARTS,
    }
    given |= {"max_seqlen_q": 3, "max_seqlen_k": 3} | options
    return functional.flash_attn_varlen_func(**given)


def test_any_integer_says_how_long_sentences_are_and_how_far_they_see():
    three, two = np.int64(3), np.int32(2)
    window: dict[str, Any] = {"window_size": (two, np.int8(-1))}
    assert torch.equal(packed(max_seqlen_q=three, max_seqlen_k=three, **window), packed(window_size=(2, -1)))
    assert torch.equal(flashed(**window), flashed(window_size=(2, -1)))


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: functional.layer_norm(X(2, 6), (5,)), ValueError, r"input has shape \(2, 6\).*normalized_shape \(5"),
    (lambda: functional.layer_norm(X(2, 6), ()), ValueError, r"input has shape \(2, 6\)"),
    (lambda: functional.layer_norm(X(2, 6), (6,), X(1)), ValueError, r"weight has shape \(1,\), expected norm"),
    (lambda: functional.layer_norm(X(2, 6), (6,), X(6), X(5)), ValueError, r"bias has shape \(5,\), expected"),
    (lambda: functional.rms_norm(X(2, 6), (6,), X(2, 3)), ValueError, r"weight has shape \(2, 3\)"),
    (lambda: functional.layer_norm(X(0, 4), (0, 4)), ValueError, r"^normalized_shape is \(0, 4\), expected axes"),
    *[
        (
            lambda norm=norm, other=other: norm(X(2, 3, 6), X(*other), X(6)),
            ValueError,
            rf"^input has shape \(2, 3, 6\) and sublayer_out {re.escape(str(other))}, expected one shape$",
        )
        for norm in (functional.add_layer_norm, functional.add_rms_norm)
        for other in ((3, 2, 6), (6, 6), (1, 3, 6))
    ],
    (lambda: functional.add_layer_norm(X(6, 6), X(6, 6), X(6, 6)), ValueError, r"gamma has shape \(6, 6\)"),
    (lambda: functional.add_rms_norm(X(6, 6), X(6, 6), X(6, 6)), ValueError, r"gamma has shape \(6, 6\)"),
    (lambda: functional.softmax(X(2), None), ValueError, "dim is None, expected the number"),  # pyright: ignore
    (lambda: functional.dropout(X(2), inplace=True), ValueError, "inplace is True, expected False"),
    (lambda: functional.silu(X(2), True), ValueError, "inplace is True, expected False"),
    (lambda: functional.embedding(IDS, X(7, 6), 7), ValueError, "padding_idx is 7, expected −7 to 6"),
    (lambda: functional.embedding(IDS, X(7, 6), max_norm=1.0), ValueError, "max_norm is given"),  # pyright: ignore
    (lambda: functional.embedding(IDS, X(7, 6), scale_grad_by_freq=True), ValueError, "scale_grad_by_freq is True"),
    (lambda: functional.embedding(IDS, X(7, 6), sparse=True), ValueError, "sparse is True, expected False"),
    (lambda: functional.cross_entropy(X(5, 7), TARGETS, reduce=False), ValueError, "reduce is given"),  # pyright: ignore
    (lambda: functional.cross_entropy(X(5, 7), TARGETS, size_average=True), ValueError, "size_av"),  # pyright: ignore
    (
        lambda: functional.cross_entropy(X(5, 7), TARGETS, temperature=2.0),  # pyright: ignore
        TypeError,
        "^cross_entropy has no argument 'temperature': it takes input, target, weight",
    ),
    (lambda: functional.cross_entropy(X(5, 7), TARGETS, z_loss=-1.0), ValueError, "z_loss is -1.0, expected"),
    (lambda: functional.cross_entropy(X(5, 7), X(5, 7), z_loss=0.1), ValueError, "z_loss is 0.1 beside probabilities"),
    (
        lambda: functional.linear_cross_entropy(X(5, 6), X(7, 6), TARGETS, options={}),  # pyright: ignore
        ValueError,
        "options is given",
    ),
    (lambda: functional.gelu(X(2), "sin"), ValueError, "approximate is 'sin', expected"),
    (lambda: functional.geglu(X(2), X(2), "sin"), ValueError, "approximate is 'sin', expected 'none' or 'tanh'"),
    (lambda: functional.swiglu(X(2), X(3)), ValueError, "up has shape"),
    (lambda: functional.rope(X(1, 1, 5, 6), ANGLES.clone().requires_grad_(), ANGLES), ValueError, "^cos requires"),
    (lambda: functional.cross_entropy(X(5, 7), TARGETS, X(7)), ValueError, "weight is given"),  # pyright: ignore
    (lambda: functional.cross_entropy(X(5, 7), TARGETS, reduction="max"), ValueError, "'max', expected one of 'mean'"),
    (lambda: functional.cross_entropy(X(5, 7), X(5, 7).requires_grad_()), ValueError, "target requires a gradient"),
    (lambda: functional.cross_entropy(X(5, 7), TARGETS[:4]), ValueError, r"^target has shape \(4,\), expected c.*\(5"),
    (
        lambda: functional.linear_cross_entropy(X(5, 6), X(7, 6), TARGETS, linear_bias=X(7)),  # pyright: ignore
        ValueError,
        "linear_bias is given, expected None",
    ),
    (lambda: functional.linear_cross_entropy(X(5, 6), X(7, 6), X(5, 7)), TypeError, "expected classes"),
    (lambda: functional.flash_attn_func(X(2, 5, 6), X(2, 5, 6), X(2, 5, 6)), ValueError, "q has shape.*4 axes$"),
    (
        lambda: functional.linear_cross_entropy(X(2, 3, 6), X(7, 6), IDS.T),
        ValueError,
        r"^target has shape \(3, 2\), expected classes \(2, 3\)$",
    ),
    (
        lambda: functional.linear_cross_entropy(X(2, 3, 6), X(7, 6), IDS.reshape(6, 1)),
        ValueError,
        r"^target has shape \(6, 1\), expected classes \(2, 3\)$",
    ),
    (lambda: flashed(dropout_p=1.0), ValueError, "rate is 1.0"),
    (lambda: flashed(window_size=3), TypeError, r"window_size is 3, expected two integers \(left, right\)"),
    (lambda: flashed(window_size=(1, 2.5)), TypeError, r"window_size is \(1, 2.5\), expected two integers"),
    (lambda: functional.layer_norm([1.0], (1,)), TypeError, "expected a torch.Tensor, got list"),  # pyright: ignore
    (lambda: functional.cross_entropy(X(5, 7), X(5)), ValueError, r"target has shape \(5,\), expected prob.*\(5"),
    *[
        (lambda options=options: packed(**options), error, f"^{re.escape(message)}$")
        for options, error, message in (
            (
                {"block_table": STARTS},
                ValueError,
                "block_table is given, expected None: these kernels read no keys and values in pages",
            ),
            ({"max_seqlen_k": 3.0}, TypeError, "max_seqlen_k is 3.0, expected an int"),
            ({"cu_seqlens_q": [0, 5]}, TypeError, "cu_seqlens_q must be a torch.Tensor, got list"),
            ({"cu_seqlens_k": STARTS.long()}, TypeError, "cu_seqlens_k is torch.int64, expected torch.int32"),
            (
                {"cu_seqlens_k": STARTS.to("meta")},
                ValueError,
                f"k is on {STARTS.device} and cu_seqlens_k on meta, expected one device",
            ),
            (
                {"cu_seqlens_q": STARTS[None]},
                ValueError,
                "cu_seqlens_q has shape (1, 4), expected (B + 1,) for B sentences",
            ),
            (
                {"cu_seqlens_k": STARTS[[0, 3]], "max_seqlen_k": 5},
                ValueError,
                "cu_seqlens_q has shape (4,) and cu_seqlens_k (2,), expected one shape",
            ),
            (
                {"max_seqlen_q": 0},
                ValueError,
                "max_seqlen_q is 0 and cu_seqlens_q has shape (4,), expected sentences for q's 5 rows",
            ),
            *[
                (
                    {"cu_seqlens_q": torch.tensor(starts, dtype=torch.int32)},
                    ValueError,
                    f"cu_seqlens_q holds {starts}, expected numbers that rise from 0 to q's 5 rows",
                )
                for starts in ([0, 3, 2, 5], [0, 2, 2, 6], [1, 2, 2, 5])
                if DEVICE == "cpu"
            ],
            *([(
                {"max_seqlen_q": 2}, ValueError, "max_seqlen_q is 2, and cu_seqlens_q has a sentence of 3",
            )] if DEVICE == "cpu" else []),
            ({"alibi_slopes": X(2, 4)}, ValueError, "alibi_slopes has shape (2, 4), expected (4,) or (3, 4)"),
        )
    ],
    *[
        (lambda call=call, options=options: call(**options), ValueError, f"^{re.escape(message)}$")
        for call, options, message in (
            (packed, {"v": X(4, 2, 6)}, "v has shape (4, 2, 6), expected k's (5, 2, …)"),
            (packed, {"k": X(5, 3, 6)}, "k has shape (5, 3, 6), expected a number of heads that divides q's 4"),
            (packed, {"k": X(5, 2, 7)}, "k has shape (5, 2, 7), expected q's width of 6"),
            (qkv, {"k": X(3, 5, 4, 6)}, "k has shape (3, 5, 4, 6), expected q's 2 sentences"),
            (qkv, {"k": X(2, 5, 4, 7)}, "k has shape (2, 5, 4, 7), expected q's width of 6"),
            (qkv, {"k": X(2, 5, 3, 6)}, "k has shape (2, 5, 3, 6), expected a number of heads that divides q's 4"),
            (qkv, {"k": X(2, 5, 0, 6)}, "k has shape (2, 5, 0, 6), expected a number of heads that divides q's 4"),
            (qkv, {"v": X(2, 6, 4, 6)}, "v has shape (2, 6, 4, 6), expected k's (2, 5, 4, …)"),
            (qkv, {"v": X(2, 5, 2, 6)}, "v has shape (2, 5, 2, 6), expected k's (2, 5, 4, …)"),
        )
    ],
    (lambda: packed(max_seqlen_q=True), TypeError, "^max_seqlen_q is True, expected an int$"),
    (lambda: packed(q=X(1, 5, 4, 6)), ValueError, r"^q has shape \(1, 5, 4, 6\), expected 3 axes$"),
    (
        lambda: flashed(alibi_slopes=X(4).requires_grad_()),
        ValueError,
        "^alibi_slopes requires a gradient, and attention has none for it: pass it with .detach",
    ),
    (
        lambda: flashed(torch.float64, alibi_slopes=X(4).double()),
        TypeError,
        "^alibi_slopes is torch.float64, expected torch.float32$",
    ),
    (
        lambda: flashed(alibi_slopes=X(5)),
        ValueError,
        r"^alibi_slopes has shape \(5,\), expected \(4,\) or \(2, 4\)$",
    ),
    (
        lambda: flashed(alibi_slopes=torch.ones(4, device="meta")),
        ValueError,
        "^q is on .* and alibi_slopes on meta, expected one device$",
    ),
    (
        lambda: functional.scaled_dot_product_attention(X(2, 4, 5, 6), X(2, 2, 5, 6), X(2, 2, 5, 6)),
        ValueError,
        "key has 2 heads and query 4: to group them, set enable_gqa",
    ),
    (lambda: functional.scaled_dot_product_attention(X(6), X(5, 6), X(5, 6)), ValueError, "query has .* 2 axes or m"),
    (
        lambda: functional.scaled_dot_product_attention(X(2, 4, 5, 6), X(3, 4, 5, 6), X(3, 4, 5, 6)),
        ValueError,
        r"^the shapes are query \(2, 4, 5, 6\), key \(3, 4, 5, 6\), value .* expected batches that are equal or 1$",
    ),
    (
        lambda: functional.scaled_dot_product_attention(*[X(2, 4, 5, 6)] * 3, softcap=30.0),  # pyright: ignore
        TypeError,
        "^scaled_dot_product_attention has no argument 'softcap': it takes query, key",
    ),
    (
        lambda: functional.linear_cross_entropy(X(5, 6), X(7, 6), TARGETS, softcap=30.0),  # pyright: ignore
        TypeError,
        "^linear_cross_entropy has no argument 'softcap': it takes input, linear_weight",
    ),
    (
        lambda: functional.scaled_dot_product_attention(*[X(2, 4, 5, 6)] * 3, attn_mask=SEEN, is_causal=True),
        ValueError,
        "attn_mask is given beside is_causal",
    ),
    *[
        (
            lambda mask=mask: functional.scaled_dot_product_attention(*[X(2, 4, 5, 6)] * 3, attn_mask=mask),
            error,
            f"^{re.escape(message)}$",
        )
        for mask, error, message in (
            (
                REAL[..., :4],
                ValueError,
                "attn_mask has shape (2, 1, 1, 4), expected one that broadcasts to (2, 4, 5, 5)",
            ),
            (X(3, 5), ValueError, "attn_mask has shape (3, 5), expected one that broadcasts to (2, 4, 5, 5)"),
            (
                X(1, 2, 1, 5, 5),
                ValueError,
                "attn_mask has shape (1, 2, 1, 5, 5), expected one that broadcasts to (2, 4, 5, 5)",
            ),
            (
                X(5, 5).half(),
                TypeError,
                "attn_mask is torch.float16, expected torch.bool, torch.float32 or query's torch.float32",
            ),
            (
                torch.ones(5, 5, device="meta"),
                ValueError,
                f"query is on {X().device} and attn_mask on meta, expected one device",
            ),
        )
    ],
]  # fmt: skip


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_not_supported_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.slow
def test_importing_the_functions_does_not_import_the_compiler():
    """That takes a second."""
    run = "import sys, kernels.functional; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", run], check=True)


# --- What the host does ----------------------------------------------------------------------------------------


def python_calls(function: Callable[[], object]) -> int:
    """The calls of Python functions when it runs for the second time."""
    function()
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


class Bare(torch.autograd.Function):
    """A pair with the least around it: its cache is an attribute, and nothing is checked."""

    @staticmethod
    def forward(ctx: Any, name: str, options: dict[str, Any], *tensors: Tensor) -> Tensor:
        out, cache = getattr(kernels, f"{name}_forward")(*tensors, **options)
        ctx.backward = partial(getattr(kernels, f"{name}_backward"), cache=cache)
        return out

    @staticmethod
    def backward(ctx: Any, received: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradients = ctx.backward(received)
        return None, None, *(gradients if isinstance(gradients, tuple) else (gradients,))


class Seen(TorchDispatchMode):
    """The names of the operators that PyTorch calls."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_an_operator_and_nothing_of_what_is_in_it():
    """Selective checkpointing and counters of FLOPs go by it; a tensor without numbers has its shape by it."""
    x = torch.ones(3, 5, device=DEVICE, requires_grad=True)
    with Seen() as seen:
        functional.gelu(x).backward(torch.ones_like(x))
    ours = [name for name in seen.names if "minitransformer" in name]
    assert ours == ["minitransformer::gelu", "minitransformer::gelu_backward"]
    with FakeTensorMode() as mode:
        assert functional.gelu(mode.from_tensor(x)).shape == (3, 5)


HOST: dict[str, tuple[Callable[..., Tensor], str, dict[str, Any], tuple[tuple[int, ...], ...]]] = {
    "layer_norm": (lambda x, w: functional.layer_norm(x, (6,), w, w), "layernorm", {}, ((5, 6), (6,))),
    "gelu": (functional.gelu, "gelu", {}, ((5, 6),)),
    "softmax": (functional.softmax, "softmax", {}, ((5, 6),)),
    "cross_entropy": (
        lambda x: functional.cross_entropy(x, TARGETS), "cross_entropy", {"targets": TARGETS, "ignore_index": -100},
        ((5, 7),),
    ),
    "sdpa": (
        lambda *qkv: functional.scaled_dot_product_attention(*qkv, is_causal=True), "attention", {"causal": True},
        ((1, 2, 5, 6),) * 3,
    ),
}  # fmt: skip


@pytest.mark.skipif(not runs_in_triton("softmax", X(1)), reason="without Triton there is no kernel's host to count")
@pytest.mark.parametrize("name", HOST)
def test_a_function_costs_the_host_at_most_twice_its_pair(monkeypatch, name):
    """Forward and backward, in Python calls; an operator of torch.library alone has 250."""
    if DEVICE == "cpu":  # what the interpreter does is no host's work
        monkeypatch.setattr("triton.runtime.interpreter.GridExecutor.__call__", lambda *_, **__: None)
    function, pair, options, shapes = HOST[name]
    leaves = [torch.ones(shape, device=DEVICE, requires_grad=True) for shape in shapes]
    given = [*leaves, leaves[-1]] if name == "layer_norm" else leaves
    received = torch.ones_like(function(*leaves))
    ours, least = (
        python_calls(lambda run=run: torch.autograd.backward(run(), received))
        for run in (lambda: function(*leaves), lambda: Bare.apply(pair, options, *given))
    )
    assert ours <= 2 * least, f"{ours} calls beside {least}"


# --- Without a GPU ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_cpu")
@every_case
def test_without_a_gpu_the_numbers_are_those_of_the_namesake(case):
    """In each dtype; in half precision with the errors that `test_half_precision_is_as_exact_as_pytorchs` allows."""
    test_the_numbers_are_those_of_the_namesake(case)
    test_half_precision_is_as_exact_as_pytorchs(case)
    inputs = drawn(case, torch.float64)
    torch.testing.assert_close(*(gradients(f, inputs, torch.ones_like(f(*inputs))) for f in (case.ours, case.theirs)))


WITHOUT_A_GPU: dict[str, tuple[Callable[[Any, Tensor], Tensor], tuple[int, ...]]] = {
    "layer_norm": (lambda f, x: f.layer_norm(x, (6,), x[0], x[1]), (5, 6)),
    "rms_norm": (lambda f, x: f.rms_norm(x, (6,), x[0]), (5, 6)),
    "gelu": (lambda f, x: f.gelu(x), (5, 6)),
    "silu": (lambda f, x: f.silu(x), (5, 6)),
    "softmax": (lambda f, x: f.softmax(x, -1), (5, 6)),
    "embedding": (lambda f, x: f.embedding(IDS, x, 3), (7, 6)),
    "cross_entropy": (lambda f, x: f.cross_entropy(x, TARGETS), (5, 7)),
    "linear_cross_entropy": (lambda f, x: f.linear_cross_entropy(x, x[:3], TARGETS.clamp(max=2)), (5, 7)),
    "sdpa": (lambda f, x: f.scaled_dot_product_attention(x, x, x, is_causal=True), (1, 2, 5, 6)),
    "swiglu": (lambda f, x: functional.swiglu(x, x) if f is functional else F.silu(x) * x, (5, 6)),
    "add_layer_norm": (
        lambda f, x: functional.add_layer_norm(x, x, x[0]) if f is functional else F.layer_norm(x + x, (6,), x[0]),
        (5, 6),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("plain_cpu")
@pytest.mark.parametrize("name", WITHOUT_A_GPU)
def test_without_a_gpu_a_function_costs_the_host_at_most_twice_its_namesake(name):
    """In Python calls, forward and backward; and the bits are the namesake's."""
    function, shape = WITHOUT_A_GPU[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = function(functional, x)
    received = torch.ones_like(y)
    assert torch.equal(y, function(F, x))
    ours, theirs = (
        python_calls(lambda f=f: torch.autograd.backward(function(f, x), received)) for f in (functional, F)
    )
    assert ours <= 2 * theirs, f"{ours} calls beside {theirs}"


@pytest.mark.usefixtures("plain_cpu")
@pytest.mark.parametrize("compiled", [False, True])
def test_without_a_gpu_what_differs_from_the_namesake_differs_still(compiled):
    """As in the kernels: no NaN where nothing counts or nothing is seen, float32 losses, our masks of dropout."""
    torch.compiler.reset()
    wrap = partial(torch.compile, fullgraph=True, backend="eager") if compiled else lambda function: function
    none = torch.full((3,), -100)

    def losses(x: Tensor) -> Tensor:
        return functional.cross_entropy(x, none) + functional.linear_cross_entropy(x, x, none)

    loss, dx = gradients(wrap(losses), [torch.randn(3, 7).half()], None)
    assert (loss.item(), loss.dtype, dx.count_nonzero().item()) == (0, torch.float32, 0)
    dead = torch.tensor([[1.0, 2.0], [-torch.inf, -torch.inf]])
    y, dx = gradients(wrap(functional.softmax), [dead], torch.ones(2, 2))
    assert_same_bits(y[1], torch.zeros(2))
    assert not dx[1].any()
    assert_zeros_where_nothing_is_seen(wrap(functional.scaled_dot_product_attention))
    q = torch.randn(1, 2, 2, 6)
    few = wrap(lambda q: functional.flash_attn_func(q, q[:, :1], q[:, :1], causal=True))(q.transpose(1, 2))
    assert not few[:, 0].any()

    def masks() -> list[Tensor]:
        torch.manual_seed(3)
        return [functional.dropout(torch.ones(4, 8)), functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)]

    found = masks()
    with pytest.MonkeyPatch.context() as checked:
        checked.setenv("TRITON_INTERPRET", "1")
        torch.testing.assert_close(found, masks())


OF_ANY_LENGTH = "scaled_dot_product_attention, causal", "flash_attn_func", "flash_attn_varlen_func", "cross_entropy"
"""The cases that a quick test compiles without a GPU too: what they ask of lengths is theirs alone there."""


@pytest.mark.usefixtures("plain_cpu")
@pytest.mark.parametrize(
    "name",
    [name if name in OF_ANY_LENGTH else pytest.param(name, marks=pytest.mark.slow) for name in of_length(3)],
)
def test_without_a_gpu_of_twelve_lengths_two_are_compiled(name):
    test_of_twelve_lengths_two_are_compiled(name)


@pytest.mark.usefixtures("plain_cpu")
def test_without_a_gpu_ids_out_of_range_are_named():
    for call in (
        lambda: functional.embedding(IDS + 1, X(7, 6)[:6]),
        lambda: functional.cross_entropy(X(5, 7), TARGETS + 4),
        lambda: functional.linear_cross_entropy(X(5, 6), X(7, 6), TARGETS + 4),
    ):
        with pytest.raises(ValueError, match=r"holds (7|10|-96), expected ids from 0 to"):
            call()


# --- A GPU whose tensor cores Triton does not use ----------------------------------------------------------------


@pytest.fixture
def turing() -> Iterator[None]:
    """Tensors are on a T4, or so the kernels are told."""
    pytest.importorskip("triton")
    from kernels.tuning import Capability, pretending

    attention._warn_once.cache_clear()
    with pretending(Capability("cuda", 75, 64 * 1024)):
        yield


@pytest.mark.usefixtures("turing")
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_t4_attention_is_pytorchs_and_says_so_once(compiled):
    torch.compiler.reset()
    x = torch.randn(1, 2, 5, 6, device=DEVICE)
    function = torch.compile(attend, fullgraph=True, backend="eager") if compiled else attend
    with pytest.warns(
        UserWarning, match=r"no tensor cores on this GPU \(compute capability 7.5\): attention runs in P"
    ) as warned:
        y = function(x)
    assert [each.filename for each in warned] == [__file__]  # the caller's line, not the library's
    with Seen() as seen, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(attend(x), y)
    assert not any("minitransformer" in name for name in seen.names)
    assert torch.equal(y, F.scaled_dot_product_attention(x, x, x, is_causal=True))


def attend(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x, x, x, is_causal=True)


@pytest.mark.usefixtures("turing")
@pytest.mark.filterwarnings("ignore:Triton uses no tensor cores")
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("sdpa", "flash_attn"))])
def test_on_a_t4_the_numbers_are_those_of_the_namesake(name):
    case = CASES[name]
    inputs = drawn(case)
    received = torch.ones_like(case.theirs(*inputs))
    found, wanted = (gradients(function, inputs, received) for function in (case.ours, case.theirs))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("turing")
def test_on_a_t4_what_pytorchs_attention_lacks_runs_in_the_kernel_and_says_so():
    q = torch.randn(1, 5, 2, 6, device=DEVICE)
    said = "softcap or ALiBi's slopes, which PyTorch's does not have"
    with pytest.warns(UserWarning, match=said) as warned, Seen() as seen:
        functional.flash_attn_func(q, q, q, softcap=2.0)
    assert [each.filename for each in warned] == [__file__]
    assert "minitransformer::attention" in seen.names


@pytest.mark.usefixtures("turing")
@pytest.mark.filterwarnings("ignore:Triton uses no tensor cores")
def test_on_a_t4_a_query_with_nothing_to_attend_to_gets_zeros_and_dropout_drops():
    assert_zeros_where_nothing_is_seen(functional.scaled_dot_product_attention)
    q = torch.randn(1, 2, 2, 6, device=DEVICE)
    assert not torch.equal(functional.scaled_dot_product_attention(q, q, q, dropout_p=0.9), attend(q))
