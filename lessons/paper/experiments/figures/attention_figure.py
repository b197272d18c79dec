"""Figure 2, drawn from a model: scaled dot-product attention, and the heads that it is taken in."""

from pathlib import Path

from matplotlib.axes import Axes

from minitransformer.models import Transformer
from minitransformer.ops import Array
from minitransformer.plots.page import GREY, INK, Page, text_style

from .drawing import ARROW, SIZE, box, shape_text
from .tracing import AttentionShapes, Shape, trace_attention

PURPLE, ORANGE, YELLOW, GREEN, GREYISH = "#e3d3ef", "#ffe2bd", "#f3f4c4", "#cfe9cf", "#eeeeee"
HEIGHT, STEP, HALF = 0.36, 0.68, 0.72
"""Inches: of a box, from one to the next, half its width."""


def draw_attention(model: Transformer, source: Array, path: str | Path) -> None:
    """Figure 2 for the first attention of `model`'s encoder over source `(B, Ts)`, with its shapes.

    After Vaswani 2017, figure 2. Raises `OSError` naming the path where it can't be written.
    """
    attention_page(model, source).save(path)


def attention_page(model: Transformer, source: Array) -> Page:
    """`draw_attention`'s page."""
    shapes = trace_attention(model, source)
    page = Page(7.4, 4.9)
    axes = page.axes(0, 0, page.width, page.height)
    axes.set(xlim=(0, page.width), ylim=(0, page.height))
    axes.set_axis_off()
    _draw_one_head(axes, shapes, model.config.key_width)
    _draw_heads(axes, shapes)
    return page


def _draw_one_head(axes: Axes, shapes: AttentionShapes, d_k: int) -> None:
    """The left half: what happens in each head, upwards."""
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
        axes.add_patch(box(x - HALF, low, 2 * HALF, HEIGHT, colour))
        _word(axes, x, low + HEIGHT / 2, name)
        top = low + HEIGHT
        _arrow(axes, (x, top), (x, top + STEP - HEIGHT))
        _shape(axes, x + 0.07, top + (STEP - HEIGHT) / 2, shape)
    low = foot + len(stages) * STEP - HEIGHT
    side = x + HALF + 0.55
    axes.plot([side, side], [foot, low + HEIGHT / 2], color=INK, lw=0.9)
    _arrow(axes, (side, low + HEIGHT / 2), (x + HALF, low + HEIGHT / 2))
    _word(axes, side, foot - 0.12, "V")
    for place, shape in ((x - 0.4, shapes.query), (x + 0.4, shapes.key), (side, shapes.value)):
        axes.text(place, foot - 0.3, shape_text(shape), ha="center", va="top", **text_style([], 6.5, GREY))


def _draw_heads(axes: Axes, shapes: AttentionShapes) -> None:
    """The right half: the heads side by side."""
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
        axes.add_patch(box(x - HALF, low, 2 * HALF, HEIGHT, colour))
        _word(axes, x, low + HEIGHT / 2, name)
        _arrow(axes, (x, low + HEIGHT), (x, low + 0.7))
        _shape(axes, x + 0.07, low + HEIGHT + 0.17, shape)


def _stack(axes: Axes, left: float, low: float, width: float, height: float, name: str, colour: str) -> None:
    """Three boxes, each half hidden by the one before it."""
    for offset in (0.12, 0.06, 0.0):
        axes.add_patch(box(left + offset, low + offset, width, height, colour))
    _word(axes, left + width / 2, low + height / 2, name)


def _word(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="center", **text_style([text], SIZE))


def _shape(axes: Axes, x: float, y: float, shape: Shape) -> None:
    axes.text(x, y, shape_text(shape), ha="left", va="center", **text_style([], 7, GREY))


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops=ARROW)
