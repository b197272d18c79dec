"""Attention in PyTorch's layout, `(B, H, T, D)`, and the choice of its backend."""

import math
import sys
import warnings
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from minitransformer.ops import Pair
from minitransformer.ops.pattern import pattern_of

from .. import eager
from ..checks import check_device
from ..eager.attention import attention_mask
from ..eager.packed import Packed, packed_attention, packed_lse
from .operators import (
    Kept,
    draw_key,
    dropout_of,
    heads_merge,
    in_autocast_dtype,
    is_seen,
    named,
    operator,
    runs_in_torch,
    runs_in_triton,
    without_autocast,
)


def _call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    slopes: Tensor | None,
    key_mask: Tensor | None,
    dropout_key: Tensor | None,
    causal: bool,
    left: int | None,
    right: int | None,
    scale: float,
    softcap: float | None,
    dropout_p: float,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    longest_q: int | None,
    longest_k: int | None,
) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments and options of the pair's forward."""
    options: dict[str, Any] = {"causal": causal, "key_mask": key_mask, "scale": scale, "softcap": softcap}
    if left is not None or right is not None:
        options["window"] = (left, right)
    if slopes is not None:
        options["slopes"] = slopes
    if dropout_key is not None:
        options["dropout"] = dropout_of(dropout_key, dropout_p)
    if starts_q is not None:
        options["packed"] = Packed(starts_q, starts_k, longest_q, longest_k)  # pyright: ignore[reportArgumentType]
    return (query, key, value, bias), options


def _kept() -> Kept:
    """Keep the output, and the log-sum-exp of each query's scores."""
    from ..attention.host import attention_cache

    def lse_like(query: Tensor, *rest: object) -> list[Tensor]:
        shape = query.shape[:3] if rest[-1] is None else query.shape[1:3]
        return [query.new_empty(shape, dtype=torch.float32)]

    def cache(kept: list[Tensor], *inputs: Any) -> tuple:
        (query, key, value, bias), options = _call(*inputs)
        shape = key.shape[0], key.shape[2]
        pattern = pattern_of(None, options["causal"], options["key_mask"], options.get("window"), shape)
        rest = {name: options.get(name) for name in ("slopes", "scale", "softcap", "dropout", "packed")}
        return attention_cache(*kept, query, key, value, bias, pattern=pattern, **rest)

    return Kept(lambda cache: [cache[5]], lse_like, cache, and_output=True)


def _taking_packed(own: Pair) -> Pair:
    """Return the pair for packed sentences: the kernels' own, or for PyTorch's arithmetic one sentence at a time."""
    return packed_attention if own.forward is eager.attention_forward else own


_attention = operator(
    "attention",
    "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? slopes, Tensor? key_mask, Tensor? dropout_key, "
    "bool causal, SymInt? left, SymInt? right, float scale, float? softcap, float dropout_p, "
    "Tensor? starts_q, Tensor? starts_k, SymInt? longest_q, SymInt? longest_k",
    ["query", "key", "value", "bias"],
    lambda query, key, value, *_: query.new_empty((*query.shape[:3], value.shape[3])),
    pair_of=_taking_packed, kept={"triton": _kept}, call=_call, layout=heads_merge,
)  # fmt: skip


@torch.library.custom_op(
    "minitransformer::attention_lse", mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor? slopes, bool causal, SymInt? left, SymInt? right, float scale, "
    "float? softcap, Tensor? starts_q, Tensor? starts_k, SymInt? longest_q, SymInt? longest_k) -> Tensor",
)  # fmt: skip
def _lse(query: Tensor, key: Tensor, slopes: Tensor | None, *rest: Any) -> Tensor:
    """Compute each query's log-sum-exp if no kernel has; the arguments are those of the operator of attention."""
    causal, left, right, scale, softcap, *sentences = rest
    options: Any = {"causal": causal, "window": (left, right), "scale": scale, "softcap": softcap}
    packed = None if sentences[0] is None else Packed(*sentences)
    with without_autocast(query):
        return packed_lse(query, key, packed=packed, slopes=slopes, **options)


