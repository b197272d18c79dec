"""Lesson 08: the wiring of the model, the gradients of the memory, and the number of parameters."""

import numpy as np

from minitransformer import ops
from minitransformer.costs import num_parameters
from minitransformer.models import TransformerConfig

from ..checks import (
    in_case,
    require,
    require_array,
    require_arrays,
    require_close,
    require_gradients,
    require_none_of,
    type_name,
)
from ..exercise import Attempt, exercise
from . import solutions
from .wiring import SUBLAYERS, Parts, check_layer, check_model, whole


def _count_parameters(V, C, F, N):
    return num_parameters(TransformerConfig(V, d_model=C, num_heads=1, d_ff=F, num_layers=N))


# --- The wiring -----------------------------------------------------------------------------------------------


def _layers():
    """Layers of two sizes, each with x, a memory, and the masks of both attentions."""
    for B, Tt, Ts, C in ((2, 4, 4, 6), (1, 3, 2, 4)):
        rng = np.random.default_rng(C)
        x, memory = rng.standard_normal((B, Tt, C)), rng.standard_normal((B, Ts, C))
        memory_mask = np.ones((B, 1, 1, Ts), dtype=bool)
        memory_mask[0, ..., -1] = False
        mask = np.tri(Tt, k=1, dtype=bool)  # not the causal mask, which an answer might make itself
        mask[-1, 1] = False
        yield Parts(rng, C), x, memory, {"self_attention": mask, "cross_attention": memory_mask}


@exercise(answer=solutions.encoder_layer)
def encoder_layer(attempt: Attempt) -> None:
    for layer, _, x, masks in _layers():
        mask = masks["cross_attention"]
        result = attempt(layer, x, mask)
        cross = any(call.part.startswith("cross") for call in layer.calls)
        require(not cross, "a layer of the encoder has no cross-attention: there is no memory yet")
        check_layer(layer, result, x, ("self_attention", "feed_forward"), {"self_attention": mask})


@exercise(answer=solutions.decoder_layer)
def decoder_layer(attempt: Attempt) -> None:
    for layer, x, memory, masks in _layers():
        result = attempt(layer, x, memory, masks["self_attention"], masks["cross_attention"])
        check_layer(layer, result, x, SUBLAYERS, masks, memory)


@exercise(answer=solutions.transformer)
def transformer(attempt: Attempt) -> None:
    for sizes, layers in (((2, 5, 4, 6, 11, 0), (3, 2)), ((3, 3, 7, 4, 8, 2), (2, 3))):
        noted, fresh = whole(*sizes, layers), whole(*sizes, layers)
        table, positions = noted.model.table.copy(), noted.model.positions.copy()
        stacks = {"encoder": list(noted.model.encoder), "decoder": list(noted.model.decoder)}
        result = attempt(noted.model, noted.source, noted.target)
        for name, before in (("table", table), ("positions", positions)):
            after = getattr(noted.model, name)
            require(np.array_equal(before, after), f"it writes into model.{name}: the next sentence needs it as it was")
        for name, layers_before in stacks.items():
            require(
                getattr(noted.model, name) == layers_before,
                f"it changes the list model.{name}: the next sentence needs it as it was",
            )
        check_model(noted, result)
        words = noted.target != noted.model.pad  # the logits of padding are not in the loss
        expected = solutions.transformer(fresh.model, fresh.source, fresh.target)[words]
        require(
            np.allclose(result[words], expected),
            "the layers get what they must, and give something else than `encoder_layer` and `decoder_layer` of "
            "exercise 1: is a layer wired anew here?",
        )
    lone = whole(1, 4, 1, 6, 11, 0, (1, 1))
    with in_case("for one sentence and a target of one token,"):
        expected = solutions.transformer(lone.model, lone.source, lone.target)
        require_close("what it returns", require_array(attempt(lone.model, lone.source, lone.target)), expected)


# --- The way back ---------------------------------------------------------------------------------------------


