"""The affine map with its parameters, and the feed-forward network."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import torch_model
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.gradcheck import error
from minitransformer.layers import FeedForward, FeedForwardConfig, FlatParameters, Linear
from minitransformer.ops import numpy_ops

SHAPES = [(3, 4), (2, 1, 4), (1, 3, 4), (4,)]


@pytest.mark.parametrize("shape", SHAPES)
def test_linear(proof: Proof, shape):
    x = normal(np.random.default_rng(0), *shape)
    prove_layer("Linear", lambda: Linear(numpy_ops, 4, 3, 2), {"x": x}, torch_model.linear, proof)


@pytest.mark.parametrize("shape", SHAPES)
def test_feed_forward(proof: Proof, shape):
    x = normal(np.random.default_rng(0), *shape)
    prove_layer(
        "FeedForward",
        lambda: FeedForward(numpy_ops, 4, FeedForwardConfig(5)),
        {"x": x},
        torch_model.feed_forward,
        proof,
    )


def test_feed_forward_is_two_convolutions_with_kernel_size_one():
    """Vaswani 2017, §3.3: "Another way of describing this is as two convolutions with kernel size 1"."""
    layer = FeedForward(numpy_ops, 4, FeedForwardConfig(7))
    weights = {name: torch.tensor(w) for name, w in placed(layer).state_dict().items()}
    x = np.random.default_rng(1).standard_normal((2, 5, 4))

    def convolution(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, weights[f"{name}.weight"].T[:, :, None], weights[f"{name}.bias"])  # over (B, C, T)

    expected = convolution("contract", F.relu(convolution("expand", torch.tensor(x).mT))).mT
    assert error(layer.forward(x)[0], expected) <= 1e-12


def test_every_part_of_a_shared_weight_starts_xavier_uniform_by_its_own_fan():
    layer = Linear(numpy_ops, 200, 200, 100, 20)
    FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed=0)
    for part, fan_out in zip(np.split(layer.weight.data, [200, 300], axis=1), [200, 100, 20], strict=True):
        bound = math.sqrt(6 / (200 + fan_out))
        assert 0.99 * bound < abs(part).max() <= bound
        assert part.std() == pytest.approx(bound / math.sqrt(3), rel=0.03)
        assert abs(part.mean()) < 0.05 * bound
    np.testing.assert_array_equal(layer.bias.data, 0)
