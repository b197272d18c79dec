"""Cross-entropy with label smoothing."""

import numpy as np

from .arguments import (
    check_flag,
    check_floats,
    check_ids,
    check_ignore_index,
    check_number,
    check_out,
    check_scalar,
    check_shape,
)
from .arrays import Array, quiet_products
from .softmax import below_max, finite_max

BLOCK_LOGITS = 1 << 21
"""Logits computed at a time by the fused op: enough for an efficient product, few enough for any memory."""


def cross_entropy_forward(
    logits: Array, targets: Array, label_smoothing: float = 0.0, ignore_index: int | None = None
) -> tuple[Array, tuple]:
    """`−Σ_v q_v log softmax(logits)_v`, averaged over the targets that count, with `q = (1 − ε)·onehot + ε/V`.

    logits `(..., V)`, targets `(...)` integers in [0, V) or equal to `ignore_index`, which do not count → a scalar.
    Equals `torch.nn.functional.cross_entropy`, except that no target at all gives 0, not NaN. Raises `ValueError` for a
    target out of range. Source: Szegedy et al. 2016, §7; Vaswani 2017, §5.4 (ε = 0.1).
    """
    check_floats("logits", logits)
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits has shape {logits.shape}, expected (..., V) with V ≥ 1")
    counted, vocab_size = _counted(targets, logits.shape[:-1], logits.shape[-1], label_smoothing, ignore_index)
    rows, ids = logits.reshape(-1, vocab_size)[counted], targets.reshape(-1)[counted]  # (N, V), (N,)
    shifted = below_max(rows)
    # −Σ_v q_v (z_v − log Σ exp z) = log Σ exp z − Σ_v q_v z_v, since q sums to 1
    expected = (1 - label_smoothing) * shifted[np.arange(len(ids)), ids]
    if label_smoothing:  # 0 times the −inf of a token that is ruled out would be NaN
        expected += label_smoothing * shifted.mean(axis=-1)
    probabilities = np.exp(shifted)
    total = probabilities.sum(axis=-1)
    probabilities /= total[:, None]
    loss = (np.log(total) - expected).sum(dtype=logits.dtype) / max(1, len(ids))
    return logits.dtype.type(loss), (probabilities, ids, counted, logits.shape, label_smoothing)


def cross_entropy_backward(dloss: Array | float, cache: tuple) -> Array:
    """`dlogits = dloss · (softmax(logits) − q) / N`, N the targets that count; zero where a target is ignored."""
    probabilities, ids, counted, shape, label_smoothing = cache
    dtype = probabilities.dtype
    dloss = check_scalar("dloss", dloss)
    drows = probabilities - dtype.type(label_smoothing / shape[-1])
    drows[np.arange(len(ids)), ids] -= dtype.type(1 - label_smoothing)
    drows *= dtype.type(dloss) / dtype.type(max(1, len(ids)))
    dlogits = np.zeros(shape, dtype)
    dlogits.reshape(-1, shape[-1])[counted] = drows
    return dlogits


@quiet_products
def linear_cross_entropy_forward(
    x: Array,
    table: Array,
    targets: Array,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    with_grad: bool = True,
) -> tuple[Array, tuple | None]:
    """`cross_entropy(x @ tableᵀ, targets)`: the output projection and its loss in one op.

    x `(N, C)`, table `(V, C)`, targets `(N,)` → a scalar. The N·V logits exist one block of rows at a time, and only
    for targets that count; with `with_grad` each block also gives its gradient while it is there, for `dloss = 1`.
    Source: Vaswani 2017, §3.4 and §5.4.
    """
    dtype = check_floats("x table", x, table)
    check_flag("with_grad", with_grad)
    if x.ndim != 2 or table.ndim != 2 or x.shape[1] != table.shape[1]:
        raise ValueError(f"x has shape {x.shape} and table {table.shape}, expected (N, C) and (V, C)")
    counted, vocab_size = _counted(targets, x.shape[:1], len(table), label_smoothing, ignore_index)
    rows, ids = x[counted], targets[counted]  # (N, C), (N,)
    dtable = np.zeros_like(table, order="C") if with_grad else None
    drows = np.empty_like(rows)
    column_mean = table.mean(axis=0)  # Σ_v table_v / V: the smoothing's share of the expected logit
    step = max(1, BLOCK_LOGITS // vocab_size)
    loss = dtype.type(0)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        loss += _block(rows[block], table, ids[block], label_smoothing, column_mean, drows[block], dtable)
    count = dtype.type(max(1, len(ids)))
    if dtable is None:
        return loss / count, None
    dx = np.zeros_like(x, order="C")
    dx[counted] = drows / count
    dtable /= count
    return loss / count, (dx, dtable)


def linear_cross_entropy_backward(
    dloss: Array | float, cache: tuple | None, out: Array | None = None
) -> tuple[Array, Array]:
    """Gradients `(dx, dtable)`: the forward's, times dloss.

    `out=` adds dtable into that array, and returns it. Raises `ValueError` after a forward with `with_grad=False`.
    """
    if cache is None:
        raise ValueError("the forward was called with with_grad=False and kept no gradient")
    dx, dtable = cache
    factor = dx.dtype.type(check_scalar("dloss", dloss))
    if out is None:
        return dx * factor, dtable * factor
    check_out("out", out, dtable.shape, dtable.dtype)
    out += dtable * factor
    return dx * factor, out


def _block(
    rows: Array,
    table: Array,
    ids: Array,
    label_smoothing: float,
    column_mean: Array,
    drows: Array,
    dtable: Array | None,
) -> Array:
    """The summed loss of a block of rows; its gradient is written to `drows` and added to `dtable`.

    In the clear form, `dlogits = softmax(rows @ tableᵀ) − (1 − ε)·onehot − ε/V`, `drows = dlogits @ table` and
    `dtable += dlogitsᵀ @ rows`. Here the normalisation and the smoothing are moved past the products, onto arrays of C
    columns instead of V. The target is subtracted before them: where the model is sure, it all but cancels.
    """
    dtype = rows.dtype
    confidence, smoothing = dtype.type(1 - label_smoothing), dtype.type(label_smoothing)
    logits = rows @ table.T  # (N, V)
    maximum = finite_max(logits)
    target = np.arange(len(ids)), ids
    expected = confidence * logits[target] + smoothing * (rows @ column_mean)  # Σ_v q_v logit_v
    exponentials = np.exp(np.subtract(logits, maximum, out=logits), out=logits)
    total = exponentials.sum(axis=-1)  # (N,); pairwise: a product with ones loses the many small ones to the large one
    loss = (np.log(total) + maximum[:, 0] - expected).sum(dtype=dtype)
    if dtable is not None:
        exponentials[target] -= confidence * total
        np.matmul(exponentials, table, out=drows)
        drows /= total[:, None]
        drows -= smoothing * column_mean
        dtable += exponentials.T @ (rows / total[:, None])
        dtable -= smoothing / dtype.type(len(table)) * rows.sum(axis=0)
    return loss


def _counted(
    targets: Array, shape: tuple[int, ...], vocab_size: int, label_smoothing: float, ignore_index: int | None
) -> tuple[Array, int]:
    """A flat boolean array, `True` where a target counts; and V."""
    check_number("label_smoothing", label_smoothing, at_least=0.0, at_most=1.0)
    ignore_index = check_ignore_index(ignore_index)
    check_ids("targets", targets, vocab_size, ignore=ignore_index)
    check_shape("targets", targets, shape)
    flat = targets.reshape(-1)
    return (np.ones(flat.shape, bool) if ignore_index is None else flat != ignore_index), vocab_size
