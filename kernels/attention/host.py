"""The host's side of attention: checks, layouts, and launches of one forward and up to three backward kernels."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from minitransformer.ops import Dropout, Pattern
from minitransformer.ops.pattern import Window, pattern_of

from ..checks import check_gradient, check_slopes, kernel
from ..eager.arrays import side_by_side
from ..eager.packed import Packed
from ..hashing import is_active, key_arguments
from ..launch import on
from ..rows import programs_at_once
from ..tuning import Tile, Tuner, capability
from . import tiles
from .backward import attention_dkey_dvalue_kernel, attention_dquery_kernel
from .blocks import DROPOUT, Heads, Padding, Sparse, Starts, padding_ends_kernel
from .dbias import attention_dbias_kernel
from .forward import attention_forward_kernel, attention_merge_kernel
from .scores import Bias, Slopes
from .visits import seen_by_all, visits_of

TUNED_FROM = 2**33
"""The least multiplications, Tq · Tk · (D + Dv) in each head, for which tiles are tuned: about 50 µs of a large GPU.
Smaller problems use the default tile."""

TUNERS = {
    "forward": Tuner(attention_forward_kernel),
    "dquery": Tuner(attention_dquery_kernel),
    "dkey_dvalue": Tuner(attention_dkey_dvalue_kernel),
    "dbias": Tuner(attention_dbias_kernel),
}


@dataclass(frozen=True)
class Problem:
    """The sizes and options that a forward and its backward share."""

    shape: tuple[int, int, int, int, int, int]  # B, H, Tq, Tk, D, Dv; of packed sentences the longest lengths
    dtype: torch.dtype
    device: torch.device
    group: int  # heads of queries for each head of keys and values
    pattern: Pattern  # without its key mask
    padding: Padding | None
    bias: Tensor | None
    slopes: Tensor | None
    scale: float
    softcap: float | None
    dropout: Dropout | None
    precision: str
    packed: Packed | None = None
    apart: bool = False  # whether each gradient has memory of its own

    @property
    def sparse(self) -> bool:
        """True if the pattern is more than a band."""
        return self.pattern.block is not None or self.pattern.stride is not None or bool(self.pattern.global_tokens)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of every kernel."""
        _, H, Tq, Tk, D, DV = self.shape
        everything, pattern = Tq + Tk, self.pattern
        block_d, block_dv = tiles.blocks_of(D, DV)
        below, above = (min(side, everything) for side in pattern.reach)
        ahead, sparse = 0 if pattern.causal else everything, Sparse()
        if self.sparse:
            if pattern.window is None:
                below = above = -1  # no key is so near
            sparse = Sparse(ahead, pattern.block, pattern.stride, seen_by_all(pattern, Tk, self.device))
        return {
            "key_mask": self.padding,
            "bias": None if self.bias is None else _bias(self.bias),
            "slopes": None if self.slopes is None else Slopes(self.slopes, (self.slopes.ndim - 1) * H),
            "Tq": Tq, "Tk": Tk, "H": H,
            "below": below, "above": min(above, ahead), "sparse": sparse,
            "scale": self.scale, "softcap": self.softcap,
            "D": tiles.whole(D), "DV": tiles.whole(DV), "BLOCK_D": block_d, "BLOCK_DV": block_dv,
            "GROUP": self.group, "PRECISION": self.precision,
            "ALIGNED": 1 if self.bias is None else alignment_of(Tk, self.dtype),
            **_dropout_arguments(self.dropout),
        }  # fmt: skip

    def visits(self, queries: int, keys: int, by_keys: bool) -> Tensor | None:
        """Return the blocks that each block of this size visits; `None` for a band, which the kernel knows."""
        if not self.sparse:
            return None
        _, _, Tq, Tk, _, _ = self.shape
        return visits_of(self.pattern, (Tq, Tk), (queries, keys), self.padding is not None, by_keys, self.device)

    def tuning_key(self) -> tuple:
        """Return everything that the fastest tile may depend on, with lengths rounded up to a power of 2."""
        _, _, Tq, Tk, D, DV = self.shape
        kind = "sparse" if self.sparse else "window" if self.pattern.window is not None else "full"
        band = "causal" if self.pattern.causal and kind == "full" else kind
        lengths = f"{tiles.block_of(Tq)}×{tiles.block_of(Tk)}"
        padding = "no padding" if self.padding is None else "padding"
        dropout = "no dropout" if self.dropout is None else "dropout"
        given = {"bias": self.bias, "slopes": self.slopes, "softcap": self.softcap, "packed": self.packed}
        more = f"{self.group} heads share", *(name for name, option in given.items() if option is not None)
        return self.dtype, self.precision, f"D {D}×{DV}", f"T {lengths}", band, padding, dropout, *more, self.device


