"""Lesson 08: a model that records the calls of its parts, and the checks of every arrow between them."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from minitransformer import ops

from ..checks import require, require_array, require_close
from ..exercise import Wrong

SUBLAYERS = ("self_attention", "cross_attention", "feed_forward")
HEADS = 2


class Call(NamedTuple):
    """A call of a part of layer `number`: its arguments and its result."""

    part: str
    x: np.ndarray
    memory: np.ndarray
    mask: Any
    out: np.ndarray
    number: int


class Parts:
    """A layer with the parts of the lesson's `Layer`, of width C, that records their calls in `calls`.

    Attention is a mean over the places that the mask allows, the same for every head.
    """

    def __init__(self, rng: np.random.Generator, width: int, calls: list[Call] | None = None, number: int = 0) -> None:
        self.number = number
        self.calls = list[Call]() if calls is None else calls
        self.weights = {name: rng.standard_normal((width, width)) for name in (*SUBLAYERS, "query")}
        self.norms = {name: rng.standard_normal((2, width)) for name in SUBLAYERS}

    def self_attention(self, x, mask):
        out = _mean(np.sin(x @ self.weights["self_attention"]), x, mask)
        return self._note("self_attention", x, out, mask=mask)

    def cross_attention(self, x, memory, mask):
        out = _mean(np.sin(memory @ self.weights["cross_attention"]), x, mask) + np.cos(x @ self.weights["query"])
        return self._note("cross_attention", x, out, memory, mask)

    def feed_forward(self, x):
        return self._note("feed_forward", x, np.sin(x @ self.weights["feed_forward"]))

    def self_attention_norm(self, x):
        return self._norm("self_attention", x)

    def cross_attention_norm(self, x):
        return self._norm("cross_attention", x)

    def feed_forward_norm(self, x):
        return self._norm("feed_forward", x)

    def _norm(self, name: str, x):
        gamma, beta = self.norms[name]
        return self._note(f"{name}_norm", x, ops.layernorm_forward(x, gamma, beta)[0])

    def _note(self, part: str, x, out: np.ndarray, memory=(), mask=None) -> np.ndarray:
        mask = None if mask is None else np.array(mask)
        self.calls.append(Call(part, np.array(x), np.array(memory), mask, out, self.number))
        return out.copy()


def _mean(values: np.ndarray, x: np.ndarray, mask) -> np.ndarray:
    """Return the mean of values (B, Tk, C) over the keys that the mask allows each position of x (B, Tq, C).

    Without a mask that fits it is the mean over all keys.
    """
    sizes = len(x), x.shape[1], values.shape[1]
    allowed = _allowed(mask, *sizes)
    shares = np.ones(sizes) if allowed is None else allowed[:, 0].astype(float)
    return shares / np.maximum(shares.sum(axis=-1, keepdims=True), 1) @ values


def _allowed(mask, B: int, Tq: int, Tk: int) -> np.ndarray | None:
    """Return the mask, broadcast to (B, H, Tq, Tk), or None if there is none or it does not broadcast."""
    if mask is None:
        return None
    try:
        return np.broadcast_to(np.asarray(mask).astype(bool), (B, HEADS, Tq, Tk))
    except ValueError:
        return None


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return True if two arrays have the same shape and numbers, up to rounding."""
    return a.shape == b.shape and np.allclose(a, b)


# --- One layer ------------------------------------------------------------------------------------------------