@exercise(answer=solutions.cross_backward)
def cross_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4))
    weights = dict(zip("query key value".split(), rng.standard_normal((3, 4, 4)), strict=True))

    def forward(x, memory, weights=weights):
        query, key, value = weights.values()
        out, cache = ops.attention_forward((x @ query)[:, None], (memory @ key)[:, None], (memory @ value)[:, None])
        return out[:, 0], (query, key, value, cache)

    dout = rng.standard_normal((2, 3, 4))
    dx, dmemory = require_arrays(attempt(dout, forward(x, memory)[1]), "dx", "dmemory")
    require((dx.shape, dmemory.shape) != (memory.shape, x.shape), "dx and dmemory are exchanged: dx is the first")
    for name, gradient, of in (("dx", dx, x), ("dmemory", dmemory, memory)):
        require(
            gradient.shape == of.shape,
            f"{name} has shape {gradient.shape} and must have {of.shape}: has the axis of the one head gone, and do "
            "queries belong to x, keys and values to the memory?",
        )
    with in_case("for one sentence of one token,"):
        one = require_arrays(attempt(dout[:1, :1], forward(x[:1, :1], memory[:1])[1]), "dx", "dmemory")
        require(
            one[0].shape == (1, 1, 4),
            f"dx has shape {one[0].shape} and must have (1, 1, 4): only the axis of the one head goes",
        )
    for changed, way, back in (
        ("key", "values", ", dvalue @ weight_valueᵀ"),
        ("value", "keys", ", dkey @ weight_keyᵀ"),
    ):
        _, cache = forward(x, memory)
        silent = [0 * w if name == changed else w for name, w in weights.items()]
        alone = require_arrays(attempt(dout, (*silent, cache[-1])), "dx", "dmemory")[1]
        require(alone.any(), f"with weight_{changed} = 0 dmemory is 0: the way through the {way} is missing{back}")
    for special, changed, hint in (
        (
            "weights that are their own transposes",
            {n: w + w.T for n, w in weights.items()},
            "back through y = x @ W goes dy @ Wᵀ",
        ),
        ("weight_key = weight_value", weights | {"key": weights["value"]}, "are keys and values exchanged?"),
        (
            "three equal weights",
            dict.fromkeys(weights, weights["query"]),
            "queries, keys and values each go back by the weight that they were made with",
        ),
        (
            "weights that are the identity",
            dict.fromkeys(weights, np.eye(4)),
            "what attention_backward gives are the gradients of queries, keys and values, not yet of x and memory",
        ),
    ):
        if _right(attempt, forward, x, memory, changed) and not _right(attempt, forward, x, memory, weights):
            require(False, f"it is right for {special}, and not for others: {hint}")
    require(
        not np.allclose(dx - dout, solutions.cross_backward(dout, forward(x, memory)[1])[0]),
        "dx has dout added: the residual connection is around cross_forward, and not in it",
    )
    query, key, value, attention_cache = forward(x, memory)[1]
    parts = (part[:, 0] for part in ops.attention_backward(dout[:, None], attention_cache))
    dquery, dkey, dvalue = parts
    to_keys, to_values = dkey @ key.T, dvalue @ value.T
    mistakes = {
        "has the values' part with a minus: the memory was used twice, and gradients add": to_keys - to_values,
        "has the keys' part with a minus: the memory was used twice, and gradients add": to_values - to_keys,
    }
    require_none_of("dmemory", dmemory, to_keys + to_values, mistakes)
    require_none_of(
        "dx",
        dx,
        dquery @ query.T,
        {"goes back through weight_key: queries were made by weight_query": (dquery @ key.T)},
    )
    require_gradients(forward, attempt, {"x": x, "memory": memory})


def _right(attempt, forward, x, memory, weights) -> bool:
    """Return True if the attempt is right for these weights."""
    out, cache = forward(x, memory, weights)
    pairs = zip(attempt(out, cache), solutions.cross_backward(out, cache), strict=True)
    return all(np.allclose(mine, right) for mine, right in pairs)


class _Layer:
    """A layer x (2,) → gain · x + weight · memory[:2], for a memory (3,); its cache is its number.

    `received` holds the caches that its backward was called with.
    """

    def __init__(self, number: int, gain: float, weight: float) -> None:
        self.number, self.gain, self.weight = number, gain, weight
        self.received: list[int] = []

    def backward(self, dx, cache):
        self.received.append(cache)
        return self.gain * dx, self.weight * np.resize(dx, 3)


