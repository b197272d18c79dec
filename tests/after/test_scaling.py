"""Scaling laws: the fit finds laws that are known, in spite of outliers; the grid of trainings; the report."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.study_results import MadeUpReader

from after.experiments import scaling
from after.experiments.scaling import ALL, ASIDE, BUDGETS, LENGTH, SIZES, WITHOUT, Size, fit, trial
from after.experiments.scaling.fit import DELTA, Fit, Law, huber, log_losses, starts
from after.task import Texts
from minitransformer.costs import flops_per_token
from study.experiment import Context, Findings
from study.trials.runner import Runner

GRID = starts()
LAW = Law(np.log(60.0), 0.45, np.log(900.0), 0.5, np.log(1.7))
RNG = np.random.default_rng(0)
N = np.array([size.parameters[ALL] for _, sizes in BUDGETS for size in sizes], float)
D = np.array([operations / 6 for operations, sizes in BUDGETS for _ in sizes]) / N
LOSSES = np.array([LAW.loss(n, d) for n, d in zip(N, D, strict=True)])

pytestmark = pytest.mark.usefixtures("few_samples")


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer starts and samples, which are enough for laws without much noise."""
    monkeypatch.setattr(fit, "starts", lambda: GRID[::45])
    monkeypatch.setattr(fit, "BOOTSTRAPS", 20)
    monkeypatch.setattr(fit, "RESTARTS", 3)


def test_the_grid_of_starts_is_hoffmanns() -> None:
    assert GRID.shape == (4500, 5)


def test_a_law_without_noise_is_found() -> None:
    found = Fit(N, D, LOSSES).law
    for name, value in LAW.constants.items():
        assert found.constants[name] == pytest.approx(value, rel=1e-3), name


def test_noise_and_an_outlier_leave_it_near() -> None:
    noisy = LOSSES * np.exp(0.002 * RNG.standard_normal(len(LOSSES)))
    noisy[7] *= 1.2
    found = Fit(N, D, noisy)
    assert found.law.alpha == pytest.approx(LAW.alpha, abs=0.06)
    assert found.law.optimum == pytest.approx(LAW.optimum, abs=0.06)
    assert np.abs(found.misses()).argmax() == 7
    low, high = np.percentile([each.optimum for each in found.samples], [2.5, 97.5])
    assert low < LAW.optimum < high


def test_the_prediction_is_the_sum_of_three_terms() -> None:
    assert LAW.loss(1e5, 1e7) == pytest.approx(1.7 + 60 / 1e5**0.45 + 900 / 1e7**0.5)
    theta = np.array([[1.0, 0.3, 2.0, 0.4, 0.1]])
    _, shares = log_losses(theta, np.log(N), np.log(D))
    assert shares.sum(-1) == pytest.approx(1)


def test_the_optimum_is_where_the_loss_is_least() -> None:
    """For two budgets C = 6 N D the best size is searched: its exponent is the law's."""
    sizes, best = np.geomspace(1e3, 1e9, 20_001), []
    for operations in (1e13, 1e15):
        losses = 60 / sizes**0.45 + 900 / (operations / 6 / sizes) ** 0.5
        best.append(sizes[losses.argmin()])
    assert np.log10(best[1] / best[0]) / 2 == pytest.approx(LAW.optimum, abs=1e-3)


def test_the_minimum_has_no_slope() -> None:
    """Central differences of the Huber loss at the fit, in each constant."""
    noisy = LOSSES * np.exp(0.002 * np.random.default_rng(1).standard_normal(len(LOSSES)))
    law = Fit(N, D, noisy).law
    theta = np.array([[law.a, law.alpha, law.b, law.beta, law.e]])

    def loss(at: np.ndarray) -> float:
        return float(huber(log_losses(at, np.log(N), np.log(D))[0] - np.log(noisy)).sum())

    for place in range(5):
        step = np.eye(5)[place] * 1e-4
        assert loss(theta) <= min(loss(theta + step), loss(theta - step)) + 1e-15
    assert huber(np.array([DELTA, 3 * DELTA])) == pytest.approx([DELTA**2 / 2, 2.5 * DELTA**2])


