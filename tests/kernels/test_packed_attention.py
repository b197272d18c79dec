"""Packed sentences of many lengths: each attends to itself as if it were alone, and nothing is padded."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, assert_same_bits
from support.kernels.tables import WITHOUT_TRITON
from support.kernels.traffic import Traffic, counted_loads
from torch import Tensor

import kernels
from kernels import functional
from kernels.eager.packed import Packed, packed_attention
from minitransformer.ops import Dropout, Pair

SCRIPTS = Path(__file__).parents[1] / "support" / "kernels"
LENGTHS = [18, 0, 1], [20, 3, 0]
"""Lengths of queries and of keys: none, one, a block and a bit."""
SLOPES = torch.rand(3, 2, generator=torch.Generator().manual_seed(2))
Lengths = tuple[list[int], list[int]]

interpreted = pytest.mark.skipif(DEVICE == "cuda", reason="hide the GPU: the interpreter's loads are counted")


def starts(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=DEVICE)


def packed(lengths: Lengths) -> Packed:
    of_queries, of_keys = lengths
    return Packed(starts(of_queries), starts(of_keys), max(of_queries, default=0), max(of_keys, default=0))


def drawn(
    lengths: Lengths, heads: int = 2, kv_heads: int = 1, width: int = 20, dtype: Any = torch.float32
) -> list[Tensor]:
    """Queries, keys and values `(total, heads, width)`, and a received gradient."""
    queries, keys, generator = sum(lengths[0]), sum(lengths[1]), torch.Generator().manual_seed(sum(lengths[0]))
    shapes = (queries, heads, width), (keys, kv_heads, width), (keys, kv_heads, 24), (queries, heads, 24)
    return [torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes]


def together(lengths: Lengths, tensors: list[Tensor], **options: Any) -> list[Tensor]:
    """The output, the log-sum-exps, and the gradients of queries, keys and values."""
    *leaves, received = (x.requires_grad_() for x in tensors)
    q, k, v = leaves
    out, lse, _ = functional.flash_attn_varlen_func(q, k, v, *packed(lengths), return_attn_probs=True, **options)
    return [out, lse, *torch.autograd.grad(out, leaves, received)]


def alone(lengths: Lengths, tensors: list[Tensor], **options: Any) -> list[Tensor]:
    """Return the same, each sentence by itself."""
    found, slopes = [], options.pop("alibi_slopes", None)
    splits = [x.split(lengths[i], 0) for i, x in zip((0, 1, 1, 0), tensors, strict=True)]
    for b, parts in enumerate(zip(*splits, strict=True)):
        *leaves, received = (x[None].detach().requires_grad_() for x in parts)
        own = slopes[b : b + 1] if slopes is not None and slopes.ndim == 2 else slopes
        out, lse, _ = functional.flash_attn_func(*leaves, alibi_slopes=own, return_attn_probs=True, **options)
        found.append([x[0] for x in (out, lse, *torch.autograd.grad(out, leaves, received))])
    return [torch.cat(each, 1 if i == 1 else 0) for i, each in enumerate(zip(*found, strict=True))]


OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "causal": {"causal": True},
    "everything": {
        "causal": True,
        "window_size": (9, -1),
        "softcap": 2.0,
        "alibi_slopes": SLOPES.to(DEVICE),
        "softmax_scale": -0.3,
    },
}


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (torch.float32, "everything"),
        *(
            pytest.param(dtype, options, marks=pytest.mark.slow)
            for dtype in (torch.float16, torch.float64)
            for options in OPTIONS
        ),
        *(pytest.param(torch.float32, options, marks=pytest.mark.slow) for options in ("", "causal")),
    ],
)
def test_each_sentence_has_the_bits_that_it_has_alone(dtype, options):
    """Forward, backward and log-sum-exps: a tile of the interpreter's is the same for all lengths."""
    tensors = drawn(LENGTHS, dtype=dtype)
    assert_same_bits(together(LENGTHS, tensors, **OPTIONS[options]), alone(LENGTHS, tensors, **OPTIONS[options]))


