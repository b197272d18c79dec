"""Answers to lesson 05: right ones written in another way, and plausible wrong ones (see `answers`)."""

import math

import numpy as np

from minitransformer.layers.attention import merge_heads, split_heads
from minitransformer.ops import attention_backward, attention_forward


def _attend(
    x, w_qkv, w_out, num_heads, causal=False, split=split_heads, merge=merge_heads, order=(0, 1, 2), scale=None
):
    parts = [split(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1)]
    mixed, _ = attention_forward(*(parts[n] for n in order), causal=causal, scale=scale)
    return merge(mixed) @ w_out


def _softmax_of(softmax):
    """Self-attention with a softmax of one's own: `softmax(scores, causal)`."""

    def self_attention(x, w_qkv, w_out, num_heads, causal=False):
        query, key, value = (split_heads(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1))
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
        return merge_heads(softmax(scores, causal) @ value) @ w_out

    return self_attention


def _exponentials(scores, largest, causal):
    exponentials = np.exp(np.where(np.tri(scores.shape[-1]) if causal else True, scores, -np.inf) - largest)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _masked_afterwards(scores, causal):
    weights = _exponentials(scores, scores.max(axis=-1, keepdims=True), False)
    return weights * np.tri(scores.shape[-1]) if causal else weights


def _multi_query(x, w_qkv, w_out, num_heads, causal=False):
    query, key, value = (split_heads(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1))
    shared = (np.broadcast_to(part[:, :1], part.shape) for part in (key, value))
    return merge_heads(attention_forward(query, *shared, causal=causal)[0]) @ w_out


def _reshaped(x, num_heads):
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


def _heads_of(x, width):
    return x.reshape(*x.shape[:2], -1, width).swapaxes(1, 2)


def _flattened(x):
    return x.reshape(x.shape[0], x.shape[2], -1)


def _strided(x, num_heads):
    B, T, C = x.shape
    D, size = C // num_heads, x.itemsize
    return np.lib.stride_tricks.as_strided(x, (B, num_heads, T, D), (T * C * size, D * size, C * size, size))


def _interleaved(x, num_heads):
    return x.reshape(*x.shape[:2], -1, num_heads).transpose(0, 3, 1, 2)


def _put_together_interleaved(x):
    return x.transpose(0, 2, 3, 1).reshape(x.shape[0], x.shape[2], -1)


