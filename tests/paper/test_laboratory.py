"""Trials: done once, resumed, side by side, and independent of all that."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer.costs import flops_per_token
from minitransformer.data.batching import collate
from minitransformer.data.preparation import CorpusChoice, prepare
from minitransformer.models import RecurrentConfig, TransformerConfig
from minitransformer.paper.trials import conduct as conducting
from minitransformer.paper.trials.conduct import Interrupted
from minitransformer.paper.trials.exam import likelihood
from minitransformer.paper.trials.laboratory import Laboratory
from minitransformer.paper.trials.trial import Exam, Trial, TrialResult, step_flops
from minitransformer.training import Trainer, TrainingSettings

TEXT = CorpusChoice(vocab_size=400, sentences=200, max_length=160)
CONFIG = TransformerConfig(400, d_model=16, num_heads=2, d_ff=32, num_layers=1, max_length=160)
SETTINGS = TrainingSettings(steps=6, tokens_per_batch=512, warmup_steps=3, peak_lr=1e-2, threads=1)
EXAMS = (Exam("mean", 6, averaged=True, beam=2), Exam("last", 6, beam=1))
TRIAL = Trial("small one", TEXT, CONFIG, SETTINGS, EXAMS)
OTHER = replace(TRIAL, name="another", config=RecurrentConfig(400, d_model=16, max_length=160))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A laboratory in which the first trial was done in this process."""
    folder = tmp_path_factory.mktemp("laboratory")
    Laboratory(folder, workers=1, say=lambda line: None).run([TRIAL])
    return folder


def same(a: TrialResult, b: TrialResult) -> bool:
    """Equal but for what a clock says."""
    left, right = (json.loads(json.dumps(each.to_dict())) for each in (a, b))
    for values in (left, right):
        del values["seconds"]
        for point in values["curve"]:
            del point["seconds"]
        for exam in values["exams"].values():
            del exam["seconds"]
    return left == right


def test_a_trial_leaves_its_result_and_its_model(folder: Path) -> None:
    laboratory = Laboratory(folder)
    result = laboratory.result(TRIAL)
    assert result.steps == 6
    assert result.diverged is None
    assert set(result.exams) == {"mean", "last"}
    assert result.exam.statistics.shape == (6, 10)
    assert len(result.exam.hypotheses) == 6
    assert laboratory.model_path(TRIAL).is_file()
    assert not any((folder / "trainings").iterdir())


def test_the_likelihood_is_that_of_each_sentence_alone(folder: Path) -> None:
    laboratory = Laboratory(folder)
    from minitransformer.checkpoint import load_checkpoint

    model = load_checkpoint(laboratory.model_path(TRIAL), with_optimizer=False).model()
    pairs = [laboratory.data(TEXT).train[i] for i in range(5)]
    sources, targets = ([list(map(int, pair[side])) for pair in pairs] for side in (0, 1))
    found = likelihood(model, sources, targets)
    for row, source, target in zip(found, sources, targets, strict=True):
        batch = collate([np.array(source)], [np.array(target)])
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, with_grad=False)
        assert row[1] == len(target) + 1
        assert row[0] / row[1] == pytest.approx(float(loss), rel=1e-5)


def test_a_trial_is_done_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("it was done already")

    monkeypatch.setattr("minitransformer.paper.trials.laboratory.conduct", refuse)
    lines: list[str] = []
    Laboratory(folder, workers=1, say=lines.append).run([TRIAL, TRIAL])
    assert lines == ["1 of 1 trials are done already"]
    with pytest.raises(AssertionError, match="already"):
        Laboratory(folder, workers=1, say=lines.append).run([replace(TRIAL, settings=replace(SETTINGS, steps=7))])


def test_processes_side_by_side_come_to_the_same(folder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    laboratory = Laboratory(tmp_path, workers=2, say=lines.append)
    laboratory.run([TRIAL, OTHER])
    assert same(laboratory.result(TRIAL), Laboratory(folder).result(TRIAL))
    assert laboratory.result(OTHER).parameters != laboratory.result(TRIAL).parameters
    assert any("[2/2]" in line for line in lines)


def test_an_interrupted_trial_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer._train_step

    def interrupted_at_three(self: Trainer, workers: Any) -> Any:
        record = step(self, workers)
        if self.step == 3:
            signal.raise_signal(signal.SIGINT)
        return record

    laboratory = Laboratory(tmp_path, workers=1, say=lambda line: None)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train_step", interrupted_at_three)
        with pytest.raises(Interrupted):
            laboratory.run([TRIAL])
    with pytest.raises(FileNotFoundError):
        laboratory.result(TRIAL)
    resumed: list[int] = []
    resume = Trainer.resume
    monkeypatch.setattr(Trainer, "resume", lambda self: (resume(self), resumed.append(self.step)))
    laboratory.run([TRIAL])
    assert resumed == [3]
    assert same(laboratory.result(TRIAL), Laboratory(folder).result(TRIAL))


def test_a_training_that_diverges_says_so(tmp_path: Path) -> None:
    prepare(tmp_path / "data", TEXT)
    laboratory = Laboratory(tmp_path, workers=1, say=lambda line: None)
    wild = replace(TRIAL, settings=replace(SETTINGS, steps=40, warmup_steps=1, peak_lr=1e30))
    laboratory.run([wild])
    result = laboratory.result(wild)
    assert result.diverged is not None
    assert "step" in result.diverged
    assert not result.exams
    with pytest.raises(ValueError, match="no model to examine"):
        result.exam  # noqa: B018


def test_a_process_that_fails_ends_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A vocabulary that is not the text's: the child's traceback, and one line from the parent."""
    wrong = replace(TRIAL, config=replace(CONFIG, vocab_size=100))
    with pytest.raises(ChildProcessError, match="'small one' failed"):
        Laboratory(tmp_path, workers=2, say=lambda line: None).run([wrong])
    assert "ValueError" in capfd.readouterr().err


def test_operations_of_a_step_are_those_of_the_formula() -> None:
    assert step_flops(CONFIG, (4, 8)) == pytest.approx(4 * 8 * 2 * flops_per_token(CONFIG, 8).training)


def test_counted_batches_are_spread_over_the_epoch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting all of them changes little."""
    data = Laboratory(folder).data(TEXT)
    some = conducting._batch_flops(TRIAL, data)
    monkeypatch.setattr(conducting, "COUNTED_BATCHES", 10**6)
    assert some == pytest.approx(conducting._batch_flops(TRIAL, data), rel=0.05)
