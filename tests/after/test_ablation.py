"""Parts exchanged at equal cost: equal operations and parameters, what is told of made-up losses, and a small run."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.study_results import MadeUpReader

from after.experiments import ablation
from after.experiments.ablation import (
    BASE,
    BASE_NAME,
    BEYOND,
    BY_NAME,
    LATE,
    LENGTH,
    POSITIONS,
    SEEDS,
    VARIANTS,
    WITHIN,
    loss_by_place,
    trial,
)
from after.predictions import is_right
from after.task import Texts
from minitransformer.costs import flops_per_token
from minitransformer.data import preparation
from study.experiment import Context, Findings
from study.trials.bootstrap import Interval
from study.trials.run import CHECKPOINTS
from study.trials.runner import Runner
from study.trials.seeds import loss_of

pytestmark = pytest.mark.usefixtures("few_samples")


def test_all_trainings_cost_the_same() -> None:
    for each in ablation.trials(Texts(), 1.0):
        operations = each.tokens * flops_per_token(each.config, LENGTH).training
        of_steps = operations / each.settings.steps * CHECKPOINTS / 2  # steps are rounded to whole checkpoints
        assert operations == pytest.approx(ablation.OPERATIONS, abs=1.01 * of_steps)


def test_each_variant_exchanges_one_part() -> None:
    assert len({v.config for v in VARIANTS}) == len(VARIANTS)
    sizes = {name: variant.config.num_parameters for name, variant in BY_NAME.items()}
    assert sizes["SwiGLU"] == pytest.approx(sizes[BASE_NAME], rel=1e-3)
    assert sizes["ReLU"] == sizes["post-norm"] + 2 * BASE.d_model == sizes[BASE_NAME]
    assert sizes["rotary"] == sizes["no positions"] == sizes[BASE_NAME] - BASE.max_length * BASE.d_model
    assert sizes["grouped"] < sizes[BASE_NAME]
    assert sizes["RMSNorm"] == sizes[BASE_NAME] - (2 * BASE.num_layers + 1) * BASE.d_model  # no norm has a shift
    assert sizes["ALiBi"] == sizes["sinusoids"] == sizes["no positions"]
    assert sizes["relative bias"] == sizes["no positions"] + 32 * BASE.num_heads
    assert sizes["linear"] == sizes[BASE_NAME]


def found_for(losses: dict[str, float], monkeypatch: pytest.MonkeyPatch, **options: dict[str, str]) -> Findings:
    """Findings of made-up trainings whose losses are these, by the names of the variants."""
    monkeypatch.setattr(ablation, "loss_by_place", lambda path, data: [1.0] * 8)
    names = {trial(BY_NAME[n], s, Texts(), 1.0).name: (v, 0.002 * s) for n, v in losses.items() for s in SEEDS}
    runner = MadeUpReader({name: value + shift for name, (value, shift) in names.items()}, **options)
    return json.loads(json.dumps(ablation.find(Context(Texts(), 1.0, runner))))  # type: ignore[arg-type]


def test_what_differs_and_what_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_for({"RMSNorm": 1.501, "SwiGLU": 1.45, "linear": 1.6, "rotary": 1.4}, monkeypatch)
    text = "\n\n".join(ablation.report(found))
    assert "Better than the base: SwiGLU, rotary." in text
    assert "Worse than the base: linear." in text
    assert "No difference that these seeds and this test set can show: post-norm, RMSNorm" in text
    outcomes = ablation.judge(found)
    assert outcomes.keys() == found["predictions"].keys()
    assert outcomes["SwiGLU"].right
    assert outcomes["RMSNorm"].right
    assert outcomes["best positions"].right
    assert outcomes["relative positions"].right is None  # of ALiBi and relative bias nothing can be told
    assert is_right(found["predictions"]["linear"], outcomes["linear"])
    ablation.draw(found, tmp_path)
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {path.stem for path in tmp_path.glob("*.png")}


def test_sinusoids_are_held_against_no_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_for({"sinusoids": 1.7, "scaled sinusoids": 1.501}, monkeypatch)
    text = "\n".join(ablation.report(found))
    assert re.search(
        r"Sinusoids are worse than no positions at all: sinusoids minus no positions: \+0\.20\d* \([^;]*\)\. This", text
    )
    assert "worse than no positions" not in "\n".join(ablation.report(found_for({}, monkeypatch)))


def test_what_is_not_counted_of_linear_attention_is_said() -> None:
    """A row of 64 tokens is one chunk: 4 heads of width 16 multiply (64, 16) with (16, 64), and (64, 64) with (64, 17).

    What is counted beside it, for a token: four layers of 2 · 64 · (4 · 64 + 2 · 256) and 4 heads' 2 · 2 · 16 · 17, and
    the table of tokens.
    """
    uncounted = 4 * 4 * 2 * (64 * 16 * 64 + 64 * 64 * 17) / 64
    counted = 4 * (2 * 64 * (4 * 64 + 2 * 256) + 4 * 2 * 2 * 16 * 17) + 2 * 64 * 1000
    assert ablation.chunked_share() == pytest.approx(uncounted / counted)


def test_longer_rows_are_held_against_the_second_half_of_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_for({}, monkeypatch)
    found["variants"][BASE_NAME]["losses"] = {WITHIN: [0.5] * 3, LATE: [1.0] * 3, BEYOND: [2.0, 2.0, 3.5]}
    found["stretched"][ablation.LEARNED] = {"value": 1.5, "low": 0.0, "high": 3.0}
    assert ablation.stretched(found, ablation.LEARNED) == Interval(*np.exp([1.5, 0.0, 3.0]))
    row = next(line for line in ablation.report(found) if line.startswith("| positions")).splitlines()[2]
    assert row == "| learned | 2.72 | 12.18 | 4.482 (1.000 to 20.086) |"  # the ratio is that of the two columns


@pytest.mark.parametrize(
    ("gap", "right"), [((-0.005, 0.009), True), ((-0.005, 0.011), None), ((0.002, 0.012), False), ((0.1, 0.2), False)]
)
def test_no_difference_is_right_where_all_of_the_interval_is_small(
    gap: tuple[float, float], right: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interval that holds zero and much else tells nothing."""
    found = found_for({}, monkeypatch)
    found["differences"]["RMSNorm"] = {"value": sum(gap) / 2, "low": gap[0], "high": gap[1]}
    assert ablation.judge(found)["RMSNorm"].right is right


