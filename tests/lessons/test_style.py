"""The pictures' colours: one map for amounts, one for signs, whatever the lesson."""

import re
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from IPython import display
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from support.lessons.contrast import LEAST, checked, faint_texts

from course.sources import lesson_folder, number_of, sources
from course.style import (
    AMOUNTS,
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    INK,
    PURPLE,
    SIGNED,
    VERMILION,
    contrast,
    dark,
    on,
    show,
    use_style,
)

# What deuteranopes see of a colour in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
DEUTERANOPE = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
RGB_TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


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


def test_contrast_is_that_of_wcag():
    assert contrast("white", "black") == pytest.approx(21)
    assert contrast("#777777", "white") == contrast("white", "#777777") == pytest.approx(4.48, abs=0.005)


def test_text_is_read_on_white_and_on_every_colour():
    for colour in (INK, GREY, BLUE, GREEN, PURPLE, VERMILION):
        assert contrast(colour, "white") >= LEAST
        assert dark(colour) == colour
    for colour in [*COLOURS, *np.random.default_rng(0).random((1000, 3)).tolist()]:
        assert contrast(on(colour), colour) >= LEAST
        assert contrast(dark(colour), "white") >= LEAST


def test_deuteranopes_tell_the_colours_apart():
    assert min(np.linalg.norm(one - other) for one, other in combinations(map(seen, [*COLOURS, GREY]), 2)) > 15


def seen(colour):
    """The colour that a deuteranope sees, in CIELAB, where a distance of 2 is just noticed."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(RGB_TO_XYZ @ (DEUTERANOPE @ linear).clip(0, 1) / RGB_TO_XYZ.sum(axis=1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_text_that_is_hard_to_read_is_found(monkeypatch):
    figure, axes = plt.subplots()
    axes.axvspan(0, 1, color="#e69f00")
    axes.text(0.5, 0.5, "white on orange", color="white", ha="center")
    axes.text(0.5, 0.8, "black on orange", color="black", ha="center")
    monkeypatch.setattr(plt, "get_backend", lambda: "agg")
    assert faint_texts(figure) == [("white on orange", 2.25)]
    monkeypatch.setattr(plt, "show", lambda: None)
    with pytest.raises(AssertionError, match="hard to read"):
        checked(show)("Two words on a colour.")


@pytest.fixture
def shown(monkeypatch):
    """What a figure of 2 by 1 inches with 50 dots an inch gives the page, by the backend's name and the alt text."""

    def draw(backend, alt):
        pictures, windows = [], []
        monkeypatch.setattr(display, "display", pictures.append)
        monkeypatch.setattr(plt, "show", lambda: windows.append(1))
        monkeypatch.setattr(plt, "get_backend", lambda: backend)
        plt.figure(figsize=(2, 1), dpi=50, layout="none").add_axes((0, 0, 1, 1)).plot([1, 2])
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
