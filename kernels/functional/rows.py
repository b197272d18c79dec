"""Functions of rows or of single elements: softmax, norms, activations, dropout, embeddings, rotary positions."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .operators import (
    RECEIVED,
    Kept,
    draw_key,
    dropout_of,
    heads_merge,
    in_float32,
    is_seen,
    named,
    operator,
    promoted,
    runs_in_torch,
)


def _like_first(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


def _norm_kept(centred: bool) -> Kept:
    """Keep 1/σ of each row, and LayerNorm's mean before it."""
    from ..launch import rows_of
    from ..norms.whole import NO_DROPOUT, Normalised

    def tensors(cache: Normalised) -> list[Tensor]:
        return [cache.rstd] if cache.mean is None else [cache.mean, cache.rstd]

    def like(x: Tensor, *_: object) -> list[Tensor]:
        count = math.prod(x.shape[:-1])  # Size.numel() would compile again for every length
        return [x.new_empty(count, dtype=torch.float32) for _ in range(1 + centred)]

    def cache(kept: list[Tensor], x: Tensor, gamma: Tensor, *rest: Any) -> Normalised:
        *mean, rstd = kept
        beta = rest[0] if centred else None
        return Normalised(
            rows_of(x), None, gamma.contiguous(), beta is not None, *(mean or [None]), rstd, NO_DROPOUT, x.shape
        )

    return Kept(tensors, like, cache)


def _add_norm_kept(name: str, centred: bool) -> Kept:
    """Keep the numbers of `_norm_kept`, or nothing for rows too wide for one block, whose forward runs again."""
    import kernels

    from ..launch import rows_of
    from ..norms.whole import Normalised, dropping_of, fits

    norm = _norm_kept(centred)

    def tensors(cache: tuple) -> list[Tensor]:
        return norm.tensors(cache[0]) if fits(cache[0].rows.shape[1]) else []

    def like(x: Tensor, *_: object) -> list[Tensor]:
        return norm.like(x) if fits(x.shape[-1]) else []

    def cache(kept: list[Tensor], *inputs: Any) -> tuple:
        arguments, options = _add_norm_call(*inputs)
        if not kept:
            return getattr(kernels, f"{name}_forward")(*arguments, **options)[1]
        x, sublayer_out, gamma, *_ = arguments
        dropping = dropping_of(options["dropout"], x)
        mean, rstd = kept if centred else (None, *kept)
        has_beta = centred and arguments[3] is not None
        rows = rows_of(x), rows_of(sublayer_out)
        return Normalised(*rows, gamma.contiguous(), has_beta, mean, rstd, dropping, x.shape), None

    return Kept(tensors, like, cache)


def _add_norm_call(*inputs: Any) -> tuple[tuple, dict[str, Any]]:
    *arguments, eps, dropout_key, dropout_p = inputs
    return tuple(arguments), {"eps": eps, "dropout": dropout_of(dropout_key, dropout_p)}


def _dropout_kept() -> Kept:
    """Keep nothing: the mask is computed again, and of x only the shape and the type are needed."""

    def cache(kept: list[Tensor], dy: Tensor, dropout_key: Tensor, dropout_p: float) -> tuple:
        return dropout_of(dropout_key, dropout_p), dy.shape, dy.dtype, dy.device

    return Kept(lambda cache: [], lambda *inputs: [], cache)


def _embedding_kept() -> Kept:
    """Keep only the inputs."""

    def cache(kept: list[Tensor], table: Tensor, ids: Tensor) -> tuple:
        return ids.contiguous(), table.shape, table.dtype, 1.0

    return Kept(lambda cache: [], lambda *inputs: [], cache)


def _gelu_kept() -> Kept:
    """Keep only the input, as silu does; without a `Kept` the backward would launch the forward's kernel again."""

    def cache(kept: list[Tensor], x: Tensor, approximate: str) -> tuple:
        return "gelu_tanh" if approximate == "tanh" else "gelu", x

    return Kept(lambda cache: [], lambda *inputs: [], cache)


def _silu_kept() -> Kept:
    return Kept(lambda cache: [], lambda x: [], lambda kept, x: x)


def _softmax_kept() -> Kept:
    return Kept(lambda cache: [], lambda x: [], lambda kept, y: y)


