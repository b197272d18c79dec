"""The gradient of attention's bias: dS, summed over the axes that the bias was broadcast along.

T5's bias is `(1, H, Tq, Tk)`, one for all sentences. A program owns a block of the bias, of queries and keys, computes
dS of every sentence there again, and adds them up. So no array is as large as dS of the whole batch, there are no
atomics, and a second run gives the same bits. It adds two products to the backward's seven. A bias without an axis of
queries or keys has fewer blocks, and then each program has more to add up.
"""

import triton
import triton.language as tl

from ..logits import multiple
from .blocks import LOG2_E, UNSPECIALIZED, key_head, load_rows, real_keys, sees
from .dropping import hash_pairs, kept_weights
from .scores import distance, load_bias, load_slope, tanh


@triton.jit
def owned(place, size, SUM: tl.constexpr):
    """Return a program's first block on an axis, its number of blocks, and its place on the axes before.

    If the axis is summed over, the program has all of its blocks.
    """
    if SUM:
        return 0, size, place
    return place % size, 1, place // size


@triton.jit(do_not_specialize=[*UNSPECIALIZED, "B"])
def attention_dbias_kernel(
    query, key, value, dout, dbias, lse_ptr, delta_ptr, hash_ptr, key_mask, bias, slopes,
    B, Tq, Tk, H, below, above, sparse, scale, softcap,
    key_ptr, key_low, key_high, threshold, dropout_scale, sentence, position,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    SUM_B: tl.constexpr, SUM_H: tl.constexpr, SUM_Q: tl.constexpr, SUM_K: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """Write one block of dbias; `SUM_B`, …, `SUM_K` are the axes that the bias lacks."""
    first_k, num_k, rest = owned(tl.program_id(0), tl.cdiv(Tk, KEYS), SUM_K)
    first_q, num_q, rest = owned(rest, tl.cdiv(Tq, QUERIES), SUM_Q)
    first_h, num_h, rest = owned(rest, H, SUM_H)
    first_b, num_b, rest = owned(rest, B, SUM_B)
    query_span, key_span = tl.arange(0, QUERIES), tl.arange(0, KEYS)
    total = tl.zeros((QUERIES, KEYS), tl.float32)
    for n in range(num_b * num_h * num_q * num_k):
        first_key, first_query = (first_k + n % num_k) * KEYS, (first_q + n // num_k % num_q) * QUERIES
        keys, queries = first_key + key_span, first_query + query_span  # (N,), (M,)
        h = tl.cast(first_h + n // (num_k * num_q) % num_h, tl.int64)
        b = tl.cast(first_b + n // (num_k * num_q * num_h), tl.int64)
        rows = (b * H + h) * Tq + queries
        query_block = load_rows(query, b, h, first_query, query_span, queries < Tq, D, BLOCK_D)  # (M, D)
        dout_block = load_rows(dout, b, h, first_query, query_span, queries < Tq, DV, BLOCK_DV)  # (M, Dv)
        key_block = load_rows(key, b, key_head(h, GROUP), first_key, key_span, keys < Tk, D, BLOCK_D)  # (N, D)
        value_block = load_rows(value, b, key_head(h, GROUP), first_key, key_span, keys < Tk, DV, BLOCK_DV)  # (N, Dv)
        lse = tl.load(lse_ptr + rows, queries < Tq, other=float("inf"))  # (M,)
        delta = tl.load(delta_ptr + rows, queries < Tq, other=0.0)  # (M,)
        scores = tl.dot(query_block, tl.trans(key_block), input_precision=PRECISION)  # (M, N)
        if softcap is not None:
            scores = tanh(scores * (scale / softcap)) * (softcap * LOG2_E)
        else:
            scores *= scale * LOG2_E
        if slopes is not None:
            scores -= load_slope(slopes, b, h) * distance(queries[:, None] + (Tk - Tq), keys[None, :])
        within = (queries < Tq)[:, None] & (keys < multiple(Tk, ALIGNED))[None, :]
        scores += load_bias(bias, b, h, queries[:, None], keys[None, :], within)
        seen = sees(queries[:, None] + (Tk - Tq), keys[None, :], below, above, sparse, Tk)
        seen &= real_keys(key_mask, b, keys, Tk)[None, :]
        weights = tl.exp2(tl.where(seen, scores, float("-inf")) - lse[:, None])
        dweights = tl.dot(dout_block, tl.trans(value_block), input_precision=PRECISION)  # (M, N)
        if threshold is not None:
            row_hash = tl.load(hash_ptr + rows, queries < Tq, other=0).to(tl.uint32, bitcast=True)
            pair_hash = hash_pairs(row_hash, first_key, KEYS)
            dweights = tl.where(kept_weights(pair_hash, threshold), dweights * dropout_scale, 0.0)
        total += weights * (dweights - delta[:, None])

    queries, keys = first_q * QUERIES + query_span, first_k * KEYS + key_span
    present = (queries < Tq)[:, None] & (keys < Tk)[None, :]
    if SUM_Q:
        total, queries, present = tl.sum(total, 0, keep_dims=True), tl.arange(0, 1), (keys < Tk)[None, :]
    if SUM_K:
        total, keys, present = tl.sum(total, 1, keep_dims=True), tl.arange(0, 1), (queries < Tq)[:, None]
    if SUM_Q and SUM_K:
        present = present | True
    ptrs = dbias.ptr + tl.cast(first_b, tl.int64) * dbias.stride_b + tl.cast(first_h, tl.int64) * dbias.stride_h
    ptrs += queries.to(tl.int64)[:, None] * dbias.stride_q + keys.to(tl.int64)[None, :] * dbias.stride_k
    tl.store(ptrs, total.to(dbias.ptr.dtype.element_ty), present)
