"""Trials: done once, resumed, side by side, and independent of all that."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from support.processes import dead_process, wait_for

from minitransformer.costs import flops_per_token
from minitransformer.data.batching import collate
from minitransformer.data.preparation import CorpusChoice
from minitransformer.data.token_dataset import Batches
from minitransformer.models import RecurrentConfig, TransformerConfig
from minitransformer.system.lock import locked
from minitransformer.system.sealed_json import seal
from minitransformer.training import Trainer, TrainingDiverged, TrainingSettings
from minitransformer.training.checkpoint import CheckpointError, load_checkpoint
from study.trials import run as running
from study.trials import runner as runners
from study.trials.run import Interrupted
from study.trials.runner import Runner
from study.trials.translating import Translating, likelihood
from study.trials.trial import Trial, TrialResult, step_flops

TEXT = CorpusChoice(vocab_size=400, sentences=200, max_length=160)
CONFIG = TransformerConfig(400, d_model=16, num_heads=2, d_ff=32, num_layers=1, max_length=160)
SETTINGS = TrainingSettings(steps=41, tokens_per_batch=512, warmup_steps=3, peak_lr=1e-2, threads=1)
EVALUATIONS = (Translating("mean", 6, averaged=True, beam=2), Translating("last", 6, beam=1))
TRIAL = Trial("small one", TEXT, CONFIG, SETTINGS, EVALUATIONS)
OTHER = replace(
    TRIAL, name="another", config=RecurrentConfig(400, d_model=16, max_length=160), settings=replace(SETTINGS, steps=5)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runner in which the first trial was done in this process."""
    folder = tmp_path_factory.mktemp("runner")
    Runner(folder, workers=1, say=lambda line: None).run([TRIAL])
    return folder


@pytest.fixture
def fresh(folder: Path, tmp_path: Path) -> Path:
    """A runner's folder that holds the text and nothing else."""
    shutil.copytree(folder / "data", tmp_path / "data")
    return tmp_path


def same(a: TrialResult, b: TrialResult) -> bool:
    """Equal but for what a clock says."""
    left, right = (json.loads(json.dumps(each.to_dict())) for each in (a, b))
    for values in (left, right):
        del values["seconds"]
        for point in values["curve"]:
            del point["seconds"]
        for evaluation in values["evaluations"].values():
            del evaluation["seconds"]
    return left == right


def test_a_trial_leaves_its_result_and_its_model(folder: Path) -> None:
    runner = Runner(folder)
    result = runner.result(TRIAL)
    assert result.steps == 41
    assert result.pairs == len(runner.data(TEXT).train)
    assert result.epochs == pytest.approx(41 / len(Batches(runner.data(TEXT).train, 512)))
    assert result.diverged is None
    assert set(result.evaluations) == {"mean", "last"}
    assert result.answers().statistics.shape == (6, 10)
    assert len(result.answers().hypotheses) == 6
    assert runner.model_path(TRIAL).is_file()
    assert not any((folder / "trainings").iterdir())


def test_the_likelihood_is_that_of_each_sentence_alone(folder: Path) -> None:
    runner = Runner(folder)
    model = load_checkpoint(runner.model_path(TRIAL), with_optimizer=False).model()
    pairs = [runner.data(TEXT).train[i] for i in range(5)]
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

    monkeypatch.setattr("study.trials.runner.run_trial", refuse)
    lines: list[str] = []
    Runner(folder, workers=1, say=lines.append).run([TRIAL, TRIAL])
    assert lines == ["1 of 1 trials are done already"]
    with pytest.raises(AssertionError, match="already"):
        Runner(folder, workers=1, say=lines.append).run([replace(TRIAL, settings=replace(SETTINGS, steps=42))])


