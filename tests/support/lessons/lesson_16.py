"""Right answers to lesson 16 written in another way, and plausible wrong ones (see `answers`)."""

# pyright: reportInvalidTypeForm=false

import math

import numpy as np

from course.gpu import tl, torch, triton
from course.lesson_16.solutions import LOG2_E, flash_forward, load_rows, store_rows

# --- In another way -------------------------------------------------------------------------------------------


def _where_seen(left, right):
    """Each state is added where its queries have seen something."""
    m = np.maximum(left[0], right[0])
    found = [m, np.zeros_like(m), np.zeros_like(left[2])]
    for state in (left, right):
        some = np.isfinite(state[0])
        factor = np.exp(state[0][some] - m[some])
        found[1][some] += factor * state[1][some]
        found[2][some] += factor[:, None] * state[2][some]
    return tuple(found)


def _by_looking(block, tile, Tq, Tk):
    queries = range(block * tile[0], min((block + 1) * tile[0], Tq))
    sees = [max(Tk - Tq + i + 1, 0) for i in queries]
    return min(sees) // tile[1], (max(sees) + tile[1] - 1) // tile[1]


@triton.jit
def _keys_by_queries_kernel(query_ptr, key_ptr, scores_ptr, Tq, Tk, scale, D: tl.constexpr):
    queries, keys = tl.program_id(1) * 16 + tl.arange(0, 16), tl.program_id(0) * 16 + tl.arange(0, 16)
    query, key = load_rows(query_ptr, Tq, queries, D) * scale, load_rows(key_ptr, Tk, keys, D)
    tile = tl.dot(key, tl.trans(query), input_precision="ieee")
    tl.store(scores_ptr + queries[None, :] * Tk + keys[:, None], tile)