def check_layer(
    layer: Parts,
    result,
    x: np.ndarray,
    sublayers: Sequence[str],
    masks: Mapping[str, np.ndarray],
    memory: np.ndarray | None = None,
) -> None:
    """Check every arrow of a layer, from its input x to its result; `masks` by the names of the attentions."""
    result = require_array(result)
    require(result.shape == x.shape, f"it returns shape {result.shape} and must return x's, {x.shape}")
    calls = {call.part: call for call in layer.calls}
    for part in [part for name in sublayers for part in (name, f"{name}_norm")]:
        count = sum(call.part == part for call in layer.calls)
        require(count, f"{part} is never called: figure 1 has it")
        require(count == 1, f"{part} is called {count} times, and a layer has it once")
    known = {"the layer's input": x} | ({} if memory is None else {"the memory": memory})
    known |= {f"what {part} gives": call.out for part, call in calls.items()}
    known |= {
        f"the sum of {one} and {other}": known[one] + known[other]
        for place, one in enumerate(list(known))
        for other in list(known)[:place]
        if known[one].shape == known[other].shape
    }

    known |= {
        f"the difference of {one} and {other}": known[one] - known[other]
        for one in list(known)[:3]
        for other in list(known)[:3]
        if one != other and known[one].shape == known[other].shape
    }

    def must_be(what: str, found: np.ndarray, name: str, right: np.ndarray, why: str = "") -> None:
        if not same(found, right):
            likely = next((words for words, each in known.items() if same(found, each)), "something else")
            raise Wrong(f"{what} must be {name}, and is {likely}{why}")

    current, name = x, "the layer's input"
    following = [*(calls[sublayer].x for sublayer in sublayers[1:]), result]
    for sublayer, after in zip(sublayers, following, strict=True):
        call, norm = calls[sublayer], calls[f"{sublayer}_norm"]
        if memory is not None and sublayer == "cross_attention":
            require(
                not same(call.x, memory),
                "cross_attention gets the memory where x belongs: the queries come from the decoder",
            )
            must_be("what cross_attention looks at", call.memory, "the memory", memory)
        before = same(call.x, norm.out)
        why = ": the paper's norm comes after the sum, and not before the sub-layer" if before else ""
        must_be(f"what {sublayer} gets", call.x, name, current, why)
        if sublayer in masks:
            _given(call.mask, sublayer, masks)
        outside = same(after, current + norm.out)
        where = "stands outside the norm, and belongs inside, LayerNorm(x + f(x))" if outside else "is missing"
        why = f": the residual connection {where}" if same(norm.x, call.out) else ""
        both = f"the sum of {name} and what {sublayer} gives"
        must_be(f"what {sublayer}_norm gets", norm.x, both, current + call.out, why)
        current, name = norm.out, f"what {sublayer}_norm gives"
    must_be("what it returns", result, name, current)


def _given(mask: Any, name: str, masks: Mapping[str, np.ndarray]) -> None:
    """Raise `Wrong` unless an attention got the mask that the layer was given for it."""
    require(mask is not None, f"{name} gets no mask")
    for other, wrong in masks.items():
        require(other == name or not np.array_equal(mask, wrong), f"{name} gets the mask that is meant for {other}")
    triangle = np.tri(masks[name].shape[-1], dtype=bool)
    require(
        not np.array_equal(np.squeeze(mask), triangle) and not np.array_equal(mask, triangle & masks[name]),
        f"{name} gets a triangle that is made in the layer: where to look is said by the mask that the layer was given",
    )
    require(np.array_equal(mask, masks[name]), f"{name} gets another mask than the one that the layer was given")


# --- The whole model ------------------------------------------------------------------------------------------


class Whole(NamedTuple):
    """A model, the calls of all layers of a stack in one list, and a source and a target."""

    model: SimpleNamespace
    encoder: list[Call]
    decoder: list[Call]
    source: np.ndarray
    target: np.ndarray


def whole(B: int, Ts: int, Tt: int, C: int, V: int, pad: int, layers: tuple[int, int]) -> Whole:
    """A model of these sizes, with `layers` in the encoder and the decoder.

    The last source is two tokens shorter, and so is the first target, if more than two are left.
    """
    rng = np.random.default_rng(Ts)
    encoder, decoder = list[Call](), list[Call]()
    model = SimpleNamespace(
        table=rng.standard_normal((V, C)),
        positions=rng.standard_normal((9, C)),
        pad=pad,
        encoder=[Parts(rng, C, encoder, number) for number in range(layers[0])],
        decoder=[Parts(rng, C, decoder, number) for number in range(layers[1])],
    )
    words = [word for word in range(V) if word != pad]
    source, target = rng.choice(words, (B, Ts)), rng.choice(words, (B, Tt))
    source[0, 0] = target[-1, -1] = pad == 0  # the id 0 is a word unless it is padding
    source[-1, -2:] = pad
    target[0, 2:][-2:] = pad
    return Whole(model, encoder, decoder, source, target)


