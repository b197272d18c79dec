"""Functions of attention's kernels: the blocks to visit, the keys that a query sees in a block, and loading rows.

Causality and a window form one band: a query at position p sees the keys from p − below to p + above. Causal attention
has above = 0; with a window r both are at most r; without either they reach beyond the ends of the sequence. So one
compiled kernel serves all cases, and it visits only blocks that the band touches.
"""

import math
from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2_E = tl.constexpr(math.log2(math.e))
"""The softmax is computed with powers of 2, for which GPUs have an instruction: e^x = 2^(x · log2 e)."""

DROPOUT = ("key_ptr", "key_low", "key_high", "threshold", "dropout_scale", "sentence", "position")
"""Arguments that are None without dropout. They are not passed as one tuple, because Triton would compile a kernel for
each tuple's content, and keys change."""

UNSPECIALIZED = ["Tq", "Tk", "H", "num_queries", "below", "above", "scale", "softcap", *DROPOUT]
"""Arguments that change from batch to batch: Triton must not compile another kernel if one is 1 or a multiple of 16."""


class Heads(NamedTuple):
    """A `(B, H, T, D)` tensor as a kernel takes it; the numbers of a row lie side by side in memory."""

    ptr: Any
    stride_b: int
    stride_h: int
    stride_t: int


class Padding(NamedTuple):
    """The mask of real keys as a kernel takes it."""

    real: Any  # (B, Tk) bool
    ends: Any  # (B, 2) int32, written by `padding_ends_kernel`


class Starts(NamedTuple):
    """The first row of each of B packed sentences as a kernel takes it; the last number is the end of the last one."""

    queries: Any  # (B + 1,) int32
    keys: Any  # (B + 1,) int32


class Sparse(NamedTuple):
    """The parts of a pattern beside its window, as a kernel takes them; `None` for a part that it lacks.

    All are `None` if the pattern is only a window.
    """

    ahead: int | None = None  # the most positions after its own at which a query sees keys: 0 if causal
    block: int | None = None
    stride: int | None = None
    by_all: Any = None  # (2, Tk) bool: the keys that every query sees, and the queries that see every key


