"""Lists of the blocks that a block visits in a pattern with more than a band, made on the host once for each length.

For each pair of blocks only their first and last positions are compared, so the lists cost (T / block)².
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from minitransformer.ops import Pattern


@lru_cache(maxsize=64)
def seen_by_all(pattern: Pattern, num_keys: int, device: torch.device) -> Tensor | None:
    """Return `(2, Tk)` bool: keys that every query sees, and queries that see every key; `None` if there are none."""
    places = np.arange(num_keys)
    tokens = np.isin(places, pattern.global_tokens)
    block = pattern.block or 1
    found = np.stack([tokens | (places % block >= block - pattern.summary), tokens])
    return torch.from_numpy(found).to(device) if pattern.global_tokens or pattern.summary else None


@lru_cache(maxsize=64)
def visits_of(
    pattern: Pattern,
    lengths: tuple[int, int],
    tile: tuple[int, int],
    padding: bool,
    by_keys: bool,
    device: torch.device,
) -> Tensor:
    """Return a row of int32 for each block of queries, or with `by_keys` of keys: the blocks that it visits.

    A row begins with the number of blocks that need no mask, and the number of all blocks; then come the blocks, those
    that need no mask first. `lengths` are Tq and Tk, `tile` the queries and keys of a block. With `padding` all blocks
    need a mask.
    """
    touched, whole = _pairs(pattern, *lengths, *tile)
    whole &= touched & (not padding)
    if by_keys:
        touched, whole = touched.T, whole.T
    order = np.argsort(2 - touched.astype(np.int8) - whole, axis=1, kind="stable")
    counts = np.stack([whole.sum(1), touched.sum(1)], 1)
    return torch.from_numpy(np.concatenate([counts, order], 1).astype(np.int32)).to(device)


def _pairs(pattern: Pattern, Tq: int, Tk: int, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Return True for each pair of blocks in which any query attends to any key, and for each in which all do.

    Both are `(blocks of queries, blocks of keys)`.
    """
    q = np.arange(0, Tq, queries)[:, None] + (Tk - Tq)  # the first positions of a block, and the last
    k = np.arange(0, Tk, keys)[None]
    q_last, k_last = np.minimum(q + queries, Tk) - 1, np.minimum(k + keys, Tk) - 1
    least, most = q - k_last, q_last - k  # the distances of a query after a key
    touched = whole = np.zeros((q.size, k.size), bool)
    if pattern.window is not None:
        left, right = pattern.reach
        touched = touched | ((least <= left) & (most >= -right))
        whole = whole | ((most <= left) & (least >= -right))
    if pattern.block is not None:
        mine, its = (q // pattern.block, q_last // pattern.block), (k // pattern.block, k_last // pattern.block)
        touched = touched | ((mine[0] <= its[1]) & (mine[1] >= its[0]))
        whole = whole | ((mine[0] == mine[1]) & (its[0] == its[1]) & (mine[0] == its[0]))
    if pattern.stride is not None:
        touched = touched | (most // pattern.stride * pattern.stride >= least)
        whole = whole | (pattern.stride == 1)
    by_all = seen_by_all(pattern, Tk, torch.device("cpu"))
    if by_all is not None:
        seen, seeing = by_all.numpy()
        touched = touched | _any(seen, k, k_last) | _any(seeing, q, q_last)
    if pattern.causal:
        touched, whole = touched & (k <= q_last), whole & (k_last <= q)
    return touched, whole & (q + queries <= Tk) & (k + keys <= Tk)


def _any(flags: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return True where any flag from `first` to `last` is set; positions before 0 have none."""
    counts = np.concatenate([[0], flags.cumsum()])
    return counts[np.maximum(last + 1, 0)] > counts[np.maximum(first, 0)]
