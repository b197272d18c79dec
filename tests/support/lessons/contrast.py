"""Whether text can be read where it stands in a figure: its contrast with the colour behind it."""

from collections import Counter
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

from course.style import contrast

LEAST = 4.5  # WCAG 2.2, success criterion 1.4.3


def faint_texts(figure: Figure) -> list[tuple[str, float]]:
    """Return each text that has too little contrast with the most frequent colour behind it, with its contrast."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes_off = [axis for axes in figure.axes if not axes.axison for axis in (axes.xaxis, axes.yaxis)]
    hidden = {text for axis in axes_off for text in axis.findobj(Text)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    texts = [text for text in texts if text not in hidden and not text.get_path_effects()]  # an outline is a ground
    colours = [to_rgba(text.get_color(), text.get_alpha()) for text in texts]
    boxes = [text.get_window_extent() for text in texts]
    for text in texts:
        text.set_alpha(0)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())[::-1, :, :3]
    faint = []
    for text, (*colour, opaque), box in zip(texts, colours, boxes, strict=True):
        left, bottom, right, top = (max(0, round(side)) for side in box.extents)
        behind = picture[bottom:top, left:right].reshape(-1, 3)
        if len(behind):  # else it stands outside of the figure
            ground = np.array(Counter(map(tuple, behind)).most_common(1)[0][0]) / 255
            found = contrast(tuple(opaque * np.array(colour) + (1 - opaque) * ground), tuple(ground))
            if found < LEAST - 0.005:
                faint.append((text.get_text(), round(found, 2)))
    for text, (*_, opaque) in zip(texts, colours, strict=True):
        text.set_alpha(opaque)
    return faint


def checked(show: Callable[[str], None]) -> Callable[[str], None]:
    """Return `course.style.show`, or a function like it, that raises `AssertionError` after a figure with such text."""

    def checking(alt: str) -> None:
        figure = plt.gcf()
        show(alt)
        faint = faint_texts(figure)
        assert not faint, f"text that is hard to read, and its contrast: {faint}"

    return checking