@pytest.mark.parametrize(("rotary", "ALiBi", "right"), [(1.4, 1.45, True), (1.45, 1.4, False), (1.401, 1.4, None)])
def test_rotary_positions_are_held_against_the_best_of_all_others(
    rotary: float, ALiBi: float, right: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not against the second best: where three are alike, the third is not wrong."""
    losses = {"rotary": rotary, "ALiBi": ALiBi, "sinusoids": ALiBi + 0.0005}
    outcome = ablation.judge(found_for(losses, monkeypatch))["best positions"]
    assert outcome.right is right
    assert outcome.came.endswith("against ALiBi")


def test_variants_that_diverge_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = trial(BY_NAME["rotary"], 1, Texts(), 1.0).name
    found = found_for({}, monkeypatch, diverged={gone: "the loss of step 2 is nan"})
    text = "\n\n".join(ablation.report(found))
    assert "Not to be compared, because a training run diverged: rotary." in text
    ablation.draw(found, tmp_path)
    of_base = {trial(BY_NAME[BASE_NAME], seed, Texts(), 1.0).name: "nan" for seed in SEEDS}
    found = found_for({}, monkeypatch, diverged=of_base)
    assert ablation.report(found) == ["The base diverged: nothing can be compared with it."]


def test_it_runs_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four variants and two seeds, small and of a few steps, on few sentences."""
    monkeypatch.setattr(preparation, "GRAMMAR_VALIDATION", 30)
    monkeypatch.setattr("study.trials.run.CHECKPOINTS", 5)
    monkeypatch.setattr(ablation, "BASE", replace(BASE, d_model=16, num_heads=2, d_ff=16, num_layers=1))
    monkeypatch.setattr(ablation, "SENTENCES", 200)
    monkeypatch.setattr(ablation, "SEEDS", (0, 1))
    monkeypatch.setattr(ablation, "VARIANTS", [BY_NAME[name] for name in (BASE_NAME, "ReLU", "SwiGLU", "rotary")])
    monkeypatch.setattr(ablation, "POSITIONS", {name: POSITIONS[name] for name in (ablation.LEARNED, "rotary")})
    runner = Runner(tmp_path, workers=1, say=lambda line: None)
    runner.run(ablation.trials(Texts(), 1e-4))
    found = ablation.find(Context(Texts(), 1e-4, runner))
    base = found["variants"][BASE_NAME]
    assert [len(base["losses"][name]) for name in (WITHIN, LATE, BEYOND)] == [2, 2, 2]
    answers = runner.result(trial(BY_NAME[BASE_NAME], 0, Texts(), 1e-4)).answers
    asked = {name: answers(name).likelihood[0, 1] for name in (WITHIN, LATE, BEYOND)}
    assert asked == {WITHIN: 64, LATE: 32, BEYOND: 192}
    assert found["differences"]["rotary"]["low"] < found["differences"]["rotary"]["high"]

    rise = np.mean(np.subtract(base["losses"][BEYOND], base["losses"][LATE]))
    assert found["stretched"][ablation.LEARNED]["value"] == pytest.approx(rise)

    first = trial(BY_NAME[BASE_NAME], 0, Texts(), 1e-4)
    places, data = found["places"][ablation.LEARNED], runner.data(first.text)
    late = loss_of(runner.result(first).answers(BEYOND).likelihood)
    assert len(places) == 8
    assert np.mean(places[2:]) == pytest.approx(late, rel=0.02)  # the last row is not whole
    assert loss_by_place(runner.model_path(first), data, 64) == pytest.approx(places[:2], rel=0.1)
    assert replace(first, length=32).describe() != first.describe()
