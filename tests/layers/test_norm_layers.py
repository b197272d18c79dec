"""Layer normalisation, and the residual connection around every sub-layer."""

import numpy as np
import pytest
import torch
from support import torch_model
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.layers import (
    Attention,
    AttentionConfig,
    Context,
    DropoutStream,
    FeedForward,
    FeedForwardConfig,
    Layer,
    LayerNorm,
    NormConfig,
    ResidualNorm,
)
from minitransformer.ops import dropout_mask, numpy_ops

C = 4
STREAM = DropoutStream(seed=1, step=9, sentence=4)


@pytest.mark.parametrize("shape", [(5, C), (2, 1, C), (1, 3, C)])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layernorm(proof: Proof, shape, eps):
    prove_layer(
        "LayerNorm",
        lambda: LayerNorm(numpy_ops, C, NormConfig(eps=eps)),
        {"x": normal(np.random.default_rng(0), *shape)},
        lambda w, x: torch_model.layernorm(w, x, eps),
        proof,
    )


class Wrapped(Layer):
    """A sub-layer inside its residual connection, as a block calls them; with a memory, its gradients come in pairs."""

    def __init__(self, sublayer: FeedForward | Attention, norm: NormConfig, rate: float) -> None:
        super().__init__(numpy_ops)
        self.sublayer, self.norm = sublayer, ResidualNorm(numpy_ops, C, norm, rate)

    def forward(self, x: np.ndarray, *memory: np.ndarray) -> tuple:
        h, entered = self.norm.enter(x)
        h, inner = self.sublayer.forward(h, *(Context(memory=m) for m in memory))
        y, left = self.norm.leave(x, h, Context(dropout=STREAM))
        return y, (entered, inner, left)

    def backward(self, dy: np.ndarray, cache: tuple) -> tuple:
        entered, inner, left = cache
        dx, dh = self.norm.leave_backward(dy, left)
        dinner = self.sublayer.backward(dh, inner)
        dh, *others = dinner if isinstance(dinner, tuple) else (dinner,)
        return dx + self.norm.enter_backward(dh, entered), *others


SUBLAYERS = {
    "feed_forward": (lambda: FeedForward(numpy_ops, C, FeedForwardConfig(5)), ["x"], torch_model.feed_forward),
    "attention to the memory": (
        lambda: Attention(numpy_ops, C, AttentionConfig(2, 2, 2), cross=True),
        ["x", "memory"],
        lambda w, x, memory: torch_model.cross_attention(w, x, memory, num_heads=2, d_k=2, d_v=2),
    ),
}


@pytest.mark.parametrize("norm", [NormConfig(), NormConfig(first=True), NormConfig(eps=0.1)], ids=str)
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize(("make", "inputs", "sublayer"), SUBLAYERS.values(), ids=list(SUBLAYERS))
def test_residual_norm(proof: Proof, norm, rate, make, inputs, sublayer):
    """The gradient of what it is wrapped around, of gamma and beta, and of a sub-layer's other input."""

    def wrapped() -> Wrapped:
        layer = Wrapped(make(), norm, rate)
        layer.name_layers()
        return layer

    def oracle(w: torch_model.Weights, x: torch.Tensor, *memory: torch.Tensor) -> torch.Tensor:
        inner = torch_model.inside(w, "sublayer")
        dropout = STREAM.at(wrapped().norm.site, rate)
        return torch_model.residual(
            torch_model.inside(w, "norm"), x, lambda x: sublayer(inner, x, *memory), norm, dropout
        )

    rng = np.random.default_rng(0)
    prove_layer(
        f"ResidualNorm, {'pre' if norm.first else 'post'}-norm",
        wrapped,
        {name: normal(rng, 2, 3, C) for name in inputs},
        oracle,
        proof,
    )


@pytest.mark.parametrize("norm", [NormConfig(), NormConfig(first=True)], ids=str)
def test_dropout_acts_on_the_sublayer_and_never_on_the_residual(norm):
    """Vaswani 2017, §5.4: "to the output of each sub-layer, before it is added to the sub-layer input"."""
    x = np.random.default_rng(0).standard_normal((1, 2, C))
    layer = ResidualNorm(numpy_ops, C, norm, 0.5)
    placed(layer)
    kept = dropout_mask(x.shape, STREAM.at(layer.site, 0.5))
    y, _ = layer.leave(x, np.full_like(x, 10.0), Context(dropout=STREAM))
    expected = x + 20.0 * kept
    np.testing.assert_allclose(y, expected if norm.first else layer.forward(expected)[0], atol=1e-12)