@kernel
def attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    window: Window = None,
    pattern: Pattern | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout: Dropout | None = None,
    slopes: Tensor | None = None,
    packed: Packed | None = None,
    precision: str = "ieee",
) -> tuple[Tensor, tuple]:
    """Scaled dot-product attention, `softmax(scale · query keyᵀ + bias) value`, in memory that grows as T.

    query `(B, H, Tq, D)`, key `(B, Hk, Tk, D)`, value `(B, Hk, Tk, Dv)` → `(B, H, Tq, Dv)`, D and Dv from 1 to 256;
    float32, float16 or bfloat16; `scale` is by default `1/√D`. The options are those of
    `minitransformer.ops.attention_forward`; `precision="tf32"` lets float32 products use tensor cores with 10 bits of
    mantissa, on NVIDIA's GPUs since the A100. ALiBi's `slopes`, float32, `(H,)` or `(B, H)`, lower the score of query i
    and key j by `slope · |Tk − Tq + i − j|`, after the softcap; they are constants, without a gradient. With `packed`
    sentences B is 1, the axes of queries and keys hold those of all sentences, and each sentence attends to itself;
    `slopes` may have a row for each sentence. A bias, a key mask and sparse patterns are refused then.
    Widths that are multiples of 16 need no copies: queries, keys and values are read where they are, and in memory the
    output is `(B, Tq, H, Dv)`, so that merging its heads is a view.
    Keys and values that a mask hides must still be finite: they are multiplied by a weight of 0, and 0 · NaN is NaN.
    Only blocks that no query of a program sees are skipped, and the size of a block depends on the GPU.
    Raises `ValueError` for shapes that do not fit, `TypeError` for mixed or other dtypes.
    Source: Vaswani 2017, §3.2.1, eq. 1; Dao et al. 2022; Dao 2023; Ainslie et al. 2023 (grouped heads); Press, Smith,
    Lewis 2022, §3 (ALiBi).
    """
    whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
    problem = _problem(query, key, value, bias, slopes, whole, scale, softcap, dropout, precision, packed)
    (B, H, Tq, _), DV = query.shape, value.shape[3]
    out = _empty_heads(B, H, Tq, DV, query)
    lse = torch.empty((B, H, Tq) if packed is None else (H, Tq), dtype=torch.float32, device=query.device)
    cache = (problem, *(_heads(x, packed) for x in (query, key, value, out)), lse)
    if out.numel():
        # The kernel finds the largest score before it applies the scale; a negative scale would make it the smallest.
        positive_query = _heads(-query, packed) if problem.scale < 0 else cache[1]
        arguments = problem.arguments() | {"scale": abs(problem.scale)}
        _launch("forward", problem, positive_query, *cache[2:], **arguments)
    return out[..., :DV], cache


def attention_cache(
    out: Tensor,
    lse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    *,
    slopes: Tensor | None,
    pattern: Pattern,
    scale: float | None,
    softcap: float | None,
    dropout: Dropout | None,
    packed: Packed | None = None,
) -> tuple:
    """Make the cache of `attention_forward` from its output, its log-sum-exps and its arguments.

    Each gradient gets memory of its own, because PyTorch lets no two outputs of an operator share it.
    """
    problem = _problem(query, key, value, bias, slopes, pattern, scale, softcap, dropout, "ieee", packed)
    return replace(problem, apart=True), *(_heads(x, packed) for x in (query, key, value, out)), lse