@_lse.register_fake
def _(query: Tensor, key: Tensor, *rest: Any) -> Tensor:
    return query.new_empty(query.shape[:3] if rest[-1] is None else query.shape[1:3], dtype=torch.float32)


_linear_attention = operator(
    "linear_attention", "Tensor query, Tensor key, Tensor value, Tensor? key_mask, bool causal, float eps",
    ["query", "key", "value"], lambda query, key, value, *_: query.new_empty((*query.shape[:3], value.shape[3])),
    call=lambda query, key, value, key_mask, causal, eps: (
        (query, key, value), {"key_mask": key_mask, "causal": causal, "eps": eps}
    ),
    layout=heads_merge,
)  # fmt: skip


@named
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Scaled dot-product attention, `softmax(scale · query keyᵀ + mask) value`, as `F.scaled_dot_product_attention`.

    query `(B, H, Tq, D)`, key `(B, Hk, Tk, D)`, value `(B, Hk, Tk, Dv)` → `(B, H, Tq, Dv)`; all may come without the
    heads, or without the batch too, or with more axes before the heads. Batches of one are repeated, and so is a single
    head of keys. `is_causal` is aligned at the first key, as in PyTorch: query i sees the keys 0 … i. A boolean
    `attn_mask` is `True` where a query may attend; a floating one, float32 or of the query's dtype, is added in the
    query's dtype. It broadcasts to `(B, H, Tq, Tk)`, and one that only hides keys, `(B, 1, 1, Tk)`, costs least.
    Dropout is drawn from PyTorch's generator.
    Raises `ValueError` for shapes that do not fit, for heads that differ without `enable_gqa`, and for a mask beside
    `is_causal`.
    """
    if not query.ndim == key.ndim == value.ndim == 4 or not query.shape[0] == key.shape[0] == value.shape[0]:
        query, key, value, attn_mask, shape = _with_four_axes(query, key, value, attn_mask)
        options: Any = {"scale": scale, "enable_gqa": enable_gqa}
        out = scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
        return out.reshape(*shape, *out.shape[-2:])
    if is_causal and attn_mask is not None:
        raise ValueError("attn_mask is given beside is_causal, expected one of them")
    if key.shape[1] not in (1, query.shape[1]) and not enable_gqa:
        raise ValueError(f"key has {key.shape[1]} heads and query {query.shape[1]}: to group them, set enable_gqa")
    Tq, Tk = query.shape[2], key.shape[2]
    right = None
    if is_causal and Tq != Tk:  # the pair's `causal` is aligned at the last key
        key, value = key[:, :, :Tq], value[:, :, :Tq]
        if Tq > Tk:  # a branch, because with symbolic lengths a comparison's value is no bool
            is_causal, right = False, Tq - Tk
    mask, key_mask = _masks(attn_mask, query, key)
    return attend(query, key, value, mask, None, key_mask, dropout_p, is_causal, (None, right), scale, None)[0]


@named
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None = None,
    is_causal: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """Linear attention, `φ(q) Σ_j φ(k_j)ᵀ v_j / (φ(q) · Σ_j φ(k_j) + eps)`, `φ(x) = elu(x) + 1`, in time O(T).

    query `(B, H, T, D)`, key `(B, Hk, T, D)`, value `(B, Hk, T, Dv)` → `(B, H, T, Dv)`; keys that are `False` in
    `key_mask` `(B, T)` are padding. The backward runs the forward again and keeps only the inputs.
    Source: Katharopoulos et al. 2020.
    """
    query, key, value = in_autocast_dtype(query, key, value)
    return _linear_attention(query, key, value, key_mask, is_causal, eps)


def padded_attention(
    query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None, dropout_p: float, causal: bool, scale: float
) -> Tensor:
    """Attention with padding, `False` in `key_mask` `(B, Tk)`, and with `causal` aligned at the last key."""
    return attend(query, key, value, None, None, key_mask, dropout_p, causal, (None, None), scale, None)[0]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    slopes: Tensor | None,
    key_mask: Tensor | None,
    dropout_p: float,
    causal: bool,
    window: tuple[int | None, ...],
    scale: float | None,
    softcap: float | None,
    packed: Packed | None = None,
    with_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention by the kernels or PyTorch and, with `with_lse` and no mask, each query's log-sum-exp.

    A floating `mask` is added to the scores; a boolean one is `True` where a query may attend.
    """
    query, key, value, mask = in_autocast_dtype(query, key, value, mask)
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else float(scale)
    drawn = draw_key(query, dropout_p)
    sentences = (None,) * 4 if packed is None else tuple(packed)
    out = None
    if slopes is None and softcap is None and _fit(query, key, value, key_mask):
        given = mask, key_mask, causal, window, scale
        if runs_in_torch(query):
            # With dropout PyTorch would draw other masks than ours, and a tracer can't know where sentences end.
            if drawn is None and (packed is None or not is_seen("attention", query)):
                out = _torchs(query, key, value, *given, packed=packed)
        elif (
            runs_in_triton("attention", query)
            and _lacks_tensor_cores(query.device, INSTEAD)
            and (packed is None or not is_seen("attention", query))
        ):
            group = query.shape[1] // key.shape[1]  # PyTorch's kernel for such GPUs needs as many heads of each
            repeated = (x.repeat_interleave(group, 1) if group > 1 else x for x in (key, value))
            out = _torchs(query, *repeated, *given, dropout_p, packed)
    elif runs_in_triton("attention", query):
        _lacks_tensor_cores(query.device, ALTHOUGH)
    if out is None:
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -math.inf)
        tensors, how = (query, key, value, mask, slopes, key_mask, drawn), (causal, *window, scale, softcap, dropout_p)
        if with_lse and runs_in_triton("attention", query):
            out, lse = _attention(*tensors, *how, *sentences, with_kept=True)
            return out, lse * math.log(2)  # the kernels' scores are in base 2
        out = _attention(*tensors, *how, *sentences)
    if not with_lse:
        return out, None
    return out, _lse(query.detach(), key.detach(), slopes, causal, *window, scale, softcap, *sentences)


