"""Looks up rows of a table by token id, and sums their gradients: `dtable[i] = scale · Σ dy[n]` over `ids[n] = i`.

The forward is one pass: it reads ids and rows, and writes y. The backward adds up N rows of C by id:

    naive   every row of dy is added to its row of dtable with atomic additions (`embedding_backward_naive`): one pass,
            but rows of one id wait for each other, the sums differ each time, and they are taken in dtable's dtype
    here    ids are sorted together with their positions (16 bytes a token, beside 2·C or 4·C), so that equal ids form a
            segment. One program sums a segment, and it alone writes this row of dtable. Nothing is atomic, and sums
            are taken in float32 in an order that never changes

One program for a whole segment would be slow for a frequent id: if 5 % of 25k tokens are full stops, they are 1,250. At
C = 512 that is 157 tiles of 8 rows, one after the other, which takes 0.1 ms by memory's latency; to read all of dy
takes a tenth of that. So segments are cut at multiples of PIECE positions: no program sums more than PIECE rows, and a
second kernel joins the parts, of which there are at most 2 for each PIECE rows of dy. The longest chain of loads is
PIECE/8 tiles and N/PIECE/32 of parts: 21 for 25k tokens even if they are all the same.

With `out` only the rows of ids that occur are changed, which are few in a large table.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._checks import check_gradient, check_out, kernel
from ._rows import is_token
from .launch import blocks_of_rows, on, row_block, row_warps, rows_of

ELEMENTS = 4096
"""Elements that a program works on at a time: a few rows, or a block of one."""
PIECE = 64
"""The most rows that one program sums."""
JOIN_BLOCK = 128
"""Columns of a program that joins pieces: few, so that it takes many pieces at a time."""


@triton.jit(do_not_specialize=["num_rows"])
def embedding_forward_kernel(
    ids_ptr, table_ptr, y_ptr, num_rows, V, width, stride, stride_column, scale,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes a block of rows and channels of `y = scale · table[ids]`; a row of NaN for an id outside the table."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    id = tl.load(ids_ptr + row, row < num_rows, other=0).to(tl.int64)
    mask = (row < num_rows)[:, None] & (channel < width)[None, :]
    places = table_ptr + id[:, None] * stride + channel.to(tl.int64)[None, :] * stride_column
    entry = tl.load(places, mask & is_token(id, V)[:, None], other=float("nan"))
    y = entry.to(tl.float32) * scale
    tl.store(y_ptr + row.to(tl.int64)[:, None] * width + channel[None, :], y.to(entry.dtype), mask)


@triton.jit
def add_to_row(dtable_ptr, id, V, channel, width, stride, stride_column, gradient):
    """`dtable[id] += gradient`, if dtable has this row; no other program has this id."""
    id = id.to(tl.int64)
    mask = (channel < width) & is_token(id, V)
    place = dtable_ptr + id * stride + channel.to(tl.int64) * stride_column
    total = tl.load(place, mask, other=0.0) + gradient
    tl.store(place, total.to(dtable_ptr.dtype.element_ty), mask)


@triton.jit(do_not_specialize=["num_rows"])
def sum_pieces_kernel(
    dy_ptr, ids_ptr, order_ptr, parts_ptr, dtable_ptr, num_rows, V, width, stride_dy, stride, stride_column, scale,
    PIECE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums the piece that begins at one position of the sorted ids, if an id is new there or it is a multiple of PIECE.

    A whole segment's sum goes to dtable, a part's sum to parts `(N/PIECE, 2, C)`: index 0 of the middle axis is the
    part that begins at a multiple of PIECE inside its segment, index 1 the part that begins with its segment and is cut
    at the next multiple.
    """
    first = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    id = tl.load(ids_ptr + first)
    begins = (first == 0) | (tl.load(ids_ptr + first - 1, first > 0, other=0) != id)
    if begins | (first % PIECE == 0):
        limit = tl.minimum((first // PIECE + 1) * PIECE, num_rows)
        near = first + tl.arange(0, PIECE)
        same = (near < limit) & (tl.load(ids_ptr + near, near < limit, other=0) == id)
        end = first + tl.sum(same.to(tl.int32), axis=0)  # equal ids are neighbours
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(first, end, ROWS):
            position = start + tl.arange(0, ROWS)
            row = tl.load(order_ptr + position, position < end, other=0)  # int64
            mask = (position < end)[:, None] & (channel < width)[None, :]
            total += tl.load(dy_ptr + row[:, None] * stride_dy + channel[None, :], mask, other=0.0)
        gradient = tl.sum(total, axis=0) * scale  # (C,)
        goes_on = (end == limit) & (limit < num_rows) & (tl.load(ids_ptr + end, end < num_rows, other=0) == id)
        if begins & (goes_on == 0):
            add_to_row(dtable_ptr, id, V, channel, width, stride, stride_column, gradient)
        else:
            part = (first // PIECE).to(tl.int64) * 2 + begins.to(tl.int64)
            tl.store(parts_ptr + part * width + channel, gradient, channel < width)


@triton.jit(do_not_specialize=["num_rows"])
def join_pieces_kernel(
    ids_ptr, parts_ptr, dtable_ptr, num_rows, V, width, stride, stride_column,
    PIECE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Joins the parts of the segment that begins between two multiples of PIECE and is cut at the second, if any."""
    window = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = window * PIECE
    id = tl.load(ids_ptr + start + PIECE - 1)
    cut = tl.load(ids_ptr + start + PIECE) == id
    begins = (window == 0) | (tl.load(ids_ptr + start - 1, window > 0, other=0) != id)
    if cut & begins:
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        following = window + 1 + tl.arange(0, ROWS)
        goes_on = cut
        while goes_on:
            inside = following * PIECE < num_rows
            same = inside & (tl.load(ids_ptr + following * PIECE, inside, other=0) == id)
            place = parts_ptr + following.to(tl.int64)[:, None] * 2 * width + channel[None, :]
            total += tl.load(place, same[:, None] & (channel < width)[None, :], other=0.0)
            following += ROWS
            goes_on = tl.sum(same.to(tl.int32), axis=0) == ROWS
        begun = tl.load(parts_ptr + (window.to(tl.int64) * 2 + 1) * width + channel, channel < width, other=0.0)
        add_to_row(dtable_ptr, id, V, channel, width, stride, stride_column, begun + tl.sum(total, axis=0))


@kernel
def embedding_forward(ids: Tensor, table: Tensor, scale: float = 1.0) -> tuple[Tensor, tuple]:
    """`y = scale · table[ids]`.

    ids `(...)`, integers in [0, V), table `(V, C)` → y `(..., C)`. The model passes `scale = √d_model`.
    Raises `ValueError` for an id outside the table in host memory, and `TypeError` for float64. Ids in a GPU's memory
    are not checked: one outside the table gives a row of NaN, and its gradient is dropped.
    Source: Vaswani 2017, §3.4.
    """
    width = table.shape[1]
    y = torch.empty((*ids.shape, width), dtype=table.dtype, device=table.device)
    ids = ids.contiguous()
    if y.numel():
        grid, options = blocks_of_rows(ids.numel(), width, ELEMENTS)
        with on(table):
            embedding_forward_kernel[grid](
                ids, table, y, ids.numel(), len(table), width, *table.stride(), float(scale), **options
            )
    return y, (ids, table.shape, table.dtype, scale)


@kernel
def embedding_backward(dy: Tensor, cache: tuple, out: Tensor | None = None) -> Tensor:
    """`dtable[i] = scale · Σ dy[n]` over all n with `ids[n] = i`: repeated ids sum, in float32, in a fixed order.

    `out=` adds into this tensor, whose dtype may be wider than dy's, and returns it, instead of making a new one.
    """
    ids, table_shape, dtype, scale = cache
    check_gradient("dy", dy, (*ids.shape, table_shape[1]), dtype, ids.device)
    if out is None:
        out = torch.zeros(table_shape, dtype=dtype, device=dy.device)
    else:
        check_out("out", out, table_shape, dtype, dy.device)
    if dy.numel():
        sorted_ids, order = torch.sort(ids.reshape(-1), stable=True)  # (N,) each; order: the old positions, int64
        with on(dy):
            _scatter_add(out, sorted_ids, order, rows_of(dy), float(scale))
    return out


def embedding_backward_naive(dy: Tensor, cache: tuple) -> Tensor:
    """The same with atomic additions on a GPU: each time in another order, with other last bits."""
    ids, table_shape, dtype, scale = cache
    rows = dy.reshape(ids.numel(), table_shape[1]) * scale
    return torch.zeros(table_shape, dtype=dtype, device=dy.device).index_add_(0, ids.reshape(-1), rows)


def _scatter_add(dtable: Tensor, sorted_ids: Tensor, order: Tensor, rows: Tensor, scale: float) -> None:
    """`dtable[sorted_ids[n]] += scale · rows[order[n]]` for every n; rows `(N, C)`."""
    num_rows, width = rows.shape
    block = row_block(width, ELEMENTS)
    windows = triton.cdiv(num_rows, PIECE)
    parts = torch.empty((windows, 2, width), dtype=torch.float32, device=rows.device)
    sum_pieces_kernel[(num_rows, triton.cdiv(width, block))](
        rows, sorted_ids, order, parts, dtable, num_rows, len(dtable), width, rows.stride(0), *dtable.stride(), scale,
        PIECE=PIECE, ROWS=min(ELEMENTS // block, PIECE), BLOCK=block, num_warps=row_warps(ELEMENTS),
    )  # fmt: skip
    if windows > 1:
        block = row_block(width, JOIN_BLOCK)
        join_pieces_kernel[(windows - 1, triton.cdiv(width, block))](
            sorted_ids, parts, dtable, num_rows, len(dtable), width, *dtable.stride(),
            PIECE=PIECE, ROWS=ELEMENTS // JOIN_BLOCK, BLOCK=block, num_warps=row_warps(ELEMENTS),
        )  # fmt: skip
