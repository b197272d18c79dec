"""Draw figures 1 and 2 from a model: its parts, and the shapes on the arrows, which come from running it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from minitransformer.models import Transformer
from minitransformer.ops import Array
from minitransformer.plots.page import GREY, INK, Page, text_style
from minitransformer.probe import Call, probe

Shape = tuple[int, ...]
Kind = Literal["embedding", "attention", "feed-forward", "norm", "linear"]


@dataclass(frozen=True)
class Stage:
    """A box of figure 1: its name, the shape of its output, and a shape inside it, with a label."""

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
    """The shapes in one multi-head attention, from its input to its output, by their names in figure 2."""

    x: Shape
    projected: Shape
    query: Shape
    key: Shape
    value: Shape
    scores: Shape
    heads: Shape
    concatenated: Shape
    output: Shape


def trace(model: Transformer, source: Array, target: Array) -> Trace:
    """Run a new model of the same configuration on source `(B, Ts)` and target `(B, Tt)`; return its stages."""
    calls = _forwards(model, lambda twin: twin.forward(source, target))
    embeddings = [i for i, call in enumerate(calls) if call.op == "embedding"]
    *decoder, logits = calls[embeddings[1] :]
    return Trace(_stages(calls[: embeddings[1]]), _stages(decoder), Stage("linear", "Linear", _shape_of(logits)))


def trace_attention(model: Transformer, source: Array) -> AttentionShapes:
    """Run a new model's encoder on source `(B, Ts)`; return the shapes of its first attention."""
    calls = _forwards(model, lambda twin: twin.encode(source))
    first = next(i for i, call in enumerate(calls) if call.op == "attention")
    projection, attention, output = calls[first - 1 : first + 2]
    query, key, value = (tuple(array.shape) for array in attention.arguments[:3])
    return AttentionShapes(
        x=tuple(projection.arguments[0].shape),
        projected=_shape_of(projection),
        query=query,
        key=key,
        value=value,
        scores=(*query[:3], key[2]),
        heads=_shape_of(attention),
        concatenated=tuple(output.arguments[0].shape),
        output=_shape_of(output),
    )


def _forwards(model: Transformer, run: Callable[[Transformer], Any]) -> list[Call]:
    """The forwards, without dropout's, that `run` calls in a new model of the same configuration."""
    calls: list[Call] = []
    run(type(model)(model.config, probe(model.ops, calls.append), model.dtype))
    return [call for call in calls if call.way == "forward" and call.op != "dropout"]


def _shape_of(call: Call) -> Shape:
    return tuple(call.result[0].shape)


def _stages(calls: list[Call]) -> list[Stage]:
    """The sub-layers that calls of ops make up. A norm ends a sub-layer, with the sum in it or, pre-norm, before it."""
    stages: list[Stage] = []
    waiting: list[Call] = []
    for call in calls:
        if call.op == "embedding":
            stages.append(Stage("embedding", "Embedding", _shape_of(call)))
        elif call.op == "add_layernorm":
            stages += [*_sublayer(waiting), Stage("norm", "Add & Norm", _shape_of(call))]
            waiting = []
        elif call.op == "layernorm":
            stages += [*_added(waiting), Stage("norm", "Norm", _shape_of(call))]
            waiting = []
        else:
            waiting.append(call)
    return stages + _added(waiting)


def _added(calls: list[Call]) -> list[Stage]:
    """A pre-norm sub-layer and the sum with its residual connection; nothing if there are no calls."""
    return [*_sublayer(calls), Stage("norm", "Add", _shape_of(calls[-1]))] if calls else []


def _sublayer(calls: list[Call]) -> list[Stage]:
    """Attention or the feed-forward network, recognised by the op in its middle."""
    for call in calls:
        out, inside = _shape_of(calls[-1]), _shape_of(call)
        if call.op == "attention":
            masked = "Masked " if call.options.get("causal") else ""
            return [Stage("attention", f"{masked}Multi-Head\nAttention", out, (f"{inside[1]} heads", inside))]
        if call.op == "relu":
            return [Stage("feed-forward", "Feed\nForward", out, ("hidden", inside))]
    raise ValueError(f"no sub-layer is made of {', '.join(call.op for call in calls)}")


