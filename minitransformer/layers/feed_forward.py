"""The feed-forward network of a block: two linear maps with an activation between them."""

from dataclasses import dataclass
from typing import Any, Literal

from ..config import Config, choice, flag, whole
from ..ops import Array, Ops
from .linear import XAVIER, InitConfig, Linear
from .parameter import Layer


@dataclass(frozen=True)
class FeedForwardConfig(Config):
    """`d_ff` is the width between the two linear maps; without `bias` they are products alone.

    `gated`: the activation of one half of the first map is multiplied by the other half: GEGLU, SwiGLU.
    """

    d_ff: int = whole()
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = choice(
        "relu", "gelu", "gelu_tanh", "silu", default="relu"
    )
    gated: bool = flag(False)
    bias: bool = flag(True)


class FeedForward(Layer):
    """The position-wise network `activation(x W₁ + b₁) W₂ + b₂`, the paper's with ReLU.

    Gated, it is `(activation(x W_gate) · x W_up) W₂`, and `expand` holds W_gate and W_up side by side.
    Source: Vaswani 2017, §3.3, eq. 2; gated: Shazeer 2020, eq. 6.
    """

    def __init__(self, ops: Ops, d_model: int, config: FeedForwardConfig, init: InitConfig = XAVIER) -> None:
        super().__init__(ops)
        self.activation, self.gated = config.activation, config.gated
        self.is_paper = config.activation == "relu" and not config.gated
        widths = (config.d_ff,) * (1 + config.gated)
        self.expand = Linear(ops, d_model, *widths, gain=init.gain, std=init.std, bias=config.bias)
        residual_gain = init.gain * init.residual_gain
        self.contract = Linear(ops, config.d_ff, d_model, gain=residual_gain, std=init.std, bias=config.bias)

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C)` → `(..., C)`, each position by itself."""
        hidden, expand_cache = self.expand.forward(x)  # (..., F), or (..., 2·F) where it is gated
        if self.is_paper:
            hidden, activation_cache = self.ops.relu.forward(hidden)
        else:
            hidden, activation_cache = self._activate(hidden)  # (..., F)
        out, contract_cache = self.contract.forward(hidden)  # (..., C)
        return out, (expand_cache, activation_cache, contract_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Returns dx; adds into the parameters' gradients."""
        expand_cache, activation_cache, contract_cache = cache
        dhidden = self.contract.backward(dout, contract_cache)  # (..., F)
        if self.is_paper:
            dhidden = self.ops.relu.backward(dhidden, activation_cache)
        else:
            dhidden = self._activate_backward(dhidden, activation_cache)
        return self.expand.backward(dhidden, expand_cache)

    def _activate(self, hidden: Array) -> tuple[Array, Any]:
        if self.gated:
            width = hidden.shape[-1] // 2
            return self.ops.gated.forward(hidden[..., :width], hidden[..., width:], self.activation)
        if self.activation == "silu":
            return self.ops.silu.forward(hidden)
        return self.ops.gelu.forward(hidden, "tanh" if self.activation == "gelu_tanh" else "none")

    def _activate_backward(self, dy: Array, cache: Any) -> Array:
        if self.gated:
            return self.ops.concatenate(self.ops.gated.backward(dy, cache))
        return (self.ops.silu if self.activation == "silu" else self.ops.gelu).backward(dy, cache)
