"""The feed-forward network of a block: two linear maps with an activation between them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..config import Config, choice, flag, whole
from ..ops import Array, Ops
from .linear import XAVIER, InitConfig, Linear
from .parameter import Layer

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
"""The activations that a configuration may name."""


def activation_field(default: Activation) -> Any:
    """A field of a configuration for the name of an activation."""
    return choice(*get_args(Activation), default=default, help="between the feed-forward network's two maps")


@dataclass(frozen=True)
class FeedForwardConfig(Config):
    """`d_ff` is the width between the two linear maps; with 0 a block is attention alone.

    Without `bias` the maps are products alone. `gated`: the activation of one half of the first map is multiplied by
    the other half: GEGLU, SwiGLU.
    """

    d_ff: int = whole(least=0)
    activation: Activation = activation_field("relu")
    gated: bool = flag(False)
    bias: bool = flag(True)


class FeedForward(Layer):
    """The position-wise network `activation(x W₁ + b₁) W₂ + b₂`, the paper's with ReLU.

    Gated, it is `(activation(x W_gate) · x W_up) W₂`, and `expand` holds W_gate and W_up side by side.
    Source: Vaswani 2017, §3.3, eq. 2; gated: Shazeer 2020, eq. 6.
    """

    def __init__(self, ops: Ops, d_model: int, config: FeedForwardConfig, init: InitConfig = XAVIER) -> None:
        super().__init__(ops)
        self.gate = config.activation if config.gated else None
        self.activation = ops.activation_named(config.activation)
        parts = ("gate", "up") if config.gated else ("up",)
        widths, options = (config.d_ff,) * len(parts), {"std": init.std, "bias": config.bias}
        self.expand = Linear(ops, d_model, *widths, gain=init.gain, **options, parts=parts)
        residual_gain = init.gain * init.residual_gain
        self.contract = Linear(ops, config.d_ff, d_model, gain=residual_gain, std=init.std, bias=config.bias)

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C)` → `(..., C)`, each position by itself."""
        hidden, expand_cache = self.expand.forward(x)  # (..., F), or (..., 2·F) where it is gated
        if self.gate is None:
            hidden, activation_cache = self.activation.forward(hidden)
        else:
            width = hidden.shape[-1] // 2
            gate, up = hidden[..., :width], hidden[..., width:]
            hidden, activation_cache = self.ops.gated.forward(gate, up, self.gate)  # (..., F)
        out, contract_cache = self.contract.forward(hidden)  # (..., C)
        return out, (expand_cache, activation_cache, contract_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dx; add into the parameters' gradients."""
        expand_cache, activation_cache, contract_cache = cache
        dhidden = self.contract.backward(dout, contract_cache)  # (..., F)
        if self.gate is None:
            dhidden = self.activation.backward(dhidden, activation_cache)
        else:
            dhidden = self.ops.concatenate(self.ops.gated.backward(dhidden, activation_cache))  # (..., 2·F)
        return self.expand.backward(dhidden, expand_cache)
