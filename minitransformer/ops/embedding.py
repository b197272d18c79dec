"""Looking up rows of a table by token id."""

import numpy as np

from .arguments import Array, arguments, check_ids, check_number, gradient_of


@arguments("ids<V ..., table V C", scale=check_number)
def embedding_forward(ids: Array, table: Array, scale: float = 1.0) -> tuple[Array, tuple]:
    """`y = scale · table[ids]`, `(..., C)`. The model passes `scale = √d_model`. Source: Vaswani 2017, §3.4."""
    check_ids("ids", ids, len(table))
    scale = table.dtype.type(scale)
    y = table[ids]  # a copy
    y *= scale
    return y, (ids, table, scale)


@gradient_of(
    lambda ids, table, scale: ((*ids.shape, table.shape[1]), table.dtype),
    out=lambda ids, table, scale: {"dtable": table},
)
def embedding_backward(dy: Array, cache: tuple, out: Array | None = None) -> Array:
    """`dtable[i] = scale · Σ dy[n]` over all n with `ids[n] = i`: repeated ids sum.

    `out=` adds into this array, and returns it, instead of making a new one.
    """
    ids, table, scale = cache
    dtable = np.zeros(table.shape, table.dtype) if out is None else out
    if ids.size:
        # As np.add.at, and faster: rows of equal ids are brought together and summed in one sweep.
        order = np.argsort(ids, axis=None, kind="stable")
        ordered = ids.reshape(-1)[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))  # where a new id begins; the first always does
        sums = np.add.reduceat(dy.reshape(ids.size, table.shape[1])[order], starts, axis=0)
        dtable[ordered[starts]] += scale * sums  # y = scale · table[ids]
    return dtable
