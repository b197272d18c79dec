"""The log-probability of the tokens that were drawn, and the entropy."""

import torch
from torch import Tensor

from ..checks import check_gradient, declared
from .softmax import log_softmax


@declared
def log_probs_forward(logits: Tensor, ids: Tensor) -> tuple[Tensor, tuple]:
    """`y = log softmax(logits)_id`; float32 if logits `(..., V)` are narrower, since a ratio is made of two such."""
    log_probs = log_softmax(logits)  # (..., V)
    known = (ids >= 0) & (ids < logits.shape[-1])  # on a GPU an unknown id, and its gradient, are NaN
    place = torch.where(known, ids, 0).to(torch.int64)[..., None]
    return log_probs.gather(-1, place)[..., 0].masked_fill(~known, torch.nan), (log_probs, place, known, logits.dtype)


def log_probs_backward(dlog_probs: Tensor, cache: tuple) -> Tensor:
    """`dlogits = dlog_probs · (onehot − softmax(logits))`."""
    log_probs, place, known, dtype = cache
    check_gradient("dlog_probs", dlog_probs, known.shape, log_probs.dtype, known.device)
    dlog_probs = dlog_probs.masked_fill(~known, torch.nan)[..., None]
    return (-dlog_probs * log_probs.exp()).scatter_add_(-1, place, dlog_probs).to(dtype)


@declared
def entropy_forward(logits: Tensor) -> tuple[Tensor, tuple]:
    """`H = −Σ_v p_v log p_v` with `p = softmax(logits)`; float32 if logits `(..., V)` are narrower."""
    log_p = log_softmax(logits)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0)  # 0 · −inf is NaN
    entropy = -(p * log_p).sum(-1)
    return entropy, (p, log_p, entropy, logits.dtype)


def entropy_backward(dentropy: Tensor, cache: tuple) -> Tensor:
    """`dlogits = −dentropy · p (log p + H)`."""
    p, log_p, entropy, dtype = cache
    check_gradient("dentropy", dentropy, entropy.shape, entropy.dtype, entropy.device)
    return (-dentropy[..., None] * p * (log_p + entropy[..., None])).to(dtype)
