"""The feed-forward network of a block: two linear maps with a ReLU between them."""

from dataclasses import dataclass

from ..config import Config, whole
from ..ops import Array, Ops
from .linear import Linear
from .parameter import Layer


@dataclass(frozen=True)
class FeedForwardConfig(Config):
    """`d_ff` is the width between the two linear maps."""

    d_ff: int = whole()

    def num_parameters(self, d_model: int) -> int:
        """The number of entries of both weights and biases."""
        return (d_model + 1) * self.d_ff + (self.d_ff + 1) * d_model


class FeedForward(Layer):
    """The position-wise network `max(0, x W₁ + b₁) W₂ + b₂`. Source: Vaswani 2017, §3.3, eq. 2."""

    def __init__(self, ops: Ops, d_model: int, config: FeedForwardConfig, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.expand = Linear(ops, d_model, config.d_ff, gain=gain)
        self.contract = Linear(ops, config.d_ff, d_model, gain=gain)

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C)` → `(..., C)`, each position by itself."""
        hidden, expand_cache = self.expand.forward(x)  # (..., F)
        hidden, relu_cache = self.ops.relu.forward(hidden)
        out, contract_cache = self.contract.forward(hidden)  # (..., C)
        return out, (expand_cache, relu_cache, contract_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Returns dx; adds into the parameters' gradients."""
        expand_cache, relu_cache, contract_cache = cache
        dhidden = self.contract.backward(dout, contract_cache)  # (..., F)
        dhidden = self.ops.relu.backward(dhidden, relu_cache)
        return self.expand.backward(dhidden, expand_cache)
