"""The same Transformer in PyTorch, as one would write it for speed: what the NumPy training step is timed against."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minitransformer.models import TransformerConfig


class Attention(nn.Module):
    """Multi-head attention on `scaled_dot_product_attention`; queries from x, keys and values from memory (or x)."""

    def __init__(self, config: TransformerConfig, *, cross: bool) -> None:
        super().__init__()
        width = config.d_model
        self.num_heads, self.cross = config.num_heads, cross
        if cross:
            self.query = nn.Linear(width, width)
            self.key_value = nn.Linear(width, 2 * width)
        else:
            self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None, causal: bool) -> Tensor:
        batch, time, width = x.shape
        if self.cross:
            assert memory is not None
            query, (key, value) = self.query(x), self.key_value(memory).chunk(2, dim=-1)
        else:
            query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        query, key, value = (
            part.view(batch, -1, self.num_heads, width // self.num_heads).transpose(1, 2)
            for part in (query, key, value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """An encoder or decoder layer, post-norm."""

    def __init__(self, config: TransformerConfig, *, decoder: bool) -> None:
        super().__init__()
        width = config.d_model
        self.causal, self.rate = decoder, config.dropout
        self.self_attention = Attention(config, cross=False)
        self.norm1 = nn.LayerNorm(width)
        if decoder:
            self.cross_attention = Attention(config, cross=True)
            self.norm2 = nn.LayerNorm(width)
        self.expand, self.contract = nn.Linear(width, config.d_ff), nn.Linear(config.d_ff, width)
        self.norm3 = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None, memory: Tensor | None = None) -> Tensor:
        self_mask = None if self.causal else mask
        x = self.norm1(x + self._drop(self.self_attention(x, None, self_mask, self.causal)))
        if memory is not None:
            x = self.norm2(x + self._drop(self.cross_attention(x, memory, mask, False)))
        return self.norm3(x + self._drop(self.contract(F.relu(self.expand(x)))))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, self.training)


class TorchTransformer(nn.Module):
    """The paper's model with tied embeddings; `forward` gives the loss."""

    positions: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.encoder = nn.ModuleList(Block(config, decoder=False) for _ in range(config.num_layers))
        self.decoder = nn.ModuleList(Block(config, decoder=True) for _ in range(config.decoder_layers))
        position = torch.arange(config.max_length, dtype=torch.float64)[:, None]
        angle = position * 10000 ** (-torch.arange(0, config.d_model, 2, dtype=torch.float64) / config.d_model)
        table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
        self.register_buffer("positions", table.to(torch.float32), persistent=False)

    def forward(self, source: Tensor, target_in: Tensor, target_out: Tensor, label_smoothing: float) -> Tensor:
        keep = source != self.config.pad_id
        mask = None if bool(keep.all()) else keep[:, None, None, :]
        memory = self._embed(source)
        for block in self.encoder:
            memory = block(memory, mask)
        x = self._embed(target_in)
        for block in self.decoder:
            x = block(x, mask, memory)
        logits = F.linear(x, self.table)
        return F.cross_entropy(
            logits.flatten(0, 1),
            target_out.flatten(),
            ignore_index=self.config.pad_id,
            label_smoothing=label_smoothing,
        )

    def _embed(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.table) * math.sqrt(self.config.d_model) + self.positions[: ids.shape[1]]
        return F.dropout(x, self.config.dropout, self.training)


def copy_weights(model: TorchTransformer, state: dict[str, Tensor]) -> None:
    """Loads the weights of a `Transformer`'s `state_dict`: the names differ little, and matrices are transposed."""
    renamed = {"tokens.table": "table"}
    for stack in ("encoder", "decoder"):
        for index in range(len(getattr(model, stack))):
            old, new = f"{stack}.layers.{index}", f"{stack}.{index}"
            norms = {"encoder": ("attention", "feed_forward")}.get(
                stack, ("self_attention", "cross_attention", "feed_forward")
            )
            for norm, number in zip(norms, (1, 3) if stack == "encoder" else (1, 2, 3), strict=True):
                renamed |= {f"{old}.{norm}_residual.norm.gamma": f"{new}.norm{number}.weight"}
                renamed |= {f"{old}.{norm}_residual.norm.beta": f"{new}.norm{number}.bias"}
            for name in state:
                if name.startswith(old) and name.endswith(("weight", "bias")):
                    renamed[name] = name.replace(old, new).replace("feed_forward.", "")
    linear = {new for old, new in renamed.items() if old.endswith("weight")}
    with torch.no_grad():
        model.load_state_dict({
            new: state[old].T if new in linear else state[old] for old, new in renamed.items()
        })
