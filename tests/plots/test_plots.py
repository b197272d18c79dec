"""Pictures: read back as pixels, drawn with any text, written whole or not at all."""

import math
import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread
from matplotlib.text import Text

from minitransformer.plots import plot_attention, plot_logit_lens, plot_loss, plot_one_attention
from minitransformer.plots.loss import smoothed
from minitransformer.plots.page import NO_GLYPH, Page, fitted, printable, text_style, text_width

SOURCE = ["The", "dog", "sleeps", ".", "</s>"]
TARGET = ["Der", "Hund", "schläft", "</s>"]


def weights_of(*shape: int) -> np.ndarray:
    weights = np.random.default_rng(0).random(shape)
    return weights / weights.sum(axis=-1, keepdims=True)


def blue(image: np.ndarray) -> int:
    """Count the pixels that are as dark blue as a weight of 1."""
    return int(((image[..., 0] < 0.1) & (image[..., 2] > 0.35) & (image[..., 2] < 0.5)).sum())


def test_every_head_is_drawn_on_one_scale(tmp_path):
    faint = np.full((2, 3, 4, 5), 0.2)
    plot_attention(faint, SOURCE, TARGET, tmp_path / "faint.png")
    strong = faint.copy()
    strong[1, 2, 3, 4] = 1.0
    plot_attention(strong, SOURCE, TARGET, tmp_path / "strong.png", title="title")
    one = strong.copy()
    one[0, 0, 0, 0] = 1.0
    plot_attention(one, SOURCE, TARGET, tmp_path / "two.png", title="title")
    in_faint, in_strong, in_two = (blue(imread(tmp_path / f"{name}.png")) for name in ("faint", "strong", "two"))
    cell = in_strong - in_faint
    assert cell > 1000  # the colour bar has the dark blue too, a cell much more of it
    assert in_two - in_strong == pytest.approx(cell, rel=0.05)


def test_rows_are_targets_and_columns_are_sources(tmp_path):
    weights = np.zeros((4, 5))
    weights[0, 4] = 1.0  # upper right
    plot_one_attention(weights, SOURCE, TARGET, tmp_path / "one.png")
    image = imread(tmp_path / "one.png")[:, :, :3]
    image = image[:, : int(image.shape[1] * 0.8)]  # without the colour bar
    rows, columns = np.nonzero((image[..., 0] < 0.1) & (image[..., 2] > 0.35) & (image[..., 2] < 0.5))
    assert rows.mean() < image.shape[0] / 2
    assert columns.mean() > image.shape[1] / 2


@pytest.fixture
def pages(monkeypatch) -> list[Page]:
    """The pages that would have been saved."""
    kept: list[Page] = []
    monkeypatch.setattr(Page, "save", lambda page, path: kept.append(page))
    return kept


def assert_every_text_has_its_place(page: Page) -> None:
    """No text touches another or leaves the page."""
    page.figure.draw_without_rendering()
    texts: Any = [text for text in page.figure.findobj(Text) if text.get_visible() and text.get_text()]
    boxes = np.array([text.get_window_extent().extents for text in texts])
    inches = boxes / page.figure.dpi
    outside = np.any(inches < 0, axis=1) | np.any(inches[:, 2:] > [page.width, page.height], axis=1)
    assert not outside.any(), [texts[n].get_text() for n in np.flatnonzero(outside)]
    for n, (left, bottom, right, top) in enumerate(boxes[:-1]):
        others = boxes[n + 1 :]
        apart = (others[:, 0] >= right) | (others[:, 2] <= left) | (others[:, 1] >= top) | (others[:, 3] <= bottom)
        assert apart.all(), (texts[n].get_text(), texts[n + 1 + int(np.argmin(apart))].get_text())


@pytest.mark.parametrize(
    ("num_targets", "num_sources"), [(1, 1), (3, 12), (20, 9), pytest.param(50, 48, marks=pytest.mark.slow)]
)
def test_labels_never_run_into_each_other(pages, num_targets, num_sources):
    sources, targets = ["Äpfel", "q,y", "Donaudampfschifffahrt"] * 20, ["Wörterbuch", "</s>", "▁jgÅ"] * 20
    labels = sources[:num_sources], targets[:num_targets]
    layers, titles = 2, ["", "A title that is longer than the page " * 9]
    if num_targets == 50:  # a second of drawing each
        layers, titles = 1, titles[1:]
    for title in titles:
        plot_attention(weights_of(layers, 2, num_targets, num_sources), *labels, "grid.png", title)
        plot_one_attention(weights_of(num_targets, num_sources), *labels, "one.png", title)
        logits = np.log(weights_of(3, num_targets, 6))
        plot_logit_lens(logits, labels[1], lambda ids: [sources[each] for each in ids], "lens.png", title)
    for page in pages:
        assert_every_text_has_its_place(page)


