"""Answers to lesson 12: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _diagonals(weights, lengths, offset):
    for sentence, length in zip(weights, lengths, strict=True):
        yield np.diagonal(sentence[:, :length, :length], offset, axis1=1, axis2=2)


def _padded(weights, lengths, offset):
    return np.diagonal(weights, offset, axis1=2, axis2=3).mean(axis=(0, 2))


def _of_sentences(weights, lengths, offset):
    return np.mean([diagonal.mean(axis=1) for diagonal in _diagonals(weights, lengths, offset)], axis=0)


def _of_queries(weights, lengths, offset):
    return sum(diagonal.sum(axis=1) for diagonal in _diagonals(weights, lengths, offset)) / lengths.sum()


def _padded_keys(weights, lengths, offset):
    time = weights.shape[-1]
    pairs = [(b, q) for b, length in enumerate(lengths) for q in range(length) if 0 <= q + offset < time]
    return np.mean([weights[b, :, q, q + offset] for b, q in pairs], axis=0)


def _padded_pairs(weights, lengths, offset):
    pairs = len(lengths) * (weights.shape[-1] - abs(offset))
    return sum(diagonal.sum(axis=1) for diagonal in _diagonals(weights, lengths, offset)) / pairs


def _negative_pairs(weights, lengths, offset):
    pairs = (lengths - abs(offset)).sum()
    return sum(diagonal.sum(axis=1) for diagonal in _diagonals(weights, lengths, offset)) / pairs


def _of_weights_above_zero(weights, lengths, offset):
    found = np.concatenate(list(_diagonals(weights, lengths, offset)), axis=1)
    return found.sum(axis=1) / np.maximum((found > 0).sum(axis=1), 1)


def _of_all_heads(weights, lengths, offset):
    return np.mean(np.concatenate(list(_diagonals(weights, lengths, offset)), axis=1))


def _backwards(weights, lengths, offset):
    found = list(_diagonals(weights, lengths, -offset))
    return np.concatenate(found, axis=1).mean(axis=1)


def _changed(weight, rows=slice(None), columns=slice(None)):
    weight = weight.copy()
    weight[rows, columns] = 0
    return weight


def _block(weight, head, num_heads):
    width = len(weight) // num_heads
    return slice(head * width, (head + 1) * width)


def _all_others(weight, head, num_heads):
    width = len(weight) // num_heads
    kept = np.zeros_like(weight)
    kept[head * width : (head + 1) * width] = weight[head * width : (head + 1) * width]
    return kept


def _in_place(weight, head, num_heads):
    width = len(weight) // num_heads
    weight[head * width : (head + 1) * width] = 0
    return weight


def _of_six_tokens(weights, lengths, offset):
    """Right, for positions below 6."""
    picked = [
        weights[sentence, :, query, query + offset]
        for sentence, length in enumerate(lengths)
        for query in range(6)
        if query < length and 0 <= query + offset < length
    ]
    return np.mean(picked, axis=0)


def _looks_in_loops(weights, lengths, offset):
    found = [
        weights[b, :, query, query + offset]
        for b, length in enumerate(lengths)
        for query in range(length)
        if 0 <= query + offset < length
    ]
    return np.mean(found, axis=0)


def _looks_through_a_mask(weights, lengths, offset):
    query, key = np.indices(weights.shape[2:])
    pairs = (key - query == offset) & (np.maximum(query, key) < lengths[:, None, None])  # (B, T, T)
    return np.einsum("bhqk,bqk->h", weights, pairs) / pairs.sum()


def _blocks_put_together(weight, head, num_heads):
    blocks = np.split(weight, num_heads)
    blocks[head] = np.zeros_like(blocks[head])
    return np.concatenate(blocks)


def _rows_masked(weight, head, num_heads):
    return weight * (np.arange(len(weight)) * num_heads // len(weight) != head)[:, None]


RIGHT = {
    "looks_at": [_looks_in_loops, _looks_through_a_mask, lambda *args: _looks_in_loops(*args).astype(np.float32)],
    "without_head": [_blocks_put_together, _rows_masked, lambda *args: _rows_masked(*args).astype(np.float32)],
}


WRONG = {
    "looks_at": {
        "padding counts": (_padded, "at offset -1"),
        "a mean of sentences": (_of_sentences, "the mean is over pairs, not over sentences"),
        "divided by all queries": (_of_queries, "is no pair to divide by"),
        "padded keys count": (_padded_keys, "at offset +1"),
        "a sum": (
            lambda weights, lengths, offset: sum(d.sum(axis=1) for d in _diagonals(weights, lengths, offset)),
            "which is the number of pairs",
        ),
        "padded pairs divide": (_padded_pairs, "what padded pairs make of it"),
        "length minus offset, though negative": (_negative_pairs, "where the sentence of two tokens has no pair"),
        "one number": (_of_all_heads, "one number for each head"),
        "ahead instead of back": (_backwards, "finds the head that looks one ahead"),
        "weights of 0 left out": (_of_weights_above_zero, "which are pairs too"),
        "a list": (
            lambda *args: list(np.concatenate(list(_diagonals(*args)), axis=1).mean(axis=1)),
            "an array, not list",
        ),
        "up to 6 tokens": (_of_six_tokens, "up to 9 tokens it is wrong"),
    },
    "without_head": {
        "columns": (
            lambda weight, head, num_heads: _changed(
                weight, columns=slice(head * (size := weight.shape[1] // num_heads), (head + 1) * size)
            ),
            "some columns are zero",
        ),
        "every third row": (
            lambda weight, head, num_heads: _changed(weight, slice(head, None, num_heads)),
            "in a block",
        ),
        "the others": (_all_others, "it is the one to be removed"),
        "in place": (_in_place, "writes into its argument weight"),
        "a block as wide as the columns'": (
            lambda weight, head, num_heads: _changed(
                weight, slice(head * (size := weight.shape[1] // num_heads), (head + 1) * size)
            ),
            "must stay what they were",
        ),
        "rows of four": (
            lambda weight, head, num_heads: _changed(weight, slice(4 * head, 4 * head + 4)),
            "without head 0 of 5 the other heads'",
        ),
        "nearly nothing": (
            lambda weight, head, num_heads: (
                _changed(weight, _block(weight, head, num_heads))
                + 1e-10 * (weight - _changed(weight, _block(weight, head, num_heads)))
            ),
            "0 itself silences it",
        ),
        "nothing": (lambda weight, head, num_heads: weight.copy(), "still depends on what head 0 mixed"),
        "cut out": (
            lambda weight, head, num_heads: np.delete(
                weight, slice(head * (size := len(weight) // num_heads), (head + 1) * size), axis=0
            ),
            "the shape stays",
        ),
    },
}
