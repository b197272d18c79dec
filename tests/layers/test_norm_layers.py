"""Layer normalisation, and the residual connection around every sub-layer."""

from typing import Any

import numpy as np
import pytest
import torch
from support import torch_model
from support.prove import Proof, normal
from support.prove_layer import prove_layer

from minitransformer.layers import CrossAttention, DropoutStream, FeedForward, Layer, LayerNorm, Residual
from minitransformer.ops import dropout_mask, numpy_ops

C = 4
STREAM = DropoutStream(seed=1, step=9, sentence=4)


@pytest.mark.parametrize("shape", [(5, C), (2, 1, C), (1, 3, C)])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layernorm(proof: Proof, shape, eps):
    prove_layer(
        "LayerNorm",
        lambda: LayerNorm(numpy_ops, C, eps),
        {"x": normal(np.random.default_rng(0), *shape)},
        lambda w, x: torch_model.layernorm(w, x, eps),
        proof,
    )


class Wrapped(Layer):
    """A sub-layer inside its residual connection."""

    def __init__(self, sublayer: Any, *, norm_first: bool, rate: float) -> None:
        super().__init__(numpy_ops)
        self.sublayer = sublayer
        self.residual = Residual(numpy_ops, C, norm_first=norm_first, eps=1e-5, dropout=rate, site=3)

    def forward(self, x: np.ndarray, *others: np.ndarray) -> tuple:
        return self.residual.forward(x, lambda x: self.sublayer.forward(x, *others), STREAM)

    def backward(self, dy: np.ndarray, cache: tuple) -> np.ndarray | tuple:
        return self.residual.backward(dy, cache, self.sublayer.backward)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_residual(proof: Proof, norm_first, rate):
    def oracle(w: torch_model.Weights, x: torch.Tensor) -> torch.Tensor:
        def sublayer(x: torch.Tensor) -> torch.Tensor:
            return torch_model.feed_forward(torch_model.inside(w, "sublayer"), x)

        inner = torch_model.inside(w, "residual")
        dropout = STREAM.at(3, rate)
        return torch_model.residual(inner, x, sublayer, norm_first=norm_first, eps=1e-5, dropout=dropout)

    prove_layer(
        f"Residual, {'pre' if norm_first else 'post'}-norm",
        lambda: Wrapped(FeedForward(numpy_ops, C, 5), norm_first=norm_first, rate=rate),
        {"x": normal(np.random.default_rng(0), 2, 3, C)},
        oracle,
        proof,
    )


@pytest.mark.parametrize("norm_first", [False, True])
def test_residual_passes_on_the_other_gradients_of_its_sublayer(proof: Proof, norm_first):
    def oracle(w: torch_model.Weights, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        def sublayer(x: torch.Tensor) -> torch.Tensor:
            inner = torch_model.inside(w, "sublayer")
            return torch_model.cross_attention(inner, x, memory, num_heads=2, d_k=2, d_v=2)

        inner = torch_model.inside(w, "residual")
        dropout = STREAM.at(3, 0.3)
        return torch_model.residual(inner, x, sublayer, norm_first=norm_first, eps=1e-5, dropout=dropout)

    rng = np.random.default_rng(0)
    prove_layer(
        f"Residual, {'pre' if norm_first else 'post'}-norm",
        lambda: Wrapped(CrossAttention(numpy_ops, C, 2, 2, 2), norm_first=norm_first, rate=0.3),
        {"x": normal(rng, 2, 3, C), "memory": normal(rng, 2, 2, C)},
        oracle,
        proof,
    )


def test_dropout_acts_on_the_sublayer_and_never_on_the_residual():
    """Vaswani 2017, §5.4: "to the output of each sub-layer, before it is added to the sub-layer input"."""
    x = np.random.default_rng(0).standard_normal((1, 2, C))
    kept = dropout_mask(x.shape, STREAM.at(3, 0.5))
    residual = Residual(numpy_ops, C, norm_first=True, eps=1e-5, dropout=0.5, site=3)
    for parameter, value in zip(dict(residual.named_parameters()).values(), (np.ones(C), np.zeros(C)), strict=True):
        parameter.value = value
    y, _ = residual.forward(x, lambda normed: (np.full_like(normed, 10.0), None), STREAM)
    np.testing.assert_allclose(y, x + 20.0 * kept, atol=1e-12)
