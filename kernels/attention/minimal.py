"""Flash attention and nothing else: the kernel that `forward.py` grew from, causal or not, without a backward.

It has two ideas: the scores of a block never leave the chip, and a running softmax needs one pass over the keys.
`forward.py` adds masks and windows, grouped heads, biases, dropout, any width, and an order of instructions in which
tensor cores need not wait. Source: Milakov and Gimelshein 2018; Dao et al. 2022, algorithm 1.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import on_quietly


@triton.jit
def minimal_kernel(
    query, key, value, out, T, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the output of one head's block of queries; heads are `(T, D)`, one behind the other."""
    block, head, channels = tl.program_id(0), tl.program_id(1).to(tl.int64) * T * D, tl.arange(0, D)
    queries = block * QUERIES + tl.arange(0, QUERIES)  # (M,)
    own = head + queries[:, None] * D + channels[None, :]  # (M, D)
    query_block = tl.load(query + own, (queries < T)[:, None], other=0.0)
    m = tl.full((QUERIES,), float("-inf"), tl.float32)  # the largest score so far
    l = tl.zeros((QUERIES,), tl.float32)  # Σ_j 2^(scores_j − m)
    acc = tl.zeros((QUERIES, D), tl.float32)  # Σ_j 2^(scores_j − m) value_j
    for first in range(0, tl.minimum(T, (block + 1) * QUERIES) if CAUSAL else T, KEYS):
        keys = first + tl.arange(0, KEYS)  # (N,)
        theirs = head + keys[:, None] * D + channels[None, :]  # (N, D)
        key_block = tl.load(key + theirs, (keys < T)[:, None], other=0.0)
        value_block = tl.load(value + theirs, (keys < T)[:, None], other=0.0)
        scores = tl.dot(query_block, tl.trans(key_block), input_precision="ieee") * scale  # (M, N)
        seen = (keys < T)[None, :] & ((keys[None, :] <= queries[:, None]) | (not CAUSAL))
        scores = tl.where(seen, scores, float("-inf"))
        new_m = tl.maximum(m, tl.max(scores, 1))  # finite: every query sees the first key
        weights, rescale = tl.exp2(scores - new_m[:, None]), tl.exp2(m - new_m)
        l = l * rescale + tl.sum(weights, 1)
        acc = tl.dot(weights.to(value_block.dtype), value_block, acc * rescale[:, None], input_precision="ieee")
        m = new_m
    tl.store(out + own, (acc / l[:, None]).to(query_block.dtype), (queries < T)[:, None])


def attention_minimal(query: Tensor, key: Tensor, value: Tensor, causal: bool = False, block: int = 0) -> Tensor:
    """`softmax(query keyᵀ / √D) value`, all `(B, H, T, D)`; D is 16, 32, 64 or 128. Raises `ValueError` for others."""
    if not query.shape == key.shape == value.shape or query.ndim != 4 or query.shape[3] not in (16, 32, 64, 128):
        shapes = ", ".join(str(tuple(each.shape)) for each in (query, key, value))
        raise ValueError(f"query, key and value are {shapes}, expected three times (B, H, T, D), D 16, 32, 64 or 128")
    query, key, value = (each.contiguous() for each in (query, key, value))
    out, (batch, heads, length, width) = torch.empty_like(query), query.shape
    block = block or (32 if query.dtype == torch.float32 else 64)  # queries, and keys; float32 needs more registers
    grid = triton.cdiv(length, block), batch * heads
    scale = math.log2(math.e) / math.sqrt(width)  # e^x = 2^(x log2 e)
    if out.numel():
        with on_quietly(query):
            minimal_kernel[grid](query, key, value, out, length, scale, causal, width, block, block)
    return out
