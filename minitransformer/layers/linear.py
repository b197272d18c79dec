"""The affine map with its parameters, and the feed-forward network made of two of them."""

from ..ops import Array, Ops
from ..ops.initialize import constants, xavier_uniform
from .parameter import Layer, Parameter


class Linear(Layer):
    """`y = x @ weight + bias`.

    `widths` may name several outputs that share one product (Q, K and V): each part of the weight starts Xavier-uniform
    by its own fan, times `gain`. The bias starts at `biases`, one for all or one for each of equal parts.
    """

    def __init__(
        self, ops: Ops, width_in: int, *widths: int, gain: float = 1.0, biases: tuple[float, ...] = (0.0,)
    ) -> None:
        super().__init__(ops)
        self.weight = Parameter((width_in, sum(widths)), xavier_uniform(width_in, *widths, gain=gain))
        self.bias = Parameter((sum(widths),), constants(*biases))

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C_in)` → `(..., C_out)`."""
        return self.ops.linear.forward(x, self.weight.value, self.bias.value)

    def backward(self, dy: Array, cache: tuple) -> Array:
        """Returns dx; adds into the gradients of weight and bias."""
        dx, _, _ = self.ops.linear.backward(dy, cache, out=(self.weight.grad, self.bias.grad))
        return dx


class FeedForward(Layer):
    """The position-wise network `max(0, x W₁ + b₁) W₂ + b₂`. Source: Vaswani 2017, §3.3, eq. 2."""

    def __init__(self, ops: Ops, d_model: int, d_ff: int, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.expand = Linear(ops, d_model, d_ff, gain=gain)
        self.contract = Linear(ops, d_ff, d_model, gain=gain)

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C)` → `(..., C)`, each position alone."""
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
