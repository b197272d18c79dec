"""The forward kernel of attention: a program for each block of queries, with an online softmax over blocks of keys.

Source: Dao et al. 2022, algorithm 1; Dao 2023, §3.1. The online softmax is Milakov and Gimelshein's (2018).
"""

import triton
import triton.language as tl

from ..logits import multiple
from .blocks import (
    LOG2_E,
    UNSPECIALIZED,
    block_in_order,
    blocks_of_keys,
    count_blocks,
    key_head,
    list_of,
    load_block,
    load_rows,
    locate,
    locate_packed,
    nth_block,
    part_of,
    real_keys,
    sees,
    store_softmax,
)
from .dropping import hash_pairs, hash_queries, kept_weights
from .scores import distance, load_bias, load_slope, tanh


@triton.jit(do_not_specialize=UNSPECIALIZED)
def attention_forward_kernel(
    query, key, value, out, lse_ptr, key_blocks, value_blocks, key_mask, bias, slopes, starts,
    Tq, Tk, H, num_queries, below, above, sparse, visits, scale, softcap,
    key_ptr, key_low, key_high, threshold, dropout_scale, sentence, position,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr, LEAD: tl.constexpr, HOISTED: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Write out, and for the backward `lse = log2 Σ_j 2^scores_ij`, `(B, H, Tq)`. The scale must not be negative.

    With `LEAD = 1` the product of queries and keys is a block ahead: it is issued before the softmax of the block
    before it, so that tensor cores that work asynchronously need not wait for the softmax. If programs along axis 1
    share the keys of a block of queries (`SHARED`), each writes out and lse of its part, one part behind the other.
    With `starts` of packed sentences Tq and Tk are the longest lengths, and lse is `(H, num_queries)`.
    """
    block, head, b, h = locate(Tq, H, QUERIES)
    block = tl.cdiv(Tq, QUERIES) - 1 - block  # causal attention's longest blocks first: short ones fill the gaps
    at_query, at_key = b, b
    if starts is not None:
        at_query, at_key, Tq, Tk = locate_packed(starts, b)
        if block * QUERIES >= Tq:
            return
    span, kv_head = tl.arange(0, KEYS), key_head(h, GROUP)
    queries = block * QUERIES + tl.arange(0, QUERIES)  # (M,)
    query_block = load_rows(
        query, at_query, h, block * QUERIES, tl.arange(0, QUERIES), queries < Tq, D, BLOCK_D
    )  # (M, D)
    if softcap is not None:
        squeezed, scale = scale / softcap, softcap
    scale *= LOG2_E
    if slopes is not None:
        slope = load_slope(slopes, b, h)
    if threshold is not None:
        row_hash = hash_queries(key_ptr, key_low, key_high, sentence, position, b, h, queries)

    m = tl.full((QUERIES,), float("-inf"), tl.float32)  # the largest score so far
    l = tl.zeros((QUERIES,), tl.float32)  # Σ_j 2^(scores_j − m)
    acc = tl.zeros((QUERIES, BLOCK_DV), tl.float32)  # Σ_j 2^(scores_j − m) value_j
    listed = None if visits is None else list_of(visits, block, Tk, KEYS)
    blocks = blocks_of_keys(block, Tq, Tk, below, above, listed, key_mask, b, QUERIES, KEYS)
    if SHARED:
        blocks = part_of(blocks, tl.program_id(1), tl.num_programs(1))
    if LEAD:
        inner = count_blocks(blocks, False)
        total = inner + count_blocks(blocks, True)
        first_key = block_in_order(0, blocks, listed, True) * KEYS
        there = (first_key + span < Tk) & (total > 0)
        key_block = load_block(key_blocks, key, at_key, kv_head, first_key, span, there, D, BLOCK_D)  # (N, D)
        ahead = tl.dot(query_block, tl.trans(key_block), input_precision=PRECISION)  # (M, N)
    for MASKED in tl.static_range(2):
        start, stop = 0, count_blocks(blocks, MASKED)
        if LEAD:  # the last inner block is the first of the loop with masks, so that neither loop needs a branch
            start, stop = tl.maximum(inner - 1, 0) if MASKED else 0, total if MASKED else inner - 1
        for n in range(start, stop):
            place = block_in_order(n, blocks, listed, MASKED) if LEAD else nth_block(n, blocks, listed, MASKED)
            first_key = place * KEYS
            keys = first_key + span  # (N,)
            present = keys < Tk if MASKED else None
            if LEAD:
                later = tl.minimum(n + 1, total - 1) if MASKED else n + 1
                next_key = block_in_order(later, blocks, listed, MASKED) * KEYS
                exist = (next_key + span < Tk) & (n + 1 < total) if MASKED else None
                scores = ahead
                value_block = load_block(
                    value_blocks, value, at_key, kv_head, first_key, span, present, DV, BLOCK_DV, HOISTED
                )
                key_block = load_block(key_blocks, key, at_key, kv_head, next_key, span, exist, D, BLOCK_D, HOISTED)
                ahead = tl.dot(query_block, tl.trans(key_block), input_precision=PRECISION)
            if threshold is not None:  # computed here because it would take more registers where it is used
                pair_hash = hash_pairs(row_hash, first_key, KEYS)
            if not LEAD:
                key_block = load_block(key_blocks, key, at_key, kv_head, first_key, span, present, D, BLOCK_D, HOISTED)
                value_block = load_block(
                    value_blocks, value, at_key, kv_head, first_key, span, present, DV, BLOCK_DV, HOISTED
                )
                scores = tl.dot(query_block, tl.trans(key_block), input_precision=PRECISION)
            if softcap is not None:
                scores = tanh(scores * squeezed)
            if MASKED:
                seen = sees(queries[:, None] + (Tk - Tq), keys[None, :], below, above, sparse, Tk)
                seen &= real_keys(key_mask, b, keys, Tk)[None, :]
            if MASKED or bias is not None or slopes is not None:
                scores *= scale
                if slopes is not None:
                    scores -= slope * distance(queries[:, None] + (Tk - Tq), keys[None, :])
                if bias is not None:
                    within = (queries < Tq)[:, None]
                    if MASKED:
                        within &= (keys < multiple(Tk, ALIGNED))[None, :]
                    scores += load_bias(bias, b, h, queries[:, None], keys[None, :], within)
                if MASKED:
                    scores = tl.where(seen, scores, float("-inf"))
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

    if SHARED:
        head += tl.program_id(1).to(tl.int64) * (tl.num_programs(0) // tl.cdiv(Tq, QUERIES))
        at_query, h = tl.zeros_like(b), head
    first_row = head * Tq if starts is None else h * num_queries + at_query
    store_softmax(out, lse_ptr + first_row, at_query, h, queries, queries < Tq, m, l, acc, dropout_scale, DV, BLOCK_DV)


@triton.jit(do_not_specialize=["Tq", "H", "heads", "parts"])
def attention_merge_kernel(
    parts_ptr, lse_parts_ptr, out, lse_ptr, Tq, H, heads, parts,
    DV: tl.constexpr, BLOCK_DV: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Merge the results of the parts `(parts, B·H, Tq, Dv)`: `out = Σ_p 2^(lse_p − lse) out_p`."""
    block, head, b, h = locate(Tq, H, QUERIES)
    queries, column = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, BLOCK_DV)
    present = queries < Tq
    m = tl.full((QUERIES,), float("-inf"), tl.float32)
    l = tl.zeros((QUERIES,), tl.float32)
    acc = tl.zeros((QUERIES, BLOCK_DV), tl.float32)
    for part in range(parts):
        rows = (part * heads + head) * Tq + queries  # (M,)
        lse = tl.load(lse_parts_ptr + rows, present, other=float("inf"))
        lse = tl.where(lse == float("inf"), float("-inf"), lse)  # nothing was seen in this part
        part_out = tl.load(
            parts_ptr + rows[:, None] * DV + column[None, :], present[:, None] & (column < DV)[None, :], other=0.0
        )
        new_m = tl.maximum(m, lse)
        shift = tl.where(new_m > float("-inf"), new_m, 0.0)
        weight, rescale = tl.exp2(lse - shift), tl.exp2(m - shift)
        l = tl.fma(l, rescale, weight)
        acc = tl.fma(acc, rescale[:, None], part_out * weight[:, None])
        m = new_m
    store_softmax(out, lse_ptr + head * Tq, b, h, queries, present, m, l, acc, None, DV, BLOCK_DV)