@pytest.mark.slow
@settings(max_examples=30)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4),
    heads=st.sampled_from([(1, 1), (2, 2), (6, 2)]),
    causal=st.booleans(),
    window=st.tuples(st.integers(-1, 20), st.integers(-1, 20)),
    softcap=st.sampled_from([0.0, 2.0]),
    sloped=st.sampled_from([None, "for all sentences", "for each sentence"]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.float64]),
)
def test_of_any_lengths_each_sentence_has_the_bits_that_it_has_alone(
    lengths, heads, causal, window, softcap, sloped, dtype
):
    of_each = [tq for tq, _ in lengths], [tk for _, tk in lengths]
    slopes = torch.rand(len(lengths), heads[0], generator=torch.Generator().manual_seed(1)).to(DEVICE)
    options = {"causal": causal, "window_size": window, "softcap": softcap}
    if sloped:
        options["alibi_slopes"] = slopes if sloped == "for each sentence" else torch.rand(heads[0]).to(DEVICE)
    tensors = drawn(of_each, *heads, dtype=dtype)
    if not lengths:
        assert [x.numel() for x in together(of_each, tensors, **options)] == [0] * 5
        return
    assert_same_bits(together(of_each, tensors, **options), alone(of_each, tensors, **options))


def in_a_batch(pair: Pair, lengths: Lengths, tensors: list[Tensor], dropout: Dropout) -> list[Tensor]:
    """The output and the gradients, padded behind each sentence and with a mask of the padding."""
    longest = [max(each) for each in lengths]
    padded = []
    for i, x in zip((0, 1, 1, 0), tensors, strict=True):
        rows = [torch.nn.functional.pad(part, (0, 0, 0, 0, 0, longest[i] - len(part))) for part in x.split(lengths[i])]
        padded.append(torch.stack(rows).transpose(1, 2))
    *qkv, received = padded
    real = torch.arange(longest[1], device=DEVICE) < torch.tensor(lengths[1], device=DEVICE)[:, None]
    out, cache = pair.forward(*qkv, key_mask=real, dropout=dropout)
    found = zip((0, 0, 1, 1), (out, *pair.backward(received, cache)), strict=True)
    return [torch.cat([row[:, :n] for row, n in zip(x, lengths[i], strict=True)], 1) for i, x in found]


@pytest.mark.parametrize("where", [pytest.param("on kernels", marks=WITHOUT_TRITON), "in PyTorch's arithmetic"])
def test_dropouts_mask_is_that_of_the_sentences_in_a_padded_batch(where):
    """Forward and backward, to the bit in the kernels: a weight's coordinates are its sentence, head, query and key."""
    lengths, dropout = ([18, 1], [7, 18]), Dropout(0.5, key=7)
    own = packed_attention if where != "on kernels" else Pair(kernels.attention_forward, kernels.attention_backward)
    tensors = drawn(lengths, dtype=torch.float32 if where == "on kernels" else torch.float64)
    *qkv, received = (x.transpose(0, 1)[None] for x in tensors)
    out, cache = own.forward(*qkv, packed=packed(lengths), dropout=dropout)
    found = [x[0] for x in (out, *own.backward(received, cache))]
    expected = in_a_batch(own, lengths, tensors, dropout)
    if where == "on kernels":
        assert_same_bits(found, expected)
    torch.testing.assert_close(found, expected)


@WITHOUT_TRITON
@interpreted
def test_nothing_is_padded():
    """No tensor is larger than the rows of all sentences, and a program beyond its sentence's end leaves at once."""
    lengths, (width, heads) = ([33, 1], [1, 33]), (16, 2)
    q, k, v, received = (x[:, :heads, :width] for x in drawn(lengths, heads, heads, 32))
    inputs = [x.contiguous().transpose(0, 1)[None] for x in (q, k, v)]
    dout = received.transpose(0, 1)[None]
    with Traffic() as traffic, counted_loads() as loads:
        _, cache = kernels.attention_forward(*inputs, packed=packed(lengths))
        kernels.attention_backward(dout, cache)
    assert traffic.largest == 34 * heads * width
    with counted_loads() as least:
        for parts in zip(
            *(x.split(lengths[i], 2) for i, x in zip((0, 1, 1, 0), (*inputs, dout), strict=True)), strict=True
        ):
            _, cache = kernels.attention_forward(*parts[:3])
            kernels.attention_backward(parts[3], cache)
    programs = 3 * heads * len(lengths[0]) * 3  # of three kernels, each as for the longest sentence: three blocks
    assert loads.elements == least.elements + 4 * programs  # a program loads where its sentence begins and ends


