"""The pictures' colours: one map for amounts, one for signs, whatever the lesson."""

import re

import matplotlib.pyplot as plt
import pytest
from matplotlib import colormaps

from course.sources import lesson_folder, number_of, sources
from course.style import AMOUNTS, SIGNED, use_style


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_lessons_pictures_take_their_colour_maps_from_the_style(source):
    drawing = "\n".join(
        path.read_text(encoding="utf-8") for path in [source, *lesson_folder(number_of(source)).glob("*.py")]
    )
    assert not re.findall(r"""cmap=["']|get_cmap|colormaps""", drawing)
    if re.search(r"\bSIGNED\b", drawing):
        assert {"green", "purple"} <= set(re.findall(r"\w+", drawing.lower())), "it says which colour is which sign"


def test_signs_are_purple_white_and_green_and_amounts_white_to_blue():
    (purple, white, green), (nothing, much) = colormaps[SIGNED]([0.15, 0.5, 0.85]), colormaps[AMOUNTS]([0.0, 1.0])
    assert purple[1] < min(purple[0], purple[2])
    assert green[1] > max(green[0], green[2])
    assert min(*white, *nothing) > 0.95
    assert much[2] > max(much[0], much[1])
    with plt.rc_context():
        use_style()
        assert plt.rcParams["image.cmap"] == AMOUNTS