@kernel
def attention_backward(dout: Tensor, cache: tuple) -> tuple[Tensor, ...]:
    """Gradients `(dquery, dkey, dvalue)`; with a bias, `dbias` too, summed over the axes that were broadcast.

    The first three are `(B, T, heads, width)` in memory, as the output is. If queries, keys and values (or two of them)
    are parts of one projection's rows, so are their gradients: joining them is a view, not a copy.
    """
    problem, query, key, value, out, lse = cache
    B, _, _, _, D, DV = problem.shape
    check_gradient("dout", dout, (*query.ptr.shape[:3], DV), problem.dtype, problem.device)
    dquery, dkey, dvalue = _empty_gradients([query.ptr, key.ptr, value.ptr], problem.apart)
    delta = torch.empty_like(lse)
    hashes = None if problem.dropout is None else torch.empty(lse.shape, dtype=torch.int32, device=lse.device)
    arguments = problem.arguments()
    received, rows, packed = _heads(dout, problem.packed), (lse, delta, hashes), problem.packed
    if dquery.numel():
        _launch("dquery", problem, query, key, value, out, received, _heads(dquery, packed), *rows, **arguments)
    if dkey.numel():
        gradients = _heads(dkey, packed), _heads(dvalue, packed)
        _launch("dkey_dvalue", problem, query, key, value, received, *gradients, *rows, **arguments)
    gradients = dquery[..., :D], dkey[..., :D], dvalue[..., :DV]
    if problem.bias is None:
        return gradients
    dbias = torch.empty(problem.bias.shape, dtype=problem.dtype, device=problem.device)
    if dbias.numel():
        place = _bias(dbias)
        sums = {f"SUM_{axis}": size == 1 for axis, size in zip("BHQK", place.ptr.shape, strict=True)}
        _launch("dbias", problem, query, key, value, received, place, *rows, **arguments, **sums, B=B)
    return *gradients, dbias


