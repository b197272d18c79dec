"""Lesson 18: the last backwards, which put the others together."""

import math
from typing import Any

import numpy as np

from minitransformer.models import Transformer, TransformerConfig

from ..checks import in_case, require, require_array, require_arrays, require_close, require_none_of, type_name
from ..exercise import Attempt, exercise
from ..lesson_04.solutions import attention_backward
from ..lesson_05.solutions import merge_heads
from . import solutions
from .model import MyTransformer


def _random_weights(heads: int, seed: int, vocab_size: int = 11) -> dict[str, np.ndarray]:
    config = TransformerConfig(vocab_size, d_model=4 * heads, num_heads=heads, d_ff=10, num_layers=2, dropout=0.0)
    model = Transformer(config, dtype="float64", seed=seed)
    rng = np.random.default_rng(seed)
    return {name: weight + 0.1 * rng.standard_normal(weight.shape) for name, weight in _state(model).items()}


def _state(model: Transformer) -> dict[str, np.ndarray]:
    return {name: np.array(weight) for name, weight in model.parameters.state_dict().items()}


# --- The heads ------------------------------------------------------------------------------------------------


@exercise(answer=solutions.multi_head_backward)
def multi_head_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    names = "dquery", "dkey", "dvalue"
    for B, H, Tq, Tk, D in ((2, 3, 4, 5, 2), (1, 2, 3, 3, 6)):
        layers = MyTransformer({}, H)
        query, key, value = rng.standard_normal((B, Tq, H * D)), *rng.standard_normal((2, B, Tk, H * D))
        mask = rng.random((B, 1, Tq, Tk)) < 0.8
        mask[..., 0] = True
        _, cache = layers.multi_head(query, key, value, mask)
        dout = rng.standard_normal((B, Tq, H * D))
        found = require_arrays(attempt(dout, cache), *names)
        expected = solutions.multi_head_backward(dout, cache)
        reshaped = dict(zip(names, attention_backward(dout.reshape(B, H, Tq, D), *cache), strict=True))
        for name, gradient, right in zip(names, found, expected, strict=True):
            require(
                gradient.ndim == 3,
                f"{name} has shape {gradient.shape} and must have {right.shape}: the heads stand side by side again, "
                "as in what the forward was given",
            )
            same = gradient.shape == right.shape
            for other, theirs in zip(names, expected, strict=True):
                require(
                    other == name or not same or theirs.shape != right.shape or not np.allclose(gradient, theirs),
                    f"{name} is what {other} must be: the cache is query, key, value, weights, the order dquery, dkey, "
                    "dvalue",
                )
            mistaken = solutions.multi_head_backward(dout, (cache[0], cache[2], cache[1], cache[3]))
            by_name = dict(zip(("dquery", "dvalue", "dkey"), mistaken, strict=True))
            mistakes = {
                "has keys and values exchanged: the cache is query, key, value, weights": by_name[name],
                "comes from a plain reshape of dout: `split_heads` also swaps positions and heads": (
                    merge_heads(reshaped[name])
                ),
                "comes from plain reshapes, there and back: positions and heads are to be swapped (lesson 05)": (
                    reshaped[name].reshape(right.shape)
                ),
            }
            require_none_of(name, gradient, right, mistakes)
            if same and not np.allclose(gradient, right):
                by_reshape = np.sort(gradient.ravel()), np.sort(right.ravel())
                require(
                    not np.allclose(*by_reshape),
                    f"{name} has the right numbers in the wrong places: positions and heads change places before the "
                    "heads are put side by side (lesson 05)",
                )
            require_close(name, gradient, right)


# --- A layer of the decoder -----------------------------------------------------------------------------------

PARTS = ("self-attention", "its norm", "cross-attention", "its norm", "the feed-forward network", "the last norm")
KINDS = ("self_attention", "add_norm", "cross_attention", "add_norm", "feed_forward", "add_norm")
NORM, AROUND, SUBLAYER = (0.2, 0.3, 0.5), (0.7, 1.1, 1.3), (1.7, 1.9, 2.3)  # gains, by place in the layer
MEMORY = 2, 5, 4  # the shape of dmemory


