"""Looks up rows of a table by token id, and sums their gradients: `dtable[i] = scale · Σ dy[n]` over `ids[n] = i`.

The forward is one pass: it reads ids and rows, and writes y. The backward adds up N rows of C by id:

    naive   every row of dy is added to its row of dtable with atomic additions (`embedding_backward_naive`): one pass,
            but rows of one id wait for each other, the sums differ each time, and they are taken in dtable's dtype
    here    ids are sorted together with their positions (12 bytes a token, beside 2·C or 4·C), so that equal ids form a
            segment, and one program alone writes its row of dtable. Nothing is atomic, and sums are taken in float32
            in an order that never changes

One program for a whole segment would be slow for a frequent id: if 5 % of 25k tokens are full stops, they are 1,250. At
C = 512 that is 157 tiles of 8 rows, one after the other, which takes 0.1 ms by memory's latency; reading all of dy
takes a tenth of that. So the sorted rows are cut at multiples of PIECE: no program sums more than PIECE rows, and a
second kernel joins the parts of segments that were cut, at most 2 for each PIECE rows of dy. The longest chain of loads
is PIECE/8 tiles and N/PIECE/32 of parts: 21 for 25k tokens even if they are all the same.

    a position's program    sums the segment that begins there, if one does, in 8 warps that exchange their sums: N
                            programs, most of which end at once or have one row to sum
    a piece's program       is one warp, which walks along the piece with a running sum of 128 channels and stores it
                            where an id ends, however many segments there are. No thread waits for another's sum

Hopper's machine code of the first is 362 instructions for each of the 8 warps and each segment, whatever its length; of
the second it is 81 for each row and each 128 channels, 325 at C = 512. For 262k rows that are 759 million where every
row is a segment of its own, against 85 million.

With `out` only the rows of ids that occur are changed, which are few in a large table.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .checks import check_gradient, check_out, kernel
from .launch import blocks_of_rows, on, row_block, row_warps, rows_of
from .rows import is_token

ELEMENTS = 4096
"""The elements that a program works on at a time: a few rows, or a block of one."""
PIECE = 64
"""The most rows that one program sums; a multiple of ROWS."""
ROWS = 8
"""Rows that a program loads before it waits for the first of them."""
COLUMNS = 128
"""Columns of a program that sums pieces or joins them: 16 bytes of float32 for each thread of a warp."""


@triton.jit(do_not_specialize=["num_rows"])
def embedding_forward_kernel(
    ids_ptr, table_ptr, y_ptr, num_rows, V, width, stride, stride_column, scale,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a block of rows and channels of `y = scale · table[ids]`; a row of NaN for an id outside the table."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    id = tl.load(ids_ptr + row, row < num_rows, other=0).to(tl.int64)
    mask = (row < num_rows)[:, None] & (channel < width)[None, :]
    places = table_ptr + id[:, None] * stride + channel.to(tl.int64)[None, :] * stride_column
    entry = tl.load(places, mask & is_token(id, V)[:, None], other=float("nan"))
    y = entry.to(tl.float32) * scale
    tl.store(y_ptr + row.to(tl.int64)[:, None] * width + channel[None, :], y.to(entry.dtype), mask)


@triton.jit
def id_at(ids_ptr, position, limit, V):
    """Return the id at a position below the limit; −1 elsewhere, and for an id outside the table."""
    id = tl.load(ids_ptr + tl.minimum(tl.maximum(position, 0), limit - 1)).to(tl.int64)  # no mask, which would wait
    return tl.where((position >= 0) & (position < limit) & is_token(id, V), id, -1).to(tl.int32)


@triton.jit
def row_of(dtable_ptr, id, channel, width, stride, stride_column):
    """Return the addresses of a row of dtable `(C,)`, and the mask of its channels: empty for the id −1."""
    place = dtable_ptr + id.to(tl.int64) * stride + channel.to(tl.int64) * stride_column
    return place, (channel < width) & (id >= 0)


@triton.jit(do_not_specialize=["num_rows"])
def sum_pieces_kernel(
    dy_ptr, ids_ptr, order_ptr, parts_ptr, dtable_ptr, num_rows, V, width, stride_dy, stride, stride_column, scale,
    PIECE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the rows of each segment, or part of one, between two multiples of PIECE, one row after the other.

    A whole segment's sum goes to dtable, a part's sum to parts `(N/PIECE, 2, C)`: index 0 of the middle axis is the
    part of a segment that began before this piece, index 1 that of one which begins here and goes on after it.
    """
    piece = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = piece * PIECE
    limit = tl.minimum(first + PIECE, num_rows)
    before, behind = id_at(ids_ptr, first - 1, num_rows, V), id_at(ids_ptr, limit, num_rows, V)
    id, total, head = before, tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)  # (C,)
    for start in range(first, limit, ROWS):
        ids, positions, rows, entries = (), (), (), ()
        for n in tl.static_range(ROWS + 1):
            ids += (id_at(ids_ptr, start + n, limit, V),)
        for n in tl.static_range(ROWS):
            positions += (tl.load(order_ptr + tl.minimum(start + n, limit - 1)),)  # int64
        for n in tl.static_range(ROWS):
            rows += (tl.load(dy_ptr + positions[n] * stride_dy + channel, channel < width, other=0.0),)  # (C,)
            ends = (ids[n] != ids[n + 1]) & (ids[n] != before) & (ids[n] != behind)  # a whole segment
            place, mask = row_of(dtable_ptr, tl.where(ends, ids[n], -1), channel, width, stride, stride_column)
            entries += ((place, mask, tl.load(place, mask, other=0.0)),)
        tl.debug_barrier()  # where threads share a channel, all of them have read it before one of them writes
        for n in tl.static_range(ROWS):
            total = tl.where(ids[n] == id, total, 0.0) + rows[n].to(tl.float32)
            id = ids[n]
            head = tl.where(id == before, total, head)
            place, mask, entry = entries[n]
            tl.store(place, (entry + total * scale).to(dtable_ptr.dtype.element_ty), mask)
    part = parts_ptr + piece.to(tl.int64) * 2 * width + channel
    begun = id_at(ids_ptr, first, num_rows, V) == before
    tl.store(part, head * scale, (channel < width) & begun)
    tl.store(part + width, total * scale, (channel < width) & (id == behind) & (id != before))


