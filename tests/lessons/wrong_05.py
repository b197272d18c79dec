"""Plausible wrong answers to lesson 05, each with words of the hint that it must get."""

import numpy as np

from minitransformer.layers.attention import merge_heads, split_heads
from minitransformer.ops import attention_backward, attention_forward


def _attend(x, w_qkv, w_out, num_heads, causal=False, split=split_heads, merge=merge_heads, order=(0, 1, 2)):
    parts = [split(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1)]
    mixed, _ = attention_forward(*(parts[n] for n in order), causal=causal)
    return merge(mixed) @ w_out


def _reshaped(x, num_heads):
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


def _flattened(x):
    return x.reshape(x.shape[0], x.shape[2], -1)


def _interleaved(x, num_heads):
    return x.reshape(*x.shape[:2], -1, num_heads).transpose(0, 3, 1, 2)


def _over_the_batch(x, w_qkv, w_out, num_heads, causal=False):
    joined = x.reshape(1, -1, x.shape[-1])
    return _attend(joined, w_qkv, w_out, num_heads, causal).reshape(x.shape)


def _backward(dout, x, w_qkv, w_out, num_heads, causal=False, merge=merge_heads, order=(0, 1, 2), paths=(1, 1, 1)):
    parts = [split_heads(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1)]
    mixed, cache = attention_forward(*parts, causal=causal)
    merged = merge_heads(mixed)
    gradients = attention_backward(split_heads(dout @ w_out.T, num_heads), cache)
    dprojected = np.concatenate([merge(gradients[n]) for n in order], axis=-1)
    width = x.shape[-1]
    dw_qkv, dw_out = x.reshape(-1, width).T @ dprojected.reshape(-1, 3 * width), _rows(merged).T @ _rows(dout)
    thirds = zip(np.split(dprojected, 3, axis=-1), np.split(w_qkv, 3, axis=1), paths, strict=True)
    return sum(path * third @ weight.T for third, weight, path in thirds), dw_qkv, dw_out


def _rows(x):
    return x.reshape(-1, x.shape[-1])


def _per_sentence(*args):
    dx, dw_qkv, dw_out = _backward(*args)
    return dx, np.stack([dw_qkv, dw_qkv]), dw_out


def _averaged(dout, x, *args):
    dx, dw_qkv, dw_out = _backward(dout, x, *args)
    return dx, dw_qkv / len(x), dw_out / len(x)


WRONG = {
    "split_heads": {
        "reshape alone": (_reshaped, "positions are mixed"),
        "no swap": (lambda x, n: x.reshape(*x.shape[:2], n, -1), "the positions stand before the heads"),
        "every H-th column": (_interleaved, "not every H-th one"),
        "the batch is swapped too": (
            lambda x, n: x.reshape(*x.shape[:2], n, -1).transpose(2, 0, 1, 3),
            "has become (3, 2, 5, 4)",
        ),
    },
    "merge_heads": {
        "reshape alone": (_flattened, "positions are mixed"),
        "interleaved": (
            lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape[0], x.shape[2], -1),
            "the heads are interleaved",
        ),
        "the sum of the heads": (lambda x: x.sum(axis=1), "have become (2, 5, 4)"),
    },
    "self_attention": {
        "no w_out": (lambda x, w, o, n, causal=False: _attend(x, w, np.eye(8), n, causal), "the last step"),
        "attention over the batch": (_over_the_batch, "must stay within a sentence"),
        "keys first": (lambda *args: _attend(*args, order=(1, 2, 0)), "taken in this order?"),
        "queries and keys swapped": (lambda *args: _attend(*args, order=(1, 0, 2)), "the order is queries, keys"),
        "reshape for split and merge": (
            lambda *args: _attend(*args, split=_reshaped, merge=_flattened),
            "do split and merge mix positions?",
        ),
        "causal is lost": (lambda x, w, o, n, causal=False: _attend(x, w, o, n), "is causal passed on?"),
        "always causal": (lambda x, w, o, n, causal=False: _attend(x, w, o, n, True), "is causal always on?"),
        "w_out is transposed": (lambda x, w, o, n, causal=False: _attend(x, w, o.T, n, causal), "not its transpose"),
        "one head": (lambda x, w, o, n, causal=False: _attend(x, w, o, 1, causal), "heads are independent"),
    },
    "self_attention_backward": {
        "only the values send to x": (lambda *args: _backward(*args, paths=(0, 0, 1)), "all send,"),
        "keys and queries swapped": (lambda *args: _backward(*args, order=(1, 0, 2)), "are dquery and dkey swapped?"),
        "causal is lost": (lambda d, x, w, o, n, causal=False: _backward(d, x, w, o, n), "causal=True changes nothing"),
        "merged by reshape": (lambda *args: _backward(*args, merge=_flattened), "the queries' third"),
        "weights' gradients for each sentence": (_per_sentence, "those add up"),
        "averaged": (_averaged, "they are not averaged"),
    },
}
