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

from minitransformer.layers import BlockConfig, DecoderLayer, DropoutStream, EncoderLayer
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
    *,
    norm_first: bool,
    eps: float,
    dropout: Dropout | None = None,
) -> Tensor:
    norm = partial(layernorm, inside(w, "norm"), eps=eps)
    if norm_first:
        return x + oracles.dropped(sublayer(norm(x)), dropout)
    return norm(x + oracles.dropped(sublayer(x), dropout))


def encoder_layer(
    w: Weights,
    x: Tensor,
    layer: EncoderLayer,
    config: BlockConfig,
    key_mask: np.ndarray | None = None,
    stream: DropoutStream | None = None,
) -> Tensor:
    around, widths, dropped = _of(config, stream)
    attend = partial(
        self_attention, inside(w, "self_attention"), **widths, window=config.window, key_mask=key_mask,
        dropout=drop(stream, layer.self_attention.site, config.attention_dropout),
    )  # fmt: skip
    x = around(inside(w, "attention_residual"), x, attend, dropout=dropped(layer.attention_residual))
    feed = partial(feed_forward, inside(w, "feed_forward"))
    return around(inside(w, "feed_forward_residual"), x, feed, dropout=dropped(layer.feed_forward_residual))


def decoder_layer(
    w: Weights,
    x: Tensor,
    memory: Tensor,
    layer: DecoderLayer,
    config: BlockConfig,
    memory_mask: np.ndarray | None = None,
    stream: DropoutStream | None = None,
) -> Tensor:
    around, widths, dropped = _of(config, stream)
    attend = partial(
        self_attention, inside(w, "self_attention"), **widths, window=config.window, causal=True,
        dropout=drop(stream, layer.self_attention.site, config.attention_dropout),
    )  # fmt: skip
    x = around(inside(w, "self_attention_residual"), x, attend, dropout=dropped(layer.self_attention_residual))
    attend_memory = partial(
        cross_attention, inside(w, "cross_attention"), memory=memory, **widths, key_mask=memory_mask,
        dropout=drop(stream, layer.cross_attention.site, config.attention_dropout),
    )  # fmt: skip
    x = around(inside(w, "cross_attention_residual"), x, attend_memory, dropout=dropped(layer.cross_attention_residual))
    feed = partial(feed_forward, inside(w, "feed_forward"))
    return around(inside(w, "feed_forward_residual"), x, feed, dropout=dropped(layer.feed_forward_residual))


def _of(config: BlockConfig, stream: DropoutStream | None) -> tuple[Callable, dict, Callable]:
    """What both kinds of layer take from a configuration: the residual connection, the heads, the dropout."""
    around = partial(residual, norm_first=config.norm_first, eps=config.eps)
    widths = {"num_heads": config.num_heads, "d_k": config.d_k, "d_v": config.d_v}
    return around, widths, lambda part: drop(stream, part.site, config.dropout)


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
    def forward(self, source: np.ndarray, target: np.ndarray, stream: DropoutStream | None = None) -> Tensor:
        """Logits `(B, Tt, V)`."""

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


class TorchTransformer(TorchModel):
    """The Transformer."""

    def forward(self, source: np.ndarray, target: np.ndarray, stream: DropoutStream | None = None) -> Tensor:
        """Logits `(B, Tt, V)`."""
        config, model, block = self.config, self.model, self._block()
        mask = source != config.pad_id
        memory = self._embed("encoder", source, stream)
        for index, layer in enumerate(model.encoder.layers):
            w = inside(self.weights, f"encoder.layers.{index}")
            memory = encoder_layer(w, memory, layer, block, mask, stream)
        memory = self._final_norm("encoder", memory)
        hidden = self._embed("decoder", target, stream)
        for index, layer in enumerate(model.decoder.layers):
            w = inside(self.weights, f"decoder.layers.{index}")
            hidden = decoder_layer(w, hidden, memory, layer, block, mask, stream)
        return F.linear(self._final_norm("decoder", hidden), self.weights["tokens.table"])

    def _block(self) -> BlockConfig:
        """What the configuration means for a layer, read from its fields once more."""
        config = self.config
        width = config.d_model // config.num_heads
        return BlockConfig(
            d_model=config.d_model,
            num_heads=config.num_heads,
            d_k=config.d_k or width,
            d_v=config.d_v or width,
            d_ff=config.d_ff,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            norm_first=config.norm_first,
            window=config.window,
            eps=config.layernorm_eps,
        )

    def _embed(self, stack: str, ids: np.ndarray, stream: DropoutStream | None) -> Tensor:
        x = F.embedding(torch.tensor(ids), self.weights["tokens.table"]) * self.config.d_model**0.5
        learned = self.weights.get(f"{stack}.embedding.positions.table")
        positions = sinusoids(ids.shape[1], self.config.d_model).to(self.dtype) if learned is None else learned
        site = getattr(self.model, stack).embedding.site
        return oracles.dropped(x + positions[: ids.shape[1]], drop(stream, site, self.config.dropout))

    def _final_norm(self, stack: str, x: Tensor) -> Tensor:
        if not self.config.norm_first:
            return x
        return layernorm(inside(self.weights, f"{stack}.final_norm"), x, self.config.layernorm_eps)
