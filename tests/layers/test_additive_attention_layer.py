"""Additive attention with its parameters."""

import numpy as np
import pytest
from support import torch_baselines
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.gradcheck import error
from minitransformer.layers import AdditiveAttention, Cache, Context
from minitransformer.ops import numpy_ops

C = 4
KEY_MASK = np.array([[True, True, False], [False, False, False]])


@pytest.mark.parametrize("key_mask", [None, KEY_MASK], ids=["full", "padded"])
def test_additive_attention(proof: Proof, key_mask):
    rng = np.random.default_rng(0)
    prove_layer(
        "AdditiveAttention",
        lambda: AdditiveAttention(numpy_ops, C),
        {"x": normal(rng, 2, 2, C), "memory": normal(rng, 2, 3, C)},
        lambda w, x, memory: torch_baselines.additive_attention(w, x, memory, key_mask),
        proof,
        call=lambda layer, x, memory: layer.forward(x, memory, Context(memory_mask=key_mask)),
    )


def test_beams_are_the_queries_of_a_step():
    """Each beam gets what it would get alone, and only the first position asks for the memory."""
    layer, rng, cache = AdditiveAttention(numpy_ops, C), np.random.default_rng(0), Cache(numpy_ops, 2, num_beams=4)
    placed(layer)
    memory = rng.standard_normal((2, 3, C))
    for position in range(2):
        x = rng.standard_normal((2, 4, C))
        context = Context(memory_mask=KEY_MASK, cache=cache)
        stepped, _ = layer.forward(x.reshape(8, 1, C), None if position else memory, context)
        for beam in range(4):
            alone, _ = layer.forward(x[:, beam : beam + 1], memory, Context(memory_mask=KEY_MASK))
            assert error(stepped.reshape(2, 4, 1, C)[:, beam], alone) <= 1e-12
    assert [array.shape for array in cache.shared[layer.name]] == [(2, 3, C)] * 2
