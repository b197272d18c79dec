"""Models seen from inside: one run that keeps what each layer reads and adds, its attention and its neurons."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..layers import Block, CrossAttention, LinearSelfAttention, SelfAttention, Stack
from ..ops import Array
from ..probe import Call, probe


@dataclass(frozen=True)
class Stream:
    """The residual stream of a stack of L blocks in one run, in host memory.

    states         `(L + 1, B, T, C)`: the stream after the embedding, then after each block; the final norm comes later
    contributions  `(L, B, T, C)` each: what "self_attention", "cross_attention" (in a decoder with a memory) and
                   "feed_forward" (where there is one) of each block add to the stream, before dropout
    neurons        `(L, B, T, F)`: the hidden activations of each feed-forward network, which its second map reads
    heads          `(L, B, T, H, Dv)` each: what the heads of "self_attention" and "cross_attention" give, which the
                   layer's `output`, W^O, reads

    In a pre-norm stack `states[0]` and all contributions add up to `states[-1]`. In a post-norm stack they do not: each
    sum is normalised on its way, `states[n + 1] = norm(norm(states[n] + attention) + feed_forward)`.
    """

    states: np.ndarray
    contributions: dict[str, np.ndarray]
    neurons: np.ndarray
    heads: dict[str, np.ndarray]


@dataclass(frozen=True)
class Recording:
    """What a model did in one run: `record` makes it.

    logits   what `model.forward` returned
    streams  by the name of their stack, "encoder" and "decoder"; the last is the one that the logits are read from
    """

    logits: np.ndarray
    streams: dict[str, Stream]
    _maps: dict[str, Callable[[], np.ndarray]] = field(repr=False)
    _read_out: Callable[[np.ndarray], np.ndarray] = field(repr=False)

    def maps(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield each attention layer's name and weights `(B, H, Tq, Tk)`, in the order of computation.

        The weights of one layer at a time are computed again from its queries and keys. Linear attention has none.
        """
        return ((name, weights()) for name, weights in self._maps.items())

    def stream(self, stack: str | None = None) -> Stream:
        """Return the stream of a stack; without its name of the one that the logits are read from."""
        return self.streams[stack] if stack else [*self.streams.values()][-1]

    def lens(self) -> Iterator[np.ndarray]:
        """Yield the logits of the model cut off after 0, 1, … layers, with its final norm, as `logits` has them.

        Only the output layer runs again, once for each state, when its logits are asked for: those of one layer are in
        memory at a time.
        """
        yield from map(self._read_out, self.stream().states[:-1])
        yield self.logits


def record(model: Any, *inputs: Any, **options: Any) -> Recording:
    """Run a model once, and return what happened in it.

    inputs and options are those of `model.forward`. Works for every model with a stack of blocks and every backend; no
    cache for a backward outlives its layer. Raises `ValueError` for a model without one.
    """
    weights: list[Callable[[], np.ndarray]] = []

    def note(call: Call) -> None:
        if call.op == "attention" and call.way == "forward":
            query, key, _, bias = call.arguments
            kept = {name: value for name, value in call.options.items() if name != "dropout"}
            again = partial(model.ops.attention_weights, query, key, bias, **kept)
            weights.append(lambda: model.ops.to_numpy(again()))

    seen = model.replica(probe(model.ops, note))
    encoder, decoder = (getattr(seen, side, None) for side in ("encoder", "decoder"))
    stacks = {"encoder": encoder, "decoder": decoder}
    finish = {side: _watched(stack) for side, stack in stacks.items() if isinstance(stack, Stack)}
    stack: Any = stack_of(seen)
    memory: list[Array] = []
    if encoder and decoder:
        _watch([encoder], lambda _, out: memory.append(out))
    logits = model.ops.to_numpy(seen.forward(*inputs, **options)[0])

    def read_out(state: np.ndarray) -> np.ndarray:
        _give_output(stack.embedding, model.ops.activations(model.ops.asarray(state)))
        return model.ops.to_numpy(seen.forward(*inputs, **options)[0])

    stack.layers = []
    if memory:
        _give_output(encoder, memory[0])
    softmax = (each for each in model.named_layers() if not isinstance(each[1], LinearSelfAttention))
    names = [name for name, layer in softmax if isinstance(layer, SelfAttention | CrossAttention)]
    streams = {side: stream() for side, stream in finish.items()}
    return Recording(logits, streams, dict(zip(names, weights, strict=True)), read_out)


