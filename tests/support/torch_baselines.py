"""The layers and the models of the baselines in PyTorch: what ours must equal, output and gradients (by autograd).

`torch.rnn_tanh` and `torch.lstm` are what `torch.nn.RNN` and `torch.nn.LSTM` call, over packed sequences, which have no
padding; `F.conv1d`, `F.glu` and `F.scaled_dot_product_attention` are PyTorch's own too. Here they are only put
together, over our named parameters.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from support import oracles
from support.torch_model import TorchModel, TorchTransformer, Weights, drop, inside, linear
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from minitransformer.layers import AttendingConvolution, DropoutStream, GatedConvolution, ResidualConvolution
from minitransformer.models import EncoderDecoder

ROOT_HALF = math.sqrt(0.5)


def torch_gates(gates: Tensor) -> Tensor:
    """Our gates `(…, 4·C)`, written, kept, read, candidate, in PyTorch's order: the last two the other way."""
    write, keep, read, candidate = gates.chunk(4, dim=-1)
    return torch.cat([write, keep, candidate, read], dim=-1)


def torch_weights(w: Weights, cell: str) -> list[Tensor]:
    """`weight_ih`, `weight_hh`, `bias_ih`, `bias_hh` of one layer; PyTorch has two biases, of which one is 0."""
    ours = [w["cell.input.weight"], w["cell.recurrent"], w["cell.input.bias"]]
    over, through, bias = map(torch_gates, ours) if cell == "lstm" else ours
    return [over.T.contiguous(), through.T.contiguous(), bias, torch.zeros_like(bias)]


