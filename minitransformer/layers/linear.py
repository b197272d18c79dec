"""The affine map with its parameters."""

from ..ops import Array, Ops
from ..ops.initialize import constants, xavier_uniform
from .parameter import Layer, Parameter


class Linear(Layer):
    """`y = x @ weight + bias`.

    Several `widths` are several outputs side by side, computed in one product (Q, K and V). Each one's part of the
    weight starts Xavier-uniform for its own width, times `gain`. The bias starts at `biases`: one value for all, or one
    for each of as many equal parts.
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
