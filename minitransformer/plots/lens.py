"""The logit lens: a language model's prediction at each token if the model ended after each of its layers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .attention import COLOURS, LONGEST_LABEL, SCALE
from .page import GREY, INK, PALE, Page, fitted, printable, text_style, text_width

SIZE, ROW, MARGIN = 8.0, 0.27, 0.15  # points; inches
DARK = 0.55  # above this probability a cell's text is white


def plot_logit_lens(
    logits: np.ndarray,
    tokens: Sequence[str],
    tokens_of: Callable[[Sequence[int]], Sequence[str]],
    path: str | Path,
    title: str = "",
) -> None:
    """Draw the most probable next token at every token (a column) after every layer (a row, the last on top).

    logits `(layers + 1, T, V)` are those of `logit_lens`, for one text; tokens are its T tokens, and tokens_of turns
    ids into their texts. The darker a cell, the more probable its token. Raises `ValueError` for another shape, and
    `OSError`, naming the path, if it can't be written. After nostalgebraist 2020, "interpreting GPT".
    """
    if logits.ndim != 3 or logits.shape[1] != len(tokens) or not logits.size:
        raise ValueError(f"logits has shape {logits.shape}, expected (layers + 1, {len(tokens)} tokens, V), none 0")
    exponentials = np.exp(logits - logits.max(axis=2, keepdims=True), dtype=np.float64)
    best = exponentials.max(axis=2) / exponentials.sum(axis=2)  # (L + 1, T), the probability
    said = [[printable(each, LONGEST_LABEL) for each in tokens_of(ids.tolist())] for ids in logits.argmax(axis=2)]
    inputs = [printable(each, LONGEST_LABEL) for each in tokens]
    names = ["embedding", *(f"layer {n}" for n in range(1, len(logits)))]

    widest = [max(text_width(text, SIZE) for text in column) for column in zip(inputs, *said, strict=True)]
    edges = np.cumsum([0.0, *(max(width, 0.3) + 0.12 for width in widest)])
    left, below = MARGIN + 0.1 + max(text_width(name, SIZE) for name in names), MARGIN + ROW
    above = 0.45 if title else MARGIN
    title = fitted(title, 11, max(left + edges[-1], 6.0))
    page = Page(max(left + edges[-1], text_width(title, 11) + MARGIN) + MARGIN, below + ROW * len(names) + above)
    axes = page.axes(left, below, edges[-1], ROW * len(names))
    axes.pcolormesh(edges, np.arange(len(names) + 1), best, cmap=COLOURS, norm=SCALE, edgecolors=PALE, linewidth=0.4)
    for row, (texts, sure) in enumerate(zip(said, best, strict=True)):
        for text, x, probability in zip(texts, (edges[1:] + edges[:-1]) / 2, sure, strict=True):
            colour = "white" if probability > DARK else INK
            axes.text(x, row + 0.5, text, ha="center", va="center", **text_style([text], SIZE, colour))
    axes.tick_params(length=0, pad=3)
    axes.spines[:].set(linewidth=0.5, color=GREY)
    axes.set_xticks((edges[1:] + edges[:-1]) / 2, inputs, **text_style(inputs, SIZE))
    axes.set_yticks(np.arange(len(names)) + 0.5, names, **text_style(names, SIZE, GREY))
    page.text(MARGIN, page.height - MARGIN, title, 11, ha="left", va="top")
    page.save(path)