@triton.jit
def locate(length, H, BLOCK: tl.constexpr):
    """Return this program's block of a sequence and its head, numbered among all `B · H`, and as b and h."""
    num_blocks = tl.cdiv(length, BLOCK)
    head = tl.program_id(0) // num_blocks
    return tl.program_id(0) % num_blocks, head.to(tl.int64), (head // H).to(tl.int64), (head % H).to(tl.int64)


@triton.jit
def locate_packed(starts, b):
    """Return sentence b's first query and first key among the rows of all, and its lengths Tq and Tk.

    `load_rows` and `store_rows` take a first row in the place of b: in `Heads` of packed rows stride_b is stride_t.
    """
    first_query, first_key = tl.load(starts.queries + b), tl.load(starts.keys + b)
    Tq, Tk = tl.load(starts.queries + b + 1) - first_query, tl.load(starts.keys + b + 1) - first_key
    return first_query.to(tl.int64), first_key.to(tl.int64), Tq, Tk


@triton.jit
def key_head(h, GROUP: tl.constexpr):
    """Return the head of keys and values that query head h reads: `GROUP` neighbours share one."""
    return h if GROUP == 1 else h // GROUP


# --- The blocks to visit --------------------------------------------------------------------------------------


@triton.jit
def reach(first, last, below, above, length):
    """Return the part of a sequence that rows first..last of another see, from `below` before to `above` after each.

    `start, stop` is the part that at least one row sees, and `inner_start, inner_stop` the part that every row sees;
    the stops are excluded.
    """
    start, stop = tl.maximum(first - below, 0), tl.minimum(last + above + 1, length)
    inner_start, inner_stop = tl.maximum(last - below, 0), tl.minimum(first + above + 1, length)
    return start, stop, inner_start, inner_stop


@triton.jit(do_not_specialize=["Tk"])
def padding_ends_kernel(real_ptr, ends_ptr, Tk, CHUNK: tl.constexpr):
    """Write the number of keys before a sentence's first padding, and the number up to its last real key: `(B, 2)`.

    Each program has one sentence. So the many programs of the other kernels need not look through its mask.
    """
    b = tl.program_id(0).to(tl.int64)
    first_padding = tl.full((CHUNK,), 2**31 - 1, tl.int32)
    after_real = tl.full((CHUNK,), 0, tl.int32)
    for chunk in range(0, Tk, CHUNK):
        keys = chunk + tl.arange(0, CHUNK)
        real = tl.load(real_ptr + b * Tk + keys, keys < Tk, other=False)
        first_padding = tl.minimum(first_padding, tl.where(real, first_padding, keys))
        after_real = tl.maximum(after_real, tl.where(real, keys + 1, 0))
    tl.store(ends_ptr + 2 * b, tl.min(first_padding, 0))
    tl.store(ends_ptr + 2 * b + 1, tl.max(after_real, 0))


@triton.jit
def in_blocks(start, stop, inner_start, inner_stop, BLOCK: tl.constexpr):
    """Return the reach as numbers of blocks: `first ≤ inner_first ≤ inner_last ≤ last`; both lasts are excluded.

    Inner blocks lie completely in the inner reach and need no mask.
    """
    first = start // BLOCK
    last = tl.maximum(tl.cdiv(stop, BLOCK), first)
    inner_first = tl.minimum(tl.maximum(tl.cdiv(inner_start, BLOCK), first), last)
    inner_last = tl.minimum(tl.maximum(inner_stop // BLOCK, inner_first), last)
    return first, inner_first, inner_last, last


@triton.jit
def places_in(listed):
    """Return the bounds of `in_blocks` as places in a list of `visits`, where blocks that need no mask come first."""
    return 0, 0, tl.load(listed), tl.load(listed + 1)


@triton.jit
def list_of(visits, block, length, BLOCK: tl.constexpr):
    """Return the list of the blocks of a sequence of `length` that a block visits."""
    return visits + tl.cast(block, tl.int64) * (2 + tl.cdiv(length, BLOCK))


@triton.jit
def blocks_of_keys(block, Tq, Tk, below, above, listed, key_mask, b, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """Return the blocks of keys that a block of queries sees, as `in_blocks` does."""
    if listed is not None:
        return places_in(listed)
    first = block * QUERIES + (Tk - Tq)
    last = tl.minimum(first + QUERIES, Tk) - 1
    start, stop, inner_start, inner_stop = reach(first, last, below, above, Tk)
    if key_mask is not None:
        inner_stop = tl.minimum(inner_stop, tl.load(key_mask.ends + 2 * b))
        stop = tl.minimum(stop, tl.load(key_mask.ends + 2 * b + 1))
    return in_blocks(start, stop, inner_start, inner_stop, KEYS)


@triton.jit
def blocks_of_queries(block, Tq, Tk, below, above, listed, real, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """Return the blocks of queries that see a block of keys, as `in_blocks` does; none if all keys are padding."""
    if listed is not None:
        return places_in(listed)
    first = block * KEYS - (Tk - Tq)
    last = tl.minimum(first + KEYS, Tq) - 1
    # The queries that see a key lie from `above` before it to `below` after it.
    start, stop, inner_start, inner_stop = reach(first, last, above, below, Tq)
    stop = tl.where(tl.max(real.to(tl.int32), 0) == 0, start, stop)
    return in_blocks(start, stop, inner_start, inner_stop, QUERIES)


@triton.jit
def count_blocks(blocks, MASKED: tl.constexpr):
    """Return the number of blocks that need a mask or, without MASKED, of inner blocks."""
    first, inner_first, inner_last, last = blocks
    inner = inner_last - inner_first
    return last - first - inner if MASKED else inner


@triton.jit
def part_of(blocks, part, parts):
    """Return the blocks of program `part` of the `parts` that share them, as `in_blocks` does."""
    first, inner_first, inner_last, last = blocks
    start, stop = first + (last - first) * part // parts, first + (last - first) * (part + 1) // parts
    return (
        start,
        tl.minimum(tl.maximum(inner_first, start), stop),
        tl.minimum(tl.maximum(inner_last, start), stop),
        stop,
    )


@triton.jit
def nth_block(n, blocks, listed, MASKED: tl.constexpr):
    """Return the n-th block that needs a mask, around the inner blocks, or without MASKED the n-th inner block."""
    first, inner_first, inner_last, _ = blocks
    if MASKED:
        block = first + n
        block += tl.where(block >= inner_first, inner_last - inner_first, 0)
    else:
        block = inner_first + n
    return block if listed is None else tl.load(listed + 2 + block)


@triton.jit
def block_in_order(n, blocks, listed, MASKED: tl.constexpr):
    """Return the n-th of all blocks, inner ones first; without MASKED n is the place of an inner one."""
    if listed is not None:
        return tl.load(listed + 2 + n)  # lists have this order
    block = nth_block(n, blocks, None, False)
    if MASKED:
        inner = count_blocks(blocks, False)
        block = tl.where(n < inner, block, nth_block(n - inner, blocks, None, True))
    return block


# --- Within a block -------------------------------------------------------------------------------------------


@triton.jit
def load_rows(
    x, b, h, first, span, present, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, HOISTED: tl.constexpr = False
):  # fmt: skip
    """Load rows `first + span` of a head of x, `(rows, BLOCK_WIDTH)`: zeros beyond its width and for rows not present.

    With `present=None` all rows are present. `HOISTED` is for a loop in which only `first` changes: the addresses,
    except for their start, are then computed before the loop, and stay in registers.
    """
    column = tl.arange(0, BLOCK_WIDTH)
    head = x.ptr + b * x.stride_b + h * x.stride_h
    if HOISTED:
        start = head + tl.cast(first, tl.int64) * x.stride_t
        ptrs = start + (span.to(tl.int64)[:, None] * x.stride_t + column[None, :])
    else:
        ptrs = head + (first + span).to(tl.int64)[:, None] * x.stride_t + column[None, :]
    mask = None if present is None else present[:, None]
    if WIDTH < BLOCK_WIDTH:
        within = (column < WIDTH)[None, :]
        mask = within if mask is None else mask & within
    return load_numbers(ptrs, mask, 0.0)


@triton.jit
def load_block(
    blocks, x, b, h, first, span, present, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, HOISTED: tl.constexpr = False
):  # fmt: skip
    """Load rows as `load_rows` does; with a tensor descriptor `blocks` of x by Hopper's tensor memory accelerator."""
    if blocks is None:
        block = load_rows(x, b, h, first, span, present, WIDTH, BLOCK_WIDTH, HOISTED)
    else:
        place = [b.to(tl.int32), h.to(tl.int32), first, 0]
        block = tl.reshape(blocks.load(place), (span.shape[0], BLOCK_WIDTH))
    return block


@triton.jit
def load_numbers(ptrs, present, missing):
    """Load the numbers at `ptrs`, and `missing` for those not present; with `present=None` all are, without a mask."""
    if present is None:
        loaded = tl.load(ptrs)
    else:
        loaded = tl.load(ptrs, present, other=missing)
    return loaded


@triton.jit
def store_rows(x, b, h, rows, present, block, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr):
    """Store rows that `load_rows` would load; nothing is written beyond the width or for rows that are not present."""
    column = tl.arange(0, BLOCK_WIDTH)
    ptrs = x.ptr + b * x.stride_b + h * x.stride_h + rows.to(tl.int64)[:, None] * x.stride_t + column[None, :]
    tl.store(ptrs, block.to(x.ptr.dtype.element_ty), present[:, None] & (column < WIDTH)[None, :])


@triton.jit
def store_softmax(
    out, lse_ptr, b, h, queries, present, m, l, acc, dropout_scale, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr
):  # fmt: skip
    """Store the output of an online softmax and its log-sum-exps, which begin at `lse_ptr`.

    m is the largest score of each query, l is `Σ_j 2^(scores_j − m)`, acc is `Σ_j 2^(scores_j − m) value_j`.
    """
    nothing = l == 0.0
    l = tl.where(nothing, 1.0, l)
    acc /= l[:, None]
    if dropout_scale is not None:
        acc *= dropout_scale
    store_rows(out, b, h, queries, present, acc, WIDTH, BLOCK_WIDTH)
    # For a query that sees nothing lse is +inf, so that the backward's weights 2^(scores − lse) are 0.
    tl.store(lse_ptr + queries, tl.where(nothing, float("inf"), m + tl.log2(l)), present)


@triton.jit
def sees(positions, keys, below, above, sparse, Tk):
    """Return True where queries at `positions` may attend to keys; the two broadcast against each other."""
    seen = (keys >= positions - below) & (keys <= positions + above)
    if sparse.ahead is not None:  # Triton 3.6 can't ask whether a tuple that holds a None is None
        if sparse.block is not None:  # division rounds towards 0: positions before the first key need a block as well
            seen |= tl.where(positions < 0, -1, positions // sparse.block) == keys // sparse.block
        if sparse.stride is not None:
            seen |= (positions - keys) % sparse.stride == 0
        if sparse.by_all is not None:
            seen |= tl.load(sparse.by_all + keys, keys < Tk, other=False)
            seen |= tl.load(sparse.by_all + Tk + positions, (positions >= 0) & (positions < Tk), other=False)
        seen &= keys <= positions + sparse.ahead
    return seen


@triton.jit
def real_keys(key_mask, b, keys, Tk):
    """Return True for each key that is within the sequence and not padding."""
    real = keys < Tk
    if key_mask is not None:
        real = tl.load(key_mask.real + b * Tk + keys, real, other=False)
    return real