def _keys_by_queries(query, key):
    (Tq, D), Tk = query.shape, len(key)
    scores = torch.empty((Tq, Tk), device=query.device)
    _keys_by_queries_kernel[(Tk // 16, Tq // 16)](query, key, scores, Tq, Tk, LOG2_E / math.sqrt(D), D=D)
    return scores


@triton.jit
def _normalised_kernel(query_ptr, key_ptr, value_ptr, out_ptr, lse_ptr, Tq, Tk, scale, D: tl.constexpr):
    """The first version of flash attention: the output is that of all keys so far, after every block."""
    queries = tl.program_id(0) * 16 + tl.arange(0, 16)
    query = load_rows(query_ptr, Tq, queries, D)
    lse = tl.full((16,), float("-inf"), tl.float32)
    out = tl.zeros((16, D), tl.float32)
    for first in range(0, Tk, 16):
        key = load_rows(key_ptr, Tk, first + tl.arange(0, 16), D)
        value = load_rows(value_ptr, Tk, first + tl.arange(0, 16), D)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        m = tl.maximum(lse, tl.max(scores, axis=1))
        new_lse = m + tl.log2(tl.exp2(lse - m) + tl.sum(tl.exp2(scores - m[:, None]), axis=1))
        weights = tl.exp2(scores - new_lse[:, None]).to(value.dtype)
        out = out * tl.exp2(lse - new_lse)[:, None] + tl.dot(weights, value, input_precision="ieee")
        lse = new_lse
    store_rows(out_ptr, Tq, queries, out, D)
    tl.store(lse_ptr + queries, lse)


def _normalised(query, key, value):
    (Tq, D), Tk = query.shape, len(key)
    out, lse = torch.empty_like(query), torch.empty(Tq, device=query.device)
    _normalised_kernel[(Tq // 16,)](query, key, value, out, lse, Tq, Tk, LOG2_E / math.sqrt(D), D=D)
    return out, lse


@triton.jit
def _in_base_e_kernel(query_ptr, key_ptr, lse_ptr, Tq, Tk, scale, D: tl.constexpr):
    queries = tl.program_id(0) * 16 + tl.arange(0, 16)
    query = load_rows(query_ptr, Tq, queries, D)
    m = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    for first in range(0, Tk, 16):
        key = load_rows(key_ptr, Tk, first + tl.arange(0, 16), D)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        new_m = tl.maximum(m, tl.max(scores, axis=1))
        l = l * tl.exp(m - new_m) + tl.sum(tl.exp(scores - new_m[:, None]), axis=1)
        m = new_m
    tl.store(lse_ptr + queries, (m + tl.log(l)) * 1.4426950408889634)


def _in_base_e(query, key):
    (Tq, D), Tk = query.shape, len(key)
    lse = torch.empty(Tq, device=query.device)
    _in_base_e_kernel[(Tq // 16,)](query, key, lse, Tq, Tk, 1 / math.sqrt(D), D=D)
    return lse


def _with_einsum(dout, out, lse, query, key, value):
    root = math.sqrt(query.shape[1])
    weights = np.exp(np.einsum("td,nd->tn", query, key) / root - lse[:, None])
    dweights = np.einsum("tv,nv->tn", dout, value)
    dscores = weights * (dweights - np.einsum("tv,tv->t", dout, out)[:, None]) / root
    return np.einsum("tn,nd->td", dscores, key), np.einsum("tn,td->nd", dscores, query), weights.T @ dout


def _no_flash_kernel(query, key, value, causal=False, tile=(16, 16)):
    """Right, all scores at once."""
    (_, Tq, D), Tk = query.shape, key.shape[1]
    scores = query.float() @ key.float().mT * (math.log2(math.e) / math.sqrt(D))
    if causal:
        future = torch.arange(Tk)[None] > torch.arange(Tq)[:, None] + (Tk - Tq)
        scores = scores.masked_fill(future, float("-inf"))
    lse = torch.logsumexp(scores * math.log(2), dim=-1) / math.log(2)
    lse = torch.where(lse == float("-inf"), float("inf"), lse)
    return (torch.exp2(scores - lse[..., None]) @ value.float()).to(query.dtype), lse


def _thrown_away(query, key, value, causal=False, tile=(16, 16)):
    flash_forward(query, key, value, causal, tile)
    return _no_flash_kernel(query, key, value, causal, tile)


RIGHT = {
    "merge": [_where_seen],
    "attention_scores": [_keys_by_queries],
    "attention_lse": [_in_base_e],
    "attention_out": [_normalised],
    "causal_blocks": [_by_looking],
    "backward_block": [_with_einsum],
}

MISTAKES = r"""
[merge]
nothing is rescaled
    a, b = np.exp(left[0] - shift), np.exp(right[0] - shift) → a = b = np.ones_like(m)
    what the left one summed up (l and acc) must shrink
only the left shrinks | exp(right[0] - shift) → ones_like(m) | what the right one summed up (l and acc) must shrink
averaged | returns m, a * left[1] + b * right[1], (a[:, None] * left[2] + b[:, None] * right[2]) / 2 | nothing averaged
overflow
    np.exp(left[0] - shift), np.exp(right[0] - shift) → np.exp(left[0]) * np.exp(-m), np.exp(right[0]) * np.exp(-m)
    e^(1000) overflows
nothing and nothing | np.where(m == -np.inf, 0.0, m) → m | give NaN: −inf − (−inf)
one case for all queries
    np.where(m == -np.inf, 0.0, m) → m
    m = np.maximum( →
        if np.isneginf(left[0]).all():\n        return right\n    if np.isneginf(right[0]).all():\n        return left\n
           m = np.maximum(
    each row is a case of its own
one maximum for all queries
    m = np.maximum(left[0], right[0]) → m = np.full_like(left[0], max(left[0].max(), right[0].max())) | row by row
in float32
    returns tuple(part.astype(np.float32) for part in answer)
    m is float32
[attention_scores]
not scaled
    input_precision="ieee") * scale  # (M, N)\n    tl.store → input_precision="ieee")  # (M, N)\n    tl.store
    that times `scale`
transposed
    tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # (M, N)\n    tl.store →
        tl.dot(key, tl.trans(query), input_precision="ieee") * scale  # (M, N)\n    tl.store
    it is the transpose
the key is not transposed
    tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # (M, N)\n    tl.store →
        tl.dot(query, key, input_precision="ieee") * scale  # (M, N)\n    tl.store
    so that the key is transposed
one block of keys | keys = tl.program_id(1) * KEYS + tl.arange → keys = tl.arange | scores are not written
rows are Tq long | queries[:, None] * Tk + keys → queries[:, None] * Tq + keys | a row of scores is Tk long
all queries are the first block's
    query = load_rows(query_ptr, Tq, queries, D)  # (M, D)\n    key = →
        query = load_rows(query_ptr, Tq, tl.arange(0, QUERIES), D)  # (M, D)\n    key =
    does each program load its own queries
stored twice
    tl.store(scores_ptr →
        tl.store(scores_ptr + queries[:, None] * Tk + keys[None, :], 0 * scores)\n    tl.store(scores_ptr
    is written 2 times
inputs that a newer GPU rounds | , input_precision="ieee" → | lacks input_precision="ieee"
no kernel
    is lambda query, key: query @ key.T * 1.442695 / query.shape[1] ** 0.5
    no kernel was launched
[attention_lse]
natural logarithm
    tl.store(lse_ptr + queries, m + tl.log2(l))\n\n\ndef attention_lse →
        tl.store(lse_ptr + queries, m + tl.log(l))\n\n\ndef attention_lse
    must be log2(16) = 4
along the queries
    tl.max(scores, axis=1))\n        l = l → tl.max(scores, axis=0))\n        l = l
    scores - new_m[:, None]), axis=1) → scores - new_m[None, :]), axis=0)
    to add up along a row is axis=1
not scaled
    input_precision="ieee") * scale  # (M, N)\n        new_m = tl.maximum(m, tl.max(scores, axis=1))\n        l →
        input_precision="ieee")  # (M, N)\n        new_m = tl.maximum(m, tl.max(scores, axis=1))\n        l
    with queries of 0 it is right
the first block alone
    first + tl.arange(0, KEYS), D)  # (N, D)\n        scores → tl.arange(0, KEYS), D)  # (N, D)\n        scores
    range(0, Tk, KEYS):\n        key → range(0, KEYS, KEYS):\n        key
    does it go on to the last key
the last block alone | l = l * tl.exp2(m - new_m) + → l = | the second alone is in lse
not rescaled | l = l * tl.exp2(m - new_m) + → l = l + | l must shrink by
the block's own maximum
    l = l * tl.exp2(m - new_m) + tl.sum(tl.exp2(scores - new_m[:, None]), axis=1) →
        l = l * tl.exp2(m - new_m) + tl.sum(tl.exp2(scores - tl.max(scores, axis=1)[:, None]), axis=1)
    relative to the running maximum
no maximum
    tl.maximum(m, tl.max(scores, axis=1))\n        l = l → m\n        l = l
    tl.full((QUERIES,), LOWEST, tl.float32) → tl.zeros((QUERIES,), tl.float32)
    2^288 is beyond float32
m begins at 0 | tl.full((QUERIES,), LOWEST, tl.float32) → tl.zeros((QUERIES,), tl.float32) | 2^−288 is 0 in float32
all programs take block 0
    queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)  # (M,)\n    query = →
        queries = tl.arange(0, QUERIES)  # (M,)\n    query =
    also where lse is stored
inputs that a newer GPU rounds | , input_precision="ieee" → | lacks input_precision="ieee"
two walks
    m = tl.full((QUERIES,), LOWEST, tl.float32)\n    l = tl.zeros((QUERIES,), tl.float32)\n    for →
        m = tl.full((QUERIES,), LOWEST, tl.float32)\n    for first in range(0, Tk, KEYS):\n        key =
        load_rows(key_ptr, Tk, first + tl.arange(0, KEYS), D)\n        m = tl.maximum(m, tl.max(tl.dot(query,
        tl.trans(key), input_precision="ieee") * scale, axis=1))\n    l = tl.zeros((QUERIES,), tl.float32)\n    for
    one walk over the keys is enough
no kernel
    is lambda query, key: _no_flash_kernel(query[None], key[None], key[None])[1][0]
    no kernel was launched
[attention_out]
not divided by l
    store_rows(out_ptr, Tq, queries, acc / l[:, None], D) → store_rows(out_ptr, Tq, queries, acc, D)
    Is acc divided by l in the end?
values transposed
    tl.dot(weights.to(value.dtype), value, → tl.dot(weights.to(value.dtype), tl.trans(value),
    a product of the tile of weights
lse is l
    tl.store(lse_ptr + queries, m + tl.log2(l))\n\n\ndef attention_out →
        tl.store(lse_ptr + queries, l)\n\n\ndef attention_out
    out is right, and lse is not
values stand still
    value = load_rows(value_ptr, Tk, keys, D)\n        scores = tl.dot(query, tl.trans(key), input_precision="ieee") *
        scale  # (M, N)\n        new_m →
        value = load_rows(value_ptr, Tk, tl.arange(0, KEYS), D)\n        scores = tl.dot(query, tl.trans(key),
        input_precision="ieee") * scale  # (M, N)\n        new_m
    key and value move along together
acc is not rescaled | acc * rescale[:, None] + → acc + | like l, must shrink
divided in each block
    m = new_m\n    store_rows(out_ptr, Tq, queries, acc / l[:, None], D) →
        acc = acc / l[:, None]\n        m = new_m\n    store_rows(out_ptr, Tq, queries, acc, D)
    is divided by l once
inputs that a newer GPU rounds | , input_precision="ieee" → | lacks input_precision="ieee"
acc in float16
    acc = acc * rescale[:, None] + → acc = acc.to(value.dtype).to(tl.float32) * rescale[:, None] +
    m, l and acc stay in float32
weights in float32 | weights.to(value.dtype) → weights | in float16 it raises
out in float32
    out, lse = torch.empty_like(query), torch.empty(Tq →
        out, lse = torch.empty_like(query, dtype=torch.float32), torch.empty(Tq
    out is torch.float32
all programs write block 0
    store_rows(out_ptr, Tq, queries, acc → store_rows(out_ptr, Tq, tl.arange(0, QUERIES), acc
    16 queries are right, 32 are not
no kernel
    is lambda *a: tuple(x[0] for x in _no_flash_kernel(*(x[None] for x in a)))
    no kernel was launched
[causal_blocks]
stops a key early | max(last + 1, 0) → max(last, 0) | it stops before block
visits them all | -(-max(last + 1, 0) // KEYS) → -(-Tk // KEYS) | work for nothing
whole for the last query | max(first + 1, 0) // KEYS → max(last + 1, 0) // KEYS | see its own future
always masked | max(first + 1, 0) // KEYS → 0 | slower than it need be
aligned top left | + (Tk - Tq) → | query i stands at position Tk − Tq + i
floats | return max( → return 1.0 * max( | -(-max → -(-1.0 * max | they are to be ints
the last block is whole | min((block + 1) * QUERIES, Tq) → (block + 1) * QUERIES | and there are 5 blocks of keys
the wrong way round
    returns -(-max(last + 1, 0) // KEYS), max(first + 1, 0) // KEYS | (whole, stop), and whole blocks are among
one number | returns block + 1 | must return two numbers
[flash_forward]
not divided by l | acc / l[:, None] → acc | Is acc divided by l in the end?
natural logarithm | tl.log2(l) → tl.log(l) | must be log2(16) = 4
not scaled | * scale  # (M, N) → | query · key / √D
the scale of D = 16 | LOG2_E / math.sqrt(D) → LOG2_E / 4 | a number written where D belongs
inputs that a newer GPU rounds | , input_precision="ieee" → | lacks input_precision="ieee"
acc in float16
    acc = acc * rescale[:, None] + → acc = acc.to(value.dtype).to(tl.float32) * rescale[:, None] +
    out at (0, 0) is 0.99
l in float16
    l = l * rescale + → l = l.to(value.dtype).to(tl.float32) * rescale +
    out at (0, 0) is 1.0
weights in float32 | weights.to(value.dtype) → weights | in float16 it raises
out in float32 | (query) → (query, dtype=torch.float32) | out is torch.float32 and must be torch.float16
lse in float16 | ((H, Tq), device → ((H, Tq), dtype=query.dtype, device | lse is torch.float16 and must be torch.float32
one block | load(stop_ptr + block)) → minimum(tl.load(stop_ptr + block), 1)) | all of the blocks that stop_ptr tells it
divided in each block
    acc / l[:, None] → acc | m = new_m → acc = acc / l[:, None]\n        m = new_m | only in the end is acc divided by l
not rescaled | l * rescale → l | acc * rescale[:, None] → acc | must shrink by 2^(old m − new m)
no maximum | tl.maximum(m, tl.max(scores, axis=1)) → m | (QUERIES,), LOWEST → (QUERIES,), 0.0 | 2^288 is beyond float32
m begins at 0 | (QUERIES,), LOWEST → (QUERIES,), 0.0 | Does m begin at LOWEST
lanes beyond the keys | seen = (keys < Tk) → seen = (keys >= 0) | must have a score of −inf
lanes without a value
    load_rows(value_ptr + head * Tk * D, Tk, keys, D) →
        tl.load(value_ptr + (head * Tk + keys)[:, None] * D + tl.arange(0, D)[None, :], (keys < Tk)[:, None])
    hold anything
one head | tl.program_id(1).to(tl.int64) → 0 | head h begins at h · T · D
lse has no mask | lse, queries < Tq) → lse) | each tl.store wants a mask
keys without a mask
    load_rows(key_ptr + head * Tk * D, Tk, keys, D) →
        tl.load(key_ptr + (head * Tk + keys)[:, None] * D + tl.arange(0, D)[None, :])
    each tl.load wants a mask
a launch for each head
    flash_forward_kernel[(blocks, H)](\n        query, key, value, out, lse →
        for h in range(H):\n        flash_forward_kernel[(blocks, 1)](\n        query[h], key[h], value[h],
        out[h], lse[h]
    kernels were launched 2 times
no mask | seen & (keys[None, :] <= queries[:, None] + (Tk - Tq)) → seen | which must not see them
not its own key | <= queries → < queries | up to the query's own
aligned top left | queries[:, None] + (Tk - Tq) → queries[:, None] | causal with 8 queries and 24 keys
0/0 | l = tl.where(nothing, 1.0, l)\n    store → store | is nan and must be 0 (0/0
lse of nothing
    tl.where(nothing, float("inf"), m + tl.log2(l)) → m + tl.log2(l) | must be +inf, and lse at (0, 0) is -3.4028e+38
steps of QUERIES | keys = n * KEYS → keys = n * QUERIES | which lengths are QUERIES
stop_ptr is ignored | tl.load(stop_ptr + block)) → tl.cdiv(Tk, KEYS)) | stop before block tl.load(stop_ptr
the tile is ignored | query.shape, key.shape[1], tile\n → query.shape, key.shape[1], TILE\n | is `tile` what
no kernel | is _no_flash_kernel | no kernel was launched
the kernel's result is thrown away | is _thrown_away | out is not an array that it wrote
lse by PyTorch
    returns answer[0], _no_flash_kernel(query, key, value, causal, tile)[1] | lse is not an array that it wrote
[backward_block]
not scaled | returns dscores @ key, dscores.T @ query, weights.T @ dout | which is √D: scores = query · keyᵀ / √D
scores not scaled | np.exp(scale * → np.exp( | weights add up to 1
no delta | - delta[:, None] → | moves no weight
softmax of the block
    delta = → weights = weights / weights.sum(axis=1, keepdims=True)\n    delta = | a softmax over the block alone
delta of the block | (dout * out).sum → (weights * (dout @ value.T)).sum | What is dout · out?
the scale of D = 4 | 1 / math.sqrt(query.shape[-1]) → 1 / 2 | is a number written where D belongs
a quotient of exponentials | - lse[:, None]) → ) / np.exp(lse)[:, None] | beyond float64
"""