INSTEAD = (
    "attention runs in PyTorch's scaled_dot_product_attention, which is several times faster there "
    "(but packed sentences under torch.compile)"
)
ALTHOUGH = "attention with a softcap or ALiBi's slopes, which PyTorch's does not have, is several times slower there"


def _lacks_tensor_cores(device: torch.device, so: str) -> bool:
    """Return True if attention's kernels are slow because Triton uses no tensor cores on this GPU; then warn once."""
    from ..tuning import capability, lacks_tensor_cores

    gpu = capability(device)
    slow = lacks_tensor_cores(gpu)
    if slow:
        _warn_once(f"Triton uses no tensor cores on this GPU (compute capability {int(gpu.arch) / 10}): {so}")
    return slow


# As `torch.compiler.assume_constant_result` does, but without importing torch._dynamo, which takes a second.
vars(_lacks_tensor_cores)["_dynamo_marked_constant"] = True


@cache
def _warn_once(message: str) -> None:
    """Warn at the caller's line: the first on the stack that is neither this package's nor PyTorch's."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("kernels.", "torch.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _fit(query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None) -> bool:
    """Return True if PyTorch accepts these inputs; all others go to the pair, whose errors refuse them."""
    (B, H, _, D), (Bk, Hk, Tk, Dk), of_values = query.shape, key.shape, value.shape
    if key_mask is not None and (key_mask.dtype != torch.bool or tuple(key_mask.shape) != (B, Tk)):
        return False
    same = query.dtype == key.dtype == value.dtype and query.device == key.device == value.device
    return same and (B, D, Hk, Tk) == (Bk, Dk, *of_values[1:3]) and of_values[0] == B and Hk > 0 and H % Hk == 0


def _torchs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    key_mask: Tensor | None,
    causal: bool,
    window: tuple[int | None, ...],
    scale: float,
    dropout_p: float = 0.0,
    packed: Packed | None = None,
) -> Tensor:
    """Call PyTorch's own attention; a query with nothing to attend to gets zeros, whichever of its kernels runs."""
    if packed is not None:
        how = None, None, causal, window, scale, dropout_p
        nothing = query.new_empty((*query.shape[:2], 0, value.shape[3]))
        sentences = packed.sentences(None, query, key, value)
        return torch.cat([nothing, *(_torchs(*parts, *how) for _, parts in sentences)], 2)
    Tq, Tk = query.shape[2], key.shape[2]
    options: Any = {"dropout_p": dropout_p, "scale": scale}
    if query.shape[1] != key.shape[1]:
        options["enable_gqa"] = True
    if window == (None, None) and mask is None and key_mask is None and (Tq == Tk or not causal):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal, **options)
    pattern = pattern_of(None, causal, key_mask, None if window == (None, None) else window)  # pyright: ignore
    seen = attention_mask(Tq, Tk, query.device, pattern=pattern)
    if mask is None:
        mask = seen
    elif seen is not None:
        mask = mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, -math.inf)
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, **options)
    alive = (mask if mask.dtype == torch.bool else mask != -math.inf).any(-1, keepdim=True)
    mask = mask | ~alive if mask.dtype == torch.bool else mask.masked_fill(~alive, 0)
    return F.scaled_dot_product_attention(query, key, value, mask, **options).masked_fill(~alive, 0)