@exercise(answer=solutions.decoder_backward)
def decoder_backward(attempt: Attempt) -> None:
    three = [_Layer(0, 2.0, 100.0), _Layer(1, 3.0, 10.0), _Layer(2, 5.0, 1.0)]
    layers, caches = list(three), [0, 1, 2]
    before = np.array([1.0, -1.0])
    dx, dmemory = require_arrays(attempt(before, layers, caches), "dx", "dmemory")
    require(layers == three, "it changes the list of layers, which is the model's own: the next forward needs it")
    for layer in three:
        require(layer.received, f"the backward of layer {layer.number} was never called")
        require(
            layer.received[0] == layer.number,
            f"layer {layer.number} got the cache of layer {layer.received[0]}: each layer needs its own",
        )
        require(
            len(layer.received) == 1,
            f"the backward of layer {layer.number} was called {len(layer.received)} times: each call adds to the "
            "gradients of the layer's weights, so call it once and keep both of what it returns",
        )
    require(
        dx.shape == before.shape,
        f"dx has shape {dx.shape} and must have its input's, {before.shape}: of what a layer's backward returns, the "
        "first is dx and the second dmemory",
    )
    require_close(
        "dx",
        dx,
        30 * before,
        factors={
            "what the last layer alone gives": 5 / 30,
            "1 / 30: dx is not handed on from layer to layer": 1 / 30,
            "dx added again at each layer: its backward has done that already": 3 * 4 * 6 / 30,
            "dx with the gradient from above added once more: a layer's backward has done that already": 31 / 30,
            "1 / 3: nothing is averaged, each layer's backward hands on its dx as it is": 1 / 3,
        },
    )
    sent = np.resize(before, 3)  # the memory is longer than the target
    scale = float(dmemory.ravel()[0]) if dmemory.size else 0.0
    require(
        dmemory.shape == sent.shape,
        f"dmemory has shape {dmemory.shape} and must have the memory's, {sent.shape}: it is one sum over the layers",
    )
    names = {1.0: "last", 50.0: "middle", 1500.0: "first"}
    require(
        scale not in names,
        f"dmemory is what the {names.get(scale)} layer alone sends: all layers looked at the memory: parts add",
    )
    require(
        not np.allclose(dmemory, 111 * sent),
        "the layers' parts of dmemory are computed from the same dx: each layer's backward must get the dx of the one "
        "above it",
    )
    require(
        not np.allclose(dmemory, (100 + 20 + 6) * sent),
        "the layers are gone through from the first to the last: a backward begins with the last",
    )
    require_close("dmemory", dmemory, (1 + 5 * 10 + 15 * 100) * sent, factors={"1 / 3: a mean, not a sum": 1 / 3})
    with in_case("for two layers,"):
        dx, dmemory = require_arrays(attempt(before, three[:2], [0, 1]), "dx", "dmemory")
        require_close("dx", dx, 6 * before)
        require_close("dmemory", dmemory, (10 + 3 * 100) * sent)


@exercise(answer=_count_parameters)
def count_parameters(attempt: Attempt) -> None:
    V, C, F, N = 1000, 16, 40, 3

    def count(V, C, F, N):
        value = attempt(V, C, F, N)
        require(
            isinstance(value, int | np.integer),
            f"it must return an int, not {type_name(value)}: no division is needed, and // keeps whole numbers whole",
        )
        return int(value)

    here = count(V, C, F, N)
    word = count(V + 1, C, F, N) - here
    require(
        word == C,
        f"one word more makes {word} numbers more, and must make C = {C}: one table serves source, target and output, "
        "and the output layer has no bias",
    )
    hidden = count(V, C, F + 1, N) - here
    require(
        hidden == 2 * N * (2 * C + 1),
        f"one hidden unit more makes {hidden} numbers more in {N} + {N} layers, and must make {2 * N * (2 * C + 1)}: "
        "in each feed-forward network a column, a bias and a row",
    )
    without = here - V * C
    require(
        without == N * (count(V, C, F, 1) - V * C),
        "apart from the table, N layers must have N times as many as one: is something counted once that every layer "
        "has, or the other way round?",
    )
    attentions = without // N - 2 * (2 * C * F + F + C)  # the attentions and norms of one encoder and one decoder layer
    right = 3 * 4 * (C * C + C) + 5 * 2 * C
    if attentions != right:
        off = attentions - right
        likely = {
            -4 * (C * C + C): "a decoder layer has two attentions, so a pair of layers has three",
            4 * (C * C + C): "an encoder layer has one attention, so a pair of layers has three",
            -2 * C: "a decoder layer has three norms, and each of the two feed-forward networks a second bias, (C,)",
            2 * C: "an encoder layer has two norms, and a feed-forward network one bias of F and one of C",
            -6 * C: "a layer has a norm for each sub-layer: two in the encoder, three in the decoder",
            -10 * C: "every sub-layer has a norm with a gamma and a beta",
            -5 * C: "a norm has a gamma and a beta",
            -10 * C + 10: "a norm's gamma and beta have C numbers each",
            -12 * C: "each of attention's four maps has a bias",
            -9 * C: "each of attention's four maps has a bias",
            -3 * C: "each of attention's four maps has a bias",
            -3 * (C * C + C): "attention has four maps: query, key, value and output",
            -4 * (C * C + C) - 2 * C: "a decoder layer has a second attention, to the memory, with a norm of its own",
        }
        hint = likely.get(off, "count maps (with biases), then norms")
        require(False, f"an encoder and a decoder layer together are off by {off:+,} for C = {C}: {hint}")
    for V, C, F, N in ((1000, 16, 40, 3), (50, 6, 10, 1), (37_000, 512, 2048, 6)):
        counted, right = count(V, C, F, N), _count_parameters(V, C, F, N)
        require(
            counted == right,
            f"for V = {V:,}, C = {C}, F = {F}, N = {N} you count {counted:,}, and there are {right:,}: does every "
            "weight depend on the sizes that were given?",
        )