def _by_head(x, w_qkv, w_out, num_heads, causal=False):
    """As if w_qkv held query, key and value of the first head, then of the next."""
    C = x.shape[-1]
    parts = np.moveaxis((x @ w_qkv).reshape(*x.shape[:2], num_heads, 3, C // num_heads), 3, 0)  # (3, B, T, H, D)
    return merge_heads(attention_forward(*parts.swapaxes(2, 3), causal=causal)[0]) @ w_out


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


def _causal_for(number):
    """A backward in which `causal` does not reach the gradient of that number."""

    def backward(*args):
        right, plain = _backward(*args), _backward(*args[:5])
        return tuple(plain[n] if n == number else right[n] for n in range(3))

    return backward


def _through_w_out(dout, x, w_qkv, w_out, num_heads, causal=False):
    right = _backward(dout, x, w_qkv, w_out, num_heads, causal)
    return *_backward(dout, x, w_qkv, w_out.T, num_heads, causal)[:2], right[2]


def _named_otherwise(d, x, w, o, heads, masked=False):
    return _backward(d, x, w, o, heads, masked)


def _per_sentence(*args):
    dx, dw_qkv, dw_out = _backward(*args)
    return dx, np.stack([dw_qkv, dw_qkv]), dw_out


def _averaged(dout, x, *args):
    dx, dw_qkv, dw_out = _backward(dout, x, *args)
    return dx, dw_qkv / len(x), dw_out / len(x)


def _causal_by_default(dout, x, w_qkv, w_out, num_heads, causal=True):
    return _backward(dout, x, w_qkv, w_out, num_heads, causal)


def _scaled_for_eight(x, w_qkv, w_out, num_heads, causal=False):
    parts = [split_heads(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1)]
    mixed, _ = attention_forward(*parts, causal=causal, scale=(num_heads / 8) ** 0.5)
    return merge_heads(mixed) @ w_out


def _split_in_a_loop(x, num_heads):
    B, T, C = x.shape
    D = C // num_heads
    heads = np.empty((B, num_heads, T, D))
    for h in range(num_heads):
        heads[:, h] = x[:, :, h * D : (h + 1) * D]
    return heads


def _attention_in_loops(x, w_qkv, w_out, num_heads, causal=False):
    out, (B, T, C) = np.zeros_like(x), x.shape
    D = C // num_heads
    for b in range(B):
        projected = x[b] @ w_qkv
        for h in range(num_heads):
            query, key, value = (projected[:, n * C + h * D : n * C + (h + 1) * D] for n in range(3))
            scores = query @ key.T / math.sqrt(D)
            if causal:
                scores[np.triu_indices(T, 1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            out[b] += weights @ value @ w_out[h * D : (h + 1) * D]
    return out


def _attention_by_einsum(x, w_qkv, w_out, num_heads, causal=False):
    B, T, C = x.shape
    query, key, value = np.moveaxis((x @ w_qkv).reshape(B, T, 3, num_heads, -1), 2, 0)
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(C // num_heads)
    scores = scores + np.where(np.tri(T), 0, -1e30) if causal else scores
    weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhd,hdc->bqc", weights, value, w_out.reshape(num_heads, -1, C))


def _backward_by_einsum(dout, x, w_qkv, w_out, num_heads, causal=False):
    B, T, C = x.shape
    parts = [part.reshape(B, T, num_heads, -1).swapaxes(1, 2) for part in np.split(x @ w_qkv, 3, axis=-1)]
    mixed, cache = attention_forward(*parts, causal=causal)
    dmixed = np.einsum("btc,hdc->bhtd", dout, w_out.reshape(num_heads, -1, C))
    gradients = [np.swapaxes(gradient, 1, 2).reshape(B, T, C) for gradient in attention_backward(dmixed, cache)]
    dx = sum(gradient @ weight.T for gradient, weight in zip(gradients, np.split(w_qkv, 3, axis=1), strict=True))
    dw_qkv = np.concatenate([np.einsum("btc,btd->cd", x, gradient) for gradient in gradients], axis=1)
    return [dx, dw_qkv, np.einsum("bhtd,btc->hdc", mixed, dout).reshape(C, C)]


def _sentence_by_sentence(dout, x, *weights_and_options, **options):
    per_sentence = [
        _backward_by_einsum(d[None], sentence[None], *weights_and_options, **options)
        for d, sentence in zip(dout, x, strict=True)
    ]
    dx, dw_qkv, dw_out = zip(*per_sentence, strict=True)
    return np.concatenate(dx), sum(dw_qkv), sum(dw_out)


RIGHT = {
    "split_heads": [
        _split_in_a_loop,
        lambda x, num_heads: np.stack(np.split(x, num_heads, axis=-1), axis=1),
        lambda x, num_heads: np.moveaxis(x.reshape(*x.shape[:-1], num_heads, -1), -2, -3),
    ],
    "merge_heads": [
        lambda x: np.concatenate(x.swapaxes(0, 1), axis=-1),
        lambda x: np.einsum("bhtd->bthd", x).reshape(x.shape[0], x.shape[2], -1),
        lambda x: np.stack([np.hstack(list(heads)) for heads in x]),
    ],
    "self_attention": [_attention_in_loops, _attention_by_einsum],
    "self_attention_backward": [_backward_by_einsum, _sentence_by_sentence],
}


WRONG = {
    "split_heads": {
        "reshape alone": (_reshaped, "positions are mixed"),
        "no swap": (lambda x, n: x.reshape(*x.shape[:2], n, -1), "the positions stand before the heads"),
        "every H-th column": (_interleaved, "not every H-th one"),
        "the batch is swapped too": (
            lambda x, n: x.reshape(*x.shape[:2], n, -1).transpose(2, 0, 1, 3),
            "has become (3, 2, 5, 4)",
        ),
        "in float32": (lambda x, n: split_heads(x, n).astype(np.float32), "float32, which rounds"),
        "in whole numbers": (lambda x, n: split_heads(x, n).astype(int), "int64, which rounds"),
        "heads four wide": (lambda x, n: _heads_of(x, 4), "with 4 heads has become (1, 2, 3, 4)"),
        "three heads": (lambda x, n: split_heads(x, 3), "cannot reshape"),
        "no axis of length 1": (lambda x, n: split_heads(x, n).squeeze(), "has become (4, 3, 2)"),
        "strides of one's own": (_strided, "numbers have moved from one sentence to another"),
        "the last head first": (lambda x, n: split_heads(x, n)[:, ::-1], "the first has the columns of head 2"),
    },
    "merge_heads": {
        "reshape alone": (_flattened, "positions are mixed"),
        "interleaved": (_put_together_interleaved, "the heads are interleaved"),
        "the sum of the heads": (lambda x: x.sum(axis=1), "have become (2, 5, 4)"),
        "in float32": (lambda x: merge_heads(x).astype(np.float32), "float32, which rounds"),
        "no axis of length 1": (lambda x: merge_heads(x).squeeze(), "have become (3, 8)"),
        "five positions": (lambda x: x.swapaxes(1, 2).reshape(-1, 5, 12), "cannot reshape"),
        "the last head first": (lambda x: merge_heads(x[:, ::-1]), "in the reverse order"),
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
        "head by head": (_by_head, "are taken head by head"),
        "every H-th column": (
            lambda *args: _attend(*args, split=_interleaved, merge=_put_together_interleaved),
            "every H-th column goes to a head",
        ),
        "one key for all heads": (_multi_query, "every head has keys of its own"),
        "four heads": (lambda x, w, o, n, causal=False: _attend(x, w, o, 4, causal), "is num_heads used?"),
        "divided by √C": (lambda *args: _attend(*args, scale=8**-0.5), "are divided by √C, and"),
        "not divided": (lambda *args: _attend(*args, scale=1.0), "are divided by nothing, and"),
        "heads averaged": (lambda x, w, o, n, causal=False: _attend(x, w, o, n, causal) / n, "are not averaged"),
        "masked after the softmax": (_softmax_of(_masked_afterwards), "masked before the softmax"),
        "no largest score": (
            _softmax_of(lambda scores, causal: _exponentials(scores, 0, causal)),
            "subtracts each row's own largest",
        ),
        "no axis of length 1": (lambda *args: _attend(*args).squeeze(), "an axis of length 1 stays"),
        "in float32": (lambda *args: _attend(*args).astype(np.float32), "float32, which rounds"),
        "named otherwise": (lambda x, w, o, heads, masked=False: _attend(x, w, o, heads, masked), "'num_heads'"),
        "the scale of C = 8": (_scaled_for_eight, "with B = 3, T = 4 and C = 6 it is wrong"),
    },
    "self_attention_backward": {
        "only the values send to x": (lambda *args: _backward(*args, paths=(0, 0, 1)), "all send,"),
        "keys and queries swapped": (lambda *args: _backward(*args, order=(1, 0, 2)), "are dquery and dkey swapped?"),
        "causal is lost": (lambda d, x, w, o, n, causal=False: _backward(d, x, w, o, n), "causal=True changes nothing"),
        "merged by reshape": (lambda *args: _backward(*args, merge=_flattened), "the queries' third"),
        "weights' gradients for each sentence": (_per_sentence, "those add up"),
        "averaged": (_averaged, "they are not averaged"),
        "causal is lost on the way to w_out": (_causal_for(2), "changes nothing in dw_out"),
        "causal is lost on the way to w_qkv": (_causal_for(1), "changes nothing in dw_qkv"),
        "always causal": (lambda d, x, w, o, n, causal=False: _backward(d, x, w, o, n, True), "is it always on?"),
        "two heads": (lambda d, x, w, o, n, causal=False: _backward(d, x, w, o, 2, causal), "is num_heads used"),
        "w_out not transposed": (_through_w_out, "w_outᵀ in place of w_out"),
        "dw_out before dw_qkv": (lambda *args: tuple(_backward(*args)[n] for n in (0, 2, 1)), "in the other order"),
        "in float32": (lambda *args: tuple(map(np.float32, _backward(*args))), "float32, which rounds"),
        "named otherwise": (_named_otherwise, "'num_heads'"),
        "causal by default": (_causal_by_default, "the contract's default is False"),
    },
}
