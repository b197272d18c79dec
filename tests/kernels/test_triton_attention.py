"""Attention: who sees whom, in any shape and layout, forward and backward."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from prove_kernel import DEVICE, DTYPES, few, prove_kernel

import kernels
from minitransformer import ops
from minitransformer.ops import Dropout, dropout_mask
from minitransformer.ops.attention import attention_mask

def peer(query, key, value, *, causal=False, key_mask=None, window=None, scale=None, dropout=None):
    """`F.scaled_dot_product_attention`; with dropout composed, since PyTorch can't draw our mask."""
    mask = attention_mask(query.shape[2], key.shape[2], causal, key_mask, window)
    mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool) if mask is None else torch.from_numpy(mask)
    mask = mask.to(query.device)
    if dropout is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query @ key.mT * scale).masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, -1).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    kept = torch.from_numpy(dropout_mask(tuple(weights.shape), dropout)).to(query.device)
    return weights * kept * dropout.scale @ value

def qkv(rng, batch=1, heads=1, tq=3, tk=4, d=4, dv=4):
    return {
        "query": rng.standard_normal((batch, heads, tq, d)),
        "key": rng.standard_normal((batch, heads, tk, d)),
        "value": rng.standard_normal((batch, heads, tk, dv)),
    }

def prove_attention(arrays, dtype, *, key_mask=None, **options):
    tensor_mask = None if key_mask is None else torch.from_numpy(key_mask).to(DEVICE)
    prove_kernel(
        partial(kernels.attention_forward, key_mask=tensor_mask, **options),
        kernels.attention_backward,
        partial(ops.attention_forward, key_mask=key_mask, **options),
        ops.attention_backward,
        partial(peer, key_mask=key_mask, **options),
        arrays,
        dtype,
    )

lengths = st.integers(1, 40)
widths = st.integers(1, 20)

@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(batch=st.integers(1,2), heads=st.integers(1,2), tq=lengths, tk=lengths, d=widths, dv=widths, causal=st.booleans(),
    window=st.sampled_from([None, 0, 1, 5, 18, 100]), scale=st.sampled_from([None, 0.7, 0.0, -0.3]), padding=st.sampled_from([None, 0.3, 0.8, 1.0]),
    rate=st.sampled_from([None, 0.5]), seed=st.integers(0, 2**32-1))
def test_attention(dtype, batch, heads, tq, tk, d, dv, causal, window, scale, padding, rate, seed):
    rng = np.random.default_rng(seed)
    prove_attention(qkv(rng, batch, heads, tq, tk, d, dv), dtype, causal=causal, window=window, scale=scale,
        key_mask=None if padding is None else rng.random((batch, tk)) >= padding,
        dropout=None if rate is None else Dropout(rate, key=seed << 20, sentence=2, position=1))
