"""Direct logit attribution: what each part of a model adds to a logit, by its straight way to the output.

found = logit_attribution(model, record(model, ids), tokens=[7])
found.heads["self_attention"]    # (L, H, B, T, 1): what each head adds to the logit of token 7, at each position
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..layers import AdaptedLinear, Attention, Layer, Linear, Norm, OutputLayer, Parameter, QuantizedParameter, Stack
from .recording import Recording, Stream, sublayers


@dataclass(frozen=True)
class Attribution:
    """The terms of K logits in one run: `(B, T, K)` each, or `(B, K)` where the logits have no T.

    embedding    what enters the first block
    sublayers    `(L, …)` each: what "self_attention", "cross_attention" and "feed_forward" of each block add
    heads        `(L, H, …)` each: what each head of "self_attention" and "cross_attention" adds
    head_biases  `(L, …)` each: what these add beside their heads: the bias of `output`, in a sandwich the norm's beta
    constants    by the name of a parameter: the betas of all other norms, and the output layer's biases
    logits       what the model gave

    `embedding`, all `sublayers` and all `constants` add up to `logits`, `heads` and `head_biases` to their sub-layer.
    """

    embedding: np.ndarray
    sublayers: dict[str, np.ndarray]
    heads: dict[str, np.ndarray]
    head_biases: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    logits: np.ndarray

    def total(self) -> np.ndarray:
        """Return the sum of all terms: `logits`, but for rounding."""
        parts = [each.sum(0) for each in self.sublayers.values()]
        return sum([*parts, *self.constants.values()], self.embedding)


def logit_attribution(model: Any, recording: Recording, tokens: Any) -> Attribution:
    """Return what each part of a model added to the logits of chosen tokens, or classes, in a recorded run of it.

    tokens: K ids for all places alike, or K for each place, in the shape of the logits with K for V.

    Each norm is frozen: a term loses its own mean and gets the scale that the norm had in this run. That is linear, so
    a term passes through all norms between its place and the logits; in a post-norm stack these are all later ones. An
    activation in a BERT's head and a softcap of the logits (Gemma 2) are frozen too: each number z keeps its factor
    f(z)/z. So the terms add up for every model whose logits are read from a stack of blocks. For an encoder–decoder
    this is the decoder: what it takes from the memory is a term, "cross_attention". Computed in float64 in host memory.

    Raises `ValueError` for tokens outside the vocabulary or of another shape, and for a BERT that gives hidden states.
    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    *_, (side, stream) = recording.streams.items()
    stack: Stack = getattr(model, side)
    tokens = _placed(tokens, recording.logits.shape)
    hidden = _normalised(stack.final_norm, stream.states[-1]) if stack.final_norm else stream.states[-1]
    way, rows = _before_head(model, hidden * stack.output_scale, tokens)
    way.directions = way.directions * stack.output_scale
    if stack.final_norm:
        way.back_through_norm(stack.final_norm, stream.states[-1][:, rows])
    terms, heads, biases = ({name: [] for name in sublayers(stack)} for _ in range(3))
    for n in reversed(range(len(stack.layers))):
        block = stack.layers[n]
        for name, x in reversed(_entering(stack, stream, n)):
            norm, added = getattr(block, f"{name}_norm"), stream.contributions[name][n]
            if not norm.pre_norm:
                way.back_through_norm(norm, (x + added)[:, rows])
            terms[name].append(way.term(added[:, rows]))
            if name in stream.heads:
                split = _of_heads(way, getattr(block, name), norm, stream.heads[name][n][:, rows])
                heads[name].append(split[0])
                biases[name].append(split[1])
    one = recording.logits.ndim == 2  # the terms of all rows are those of one logit

    def stacked(parts: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
        found = {name: np.stack(each[::-1]) for name, each in parts.items() if each}
        return {name: each.sum(-2) if one else each for name, each in found.items()}

    embedding = way.term(stream.states[0][:, rows])
    constants = {name: each.sum(1) if one else each for name, each in way.constants.items()}
    logits = np.take_along_axis(recording.logits, tokens[:, 0] if one else tokens, -1)
    embedding = embedding.sum(1) if one else embedding
    return Attribution(embedding, stacked(terms), stacked(heads), stacked(biases), constants, logits)


@dataclass
class Way:
    """The way from one place of a model to the logits, all of it linear: `logits = directions · x + Σ constants`.

    directions `(B, T, K, C)`; constants `(B, T, K)`, by the names of parameters.
    """

    directions: np.ndarray
    constants: dict[str, np.ndarray]

    def term(self, x: np.ndarray) -> np.ndarray:
        """x `(B, T, C)` → its term of each logit, `(B, T, K)`."""
        return np.einsum("btc,btkc->btk", x, self.directions)

    def copy(self) -> "Way":
        """Return the way from this place by another branch, without the constants of this one."""
        return Way(self.directions, {})

    def constant(self, layer: Layer, parameter: Parameter | None) -> None:
        """Add the term of a bias or beta, if there is one; a block that stands in several places adds in each."""
        if parameter is not None:
            term = self.directions @ in_host(layer, parameter)
            self.constants[parameter.name] = self.constants.get(parameter.name, 0) + term

    def back_through_norm(self, norm: Norm, x: np.ndarray) -> None:
        """Begin before a norm that has the scale which it has for x `(B, T, C)`."""
        self.constant(norm, norm.beta)
        self.directions = self.directions * gain_of(norm) * _scale(norm, x)[:, :, None]
        if not norm.rms:
            self.directions = self.directions - self.directions.mean(-1, keepdims=True)

    def back_through_linear(self, linear: Linear) -> None:
        """Begin before an affine map."""
        self.constant(linear, linear.bias)
        self.directions = self.directions @ matrix_of(linear).T

    def back_through_factor(self, factor: np.ndarray) -> None:
        """Begin before an activation that multiplies x `(B, T, C)` by these factors."""
        self.directions = self.directions * factor[:, :, None]


def in_host(layer: Layer, parameter: Parameter) -> np.ndarray:
    """Return a parameter of a layer, which may be in few bits, in host memory and float64."""
    few = isinstance(parameter, QuantizedParameter)
    return np.array(parameter.floats(layer.ops) if few else layer.ops.to_numpy(parameter.value), np.float64)


def matrix_of(linear: Linear) -> np.ndarray:
    """Return the matrix `(C_in, C_out)` of a linear map, its adapters included, in host memory and float64."""
    matrix = in_host(linear, linear.weight)
    for adapter, columns in linear.adapted() if isinstance(linear, AdaptedLinear) else ():
        matrix[:, columns] += linear.ops.to_numpy(adapter.product())
    return matrix


def gain_of(norm: Norm) -> np.ndarray:
    """Return the factor of each channel `(C,)` in host memory and float64."""
    return in_host(norm, norm.gamma) + norm.adds_one


# --- From the logits back to the stack --------------------------------------------------------------------------


def _placed(tokens: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return ids as `(B, T, K)`, or `(B, 1, K)` where the logits have no T. Raises as `logit_attribution` does."""
    tokens = np.asarray(tokens)
    if tokens.dtype.kind not in "iu" or tokens.ndim == 0 or (tokens.ndim > 1 and tokens.shape[:-1] != shape[:-1]):
        raise ValueError(f"tokens has shape {tokens.shape}, expected K ids, or {(*shape[:-1], 'K')}")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < shape[-1]):
        raise ValueError(f"tokens has ids from {tokens.min()} to {tokens.max()}, expected 0 to {shape[-1] - 1}")
    placed = np.broadcast_to(tokens, (*shape[:-1], tokens.shape[-1]))
    return placed if len(shape) == 3 else placed[:, None]


def _before_head(model: Any, hidden: np.ndarray, tokens: np.ndarray) -> tuple[Way, slice]:
    """Return the way from what the stack gives, hidden `(B, T, C)`, and the positions from which the head reads it."""
    if model.config.kind == "vit":
        heads = [model.classes] + ([model.distilled_classes] if model.config.distillation == "head" else [])
        ways = [_before_classes(head, tokens) for head in heads]  # one reads each row, and the logits are their mean
        constants = {name: each / len(ways) for way in ways for name, each in way.constants.items()}
        directions = np.concatenate([way.directions for way in ways], axis=1) / len(ways)
        return Way(directions, constants), slice(len(ways))
    if model.config.kind != "bert":
        return _before_output(model.output, hidden, tokens), slice(None)
    head, kind = model.head, model.config.head
    if kind in ("tokens", "answer"):
        return _before_classes(head.classes, tokens), slice(None)
    if kind == "classes":
        way = _before_classes(head.classes, tokens)
        _back_through_activation(way, head.pooler, head.activation, hidden[:, :1])
        return way, slice(1)
    if kind != "masked":
        raise ValueError(f"a bert model with the head {kind!r} gives hidden states, and no logits")
    way = _before_output(head.output, hidden, tokens)
    active = _activated(head.transform, head.activation, hidden)[1]
    way.back_through_norm(head.norm, active)
    _back_through_activation(way, head.transform, head.activation, hidden)
    return way, slice(None)


def _before_output(output: OutputLayer, hidden: np.ndarray, tokens: np.ndarray) -> Way:
    way = Way(in_host(output, output.table)[tokens], {})
    bias = in_host(output, output.bias)[tokens] if output.bias is not None else np.zeros(tokens.shape)
    if output.bias is not None:
        way.constants[output.bias.name] = bias
    if output.softcap is not None:
        z = way.term(hidden) + bias
        factor = _ratio(output.softcap * np.tanh(z / output.softcap), z)  # (B, T, K)
        way.directions = way.directions * factor[..., None]
        way.constants = {name: each * factor for name, each in way.constants.items()}
    return way


def _before_classes(classes: Linear, tokens: np.ndarray) -> Way:
    bias = classes.bias
    constants = {} if bias is None else {bias.name: in_host(classes, bias)[tokens]}
    return Way(matrix_of(classes).T[tokens], constants)


def _activated(linear: Linear, activation: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return z, the linear map's output, and what an activation makes of it."""
    z = x @ matrix_of(linear) + (0 if linear.bias is None else in_host(linear, linear.bias))
    return z, np.asarray(linear.ops.to_numpy(activation.forward(linear.ops.asarray(z))[0]), np.float64)


def _back_through_activation(way: Way, linear: Linear, activation: Any, x: np.ndarray) -> None:
    z, active = _activated(linear, activation, x)
    way.back_through_factor(_ratio(active, z))
    way.back_through_linear(linear)


def _ratio(out: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return f(z)/z: 0 where z is 0, since then f(z) is 0 too."""
    return np.divide(out, z, out=np.zeros_like(z), where=z != 0)


# --- Through the stack ------------------------------------------------------------------------------------------


def _scale(norm: Norm, x: np.ndarray) -> np.ndarray:
    """Return the number `(B, T, 1)` by which a norm multiplies x, beside its gain."""
    centred = _centred(norm, x)
    return 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + norm.eps)


def _centred(norm: Norm, x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.float64)
    return x if norm.rms else x - x.mean(-1, keepdims=True)


def _normalised(norm: Norm, x: np.ndarray) -> np.ndarray:
    beta = 0 if norm.beta is None else in_host(norm, norm.beta)
    return _centred(norm, x) * _scale(norm, x) * gain_of(norm) + beta


def _entering(stack: Stack, stream: Stream, n: int) -> list[tuple[str, np.ndarray]]:
    """Return each sub-layer of block n with the stream `(B, T, C)` that passes by it, in their order."""
    x, found = stream.states[n], []
    for name in sublayers(stack):
        found.append((name, x))
        norm, total = getattr(stack.layers[n], f"{name}_norm"), x + stream.contributions[name][n]
        x = total if norm.pre_norm else _normalised(norm, total)
    return found


def _of_heads(way: Way, attention: Attention, norm: Any, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """heads `(B, T, H, Dv)` → their terms `(H, B, T, K)`, and that of what is added beside them, `(B, T, K)`."""
    way, joined = way.copy(), heads.reshape(*heads.shape[:2], -1)
    if hasattr(norm, "of_output"):
        bias = attention.output.bias
        out = joined @ matrix_of(attention.output) + (0 if bias is None else in_host(attention, bias))
        way.back_through_norm(norm.of_output, out)
    way.back_through_linear(attention.output)
    directions = way.directions.reshape(*way.directions.shape[:3], *heads.shape[2:])  # (B, T, K, H, Dv)
    terms = np.einsum("bthd,btkhd->hbtk", heads, directions)
    return terms, sum(way.constants.values(), np.zeros(terms.shape[1:]))