def test_the_rest_is_told_from_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of twice the tokens are twice the work, and each of two workers does half of it."""
    told: list[str] = []
    clock = iter([1000.0, 1100.0, 1400.0, 1450.0])
    monkeypatch.setattr(runners, "perf_counter", lambda: next(clock))
    wide = replace(TRIAL, settings=replace(SETTINGS, tokens_per_batch=1024))
    progress = runners._Progress(0, [TRIAL, wide, wide], 2, told.append)
    result = TrialResult(parameters=1, steps=41, tokens=1, seconds=99.0, pairs=1, epochs=1.0, flops=1.0, curve=[])
    for trial, seconds in ((TRIAL, 120.0), (wide, 240.0), (wide, 240.0)):
        progress.done(trial, result, seconds)
    assert told[0] == "3 to do, 2 at a time, the longest first"
    left = [line.split("; ")[1] for line in told[1:]]
    assert left == ["about 3 minutes of training left"] + 2 * ["a minute or less of training left"]


def test_processes_side_by_side_come_to_the_same(folder: Path, fresh: Path) -> None:
    lines: list[str] = []
    runner = Runner(fresh, workers=2, say=lines.append)
    runner.run([TRIAL, OTHER])
    assert same(runner.result(TRIAL), Runner(folder).result(TRIAL))
    assert runner.result(OTHER).parameters != runner.result(TRIAL).parameters
    assert any("[2/2]" in line for line in lines)


def test_an_interrupted_trial_goes_on(folder: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer._train_step

    def interrupted_at_thirty(self: Trainer, workers: Any) -> Any:
        record = step(self, workers)
        if self.step == 30:
            signal.raise_signal(signal.SIGINT)
        return record

    lines: list[str] = []
    runner = Runner(fresh, workers=1, say=lines.append)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train_step", interrupted_at_thirty)
        with pytest.raises(Interrupted):
            runner.run([TRIAL])
    assert lines[-1] == "stopped with 0 of 1 trials done; training runs are saved"
    with pytest.raises(FileNotFoundError):
        runner.result(TRIAL)
    resumed: list[int] = []
    resume = Trainer.resume
    monkeypatch.setattr(Trainer, "resume", lambda self: (resume(self), resumed.append(self.step)))
    runner.run([TRIAL])
    assert resumed == [30]
    assert same(runner.result(TRIAL), Runner(folder).result(TRIAL))


def test_a_training_that_diverges_says_so(fresh: Path) -> None:
    runner = Runner(fresh, workers=1, say=lambda line: None)
    wild = replace(TRIAL, settings=replace(SETTINGS, warmup_steps=1, peak_lr=1e30))
    runner.run([wild])
    result = runner.result(wild)
    assert result.diverged is not None
    assert "step" in result.diverged
    assert not result.evaluations
    with pytest.raises(ValueError, match="no model to evaluate"):
        result.answers()


def test_the_first_step_may_diverge(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverging(self: Trainer, workers: Any) -> Any:
        raise TrainingDiverged("the loss of step 1 is nan")

    runner = Runner(fresh, workers=1, say=lambda line: None)
    monkeypatch.setattr(Trainer, "_train_step", diverging)
    runner.run([TRIAL])
    result = runner.result(TRIAL)
    assert (result.steps, result.flops, result.curve) == (0, 0.0, [])
    assert result.diverged == "the loss of step 1 is nan"


def test_the_mean_is_of_five_checkpoints(folder: Path) -> None:
    """41 steps: checkpoints at every second and at the last, which is no multiple."""
    checkpoint = load_checkpoint(Runner(folder).model_path(TRIAL))
    assert checkpoint.state["averaged_steps"] == [34, 36, 38, 40, 41]


def test_a_damaged_result_is_named_before_any_training_and_its_trial_done_again_once_it_is_deleted(
    folder: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, copy = Runner(folder), Runner(fresh, workers=1, say=lambda line: None)
    whole = runner._result(runner.key(TRIAL)).read_bytes()
    without_an_exam = runner.result(TRIAL).to_dict()
    del without_an_exam["evaluations"]["last"]
    damaged = [whole[:-20], b"{}", 10**5 * b"[", whole.replace(b"0", b"1", 1), b'{"evaluations": {}}']
    path = copy._result(copy.key(TRIAL))
    path.parent.mkdir()
    monkeypatch.setattr(runners, "run_trial", lambda *args: pytest.fail("it trains first"))
    said = ""
    for content in (*damaged, seal(without_an_exam)):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"small-one-\w+\.json is damaged .*: delete it, and the trial is done"
        ) as caught:
            copy.run([OTHER, TRIAL])
        said = str(caught.value)
    assert "not every evaluation is in it" in said
    path.unlink()
    monkeypatch.setattr(runners, "run_trial", lambda *args: runner.result(TRIAL))
    copy.run([TRIAL])
    assert same(copy.result(TRIAL), runner.result(TRIAL))


def test_what_was_deleted_is_made_again(folder: Path, tmp_path: Path) -> None:
    """The text without its training, the model with it; a model that is damaged is named."""
    shutil.copytree(folder, tmp_path / "copy")
    lines: list[str] = []
    runner = Runner(tmp_path / "copy", workers=1, say=lines.append)
    data, model = runner._data(TEXT), runner.model_path(TRIAL)
    before = model.read_bytes()
    (data / "train" / "ids.bin").unlink()
    for kind in ("models", "results"):
        (tmp_path / "copy" / kind / f"{runner.key(TRIAL)}.{dead_process()}.tmp").touch()  # left by a kill
    runner.run([TRIAL])
    assert not list(tmp_path.rglob("*.tmp"))
    assert len(runner.data(TEXT).train)
    assert lines == ["1 of 1 trials are done already"]
    model.write_bytes(before[:4000])
    with pytest.raises(CheckpointError, match=r"small-one-\w+\.safetensors .*: delete it, and the trial is done again"):
        runner.run([TRIAL])
    model.unlink()
    runner.run([TRIAL])
    assert model.read_bytes() == before
    assert same(runner.result(TRIAL), Runner(folder).result(TRIAL))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_checkpoint_is_named(workers: int, fresh: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runner = Runner(fresh, workers=workers, say=lambda line: None)
    training = fresh / "trainings" / runner.key(TRIAL)
    training.mkdir(parents=True)
    (training / "step-00000030.safetensors").write_bytes(b"half of it")
    with pytest.raises((CheckpointError, ChildProcessError)) as caught:
        runner.run([TRIAL])
    error = capfd.readouterr().err + str(caught.value)
    assert f"without {training}, the trial is done from its beginning" in error
    assert "Traceback" not in error
    shutil.rmtree(training)
    if workers == 1:
        runner.run([TRIAL])
        assert runner.result(TRIAL).steps == 41


def test_a_file_in_the_folder_s_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cannot make the folder .*file: File exists"):
        Runner(tmp_path / "file").run([])


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    runner = Runner(tmp_path, say=lambda line: None)
    said = f"{tmp_path} is in use by process {os.getpid()} since"
    with ThreadPoolExecutor() as others, locked(tmp_path), pytest.raises(BlockingIOError, match=said):
        others.submit(runner.run, []).result()
    runner.run([])


def test_another_edition_or_text_is_another_trial(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(folder)
    keys = {runner.key(TRIAL), replace(runner, backend="other").key(TRIAL)}
    with monkeypatch.context() as patch:
        patch.setattr(runners, "EDITION", 0)
        keys.add(runner.key(TRIAL))
    monkeypatch.setattr(runners, "fingerprint_of", lambda text: "changed")
    runners._fingerprint.cache_clear()
    keys.add(runner.key(TRIAL))
    runners._fingerprint.cache_clear()
    assert len(keys) == 4


def test_a_text_without_a_test_set_is_refused_before_any_training(tmp_path: Path) -> None:
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        (tmp_path / name).write_text("a b c\n" * 5, encoding="utf-8")
    text = CorpusChoice(dataset=None, data=str(tmp_path), vocab_size=400)
    with pytest.raises(FileNotFoundError, match="has no test set"):
        Runner(tmp_path / "work", say=lambda line: None).run([replace(TRIAL, text=text)])


@pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX (Linux, macOS)")
def test_trials_die_with_their_parent(fresh: Path) -> None:
    """Killed without a word, it leaves nobody who would write into the next run's folder."""
    endless = replace(TRIAL, settings=replace(SETTINGS, steps=10**6))
    program = f"""
import pickle, sys
from pathlib import Path
from study.trials.runner import Runner
if __name__ == "__main__":
    trial = pickle.loads({pickle.dumps(endless)!r})
    Runner(Path({str(fresh)!r}), workers=2, say=lambda line: None).run([trial])
"""
    script = fresh / "endless.py"
    script.write_text(program, encoding="utf-8")
    parent = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    log = fresh / "trainings" / Runner(fresh).key(endless) / "log.jsonl"
    wait_for(log.exists)
    parent.kill()
    parent.wait()
    wait_for(lambda: any(log.parent.glob("step-*.safetensors")))  # saved, as after Ctrl-C
    wait_for(lambda: unchanged(log))


def unchanged(path: Path) -> bool:
    size = path.stat().st_size
    sleep(1.0)
    return path.stat().st_size == size


def test_a_process_that_fails_ends_the_run(fresh: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A vocabulary that is not the text's: the child's traceback, and one line from the parent."""
    wrong = replace(TRIAL, config=replace(CONFIG, vocab_size=100))
    with pytest.raises(ChildProcessError, match="'small one' failed"):
        Runner(fresh, workers=2, say=lambda line: None).run([wrong])
    assert "ValueError" in capfd.readouterr().err


def test_operations_of_a_step_are_those_of_the_formula() -> None:
    assert step_flops(CONFIG, (4, 8, 8)) == pytest.approx(4 * 8 * 2 * flops_per_token(CONFIG, 8).training)


def test_counted_batches_are_spread_over_the_epoch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting all of them changes little."""
    data = Runner(folder).data(TEXT)
    some = running._batch_flops(TRIAL, data.train)
    monkeypatch.setattr(running, "COUNTED_BATCHES", 10**6)
    assert some == pytest.approx(running._batch_flops(TRIAL, data.train), rel=0.05)
