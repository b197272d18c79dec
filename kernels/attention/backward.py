"""The backward kernels of attention: the weights are computed again from the log-sum-exp.

With weights P = softmax(S), their dropped and rescaled copy P', and dP' = dout valueᵀ:

    dvalue = P'ᵀ dout      dS = P ∘ (dP − delta)      dquery = scale · dS key      dkey = scale · dSᵀ query

where dP is dP' through the same dropout, and a row's delta = Σ_j P_ij dP_ij = dout_i · out_i. dquery is a sum over
keys, dkey and dvalue are sums over queries: so there are two kernels, whose programs own the rows that they write. They
need no atomics, and a second run gives the same bits. Source: Dao et al. 2022, appendix B.2 and algorithm 4; Dao 2023,
§3.1.
"""

import triton
import triton.language as tl

from ..logits import multiple
from .blocks import (
    LOG2_E,
    UNSPECIALIZED,
    blocks_of_keys,
    blocks_of_queries,
    count_blocks,
    key_head,
    list_of,
    load_numbers,
    load_rows,
    locate,
    locate_packed,
    nth_block,
    real_keys,
    sees,
    store_rows,
)
from .dropping import (
    hash_pairs,
    hash_pairs_transposed,
    hash_queries,
    kept_weights,
    kept_weights_transposed,
    paired_order,
)
from .scores import distance, load_bias, load_slope, tanh


