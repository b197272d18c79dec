"""The layers and the whole model in PyTorch: what ours must equal, output and gradients (by autograd).

Linear maps, attention, layer normalisation, look-ups and the loss are PyTorch's own functions (`oracles.py`); here they
are only put together, over our named parameters. PyTorch can't draw our dropout masks, so they are computed from the
same stream, at the sites that our layers carry.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from support import oracles
from torch import Tensor

from minitransformer.layers import (
    AttentionConfig,
    Block,
    BlockConfig,
    Context,
    DropoutStream,
    FeedForwardConfig,
    NormConfig,
)
from minitransformer.ops import Dropout

Weights = Mapping[str, Tensor]


def inside(weights: Weights, name: str) -> Weights:
    """The parameters of one part: those whose names begin with `name.`, without it."""
    return {key.removeprefix(f"{name}."): w for key, w in weights.items() if key.startswith(f"{name}.")}


def drop(stream: DropoutStream | None, site: int, rate: float) -> Dropout | None:
    """Our dropout at one site; `None` in evaluation."""
    return None if stream is None else stream.at(site, rate)


def linear(w: Weights, x: Tensor) -> Tensor:
    return oracles.linear(x, w["weight"], w["bias"])


def layernorm(w: Weights, x: Tensor, eps: float) -> Tensor:
    return oracles.layernorm(x, w["gamma"], w["beta"], eps)


def feed_forward(w: Weights, x: Tensor) -> Tensor:
    return linear(inside(w, "contract"), F.relu(linear(inside(w, "expand"), x)))


def multi_head(query: Tensor, key: Tensor, value: Tensor, num_heads: int, **options) -> Tensor:
    """`(B, T, H·D)` each → `(B, Tq, H·Dv)`: the heads one by one, each over its own columns, then side by side."""
    heads = zip(*(x.chunk(num_heads, dim=-1) for x in (query, key, value)), strict=True)
    stacked = [torch.stack(parts, dim=1) for parts in zip(*heads, strict=True)]  # (B, H, T, D)
    return torch.cat(oracles.attention(*stacked, **options).unbind(1), dim=-1)


def self_attention(w: Weights, x: Tensor, *, num_heads: int, d_k: int, d_v: int, **options) -> Tensor:
    projected = linear(inside(w, "query_key_value"), x)
    query, key, value = projected.split([num_heads * d_k, num_heads * d_k, num_heads * d_v], dim=-1)
    return linear(inside(w, "output"), multi_head(query, key, value, num_heads, **options))


def cross_attention(w: Weights, x: Tensor, memory: Tensor, *, num_heads: int, d_k: int, d_v: int, **options) -> Tensor:
    query = linear(inside(w, "query"), x)
    key, value = linear(inside(w, "key_value"), memory).split([num_heads * d_k, num_heads * d_v], dim=-1)
    return linear(inside(w, "output"), multi_head(query, key, value, num_heads, **options))


def residual(
    w: Weights,
    x: Tensor,
    sublayer: Callable[[Tensor], Tensor],
    norm: NormConfig,
    dropout: Dropout | None = None,
) -> Tensor:
    """`w` are gamma and beta."""
    if norm.first:
        return x + oracles.dropped(sublayer(layernorm(w, x, norm.eps)), dropout)
    return layernorm(w, x + oracles.dropped(sublayer(x), dropout), norm.eps)


def block(w: Weights, x: Tensor, layer: Block, config: BlockConfig, context: Context) -> Tensor:
    """The sub-layers in figure 1's order; of `layer` only the sites are read."""
    heads, stream = config.attention, context.dropout
    widths = {"num_heads": heads.num_heads, "d_k": heads.d_k, "d_v": heads.d_v}
    sublayers: dict[str, Callable] = {
        "self_attention": partial(
            self_attention, **widths, causal=config.causal, window=heads.window, key_mask=context.mask,
            dropout=drop(stream, layer.self_attention.site, heads.dropout),
        ),
    }  # fmt: skip
    if config.cross:
        sublayers["cross_attention"] = partial(
            cross_attention, memory=context.memory, **widths, key_mask=context.memory_mask,
            dropout=drop(stream, layer.cross_attention.site, heads.dropout),
        )  # fmt: skip
    sublayers["feed_forward"] = feed_forward
    for name, sublayer in sublayers.items():
        dropout = drop(stream, getattr(layer, f"{name}_norm").site, config.dropout)
        x = residual(inside(w, f"{name}_norm"), x, partial(sublayer, inside(w, name)), config.norm, dropout)
    return x


