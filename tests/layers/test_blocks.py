"""The block of an encoder and of a decoder, and what a stack makes of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.prove_layer import placed

from minitransformer.gradcheck import error
from minitransformer.layers import (
    AttentionConfig,
    Block,
    BlockConfig,
    Cache,
    Context,
    DropoutStream,
    FeedForward,
    FeedForwardConfig,
    NormConfig,
    ResidualNorm,
    Stack,
    StackConfig,
    TokenEmbedding,
)
from minitransformer.ops import dropout_mask, numpy_ops

POST_NORM = BlockConfig(AttentionConfig(num_heads=2, d_k=2, d_v=1), FeedForwardConfig(5), NormConfig(), d_model=4)
DROPPING = replace(POST_NORM, attention=replace(POST_NORM.attention, dropout=0.4), dropout=0.3)
CONFIGS = {
    "post-norm": POST_NORM,
    "pre-norm": replace(POST_NORM, norm=NormConfig(first=True)),
    "dropout": DROPPING,
    "pre-norm, dropout, window": replace(
        DROPPING, norm=NormConfig(first=True), attention=replace(DROPPING.attention, window=1)
    ),
}
STREAM = DropoutStream(seed=1, step=9, sentence=4)
MASK = np.array([[True, True, False], [False, False, False]])
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def block_of(config: BlockConfig) -> Block:
    block = Block(numpy_ops, config)
    block.name_layers()
    return block


@every_config
def test_a_block_of_a_decoder_in_steps_of_one_position(config):
    block, rng = block_of(replace(config, causal=True, cross=True)), np.random.default_rng(0)
    placed(block)
    x, memory = rng.standard_normal((2, 4, 4)), rng.standard_normal((2, 3, 4))
    whole, _ = block.forward(x, Context(memory=memory, memory_mask=MASK))
    cache = Cache(numpy_ops, batch=2, num_beams=1)
    for t in range(4):
        context = Context(memory=memory, memory_mask=MASK, cache=cache)
        assert error(block.forward(x[:, t : t + 1], context)[0], whole[:, t : t + 1]) <= 1e-12
        cache.position += 1


@pytest.mark.parametrize(("cross", "count"), [(False, 3), (True, 5)])
def test_every_dropout_site_has_its_own_number(cross, count):
    """One on each attention's weights and one on each sub-layer's output."""
    sites = [
        layer.site for _, layer in block_of(replace(DROPPING, cross=cross)).named_layers() if hasattr(layer, "rate")
    ]
    assert len(sites) == len(set(sites)) == count


@pytest.mark.parametrize("norm", [NormConfig(), NormConfig(first=True)], ids=str)
def test_dropout_acts_on_the_sublayer_and_never_on_the_residual(norm):
    """Vaswani 2017, §5.4: "to the output of each sub-layer, before it is added to the sub-layer input"."""
    x = np.random.default_rng(0).standard_normal((1, 2, 4))
    layer = ResidualNorm(numpy_ops, 4, norm, 0.5)
    placed(layer)
    kept = dropout_mask(x.shape, STREAM.at(layer.site, 0.5))
    y, _ = layer.leave(x, np.full_like(x, 10.0), Context(dropout=STREAM))
    expected = x + 20.0 * kept
    np.testing.assert_allclose(y, expected if norm.first else layer.forward(expected)[0], atol=1e-12)


def test_feed_forward_is_two_convolutions_with_kernel_size_one():
    """Vaswani 2017, §3.3: "Another way of describing this is as two convolutions with kernel size 1"."""
    layer = FeedForward(numpy_ops, 4, FeedForwardConfig(7))
    weights = {name: torch.tensor(w) for name, w in placed(layer).state_dict().items()}
    x = np.random.default_rng(1).standard_normal((2, 5, 4))

    def convolution(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, weights[f"{name}.weight"].T[:, :, None], weights[f"{name}.bias"])  # over (B, C, T)

    expected = convolution("contract", F.relu(convolution("expand", torch.tensor(x).mT))).mT
    assert error(layer.forward(x)[0], expected) <= 1e-12


# --- The tree of a configuration -------------------------------------------------------------------------------


@every_config
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("cross", [False, True])
def test_the_tree_counts_what_is_built(config, positions, cross):
    tree = StackConfig(replace(config, cross=cross), 2, positions, max_length=6)
    parts = {"block": Block(numpy_ops, tree.block), "tokens": TokenEmbedding(numpy_ops, 7, 4)}
    built = {name: placed(part).count for name, part in parts.items()}
    assert tree.block.num_parameters() == built["block"]
    assert tree.num_parameters() == placed(Stack(numpy_ops, tree, parts["tokens"], "float64")).count - built["tokens"]
    block = Block(numpy_ops, tree.block)
    assert tree.block.attention.num_parameters(4) == placed(block.self_attention).count
    assert tree.block.feed_forward.num_parameters(4) == placed(block.feed_forward).count
    assert tree.block.norm.num_parameters(4) == placed(block.feed_forward_norm).count
