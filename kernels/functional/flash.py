"""Attention with flash-attention's arguments and layout, `(B, T, H, D)`, and of packed sentences, `(total, H, D)`."""

import operator
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ..checks import check_kind, check_slopes
from ..eager.packed import Packed
from .attention import attend, check_axes
from .operators import named

Flashed = tuple[Tensor, Tensor, None]
"""The result with `return_attn_probs`, as flash-attention's: the output, each query's log-sum-exp, and no weights."""


@overload
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = ...,
    softmax_scale: float | None = ..., causal: bool = ..., window_size: tuple[int, int] = ..., softcap: float = ...,
    alibi_slopes: Tensor | None = ..., deterministic: bool = ..., return_attn_probs: Literal[False] = ...,
) -> Tensor: ...  # fmt: skip


@overload
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = ...,
    softmax_scale: float | None = ..., causal: bool = ..., window_size: tuple[int, int] = ..., softcap: float = ...,
    alibi_slopes: Tensor | None = ..., deterministic: bool = ..., *, return_attn_probs: Literal[True],
) -> Flashed: ...  # fmt: skip


@named
def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | Flashed:
    """Attention with flash-attention's arguments: q `(B, Tq, H, D)`, k and v `(B, Tk, Hk, D)` → `(B, Tq, H, D)`.

    Query head h uses key head `h // (H/Hk)`. `causal` and `window_size`, (left, right) with −1 for no limit, are
    aligned at the last key: query i stands at position `Tk − Tq + i`. A `softcap` above 0 bends scores into ±softcap.
    `alibi_slopes`, float32, `(H,)` or `(B, H)`, lower the score of query i and key j by `slope · |Tk − Tq + i − j|`.
    Dropout is drawn from PyTorch's generator. `deterministic` changes nothing: in the kernels each call in a process
    gives the same bits, and with `MINITRANSFORMER_TUNE=0` each process does. On a T4 PyTorch's attention runs instead,
    with PyTorch's own promises.
    With `return_attn_probs` it returns `(out, softmax_lse, None)`: the natural logarithm of the sum of each query's
    exponentiated scores before dropout, float32 `(B, H, Tq)`, +inf for a query that sees nothing. It is a constant to
    autograd, without a gradient. The weights, flash-attention's third result, are never made; but if no kernel runs,
    all scores are computed for these numbers.
    Raises `ValueError` for shapes that do not fit, and for slopes that require a gradient.
    """
    _check_shapes(4, q, k, v)
    query, key, value = (x.transpose(1, 2) for x in (q, k, v))
    how = dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    out, lse = _flash(query, key, value, None, *how)
    out = out.transpose(1, 2).contiguous()
    return out if lse is None else (out, lse, None)


@overload
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = ...,
    softmax_scale: float | None = ..., causal: bool = ..., window_size: tuple[int, int] = ..., softcap: float = ...,
    alibi_slopes: Tensor | None = ..., deterministic: bool = ..., return_attn_probs: Literal[False] = ...,
    block_table: None = ...,
) -> Tensor: ...  # fmt: skip


@overload
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = ...,
    softmax_scale: float | None = ..., causal: bool = ..., window_size: tuple[int, int] = ..., softcap: float = ...,
    alibi_slopes: Tensor | None = ..., deterministic: bool = ..., *, return_attn_probs: Literal[True],
    block_table: None = ...,
) -> Flashed: ...  # fmt: skip


@named
def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: None = None,
) -> Tensor | Flashed:
    """`flash_attn_func` of B packed sentences: q `(total_q, H, D)`, k and v `(total_k, Hk, D)` → `(total_q, H, D)`.

    Sentence b has the queries `cu_seqlens_q[b]` to `cu_seqlens_q[b + 1] − 1`, and the keys likewise: both are int32
    `(B + 1,)` and rise from 0 to the number of all rows. No sentence has more than `max_seqlen_q` queries or
    `max_seqlen_k` keys. `causal`, `window_size` and slopes are aligned at the last key of each sentence, and dropout's
    mask is that of the sentences as a batch.
    The kernels pad nothing and never wait for the GPU. So there the numbers in `cu_seqlens` are not checked, and output
    rows that belong to no sentence are not initialised. Where PyTorch's arithmetic runs (float64, on a T4 except under
    `torch.compile`, or without a GPU), the numbers are read and one sentence is computed after the other.
    The other arguments are those of `flash_attn_func`; `softmax_lse` is `(H, total_q)`.
    Raises `TypeError` or `ValueError` for arguments that do not fit, and for a `block_table`.
    """
    _check_shapes(3, q, k, v)
    if block_table is not None:
        raise ValueError("block_table is given, expected None: these kernels read no keys and values in pages")
    longest = _integer(max_seqlen_q), _integer(max_seqlen_k)
    for name, length, given in zip(
        ("max_seqlen_q", "max_seqlen_k"), longest, (max_seqlen_q, max_seqlen_k), strict=True
    ):
        if length is None or isinstance(given, bool):
            raise TypeError(f"{name} is {given!r}, expected an int")
    for name, starts in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if check_kind(name, starts, "ids").ndim != 1:
            raise ValueError(f"{name} has shape {tuple(starts.shape)}, expected (B + 1,) for B sentences")
    query, key, value = (x.transpose(0, 1)[None] for x in (q, k, v))
    packed = Packed(cu_seqlens_q, cu_seqlens_k, *longest)  # pyright: ignore[reportArgumentType]
    how = dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    out, lse = _flash(query, key, value, packed, *how)
    out = out[0].transpose(0, 1).contiguous()
    return out if lse is None else (out, lse, None)


def _check_shapes(axes: int, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise `ValueError` unless the shapes `(B, T, H, D)`, or `(total, H, D)`, fit each other."""
    check_axes(axes, axes, q=q, k=k, v=v)
    heads, width = q.shape[-2:]
    said = f"k has shape {tuple(k.shape)}, expected"
    if axes == 4 and k.shape[0] != q.shape[0]:
        raise ValueError(f"{said} q's {q.shape[0]} sentences")
    if k.shape[-1] != width:
        raise ValueError(f"{said} q's width of {width}")
    if k.shape[-2] == 0 or heads % k.shape[-2]:
        raise ValueError(f"{said} a number of heads that divides q's {heads}")
    if v.shape[:-1] != k.shape[:-1]:
        raise ValueError(f"v has shape {tuple(v.shape)}, expected k's ({', '.join(map(str, k.shape[:-1]))}, …)")


def _integer(number: Any) -> int | torch.SymInt | None:
    """Return an integer of any type as PyTorch takes it, and `None` for anything else."""
    if isinstance(number, int | torch.SymInt):
        return number
    try:
        return operator.index(number)
    except TypeError:
        return None


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: Packed | None,
    dropout_p: float,
    scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    slopes: Tensor | None,
    with_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute both of flash-attention's functions, in PyTorch's layout."""
    numbers = [_integer(side) for side in window_size] if isinstance(window_size, tuple | list) else []
    if len(numbers) != 2 or any(number is None for number in numbers):
        raise TypeError(f"window_size is {window_size!r}, expected two integers (left, right)")
    sides = tuple(None if side < 0 else side for side in numbers)  # pyright: ignore[reportOptionalOperand]
    batch = query.shape[0] if packed is None else packed.batch
    if slopes is not None and check_slopes("alibi_slopes", slopes, "q", query, batch).requires_grad:
        raise ValueError("alibi_slopes requires a gradient, and attention has none for it: pass it with .detach()")
    cap = softcap if softcap else None
    return attend(query, key, value, None, slopes, None, dropout_p, causal, sides, scale, cap, packed, with_lse)
