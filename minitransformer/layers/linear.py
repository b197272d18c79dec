"""The affine map with its parameters."""

from dataclasses import dataclass

from ..config import LARGEST, SMALLEST, Config, positive
from ..ops import Array, Ops
from ..ops.initialize import constant, normal, scaled, xavier_uniform
from .parameter import Layer, Parameter


class Linear(Layer):
    """`y = x @ weight + bias`, or `x @ weight` without `bias`.

    Several `widths` are several outputs side by side, computed in one product (Q, K and V). Each one's part of the
    weight starts Xavier-uniform for its own width, times `gain`, or as N(0, (gain · std)²) where there is a `std`.
    `first_gain` multiplies the first output's part (queries whose scores are not divided by √d_k). The bias starts at
    `biases`: one value for all or, for an LSTM's gates, one for each of as many equal parts.
    `parts` are the outputs' names, by which an adapter finds them.
    """

    def __init__(
        self,
        ops: Ops,
        width_in: int,
        *widths: int,
        gain: float = 1.0,
        std: float | None = None,
        bias: bool = True,
        biases: tuple[float, ...] = (0.0,),
        first_gain: float = 1.0,
        parts: tuple[str, ...] = (),
    ) -> None:
        super().__init__(ops)
        start = xavier_uniform(width_in, *widths, gain=gain) if std is None else normal(gain * std)
        if first_gain != 1.0:
            start = scaled(start, first_gain, widths[0])
        self.weight = Parameter((width_in, sum(widths)), start)
        self.bias = Parameter((sum(widths),), constant(*biases)) if bias else None
        self.widths, self.parts = widths, parts

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C_in)` → `(..., C_out)`."""
        return self.ops.linear.forward(x, self.weight.value, self.bias.value if self.bias else None)

    def backward(self, dy: Array, cache: tuple) -> Array:
        """Return dx; add into the gradients of weight and bias."""
        if not (self.weight.trained and (self.bias is None or self.bias.trained)):
            return frozen_backward(self.ops, dy, cache, self.weight, self.bias)
        out = self.weight.grad, self.bias.grad if self.bias else None
        dx, _, _ = self.ops.linear.backward(dy, cache, out=out)
        return dx


def frozen_backward(
    ops: Ops, dy: Array, cache: tuple, weight: Parameter, bias: Parameter | None, transposed: bool = False
) -> Array:
    """Return dx where weight, bias or both are frozen; add into the gradient of the other one.

    A frozen weight only passes the gradient on: the product for its own is left out. `transposed`: the parameter is
    `weightᵀ`, a table of tokens.
    """
    if weight.trained:
        dx, dweight, _ = ops.linear.backward(dy, cache)
        weight.add_grad(dweight.swapaxes(0, 1) if transposed else dweight)
        return dx
    dx, _ = ops.linear.forward(dy, weight.value if transposed else weight.value.swapaxes(0, 1), None)
    if bias is not None and bias.trained:
        bias.add_grad(dy.reshape(-1, dy.shape[-1]).sum(0))
    return dx


@dataclass(frozen=True)
class InitConfig(Config):
    """Initial values of a block's matrices: within `gain` times Xavier's bound, or N(0, std²) where there is a `std`.

    Those whose output is added to the residual stream start `residual_gain` times as large: with 1/√(2L) the variance
    of the stream does not grow with the number of layers L. Source: Glorot & Bengio 2010; Radford et al. 2019, §2.3.
    """

    gain: float = positive(1.0, least=SMALLEST, most=LARGEST)
    std: float | None = positive(None, least=SMALLEST, most=LARGEST)
    residual_gain: float = positive(1.0, least=SMALLEST, most=LARGEST)


XAVIER = InitConfig()
"""Xavier's bound as it is."""
