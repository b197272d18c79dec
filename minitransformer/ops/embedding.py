"""Looking up rows of a table by token id."""

import numpy as np

from .arguments import check_floats, check_gradient_of, check_ids, check_number, check_out
from .arrays import Array


def embedding_forward(ids: Array, table: Array, scale: float = 1.0) -> tuple[Array, tuple]:
    """`y = scale · table[ids]`.

    ids `(...)` integers in [0, V), table `(V, C)` → y `(..., C)`. The model passes `scale = √d_model`.
    Raises `ValueError` for an id outside the table. Source: Vaswani 2017, §3.4.
    """
    check_floats("table", table)
    if table.ndim != 2:
        raise ValueError(f"table has shape {table.shape}, expected (V, C)")
    check_ids("ids", ids, len(table))
    check_number("scale", scale)
    y = table.take(ids, axis=0)
    if scale != 1.0:
        y *= table.dtype.type(scale)
    return y, (ids, table.shape, table.dtype, scale)


def embedding_backward(dy: Array, cache: tuple, out: Array | None = None) -> Array:
    """`dtable[i] = scale · Σ dy[n]` over all n with `ids[n] = i`: repeated ids sum.

    `out=` adds into that array, and returns it, instead of making a new one.
    """
    ids, table_shape, dtype, scale = cache
    check_gradient_of("dy", dy, (*ids.shape, table_shape[1]), dtype)
    dtable = np.zeros(table_shape, dtype) if out is None else check_out("out", out, table_shape, dtype)
    scatter_add(dtable, ids.reshape(-1), dy.reshape(ids.size, table_shape[1]), scale)
    return dtable


def scatter_add(table: Array, ids: Array, rows: Array, scale: float = 1.0) -> None:
    """`table[ids[n]] += scale · rows[n]` for every n, in place; ids `(N,)`, rows `(N, C)`.

    The same as `np.add.at`, many times faster: rows of equal ids are brought together and summed in one sweep.
    """
    if not ids.size:
        return
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_ids[1:] != sorted_ids[:-1])))
    sums = np.add.reduceat(rows[order], starts, axis=0)
    if scale != 1.0:
        sums *= rows.dtype.type(scale)
    table[sorted_ids[starts]] += sums