SIZE = 8.5
ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "lw": 0.9, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}


def box(x: float, y: float, width: float, height: float, face: str, edge: str = INK) -> FancyBboxPatch:
    """A rectangle with round corners whose lower left corner is at (x, y), in inches."""
    style = "round,pad=0,rounding_size=0.06"
    return FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=0.9)


def shape_text(shape: Shape) -> str:
    """A shape as text: `(2, 7, 128)`."""
    return f"({', '.join(map(str, shape))})"


COLOURS: dict[Kind, str] = {
    "embedding": "#fbe1e3",
    "attention": "#ffe2bd",
    "feed-forward": "#c9e7f5",
    "norm": "#f3f4c4",
    "linear": "#dfe2f1",
}
BOX, GAP, HALF = 0.42, 0.34, 0.8
"""In inches: the height of a box, the room for an arrow, and half the width of a box."""

ENCODER, DECODER, WIDTH, FOOT = 2.05, 5.35, 7.4, 0.35
"""In inches: from the left to the middle of each column, the width of the page, and the room below the first arrow."""


def architecture_page(model: Transformer, source: Array, target: Array) -> Page:
    """Draw figure 1 for `model`, with the shapes of a forward of source `(B, Ts)` and target `(B, Tt)`.

    After Vaswani 2017, figure 1.
    """
    traced = trace(model, source, target)
    layers = model.config.num_layers, model.config.decoder_layers
    in_one, left_over = divmod(len(traced.decoder) - 1, layers[1])
    page = Page(WIDTH, FOOT + (in_one + left_over + 4) * (BOX + GAP) + GAP)  # embedding, positions, linear, softmax
    axes = page.axes(0, 0, page.width, page.height)
    axes.set(xlim=(0, page.width), ylim=(0, page.height))
    axes.set_axis_off()
    positions = "+ Positional\nEncoding" if model.config.encoder.positions == "sinusoidal" else "+ Learned\nPositions"
    encoder, column = _Column(axes, ENCODER, -1, positions), _Column(axes, DECODER, 1, positions)
    memory = encoder.draw("Inputs", tuple(source.shape), traced.encoder, layers[0])
    column.draw("Outputs, shifted right", tuple(target.shape), traced.decoder, layers[1], memory)
    column.box(traced.output)
    column.box(Stage("linear", "Softmax", traced.output.shape))
    return page