class _Two(tuple[np.ndarray, np.ndarray]):
    """Two gradients, which raise `TypeError` if they are added as if they were one."""

    __array_ufunc__ = None  # otherwise NumPy would try to make one array of the two

    def __add__(self, _: Any) -> Any:
        raise TypeError("two gradients, as add_norm_backward and cross_attention_backward return, are added as if one")

    __radd__ = __add__


class _Layers:
    """Layers like those of lesson 18, with one gain for each part; its caches are the numbers of the parts, 0 to 5."""

    def __init__(self) -> None:
        self.called: list[int] = []

    def _called(self, kind: str, cache: Any) -> int:
        if not isinstance(cache, int):
            raise ValueError(f"{kind}_backward was given something that is no part of the layer's cache")
        if KINDS[cache] != kind:
            raise ValueError(f"{kind}_backward was given the cache of {PARTS[cache]}: they are in the forward's order")
        self.called.append(cache)
        return cache // 2

    def add_norm_backward(self, dy, cache):
        place = self._called("add_norm", cache)
        return _Two((NORM[place] * dy, AROUND[place] * dy))

    def self_attention_backward(self, dout, cache):
        return SUBLAYER[self._called("self_attention", cache)] * dout

    def cross_attention_backward(self, dout, cache):
        return _Two((SUBLAYER[self._called("cross_attention", cache)] * dout, 10.0 * np.resize(dout, MEMORY)))

    def feed_forward_backward(self, dout, cache):
        return SUBLAYER[self._called("feed_forward", cache)] * dout


@exercise(answer=solutions.decoder_layer_backward)
def decoder_layer_backward(attempt: Attempt) -> None:
    layers, before = _Layers(), np.random.default_rng(0).standard_normal((2, 3, 4))  # numbers that float32 would round
    dx, dmemory = require_arrays(attempt(layers, before, (0, 1, 2, 3, 4, 5)), "dx", "dmemory")
    for part, name in enumerate(PARTS):
        name = f"{name} (number {part + 1} of the cache)"
        times = layers.called.count(part)
        require(times, f"the backward of {name} is never called")
        require(times == 1, f"the backward of {name} is called {times} times, and each call adds to gradients")
    require(
        layers.called == [5, 4, 3, 2, 1, 0],
        f"the parts are taken in the order {', '.join(str(part + 1) for part in layers.called)} of the cache: a "
        "backward goes through the forward from its end",
    )
    require(dx.shape == before.shape, f"dx has shape {dx.shape}: of the tuple, dx is the first and dmemory the second")
    through: list[float] = [
        norm + around * sublayer for norm, around, sublayer in zip(NORM, AROUND, SUBLAYER, strict=True)
    ]
    right, past, only = math.prod(through), math.prod(NORM), math.prod(AROUND) * math.prod(SUBLAYER)
    factors = {
        "what passes by the sub-layers: what comes back through them is to be added": past / right,
        "what comes through the sub-layers: what passes by them is to be added": only / right,
        "what there is without self-attention's": NORM[0] * through[1] * through[2] / right,
        "what there is without cross-attention's": through[0] * NORM[1] * through[2] / right,
        "what there is without the feed-forward network's": through[0] * through[1] * NORM[2] / right,
        "what there is if cross-attention's and self-attention's dx are not added to what passes by": (
            AROUND[0] * SUBLAYER[0] * AROUND[1] * SUBLAYER[1] * through[2] / right
        ),
        "what there is if a sub-layer is given the gradient that passes by, not the one that is its own": (
            math.prod(norm * (1 + sublayer) for norm, sublayer in zip(NORM, SUBLAYER, strict=True)) / right
        ),
        "what there is if the gradient that goes into Add & Norm is added, not the one that comes out for x": (
            math.prod(1 + around * sublayer for around, sublayer in zip(AROUND, SUBLAYER, strict=True)) / right
        ),
    }
    for place, name in enumerate(("self-attention", "cross-attention", "the feed-forward network")):
        mine = through[place]
        for gain, words in (
            (NORM[place] * (1 + SUBLAYER[place]), "is given the gradient that passes by"),
            (AROUND[place] * SUBLAYER[place], "sends back a gradient to which what passes by is not added"),
            (mine + AROUND[place], "has its own gradient, dout, added beside what it sends back"),
            (NORM[place] - AROUND[place] * SUBLAYER[place], "sends back a gradient that is subtracted, not added"),
        ):
            factors[f"what there is if {name} {words}"] = gain / mine
    require_close("dx", dx, right * before, factors=factors)
    require_close(
        "dmemory",
        dmemory,
        10.0 * AROUND[1] * through[2] * np.resize(before, MEMORY),
        factors={
            "the gradient that passes by, not the sub-layer's own": NORM[1] / AROUND[1],
            "2: it is returned as cross-attention gives it": 2.0,
        },
    )


