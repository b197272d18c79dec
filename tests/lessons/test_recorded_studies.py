"""Lesson 25's sentences on recorded results follow from the numbers, and say so where there are none."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from support.study_fixtures import few_samples  # noqa: F401 - a fixture, used by its name
from support.study_results import MadeUpReader, MadeUpRunner

from after.command import STUDY
from after.experiments import distillation, scaling
from after.experiments.distillation import BASELINE, BOTH, SEQUENCES, TEACHER, WORDS
from after.experiments.scaling import ALL, ASIDE, fit
from after.experiments.scaling.fit import Law
from after.task import Texts
from course.lesson_25 import pictures, studies
from study.experiment import Context, Findings
from study.report import Origin, save_findings

LAW = Law(np.log(60.0), 0.45, np.log(900.0), 0.5, np.log(1.7))
GRID = fit.starts()


pytestmark = pytest.mark.usefixtures("few_samples", "fewer")


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fewer starts and samples; pictures that are closed again."""
    monkeypatch.setattr(fit, "starts", lambda: GRID[::90])
    monkeypatch.setattr(fit, "BOOTSTRAPS", 10)
    monkeypatch.setattr(fit, "RESTARTS", 2)
    with matplotlib.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


class MadeUp(MadeUpReader):
    """Losses that follow a law; that of the size kept aside is `off` times as high."""

    off = 1.0

    def result(self, trial: Any) -> Any:
        found = super().result(trial)
        loss = LAW.loss(trial.config.num_parameters, trial.tokens)
        loss *= self.off if trial.config.num_parameters == ASIDE.parameters[ALL] else 1
        for answers in found.evaluations.values():
            answers.likelihood[:, 0] *= loss / 1.5
        return type(found)(**{**vars(found), "tokens": trial.tokens})


def trainings(off: float = 1.0, diverged: dict[str, str] | None = None) -> Findings:
    runner = MadeUp({}, diverged or {})
    runner.off = off
    return json.loads(json.dumps(scaling.find(Context(Texts(), 1.0, runner))))  # type: ignore[arg-type]


def translators(
    monkeypatch: pytest.MonkeyPatch, diverged: dict[str, str] | None = None, **qualities: float
) -> Findings:
    seconds = {TEACHER: 2.0, BASELINE: 1.0}
    times = {name: {search: [[s], [s]] for search in ("greedy", "beam")} for name, s in seconds.items()}
    monkeypatch.setattr(distillation, "_times", lambda runner, timed: {name: times[name] for name in timed})
    named = {f"distillation {name.replace('_', ' ')}": value for name, value in qualities.items()}
    found = distillation.find(Context(Texts(), 1.0, MadeUpRunner(named, diverged or {})))  # type: ignore[arg-type]
    return json.loads(json.dumps(found))


def test_what_has_not_run_is_told_with_the_command_that_runs_it(tmp_path: Path, capsys: Any) -> None:
    assert studies.findings("scaling", tmp_path) is None
    assert 'Not measured yet: make after ARGS="scaling"' in capsys.readouterr().out


def test_what_has_run_is_read(tmp_path: Path, capsys: Any) -> None:
    found = trainings()
    origin = Origin("python -m after scaling", "all", 39.0, 1.0, 70.0, "NumPy", "a machine", 4)
    (tmp_path / "results").mkdir()
    save_findings(STUDY, tmp_path, scaling, origin, found)
    assert studies.findings("scaling", tmp_path) == found
    assert studies.findings("distillation", tmp_path) is None
    assert "python -m after scaling: 70 core-minutes; a machine" in capsys.readouterr().out


def test_a_law_that_is_right_and_one_that_is_wrong() -> None:
    right, wrong = trainings(), trainings(off=1.3)
    assert "outside the law's interval. The law is off by −23.08 (" in "\n".join(studies.scaling_verdicts(wrong))
    assert re.search(
        r"inside the law's interval\. The law is off by [+−]0\.0", "\n".join(studies.scaling_verdicts(right))
    )
    table = studies.scaling_table(right)
    assert len(table) == 1 + len(scaling.SIZES) + 1
    assert table[-1].endswith("kept aside")
    assert "the losses of all other sizes with its budget" in studies.what_is_known(right)
    assert studies.scaling_verdicts(right)[-1].startswith("Guesses without any law")
    assert len(studies.law_table(right)) == 3
    assert any(line.startswith("WRONG: the fit predicts") for line in studies.predicted(scaling, wrong))
    pictures.draw_trainings(right, lambda n, d: 1.7 + 60 / n**0.45 + 900 / d**0.5)


def test_trainings_that_diverged() -> None:
    names = [each.name for each in scaling.trials(Texts(), 1.0)]
    some = trainings(diverged={names[0]: "nan", names[-1]: "nan"})
    assert "The training that was kept aside diverged." in studies.scaling_verdicts(some)
    assert "diverged" in studies.scaling_table(some)[1]
    assert len(studies.whole(some)) == len(names) - 2
    pictures.draw_trainings(some, lambda n, d: 1.7 + 60 / n**0.45 + 900 / d**0.5)
    none = trainings(diverged=dict.fromkeys(names, "nan"))
    assert studies.scaling_verdicts(none) == ["Too many training runs diverged to fit a law."]
    assert studies.predicted(scaling, none)
    assert len(studies.scaling_table(none)) == 1 + len(scaling.SIZES) + 1


def test_students(monkeypatch: pytest.MonkeyPatch) -> None:
    found = translators(
        monkeypatch, teacher=0.9, student_alone=0.3, word_level=0.32, sequence_level=0.5, both_levels=0.75
    )
    said = "\n".join(studies.distillation_verdicts(found))
    assert "Greedy: Sequence level is better than student alone by" in said
    assert "sequence level is lower than student alone" in said
    assert f"The best student, {BOTH}, makes up for" in said
    assert len(studies.distillation_table(found)) == 6
    assert studies.predicted(distillation, found)
    pictures.draw_bleu(found)
    equal = translators(monkeypatch)
    assert "The teacher is not shown to be better than the student alone." in studies.distillation_verdicts(equal)


def test_students_that_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = translators(monkeypatch, diverged={f"distillation {SEQUENCES}": "nan", f"distillation {WORDS}": "nan"})
    assert studies.trained(found) == [TEACHER, BASELINE, BOTH]
    said = studies.distillation_verdicts(found)
    assert any("can't be compared" in line for line in said)
    assert not any("Perplexity" in line for line in said)
    assert "diverged: nan" in studies.distillation_table(found)[3]
    pictures.draw_bleu(found)
    nothing = translators(monkeypatch, diverged={f"distillation {name}": "nan" for name in found["models"]})
    pictures.draw_bleu(nothing)
    assert studies.distillation_verdicts(nothing)
