"""The same Transformer in PyTorch with its autograd: what a training step of ours is timed against.

Written for speed: one flat float32 parameter, cast to the activations' dtype once a step and split into the weights, so
that casts and Adam are a few kernels whatever the number of layers; `scaled_dot_product_attention` without a mask,
since no sentence is padded; the loss from float32 logits, as autocast takes it.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minitransformer.models import TransformerConfig


class Reference(nn.Module):
    """The paper's post-norm model with the weights of `state`, named as ours are; `forward` gives the loss."""

    positions: Tensor

    def __init__(self, config: TransformerConfig, state: Mapping[str, np.ndarray], dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype = config, dtype
        self.shapes = {name: array.shape for name, array in state.items()}
        self.flat = nn.Parameter(torch.cat([torch.from_numpy(array).flatten() for array in state.values()]))  # (P,)
        frequencies = 10000 ** (-torch.arange(0, config.d_model, 2, dtype=torch.float64) / config.d_model)
        angles = torch.arange(config.max_length, dtype=torch.float64)[:, None] * frequencies
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (T, C)
        self.register_buffer("positions", table.to(dtype))

    def forward(self, source: Tensor, target_in: Tensor, target_out: Tensor, label_smoothing: float) -> Tensor:
        """Ids `(B, Ts)`, `(B, Tt)`, `(B, Tt)`, none of them padding."""
        weights = self.named(self.flat.to(self.dtype))
        memory = self._stack(weights, "encoder", source, None)
        hidden = self._stack(weights, "decoder", target_in, memory)
        logits = F.linear(hidden, weights["tokens.table"]).float()  # (B, Tt, V)
        return F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), label_smoothing=label_smoothing)

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """The weights, or their gradients, as views of a flat tensor."""
        parts = flat.split([math.prod(shape) for shape in self.shapes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def _stack(self, weights: dict[str, Tensor], stack: str, ids: Tensor, memory: Tensor | None) -> Tensor:
        x = F.embedding(ids, weights["tokens.table"]) * math.sqrt(self.config.d_model)
        x = self._drop(x + self.positions[: ids.shape[1]])  # (B, T, C)
        for layer in range(self.config.num_layers if memory is None else self.config.decoder_layers):
            prefix = f"{stack}.layers.{layer}."
            own = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
            x = self._block(own, x, memory)
        return x

    def _block(self, weights: dict[str, Tensor], x: Tensor, memory: Tensor | None) -> Tensor:
        query_key_value = _linear(weights, "self_attention.query_key_value", x)
        attended = self._attend(weights, "self_attention", *query_key_value.chunk(3, dim=-1), causal=memory is not None)
        x = self._add_and_norm(weights, "self_attention", x, attended)
        if memory is not None:
            query = _linear(weights, "cross_attention.query", x)
            key_value = _linear(weights, "cross_attention.key_value", memory)
            attended = self._attend(weights, "cross_attention", query, *key_value.chunk(2, dim=-1), causal=False)
            x = self._add_and_norm(weights, "cross_attention", x, attended)
        hidden = F.relu(_linear(weights, "feed_forward.expand", x))
        return self._add_and_norm(weights, "feed_forward", x, _linear(weights, "feed_forward.contract", hidden))

    def _attend(
        self, weights: dict[str, Tensor], name: str, query: Tensor, key: Tensor, value: Tensor, causal: bool
    ) -> Tensor:
        query, key, value = (x.unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2) for x in (query, key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal)  # (B, H, T, D)
        return _linear(weights, f"{name}.output", mixed.transpose(1, 2).flatten(2))

    def _add_and_norm(self, weights: dict[str, Tensor], name: str, x: Tensor, sublayer_out: Tensor) -> Tensor:
        gamma, beta = (weights[f"{name}_norm.{part}"] for part in ("gamma", "beta"))
        return F.layer_norm(x + self._drop(sublayer_out), x.shape[-1:], gamma, beta, self.config.layernorm_eps)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


def _linear(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.linear(x, weights[f"{name}.weight"].T, weights[f"{name}.bias"])