def attention_maps(model: Any, *inputs: Any, **options: Any) -> dict[str, np.ndarray]:
    """Return every layer's attention weights `(B, H, Tq, Tk)`, by the layer's name, in the order of computation.

    inputs and options are those of `model.forward`. Raises `ValueError` for a model without softmax attention, and as
    `record` does.
    """
    maps = dict(record(model, *inputs, **options).maps())
    if not maps:
        raise ValueError(f"a {model.config.kind} model has no attention maps: it has no softmax attention")
    return maps


def logit_lens(model: Any, *inputs: Any, **options: Any) -> np.ndarray:
    """Return the output layer's logits after each layer, `(layers + 1, B, T, V)`, or without `T` for a classifier.

    Entry n is the model cut off after n layers, with its final norm; the last entry is the model's own logits. For an
    encoder–decoder the decoder is cut. inputs and options are those of `model.forward`. Each layer runs once, the
    output layer layers + 1 times: `Recording.lens` yields the entries one by one. Raises as `record` does. Source:
    nostalgebraist 2020, "interpreting GPT".
    """
    return np.stack(list(record(model, *inputs, **options).lens()))


def stack_of(model: Any, name: str | None = None) -> Stack:
    """Return a stack of blocks by its name, or the one that the logits are read from. Raises ValueError without one."""
    stack = getattr(model, name or ("decoder" if hasattr(model, "decoder") else "encoder"), None)
    if not isinstance(stack, Stack):
        what = f"{name} of blocks" if name else "stack of blocks that gives logits"
        raise ValueError(f"a {model.config.kind} model has no layers to look into: it has no {what}")
    return stack


def sublayers(stack: Stack) -> list[str]:
    """Return the names of a block's sub-layers, in their order."""
    block = stack.layers[0]
    return ["self_attention", *["cross_attention"] * block.cross, *["feed_forward"] * block.has_network]


def adds(block: Block, name: str) -> Any:
    """Return the layer whose output is what a block's sub-layer adds: its own or, in a sandwich, its norm."""
    return getattr(getattr(block, f"{name}_norm"), "of_output", getattr(block, name))


def _watched(stack: Stack) -> Callable[[], Stream]:
    """Watch the layers of a stack; return the function that returns its stream after a run."""
    states, added, neurons, heads = (list[np.ndarray]() for _ in range(4))
    keep: Callable[[Array], np.ndarray] = stack.ops.to_numpy
    names = sublayers(stack)
    num_layers, num_heads = len(stack.layers), stack.layers[0].self_attention.num_heads
    attentions = [name for name in names if name.endswith("attention")]
    _watch((adds(block, name) for block in stack.layers for name in names), lambda _, y: added.append(keep(y)))
    networks = [block.feed_forward for block in stack.layers if block.has_network]
    _watch((network.contract for network in networks), lambda x, _: neurons.append(keep(x)))
    joined = [getattr(block, name).output for block in stack.layers for name in attentions]
    _watch(joined, lambda x, _: heads.append(keep(x)))
    _watch((stack.embedding, *stack.layers), lambda _, y: states.append(keep(y)))

    def stream() -> Stream:
        contributions = {name: np.stack(added[i :: len(names)]) for i, name in enumerate(names)}  # in turn
        split = [each.reshape(*each.shape[:2], num_heads, -1) for each in heads]
        of_heads = {name: np.stack(split[i :: len(attentions)]) for i, name in enumerate(attentions)}
        fired = np.stack(neurons) if neurons else np.zeros((num_layers, *states[0].shape[:2], 0))
        return Stream(np.stack(states), contributions, fired, of_heads)

    return stream


def _watch(layers: Iterable[Any], see: Callable[[Array, Array], Any]) -> None:
    """Let layers pass each call's input and output to `see`, and keep no cache; one may stand in several places."""
    for layer in dict.fromkeys(layers):

        def forward(x: Array, *rest: Any, run: Callable[..., tuple[Array, Any]] = layer.forward) -> tuple[Array, None]:
            out, _ = run(x, *rest)
            see(x, out)
            return out, None

        layer.forward = forward


def _give_output(layer: Any, output: Array) -> None:
    """Let a layer's forward return this, and compute nothing."""
    layer.forward = lambda *_: (output, None)