class _Column:
    """A column of boxes that grows upwards; its labels are on its outer `side`, −1 for left and 1 for right."""

    def __init__(self, axes: Axes, x: float, side: int, positions: str) -> None:
        self.axes, self.x, self.side, self.y = axes, x, side, FOOT
        self.positions = positions

    def draw(
        self, name: str, ids: Shape, stages: Sequence[Stage], num_layers: int, memory: tuple[float, float] | None = None
    ) -> tuple[float, float]:
        """Draw embedding, positions and one layer; return the place where the column ends.

        `memory` is the place where the encoder's column ended.
        """
        self.label(f"{name}  {shape_text(ids)}")
        embedding, *rest = stages
        self.box(embedding)
        self.box(Stage("embedding", self.positions, embedding.shape))
        per_layer = len(rest) // num_layers  # the remainder is a final norm
        bottom = self.y + GAP * 0.2
        branch, attentions = self.y + GAP * 0.4, 0
        for stage in rest[:per_layer]:
            self.box(stage)
            attentions += stage.kind == "attention"
            if stage.kind == "attention" and attentions == 2 and memory is not None:
                self._bring(memory, self.y - BOX / 2)
            if stage.name.startswith("Add"):
                self._residual(branch, self.y - BOX / 2)
                branch = self.y + GAP * 0.4
        self._frame(bottom, self.y + GAP * 0.2, f"{num_layers} ×")
        for stage in rest[num_layers * per_layer :]:
            self.box(stage)
        return self.x, self.y

    def box(self, stage: Stage) -> None:
        """Draw an arrow to the box, the box, and the shape of its output above it."""
        self.axes.annotate("", (self.x, self.y + GAP), (self.x, self.y), arrowprops=ARROW)
        low = self.y + GAP
        self.axes.add_patch(box(self.x - HALF, low, 2 * HALF, BOX, COLOURS[stage.kind]))
        self.axes.text(
            self.x, low + BOX / 2, stage.name, ha="center", va="center", linespacing=1.15, **text_style([], SIZE)
        )
        self.y = low + BOX
        beside = f"{stage.inside[0]} {shape_text(stage.inside[1])}" if stage.inside else ""
        style = text_style([], 7, GREY)
        align = "left" if self.side > 0 else "right"
        place = self.x + self.side * (HALF + 0.5)
        self.axes.text(place, low + BOX / 2, beside.replace(" (", "\n("), ha=align, va="center", **style)
        x, inner = self.x - self.side * 0.07, "right" if self.side > 0 else "left"
        self.axes.text(x, self.y + GAP / 2, shape_text(stage.shape), ha=inner, va="center", **style)

    def label(self, text: str) -> None:
        """Write a line of text below the column."""
        self.axes.text(self.x, self.y - 0.06, text, ha="center", va="top", **text_style([text], SIZE))

    def _frame(self, low: float, high: float, text: str) -> None:
        left, width = self.x - HALF - 0.38, 2 * HALF + 0.76
        self.axes.add_patch(box(left, low, width, high - low, "none", GREY))
        place = self.x + self.side * (HALF + 0.5)
        align = "left" if self.side > 0 else "right"
        self.axes.text(place, high - 0.15, text, ha=align, va="center", **text_style([], 11))

    def _residual(self, start: float, end: float) -> None:
        """Draw the residual connection around a sub-layer, on the outer side."""
        x = self.x + self.side * (HALF + 0.2)
        self.axes.plot([self.x, x, x], [start, start, end], color=INK, lw=0.9, solid_joinstyle="round")
        self.axes.annotate("", (self.x + self.side * HALF, end), (x, end), arrowprops=ARROW)

    def _bring(self, memory: tuple[float, float], y: float) -> None:
        """Draw the arrow from the encoder's output into the side of a box."""
        x, top = memory
        turn = (x + self.x) / 2
        self.axes.plot([x, x, turn, turn], [top, top + GAP, top + GAP, y], color=INK, lw=0.9)
        self.axes.annotate("", (self.x - HALF, y), (turn, y), arrowprops=ARROW)
        self.axes.text(turn + 0.05, y + 0.06, "keys,\nvalues", ha="left", va="bottom", **text_style([], 7, GREY))


PURPLE, ORANGE, YELLOW, GREEN, GREYISH = "#e3d3ef", "#ffe2bd", "#f3f4c4", "#cfe9cf", "#eeeeee"
HEIGHT, STEP, HALF_WIDTH = 0.36, 0.68, 0.72
"""In inches: the height of a box, the distance from one to the next, and half the width of a box."""


def attention_page(model: Transformer, source: Array) -> Page:
    """Draw figure 2 for the first attention of `model`'s encoder over source `(B, Ts)`, with its shapes.

    After Vaswani 2017, figure 2.
    """
    shapes = trace_attention(model, source)
    page = Page(7.4, 4.9)
    axes = page.axes(0, 0, page.width, page.height)
    axes.set(xlim=(0, page.width), ylim=(0, page.height))
    axes.set_axis_off()
    _draw_one_head(axes, shapes, model.config.encoder.block.attention.d_k)
    _draw_heads(axes, shapes)
    return page


