"""Dropout of the attention weights: the mask of `kernels.hashing`, computed where the weights are.

A weight's coordinates are (sentence, head, query) for its row and the key for its channel. Two neighbouring keys share
a hash, with 16 bits each. The hash is most of the work, so it is computed once for a pair of keys, and its halves are
put side by side. If one thread holds both weights of a pair, nothing moves between threads: on Hopper there are as many
shuffles (`SHFL`; `test_compilation.py`) with dropout as without.
"""

import triton
import triton.language as tl

from ..hashing import load_key, mix, mix_in


@triton.jit
def hash_queries(key_ptr, key_low, key_high, sentence, position, b, h, queries):
    """Return the hashes `(M,)` of rows (b, h, queries) of the weights; `sentence`, `position` number the first row."""
    low, high = load_key(key_ptr, key_low, key_high)
    hashed = mix_in(mix_in(low, b + sentence), h)
    return mix_in(mix_in(hashed, queries + position), high)


@triton.jit
def hash_pairs(row_hash, first_key, KEYS: tl.constexpr):
    """Return the hashes `(M, N/2)` of each row and each pair of keys, from the even `first_key` on."""
    pair = (first_key // 2 + tl.arange(0, KEYS // 2)).to(tl.uint32)
    return mix(row_hash[:, None] + pair[None, :] * 0x9E3779B9)


@triton.jit
def halves_kept(pair_hash, threshold):
    """Return True for each kept weight of a pair; a new last axis has the even and the odd key."""
    threshold = threshold.to(tl.uint32)
    return tl.join((pair_hash & 0xFFFF) >= threshold, (pair_hash >> 16) >= threshold)


@triton.jit
def kept_weights(pair_hash, threshold):
    """Return True for each weight `(M, N)` that is kept, from `hash_pairs`."""
    return halves_kept(pair_hash, threshold).reshape(pair_hash.shape[0], 2 * pair_hash.shape[1])


# --- Transposed, for the gradients of keys and values ---------------------------------------------------------


@triton.jit
def paired_order(KEYS: tl.constexpr):
    """Return the numbers 0 … KEYS − 1, each group of 16 in the order 0 2 4 … 14 1 3 5 … 15.

    A thread of a tensor core holds rows i and i + 8 of a product. Keys as rows may come in any order, and in this order
    these two rows are a pair.
    """
    place = tl.arange(0, KEYS)
    return (place & -16) | ((place & 7) << 1) | ((place >> 3) & 1)


@triton.jit
def hash_pairs_transposed(row_hash, first_key, KEYS: tl.constexpr):
    """Return `hash_pairs` for keys in paired order: `(N/16, 8, M)`."""
    pair = (first_key // 2 + tl.arange(0, KEYS // 2)).to(tl.uint32).reshape(KEYS // 16, 8)
    return mix(row_hash[None, None, :] + pair[:, :, None] * 0x9E3779B9)


@triton.jit
def kept_weights_transposed(pair_hash, threshold):
    """Return True for each weight `(N, M)` that is kept, from `hash_pairs_transposed`."""
    kept = halves_kept(pair_hash, threshold).permute(0, 3, 1, 2)  # (N/16, 2, 8, M)
    return kept.reshape(16 * pair_hash.shape[0], pair_hash.shape[2])
