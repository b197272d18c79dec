"""What training on rewards asks of logits: the log-probability of the tokens that were drawn, and the entropy."""

import numpy as np

from .arguments import Array, arguments, check_ids, gradient_of
from .softmax import row_maximum, total


@arguments("logits ... V≥1, ids<V ...", products=True)
def log_probs_forward(logits: Array, ids: Array) -> tuple[Array, tuple]:
    """`y = log softmax(logits)_id`: logits `(..., V)` and ids `(...)` → `(...)`.

    Raises `ValueError` for an id outside 0 … V − 1. Source: Williams 1992 (its gradient times a reward is REINFORCE's).
    """
    check_ids("ids", ids, logits.shape[-1])
    below, softmax, log_sum = _below_maximum(logits)
    return below[(*np.indices(ids.shape), ids)] - log_sum[..., 0], (softmax, ids)


@gradient_of(lambda softmax, ids: (ids.shape, softmax.dtype))
def log_probs_backward(dlog_probs: Array, cache: tuple) -> Array:
    """`dlogits = dlog_probs · (onehot − softmax(logits))`."""
    softmax, ids = cache
    dlogits = -dlog_probs[..., None] * softmax
    dlogits[(*np.indices(ids.shape), ids)] += dlog_probs
    return dlogits


@arguments("logits ... V≥1", products=True)
def entropy_forward(logits: Array) -> tuple[Array, Array]:
    """`H = −Σ_v p_v log p_v` with `p = softmax(logits)`: logits `(..., V)` → `(...)`, from 0 to log V.

    A token that is ruled out, by −inf, adds nothing and gets no gradient. Source: Shannon 1948, §6; Williams & Peng
    1991, where a bonus for entropy keeps a policy from being sure too soon.
    """
    below, p, log_sum = _below_maximum(logits)
    log_p = np.where(p == 0, 0, below - log_sum)  # 0 · −inf is NaN
    entropy = -np.vecdot(p, log_p)  # (...)
    return entropy, p * (log_p + entropy[..., None])


@gradient_of(lambda slope: (slope.shape[:-1], slope.dtype))
def entropy_backward(dentropy: Array, cache: Array) -> Array:
    """`dlogits = −dentropy · p (log p + H)`."""
    slope = cache  # p (log p + H)
    return -dentropy[..., None] * slope


def _below_maximum(logits: Array) -> tuple[Array, Array, Array]:
    """Return `z − m` for the row's maximum m, `softmax(z)`, both `(..., V)`, and `log Σ exp(z − m)`, `(..., 1)`."""
    with np.errstate(over="ignore"):  # the lowest number minus the largest is −inf, as exp needs it
        below = logits - row_maximum(logits)
    exponentials = np.exp(below)
    sums = total(exponentials)
    exponentials /= sums
    return below, exponentials, np.log(sums)