# --- The whole model ------------------------------------------------------------------------------------------


@exercise(answer=solutions.model_gradients)
def model_gradients(attempt: Attempt) -> None:
    _judge_gradients(attempt, 11, 2, 0.1)
    with in_case("with another vocabulary, another width and label_smoothing = 0.3,"):
        _judge_gradients(attempt, 13, 3, 0.3)


def _judge_gradients(attempt: Attempt, V: int, heads: int, label_smoothing: float) -> None:
    rng = np.random.default_rng(1)
    source, target = rng.integers(1, V, (3, 5)), rng.integers(1, V, (3, 6))
    source[0, 3:], target[1, 4:], target[2, 5] = 0, 0, 2  # padding, and an end
    target_in, target_out = target[:, :-1], target[:, 1:]
    weights = _random_weights(heads, 1, V)
    mine, right = MyTransformer(weights, heads), MyTransformer(weights, heads)
    for gradient in mine.gradients.values():
        gradient[...] = 1.0
    for gradient in right.gradients.values():
        gradient[...] = 1.0
    smoothing = [label_smoothing] if label_smoothing != 0.1 else []  # 0.1 is the default
    loss = attempt(mine, source, target_in, target_out, *smoothing)
    expected = solutions.model_gradients(right, source, target_in, target_out, label_smoothing)
    require(np.ndim(loss) == 0, f"it must return the loss, one number, not one {type_name(loss)}")
    if not np.isclose(float(loss), float(expected)):
        everything = _loss_with_padding(right, source, target_in, target_out, label_smoothing)
        require(
            not np.isclose(float(loss), everything),
            "the loss counts the padding of the target: only rows where target_out is not 0 are scored",
        )
        unsmoothed = solutions.model_gradients(MyTransformer(weights, heads), source, target_in, target_out, 0.0)
        require(not np.isclose(float(loss), float(unsmoothed)), "the loss is not smoothed: hand label_smoothing on")
        told = solutions.model_gradients(MyTransformer(weights, heads), source, target_out, target_out, label_smoothing)
        require(
            not np.isclose(float(loss), float(told)),
            "the decoder reads target_out: that is the answer, and it reads target_in",
        )
    words = int((target_out != 0).sum())
    require_close(
        "the loss",
        np.asarray(float(loss)),
        np.asarray(float(expected)),
        factors={"the number of words: the loss is their mean": words, "1 / words: it is a mean already": 1 / words},
    )
    table = mine.gradients["tokens.table"]
    require(
        not np.allclose(table, 1.0), "the gradient of the table, model.gradients['tokens.table'], has not been added to"
    )
    require(
        not np.allclose(table + 1.0, right.gradients["tokens.table"]),
        "the gradient of the table replaces what was there: a gradient is added, with +=",
    )
    for name, gradient in mine.gradients.items():
        if name != "tokens.table":
            with in_case("below the output layer,"):
                hint = f"the gradient of {name} stays 0: "
                where_lost = "dmemory goes back through the encoder" if name.startswith("encoder") else "the decoder"
                require(not np.allclose(gradient, 1.0), hint + where_lost)
                require_close(f"the gradient of {name}", gradient, right.gradients[name])
    uses, mistaken = _uses(right, source, target_in, target_out, label_smoothing)
    _judge_table(table, right, uses, mistaken, words)


