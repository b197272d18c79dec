"""The forward kernel of attention for Hopper in which warps have roles: one group fetches, two compute.

What it does better than `forward`: there all warps compute the addresses of the next block, issue its copies between
their products, and wait for both. Here the compiler splits the loop (`warp_specialize=True`). A group of 4 warps, with
40 registers a thread, only asks the tensor memory accelerator for blocks, one instruction each. Two groups, with 232
registers a thread, compute half of the queries each, and need not keep in step: one's exponentials may meet the
other's products. The accelerator computes addresses, and writes zeros for what lies beyond the ends. It reads as many
numbers as `forward` does: keys and values once for each block of queries.

What it can't do: the compiler's pass fails on a second loop, and leaves a loop with a branch as it is. So where a query
may see only a part of some block, each score of every block takes a comparison and a selection for each end that the
band has. Patterns, padding, dropout, a bias, a softcap, and other widths than 64 and 128 are left to `forward`.

No Hopper has run it yet. So it is never the default: tuning may choose it, if it computes what the default does. For a
gfx1100 Triton makes plain loads of the descriptors' blocks; so `kernels.machine` can execute it.
"""

import triton
import triton.language as tl

from .blocks import LOG2_E, blocks_of_keys, key_head, locate, store_softmax


@triton.jit(do_not_specialize=["Tq", "Tk", "H", "below", "above", "scale"])
def specialised_attention_forward_kernel(
    query, key, value, out, lse_ptr, Tq, Tk, H, below, above, scale,
    D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
    EARLIER: tl.constexpr, LATER: tl.constexpr,
):  # fmt: skip
    """Writes what `attention_forward_kernel` writes. The scale must be positive, and D a power of 2.

    EARLIER  whether a block may hold keys that are too early for a query
    LATER    whether it may hold keys that are too late for one, or beyond the last
    """
    block, head, b, h = locate(Tq, H, QUERIES)
    block = tl.cdiv(Tq, QUERIES) - 1 - block  # causal attention's longest blocks first: short ones fill the gaps
    kv_head = key_head(h, GROUP)
    query_rows = describe(query, b, h, Tq, D, QUERIES)
    key_rows, value_rows = describe(key, b, kv_head, Tk, D, KEYS), describe(value, b, kv_head, Tk, D, KEYS)
    queries, span = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, KEYS)
    earliest = queries + (Tk - Tq) - below  # the first and the last key that a query sees, (M,)
    latest = tl.minimum(queries + (Tk - Tq) + above, Tk - 1)
    scale *= LOG2_E

    m = tl.full((QUERIES,), float("-inf"), tl.float32)
    l = tl.zeros((QUERIES,), tl.float32)
    acc = tl.zeros((QUERIES, D), tl.float32)
    query_block = query_rows.load([block * QUERIES, 0])  # (M, D)
    first, _, _, last = blocks_of_keys(block, Tq, Tk, below, above, None, None, b, QUERIES, KEYS)
    for n in tl.range(first, last, warp_specialize=True):
        first_key = n * KEYS
        key_block = key_rows.load([first_key, 0])  # (N, D)
        scores = tl.dot(query_block, tl.trans(key_block), input_precision=PRECISION)  # (M, N)
        if EARLIER:
            scores = tl.where(span[None, :] >= (earliest - first_key)[:, None], scores, float("-inf"))
        if LATER:
            scores = tl.where(span[None, :] <= (latest - first_key)[:, None], scores, float("-inf"))
        new_m = tl.maximum(m, tl.max(scores, 1) * scale)
        shift = tl.where(new_m == float("-inf"), 0.0, new_m)  # no key seen yet: −inf − (−inf) would be NaN
        weights = tl.exp2(scores * scale - shift[:, None])  # a fused multiply-add for each score
        rescale = tl.exp2(m - shift)
        l = l * rescale + tl.sum(weights, 1)
        value_block = value_rows.load([first_key, 0])  # (N, D)
        acc = tl.dot(weights.to(value_block.dtype), value_block, acc * rescale[:, None], input_precision=PRECISION)
        m = new_m
    store_softmax(out, lse_ptr + head * Tq, b, h, queries, queries < Tq, m, l, acc, None, D, D)


@triton.jit
def describe(x, b, h, length, D: tl.constexpr, ROWS: tl.constexpr):
    """A head of x for the tensor memory accelerator, which fetches ROWS of its rows at a time.

    Made in the kernel, because the pass that splits the queries of a block between two groups of warps can't split a
    descriptor that comes as an argument.
    """
    head = x.ptr + b * x.stride_b + h * x.stride_h
    return tl.make_tensor_descriptor(head, [length, D], [tl.cast(x.stride_t, tl.int64), 1], [ROWS, D])
