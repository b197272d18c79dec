"""Additive attention with its parameters."""

import numpy as np
import pytest
from support import torch_baselines
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.gradcheck import error
from minitransformer.layers import AdditiveAttention
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
        call=lambda layer, x, memory: layer.forward(x, memory, key_mask),
    )


def test_beams_are_the_queries_of_a_step():
    layer, rng = AdditiveAttention(numpy_ops, C), np.random.default_rng(0)
    placed(layer)
    x, memory = rng.standard_normal((2, 4, C)), rng.standard_normal((2, 3, C))
    stepped = layer.step(x, *layer.keys_and_values(memory), KEY_MASK)
    for beam in range(4):
        alone, _ = layer.forward(x[:, beam : beam + 1], memory, KEY_MASK)
        assert error(stepped[:, beam : beam + 1], alone) <= 1e-12
