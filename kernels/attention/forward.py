"""The forward kernel of attention: a program for each block of queries, with an online softmax over blocks of keys.

Source: Dao et al. 2022, algorithm 1; Dao 2023, §3.1. The online softmax is Milakov and Gimelshein's (2018).
"""

import triton
import triton.language as tl

from .blocks import (
    LOG2_E,
    UNSPECIALIZED,
    blocks_of_keys,
    count_blocks,
    load_rows,
    locate,
    nth_block,
    real_keys,
    sees,
    store_rows,
)
from .dropping import hash_pairs, hash_queries, kept_weights


@triton.jit(do_not_specialize=UNSPECIALIZED)
def attention_forward_kernel(
    query, key, value, out, lse_ptr, key_mask, Tq, Tk, H, below, above, scale,
    key_ptr, key_low, key_high, threshold, dropout_scale, sentence, position,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes out, and for the backward `lse = log2 Σ_j 2^scores_ij`, `(B, H, Tq)`. The scale must not be negative."""
    block, head, b, h = locate(Tq, H, QUERIES)
    block = tl.cdiv(Tq, QUERIES) - 1 - block  # causal attention's longest blocks first: short ones fill the gaps
    queries = block * QUERIES + tl.arange(0, QUERIES)  # (M,)
    query_block = load_rows(query, b, h, queries, queries < Tq, D, BLOCK_D)  # (M, D)
    scale *= LOG2_E
    if threshold is not None:
        row_hash = hash_queries(key_ptr, key_low, key_high, sentence, position, b, h, queries)

    m = tl.full((QUERIES,), float("-inf"), tl.float32)  # the largest score so far
    l = tl.zeros((QUERIES,), tl.float32)  # Σ_j 2^(scores_j − m)
    acc = tl.zeros((QUERIES, BLOCK_DV), tl.float32)  # Σ_j 2^(scores_j − m) value_j
    blocks = blocks_of_keys(block, Tq, Tk, below, above, key_mask, b, QUERIES, KEYS)
    for MASKED in tl.static_range(2):
        for n in range(count_blocks(blocks, MASKED)):
            first_key = nth_block(n, blocks, MASKED) * KEYS
            keys = first_key + tl.arange(0, KEYS)  # (N,)
            if threshold is not None:  # computed here because it would take more registers where it is used
                pair_hash = hash_pairs(row_hash, first_key, KEYS)
            present = keys < Tk if MASKED else None
            key_block = load_rows(key, b, h, keys, present, D, BLOCK_D)  # (N, D)
            value_block = load_rows(value, b, h, keys, present, DV, BLOCK_DV)  # (N, Dv)
            scores = tl.dot(query_block, tl.trans(key_block), input_precision=PRECISION)  # (M, N)
            if MASKED:
                seen = sees(queries[:, None] + (Tk - Tq), keys[None, :], below, above)
                seen &= real_keys(key_mask, b, keys, Tk)[None, :]
                scores = tl.where(seen, scores * scale, float("-inf"))
                new_m = tl.maximum(m, tl.max(scores, 1))
                shift = tl.where(new_m == float("-inf"), 0.0, new_m)  # no key seen yet: −inf − (−inf) would be NaN
                weights = tl.exp2(scores - shift[:, None])
            else:
                new_m = tl.maximum(m, tl.max(scores, 1) * scale)
                shift = new_m
                weights = tl.exp2(scores * scale - shift[:, None])  # a fused multiply-add for each score
            rescale = tl.exp2(m - shift)
            l = l * rescale + tl.sum(weights, 1)
            if threshold is not None:
                weights = tl.where(kept_weights(pair_hash, threshold), weights, 0.0)
            acc = tl.dot(weights.to(value_block.dtype), value_block, acc * rescale[:, None], input_precision=PRECISION)
            m = new_m

    nothing = l == 0.0
    l = tl.where(nothing, 1.0, l)
    acc /= l[:, None]
    if threshold is not None:
        acc *= dropout_scale
    store_rows(out, b, h, queries, queries < Tq, acc, DV, BLOCK_DV)
    # For a query that sees nothing lse is +inf, so that the backward's weights 2^(scores − lse) are 0.
    tl.store(lse_ptr + head * Tq + queries, tl.where(nothing, float("inf"), m + tl.log2(l)), queries < Tq)
