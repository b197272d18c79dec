"""The encoder layer and the decoder layer."""

import dataclasses
import itertools

import numpy as np
import pytest
from support import torch_model
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.gradcheck import error
from minitransformer.layers import BlockConfig, DecoderLayer, DropoutStream, EncoderLayer
from minitransformer.ops import numpy_ops

POST_NORM = BlockConfig(
    d_model=4, num_heads=2, d_k=2, d_v=1, d_ff=5, dropout=0.0, attention_dropout=0.0,
    norm_first=False, window=None, eps=1e-5,
)  # fmt: skip
CONFIGS = {
    "post-norm": POST_NORM,
    "pre-norm": dataclasses.replace(POST_NORM, norm_first=True),
    "dropout": dataclasses.replace(POST_NORM, dropout=0.3, attention_dropout=0.4),
    "pre-norm, dropout, window": dataclasses.replace(
        POST_NORM, norm_first=True, dropout=0.3, attention_dropout=0.4, window=1
    ),
}
STREAM = DropoutStream(seed=3, step=1, sentence=2)
MASK = np.array([[True, True, False], [False, False, False]])


def encoder_layer(config: BlockConfig) -> EncoderLayer:
    return EncoderLayer(numpy_ops, config, itertools.count(10))


def decoder_layer(config: BlockConfig) -> DecoderLayer:
    return DecoderLayer(numpy_ops, config, itertools.count(10))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "padded"])
def test_encoder_layer(proof: Proof, config, mask):
    layer = encoder_layer(config)
    prove_layer(
        "EncoderLayer",
        lambda: encoder_layer(config),
        {"x": normal(np.random.default_rng(0), 2, 3, 4)},
        lambda w, x: torch_model.encoder_layer(w, x, layer, config, mask, STREAM),
        proof,
        call=lambda layer, x: layer.forward(x, mask, STREAM),
    )


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "padded"])
def test_decoder_layer(proof: Proof, config, mask):
    layer, rng = decoder_layer(config), np.random.default_rng(0)
    prove_layer(
        "DecoderLayer",
        lambda: decoder_layer(config),
        {"x": normal(rng, 2, 2, 4), "memory": normal(rng, 2, 3, 4)},
        lambda w, x, memory: torch_model.decoder_layer(w, x, memory, layer, config, mask, STREAM),
        proof,
        call=lambda layer, x, memory: layer.forward(x, memory, mask, STREAM),
    )


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_decoder_layer_in_steps_of_one_position(config):
    layer, rng = decoder_layer(config), np.random.default_rng(0)
    placed(layer)
    x, memory = rng.standard_normal((2, 4, 4)), rng.standard_normal((2, 3, 4))
    whole, _ = layer.forward(x, memory, MASK)
    own = np.zeros((2, 2, 4, 2)), np.zeros((2, 2, 4, 1))
    memory_cache = layer.cross_attention.keys_and_values(memory)
    steps = [layer.step(x[:, t : t + 1], own, memory_cache, MASK, t) for t in range(4)]
    assert error(np.concatenate(steps, axis=1), whole) <= 1e-12


@pytest.mark.parametrize(("make", "count"), [(encoder_layer, 3), (decoder_layer, 5)])
def test_every_dropout_site_has_its_own_number(make, count):
    """One on each attention's weights and one on each sub-layer's output."""
    layer = make(POST_NORM)
    sites = [part.site for part in vars(layer).values() if hasattr(part, "site")]
    assert sorted(sites) == list(range(10, 10 + count))
