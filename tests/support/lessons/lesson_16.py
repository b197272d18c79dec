"""Plausible wrong answers to lesson 16 (see `answers`)."""

import math

import numpy as np

from course.gpu import torch
from course.lesson_16.solutions import flash_forward

# --- Merging --------------------------------------------------------------------------------------------------


def _in_place(left, right):
    """Right, and the left state is the sum from then on."""
    m, l, acc = left
    new_m = np.maximum(m, right[0])
    shift = np.where(new_m == -np.inf, 0.0, new_m)
    a, b = np.exp(m - shift), np.exp(right[0] - shift)
    l *= a
    l += b * right[1]
    acc *= a[:, None]
    acc += b[:, None] * right[2]
    m[:] = new_m
    return m, l, acc


# --- Forward --------------------------------------------------------------------------------------------------


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


# --- Backward -------------------------------------------------------------------------------------------------


def _thrown_away(query, key, value, causal=False, tile=(16, 16)):
    flash_forward(query, key, value, causal, tile)
    return _no_flash_kernel(query, key, value, causal, tile)


EDITS = r"""
[merge]
nothing is rescaled
    a, b = np.exp(left[0] - shift), np.exp(right[0] - shift) → a = b = np.ones_like(m)
    what the left one summed up (l and acc) must shrink
only the left shrinks
    np.exp(right[0] - shift) → np.ones_like(m) | what the right one summed up (l and acc) must shrink
averaged
    return m, a * left[1] + b * right[1], a[:, None] * left[2] + b[:, None] * right[2] →
        return m, a * left[1] + b * right[1], (a[:, None] * left[2] + b[:, None] * right[2]) / 2
    nothing averaged
overflow
    a, b = np.exp(left[0] - shift), np.exp(right[0] - shift) →
        a, b = np.exp(left[0]) * np.exp(-m), np.exp(right[0]) * np.exp(-m)
    e^(1000) overflows
nothing and nothing | np.where(m == -np.inf, 0.0, m) → m | give NaN: −inf − (−inf)
one case for all queries
    np.where(m == -np.inf, 0.0, m) → m
    m = np.maximum( →
        if np.isneginf(left[0]).all():\n        return right\n    if np.isneginf(right[0]).all():\n        return
        left\n    m = np.maximum(
    each row is a case of its own
one maximum for all queries
    m = np.maximum(left[0], right[0]) → m = np.full_like(left[0], max(left[0].max(), right[0].max())) | row by row
[causal_blocks]
stops a key early | max(last + 1, 0) → max(last, 0) | it stops before block
visits them all | -(-max(last + 1, 0) // KEYS) → -(-Tk // KEYS) | work for nothing
whole for the last query | max(first + 1, 0) // KEYS → max(last + 1, 0) // KEYS | see its own future
always masked | max(first + 1, 0) // KEYS → 0 | slower than it need be
aligned top left | + (Tk - Tq) → | query i stands at position Tk − Tq + i
floats | return max( → return 1.0 * max( | -(-max → -(-1.0 * max | they are to be ints
the last block is whole | min((block + 1) * QUERIES, Tq) → (block + 1) * QUERIES | and there are 5 blocks of keys
the wrong way round
    return max(first + 1, 0) // KEYS, -(-max(last + 1, 0) // KEYS) →
        return -(-max(last + 1, 0) // KEYS), max(first + 1, 0) // KEYS
    (whole, stop), and whole blocks are among
[flash_forward]
not divided by l | acc / l[:, None] → acc | Is acc divided by l in the end?
natural logarithm | tl.log2(l) → tl.log(l) | must be log2(16) = 4
not scaled | * scale  # (M, N) → | query · key / √D
the query is scaled in place
    kernel[(blocks, H)] → query /= 1.0001\n    kernel[(blocks, H)] | it writes into its argument query
the scale of D = 16 | LOG2_E / math.sqrt(D) → LOG2_E / 4 | a number written where D belongs
weights in float32 | weights.to(value.dtype) → weights | in float16 it raises
out in float32
    torch.empty_like(query) → torch.empty_like(query, dtype=torch.float32)
    out is torch.float32 and must be torch.float16
lse in float16
    torch.empty((H, Tq), device → torch.empty((H, Tq), dtype=query.dtype, device
    lse is torch.float16 and must be torch.float32
one block
    tl.load(stop_ptr + block)) → tl.minimum(tl.load(stop_ptr + block), 1)) | all of the blocks that stop_ptr tells it
divided in each block
    acc / l[:, None], D → acc, D | m = new_m\n    nothing → acc = acc / l[:, None]\n        m = new_m\n    nothing
    only in the end is acc divided by l
not rescaled | l * rescale → l | acc * rescale[:, None] → acc | must shrink by 2^(old m − new m)
no maximum | tl.maximum(m, tl.max(scores, axis=1)) → m | (QUERIES,), LOWEST → (QUERIES,), 0.0 | 2^288 is beyond float32
m begins at 0 | (QUERIES,), LOWEST → (QUERIES,), 0.0 | Does m begin at LOWEST
lanes beyond the keys | seen = (keys < Tk) → seen = (keys >= 0) | must have a score of −inf
lanes without a value
    load_rows(value_ptr, head, Tk, keys, D) →
        tl.load(value_ptr + (head * Tk + keys)[:, None] * D + tl.arange(0, D)[None, :], (keys < Tk)[:, None])
    hold anything
one head | tl.program_id(1).to(tl.int64) → 0 | head h begins at h · T · D
lse has no mask | lse, queries < Tq) → lse) | each tl.store wants a mask
keys without a mask
    load_rows(key_ptr, head, Tk, keys, D) →
        tl.load(key_ptr + (head * Tk + keys)[:, None] * D + tl.arange(0, D)[None, :])
    each tl.load wants a mask
a launch for each head
    kernel[(blocks, H)](\n        query, key, value, out, lse →
        for h in range(H):\n        kernel[(blocks, 1)](\n        query[h], key[h], value[h], out[h], lse[h]
    kernels were launched 2 times
no mask | seen & (keys[None, :] <= queries[:, None] + (Tk - Tq)) → seen | which must not see them
not its own key | <= queries → < queries | up to the query's own
aligned top left | queries[:, None] + (Tk - Tq) → queries[:, None] | causal with 8 queries and 24 keys
0/0 | l = tl.where(nothing, 1.0, l)\n    store → store | is nan and must be 0 (0/0
lse of nothing
    tl.where(nothing, float("inf"), m + tl.log2(l)) → m + tl.log2(l) | must be +inf, and lse at (0, 0) is -3.4028e+38
steps of QUERIES | keys = n * KEYS → keys = n * QUERIES | which lengths are QUERIES
stop_ptr is ignored | tl.load(stop_ptr + block)) → tl.cdiv(Tk, KEYS)) | stop before block tl.load(stop_ptr
the tile is ignored | value, causal, tile)\n\n\ndef backward → value, causal, TILE)\n\n\ndef backward | is `tile` what
[backward_block]
not scaled
    return scale * dscores → return dscores | scale * dscores.T → dscores.T | times the true gradient everywhere
scores not scaled | np.exp(scale * → np.exp( | weights add up to 1
no delta | - delta[:, None] → | moves no weight
softmax of the block
    delta = → weights = weights / weights.sum(axis=1, keepdims=True)\n    delta = | a softmax over the block alone
delta of the block | (dout * out).sum → (weights * (dout @ value.T)).sum | What is dout · out?
the scale of D = 4 | 1 / math.sqrt(query.shape[-1]) → 1 / 2 | is a number written where D belongs
a quotient of exponentials | - lse[:, None]) → ) / np.exp(lse)[:, None] | beyond float64
"""

WRONG = {
    "merge": {
        "in place": (_in_place, "it writes into its argument left[1]"),
        "one array": (lambda left, right: left[0], "must return 3 arrays"),
    },
    "causal_blocks": {"one number": (lambda block, tile, Tq, Tk: block + 1, "must return two numbers")},
    "flash_forward": {
        "no kernel": (_no_flash_kernel, "no kernel was launched"),
        "the kernel's result is thrown away": (_thrown_away, "out is not an array that it wrote"),
        "lse by PyTorch": (
            lambda *a: (flash_forward(*a)[0], _no_flash_kernel(*a)[1]),
            "lse is not an array that it wrote",
        ),
    },
    "backward_block": {"one array": (lambda dout, *_: dout, "must return 3 arrays")},
}
