"""GPT-2's shape in PyTorch, as one would write it for speed: what ours is timed against."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minitransformer.models import IGNORED, GPTConfig


class Block(nn.Module):
    """Pre-norm: attention to the past and a feed-forward network, each added to its input."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width = config.d_model
        self.num_heads, self.rate, self.attention_rate = config.num_heads, config.dropout, config.attention_dropout
        self.norm1, self.norm2 = (nn.LayerNorm(width, config.norm_eps) for _ in range(2))
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, config.d_ff), nn.Linear(config.d_ff, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.query_key_value(self.norm1(x)).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = heads.transpose(1, 3).unbind(2)  # (B, H, T, D)
        rate = self.attention_rate if self.training else 0.0
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=rate)
        x = x + F.dropout(self.output(out.transpose(1, 2).flatten(2)), self.rate, self.training)
        active = F.gelu(self.expand(self.norm2(x)), approximate="tanh")
        return x + F.dropout(self.contract(active), self.rate, self.training)


class TorchGPT(nn.Module):
    """The model with tied embeddings; `forward` gives the loss."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.rate = config.dropout
        self.table = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.positions = nn.Parameter(torch.empty(config.max_length, config.d_model))
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.num_layers)))
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = F.embedding(ids, self.table) + self.positions[: ids.shape[1]]
        x = self.norm(self.blocks(F.dropout(x, self.rate, self.training)))
        return F.cross_entropy(F.linear(x, self.table).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def copy_weights(model: TorchGPT, state: Mapping[str, Any]) -> None:
    """Loads the weights of a `GPT`'s `state_dict`: the names differ, and matrices are transposed."""
    names = {
        "tokens.table": "table",
        "decoder.embedding.positions.table": "positions",
        "decoder.final_norm.": "norm.",
        "decoder.layers.": "blocks.",
        "self_attention_norm.": "norm1.",
        "feed_forward_norm.": "norm2.",
        "self_attention.": "",
        "feed_forward.": "",
        "gamma": "weight",
        "beta": "bias",
    }
    renamed = {}
    for name, array in state.items():
        transposes = name.endswith(".weight")
        for old, new in names.items():
            name = name.replace(old, new)
        renamed[name] = torch.from_numpy(array.T.copy() if transposes else array)
    model.load_state_dict(renamed)
