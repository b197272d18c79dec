"""Pictures of scenes that no training has seen, for the page of a captioner."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..grammar.captions import Language, caption
from ..grammar.scenes import draw, draw_scene


class Picture(NamedTuple):
    """A picture `(channels, height, width)` with numbers from −1 to 1, its name, and a caption that is true."""

    name: str
    caption: str
    pixels: NDArray[np.float32]


def example_pictures(count: int, language: Language = "english") -> list[Picture]:
    """Return the first scenes that `caption --scene` draws too, under the same numbers."""
    scenes = ((number, draw_scene("test", 0, number)) for number in range(count))
    return [Picture(f"scene {number}", caption(scene, language), draw(scene)) for number, scene in scenes]
