"""Attention over tensors in pieces: a sparse pattern gives what its mask gives, forward and backward."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from support.kernels.tables import TOLERANCES, table
from support.patterns import PATTERNS

from kernels.eager.sparse_attention import InPieces
from minitransformer.gradcheck import error
from minitransformer.ops import Dropout, Pattern, attention_backward, attention_forward, pattern


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    ("kv_heads", "bias_shape", "options"),
    [
        (2, None, {}),
        (1, (2, 2, 9, 9), {"softcap": 1.5, "dropout": Dropout(0.4, key=2**40 + 3, sentence=3, position=2)}),
        (2, (2, 1, 9), {"scale": 0.3}),
    ],
    ids=["plain", "all", "bias of keys"],
)
@pytest.mark.parametrize("padding", [False, True])
def test_tensors_in_pieces_give_what_the_whole_gives(name, dtype, kv_heads, bias_shape, options, padding):
    rng, ops = np.random.default_rng(0), table("torch", dtype)
    arrays = [rng.standard_normal((2, heads, 9, width)) for heads, width in ((2, 3), (kv_heads, 3), (kv_heads, 2))]
    if bias_shape is not None:
        arrays.append(rng.standard_normal(bias_shape))
    real = rng.random((2, 9)) < 0.7 if padding else None
    with patch.object(Pattern, "pieces", lambda *_: None):
        expected, cache = attention_forward(*arrays, pattern=replace(PATTERNS[name], key_mask=real), **options)
        dout = rng.standard_normal(expected.shape)
        gradients = attention_backward(dout, cache)
    with patch.object(pattern, "SMALLEST_BLOCK", 1):
        whole = replace(PATTERNS[name], key_mask=None if real is None else ops.asarray(real))
        tensors = [ops.asarray(array, dtype) for array in arrays]
        out, cache = ops.attention.forward(*tensors, pattern=whole, **options)
        assert isinstance(cache, InPieces)
        found = ops.attention.backward(ops.asarray(dout, dtype), cache)
    for ours, wanted in zip((out, *found), (expected, *gradients), strict=True):
        assert ops.to_numpy(ours).dtype == dtype
        assert error(ops.to_numpy(ours), wanted) <= TOLERANCES[dtype]
