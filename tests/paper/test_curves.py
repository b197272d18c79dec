"""The formulas' pictures."""

from collections.abc import Callable
from pathlib import Path

import pytest

from minitransformer.optimizer import noam
from paper.experiments.figures.curves import SCHEDULES, STEPS, draw_positions, draw_schedule


@pytest.mark.parametrize("draw", [draw_schedule, draw_positions])
def test_the_picture_is_a_png(draw: Callable[[Path], None], tmp_path: Path) -> None:
    draw(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_every_peak_is_in_the_picture() -> None:
    for name, d_model, warmup, _ in SCHEDULES:
        rates = [noam(step, d_model, warmup) for step in range(1, STEPS + 1)]
        assert rates.index(max(rates)) + 1 == warmup, name