def _judge_table(
    found: np.ndarray,
    right: MyTransformer,
    uses: dict[str, np.ndarray],
    mistaken: dict[str, np.ndarray],
    words: int,
) -> None:
    """Raise `Wrong` if one of the table's three uses is missing in its gradient, or scaled wrongly.

    `mistaken` has what likely mistakes are off by; `words` are scored.
    """
    everything = 1.0 + sum(uses.values())
    for name, use in uses.items():
        require(
            not np.allclose(found, everything - use),
            f"the gradient of the table lacks one of its three uses: {name}",
        )
        require(not np.allclose(found, everything + use), f"the gradient of the table counts {name} twice")
    scale = right.weights["tokens.table"].shape[1] ** 0.5
    looked_up = sum(use for name, use in uses.items() if name != "the output layer")
    require(
        not np.allclose(found, everything - looked_up + looked_up / scale),
        "the gradient of the table lacks a factor √C: `embed` multiplies by it, and so does its backward",
    )
    output = uses["the output layer"]
    mistakes = {
        "has C where √C belongs: `embed` multiplies by the root": everything - looked_up + scale * looked_up,
        "has the output layer's part times √C, which belongs to the look-ups": everything - output + scale * output,
        "has the output layer's part as a mean once more: dlogits has been divided by N": (
            everything - output + output / words
        ),
        **{f"has {name} subtracted: its uses add": everything - 2 * use for name, use in uses.items()},
        **{mistake: everything + off for mistake, off in mistaken.items()},
    }
    require_none_of("the gradient of the table", found, everything, mistakes)
    require_close("the gradient of the table", require_array(found), everything)


def _uses(
    model: MyTransformer, source, target_in, target_out, label_smoothing
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the part of the table's gradient that each of its uses adds, and what mistakes in them are off by."""
    from ..lesson_02.solutions import embedding_backward

    memory, encoder_cache = model.encode(source)
    hidden, decoder_cache = model.decode(target_in, memory, source)
    table, real = model.weights["tokens.table"], target_out != 0
    _, dlogits = solutions.cross_entropy(hidden[real] @ table.T, target_out[real], label_smoothing)
    dhidden = np.zeros_like(hidden)
    dhidden[real] = dlogits @ table
    dtarget, dmemory = model.decode_backward(dhidden, decoder_cache)
    dsource, scale = model.encode_backward(dmemory, encoder_cache), table.shape[1] ** 0.5
    uses = {
        "the output layer": dlogits.T @ hidden[real],
        "the target's embeddings": scale * embedding_backward(dtarget, target_in, len(table)),
        "the source's embeddings": scale * embedding_backward(dsource, source, len(table)),
    }
    return uses, {
        "puts what the decoder sends back into the rows of target_out: it has looked up target_in": (
            scale * embedding_backward(dtarget, target_out, len(table)) - uses["the target's embeddings"]
        ),
        "has dhidden in the output layer's part, dlogitsᵀ @ hidden: the table was multiplied with hidden, not "
        "with its gradient": dlogits.T @ dhidden[real] - uses["the output layer"],
    }


def _loss_with_padding(model: MyTransformer, source, target_in, target_out, label_smoothing) -> float:
    logits = model.logits(source, target_in)
    return float(
        solutions.cross_entropy(logits.reshape(-1, logits.shape[-1]), target_out.reshape(-1), label_smoothing)[0]
    )