def test_a_lens_shows_the_most_probable_token_of_each_layer_and_how_probable_it_is(pages, tmp_path):
    logits = np.zeros((2, 4, 3))
    logits[0, :, 1], logits[1, :, 2] = 1.0, 50.0  # e / (e + 2) = 0.576; 1
    plot_logit_lens(logits, TARGET, lambda ids: [SOURCE[each] for each in ids], tmp_path / "lens.png")
    (axes,) = pages[0].figure.axes
    texts = {tuple(map(float, text.get_position())): text.get_text() for text in axes.texts}
    assert [texts[place] for place in sorted(texts)] == [SOURCE[1], SOURCE[2]] * 4  # from below, column by column
    (mesh,) = axes.collections
    np.testing.assert_allclose(np.asarray(mesh.get_array()).reshape(2, 4), [[math.e / (math.e + 2)] * 4, [1.0] * 4])
    assert [label.get_text() for label in axes.get_xticklabels()] == TARGET


def test_a_large_page_gets_fewer_dots(tmp_path):
    Page(2.0, 1.0).save(tmp_path / "small.png")
    Page(200.0, 10.0).save(tmp_path / "large.png")
    assert imread(tmp_path / "small.png").shape[:2] == (200, 400)
    assert imread(tmp_path / "large.png").shape[:2] == (300, 6000)


@settings(max_examples=3)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_any_text_can_be_a_label(tmp_path_factory, tokens):
    path = tmp_path_factory.mktemp("plots") / "any.png"
    plot_one_attention(weights_of(len(tokens), len(tokens)), tokens, tokens, path, title="".join(tokens))
    assert path.stat().st_size > 0


AWKWARD = ["$x^2$", "$", "\\frac{", "50 % & more_less^", "a\nb", "\ud800", "…", "日本語", "👍🏽", "שלום", "e\u0301"]


def test_awkward_text_is_drawn_as_it_stands(tmp_path):
    plot_attention(weights_of(1, 1, 11, 11), AWKWARD, AWKWARD, tmp_path / "a.png", title="".join(AWKWARD))
    plot_loss([{"step": 1, "loss": 1.0}], tmp_path / "l.png", title="".join(AWKWARD))
    for name in ("a.png", "l.png"):
        assert (imread(tmp_path / name) < 0.5).any()


def test_characters_without_a_glyph_become_boxes_and_controls_are_spelled_out():
    unassigned = "\U000e0fff"
    assert printable("naïve ▁Straße €") == "naïve ▁Straße €"
    assert printable("a\nb\x00") == "a\\nb\\x00"
    assert printable(unassigned) == "\\U000e0fff"
    assert printable("\U0001f9ff\U00013000").count(NO_GLYPH) >= 1  # hieroglyphs: in no common font
    assert printable("abcdefgh", longest=5) == "abcd…"


def test_another_installed_font_helps_out():
    mathematical_script_c = "\U0001d49e"  # in STIXGeneral, which comes with matplotlib, not in the usual font
    assert printable(mathematical_script_c) == mathematical_script_c
    assert len(text_style(["abc"], 8)["fontfamily"]) == 1
    assert len(text_style([mathematical_script_c], 8)["fontfamily"]) == 2


def test_text_is_measured_and_cut_to_fit():
    assert text_width("iiii", 10) < text_width("WWWW", 10) == pytest.approx(text_width("WWWW", 20) / 2, rel=0.05)
    title = "a long title " * 20
    cut = fitted(title, 10, 3.0)
    assert cut.endswith("…")
    assert text_width(cut, 10) <= 3.0
    assert title.startswith(cut[:-1])
    assert fitted("short", 10, 3.0) == "short"
    assert fitted("a long title " * 100_000, 10, 3.0) == cut


