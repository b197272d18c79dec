"""The figures from a trained model, and what is said of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer.training.optimizer import noam
from paper.experiments import figures
from paper.task import GRAMMAR, Task
from study.experiment import Context, Findings
from study.trials.runner import Runner
from study.trials.translating import Translating
from study.trials.trial import Trial

TEXT = replace(GRAMMAR.text, vocab_size=500, sentences=300)
PICTURES = {"architecture", "attention", "schedule", "positions", "jobs", "heads", "long-distance", "agreement"}


def _tiny(task: Task, scale: float) -> Trial:
    config = task.transformer(d_model=16, num_heads=2, d_ff=16, num_layers=1)
    return Trial("tiny", task.text, config, task.training(4, tokens_per_batch=512), (Translating(sentences=2, beam=1),))


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A runner in which a tiny model has made four steps."""
    folder = tmp_path_factory.mktemp("figures")
    task = replace(GRAMMAR, text=TEXT)
    runner = Runner(folder, workers=1, say=lambda line: None)
    runner.run([_tiny(task, 1.0)])
    return Context(task, 1.0, runner)


@pytest.fixture(scope="module")
def findings(context: Context) -> Findings:
    """As the report finds them again, from JSON."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "translator", _tiny)
        patch.setattr(figures, "SEARCHED", 120)
        patch.setattr(figures, "JUDGED", 20)
        return json.loads(json.dumps(figures.find(context)))


def test_the_trial_is_table_2s() -> None:
    (trial,) = figures.trials(GRAMMAR, 0.01)
    assert trial.describe() == figures.translator(GRAMMAR, 0.01).describe()


def test_what_is_found(findings: Findings) -> None:
    assert {each["name"] for each in findings["dependencies"]} == {each.name for each in figures.DEPENDENCIES}
    for kind, jobs in findings["jobs"].items():
        measured = np.array(jobs["shares"])  # (layers, heads, 7)
        assert measured.shape == (1, 2, 7), kind
        np.testing.assert_allclose(measured[..., :-1].sum(-1), 1, atol=1e-3)
        assert sum(jobs["even"][:-1]) == pytest.approx(1, abs=1e-3)
    for name in ("long-distance", "agreement"):
        whole, alone = findings["pictures"][name]["panels"]
        assert np.shape(whole["weights"]) == (len(whole["queries"]), len(whole["keys"]))
        (query,) = alone["shown"]
        weight = sum(alone["weights"][query][key] for key in alone["marked"])
        assert weight == pytest.approx(findings["pictures"][name]["one"], abs=5e-4)


def test_the_pictures_are_drawn_from_findings_alone(findings: Findings, tmp_path: Path) -> None:
    figures.draw(findings, tmp_path)
    assert {path.stem.removeprefix("figures-") for path in tmp_path.glob("*.png")} == PICTURES
    assert {path.read_bytes()[:4] for path in tmp_path.glob("*.png")} == {b"\x89PNG"}
    text = "\n".join(figures.report(findings))
    assert {name for name in PICTURES if f"(pictures/figures-{name}.png)" in text} == PICTURES


def test_without_derivations_nothing_is_claimed(context: Context) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "translator", _tiny)
        patch.setattr(figures, "JUDGED", 20)
        patch.setattr(figures, "_has_derivations", lambda text: False)
        found = json.loads(json.dumps(figures.find(context)))
    text = "\n".join(figures.report(found))
    assert found["dependencies"] is None
    assert "nothing is claimed" in text
    assert "governor" not in text
    assert "agreement or reference" not in text
    assert {"long-distance", "agreement"} == set(found["pictures"])


def test_a_head_that_resolves_is_told_from_one_that_does_not(findings: Findings) -> None:
    name = findings["dependencies"][0]["name"]
    row = findings["dependencies"][0] | {"sentences": 20, "layer": 0, "head": 1, "others": 0.2, "even": 0.1}
    does = row | {"weight": [0.9, 0.8, 0.95], "beyond": [0.8, 0.7, 0.85]}
    does_not = row | {"weight": [0.1, 0.05, 0.2], "beyond": [0.0, -0.05, 0.1]}
    shown = {"words": ["an", "sieht"], "one": 0.91, "panels": []}

    def said(found: dict[str, Any]) -> str:
        pictures = {"long-distance": found | shown}
        return "\n".join(figures.report(findings | {"dependencies": [found], "pictures": pictures}))

    assert "Layer 1, head 2 of decoder self-attention gives the governor 0.90 (0.80 to 0.95), 9.0 times" in said(does)
    assert "No head" not in said(does)
    assert "No head does it: the best, layer 1, head 2" in said(does_not)
    assert f"No head gives the governor more than that: {name}." in said(does_not)
    assert "agreement or reference: the test set holds too few" in said(does)
    assert f"Too few sentences to judge: {name}." in said(does | {"sentences": 0})


def test_without_a_model_the_formulas_remain(findings: Findings, tmp_path: Path) -> None:
    diverged = {name: findings[name] for name in ("config", "batch")} | {"diverged": "the loss of step 3 is nan"}
    figures.draw(diverged, tmp_path)
    text = "\n".join(figures.report(diverged))
    assert "ended early: the loss of step 3 is nan." in text
    assert "Figure 3’s" not in text
    assert len(list(tmp_path.glob("*.png"))) == text.count("(pictures/") == 4


def test_every_peak_is_in_the_picture() -> None:
    for name, d_model, warmup, _ in figures.SCHEDULES:
        rates = [noam(step, d_model, warmup) for step in range(1, figures.STEPS + 1)]
        assert rates.index(max(rates)) + 1 == warmup, name