def _draw_one_head(axes: Axes, shapes: AttentionShapes, d_k: int) -> None:
    """Draw the left half: what happens in each head, from bottom to top."""
    x, foot = 1.55, 0.65
    axes.text(x + 0.3, 4.72, "Scaled Dot-Product Attention", ha="center", **text_style([], 10.5))
    stages: list[tuple[str, str, Shape]] = [
        ("MatMul", PURPLE, shapes.scores),
        (f"Scale by 1/√{d_k}", YELLOW, shapes.scores),
        ("Mask (opt.)", "#fbe1e3", shapes.scores),
        ("SoftMax", GREEN, shapes.scores),
        ("MatMul", PURPLE, shapes.heads),
    ]
    for place, name in ((x - 0.4, "Q"), (x + 0.4, "K")):
        _arrow(axes, (place, foot), (place, foot + STEP - HEIGHT))
        _word(axes, place, foot - 0.12, name)
    for i, (name, colour, shape) in enumerate(stages):
        low = foot + (i + 1) * STEP - HEIGHT
        axes.add_patch(box(x - HALF_WIDTH, low, 2 * HALF_WIDTH, HEIGHT, colour))
        _word(axes, x, low + HEIGHT / 2, name)
        top = low + HEIGHT
        _arrow(axes, (x, top), (x, top + STEP - HEIGHT))
        _shape(axes, x + 0.07, top + (STEP - HEIGHT) / 2, shape)
    low = foot + len(stages) * STEP - HEIGHT
    side = x + HALF_WIDTH + 0.55
    axes.plot([side, side], [foot, low + HEIGHT / 2], color=INK, lw=0.9)
    _arrow(axes, (side, low + HEIGHT / 2), (x + HALF_WIDTH, low + HEIGHT / 2))
    _word(axes, side, foot - 0.12, "V")
    for place, shape in ((x - 0.4, shapes.query), (x + 0.4, shapes.key), (side, shapes.value)):
        axes.text(place, foot - 0.3, shape_text(shape), ha="center", va="top", **text_style([], 6.5, GREY))


def _draw_heads(axes: Axes, shapes: AttentionShapes) -> None:
    """Draw the right half: the heads side by side."""
    x, foot, heads = 5.35, 0.65, shapes.query[1]
    axes.text(x, 4.72, f"Multi-Head Attention, h = {heads}", ha="center", **text_style([], 10.5))
    for place, name in ((x - 1.2, "V"), (x, "K"), (x + 1.2, "Q")):
        _word(axes, place, foot - 0.12, name)
        _stack(axes, place - 0.45, foot + 0.45, 0.9, HEIGHT, "Linear", GREYISH)
        _arrow(axes, (place, foot), (place, foot + 0.45))
        _arrow(axes, (place, foot + 0.45 + HEIGHT), (place, foot + 1.25))
    note = f"all three {shape_text(shapes.x)}; their projections are one product: {shape_text(shapes.projected)}"
    axes.text(x, foot - 0.3, note, ha="center", va="top", **text_style([], 6.5, GREY))
    _stack(axes, x - 1.65, foot + 1.25, 3.3, 0.5, "Scaled Dot-Product Attention", ORANGE)
    _arrow(axes, (x, foot + 1.75), (x, foot + 2.35))
    _shape(axes, x + 0.07, foot + 2.16, shapes.heads)
    for low, name, colour, shape in (
        (foot + 2.35, "Concat", YELLOW, shapes.concatenated),
        (foot + 3.05, "Linear", GREYISH, shapes.output),
    ):
        axes.add_patch(box(x - HALF_WIDTH, low, 2 * HALF_WIDTH, HEIGHT, colour))
        _word(axes, x, low + HEIGHT / 2, name)
        _arrow(axes, (x, low + HEIGHT), (x, low + 0.7))
        _shape(axes, x + 0.07, low + HEIGHT + 0.17, shape)


def _stack(axes: Axes, left: float, low: float, width: float, height: float, name: str, colour: str) -> None:
    """Draw three boxes, each half hidden by the one before it."""
    for offset in (0.12, 0.06, 0.0):
        axes.add_patch(box(left + offset, low + offset, width, height, colour))
    _word(axes, left + width / 2, low + height / 2, name)


def _word(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="center", **text_style([text], SIZE))


def _shape(axes: Axes, x: float, y: float, shape: Shape) -> None:
    axes.text(x, y, shape_text(shape), ha="left", va="center", **text_style([], 7, GREY))


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops=ARROW)