def _rope_kept() -> Kept:
    """Keep nothing: of x only the shape and the type are needed."""

    def cache(kept: list[Tensor], dy: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> tuple:
        return cos, sin, interleaved, dy.shape, dy.dtype

    return Kept(lambda cache: [], lambda *inputs: [], cache)


def _gated_kept() -> Kept:
    """Keep only the inputs; the gradients are not halves of one array."""
    return Kept(lambda cache: [], lambda *_: [], lambda kept, gate, up, activation: (activation, gate, up, False))


_softmax = operator(
    "softmax", "Tensor x", ["x"], _like_first,
    kept={"triton": _softmax_kept, "eager": _softmax_kept}, saved=lambda y, x: (y,),
)  # fmt: skip
_layernorm = operator(
    "layernorm", "Tensor x, Tensor gamma, Tensor? beta, float eps", ["x", "gamma", "beta"], _like_first,
    kept={"triton": lambda: _norm_kept(centred=True)},
)  # fmt: skip
_rmsnorm = operator(
    "rmsnorm", "Tensor x, Tensor gamma, float eps", ["x", "gamma"], _like_first,
    kept={"triton": lambda: _norm_kept(centred=False)},
)  # fmt: skip
_add_layernorm = operator(
    "add_layernorm",
    "Tensor x, Tensor sublayer_out, Tensor gamma, Tensor? beta, float eps, Tensor? dropout_key, float dropout_p",
    ["x", "sublayer_out", "gamma", "beta"], _like_first, call=_add_norm_call,
    kept={"triton": lambda: _add_norm_kept("add_layernorm", centred=True)},
)  # fmt: skip
_add_rmsnorm = operator(
    "add_rmsnorm", "Tensor x, Tensor sublayer_out, Tensor gamma, float eps, Tensor? dropout_key, float dropout_p",
    ["x", "sublayer_out", "gamma"], _like_first, call=_add_norm_call,
    kept={"triton": lambda: _add_norm_kept("add_rmsnorm", centred=False)},
)  # fmt: skip
_dropout = operator(
    "dropout", "Tensor x, Tensor dropout_key, float dropout_p", ["x"], _like_first,
    call=lambda x, key, rate: ((x, dropout_of(key, rate)), {}),
    kept={"triton": _dropout_kept}, saved=lambda y, x, *drawn: (RECEIVED, *drawn),
)  # fmt: skip
_embedding = operator(
    "embedding", "Tensor table, Tensor ids", ["table"],
    lambda table, ids: table.new_empty((*ids.shape, table.shape[1])),
    call=lambda table, ids: ((ids, table), {}), kept={"triton": _embedding_kept},
)  # fmt: skip
_gelu = operator("gelu", "Tensor x, str approximate", ["x"], _like_first, kept={"triton": _gelu_kept})
_silu = operator("silu", "Tensor x", ["x"], _like_first, kept={"triton": _silu_kept})
_gated = operator(
    "gated", "Tensor gate, Tensor up, str activation", ["gate", "up"], _like_first, kept={"triton": _gated_kept}
)
_rope = operator(
    "rope", "Tensor x, Tensor cos, Tensor sin, bool interleaved", ["x"], _like_first,
    kept={"triton": _rope_kept, "eager": _rope_kept}, layout=heads_merge,
    saved=lambda y, x, *angles: (RECEIVED, *angles),
)  # fmt: skip


@named
def softmax(input: Tensor, dim: int = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax, `exp(x_i) / Σ_j exp(x_j)` along `dim`, as `F.softmax`; a row of all −inf gives zeros (in PyTorch NaN).

    Raises `ValueError` for a dim of `None`. `_stacklevel` is not used: PyTorch's function has it for a warning.
    """
    if dim is None:
        raise ValueError("dim is None, expected the number of an axis: PyTorch's own choice of one is deprecated")
    (x,) = in_float32(input if dtype is None else input.to(dtype))
    if runs_in_torch(x) and not is_seen("softmax", x):
        y = F.softmax(x, dim)
        if not y.detach().sum().isnan():  # a row of all −inf gives zeros here
            return y
    return _softmax(x.movedim(dim, -1)).movedim(-1, dim)


@named
def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`weight · (x − mean) / √(var + eps) + bias` over the last axes, as `F.layer_norm`.

    weight and bias have the input's dtype or are float32. Raises `ValueError` unless the input ends in
    `normalized_shape`, and weight and bias have it.
    """
    x, weight, bias = in_float32(input, weight, bias)
    shape = _norm_shape(x, normalized_shape, weight, bias)
    if _is_plain_norm(x, weight, bias):
        return F.layer_norm(x, shape, weight, bias, eps)
    rows, gamma = _flat(x, shape, weight)
    y = _layernorm(rows, gamma, None if bias is None else bias.flatten(), eps)
    return y if len(shape) == 1 else y.reshape(x.shape)


@named
def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """`weight · x / √(mean(x²) + eps)` over the last axes, as `F.rms_norm`.

    An eps of `None` is that of float32, or of float64 for such an input. weight and errors are as in `layer_norm`.
    """
    x, weight = in_float32(input, weight)
    shape = _norm_shape(x, normalized_shape, weight)
    if eps is None:
        eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps
    if _is_plain_norm(x, weight):
        return F.rms_norm(x, shape, weight, eps)
    rows, gamma = _flat(x, shape, weight)
    y = _rmsnorm(rows, gamma, eps)
    return y if len(shape) == 1 else y.reshape(x.shape)


@named
def add_layer_norm(
    input: Tensor,
    sublayer_out: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    dropout_p: float = 0.0,
) -> Tensor:
    """Add & Norm in one kernel: `layer_norm(input + dropout(sublayer_out))` over the last axis.

    input and sublayer_out `(..., C)`, weight and bias `(C,)`; the output has the wider dtype of input and
    sublayer_out. Dropout is drawn from PyTorch's generator; pass 0 when the model does not train. Raises `ValueError`
    if input and sublayer_out differ in shape.
    Source: Vaswani 2017, §3.1 and §5.4.
    """
    x, sublayer_out, weight, bias = in_float32(input, sublayer_out, weight, bias)
    rows, drawn = _summands(x, sublayer_out), draw_key(x, dropout_p)
    if drawn is None and weight.ndim == 1 and _is_plain_norm(rows[0], weight, bias):
        return F.layer_norm(rows[0] + rows[1], weight.shape, weight, bias, eps).reshape(x.shape)
    return _add_layernorm(*rows, weight, bias, eps, drawn, dropout_p).reshape(x.shape)


@named
def add_rms_norm(
    input: Tensor, sublayer_out: Tensor, weight: Tensor, eps: float = 1e-6, dropout_p: float = 0.0
) -> Tensor:
    """Add & Norm with `rms_norm`; the arguments are as in `add_layer_norm`."""
    x, sublayer_out, weight = in_float32(input, sublayer_out, weight)
    rows, drawn = _summands(x, sublayer_out), draw_key(x, dropout_p)
    if drawn is None and weight.ndim == 1 and _is_plain_norm(rows[0], weight):
        return F.rms_norm(rows[0] + rows[1], weight.shape, weight, eps).reshape(x.shape)
    return _add_rmsnorm(*rows, weight, eps, drawn, dropout_p).reshape(x.shape)


@named
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set elements to zero with probability p and divide the others by 1 − p, as `F.dropout`; p < 1 in 1/65536ths.

    Only two numbers are drawn from PyTorch's generator and kept: forward and backward compute the mask from them.
    Raises `ValueError` for `inplace=True`.
    """
    _check_inplace(inplace)
    key = draw_key(input, p if training else 0.0)
    return input if key is None else _dropout(_rows(torch.atleast_1d(input)), key, p).reshape(input.shape)


@named
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up the rows of weight `(V, C)` with the ids of input `(...)` → `(..., C)`, as `F.embedding`.

    Gradients of equal ids are summed in float32 in an order that never changes; the row `padding_idx` has none. Raises
    `ValueError` for a `padding_idx` outside the table, a `max_norm`, `scale_grad_by_freq` and `sparse`.
    """
    if max_norm is not None:
        raise ValueError("max_norm is given, expected None: the table is only read, so scale its rows before")
    for name, value in {"scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}.items():
        if value:
            raise ValueError(f"{name} is {value}, expected False: the gradient is the plain sum, in a whole table")
    if padding_idx is not None and not -len(weight) <= padding_idx < len(weight):
        raise ValueError(f"padding_idx is {padding_idx}, expected −{len(weight)} to {len(weight) - 1}")
    if runs_in_torch(weight) and weight.dtype.itemsize >= 4 and input.dtype == torch.int64 and weight.ndim == 2:
        try:
            return F.embedding(input, weight, padding_idx)
        except IndexError:  # the pair's own error names the id
            pass
    out = _embedding(weight, input)
    if padding_idx is None:
        return out
    return torch.where((input == padding_idx % len(weight))[..., None], out.detach(), out)


@named
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """`x · Φ(x)`, exact or with `approximate="tanh"`, as `F.gelu`."""
    if runs_in_torch(input) and approximate in ("none", "tanh"):
        return F.gelu(input, approximate=approximate)
    return _gelu(input, approximate)


@named
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`x · σ(x)`, as `F.silu`. Raises `ValueError` for `inplace=True`."""
    _check_inplace(inplace)
    return F.silu(input) if runs_in_torch(input) else _silu(input)


@named
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) · up`, of two arrays of one shape, in the wider dtype of both. Source: Shazeer 2020."""
    gate, up = promoted(gate, up)
    return F.silu(gate) * up if _is_plain_product(gate, up) else _gated(gate, up, "silu")


@named
def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """`gelu(gate) · up`, of two arrays of one shape, in the wider dtype of both. Source: Shazeer 2020."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate is {approximate!r}, expected 'none' or 'tanh'")
    gate, up = promoted(gate, up)
    if _is_plain_product(gate, up):
        return F.gelu(gate, approximate=approximate) * up
    return _gated(gate, up, "gelu" if approximate == "none" else "gelu_tanh")


@named
def rope(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Turn pairs of the first R channels of x `(B, H, T, D)` by the angles of cos and sin `(T, R/2)`.

    A pair is (i, i + R/2), as in Llama, or with `interleaved` (2i, 2i + 1). The output is `(B, T, H, D)` in memory, as
    attention's, and x, which may be a part of a projection, is not kept for the backward. Angles have no gradient:
    raises `ValueError` if cos or sin requires one. Source: Su et al. 2021.
    """
    for name, table in (("cos", cos), ("sin", sin)):
        if table.requires_grad:
            raise ValueError(f"{name} requires a gradient, and rope has none for angles: pass it with .detach()")
    return _rope(x, cos, sin, interleaved)


def _check_inplace(inplace: bool) -> None:
    if inplace:
        raise ValueError("inplace is True, expected False: the backward or a caller may need the input as it was")


def _rows(x: Tensor) -> Tensor:
    """Return x `(..., C)` as `(N, C)`."""
    return x.reshape(-1, x.shape[-1]) if x.numel() else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _summands(x: Tensor, sublayer_out: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two summands of Add & Norm as `(N, C)` in one dtype."""
    if x.shape != sublayer_out.shape:
        raise ValueError(
            f"input has shape {tuple(x.shape)} and sublayer_out {tuple(sublayer_out.shape)}, expected one shape"
        )
    x, sublayer_out = promoted(x, sublayer_out)
    return _rows(x), _rows(sublayer_out)


def _norm_shape(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None, bias: Tensor | None = None
) -> tuple[int, ...]:
    """Return the axes to normalise over. Raises `ValueError` unless input and parameters have them."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        raise ValueError(f"input has shape {tuple(x.shape)}, expected its last axes to be normalized_shape {shape}")
    if 0 in shape:
        raise ValueError(f"normalized_shape is {shape}, expected axes that are not empty")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and tuple(parameter.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(parameter.shape)}, expected normalized_shape {shape}")
    return shape


def _is_plain_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> bool:
    """Return True if PyTorch's own norm may run: its parameters must have x's dtype, or it refuses or widens them."""
    for parameter in (weight, bias):
        if parameter is not None and (parameter.dtype != x.dtype or parameter.shape != x.shape[-parameter.ndim :]):
            return False
    return runs_in_torch(x)


def _is_plain_product(gate: Tensor, up: Tensor) -> bool:
    """Return True if PyTorch's activation and product are as exact as ours: in half precision they round twice."""
    return gate.dtype.itemsize >= 4 and gate.shape == up.shape and runs_in_torch(gate)


def _flat(x: Tensor, shape: tuple[int, ...], weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the input as rows `(..., C)`, and a weight `(C,)`, ones if none is given."""
    gamma = x.new_ones(shape) if weight is None else weight
    return x.flatten(-len(shape)), gamma.flatten()