def recurrent(
    w: Weights, x: Tensor, cell: str, state: tuple[Tensor, ...] | None = None, mask: np.ndarray | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer: out `(B, T, C)` with the last real state wherever there is padding, and the final state."""
    batch, time, _ = x.shape
    width = len(w["cell.recurrent"])
    if state is None:
        state = tuple(x.new_zeros(batch, width) for _ in range(2 if cell == "lstm" else 1))
    real = torch.ones(batch, time, dtype=torch.bool) if mask is None else torch.from_numpy(mask)
    lengths = real.sum(1)
    rows = lengths.nonzero()[:, 0]  # packing takes no empty sentence
    if not len(rows):
        return state[0][:, None].expand(-1, time, -1), state
    packed = pack_padded_sequence(x[rows], lengths[rows], batch_first=True, enforce_sorted=False)
    data, sizes, order, back = packed
    assert order is not None
    assert back is not None
    start = [part[rows][order][None] for part in state]
    weights = torch_weights(w, cell)
    options = (weights, True, 1, 0.0, False, False)  # biases, one layer, no dropout, not training, one direction
    if cell == "lstm":
        data, *final = torch.lstm(data, sizes, start, *options)
    else:
        data, *final = torch.rnn_tanh(data, sizes, start[0], *options)
    out, _ = pad_packed_sequence(PackedSequence(data, sizes, order, back), batch_first=True, total_length=time)
    final = tuple(part.index_put((rows,), last[0][back]) for part, last in zip(state, final, strict=True))
    out = torch.zeros(batch, time, width, dtype=x.dtype).index_put((rows,), out)
    return torch.where(real[..., None], out, final[0][:, None]), final


def recurrent_stack(
    w: Weights,
    x: Tensor,
    layers: list,
    cell: str,
    states: list[tuple[Tensor, ...]] | None = None,
    mask: np.ndarray | None = None,
    stream: DropoutStream | None = None,
) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
    """Layers over each other, our dropout on what each puts out."""
    finals = []
    for index, layer in enumerate(layers):
        x, final = recurrent(inside(w, f"layers.{index}"), x, cell, None if states is None else states[index], mask)
        x = oracles.dropped(x, drop(stream, layer.site, layer.rate))
        finals.append(final)
    return x, finals


def additive_attention(w: Weights, x: Tensor, memory: Tensor, key_mask: np.ndarray | None = None) -> Tensor:
    query, key = linear(inside(w, "query"), x), F.linear(memory, w["key"].T)
    return oracles.additive_attention(query, key, memory, w["score"], key_mask=key_mask)


def gated_convolution(
    w: Weights,
    x: Tensor,
    layer: GatedConvolution,
    mask: np.ndarray | None = None,
    stream: DropoutStream | None = None,
) -> Tensor:
    x = oracles.dropped(x, drop(stream, layer.site, layer.rate))
    if mask is not None:
        x = torch.where(torch.from_numpy(mask)[..., None], x, 0.0)
    return F.glu(oracles.conv1d(x, w["weight"], w["bias"], padding="causal" if layer.causal else "same"), dim=-1)


def residual_convolution(
    w: Weights,
    x: Tensor,
    layer: ResidualConvolution,
    mask: np.ndarray | None = None,
    stream: DropoutStream | None = None,
) -> Tensor:
    return (x + gated_convolution(inside(w, "convolution"), x, layer.convolution, mask, stream)) * ROOT_HALF


def step_attention(
    w: Weights, hidden: Tensor, embedded: Tensor, keys: Tensor, values: Tensor, key_mask: np.ndarray | None = None
) -> Tensor:
    query = (linear(inside(w, "query"), hidden) + embedded) * ROOT_HALF
    mixed = oracles.attention(query[:, None], keys[:, None], values[:, None], key_mask=key_mask)
    return (hidden + mixed[:, 0]) * ROOT_HALF


def attending_convolution(
    w: Weights,
    x: Tensor,
    embedded: Tensor,
    keys: Tensor,
    values: Tensor,
    layer: AttendingConvolution,
    key_mask: np.ndarray | None = None,
    stream: DropoutStream | None = None,
) -> Tensor:
    hidden = gated_convolution(inside(w, "convolution"), x, layer.convolution, None, stream)
    return (x + step_attention(inside(w, "attention"), hidden, embedded, keys, values, key_mask)) * ROOT_HALF


class TorchRecurrent(TorchModel):
    """The recurrent model."""

    def hidden(self, x: Tensor, y: Tensor, mask: np.ndarray, stream: DropoutStream | None) -> Tensor:
        model, w, cell = self.model, self.weights, self.config.cell
        encoder, decoder = (inside(w, f"{side}.stack") for side in ("encoder", "decoder"))
        states, finals = recurrent_stack(encoder, x, model.encoder.stack.layers, cell, None, mask, stream)
        hidden, _ = recurrent_stack(decoder, y, model.decoder.stack.layers, cell, finals, None, stream)
        if not self.config.attention:
            return hidden
        mixed = additive_attention(inside(w, "decoder.attention"), hidden, states, mask)
        return torch.tanh(linear(inside(w, "decoder.combine"), torch.cat([hidden, mixed], dim=-1)))


class TorchConvolutional(TorchModel):
    """The convolutional model."""

    def hidden(self, x: Tensor, y: Tensor, mask: np.ndarray, stream: DropoutStream | None) -> Tensor:
        keys, hidden = x, y
        for index, layer in enumerate(self.model.encoder.layers):
            keys = residual_convolution(inside(self.weights, f"encoder.layers.{index}"), keys, layer, mask, stream)
        values = (keys + x) * ROOT_HALF
        for index, layer in enumerate(self.model.decoder.layers):
            w = inside(self.weights, f"decoder.layers.{index}")
            hidden = attending_convolution(w, hidden, y, keys, values, layer, mask, stream)
        return hidden


def torch_twin(model: EncoderDecoder, dtype: torch.dtype = torch.float64) -> TorchModel:
    """The same model of any kind in PyTorch, with copies of its weights."""
    kinds = {"transformer": TorchTransformer, "recurrent": TorchRecurrent, "convolutional": TorchConvolutional}
    return kinds[model.config.kind](model, dtype)
