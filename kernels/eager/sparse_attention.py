"""Attention in pieces: a sparse pattern on a long sequence costs only the pairs that it keeps.

The only difference from `attention.py` is that a query's softmax runs over all pieces that it is in.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from minitransformer.ops import Dropout
from minitransformer.ops.pattern import Piece, Places

from ..checks import check_gradient
from .dropout import drop_piece, dropout_backward
from .scores import fold, scores_backward, scores_forward
from .softmax import widened


class InPieces(NamedTuple):
    """The cache of attention in pieces."""

    query: Tensor
    key: Tensor
    value: Tensor
    parts: list[tuple]
    scale: float
    out: Tensor
    bias_shape: torch.Size | None


def forward_in_pieces(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    bias_shape: torch.Size | None,
    pieces: Iterable[Piece],
    scale: float,
    softcap: float | None,
    dropout: Dropout | None,
) -> tuple[Tensor, InPieces]:
    """Compute attention: all pieces' scores, then each query's largest score and sum, then weights and output.

    `bias_shape` is that of the part of the bias that has a gradient.
    """
    shape, wide = query.shape[:3], widened(query[:, :, :0]).dtype
    largest = query.new_full((*shape, 1), torch.finfo(wide).min, dtype=wide)
    sums, out = torch.zeros_like(largest), query.new_zeros((*shape, value.shape[3]), dtype=wide)
    spread = None if bias is None else bias.reshape(_four_axes(bias.shape))
    scored = []
    for queries, keys, mask in pieces:
        part = None if spread is None else spread[_where(spread.shape, queries, keys)]
        scores, capped = scores_forward(query[:, :, queries], key[:, :, keys], part, mask, scale, softcap)
        if scores.numel():
            largest[:, :, queries] = torch.maximum(largest[:, :, queries], scores.detach().amax(-1, keepdim=True))
        scored.append((queries, keys, scores, capped))
    parts = []
    for queries, keys, scores, capped in scored:
        exponentials = torch.exp(widened(scores) - largest[:, :, queries])
        sums[:, :, queries] += exponentials.sum(-1, keepdim=True)
        parts.append((queries, keys, exponentials, capped))
    sums, kept = sums.clamp(min=1), []  # the sum is 0 for a query with nothing to attend to, else at least 1
    for queries, keys, exponentials, capped in parts:
        weights = (exponentials / sums[:, :, queries]).to(query.dtype)
        dropped, dropout_cache = drop_piece(weights, dropout, query.shape[2], key.shape[2], queries, keys)
        out[:, :, queries] += (fold(dropped, key) @ value[:, :, keys]).reshape(*weights.shape[:3], value.shape[3])
        kept.append((queries, keys, weights, dropped, dropout_cache, capped))
    out = out.to(query.dtype)
    return out, InPieces(query, key, value, kept, scale, out, bias_shape)


def backward_in_pieces(dout: Tensor, cache: InPieces) -> tuple[Tensor, ...]:
    """Gradients `(dquery, dkey, dvalue)`, and dbias if there is a bias; a key in several pieces gets their sum."""
    query, key, value, parts, scale, out, bias_shape = cache
    check_gradient("dout", dout, out.shape, out.dtype, out.device)
    dquery, dkey, dvalue = (torch.zeros_like(widened(array)) for array in (query, key, value))
    dbias = None if bias_shape is None else dquery.new_zeros(_four_axes(bias_shape))
    # The softmax's sum Σ_j dweights_j weights_j over all pieces: out = Σ_j dropped_j value_j, so it is dout · out.
    sums = (widened(dout) * widened(out)).sum(-1, keepdim=True)  # (B, H, Tq, 1)
    for queries, keys, weights, dropped, dropout_cache, capped in parts:
        dpart = fold(dout[:, :, queries], key)
        dvalue[:, :, keys] += fold(dropped, key).mT @ dpart
        ddropped = (dpart @ value[:, :, keys].mT).reshape(weights.shape)
        dweights = widened(dropout_backward(ddropped, dropout_cache))
        dscores = (dweights - sums[:, :, queries]) * widened(weights)
        dquery_part, dkey_part = scores_backward(dscores, query[:, :, queries], key[:, :, keys], scale, capped)
        dquery[:, :, queries] += dquery_part
        dkey[:, :, keys] += dkey_part
        if dbias is not None:
            place = _where(dbias.shape, queries, keys)
            dbias[place] += dscores.sum_to_size(dbias[place].shape)
    gradients = [gradient.to(query.dtype) for gradient in (dquery, dkey, dvalue)]
    return tuple(gradients if dbias is None else [*gradients, dbias.reshape(bias_shape).to(query.dtype)])


def _four_axes(shape: torch.Size) -> tuple[int, ...]:
    return (1,) * (4 - len(shape)) + tuple(shape)


def _where(shape: torch.Size, queries: Places, keys: Places) -> tuple:
    """Return the index of these queries and keys in a bias: everything along an axis that it is broadcast along."""
    everything = slice(None)
    return ..., everything if shape[2] == 1 else queries, everything if shape[3] == 1 else keys
