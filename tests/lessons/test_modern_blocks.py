"""Lesson 20 shows what `make after` has measured: with results, without any, and where trainings diverged."""

import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
from support.study_results import MadeUpReader

from after.command import STUDY
from after.experiments import ablation
from after.task import Texts
from course.lesson_20 import measured, pictures
from study.experiment import Context
from study.report import Origin, save_findings
from study.trials import bootstrap


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The study's folder, in which there is nothing yet."""
    monkeypatch.setattr(STUDY, "out", tmp_path)
    monkeypatch.setattr(bootstrap, "SAMPLES", 50)
    monkeypatch.setattr(ablation, "loss_by_place", lambda path, data: [1.0] * 8)
    (tmp_path / "results").mkdir()
    return tmp_path


def keep(out: Path, losses: dict[str, float], diverged: tuple[str, ...] = ()) -> None:
    """Write the results of made-up trainings, by the names of the variants."""

    def names(variant: str) -> list[str]:
        return [ablation.trial(ablation.BY_NAME[variant], seed, Texts(), 1.0).name for seed in ablation.SEEDS]

    runner = MadeUpReader(
        {name: loss for variant, loss in losses.items() for name in names(variant)},
        {name: "nan" for variant in diverged for name in names(variant)},
    )
    found = ablation.find(Context(Texts(), 1.0, runner))  # type: ignore[arg-type]
    save_findings(STUDY, out, ablation, Origin("make after", "all", 1.0, 1.0, 1.0, "numpy", "a machine", 4), found)


def test_what_is_not_measured_is_said_in_a_line(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured.measured("ablation") is None
    assert capsys.readouterr().out == "not measured yet: make after ARGS=ablation\n"


def test_the_parts_are_read_with_their_intervals_and_drawn(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(out, {"SwiGLU": 1.45, "grouped": 1.6}, diverged=("ALiBi",))
    found = measured.measured("ablation")
    assert capsys.readouterr().out == ""
    assert found is not None
    assert found == json.loads(json.dumps(found))
    gaps = measured.gaps(found)
    assert list(gaps) == list(measured.PARTS) == list(measured.COLOURS)
    assert gaps["ALiBi"] is None
    assert gaps["SwiGLU"].high < 0 < gaps["grouped"].low
    assert not gaps["RMSNorm"].excludes_zero
    ratios = measured.beyond(found)
    assert ratios["ALiBi"] is None
    assert ratios["rotary"].low < 1 < ratios["rotary"].high
    with matplotlib.rc_context():
        pictures.draw_worth({name: gap for name, gap in gaps.items() if gap is not None}, measured.COLOURS)
        assert [label.get_text() for label in plt.gca().get_yticklabels()] == [n for n in measured.PARTS if gaps[n]]
        plt.close()
