"""Every layer and every model in PyTorch, over our named parameters: what ours must equal, gradients by autograd.

Linear maps, attention, normalisation, look-ups, convolutions and the loss are PyTorch's own functions (`oracles.py`),
`torch.rnn_tanh` and `torch.lstm` what `torch.nn.RNN` and `torch.nn.LSTM` call, over packed sequences, which have no
padding. Here they are only put together. PyTorch can't draw our dropout masks, so these are computed from the same
stream, at the sites that our layers carry.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from support import oracles
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from minitransformer import layers
from minitransformer.layers import Context, DropoutStream, Layer

Weights = Mapping[str, Tensor]
ROOT_HALF = math.sqrt(0.5)


def inside(weights: Weights, name: str) -> Weights:
    """The parameters of one part: those whose names begin with `name.`, without it."""
    return {key.removeprefix(f"{name}."): w for key, w in weights.items() if key.startswith(f"{name}.")}


def torch_layer(layer: Layer, w: Weights, *inputs: Any, context: Context = layers.PLAIN) -> Any:
    """A layer's output over tensors, of `layer` itself its kind, its options and its dropout sites alone."""
    return TWINS[type(layer)](layer, w, *inputs, context)


def part(layer: Layer, w: Weights, name: str, *inputs: Any, context: Context) -> Any:
    """The output of a layer in a layer."""
    return torch_layer(getattr(layer, name), inside(w, name), *inputs, context=context)


def dropped(layer: Any, x: Tensor, context: Context) -> Tensor:
    return oracles.dropped(x, None if context.dropout is None else context.dropout.at(layer.site, layer.rate))


# --- The Transformer's ----------------------------------------------------------------------------------------


def linear(layer: Layer, w: Weights, x: Tensor, context: Context) -> Tensor:
    return oracles.linear(x, w["weight"], w["bias"])


def lora(layer: Any, w: Weights, x: Tensor, context: Context) -> Tensor:
    return layer.scale * (x @ w["a"] @ w["b"])


def adapted_linear(layer: Any, w: Weights, x: Tensor, context: Context) -> Tensor:
    """The map, and each adapter in its own columns; elsewhere zeros."""
    adapters = zip(layer.adapters, layer.widths, strict=True)
    changes = [
        torch.zeros((*x.shape[:-1], width), dtype=x.dtype)
        if adapter is None
        else torch_layer(adapter, inside(w, f"adapters.{i}"), x, context=context)
        for i, (adapter, width) in enumerate(adapters)
    ]
    return linear(layer, w, x, context) + torch.cat(changes, dim=-1)


def layernorm(layer: Any, w: Weights, x: Tensor, context: Context) -> Tensor:
    return oracles.layernorm(x, w["gamma"], w["beta"], layer.eps)


def feed_forward(layer: Layer, w: Weights, x: Tensor, context: Context) -> Tensor:
    hidden = F.relu(part(layer, w, "expand", x, context=context))
    return part(layer, w, "contract", hidden, context=context)


def attention(layer: Any, w: Weights, x: Tensor, context: Context) -> Tensor:
    """The heads one by one, each over its own columns, then side by side."""
    value_width = len(w["output.weight"])
    if isinstance(layer, layers.CrossAttention):
        options = {"key_mask": context.memory_mask}
        query, memory = (
            part(layer, w, name, given, context=context)
            for name, given in (("query", x), ("key_value", context.memory))
        )
        key, value = memory.split([query.shape[-1], value_width], dim=-1)
    else:
        projected = part(layer, w, "query_key_value", x, context=context)
        key_width = (projected.shape[-1] - value_width) // 2
        query, key, value = projected.split([key_width, key_width, value_width], dim=-1)
        options = {"key_mask": context.mask, "causal": layer.causal, "window": layer.window}
    if context.dropout is not None:
        options["dropout"] = context.dropout.at(layer.site, layer.rate)
    heads = (torch.stack(columns.chunk(layer.num_heads, dim=-1), dim=1) for columns in (query, key, value))
    mixed = oracles.attention(*heads, **options)  # (B, H, T, Dv)
    return part(layer, w, "output", torch.cat(mixed.unbind(1), dim=-1), context=context)


