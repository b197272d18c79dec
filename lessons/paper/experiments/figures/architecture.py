"""Figure 1, drawn from a model: what it is made of and the shapes on the arrows."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from minitransformer.models import Transformer
from minitransformer.ops import Array
from minitransformer.plots.page import GREY, INK, Page, text_style

from .drawing import ARROW, SIZE, box, shape_text
from .tracing import Kind, Shape, Stage, trace

COLOURS: dict[Kind, str] = {
    "embedding": "#fbe1e3",
    "attention": "#ffe2bd",
    "feed-forward": "#c9e7f5",
    "norm": "#f3f4c4",
    "linear": "#dfe2f1",
}
BOX, GAP, HALF = 0.42, 0.34, 0.8
"""Inches: a box's height, the room for an arrow, half a box's width."""

ENCODER, DECODER, WIDTH, FOOT = 2.05, 5.35, 7.4, 0.35
"""Inches: from the left to the middle of each column, the page's width, and what stands below the first arrow."""


def draw_architecture(model: Transformer, source: Array, target: Array, path: str | Path) -> None:
    """Figure 1 for `model`, with the shapes that sentences of source `(B, Ts)` and target `(B, Tt)` take in it.

    After Vaswani 2017, figure 1. Raises `OSError` naming the path where it can't be written.
    """
    architecture_page(model, source, target).save(path)


def architecture_page(model: Transformer, source: Array, target: Array) -> Page:
    """`draw_architecture`'s page."""
    traced = trace(model, source, target)
    layers = model.config.num_layers, model.config.decoder_layers
    in_one, left_over = divmod(len(traced.decoder) - 1, layers[1])
    page = Page(WIDTH, FOOT + (in_one + left_over + 4) * (BOX + GAP) + GAP)  # embedding, positions, linear, softmax
    axes = page.axes(0, 0, page.width, page.height)
    axes.set(xlim=(0, page.width), ylim=(0, page.height))
    axes.set_axis_off()
    positions = "+ Positional\nEncoding" if model.config.positions == "sinusoidal" else "+ Learned\nPositions"
    encoder, column = _Column(axes, ENCODER, -1, positions), _Column(axes, DECODER, 1, positions)
    memory = encoder.draw("Inputs", tuple(source.shape), traced.encoder, layers[0])
    column.draw("Outputs, shifted right", tuple(target.shape), traced.decoder, layers[1], memory)
    column.box(traced.output)
    column.box(Stage("linear", "Softmax", traced.output.shape))
    return page


class _Column:
    """A stack of boxes growing upwards; labels stand at its outer side, −1 for the left and 1 for the right."""

    def __init__(self, axes: Axes, x: float, side: int, positions: str) -> None:
        self.axes, self.x, self.side, self.y = axes, x, side, FOOT
        self.positions = positions

    def draw(
        self,
        name: str,
        ids: Shape,
        stages: Sequence[Stage],
        num_layers: int,
        memory: tuple[float, float] | None = None,
    ) -> tuple[float, float]:
        """Embedding, positions and one of the layers; where the column ends. `memory` is where the encoder did."""
        self.label(f"{name}  {shape_text(ids)}")
        embedding, *rest = stages
        self.box(embedding)
        self.box(Stage("embedding", self.positions, embedding.shape))
        per_layer = len(rest) // num_layers  # a final norm is left over
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
        """An arrow up from what stands below, and the box; its shape on the arrow that leaves it."""
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
        """A line of text where the column begins."""
        self.axes.text(self.x, self.y - 0.06, text, ha="center", va="top", **text_style([text], SIZE))

    def _frame(self, low: float, high: float, text: str) -> None:
        left, width = self.x - HALF - 0.38, 2 * HALF + 0.76
        self.axes.add_patch(box(left, low, width, high - low, "none", GREY))
        place = self.x + self.side * (HALF + 0.5)
        align = "left" if self.side > 0 else "right"
        self.axes.text(place, high - 0.15, text, ha=align, va="center", **text_style([], 11))

    def _residual(self, start: float, end: float) -> None:
        """The way around a sub-layer, on the outer side."""
        x = self.x + self.side * (HALF + 0.2)
        self.axes.plot([self.x, x, x], [start, start, end], color=INK, lw=0.9, solid_joinstyle="round")
        self.axes.annotate("", (self.x + self.side * HALF, end), (x, end), arrowprops=ARROW)

    def _bring(self, memory: tuple[float, float], y: float) -> None:
        """The encoder's output, into the side of a box."""
        x, top = memory
        turn = (x + self.x) / 2
        self.axes.plot([x, x, turn, turn], [top, top + GAP, top + GAP, y], color=INK, lw=0.9)
        self.axes.annotate("", (self.x - HALF, y), (turn, y), arrowprops=ARROW)
        self.axes.text(turn + 0.05, y + 0.06, "keys,\nvalues", ha="left", va="bottom", **text_style([], 7, GREY))
