"""Solutions of lesson 16."""

# pyright: reportInvalidTypeForm=false

import math

import numpy as np

from course.gpu import tl, torch, triton

LOWEST = tl.constexpr(-3.4028234663852886e38)
LOG2_E = math.log2(math.e)
TILE = (16, 16)


def merge(left, right):
    m = np.maximum(left[0], right[0])
    shift = np.where(m == -np.inf, 0.0, m)  # −inf − (−inf) is NaN
    a, b = np.exp(left[0] - shift), np.exp(right[0] - shift)
    return m, a * left[1] + b * right[1], a[:, None] * left[2] + b[:, None] * right[2]


@triton.jit
def load_rows(x_ptr, T, rows, D: tl.constexpr):
    place = rows[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(x_ptr + place, (rows < T)[:, None], other=0.0)


@triton.jit
def store_rows(x_ptr, T, rows, values, D: tl.constexpr):
    place = rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(x_ptr + place, values.to(x_ptr.dtype.element_ty), (rows < T)[:, None])


@triton.jit
def scores_kernel(
    query_ptr, key_ptr, scores_ptr, Tq, Tk, scale, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr
):
    queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)  # (M,)
    keys = tl.program_id(1) * KEYS + tl.arange(0, KEYS)  # (N,)
    query = load_rows(query_ptr, Tq, queries, D)  # (M, D)
    key = load_rows(key_ptr, Tk, keys, D)  # (N, D)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # (M, N)
    tl.store(scores_ptr + queries[:, None] * Tk + keys[None, :], scores)


def attention_scores(query, key):
    (Tq, D), Tk = query.shape, len(key)
    scores = torch.empty((Tq, Tk), device=query.device)
    scores_kernel[(Tq // 16, Tk // 16)](query, key, scores, Tq, Tk, LOG2_E / math.sqrt(D), D=D, QUERIES=16, KEYS=16)
    return scores


@triton.jit
def lse_kernel(query_ptr, key_ptr, lse_ptr, Tq, Tk, scale, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)  # (M,)
    query = load_rows(query_ptr, Tq, queries, D)  # (M, D)
    m = tl.full((QUERIES,), LOWEST, tl.float32)
    l = tl.zeros((QUERIES,), tl.float32)
    for first in range(0, Tk, KEYS):
        key = load_rows(key_ptr, Tk, first + tl.arange(0, KEYS), D)  # (N, D)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # (M, N)
        new_m = tl.maximum(m, tl.max(scores, axis=1))
        l = l * tl.exp2(m - new_m) + tl.sum(tl.exp2(scores - new_m[:, None]), axis=1)
        m = new_m
    tl.store(lse_ptr + queries, m + tl.log2(l))


def attention_lse(query, key):
    (Tq, D), Tk = query.shape, len(key)
    lse = torch.empty(Tq, device=query.device)
    lse_kernel[(Tq // 16,)](query, key, lse, Tq, Tk, LOG2_E / math.sqrt(D), D=D, QUERIES=16, KEYS=16)
    return lse


@triton.jit
def attention_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, lse_ptr, Tq, Tk, scale,
    D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)  # (M,)
    query = load_rows(query_ptr, Tq, queries, D)  # (M, D)
    m = tl.full((QUERIES,), LOWEST, tl.float32)
    l = tl.zeros((QUERIES,), tl.float32)
    acc = tl.zeros((QUERIES, D), tl.float32)
    for first in range(0, Tk, KEYS):
        keys = first + tl.arange(0, KEYS)  # (N,)
        key = load_rows(key_ptr, Tk, keys, D)  # (N, D)
        value = load_rows(value_ptr, Tk, keys, D)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # (M, N)
        new_m = tl.maximum(m, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_m[:, None])
        rescale = tl.exp2(m - new_m)
        l = l * rescale + tl.sum(weights, axis=1)
        acc = acc * rescale[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        m = new_m
    store_rows(out_ptr, Tq, queries, acc / l[:, None], D)
    tl.store(lse_ptr + queries, m + tl.log2(l))


def attention_out(query, key, value):
    (Tq, D), Tk = query.shape, len(key)
    out, lse = torch.empty_like(query), torch.empty(Tq, device=query.device)
    attention_kernel[(Tq // 16,)](query, key, value, out, lse, Tq, Tk, LOG2_E / math.sqrt(D), D=D, QUERIES=16, KEYS=16)
    return out, lse


def causal_blocks(block, tile, Tq, Tk):
    QUERIES, KEYS = tile
    first = block * QUERIES + (Tk - Tq)
    last = min((block + 1) * QUERIES, Tq) - 1 + (Tk - Tq)
    return max(first + 1, 0) // KEYS, -(-max(last + 1, 0) // KEYS)


@triton.jit
def flash_forward_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, lse_ptr, stop_ptr, Tq, Tk, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    queries = block * QUERIES + tl.arange(0, QUERIES)  # (M,)
    query = load_rows(query_ptr + head * Tq * D, Tq, queries, D)  # (M, D)
    m = tl.full((QUERIES,), LOWEST, tl.float32)
    l = tl.zeros((QUERIES,), tl.float32)
    acc = tl.zeros((QUERIES, D), tl.float32)
    for n in range(tl.load(stop_ptr + block)):
        keys = n * KEYS + tl.arange(0, KEYS)  # (N,)
        key = load_rows(key_ptr + head * Tk * D, Tk, keys, D)  # (N, D)
        value = load_rows(value_ptr + head * Tk * D, Tk, keys, D)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # (M, N)
        seen = (keys < Tk)[None, :]
        if CAUSAL:
            seen = seen & (keys[None, :] <= queries[:, None] + (Tk - Tq))
        scores = tl.where(seen, scores, float("-inf"))
        new_m = tl.maximum(m, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_m[:, None])
        rescale = tl.exp2(m - new_m)
        l = l * rescale + tl.sum(weights, axis=1)
        acc = acc * rescale[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        m = new_m
    nothing = l == 0
    l = tl.where(nothing, 1.0, l)
    store_rows(out_ptr + head * Tq * D, Tq, queries, acc / l[:, None], D)
    lse = tl.where(nothing, float("inf"), m + tl.log2(l))
    tl.store(lse_ptr + head * Tq + queries, lse, queries < Tq)


def flash_forward(query, key, value, causal=False, tile=TILE):
    (H, Tq, D), Tk, (QUERIES, KEYS) = query.shape, key.shape[1], tile
    blocks = triton.cdiv(Tq, QUERIES)
    stops = [causal_blocks(n, tile, Tq, Tk)[1] if causal else triton.cdiv(Tk, KEYS) for n in range(blocks)]
    stops = torch.tensor(stops, dtype=torch.int32, device=query.device)
    out, lse = torch.empty_like(query), torch.empty((H, Tq), device=query.device)
    flash_forward_kernel[(blocks, H)](
        query, key, value, out, lse, stops, Tq, Tk, LOG2_E / math.sqrt(D),
        CAUSAL=causal, D=D, QUERIES=QUERIES, KEYS=KEYS,
    )  # fmt: skip
    return out, lse


def backward_block(dout, out, lse, query, key, value):
    scale = 1 / math.sqrt(query.shape[-1])
    weights = np.exp(scale * query @ key.T - lse[:, None])  # (Tq, n)
    delta = (dout * out).sum(axis=1)  # (Tq,)
    dscores = weights * (dout @ value.T - delta[:, None])
    return scale * dscores @ key, scale * dscores.T @ query, weights.T @ dout