def check_model(whole: Whole, result) -> None:
    """Check the way of the tokens through a whole model, from the embeddings to the logits."""
    model, source, target = whole.model, whole.source, whole.target
    Ts, Tt = source.shape[1], target.shape[1]
    real, causal = (source != model.pad)[:, None, None, :], np.tri(Tt, dtype=bool)
    tops = {}
    for stack, layers, calls, ids, others in (
        ("encoder", model.encoder, whole.encoder, source, target),
        ("decoder", model.decoder, whole.decoder, target, source),
    ):
        first = [call for call in calls if call.part == "self_attention"]
        last = [call.out for call in calls if call.part == "feed_forward_norm"]
        order = [call.number for call in first]
        require(first and last, f"no layer of model.{stack} runs")
        require(
            len(first) == len(layers),
            f"of the {len(layers)} layers of model.{stack} {len(first)} ran: go through all of its list, once each",
        )
        require(order != list(range(len(layers)))[::-1], f"the layers of model.{stack} run from the last to the first")
        require(order == list(range(len(layers))), f"the layers of model.{stack} run in the order {order}")
        _check_embedding(first[0].x, ids, others, model, stack)
        for number in range(1, len(layers)):
            require(
                same(first[number].x, last[number - 1]),
                f"layer {number} of the {stack} does not get what the one below it gives: is x handed on?",
            )
        for number, call in enumerate(first):
            place = f"self-attention in layer {number} of the {stack}"
            zero = (ids != 0)[:, None, None, :] & (causal if stack == "decoder" else np.True_)
            require(
                model.pad == 0 or not np.array_equal(call.mask, zero),
                f"{place} hides the id 0: padding is `model.pad`, which is {model.pad} here",
            )
            require(
                stack == "encoder" or not np.array_equal(call.mask, real),
                f"{place} has the mask of the source, which belongs to cross-attention: position t looks at 0 … t",
            )
            if stack == "encoder":
                _check_mask(call.mask, real, place, (*ids.shape, Ts))
            else:
                _check_target_mask(call.mask, causal, target != model.pad, place)
        tops[stack] = last
    require(
        not any(call.part == "cross_attention" for call in whole.encoder),
        "a layer of the encoder looks at a memory: `encoder_layer` has none",
    )
    cross = [call for call in whole.decoder if call.part == "cross_attention"]
    require(len(cross) == len(model.decoder), "a layer of the decoder looks at no memory: `decoder_layer` does")
    *below, memory = tops["encoder"]
    for number, call in enumerate(cross):
        place = f"cross-attention in layer {number} of the decoder"
        for words, other in (
            ("the embedded source: let it look at what the encoder gives", whole.encoder[0].x),
            *((f"what layer {n} of the encoder gives: the memory is what the last one gives", out)
              for n, out in enumerate(below)),
        ):  # fmt: skip
            require(not same(call.memory, other), f"{place} looks at {words}")
        require(same(call.memory, memory), f"{place} does not look at what the last layer of the encoder gives")
        same_sentence = np.tri(Tt, Ts, dtype=bool)
        _check_mask(call.mask, real, place, (*target.shape, Ts), same_sentence)
    _check_logits(require_array(result), tops["decoder"][-1], model.table)


def _check_embedding(x: np.ndarray, ids: np.ndarray, others: np.ndarray, model: SimpleNamespace, stack: str) -> None:
    """Raise `Wrong` unless the first layer of a stack gets √C · table[ids] + positions."""
    table, positions, T, C = model.table, model.positions, ids.shape[1], model.table.shape[1]
    words, places, root = table[ids], positions[:T], np.sqrt(C)
    for likely, other in (
        ("words without the factor √C: they are fainter than the positions", words + places),
        ("words and positions both times √C: the factor belongs to the words alone", root * (words + places)),
        ("words without their positions", root * words),
        ("words alone, without the factor √C and without positions", words),
        ("words divided by √C: multiply", words / root + places),
        ("words times C: multiply by its root", C * words + places),
        ("words with positions from row 1 on: the first token has row 0", root * words + positions[1 : T + 1]),
        ("words with positions looked up by their ids: a position is a place in the sentence",
         root * words + positions[ids % len(positions)]),
        ("words with positions that go on after the source: each sentence begins with row 0",
         root * words + np.resize(positions[others.shape[1] : others.shape[1] + T], places.shape)),
        ("words with positions from the last one to the first: the first token has row 0", root * words + places[::-1]),
        ("words times √V: C is the width, V the number of tokens", np.sqrt(len(table)) * words + places),
        ("words with padding set to 0: nobody looks at it, so it is looked up as any word",
         root * words * (ids != model.pad)[..., None] + places),
        (f"the {'target' if stack == 'encoder' else 'source'}", root * table[others] + positions[: others.shape[1]]),
    ):  # fmt: skip
        require(not same(x, other), f"what the {stack} begins with is {likely}")
    shape = (*ids.shape, C)
    require(x.shape == shape, f"what the {stack} begins with has shape {x.shape} and must have (B, T, C), {shape}")
    require_close(f"what the {stack} begins with", x, root * words + places)