def _with_four_axes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, tuple[int, ...]]:
    """Return attention's inputs with one axis for batch and one for heads, and the output's shape before its rows."""
    tensors = {"query": query, "key": key, "value": value}
    check_axes(2, **tensors)
    headless = max(x.ndim for x in tensors.values()) < 4
    if headless:
        query, key, value = (x.unsqueeze(-3) for x in (query, key, value))
        mask = mask.unsqueeze(-3) if mask is not None and mask.ndim > 2 else mask
    check_axes(3, query=query, key=key, value=value)
    try:
        lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    except RuntimeError:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())
        raise ValueError(f"the shapes are {shapes}, expected batches that are equal or 1") from None
    if mask is not None and mask.ndim > 3 and len(lead) != 1:
        whole = (*lead, query.shape[-3], query.shape[-2], key.shape[-2])
        _check_broadcasts(mask, whole)
        mask = mask.expand(*lead, *mask.shape[-3:]).flatten(0, -4)
    query, key, value = (
        x.expand(*lead, *x.shape[-3:]).reshape(math.prod(lead), *x.shape[-3:]) for x in (query, key, value)
    )
    return query, key, value, mask, tuple(lead) if headless else (*lead, query.shape[1])


def _check_broadcasts(mask: Tensor, whole: tuple[int, ...]) -> None:
    fits = zip(mask.shape[::-1], whole[::-1], strict=False)
    if mask.ndim > len(whole) or any(size not in (1, full) for size, full in fits):
        raise ValueError(f"attn_mask has shape {tuple(mask.shape)}, expected one that broadcasts to {whole}")


def _masks(mask: Tensor | None, query: Tensor, key: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return a mask as `attend` takes it, and the mask of keys that are no padding; one of them is `None`."""
    if mask is None:
        return None, None
    check_device("attn_mask", mask, "query", query)
    if mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise TypeError(f"attn_mask is {mask.dtype}, expected torch.bool, torch.float32 or query's {query.dtype}")
    whole = (*query.shape[:3], key.shape[2])
    _check_broadcasts(mask, whole)
    if mask.dtype != torch.bool:
        return mask.to(query.dtype), None
    if mask.ndim == 4 and mask.shape[1] == mask.shape[2] == 1:
        return None, mask[:, 0, 0].expand(whole[0], whole[3])
    return mask, None


def check_axes(least: int, most: int | None = None, **tensors: Tensor) -> None:
    """Raise `ValueError` unless each tensor, by its name, has from `least` to `most` axes."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}, expected a torch.Tensor")
        if not least <= tensor.ndim <= (most or tensor.ndim):
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, expected {least} axes" + ("" if most else " or more")
            )
