"""Models seen from inside: each layer's attention weights, and the model's logits after each layer."""

from typing import Any

import numpy as np

from .layers import CrossAttention, LinearSelfAttention, SelfAttention, Stack
from .ops import Array
from .probe import Call, probe


def attention_maps(model: Any, *inputs: Any, **options: Any) -> dict[str, np.ndarray]:
    """Return every layer's attention weights `(B, H, Tq, Tk)`, by the layer's name, in the order of computation.

    inputs and options are those of `model.forward`. Works for every model with attention and every backend: the weights
    are computed again from the op's arguments. Raises `ValueError` for a model without softmax attention.
    """
    seen: list[np.ndarray] = []

    def note(call: Call) -> None:
        if call.op == "attention" and call.way == "forward":
            query, key, _, bias = call.arguments
            kept = {name: value for name, value in call.options.items() if name != "dropout"}
            seen.append(model.ops.to_numpy(model.ops.attention_weights(query, key, bias, **kept)))

    softmax = (each for each in model.named_layers() if not isinstance(each[1], LinearSelfAttention))
    names = [name for name, layer in softmax if isinstance(layer, SelfAttention | CrossAttention)]
    if not names:
        raise ValueError(f"a {model.config.kind} model has no attention maps: it has no softmax attention")
    model.replica(probe(model.ops, note)).forward(*inputs, **options)
    return dict(zip(names, seen, strict=True))


def logit_lens(model: Any, *inputs: Any, **options: Any) -> np.ndarray:
    """Return the output layer's logits after each layer, `(layers + 1, B, T, V)`, or without `T` for a classifier.

    Entry n is the model cut off after n layers, with its final norm; the last entry is the model's own logits. For an
    encoder–decoder the decoder is cut. inputs and options are those of `model.forward`. Each layer runs once, the
    output layer layers + 1 times. Raises `ValueError` for a model without a stack of blocks. Source: nostalgebraist
    2020, "interpreting GPT".
    """
    cut = model.replica()
    encoder, decoder = getattr(cut, "encoder", None), getattr(cut, "decoder", None)
    stack = decoder or encoder
    if not isinstance(stack, Stack):
        raise ValueError(f"a {model.config.kind} model has no logit lens: it has no stack of blocks")
    states, memory = list[Array](), list[Array]()
    for layer in dict.fromkeys((stack.embedding, *stack.layers)):  # one that is shared appends at each of its calls
        _keep_output(layer, states)
    if stack is decoder and encoder:
        _keep_output(encoder, memory)
    logits = [cut.forward(*inputs, **options)[0]]
    stack.layers = []
    if memory:
        _give_output(encoder, memory[0])
    for state in reversed(states[:-1]):
        _give_output(stack.embedding, state)
        logits.append(cut.forward(*inputs, **options)[0])
    return np.stack([model.ops.to_numpy(each) for each in reversed(logits)])


def _keep_output(layer: Any, outputs: list[Array]) -> None:
    """Let a layer's forward append its output to a list."""
    forward = layer.forward

    def kept(*inputs: Any) -> tuple[Array, Any]:
        out, cache = forward(*inputs)
        outputs.append(out)
        return out, cache

    layer.forward = kept


def _give_output(layer: Any, output: Array) -> None:
    """Let a layer's forward return this, and compute nothing."""
    layer.forward = lambda *_: (output, None)
