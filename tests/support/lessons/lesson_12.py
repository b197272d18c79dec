"""Answers to lesson 12: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _looks_through_a_mask(weights, lengths, offset):
    query, key = np.indices(weights.shape[2:])
    pairs = (key - query == offset) & (np.maximum(query, key) < lengths[:, None, None])  # (B, T, T)
    return np.einsum("bhqk,bqk->h", weights, pairs) / pairs.sum()


def _rows_masked(weight, head, num_heads):
    return weight * (np.arange(len(weight)) * num_heads // len(weight) != head)[:, None]


RIGHT = {
    "looks_at": [_looks_through_a_mask, lambda *args: _looks_through_a_mask(*args).astype(np.float32)],
    "without_head": [_rows_masked, lambda *args: _rows_masked(*args).astype(np.float32)],
}


MISTAKES = r"""
[looks_at]
the first sentence | zip(weights, lengths → zip(weights[:1], lengths[:1] | is that of the first sentence alone
padding counts | [:, :length, :length] → | at offset -1
a mean of sentences | diagonal.sum → diagonal.mean | diagonal.shape[1] → 1 | the mean is over pairs, not over sentences
divided by all queries | diagonal.shape[1] → length | is no pair to divide by
padded keys count | [:, :length, :length] → [:, :length] | at offset +1
a sum | returns total | which is the number of pairs
padded pairs divide | diagonal.shape[1] → sentence.shape[1] - abs(offset) | what padded pairs make of it
length minus offset, though negative
    diagonal.shape[1] → length - abs(offset) | where the sentence of two tokens has no pair
one number | returns answer.mean() | one number for each head
ahead instead of back | real, offset → real, -offset | finds the head that looks one ahead
weights of 0 left out
    diagonal.shape[1] → (diagonal > 0).sum(axis=1) | total / pairs → total / np.maximum(pairs, 1) | which are pairs too
a list | returns list(answer) | an array, not list
at most 5 back | real, offset → real, max(offset, -5) | -7
up to 6 tokens | [:, :length, → [:, : min(length, 6), | it is wrong at offset +2
[without_head]
columns
    .reshape(num_heads, -1, weight.shape[1]) →
    blocks[head] → size = weight.shape[1] // num_heads\n    blocks[:, head * size : (head + 1) * size]
    some columns are zero
every third row | .reshape(num_heads, -1, weight.shape[1]) → | blocks[head] → blocks[head::num_heads] | in a block
the others | blocks[head] → blocks[np.arange(num_heads) != head] | it is the one to be removed
a block as wide as the columns'
    .reshape(num_heads, -1, weight.shape[1]) →
    blocks[head] → size = weight.shape[1] // num_heads\n    blocks[head * size : (head + 1) * size]
    must stay what they were
rows of four
    .reshape(num_heads, -1, weight.shape[1]) → | blocks[head] → blocks[4 * head : 4 * head + 4]
    without head 0 of 5 the other heads'
nearly nothing | blocks[head] = 0 → blocks[head] *= 1e-10 | 0 itself silences it
nothing | blocks[head] = 0 → pass | still depends on what head 0 mixed
cut out | returns np.delete(blocks, head, axis=0).reshape(-1, weight.shape[1]) | the shape stays
"""
