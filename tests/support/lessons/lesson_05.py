"""Answers to lesson 05: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.ops import attention_backward, attention_forward, attention_weights  # noqa: F401 - in the table


def _without_largest(query, key, causal):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    exponentials = np.exp(np.where(np.tri(scores.shape[-1]) if causal else True, scores, -np.inf))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _strided(x, num_heads):
    B, T, C = x.shape
    D, size = C // num_heads, x.itemsize
    return np.lib.stride_tricks.as_strided(x, (B, num_heads, T, D), (T * C * size, D * size, C * size, size))


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


RIGHT = {
    "split_heads": [lambda x, num_heads: np.moveaxis(x.reshape(*x.shape[:-1], num_heads, -1), -2, -3)],
    "merge_heads": [lambda x: np.concatenate(x.swapaxes(0, 1), axis=-1)],
    "self_attention": [_attention_by_einsum],
    "self_attention_backward": [_backward_by_einsum],
}


MISTAKES = r"""
[split_heads]
reshape alone | returns x.reshape(B, num_heads, T, C // num_heads) | positions are mixed
no swap | num_heads).swapaxes(1, 2) → num_heads) | the positions stand before the heads
every H-th column | returns x.reshape(B, T, -1, num_heads).transpose(0, 3, 1, 2) | not every H-th one
the batch is swapped too
    returns x.reshape(*x.shape[:2], num_heads, -1).transpose(2, 0, 1, 3) | has become (3, 2, 5, 4)
in whole numbers | returns answer.astype(int) | int64, which rounds
heads four wide | returns x.reshape(B, T, -1, 4).swapaxes(1, 2) | with 4 heads has become (1, 2, 3, 4)
three heads | returns solution(x, 3) | cannot reshape
no axis of length 1 | returns answer.squeeze() | has become (4, 3, 2)
strides of one's own | is _strided | numbers have moved from one sentence to another
the last head first | returns answer[:, ::-1] | the first has the columns of head 2
[merge_heads]
reshape alone | returns x.reshape(B, T, H * D) | positions are mixed
interleaved | x.swapaxes(1, 2) → x.transpose(0, 2, 3, 1) | the heads are interleaved
the sum of the heads | returns x.sum(axis=1) | have become (2, 5, 4)
no axis of length 1 | returns answer.squeeze() | have become (3, 8)
five positions | returns x.swapaxes(1, 2).reshape(-1, 5, 12) | cannot reshape
the last head first | returns solution(x[:, ::-1]) | in the reverse order
[self_attention]
no w_out | returns merge_heads(mixed) | the last step
attention over the batch
    merge_heads(mixed) @ w_out → (merge_heads(mixed) @ w_out).reshape(shape)
    self_attention(x, w_qkv, w_out, num_heads, causal=False): →
        self_attention(x, w_qkv, w_out, num_heads, causal=False):\n    shape, x = x.shape, x.reshape(1, -1, x.shape[-1])
    must stay within a sentence
keys first | query, key, value = ( → value, query, key = ( | taken in this order?
queries and keys swapped | query, key, value = ( → key, query, value = ( | the order is queries, keys
reshape for split and merge
    x.reshape(B, T, num_heads, C // num_heads).swapaxes(1, 2) → x.reshape(B, num_heads, T, C // num_heads)
    x.swapaxes(1, 2).reshape → x.reshape | do split and merge mix positions?
causal is lost | causal=causal → causal=False | is causal passed on?
always causal | causal=causal → causal=True | is causal always on?
w_out is transposed | returns merge_heads(mixed) @ w_out.T | not its transpose
one head | (part, num_heads) → (part, 1) | heads are independent
head by head
    np.split(x @ w_qkv, 3, axis=-1)) →
        np.moveaxis((x @ w_qkv).reshape(*x.shape[:2], num_heads, 3, -1), 3, 0).reshape(3, *x.shape))
    are taken head by head
every H-th column
    x.reshape(B, T, num_heads, C // num_heads).swapaxes(1, 2) → x.reshape(B, T, -1, num_heads).transpose(0, 3, 1, 2)
    x.swapaxes(1, 2) → x.transpose(0, 2, 3, 1) | every H-th column goes to a head
one key for all heads | (query, key, → (query, key[:, :1] + 0 * key, value[:, :1] + 0 * | every head has keys of its own
four heads | (part, num_heads) → (part, 4) | is num_heads used?
divided by √C | attention_forward(query, → attention_forward(query / np.sqrt(num_heads), | are divided by √C, and
not divided | attention_forward(query → attention_forward(query * np.sqrt(query.shape[-1]) | are divided by nothing, and
heads averaged | returns merge_heads(mixed) @ w_out / num_heads | are not averaged
no axis of length 1 | returns answer.squeeze() | an axis of length 1 stays
named otherwise | num_heads, causal=False → heads, causal=False | num_heads) for → heads) for | 'num_heads'
the scale of C = 8 | (query, → (query * np.sqrt(x.shape[-1] / 8), | with B = 3, T = 4 and C = 6 it is wrong
masked after the softmax
    returns merge_heads(np.tril(attention_weights(query, key)) @ value) @ w_out if causal else answer
    masked before the softmax
no largest score
    returns merge_heads(_without_largest(query, key, causal) @ value) @ w_out | subtracts each row's own largest
[self_attention_backward]
w_out left out | dout @ w_out.T → dout | w_out comes first on the way back
dw_out of x
    merge_heads(mixed).reshape(-1, len(w_out)).T @ rows → x.reshape(-1, len(w_out)).T @ rows | are the merged heads
only the values send to x
    dprojected @ w_qkv. → np.split(dprojected, 3, -1)[2] @ np.split(w_qkv, 3, 1)[2]. | made of x, all send
keys and queries swapped | in gradients] → in (gradients[1], gradients[0], gradients[2])] | are dquery and dkey swapped?
causal is lost | causal=causal → causal=False | causal=True changes nothing
merged by reshape | merge_heads(gradient) → gradient.reshape(x.shape) | the queries' third
weights' gradients for each sentence | dw_qkv, dw_out → np.stack([dw_qkv, dw_qkv]), dw_out | those add up
averaged | dw_qkv, dw_out → dw_qkv / len(x), dw_out / len(x) | they are not averaged
always causal | causal=causal → causal=True | is it always on?
two heads | (part, num_heads) → (part, 2) | w_out.T, num_heads → w_out.T, 2 | is num_heads used
w_out not transposed | dout @ w_out.T → dout @ w_out | w_outᵀ in place of w_out
dw_out before dw_qkv | dw_qkv, dw_out → dw_out, dw_qkv | in the other order
named otherwise
    num_heads, causal → heads, causal | num_heads) for → heads) for | w_out.T, num_heads → w_out.T, heads | 'num_heads'
causal by default | causal=False → causal=True | the contract's default is False
causal is lost on the way to w_out
    returns *answer[:2], solution(dout, x, w_qkv, w_out, num_heads)[2] | changes nothing in dw_out
causal is lost on the way to w_qkv
    returns answer[0], solution(dout, x, w_qkv, w_out, num_heads)[1], dw_out | changes nothing in dw_qkv
"""
