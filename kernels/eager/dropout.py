"""Dropout with the reference's masks: a hash of each element's coordinates (see `minitransformer.ops.dropout`)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from minitransformer.ops import Dropout
from minitransformer.ops.dropout import GOLDEN
from minitransformer.ops.pattern import Places

from ..checks import check_gradient, check_key, check_rows_numbered, declared

LOW_32 = 0xFFFFFFFF
"""PyTorch has no arithmetic on uint32: numbers below 2³² are kept in int64, and cut to 32 bits after each product."""


@declared
def dropout_forward(x: Tensor, dropout: Dropout | None) -> tuple[Tensor, tuple | None]:
    """`y = x · mask / (1 − rate)`; the identity when `dropout` is `None` or its rate rounds to 0."""
    if dropout is None or dropout.threshold == 0:
        return x, None
    kept = dropout_mask(tuple(x.shape), dropout, x.device)
    return x * kept * dropout.scale, (kept, dropout.scale, x.dtype)


def dropout_backward(dy: Tensor, cache: tuple | None) -> Tensor:
    """`dx = dy · mask / (1 − rate)`."""
    if cache is None:
        return dy
    kept, scale, dtype = cache
    check_gradient("dy", dy, kept.shape, dtype, kept.device)
    return dy * kept * scale


def drop_piece(
    weights: Tensor, dropout: Dropout | None, num_queries: int, num_keys: int, queries: Places, keys: Places
) -> tuple[Tensor, tuple | None]:
    """Drop a piece of attention's weights as `dropout_forward` would: those of these queries and keys out of all."""
    if dropout is None or dropout.threshold == 0:
        return weights, None
    places = (torch.arange(n, device=weights.device)[at] for n, at in ((num_queries, queries), (num_keys, keys)))
    kept = dropout_mask(tuple(weights.shape), dropout, weights.device, *places)
    return weights * kept * dropout.scale, (kept, dropout.scale, weights.dtype)


def dropout_mask(
    shape: tuple[int, ...],
    dropout: Dropout,
    device: torch.device,
    last: Tensor | None = None,
    channel: Tensor | None = None,
) -> Tensor:
    """Return the boolean mask, `True` = kept, for an x of this shape: the same as the reference's.

    `last` and `channel` number the last two axes, by default 0, 1, …
    """
    if not 1 <= len(shape) <= 4:
        raise ValueError(f"x has {len(shape)} axes, expected (N, C), (B, T, C) or (B, H, Tq, Tk)")
    rows = _row_hashes(shape[:-1], dropout, device, last)  # (...)
    channel = torch.arange(shape[-1], device=device) if channel is None else channel
    words = _mix((rows[..., None] + (channel >> 1) * GOLDEN) & LOW_32)  # (..., C)
    return (words >> 16 * (channel & 1)) & 0xFFFF >= dropout.threshold  # the even channel's are the low half


def _row_hashes(shape: tuple[int, ...], dropout: Dropout, device: torch.device, last: Tensor | None = None) -> Tensor:
    """Return a hash for each row: the key's low half, each coordinate, the key's high half, mixed in turn."""
    sentence, position = dropout.sentence, dropout.position
    if np.ndim(sentence) or np.ndim(position):
        sentence, position = (torch.as_tensor(n, dtype=torch.int64, device=device) for n in (sentence, position))
        check_rows_numbered(sentence, position, shape)
        coordinates = [sentence, position]
    else:
        lengths = (1,) * (2 - len(shape)) + shape
        axes = [
            torch.arange(length, device=device).reshape(-1, *(1,) * (len(lengths) - 1 - axis))
            for axis, length in enumerate(lengths)
        ]
        axes[-1] = axes[-1] if last is None else last
        coordinates = [axes[0] + sentence, *axes[1:-1], axes[-1] + position]
    # The key's halves stay Python numbers: as tensors they would be copied to the device, which a graph can't capture.
    hashes: Any
    hashes, high = _halves(dropout.key)
    for coordinate in (*coordinates, high):
        hashes = _mix(hashes ^ (coordinate & LOW_32))
    return hashes.reshape(shape)


def _halves(key: int | Tensor) -> tuple[int | Tensor, int | Tensor]:
    """Return the key's low and high 32 bits; a key in device memory is two int32."""
    if isinstance(key, Tensor):
        low, high = check_key(key).to(torch.int64) & LOW_32
        return low, high
    return key & LOW_32, key >> 32


def _mix(x: Tensor) -> Tensor:
    """`lowbias32` on numbers below 2³² in int64; even if a product overflows, its low half is right."""
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & LOW_32
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & LOW_32
    return x ^ (x >> 16)