def residual(norm: Any, w: Weights, x: Tensor, sublayer: Callable[[Tensor], Tensor], context: Context) -> Tensor:
    """`w` are gamma and beta."""
    if norm.pre_norm:
        return x + dropped(norm, sublayer(layernorm(norm, w, x, context)), context)
    return layernorm(norm, w, x + dropped(norm, sublayer(x), context), context)


def block(layer: Any, w: Weights, x: Tensor, context: Context) -> Tensor:
    """The sub-layers in figure 1's order."""
    for name in ("self_attention", *(["cross_attention"] * layer.cross), "feed_forward"):
        norm, sublayer = f"{name}_norm", partial(part, layer, w, name, context=context)
        x = residual(getattr(layer, norm), inside(w, norm), x, sublayer, context)
    return x


def sinusoids(length: int, d_model: int) -> Tensor:
    """§3.5, written channel by channel: `sin` in the even ones, `cos` in the odd ones, `(length, d_model)`."""
    position = torch.arange(length, dtype=torch.float64)
    angles = [position / 10000 ** (2 * (channel // 2) / d_model) for channel in range(d_model)]
    return torch.stack([angle.cos() if i % 2 else angle.sin() for i, angle in enumerate(angles)], dim=1)


def embedded(layer: Any, w: Weights, ids: Tensor, context: Context) -> Tensor:
    """Tokens times √d_model, positions of either kind or none, dropout; `w` has the table of tokens too."""
    table, learned = w["tokens.table"], w.get("positions.table")
    x = F.embedding(ids, table) * table.shape[1] ** 0.5
    if learned is not None:
        x = x + learned[: ids.shape[1]]
    elif layer.positions is not None:
        x = x + sinusoids(*x.shape[1:]).to(x.dtype)
    return dropped(layer, x, context)


# --- Recurrent ------------------------------------------------------------------------------------------------


def torch_gates(gates: Tensor) -> Tensor:
    """Our gates `(…, 4·C)`, written, kept, read, candidate, in PyTorch's order: the last two the other way."""
    write, keep, read, candidate = gates.chunk(4, dim=-1)
    return torch.cat([write, keep, candidate, read], dim=-1)


def torch_weights(w: Weights) -> list[Tensor]:
    """`weight_ih`, `weight_hh`, `bias_ih`, `bias_hh` of one layer; PyTorch has two biases, of which one is 0."""
    ours = [w["cell.input.weight"], w["cell.recurrent"], w["cell.input.bias"]]
    lstm = ours[1].shape[0] != ours[1].shape[1]
    over, through, bias = map(torch_gates, ours) if lstm else ours
    return [over.T.contiguous(), through.T.contiguous(), bias, torch.zeros_like(bias)]


def recurrent(
    layer: Any, w: Weights, x: Tensor, state: tuple[Tensor, ...] | None, context: Context
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Dropout of out `(B, T, C)`, with the last real state wherever there is padding, and the final state."""
    batch, time, _ = x.shape
    width = len(w["cell.recurrent"])
    lstm = w["cell.recurrent"].shape[1] == 4 * width
    if state is None:
        state = tuple(x.new_zeros(batch, width) for _ in range(2 if lstm else 1))
    real = torch.ones(batch, time, dtype=torch.bool) if context.mask is None else torch.from_numpy(context.mask)
    lengths = real.sum(1)
    rows = lengths.nonzero()[:, 0]  # packing takes no empty sentence
    if not len(rows):
        return dropped(layer, state[0][:, None].expand(-1, time, -1), context), state
    packed = pack_padded_sequence(x[rows], lengths[rows], batch_first=True, enforce_sorted=False)
    data, sizes, order, back = packed
    assert order is not None
    assert back is not None
    start = [part[rows][order][None] for part in state]
    options = (torch_weights(w), True, 1, 0.0, False, False)  # biases, one layer, no dropout, not training, one way
    data, *last = torch.lstm(data, sizes, start, *options) if lstm else torch.rnn_tanh(data, sizes, start[0], *options)
    out, _ = pad_packed_sequence(PackedSequence(data, sizes, order, back), batch_first=True, total_length=time)
    final = tuple(old.index_put((rows,), new[0][back]) for old, new in zip(state, last, strict=True))
    out = torch.zeros(batch, time, width, dtype=x.dtype).index_put((rows,), out)
    return dropped(layer, torch.where(real[..., None], out, final[0][:, None]), context), final


def recurrent_stack(
    layer: Any, w: Weights, x: Tensor, states: list | None, context: Context
) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
    finals = []
    for index, each in enumerate(layer.layers):
        state = None if states is None else states[index]
        x, final = recurrent(each, inside(w, f"layers.{index}"), x, state, context)
        finals.append(final)
    return x, finals


def additive_attention(layer: Layer, w: Weights, x: Tensor, memory: Tensor, context: Context) -> Tensor:
    query, key = part(layer, w, "query", x, context=context), F.linear(memory, w["key"].T)
    return oracles.additive_attention(query, key, memory, w["score"], key_mask=context.memory_mask)


# --- Convolutional --------------------------------------------------------------------------------------------


def gated_convolution(layer: Any, w: Weights, x: Tensor, context: Context) -> Tensor:
    x = dropped(layer, x, context)
    if context.mask is not None:
        x = torch.where(torch.from_numpy(context.mask)[..., None], x, 0.0)
    return F.glu(oracles.conv1d(x, w["weight"], w["bias"], padding="causal" if layer.causal else "same"), dim=-1)


def residual_convolution(layer: Layer, w: Weights, x: Tensor, context: Context) -> Tensor:
    return (x + part(layer, w, "convolution", x, context=context)) * ROOT_HALF


def step_attention(layer: Layer, w: Weights, hidden: Tensor, embedded: Tensor, context: Context) -> Tensor:
    keys, values = context.memory
    query = (part(layer, w, "query", hidden, context=context) + embedded) * ROOT_HALF
    mixed = oracles.attention(query[:, None], keys[:, None], values[:, None], key_mask=context.memory_mask)
    return (hidden + mixed[:, 0]) * ROOT_HALF


def attending_convolution(layer: Layer, w: Weights, x: Tensor, embedded: Tensor, context: Context) -> Tensor:
    hidden = part(layer, w, "convolution", x, context=context)
    return (x + part(layer, w, "attention", hidden, embedded, context=context)) * ROOT_HALF


TWINS: dict[type[Layer], Callable[..., Any]] = {
    layers.Linear: linear,
    layers.LoRA: lora,
    layers.AdaptedLinear: adapted_linear,
    layers.FeedForward: feed_forward,
    layers.Norm: layernorm,
    layers.SelfAttention: attention,
    layers.CrossAttention: attention,
    layers.Block: block,
    layers.TokenEmbedding: lambda layer, w, ids, _: F.embedding(ids, w["table"]) * w["table"].shape[1] ** 0.5,
    layers.LearnedPositions: lambda layer, w, x, _: x + w["table"][: x.shape[1]],
    layers.InputEmbedding: embedded,
    layers.Recurrent: recurrent,
    layers.RecurrentStack: recurrent_stack,
    layers.AdditiveAttention: additive_attention,
    layers.GatedConvolution: gated_convolution,
    layers.ResidualConvolution: residual_convolution,
    layers.StepAttention: step_attention,
    layers.AttendingConvolution: attending_convolution,
}


# --- Whole models ---------------------------------------------------------------------------------------------


class TorchModel:
    """A model of any kind, over copies of its parameters: `.weights`, by name, with `.grad`."""

    def __init__(self, model: Any, dtype: torch.dtype = torch.float64) -> None:
        self.model, self.config = model, model.config
        layers_that_drop = [each for _, each in model.named_layers() if hasattr(each, "rate")]
        rates = {each.rate for each in layers_that_drop if not isinstance(each, layers.Attention)}
        assert rates == {self.config.dropout}  # the twin takes them from the layers
        state = model.parameters.state_dict()
        self.weights = {name: torch.tensor(w, dtype=dtype, requires_grad=True) for name, w in state.items()}
        self.hidden = {"transformer": transformer, "recurrent": recurrent_model, "convolutional": convolutional}[
            self.config.kind
        ]

    def forward(self, source: np.ndarray, target: np.ndarray, stream: DropoutStream | None = None) -> Tensor:
        """Logits `(B, Tt, V)`."""
        table, mask = self.weights["tokens.table"], source != self.config.pad_id
        x, y = (
            embedded(
                getattr(self.model, side).embedding,
                {"tokens.table": table, **inside(self.weights, f"{side}.embedding")},
                torch.tensor(ids),
                Context(dropout=stream),
            )
            for side, ids in (("encoder", source), ("decoder", target))
        )
        return F.linear(self.hidden(self.model, self.weights, x, y, mask, stream), table)

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
        """Return the gradients that autograd left, zero where it left nothing."""
        return {name: np.zeros(w.shape) if w.grad is None else w.grad.numpy() for name, w in self.weights.items()}


def transformer(model: Any, w: Weights, x: Tensor, y: Tensor, mask: np.ndarray, stream: DropoutStream | None) -> Tensor:
    assert_as_configured(model)

    def stack(side: str, x: Tensor, context: Context) -> Tensor:
        blocks, weights = getattr(model, side), inside(w, side)
        for index, layer in enumerate(blocks.layers):
            x = torch_layer(layer, inside(weights, f"layers.{index}"), x, context=context)
        return part(blocks, weights, "final_norm", x, context=context) if model.config.norm_first else x

    memory = stack("encoder", x, Context(mask=mask, dropout=stream))
    return stack("decoder", y, Context(memory=memory, memory_mask=mask, dropout=stream))


def assert_as_configured(model: Any) -> None:
    """Every layer has the options that the flat configuration says, which the twin takes from the layers."""
    flat = model.config
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (flat.num_layers, flat.decoder_layers)
    assert {type(model.encoder.embedding.positions)} == {
        layers.LearnedPositions if flat.positions == "learned" else layers.SinusoidalPositions
    }
    for name, layer in model.named_layers():
        if isinstance(layer, layers.Attention):
            assert (layer.num_heads, layer.rate) == (flat.num_heads, flat.attention_dropout)
            if not isinstance(layer, layers.CrossAttention):
                assert isinstance(layer, layers.SelfAttention)
                assert (layer.causal, layer.window) == (name.startswith("decoder"), flat.window)
            assert layer.output.weight.shape[0] == flat.num_heads * flat.value_width
        if isinstance(layer, layers.Norm):
            assert layer.eps == flat.layernorm_eps
        if isinstance(layer, layers.ResidualNorm):
            assert (layer.pre_norm, layer.rate) == (flat.norm_first, flat.dropout)
        if isinstance(layer, layers.InputEmbedding):
            assert layer.rate == flat.dropout


def recurrent_model(
    model: Any, w: Weights, x: Tensor, y: Tensor, mask: np.ndarray, stream: DropoutStream | None
) -> Tensor:
    encoder, decoder = inside(w, "encoder.stack"), inside(w, "decoder.stack")
    states, finals = recurrent_stack(model.encoder.stack, encoder, x, None, Context(mask, dropout=stream))
    hidden, _ = recurrent_stack(model.decoder.stack, decoder, y, finals, Context(dropout=stream))
    if not model.config.attention:
        return hidden
    attend = partial(part, model.decoder, inside(w, "decoder"), context=Context(memory_mask=mask))
    return torch.tanh(attend("combine", torch.cat([hidden, attend("attention", hidden, states)], dim=-1)))


def convolutional(
    model: Any, w: Weights, x: Tensor, y: Tensor, mask: np.ndarray, stream: DropoutStream | None
) -> Tensor:
    keys, hidden = x, y
    for name, layer in model.named_layers():
        if isinstance(layer, layers.GatedConvolution):
            assert (layer.causal, layer.rate) == (name.startswith("decoder"), model.config.dropout)
    for index, layer in enumerate(model.encoder.layers):
        context = Context(mask, dropout=stream)
        keys = torch_layer(layer, inside(w, f"encoder.layers.{index}"), keys, context=context)
    context = Context(memory=(keys, (keys + x) * ROOT_HALF), memory_mask=mask, dropout=stream)
    for index, layer in enumerate(model.decoder.layers):
        hidden = torch_layer(layer, inside(w, f"decoder.layers.{index}"), hidden, y, context=context)
    return hidden