@triton.jit(do_not_specialize=UNSPECIALIZED)
def attention_dquery_kernel(
    query, key, value, out, dout, dquery, lse_ptr, delta_ptr, hash_ptr, key_mask, bias, slopes, starts,
    Tq, Tk, H, num_queries, below, above, sparse, visits, scale, softcap,
    key_ptr, key_low, key_high, threshold, dropout_scale, sentence, position,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr, HOISTED: tl.constexpr,
):  # fmt: skip
    """Write dquery, and for the other kernel delta and, with dropout, the rows' hashes, in lse's shape."""
    block, head, b, h = locate(Tq, H, QUERIES)
    block = tl.cdiv(Tq, QUERIES) - 1 - block  # as in the forward
    at_query, at_key = b, b
    if starts is not None:
        at_query, at_key, Tq, Tk = locate_packed(starts, b)
        if block * QUERIES >= Tq:
            return
    rows, span, kv_head = tl.arange(0, QUERIES), tl.arange(0, KEYS), key_head(h, GROUP)
    queries = block * QUERIES + rows  # (M,)
    query_block = load_rows(query, at_query, h, block * QUERIES, rows, queries < Tq, D, BLOCK_D)  # (M, D)
    dout_block = load_rows(dout, at_query, h, block * QUERIES, rows, queries < Tq, DV, BLOCK_DV)  # (M, Dv)
    out_block = load_rows(out, at_query, h, block * QUERIES, rows, queries < Tq, DV, BLOCK_DV)  # (M, Dv)
    first_row = head * Tq if starts is None else h * num_queries + at_query
    lse = tl.load(lse_ptr + first_row + queries, queries < Tq, other=float("inf"))  # (M,)
    delta = tl.sum(dout_block.to(tl.float32) * out_block.to(tl.float32), 1)  # (M,)
    tl.store(delta_ptr + first_row + queries, delta, queries < Tq)
    if threshold is not None:
        row_hash = hash_queries(key_ptr, key_low, key_high, sentence, position, b, h, queries)
        tl.store(hash_ptr + first_row + queries, row_hash.to(tl.int32, bitcast=True), queries < Tq)

    if slopes is not None:
        slope = load_slope(slopes, b, h)
    dquery_block = tl.zeros((QUERIES, BLOCK_D), tl.float32)
    listed = None if visits is None else list_of(visits, block, Tk, KEYS)
    blocks = blocks_of_keys(block, Tq, Tk, below, above, listed, key_mask, b, QUERIES, KEYS)
    for MASKED in tl.static_range(2):
        for n in range(count_blocks(blocks, MASKED)):
            first_key = nth_block(n, blocks, listed, MASKED) * KEYS
            keys = first_key + span  # (N,)
            if threshold is not None:
                pair_hash = hash_pairs(row_hash, first_key, KEYS)
            present = keys < Tk if MASKED else None
            key_block = load_rows(key, at_key, kv_head, first_key, span, present, D, BLOCK_D, HOISTED)  # (N, D)
            value_block = load_rows(value, at_key, kv_head, first_key, span, present, DV, BLOCK_DV, HOISTED)  # (N, Dv)
            scores = tl.dot(query_block, tl.trans(key_block), input_precision=PRECISION)  # (M, N)
            if softcap is not None:
                capped = tanh(scores * (scale / softcap))
                scores = capped * (softcap * LOG2_E)
            else:
                scores *= scale * LOG2_E
            if slopes is not None:
                scores -= slope * distance(queries[:, None] + (Tk - Tq), keys[None, :])
            if bias is not None:
                within = (queries < Tq)[:, None]
                if MASKED:
                    within &= (keys < multiple(Tk, ALIGNED))[None, :]
                scores += load_bias(bias, b, h, queries[:, None], keys[None, :], within)
            if MASKED:
                seen = sees(queries[:, None] + (Tk - Tq), keys[None, :], below, above, sparse, Tk)
                scores = tl.where(seen & real_keys(key_mask, b, keys, Tk)[None, :], scores, float("-inf"))
            weights = tl.exp2(scores - lse[:, None])
            dweights = tl.dot(dout_block, tl.trans(value_block), input_precision=PRECISION)  # (M, N)
            if threshold is not None:
                dweights = tl.where(kept_weights(pair_hash, threshold), dweights * dropout_scale, 0.0)
            dscores = weights * (dweights - delta[:, None])
            if softcap is not None:
                dscores *= 1 - capped * capped
            dquery_block = tl.dot(dscores.to(key_block.dtype), key_block, dquery_block, input_precision=PRECISION)
    store_rows(dquery, at_query, h, queries, queries < Tq, dquery_block * scale, D, BLOCK_D)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def attention_dkey_dvalue_kernel(
    query, key, value, dout, dkey, dvalue, lse_ptr, delta_ptr, hash_ptr, key_mask, bias, slopes, starts,
    Tq, Tk, H, num_queries, below, above, sparse, visits, scale, softcap,
    key_ptr, key_low, key_high, threshold, dropout_scale, sentence, position,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr, HOISTED: tl.constexpr,
):  # fmt: skip
    """Write dkey and dvalue. The weights are computed transposed, keys as rows, as both products need them.

    A program has one head of keys and visits the queries of all `GROUP` heads that share it.
    """
    block, head, b, h = locate(Tk, H // GROUP, KEYS)
    at_query, at_key = b, b
    if starts is not None:
        at_query, at_key, Tq, Tk = locate_packed(starts, b)
        if block * KEYS >= Tk:
            return
    span = tl.arange(0, QUERIES)
    keys = block * KEYS + paired_order(KEYS)  # (N,)
    real = real_keys(key_mask, b, keys, Tk)  # (N,)
    key_block = load_rows(key, at_key, h, block * KEYS, paired_order(KEYS), real, D, BLOCK_D)  # (N, D)
    value_block = load_rows(value, at_key, h, block * KEYS, paired_order(KEYS), real, DV, BLOCK_DV)  # (N, Dv)

    dkey_block = tl.zeros((KEYS, BLOCK_D), tl.float32)
    dvalue_block = tl.zeros((KEYS, BLOCK_DV), tl.float32)
    listed = None if visits is None else list_of(visits, block, Tq, QUERIES)
    blocks = blocks_of_queries(block, Tq, Tk, below, above, listed, real, QUERIES, KEYS)
    for MASKED in tl.static_range(2):
        count = count_blocks(blocks, MASKED)
        for n in range(GROUP * count):
            member = 0 if GROUP == 1 else n // count
            first_query = nth_block(n - member * count, blocks, listed, MASKED) * QUERIES
            queries = first_query + span  # (M,)
            if starts is None:
                rows = (head * GROUP + member) * Tq + queries
            else:
                rows = (h * GROUP + member) * num_queries + at_query + queries
            present = queries < Tq if MASKED else None
            if threshold is not None:
                row_hash = load_numbers(hash_ptr + rows, present, 0).to(tl.uint32, bitcast=True)  # (M,)
                pair_hash = hash_pairs_transposed(row_hash, block * KEYS, KEYS)
            query_block = load_rows(
                query, at_query, h * GROUP + member, first_query, span, present, D, BLOCK_D, HOISTED
            )  # (M, D)
            dout_block = load_rows(
                dout, at_query, h * GROUP + member, first_query, span, present, DV, BLOCK_DV, HOISTED
            )  # (M, Dv)
            lse = load_numbers(lse_ptr + rows, present, float("inf"))  # (M,)
            delta = load_numbers(delta_ptr + rows, present, 0.0)  # (M,)
            if slopes is not None:
                slope = load_slope(slopes, b, h * GROUP + member)
            scores = tl.dot(key_block, tl.trans(query_block), input_precision=PRECISION)  # (N, M)
            if softcap is not None:
                capped = tanh(scores * (scale / softcap))
                scores = capped * (softcap * LOG2_E)
            else:
                scores *= scale * LOG2_E
            if slopes is not None:
                scores -= slope * distance(queries[None, :] + (Tk - Tq), keys[:, None])
            if bias is not None:
                within = (keys < multiple(Tk, ALIGNED))[:, None]
                if MASKED:
                    within &= (queries < Tq)[None, :]
                scores += load_bias(bias, b, h * GROUP + member, queries[None, :], keys[:, None], within)
            if MASKED:
                seen = sees(queries[None, :] + (Tk - Tq), keys[:, None], below, above, sparse, Tk)
                scores = tl.where(seen, scores, float("-inf"))
            weights = tl.exp2(scores - lse[None, :])
            dropped = weights
            if threshold is not None:
                kept = kept_weights_transposed(pair_hash, threshold)
                dropped = tl.where(kept, weights, 0.0)
            # Computed before dweights, so that dweights needs no registers yet.
            dvalue_block = tl.dot(dropped.to(dout_block.dtype), dout_block, dvalue_block, input_precision=PRECISION)
            dweights = tl.dot(value_block, tl.trans(dout_block), input_precision=PRECISION)  # (N, M)
            if threshold is not None:
                dweights = tl.where(kept, dweights * dropout_scale, 0.0)
            dscores = weights * (dweights - delta[None, :])
            if softcap is not None:
                dscores *= 1 - capped * capped
            dkey_block = tl.dot(dscores.to(query_block.dtype), query_block, dkey_block, input_precision=PRECISION)

    # Padding was computed too, as keys of zeros. Their gradients are in rows of their own, which are cleared here.
    dkey_block = tl.where(real[:, None], dkey_block * scale, 0.0)
    dvalue_block = tl.where(real[:, None], dvalue_block, 0.0)
    if threshold is not None:
        dvalue_block *= dropout_scale
    store_rows(dkey, at_key, h, keys, keys < Tk, dkey_block, D, BLOCK_D)
    store_rows(dvalue, at_key, h, keys, keys < Tk, dvalue_block, DV, BLOCK_DV)