def records(count: int) -> list[dict[str, float]]:
    """A log as the trainer writes it."""
    found = []
    for step in range(1, count + 1):
        record = {"step": step, "loss": 2 + 5 * np.exp(-step / 30), "learning_rate": step * 1e-5, "tokens": 900 * step}
        if step % 50 == 0:
            record |= {"validation_loss": 2 + 5 * np.exp(-step / 25), "bleu": float(step % 40)}
        found.append(record)
    return found


def test_runs_of_any_length_are_drawn_with_a_panel_for_what_is_known(tmp_path):
    heights = []
    for run in ([{"step": 1, "loss": 2.0}, {"step": 2, "loss": math.nan}], *map(records, (1, 49, 50))):
        plot_loss(run, tmp_path / "loss.png", title="training")
        image = imread(tmp_path / "loss.png")
        assert (image[..., 0] != image[..., 2]).sum() > 100  # colour: the loss is visible
        heights.append(image.shape[0])
    loss, rate, bleu = sorted(set(heights))
    assert heights == [loss, rate, rate, bleu]


def test_a_log_of_a_resumed_run_may_be_out_of_order_and_constant(tmp_path):
    log = [{"step": step, "loss": 3.0, "tokens": 10 * step, "learning_rate": 0.0} for step in (3, 1, 2)]
    plot_loss(log, tmp_path / "loss.png")
    plot_loss(sorted(log, key=lambda record: record["step"]), tmp_path / "sorted.png")
    assert (tmp_path / "loss.png").read_bytes() == (tmp_path / "sorted.png").read_bytes()
    plot_loss([record | {"tokens": 5} for record in log], tmp_path / "same.png")  # no scale can be made of this
    assert imread(tmp_path / "same.png").shape == imread(tmp_path / "loss.png").shape


def test_smoothing_is_a_mean_without_lag():
    line = np.arange(20.0)
    np.testing.assert_allclose(smoothed(line, 3)[3:-3], line[3:-3], rtol=0, atol=1e-12)
    np.testing.assert_allclose(smoothed(np.full(7, 2.5), 50), 2.5, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(smoothed(line, 0), line)
    np.testing.assert_allclose(smoothed(np.array([0.0, 4.0, 0.0]), 1), [4 / 3, 2.0, 4 / 3], rtol=0, atol=1e-12)


def test_the_same_picture_has_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        plot_one_attention(weights_of(4, 5), SOURCE, TARGET, tmp_path / name, "title")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_bad_input_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"has shape \(4, 5\), expected \(layers, heads, 4 target tokens, 5 source"):
        plot_attention(weights_of(4, 5), SOURCE, TARGET, tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"weights has shape \(5, 4\), expected \(4 target tokens, 5 source tokens\)"):
        plot_one_attention(weights_of(5, 4), SOURCE, TARGET, tmp_path / "a.png")
    with pytest.raises(ValueError, match="none of them 0"):
        plot_one_attention(np.zeros((0, 0)), [], [], tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"logits has shape \(3, 4, 9\), expected \(layers \+ 1, 5 tokens, V\)"):
        plot_logit_lens(np.zeros((3, 4, 9)), SOURCE, str, tmp_path / "a.png")
    with pytest.raises(ValueError, match="no record has a step and a finite loss"):
        plot_loss([{"step": 1, "bleu": 3.0}, {"step": 2, "loss": float("inf")}], tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path):
    """And so for every picture, which are all saved by `Page.save`."""
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError, match=r"cannot write .*file/a\.png: "):
        plot_one_attention(weights_of(4, 5), SOURCE, TARGET, tmp_path / "file" / "a.png")
    assert (tmp_path / "file").read_text() == "kept"


def test_pyplot_is_never_imported_and_matplotlib_only_for_pictures():
    code = (
        "import sys, minitransformer.decoding, minitransformer.evaluation\n"
        "heavy = {'matplotlib', 'sacrebleu', 'tqdm'} & set(sys.modules)\n"
        "import minitransformer.plots\n"
        "print(sorted(heavy), 'matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["[]", "False"]


def test_settings_of_a_notebook_do_not_move_what_is_drawn(tmp_path):
    with matplotlib.rc_context({"figure.constrained_layout.use": True}):
        page = Page(3, 2)
        axes = page.axes(0.5, 0.5, 2, 1)
        page.save(tmp_path / "page.png")
    assert axes.get_position().bounds == pytest.approx((0.5 / 3, 0.25, 2 / 3, 0.5))
