"""What a model does to a pair of sentences, sub-layer by sub-layer, with the shapes: seen by running it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from minitransformer.models import Transformer
from minitransformer.ops import Array
from minitransformer.probe import Call, probe

Shape = tuple[int, ...]
Kind = Literal["embedding", "attention", "feed-forward", "norm", "linear"]


@dataclass(frozen=True)
class Stage:
    """A box of figure 1: what it is, the shape that leaves it, and one inside it that is worth knowing."""

    kind: Kind
    name: str
    shape: Shape
    inside: tuple[str, Shape] | None = None


@dataclass
class Trace:
    """The stages of the encoder and of the decoder, each with its input embedding first, and the output layer."""

    encoder: list[Stage]
    decoder: list[Stage]
    output: Stage


@dataclass(frozen=True)
class AttentionShapes:
    """The arrays of one multi-head attention, from its input to its output, by their names in figure 2."""

    x: Shape
    projected: Shape
    query: Shape
    key: Shape
    value: Shape
    scores: Shape
    heads: Shape
    concatenated: Shape
    output: Shape


@dataclass
class _Call:
    op: str
    shape: Shape
    inputs: list[Shape]
    options: dict[str, Any] = field(default_factory=dict)


def trace(model: Transformer, source: Array, target: Array) -> Trace:
    """Runs a model like this one, from source `(B, Ts)` and target `(B, Tt)` to logits, and notes each stage."""
    calls: list[_Call] = []
    twin = type(model)(model.config, probe(model.ops, _forwards(calls)), model.dtype)
    twin.forward(source, target)
    embeddings = [i for i, call in enumerate(calls) if call.op == "embedding"]
    *decoder, logits = calls[embeddings[1] :]
    return Trace(_stages(calls[: embeddings[1]]), _stages(decoder), Stage("linear", "Linear", logits.shape))


def trace_attention(model: Transformer, source: Array) -> AttentionShapes:
    """The first attention of the encoder of a model like this one, for source `(B, Ts)`."""
    calls: list[_Call] = []
    type(model)(model.config, probe(model.ops, _forwards(calls)), model.dtype).encode(source)
    first = next(i for i, call in enumerate(calls) if call.op == "attention")
    projection, attention, output = calls[first - 1 : first + 2]
    query, key, value = attention.inputs
    return AttentionShapes(
        x=projection.inputs[0],
        projected=projection.shape,
        query=query,
        key=key,
        value=value,
        scores=(*query[:3], key[2]),
        heads=attention.shape,
        concatenated=output.inputs[0],
        output=output.shape,
    )


def _forwards(calls: list[_Call]) -> Callable[[Call], None]:
    """A watcher that notes the shapes of each forward but dropout's."""

    def note(call: Call) -> None:
        if call.way == "forward" and call.op != "dropout":
            inputs = [tuple(array.shape) for array in call.arguments if hasattr(array, "shape")]
            calls.append(_Call(call.op, tuple(call.result[0].shape), inputs, call.options))

    return note


def _stages(calls: list[_Call]) -> list[Stage]:
    """Ops as the sub-layers that they make up: a norm ends the one before it, with the sum or, pre-norm, after it."""
    stages: list[Stage] = []
    waiting: list[_Call] = []
    for call in calls:
        if call.op == "embedding":
            stages.append(Stage("embedding", "Embedding", call.shape))
        elif call.op == "add_layernorm":
            stages += [*_sublayer(waiting), Stage("norm", "Add & Norm", call.shape)]
            waiting = []
        elif call.op == "layernorm":
            stages += [*_added(waiting), Stage("norm", "Norm", call.shape)]
            waiting = []
        else:
            waiting.append(call)
    return stages + _added(waiting)


def _added(calls: list[_Call]) -> list[Stage]:
    """A pre-norm sub-layer and the sum with its residual connection; nothing of no calls."""
    return [*_sublayer(calls), Stage("norm", "Add", calls[-1].shape)] if calls else []


def _sublayer(calls: list[_Call]) -> list[Stage]:
    """Attention or the feed-forward network, told by the op in its middle."""
    for call in calls:
        if call.op == "attention":
            masked = "Masked " if call.options.get("causal") else ""
            heads = f"{call.shape[1]} heads"
            return [Stage("attention", f"{masked}Multi-Head\nAttention", calls[-1].shape, (heads, call.shape))]
        if call.op == "relu":
            return [Stage("feed-forward", "Feed\nForward", calls[-1].shape, ("hidden", call.shape))]
    raise ValueError(f"no sub-layer is made of {', '.join(call.op for call in calls)}")