@WITHOUT_TRITON
@pytest.mark.slow
def test_packed_sentences_run_as_machine_code():
    """Forward and backward in float16 and bfloat16, without a race, beside each sentence's in float64."""
    from support.kernels.machine_faults import in_a_process

    for name, (errors, allowed) in in_a_process(str(SCRIPTS / "machine_proofs.py"), "packed").items():
        assert len(errors) == 5
        assert all(error <= allowed for error in errors), name


WHERE = "on kernels", "in PyTorch's arithmetic", "without a GPU", "on a T4"


@pytest.mark.parametrize(
    "where", [*WHERE, *(pytest.param(f"{each}, compiled", marks=pytest.mark.slow) for each in WHERE)]
)
def test_a_log_sum_exp_is_that_of_the_scores_and_a_constant(where, monkeypatch):
    """The natural logarithm, in float32, of packed sentences and of one; +inf for a query that sees nothing."""
    if where.startswith("without") and DEVICE == "cpu":
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    lengths = [3, 0, 2], [2, 1, 4]
    q, k, v, _ = drawn(lengths, dtype=torch.float64 if "arithmetic" in where else torch.float32)
    q.requires_grad_()
    expected = []
    for rows, keys in zip(q.detach().split(lengths[0]), k.split(lengths[1]), strict=True):
        scores = rows.transpose(0, 1) @ keys.permute(1, 2, 0) / q.shape[2] ** 0.5
        hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(keys.shape[0] - rows.shape[0] + 1)
        expected.append(scores.masked_fill(hidden, -torch.inf).logsumexp(-1))
    wanted = torch.cat(expected, 1).float()
    wanted[wanted == -torch.inf] = torch.inf
    assert wanted.isinf().sum() == q.shape[1]

    def both(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out, lse, nothing = functional.flash_attn_varlen_func(
            q, k, v, *packed(lengths), causal=True, return_attn_probs=True
        )
        assert nothing is None
        return (
            out,
            lse,
            functional.flash_attn_func(q[None, :3], k[None, :2], v[None, :2], causal=True, return_attn_probs=True)[1],
        )

    torch.compiler.reset()
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager") if "compiled" in where else both
    with on_a_t4() if "T4" in where else nullcontext():
        out, lse, of_one = compiled(q)
    torch.testing.assert_close(lse, wanted)
    torch.testing.assert_close(of_one, wanted[None, :, :3])
    assert (out.requires_grad, lse.requires_grad, of_one.requires_grad) == (True, False, False)
    assert out.is_contiguous()


def test_half_precisions_log_sum_exp_is_of_exact_scores(monkeypatch):
    """On a GPU without our kernels too, where PyTorch's arithmetic leaves scores in half precision."""
    from kernels.eager import scores
    from kernels.eager.attention import attention_lse

    monkeypatch.setattr(scores, "_exact", lambda x: x)  # as on a GPU
    q, k = (30 * torch.randn(1, 2, 50, 64, generator=torch.Generator().manual_seed(seed)).half() for seed in range(2))
    torch.testing.assert_close(attention_lse(q, k, scale=1 / 8), attention_lse(q.double(), k.double(), scale=1 / 8))


@contextmanager
def on_a_t4() -> Iterator[None]:
    pytest.importorskip("triton")
    from kernels.tuning import Capability, pretending

    with pretending(Capability("cuda", 75, 64 * 1024)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Triton uses no tensor cores")
        yield