def _launch(name: str, problem: Problem, *operands: Any, **arguments: Any) -> None:
    """Launch a kernel with the best tile."""
    tuner = TUNERS[name]
    B, H, Tq, Tk, D, DV = problem.shape
    device = capability(problem.device)
    arguments["PRECISION"] = precision = tiles.usable(problem.precision, device, problem.dtype)
    by_keys, family = name == "dkey_dvalue", tiles.family(device, problem.dtype, precision)
    if name != "dbias":
        arguments |= _packed_arguments(problem.packed, operands[0].ptr)

    def launch(tile: Tile) -> None:
        rows, columns, num_warps, num_stages, descriptors = tile
        queries, keys = (columns, rows) if by_keys else (rows, columns)
        how = {"QUERIES": queries, "KEYS": keys, "num_warps": num_warps, "num_stages": num_stages}
        if name == "dbias":
            sizes, steps = arguments["bias"].ptr.shape, (1, 1, queries, keys)
        else:
            sizes, steps = (B, H // problem.group, Tk) if by_keys else (B, H, Tq), (1, 1, rows)
            how["visits"] = problem.visits(queries, keys, by_keys)
        key_blocks, value_blocks = (
            _described(x.ptr, keys, width) if descriptors else None
            for x, width in zip(operands[1:3], tiles.blocks_of(D, DV), strict=True)
        )
        if name != "dbias":
            tile = tile._replace(descriptors=key_blocks is not None and value_blocks is not None)
            how |= tiles.schedule(name, family, tile, D, DV, problem.padding is not None, problem.bias is not None)
        programs = math.prod(-(-size // step) for size, step in zip(sizes, steps, strict=True))
        if name != "forward":
            tuner.kernel[(programs,)](*operands, **arguments, **how)
            return
        seen = min(Tk, queries + arguments["below"] + arguments["above"])  # the most keys that one program visits
        alone = problem.sparse or problem.packed is not None
        parts = 1 if alone else parts_of(programs, -(-seen // keys), operands[0].ptr)
        _launch_forward(programs, parts, operands, **arguments, **how, key_blocks=key_blocks, value_blocks=value_blocks)

    more = problem.dropout, problem.bias, problem.slopes, problem.softcap
    masks = problem.sparse or any(option is not None for option in more)
    given, itemsize = (problem.bias is not None, problem.slopes is not None), problem.dtype.itemsize
    results = (operands[3].ptr, operands[4]) if name == "forward" else ()
    choices = tiles.candidates(name, family, D, DV, itemsize, masks, device.shared_memory, *given)
    if problem.packed is not None:  # a descriptor would read beyond a sentence's end
        choices = [tile for tile in choices if not tile.descriptors]
    with on(operands[0].ptr):
        if B * H * Tq * Tk * (D + DV) < TUNED_FROM:
            launch(tiles.fitted(choices[0], family, *((Tk, Tq) if by_keys else (Tq, Tk))))
        else:
            launch(tuner(choices, problem.tuning_key(), launch, results))


def parts_of(programs: int, key_blocks: int, like: Tensor) -> int:
    """Return the number of programs that share the keys of a block of queries, so that no processors are idle.

    Each gets at least four of the `key_blocks`, and there are at most 32, whose results must be merged. In decoding,
    with one query and many keys, a single program for each block would leave most processors idle.
    """
    return max(min(programs_at_once(like, 1, 1) // programs, key_blocks // 4, 32), 1)


def _launch_forward(programs: int, parts: int, operands: Any, **arguments: Any) -> None:
    """Launch the forward, with `parts` programs for each block of queries; several of them need a merging kernel."""
    if parts == 1:
        attention_forward_kernel[(programs,)](*operands, **arguments, SHARED=False)
        return
    *inputs, out, lse = operands
    (B, H, Tq), width = lse.shape, out.ptr.shape[3]
    part_out = torch.empty((1, parts * B * H, Tq, width), dtype=torch.float32, device=lse.device)
    part_lse = torch.empty((parts, B, H, Tq), dtype=torch.float32, device=lse.device)
    attention_forward_kernel[(programs, parts)](*inputs, _heads(part_out), part_lse, **arguments, SHARED=True)
    attention_merge_kernel[(B * H * -(-Tq // tiles.SMALLEST),)](
        part_out, part_lse, out, lse, Tq, H, B * H, parts,
        DV=width, BLOCK_DV=arguments["BLOCK_DV"], QUERIES=tiles.SMALLEST, num_warps=4,
    )  # fmt: skip


# --- Layouts --------------------------------------------------------------------------------------------------


def _heads(x: Tensor, packed: Packed | None = None) -> Heads:
    """Return x `(B, H, T, D)` as kernels take it: rows are a multiple of 16 numbers long, and start at such a multiple.

    Only such rows are loaded 16 bytes at a time. Other rows would be loaded number by number, for which no tile has
    enough registers. So tensors with another layout are copied, with zeros behind each row. For `packed` sentences
    stride_b is a row's stride: a kernel then takes a sentence's first row in the place of its number.
    """
    B, H, T, D = x.shape
    width, (*steps, step) = tiles.whole(D), x.stride()
    if width != D or step != 1 or math.gcd(*steps, tiles.SMALLEST) != tiles.SMALLEST or x.data_ptr() % 16:
        padded = _empty_heads(B, H, T, width, x)
        padded[..., :D], padded[..., D:] = x, 0
        x = padded
    stride_b, stride_h, stride_t = x.stride()[:3]
    return Heads(x, stride_b if packed is None else stride_t, stride_h, stride_t)


def _empty_heads(B: int, H: int, T: int, width: int, like: Tensor) -> Tensor:
    """Return an empty `(B, H, T, width)`, the width rounded up to a multiple of 16; merging its heads is a view."""
    return torch.empty((B, T, H, tiles.whole(width)), dtype=like.dtype, device=like.device).transpose(1, 2)


def _empty_gradients(operands: list[Tensor], apart: bool) -> Iterator[Tensor]:
    """Yield empty gradients of operands `(B, heads, T, width)`, each in memory `(B, T, heads, width)`.

    Neighbours in the rows of one array have gradients that are neighbours in the rows of one array, unless `apart`.
    """
    while operands:
        most = 1 if apart else len(operands)
        count = next(n for n in range(most, 0, -1) if n == 1 or _in_one_row(operands[:n]))
        together, operands = operands[:count], operands[count:]
        B, _, T, _ = together[0].shape
        rows = together[0].new_empty((B, T, sum(x.shape[1] * x.shape[3] for x in together)))
        for x, part in zip(together, rows.split([x.shape[1] * x.shape[3] for x in together], -1), strict=True):
            yield part.unflatten(-1, (x.shape[1], x.shape[3])).transpose(1, 2)


def _in_one_row(operands: list[Tensor]) -> bool:
    """Return True if the heads of these `(B, heads, T, width)` follow each other in every row `(B, T)` of one array."""
    dense = all(x.stride(1) == x.shape[3] for x in operands)
    return dense and side_by_side([x.transpose(1, 2).flatten(2) for x in operands]) is not None


def _described(x: Tensor, rows: int, width: int) -> TensorDescriptor | None:
    """Return a descriptor of x `(B, H, T, D)`, from which a kernel loads `(1, 1, rows, width)` at a time.

    Return `None` if x can't have one: the hardware requires every size and every stride to be positive.
    """
    whole = all(x.shape) and all(x.stride())
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, width]) if whole else None


def alignment_of(length: int, dtype: torch.dtype) -> int:
    """Return the most numbers of a bias that a thread can load at once: a power of 2 that divides a row, ≤ 16 bytes."""
    return math.gcd(length, 16 // dtype.itemsize)


def _dropout_arguments(dropout: Dropout | None) -> dict[str, Any]:
    if dropout is None:
        return dict.fromkeys(DROPOUT)
    key = key_arguments(dropout)
    key["dropout_scale"] = key.pop("scale")
    return key | {"sentence": int(dropout.sentence), "position": int(dropout.position)}


def _packed_arguments(packed: Packed | None, query: Tensor) -> dict[str, Any]:
    if packed is None:
        return {"starts": None, "num_queries": None}
    return {"starts": Starts(*(starts.contiguous() for starts in packed[:2])), "num_queries": query.shape[2]}


def _padding(real: Tensor) -> Padding:
    """Return a key mask as kernels take it, with its ends, found in one pass."""
    ends = torch.empty((len(real), 2), dtype=torch.int32, device=real.device)
    if ends.numel():
        with on(ends):
            padding_ends_kernel[(len(real),)](real, ends, real.shape[1], CHUNK=512)
    return Padding(real, ends)


def _bias(x: Tensor) -> Bias:
    """Return a bias of up to four axes as kernels take it; rows may have any strides."""
    x = x.reshape((1,) * (4 - x.ndim) + tuple(x.shape))
    return Bias(x, *(0 if size == 1 else step for size, step in zip(x.shape, x.stride(), strict=True)))


# --- The problem ----------------------------------------------------------------------------------------------


def _problem(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    slopes: Tensor | None,
    pattern: Pattern,
    scale: float | None,
    softcap: float | None,
    dropout: Dropout | None,
    precision: str,
    packed: Packed | None,
) -> Problem:
    for name, tensor in (("query", query), ("value", value)):
        if tensor.shape[3] > tiles.WIDEST:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected a last axis from 1 to {tiles.WIDEST}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"precision is {precision!r}, expected 'ieee' or 'tf32'")
    active = dropout if is_active(dropout) else None
    if active is not None and (np.ndim(active.sentence) or np.ndim(active.position)):
        raise ValueError("dropout numbers each row by arrays, expected the numbers of the first sentence and query")
    B, Tq, Tk = query.shape[0], query.shape[2], value.shape[2]
    if packed is not None:
        packed.check(query, key)
        B, Tq, Tk = packed.batch, packed.longest_query, packed.longest_key
    if slopes is not None:
        slopes = check_slopes("slopes", slopes, "query", query, B).contiguous()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    problem = Problem(
        (B, query.shape[1], Tq, Tk, query.shape[3], value.shape[3]),
        query.dtype,
        query.device,
        query.shape[1] // max(key.shape[1], 1),
        replace(pattern, key_mask=None),
        None if pattern.key_mask is None else _padding(pattern.key_mask.contiguous()),
        bias,
        slopes,
        scale,
        None if softcap is None else float(softcap),
        active,
        precision,
        packed,
    )
    if packed is not None and (bias is not None or problem.padding is not None or problem.sparse):
        raise ValueError(
            "packed sentences are given beside a bias, a key mask or a sparse pattern, expected one of them"
        )
    return problem