def _check_mask(
    mask: Any,
    right: np.ndarray,
    place: str,
    sizes: tuple[int, int, int],
    causal: np.ndarray | None = None,
) -> None:
    """Raise `Wrong` unless the mask is `right`, in whatever shape; `causal` is the mask of another attention."""
    B, Tq, Tk = sizes
    rule = "padding of the source is hidden, and nothing else" if right.ndim == 4 else "position t looks at 0 … t"
    require(mask is not None, f"{place} has no mask: {rule}")
    found = _allowed(mask, B, Tq, Tk)
    if found is None:
        shape, keys = np.shape(mask), "source" if right.ndim == 4 else "target"
        why = "shared axes have length 1"
        if shape[-1] not in (1, Tk):
            why = (
                f"its last axis must be the {Tk} tokens of the {keys}. Is it the mask of another attention, or made "
                "from a variable of the notebook (`padded`?) and not from the arguments?"
            )
        raise Wrong(f"{place} has a mask of shape {shape}, which does not fit ({B}, H, {Tq}, {Tk}): {why}")
    right = np.broadcast_to(right, found.shape)
    require(not found.all() or right.all(), f"{place} may look everywhere: {rule}")
    require(not np.array_equal(found, ~right), f"{place} has a mask that says the opposite: True is where one may look")
    if Tq == Tk:
        for words, other in (
            ("is transposed", right.swapaxes(-1, -2)),
            ("hides the position from itself", right & ~np.eye(Tq, dtype=bool)),
        ):
            require(not np.array_equal(found, other), f"the mask of {place} {words}: {rule}")
    if causal is not None:
        require(
            not np.array_equal(found, np.broadcast_to(causal, found.shape)),
            f"{place} has the causal mask, which belongs to self-attention: {rule}",
        )
    _shows(found, right, place, rule)


def _check_target_mask(mask: Any, causal: np.ndarray, real: np.ndarray, place: str) -> None:
    """Do `_check_mask` for the decoder's self-attention, which may hide the target's padding (`real` is False)."""
    B, T = real.shape
    found = _allowed(mask, B, T, T)
    if found is not None:
        keys, rows = (causal & real[:, None, None, :], causal & real[:, None, :, None])
        if np.array_equal(found, np.broadcast_to(keys, found.shape)):
            return
        rule = "position t looks at 0 … t"
        for words, other in (
            ("hides padding of the target and not the future", real[:, None, None, :]),
            ("shows padding of the target and hides its words", causal & ~real[:, None, None, :]),
            ("shows padding of the target in the future too", causal | ~real[:, None, None, :]),
            ("lets padding of the target see nothing: padding is hidden as a key, not as a query", rows),
            ("lets padding of the target see nothing: padding is hidden as a key, not as a query", keys & rows),
        ):
            require(not np.array_equal(found, np.broadcast_to(other, found.shape)), f"{place} {words}: {rule}")
    _check_mask(mask, causal, place, (B, T, T))


def _shows(found: np.ndarray, right: np.ndarray, place: str, rule: str) -> None:
    """Raise `Wrong` unless the mask `found` is the `right` one."""
    what = [
        words
        for words, wrong in (
            ("shows what must be hidden", found & ~right),
            ("hides what may be looked at", right & ~found),
        )
        if wrong.any()
    ]
    require(not what, f"{place} has a mask that {' and '.join(what)}: {rule}")


def _check_logits(logits: np.ndarray, hidden: np.ndarray, table: np.ndarray) -> None:
    right, (V, C) = hidden @ table.T, table.shape
    require(
        logits.shape not in (right[:, -1].shape, right[:, -1:].shape) or logits.shape == right.shape,
        "it returns the logits of one position: each position of the target is asked, all at once",
    )
    require(
        logits.shape == right.shape,
        f"the logits have shape {logits.shape} and must have (B, Tt, V), {right.shape}: the output layer is the table, "
        "transposed",
    )
    probabilities = np.exp(right - right.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    for words, other in (("probabilities", probabilities), ("log-probabilities", np.log(probabilities))):
        require(not same(logits, other), f"it returns {words}: the softmax belongs to the loss, return the logits")
    require_close(
        f"the last layer is right, and the logits over {V} tokens are not: what is returned",
        logits,
        right,
        factors={"√C: that belongs to the look-up": np.sqrt(C), "1 / √C: nothing is divided here": 1 / np.sqrt(C)},
    )
