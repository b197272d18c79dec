"""The pictures' colours: one map for amounts, one for signs, whatever the lesson."""

import re

import matplotlib.pyplot as plt
import pytest
from IPython import display
from matplotlib import colormaps

from course.sources import lesson_folder, number_of, sources
from course.style import AMOUNTS, SIGNED, show, use_style


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


@pytest.fixture
def shown(monkeypatch):
    """What a figure of 2 by 1 inches with 50 dots an inch gives the page, by the backend's name and the alt text."""

    def draw(backend, alt):
        pictures, windows = [], []
        monkeypatch.setattr(display, "display", pictures.append)
        monkeypatch.setattr(plt, "show", lambda: windows.append(1))
        monkeypatch.setattr(plt, "get_backend", lambda: backend)
        plt.figure(figsize=(2, 1), dpi=50).add_axes((0, 0, 1, 1)).plot([1, 2])
        show(alt)
        return pictures, windows

    yield draw
    plt.close("all")


def test_a_figure_is_shown_at_twice_its_pixels_with_its_text_and_is_closed(shown):
    ([picture], windows) = shown("inline", "A line that rises.")
    data, metadata = picture._repr_mimebundle_()
    width, height = (int.from_bytes(picture.data[place : place + 4]) for place in (16, 20))
    assert metadata["image/png"] == {"alt": "A line that rises.", "width": width // 2, "height": height // 2}
    assert 100 <= width // 2 <= 130  # the figure, its labels and an edge
    assert list(data) == ["image/png"]
    assert not windows
    assert not plt.get_fignums()


def test_a_script_shows_a_figure_in_a_window(shown):
    assert shown("agg", "A line that rises.") == ([], [1])
    assert not plt.get_fignums()


@pytest.mark.parametrize("backend", ["inline", "agg"])
@pytest.mark.parametrize("alt", ["", "  "])
def test_a_figure_without_a_text_is_refused(shown, backend, alt):
    with pytest.raises(ValueError, match="say in a sentence what the picture shows"):
        shown(backend, alt)
