"""Cross-entropy with label smoothing, alone and fused with the output projection."""

from functools import partial

import numpy as np

from .arguments import (
    Array,
    arguments,
    check_flag,
    check_ids,
    check_integer,
    check_number,
    check_probabilities,
    check_scalar,
    gradient_of,
)
from .softmax import row_maximum

int32 = partial(check_integer, at_least=-(2**31), at_most=2**31 - 1)

BLOCK_LOGITS = 1 << 21
"""Logits computed at a time by the fused op: enough for an efficient product, few enough for any memory."""


@arguments("logits ... V≥1, targets~V ..., weights?:fixed ...", ignore_index=int32)
def cross_entropy_forward(
    logits: Array,
    targets: Array,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    *,
    weights: Array | None = None,
) -> tuple[Array, tuple]:
    """`−Σ_v q_v log softmax(logits)_v`, averaged over the targets that count, with `q = (1 − ε)·onehot + ε/V`.

    Targets are ids `(...)`, or probabilities `(..., V)`, which take the place of onehot and have no gradient
    (distillation: Hinton, Vinyals, Dean 2015); that they add up to 1 is left to the caller. Ids equal to `ignore_index`
    do not count; it need not be an id of the vocabulary. The value is that of `torch.nn.functional.cross_entropy`,
    except that no target at all gives 0, not NaN. With weights w `(...)` it is `Σ_i w_i · loss_i / N`, where N
    is the number of targets that count, not `Σ_i w_i`: rewards, of any sign, which have no gradient.
    Source: Szegedy et al. 2016, §7; Vaswani 2017, §5.4 (ε = 0.1); Williams 1992 (rewards).
    """
    if targets.ndim == logits.ndim:
        return _towards_probabilities(logits, targets, label_smoothing, ignore_index, weights)
    counted = _counted(targets, logits.shape[-1], label_smoothing, ignore_index)
    rows = logits.reshape(-1, logits.shape[-1])[counted]  # (N, V), a copy
    chosen = None if weights is None else weights.reshape(-1)[counted]
    loss = _loss_in_place(rows, targets.reshape(-1)[counted], label_smoothing, chosen)
    count = rows.dtype.type(max(1, len(rows)))
    return loss / count, (rows, counted, logits.shape, count)


@gradient_of(lambda gradient, counted, shape, count: None)
def cross_entropy_backward(dloss: Array | float, cache: tuple) -> Array:
    """`dlogits = dloss · w (softmax(logits) − q) / N` for N targets that count; zero where a target is ignored."""
    gradient, counted, shape, count = cache
    dlogits = np.zeros(shape, gradient.dtype)
    dlogits.reshape(-1, shape[-1])[counted] = gradient * (gradient.dtype.type(check_scalar("dloss", dloss)) / count)
    return dlogits


