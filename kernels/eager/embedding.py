"""Looking up rows of a table by token id."""

import torch
from torch import Tensor

from ..checks import check_gradient, check_out, declared
from .softmax import widened


@declared
def embedding_forward(ids: Tensor, table: Tensor, scale: float = 1.0) -> tuple[Tensor, tuple]:
    """`y = scale · table[ids]`; ids `(...)`, table `(V, C)` → y `(..., C)`, a row of NaN for a wrong id."""
    ids = ids.to(torch.int64)  # PyTorch takes uint8 for a mask
    known = (ids >= 0) & (ids < len(table))  # the host does not check ids on a GPU; for PyTorch −1 is the last row
    ids = torch.where(known, ids, 0)
    y = table[ids]
    if scale != 1.0:
        y = y * scale
    return y.masked_fill_(~known[..., None], torch.nan), (ids, known, table.shape, table.dtype, scale)


def embedding_backward(dy: Tensor, cache: tuple, out: Tensor | None = None) -> Tensor:
    """`dtable[i] = scale · Σ dy[n]` over all n with `ids[n] = i`; `out=` adds into this tensor and returns it."""
    ids, known, table_shape, dtype, scale = cache
    check_gradient("dy", dy, (*ids.shape, table_shape[1]), dtype, ids.device)
    if out is not None:
        check_out("out", out, table_shape, dtype, dy.device)
    rows = (widened(dy) * scale).masked_fill_(~known[..., None], 0).reshape(-1, table_shape[1])
    total = out
    if total is None or total.dtype != rows.dtype:  # a narrower total would round each sum
        total = torch.zeros(table_shape, dtype=rows.dtype, device=dy.device)
    # Not index_add_, which on a GPU adds in another order each time.
    total.index_put_((ids.reshape(-1),), rows, accumulate=True)
    if out is None:
        return total.to(dtype)
    return out if out is total else out.add_(total)
