"""The Transformer in PyTorch, as one would write it for speed: what ours is timed against."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minitransformer.models import TransformerConfig

Cache = tuple[Tensor, Tensor]
"""Keys and values `(B, H, T, D)`."""


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
        if self.cross:
            assert memory is not None
            query, (key, value) = self._split(self.query(x)), self.keys_and_values(memory)
        else:
            query, key, value = map(self._split, self.query_key_value(x).chunk(3, dim=-1))
        return self._merge(F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal))

    def keys_and_values(self, memory: Tensor) -> Cache:
        """Keys and values of cross-attention, once for a translation."""
        key, value = map(self._split, self.key_value(memory).chunk(2, dim=-1))
        return key, value

    def step(self, x: Tensor, cache: Cache, position: int) -> Tensor:
        """x, the newest position; self-attention writes its keys and values into the cache."""
        keys, values = cache
        if self.cross:
            return self._merge(F.scaled_dot_product_attention(self._split(self.query(x)), keys, values))
        query, key, value = map(self._split, self.query_key_value(x).chunk(3, dim=-1))
        keys[:, :, position], values[:, :, position] = key[:, :, 0], value[:, :, 0]
        seen = slice(0, position + 1)
        return self._merge(F.scaled_dot_product_attention(query, keys[:, :, seen], values[:, :, seen]))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, T, D)

    def _merge(self, x: Tensor) -> Tensor:
        return self.output(x.transpose(1, 2).flatten(2))


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

    def step(self, x: Tensor, self_cache: Cache, memory_cache: Cache, position: int) -> Tensor:
        """One new position of K beams `(B, K, C)`; they are sequences of their own, and queries to one memory."""
        alone = self.self_attention.step(x.flatten(0, 1)[:, None], self_cache, position)  # (B·K, 1, C)
        x = self.norm1(x + alone.view_as(x))
        x = self.norm2(x + self.cross_attention.step(x, memory_cache, position))
        return self.norm3(x + self.contract(F.relu(self.expand(x))))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, self.training)


class Stack(nn.ModuleList):
    """Blocks, as a type checker knows them."""

    def __iter__(self) -> Iterator[Block]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().__iter__()  # pyright: ignore[reportReturnType]


class TorchTransformer(nn.Module):
    """The paper's model with tied embeddings; `forward` gives the loss."""

    positions: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.encoder = Stack(Block(config, decoder=False) for _ in range(config.num_layers))
        self.decoder = Stack(Block(config, decoder=True) for _ in range(config.decoder_layers))
        position = torch.arange(config.max_length, dtype=torch.float64)[:, None]
        angle = position * 10000 ** (-torch.arange(0, config.d_model, 2, dtype=torch.float64) / config.d_model)
        table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
        self.register_buffer("positions", table.to(torch.float32), persistent=False)

    def forward(
        self, source: Tensor, target_in: Tensor, target_out: Tensor, mask: Tensor | None, label_smoothing: float
    ) -> Tensor:
        """mask `(B, 1, 1, Ts)`, `True` where a source token is real; `None` where all are."""
        memory = self.encode(source, mask)
        x = self.embed(target_in)
        for block in self.decoder:
            x = block(x, mask, memory)
        logits = F.linear(x, self.table).float()  # of a narrow type a loss is taken in float32
        return F.cross_entropy(
            logits.flatten(0, 1),
            target_out.flatten(),
            ignore_index=self.config.pad_id,
            label_smoothing=label_smoothing,
        )

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """The memory `(B, Ts, C)`."""
        memory = self.embed(source)
        for block in self.encoder:
            memory = block(memory, mask)
        return memory

    def embed(self, ids: Tensor, position: int = 0) -> Tensor:
        """ids `(B, T)` from `position` on → `(B, T, C)`."""
        x = F.embedding(ids, self.table) * math.sqrt(self.config.d_model)
        x = x + self.positions[position : position + ids.shape[1]]
        return F.dropout(x, self.config.dropout, self.training)


@torch.inference_mode()
def beam_search(model: TorchTransformer, source: Tensor, num_beams: int, num_tokens: int) -> Tensor:
    """The best translation `(B, num_tokens)` of each unpadded sentence, of exactly that length; greedy for one beam."""
    config, batch = model.config, len(source)
    memory = model.encode(source)
    memory_caches = [block.cross_attention.keys_and_values(memory) for block in model.decoder]
    width = config.d_model // config.num_heads
    self_caches: list[Cache] = [
        (memory.new_empty(room), memory.new_empty(room))
        for room in [(batch * num_beams, config.num_heads, num_tokens, width)] * len(model.decoder)
    ]
    first_row = torch.arange(batch)[:, None] * num_beams
    ids = torch.full((batch, num_beams), config.bos_id)
    outputs = torch.empty(batch, num_beams, 0, dtype=torch.int64)
    totals = torch.full((batch, num_beams), -math.inf)
    totals[:, 0] = 0.0
    for position in range(num_tokens):
        x = model.embed(ids.view(-1, 1), position).view(batch, num_beams, -1)
        for block, self_cache, memory_cache in zip(model.decoder, self_caches, memory_caches, strict=True):
            x = block.step(x, self_cache, memory_cache, position)
        logits = F.linear(x, model.table)
        logits[..., [config.pad_id, config.bos_id, config.eos_id]] = -math.inf
        if num_beams == 1:
            ids = logits.argmax(-1)
            outputs = torch.cat((outputs, ids[..., None]), dim=-1)
            continue
        extended = totals[..., None] + F.log_softmax(logits, dim=-1)
        totals, best = extended.flatten(1).topk(num_beams)  # (B, K)
        beams, ids = best // config.vocab_size, best % config.vocab_size
        outputs = torch.cat((outputs.gather(1, beams[..., None].expand_as(outputs)), ids[..., None]), dim=-1)
        rows = (first_row + beams).flatten()
        self_caches = [(keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in self_caches]
    return outputs[:, 0]


def copy_weights(model: TorchTransformer, state: dict[str, Tensor]) -> None:
    """Loads the weights of a `Transformer`'s `state_dict`: the names differ little, and matrices are transposed."""
    renamed = {"tokens.table": "table"}
    for stack in ("encoder", "decoder"):
        for index in range(len(getattr(model, stack))):
            old, new = f"{stack}.layers.{index}", f"{stack}.{index}"
            norms = {"self_attention": 1, "cross_attention": 2, "feed_forward": 3}
            if stack == "encoder":
                del norms["cross_attention"]
            for norm, number in norms.items():
                renamed |= {f"{old}.{norm}_norm.gamma": f"{new}.norm{number}.weight"}
                renamed |= {f"{old}.{norm}_norm.beta": f"{new}.norm{number}.bias"}
            for name in state:
                if name.startswith(old) and name.endswith(("weight", "bias")):
                    renamed[name] = name.replace(old, new).replace("feed_forward.", "")
    linear = {new for old, new in renamed.items() if old.endswith("weight")}
    with torch.no_grad():
        model.load_state_dict({new: state[old].T if new in linear else state[old] for old, new in renamed.items()})
