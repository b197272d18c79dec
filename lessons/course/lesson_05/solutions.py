"""Solutions of lesson 05."""

import numpy as np

from minitransformer.ops import attention_backward, attention_forward


def split_heads(x, num_heads):
    B, T, C = x.shape
    return x.reshape(B, T, num_heads, C // num_heads).swapaxes(1, 2)  # (B, H, T, D)


def merge_heads(x):
    B, H, T, D = x.shape
    return x.swapaxes(1, 2).reshape(B, T, H * D)


def self_attention(x, w_qkv, w_out, num_heads, causal=False):
    query, key, value = (split_heads(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1))  # (B, H, T, D)
    mixed, _ = attention_forward(query, key, value, causal=causal)
    return merge_heads(mixed) @ w_out


def self_attention_backward(dout, x, w_qkv, w_out, num_heads, causal=False):
    query, key, value = (split_heads(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1))
    mixed, cache = attention_forward(query, key, value, causal=causal)

    rows = dout.reshape(-1, dout.shape[-1])  # (B·T, C)
    dw_out = merge_heads(mixed).reshape(-1, len(w_out)).T @ rows  # out = merged @ w_out
    dmixed = split_heads(dout @ w_out.T, num_heads)
    gradients = attention_backward(dmixed, cache)  # dquery, dkey, dvalue
    dprojected = np.concatenate([merge_heads(gradient) for gradient in gradients], axis=-1)  # (B, T, 3·C)
    dw_qkv = x.reshape(-1, x.shape[-1]).T @ dprojected.reshape(-1, w_qkv.shape[1])  # projected = x @ w_qkv
    return dprojected @ w_qkv.T, dw_qkv, dw_out