def test_the_trainings_span_two_decades() -> None:
    trials = scaling.trials(Texts(), 1.0)
    assert len(trials) - 1 >= 16
    operations = [each.tokens * flops_per_token(each.config, LENGTH).training for each in trials]
    assert max(operations) / min(operations) == pytest.approx(100, rel=0.1)
    assert len({each.name for each in trials}) == len(trials)
    assert all(each.settings.warmup_steps * 8 <= each.settings.steps for each in trials)


def test_embeddings_are_a_part_of_the_parameters() -> None:
    for size in (*SIZES, ASIDE):
        tree = size.config.decoder
        assert size.parameters[WITHOUT] == tree.num_parameters()
        assert size.parameters[ALL] == size.config.num_parameters


class MadeUp(MadeUpReader):
    """Losses that follow a law."""

    def result(self, trial: Any) -> Any:
        found = super().result(trial)
        tokens = trial.tokens
        loss = LAW.loss(trial.config.num_parameters, tokens)
        for answers in found.evaluations.values():
            answers.likelihood[:, 0] *= loss / 1.5
        return type(found)(**{**vars(found), "tokens": tokens})


def found_for(diverged: dict[str, str] | None = None) -> Findings:
    context: Any = Context(Texts(), 1.0, MadeUp({}, diverged or {}))  # type: ignore[arg-type]
    return json.loads(json.dumps(scaling.find(context)))


def test_it_is_told_and_drawn(tmp_path: Path) -> None:
    found = found_for()
    text = "\n\n".join(scaling.report(found))
    scaling.draw(found, tmp_path)
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {path.stem for path in tmp_path.glob("*.png")}
    assert scaling.judge(found).keys() == found["predictions"].keys()
    assert found["laws"][ALL]["aside"][0] == pytest.approx(found["aside"]["loss"], rel=0.005)
    assert found["laws"][ALL]["constants"]["α"][0] == pytest.approx(0.45, abs=0.03)
    for count, law in found["laws"].items():
        n, d = found["aside"]["parameters"][count], found["aside"]["tokens"]
        assert law["aside"][0] == pytest.approx(Law(*law["law"]).loss(n, d))
    optimum = {count: law["constants"]["optimum"][0] for count, law in found["laws"].items()}
    assert found["gap"][0] == pytest.approx(optimum[WITHOUT] - optimum[ALL])
    assert found["gap"][1] <= found["gap"][0] <= found["gap"][2]


def test_trainings_that_diverged_are_told(tmp_path: Path) -> None:
    aside = trial(ASIDE, scaling.LARGEST, Texts(), 1.0).name
    one = trial(SIZES[0], BUDGETS[0][0], Texts(), 1.0).name
    found = found_for({aside: "nan", one: "nan"})
    assert "kept aside" in "\n".join(scaling.report(found))
    scaling.draw(found, tmp_path)
    none = found_for({each.name: "nan" for each in scaling.trials(Texts(), 1.0)})
    assert scaling.report(none) == ["Too many trainings diverged to fit a law."]
    scaling.draw(none, tmp_path / "none")


def test_it_runs_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "SENTENCES", 300)
    monkeypatch.setattr(scaling, "BUDGETS", [(1e9, [Size(8, 1, 1), Size(16, 1, 1)]), (3e9, [Size(8, 1, 1)])])
    monkeypatch.setattr(scaling, "ASIDE", Size(16, 2, 1))
    monkeypatch.setattr(scaling, "LARGEST", 3e9)
    runner = Runner(tmp_path, workers=1, say=lambda line: None)
    runner.run(scaling.trials(Texts(), 0.1))
    found = scaling.find(Context(Texts(), 0.1, runner))
    assert [run["diverged"] for run in found["runs"]] == [None] * 3
    assert found["laws"] == {}  # too few to fit