@arguments("x N C, table V≥1 C, targets<V N, weights?:fixed N", ignore_index=int32, with_grad=check_flag, products=True)
def linear_cross_entropy_forward(
    x: Array,
    table: Array,
    targets: Array,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    with_grad: bool = True,
    *,
    weights: Array | None = None,
) -> tuple[Array, tuple | None]:
    """`cross_entropy(x @ tableᵀ, targets)`: the output projection and its loss in one op.

    The N·V logits exist one block of rows at a time, and only for targets that count; with `with_grad` the gradients
    for `dloss = 1` are computed here too, while a block is there. Source: Vaswani 2017, §3.4 and §5.4.
    """
    counted = _counted(targets, len(table), label_smoothing, ignore_index)
    rows, ids, weights = x[counted], targets[counted], None if weights is None else weights[counted]  # (N, C), (N,)
    count = x.dtype.type(max(1, len(rows)))
    loss, drows, dtable = x.dtype.type(0), np.empty_like(rows), np.zeros(table.shape, table.dtype)
    size = max(1, BLOCK_LOGITS // len(table))
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        logits = rows[block] @ table.T  # (rows, V)
        loss += _loss_in_place(logits, ids[block], label_smoothing, None if weights is None else weights[block])
        if with_grad:
            dlogits = logits  # their gradient was written over them
            np.matmul(dlogits, table, out=drows[block])  # logits = rows @ tableᵀ
            dtable += dlogits.T @ rows[block]
    if not with_grad:
        return loss / count, None
    dx = np.zeros(x.shape, x.dtype)
    dx[counted] = drows / count
    dtable /= count
    return loss / count, (dx, dtable)


@gradient_of(lambda dx, dtable: None, out=lambda dx, dtable: {"dtable": dtable})
def linear_cross_entropy_backward(
    dloss: Array | float, cache: tuple | None, out: Array | None = None
) -> tuple[Array, Array]:
    """Gradients `(dx, dtable)`: those that the forward computed, times dloss.

    `out=` adds dtable into this array, and returns it. Raises `ValueError` after a forward with `with_grad=False`.
    """
    if cache is None:
        raise ValueError("the forward was called with with_grad=False and kept no gradient")
    dx, dtable = cache
    factor = dx.dtype.type(check_scalar("dloss", dloss))
    return dx * factor, dtable * factor if out is None else np.add(out, dtable * factor, out=out)


def _loss_in_place(logits: Array, ids: Array, label_smoothing: float, weights: Array | None) -> Array:
    """Return the weighted sum of the losses of logits `(N, V)`; writes its gradient, `w (softmax − q)`, over them."""
    dtype, target = logits.dtype, (np.arange(len(ids)), ids)
    smoothing, confidence = dtype.type(label_smoothing), dtype.type(1 - label_smoothing)
    with np.errstate(over="ignore"):  # the lowest number minus the largest is −inf, as exp needs it
        logits -= row_maximum(logits)
    # −Σ_v q_v (z_v − log Σ exp z) = log Σ exp z − Σ_v q_v z_v, since q sums to 1; 0 · −inf, if ruled out, is NaN
    expected = confidence * logits[target] + (smoothing * logits.mean(axis=-1) if label_smoothing else 0)
    probabilities = np.exp(logits, out=logits)
    total = probabilities.sum(axis=-1)  # pairwise: a product with ones would lose the many small ones
    probabilities /= total[:, None]
    probabilities -= smoothing / dtype.type(logits.shape[1])
    probabilities[target] -= confidence
    if weights is not None:
        probabilities *= weights[:, None]
    return ((np.log(total) - expected) * (1 if weights is None else weights)).sum(dtype=dtype)


def _towards_probabilities(
    logits: Array, targets: Array, label_smoothing: float, ignore_index: int | None, weights: Array | None
) -> tuple[Array, tuple]:
    """Return the loss of `cross_entropy_forward` and its cache where targets are probabilities, which all count."""
    check_number("label_smoothing", label_smoothing, at_least=0.0, at_most=1.0)
    check_all_count(ignore_index)
    check_probabilities("targets", targets)
    dtype, vocab_size = logits.dtype, logits.shape[-1]
    q = targets.reshape(-1, vocab_size) * dtype.type(1 - label_smoothing)  # (N, V)
    q += dtype.type(label_smoothing / vocab_size)
    rows = logits.reshape(-1, vocab_size)
    with np.errstate(over="ignore"):  # the lowest number minus the largest is −inf, as exp needs it
        rows = rows - row_maximum(rows)
    expected = np.multiply(q, rows, out=np.zeros_like(rows), where=q != 0).sum(axis=-1)  # 0 · −inf is NaN
    softmax = np.exp(rows, out=rows)
    total, mass = softmax.sum(axis=-1), q.sum(axis=-1)
    # −Σ_v q_v (z_v − log Σ exp z) = log Σ exp z · Σ_v q_v − Σ_v q_v z_v
    losses = np.log(total) * mass - expected
    softmax *= (mass / total)[:, None]
    softmax -= q
    if weights is not None:
        losses *= weights.reshape(-1)
        softmax *= weights.reshape(-1, 1)
    count = dtype.type(max(1, len(q)))
    return losses.sum(dtype=dtype) / count, (softmax, np.ones(len(q), bool), logits.shape, count)


def check_all_count(ignore_index: int | None) -> None:
    """Raise `ValueError` for an `ignore_index` beside probabilities: none of them is a target to ignore."""
    if ignore_index is not None:
        raise ValueError(f"ignore_index is {ignore_index}, expected None where targets are probabilities")


def _counted(targets: Array, vocab_size: int, label_smoothing: float, ignore_index: int | None) -> Array:
    """A flat boolean array, `True` where a target counts. Raises for an id or an option that would give nonsense."""
    check_number("label_smoothing", label_smoothing, at_least=0.0, at_most=1.0)
    check_ids("targets", targets, vocab_size, ignore_index)
    flat = targets.reshape(-1)
    return np.ones(flat.shape, bool) if ignore_index is None else flat != ignore_index
