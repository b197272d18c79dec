"""Trials of GPTs and BERTs: their data sets and losses, and trials that need others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer.data.preparation import PreparedData, TextChoice
from minitransformer.data.rows import Rows
from minitransformer.models import BERTConfig, GPTConfig, build_model
from minitransformer.training import DataParallel, Dataset, TrainingSettings
from minitransformer.training.checkpoint import load_checkpoint
from study.trials.likelihood import row_losses
from study.trials.runner import Runner
from study.trials.text_models import TextLoss, TextTrial
from study.trials.trial import Trial

TEXT = TextChoice(vocab_size=400, sentences=200, max_length=64)
SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 1, "max_length": 64}
GPT = GPTConfig(400, **SIZES, bos_id=2, eos_id=2)
BERT = BERTConfig(401, **SIZES, mask_id=400)
SETTINGS = TrainingSettings(steps=6, tokens_per_batch=512, warmup_steps=2, peak_lr=1e-2, label_smoothing=0.0, threads=1)
EVALUATIONS = (TextLoss("short", 40, 16), TextLoss("long", 40, 32), TextLoss("late", 40, 32, skip=16))
TRIAL = TextTrial("gpt", TEXT, GPT, SETTINGS, EVALUATIONS, length=16)
FILLER = TextTrial("bert", TEXT, BERT, SETTINGS, (TextLoss(sentences=40),))


@dataclass(frozen=True)
class Following(TextTrial):
    """A trial that begins where another ended."""

    before: Trial = TRIAL

    @property
    def needs(self) -> tuple[Trial, ...]:
        return (self.before,)

    def material(self, data: PreparedData, models: Sequence[Path]) -> tuple[Dataset[Rows], Dataset[Rows]]:
        (path,) = models
        assert load_checkpoint(path).step == SETTINGS.steps
        return super().material(data, models)


def test_what_a_trial_needs_is_done_before_it(tmp_path: Path) -> None:
    runner = Runner(tmp_path, workers=1, say=lambda line: None)
    runner.run([Following("heavier than what it needs", TEXT, GPT, replace(SETTINGS, steps=8), EVALUATIONS[:1])])
    assert runner.result(TRIAL).steps == SETTINGS.steps


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A runner in which a trial was done that needs another, and one of a BERT."""
    runner = Runner(tmp_path_factory.mktemp("runner"), workers=1, say=lambda line: None)
    runner.run([Following("heavier than what it needs", TEXT, GPT, replace(SETTINGS, steps=8), EVALUATIONS), FILLER])
    return runner


def test_side_by_side_it_waits_for_what_it_needs(runner: Runner, tmp_path: Path) -> None:
    """Two workers, of which one would be free at once for the trial that needs the other."""
    other = Runner(tmp_path, workers=2, say=lambda line: None)
    waiting = Following("heavier than what it needs", TEXT, GPT, replace(SETTINGS, steps=8), EVALUATIONS)
    other.run([waiting])
    found, same = other.result(waiting), runner.result(waiting)
    assert found.answers().likelihood.tolist() == same.answers().likelihood.tolist()


def test_rows_have_the_trials_length(runner: Runner) -> None:
    for dataset in TRIAL.material(runner.data(TEXT), []):
        assert dataset.batches(64, 0, GPT).batch(0, 0).targets.shape == (4, 16)


def test_a_reading_asks_every_token_once(runner: Runner) -> None:
    result, data = runner.result(TRIAL), runner.data(TEXT)
    lines = [line for _, line in zip(range(40), TEXT.lines("test"), strict=False)]
    num_tokens = sum(len(data.tokenizer.encode(line)) + 1 for line in lines)
    for name in ("short", "long"):
        assert result.answers(name).likelihood[:, 1].sum() == num_tokens
    late, long = (result.answers(name).likelihood for name in ("late", "long"))
    assert np.all(late[:, 1] == long[: len(late), 1] - 16)
    assert np.all(late[:, 0] < long[: len(late), 0])


@pytest.mark.parametrize("config", [GPT, BERT], ids=["gpt", "bert"])
def test_losses_of_rows_add_up_to_the_models_loss(runner: Runner, config: Any) -> None:
    model = build_model(config, dtype="float64", seed=1)
    valid = replace(TRIAL, config=config).material(runner.data(TEXT), [])[1]
    batches = list(valid.batches(512, None, config).epoch(0))[:3]
    found = np.concatenate([row_losses(model, batch) for batch in batches]).sum(0)
    with DataParallel(model, threads=1) as workers:
        assert found[0] / found[1] == pytest.approx(workers.mean_loss(batches), rel=1e-9)


def test_a_model_that_fills_gaps_is_a_trial_too(runner: Runner) -> None:
    result = runner.result(FILLER)
    assert result.answers().likelihood[:, 1].sum() >= 40
    assert result.flops > 0
    assert load_checkpoint(runner.model_path(FILLER)).config["kind"] == "bert"


def test_the_length_of_rows_makes_another_trial() -> None:
    assert TRIAL.describe() != replace(TRIAL, length=32).describe()
    assert replace(TRIAL, length=64).weight > TRIAL.weight