@triton.jit(do_not_specialize=["num_rows"])
def join_pieces_kernel(
    ids_ptr, parts_ptr, dtable_ptr, num_rows, V, width, stride, stride_column,
    PIECE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Join the parts of the segment that begins between two multiples of PIECE and is cut at the second, if any."""
    piece = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = piece * PIECE
    id = id_at(ids_ptr, start + PIECE - 1, num_rows, V)
    cut = id_at(ids_ptr, start + PIECE, num_rows, V) == id
    if cut & (id_at(ids_ptr, start - 1, num_rows, V) != id):
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        following = piece + 1 + tl.arange(0, ROWS)
        goes_on = cut
        while goes_on:
            inside = following * PIECE < num_rows
            same = inside & (tl.load(ids_ptr + following * PIECE, inside, other=0) == id)
            place = parts_ptr + following.to(tl.int64)[:, None] * 2 * width + channel[None, :]
            total += tl.load(place, same[:, None] & (channel < width)[None, :], other=0.0)
            following += ROWS
            goes_on = tl.sum(same.to(tl.int32), axis=0) == ROWS
        begun = tl.load(parts_ptr + (piece.to(tl.int64) * 2 + 1) * width + channel, channel < width, other=0.0)
        place, mask = row_of(dtable_ptr, id, channel, width, stride, stride_column)
        entry = tl.load(place, mask, other=0.0)
        tl.debug_barrier()  # as in `sum_pieces_kernel`
        gradient = begun + tl.sum(total, axis=0)
        tl.store(place, (entry + gradient).to(dtable_ptr.dtype.element_ty), mask)


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
        sorted_ids, order = torch.sort(_narrow(ids.reshape(-1), len(out)), stable=True)  # (N,); old positions, int64
        with on(dy):
            _scatter_add(out, sorted_ids, order, rows_of(dy), float(scale))
    return out


def _narrow(ids: Tensor, vocab_size: int) -> Tensor:
    """Return ids `(N,)` in at most 32 bits, which take half the time of 64 to sort; ids outside the table stay so."""
    ids = ids if ids.dtype.is_signed else ids.long()  # CUDA sorts no uint16
    wide = ids.dtype == torch.int64 and vocab_size < 2**31
    return ids.clamp(-1, vocab_size).to(torch.int32) if wide else ids


def embedding_backward_naive(dy: Tensor, cache: tuple) -> Tensor:
    """Compute dtable with atomic additions on a GPU: each time in another order, with other last bits."""
    ids, table_shape, dtype, scale = cache
    rows = dy.reshape(ids.numel(), table_shape[1]) * scale
    return torch.zeros(table_shape, dtype=dtype, device=dy.device).index_add_(0, ids.reshape(-1), rows)


def _scatter_add(dtable: Tensor, sorted_ids: Tensor, order: Tensor, rows: Tensor, scale: float) -> None:
    """`dtable[sorted_ids[n]] += scale · rows[order[n]]` for every n; rows `(N, C)`."""
    num_rows, width = rows.shape
    block = row_block(width, COLUMNS)
    pieces, columns = triton.cdiv(num_rows, PIECE), triton.cdiv(width, block)
    parts = torch.empty((pieces, 2, width), dtype=torch.float32, device=rows.device)
    sum_pieces_kernel[(pieces, columns)](
        rows, sorted_ids, order, parts, dtable, num_rows, len(dtable), width, rows.stride(0), *dtable.stride(), scale,
        PIECE=PIECE, ROWS=ROWS, BLOCK=block, num_warps=1,
    )  # fmt: skip
    if pieces > 1:
        join_pieces_kernel[(pieces - 1, columns)](
            sorted_ids, parts, dtable, num_rows, len(dtable), width, *dtable.stride(),
            PIECE=PIECE, ROWS=ELEMENTS // COLUMNS, BLOCK=block, num_warps=row_warps(ELEMENTS),
        )  # fmt: skip