def sinusoids(length: int, d_model: int) -> Tensor:
    """§3.5, written channel by channel: `sin` in the even ones, `cos` in the odd ones, `(length, d_model)`."""
    position = torch.arange(length, dtype=torch.float64)
    angles = [position / 10000 ** (2 * (channel // 2) / d_model) for channel in range(d_model)]
    return torch.stack([angle.cos() if i % 2 else angle.sin() for i, angle in enumerate(angles)], dim=1)


class TorchModel(ABC):
    """A whole model of ours, over copies of its parameters: `.weights`, by name, with `.grad`."""

    def __init__(self, model: Any, dtype: torch.dtype = torch.float64) -> None:
        self.model, self.config, self.dtype = model, model.config, dtype
        state = model.parameters.state_dict()
        self.weights = {name: torch.tensor(w, dtype=dtype, requires_grad=True) for name, w in state.items()}

    @abstractmethod
    def hidden(self, x: Tensor, y: Tensor, mask: np.ndarray, stream: DropoutStream | None) -> Tensor:
        """The decoder's output `(B, Tt, C)`, of the embedded source and its mask, and of the embedded target."""

    def forward(self, source: np.ndarray, target: np.ndarray, stream: DropoutStream | None = None) -> Tensor:
        """Logits `(B, Tt, V)`."""
        x, y = (self._embed(side, ids, stream) for side, ids in (("encoder", source), ("decoder", target)))
        return F.linear(self.hidden(x, y, source != self.config.pad_id, stream), self.weights["tokens.table"])

    def loss(
        self,
        source: np.ndarray,
        target_in: np.ndarray,
        target_out: np.ndarray,
        label_smoothing: float = 0.0,
        stream: DropoutStream | None = None,
    ) -> Tensor:
        """The mean cross-entropy of the targets that are not padding."""
        logits = self.forward(source, target_in, stream)
        return oracles.cross_entropy(logits, torch.tensor(target_out), label_smoothing, self.config.pad_id)

    def gradients(self) -> dict[str, np.ndarray]:
        """What autograd left, zero where it left nothing."""
        return {name: np.zeros(w.shape) if w.grad is None else w.grad.numpy() for name, w in self.weights.items()}

    def _embed(self, side: str, ids: np.ndarray, stream: DropoutStream | None) -> Tensor:
        x = F.embedding(torch.tensor(ids), self.weights["tokens.table"]) * self.config.d_model**0.5
        learned = self.weights.get(f"{side}.embedding.positions.table")
        if learned is not None:
            x = x + learned[: ids.shape[1]]
        elif getattr(self.config, "positions", None) == "sinusoidal":
            x = x + sinusoids(ids.shape[1], self.config.d_model).to(self.dtype)
        return oracles.dropped(x, drop(stream, getattr(self.model, side).embedding.site, self.config.dropout))


class TorchTransformer(TorchModel):
    """The Transformer."""

    def hidden(self, x: Tensor, y: Tensor, mask: np.ndarray, stream: DropoutStream | None) -> Tensor:
        memory = self._stack("encoder", x, Context(mask=mask, dropout=stream))
        return self._stack("decoder", y, Context(memory=memory, memory_mask=mask, dropout=stream))

    def _stack(self, side: str, x: Tensor, context: Context) -> Tensor:
        w, config = inside(self.weights, side), self._block(decoder=side == "decoder")
        for index, layer in enumerate(getattr(self.model, side).layers):
            x = block(inside(w, f"layers.{index}"), x, layer, config, context)
        return layernorm(inside(w, "final_norm"), x, config.norm.eps) if config.norm.first else x

    def _block(self, decoder: bool) -> BlockConfig:
        """What the configuration means for a block, read from its flat fields once more."""
        flat = self.config
        width = flat.d_model // flat.num_heads
        return BlockConfig(
            attention=AttentionConfig(
                flat.num_heads, flat.d_k or width, flat.d_v or width, flat.window, flat.attention_dropout
            ),
            feed_forward=FeedForwardConfig(flat.d_ff),
            norm=NormConfig(flat.norm_first, flat.layernorm_eps),
            d_model=flat.d_model,
            causal=decoder,
            cross=decoder,
            dropout=flat.dropout,
        )
