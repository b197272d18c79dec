"""A training that is killed or stopped, however often, ends with the same bits as one that never was."""

import os
import random
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from support.folders import assert_same_training, contents, largest_file
from support.processes import dead_process, in_a_fork, killed_at, signal_before_operation
from support.toy_training import SETTINGS, backwards, toy_model, toy_trainer

from minitransformer.data.token_dataset import TokenDataset
from minitransformer.system.lock import locked
from minitransformer.system.sealed_json import seal
from minitransformer.training import read_log
from minitransformer.training.checkpoint import (
    CheckpointError,
    checkpoint_path,
    latest,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
)

LONG = 200


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    toy_trainer(folder).train()
    return folder


@pytest.fixture(scope="module")
def uninterrupted_long(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted-long")
    toy_trainer(folder, replace(SETTINGS, steps=LONG)).train()
    return folder


def newest(folder):
    return load_checkpoint(list_checkpoints(folder)[-1])


def go_on(folder, steps=SETTINGS.steps):
    """Start or resume the toy training in `folder`, and let it end."""
    trainer = toy_trainer(folder, replace(SETTINGS, steps=steps))
    if latest(folder) is not None:
        trainer.resume()
    return trainer.train()


def kill_and_resume(folder, moments, steps=SETTINGS.steps):
    """Kill the training at each of `moments` in turn (see `killed_at`), and let it end; the kills that came in time."""
    kills = 0
    for moment in moments:
        kills += killed_at(moment, folder, lambda: go_on(folder, steps) and None)
        for path in list_checkpoints(folder):  # complete at any moment
            load_checkpoint(path)
    go_on(folder, steps)
    return kills


def test_killed_thrice(tmp_path, uninterrupted):
    assert kill_and_resume(tmp_path, [6, 24, 0.02]) >= 2
    assert_same_training(tmp_path, uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(tmp_path, uninterrupted_long, seed):
    rng = random.Random(seed)
    moments = [rng.choice([rng.uniform(0, 0.1), rng.randrange(29)]) for _ in range(20)]
    assert kill_and_resume(tmp_path, moments, LONG) >= 15
    assert_same_training(tmp_path, uninterrupted_long)


@pytest.mark.slow
def test_killed_at_every_file_operation_around_two_checkpoints(tmp_path, uninterrupted):
    for operation in range(29):
        assert kill_and_resume(tmp_path / str(operation), [operation]) == 1
        assert_same_training(tmp_path / str(operation), uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_saves_and_changes_nothing(tmp_path, uninterrupted, number):
    folder, said = tmp_path / "run", tmp_path / "said"

    def stopped():
        signal_before_operation(10, folder, number)
        said.write_text(str(go_on(folder)))

    assert os.waitpid(in_a_fork(stopped), 0)[1] == 0
    step = newest(folder).step
    assert 4 < step < 8
    saved = f"saved {checkpoint_path(folder, step)}; --resume continues from there"
    assert said.read_text() == f"interrupted after step {step}; {saved}"
    assert read_log(folder / "log.jsonl")[-1]["step"] == step
    go_on(folder)
    assert_same_training(folder, uninterrupted)


def test_stopping_twice_between_checkpoints(tmp_path, uninterrupted):
    """In one process: a stop asked for during validation, and another before the next checkpoint."""
    for stop_at in (9, 18):
        trainer = toy_trainer(tmp_path, evaluate=lambda *_: signal.raise_signal(signal.SIGINT) or {})
        if stop_at > 9:
            trainer.resume()
        outcome = trainer.train()
        assert (outcome.step, outcome.reason) == (stop_at, "interrupted")
    trainer = toy_trainer(tmp_path)
    trainer.resume()
    assert str(trainer.train()).startswith(f"finished after step {SETTINGS.steps}; saved ")
    for path in list_checkpoints(uninterrupted):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_no_space_left_loses_nothing(tmp_path, uninterrupted):
    with ExitStack() as disk:
        trainer = toy_trainer(tmp_path, evaluate=lambda *_: disk.enter_context(largest_file(10_000)) or {})
        with pytest.raises(OSError, match=r"cannot write .*step-00000012.safetensors: File too large"):
            trainer.train()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "log.jsonl", "step-00000004.safetensors", "step-00000008.safetensors"
    ]  # fmt: skip
    go_on(tmp_path)
    assert_same_training(tmp_path, uninterrupted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, step=8), "is not of the step that its name says, but of step 8"),
        (lambda c: replace(c, optimizer={**c.optimizer, "num_steps": np.array(9)}), "of step 4, its optimiser of 9"),
        (lambda c: replace(c, state={**c.state, "settings": {"minutes": "x"}}), "minutes must be a number, got str"),
        (lambda c: replace(c, state={**c.state, "settings": {"threads": 1e9}}), "threads must be an integer"),
        (lambda c: replace(c, state={k: v for k, v in c.state.items() if k != "tokens"}), "no training to resume"),
    ],
)
def test_a_checkpoint_that_contradicts_itself_is_not_resumed(tmp_path, change, message):
    toy_trainer(tmp_path, replace(SETTINGS, steps=4)).train()
    path = latest(tmp_path)
    assert path
    save_checkpoint(path, change(load_checkpoint(path)))
    with pytest.raises(CheckpointError, match=message):
        toy_trainer(tmp_path).resume()


def test_more_steps_continue_the_same_training(tmp_path, uninterrupted):
    toy_trainer(tmp_path, replace(SETTINGS, steps=22)).train()
    trainer = toy_trainer(tmp_path)
    trainer.resume()
    trainer.train()
    ours, theirs = newest(tmp_path), newest(uninterrupted)
    for name, array in theirs.parameters.items():
        assert array.tobytes() == ours.parameters[name].tobytes()


def test_resuming_what_is_finished_changes_nothing(tmp_path):
    settings = replace(SETTINGS, steps=3)
    toy_trainer(tmp_path, settings).train()
    before = contents(tmp_path)
    trainer = toy_trainer(tmp_path, settings)
    trainer.resume()
    assert trainer.train().step == 3
    assert contents(tmp_path) == before


def test_killed_after_the_last_checkpoint_and_before_tidying_up(tmp_path, uninterrupted):
    shutil.copytree(uninterrupted, tmp_path, dirs_exist_ok=True)
    save_checkpoint(tmp_path / "step-00000032.safetensors", replace(newest(uninterrupted), step=32))  # not yet removed
    go_on(tmp_path)
    assert_same_training(tmp_path, uninterrupted)


def one_id_changed(dataset):
    """Return a dataset of the same lengths, and nearly the same sentences."""
    pairs = list(dataset)
    source, target = pairs[70]
    pairs[70] = source, np.append(target[:-1], target[-1] % 9 + 3)
    return TokenDataset.from_pairs(pairs)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    toy_trainer(folder, replace(SETTINGS, steps=1)).train()
    return folder


@pytest.mark.parametrize(
    ("settings", "options", "error", "message"),
    [
        ({"seed": 6, "eps": 1e-8}, {}, ValueError, "eps was 1e-09 and is 1e-08, seed was 5 and is 6"),
        ({}, {"dataset": backwards(151, seed=0)}, CheckpointError, "was trained on other data"),
        ({}, {"dataset": one_id_changed(backwards(150, seed=0))}, CheckpointError, "was trained on other data"),
        ({}, {"model": toy_model("float64")}, CheckpointError, "holds float32, but the model is of float64"),
        ({}, {"tokenizer": None}, CheckpointError, "was trained with another tokenizer"),
        ({}, {"model": toy_model(d_ff=64)}, CheckpointError, "d_ff is 32 in the checkpoint and 64 in the model"),
    ],
)
def test_what_does_not_continue_a_training(begun, settings, options, error, message):
    trainer = toy_trainer(begun, replace(SETTINGS, **settings), **options)
    with pytest.raises(error, match=message):
        trainer.resume()


def test_nothing_to_resume_from(tmp_path, begun):
    with pytest.raises(FileNotFoundError, match="there is no checkpoint to resume from in"):
        toy_trainer(tmp_path).resume()
    weights = replace(newest(begun), optimizer=None, state={})
    save_checkpoint(tmp_path / "step-00000001.safetensors", weights)
    with pytest.raises(CheckpointError, match="holds a model but no training to resume"):
        toy_trainer(tmp_path).resume()


def test_a_training_is_not_written_over(begun):
    before = contents(begun)
    with pytest.raises(FileExistsError, match="already holds a training, up to step-00000001"):
        toy_trainer(begun).train()
    assert contents(begun) == before


def test_half_written_files_are_cleared_away_once_their_process_is_dead(tmp_path):
    names = ("step-00000009.safetensors", "log.jsonl", "loss.png", "average.safetensors", "step-notes.safetensors")
    for name in names:
        for process in (dead_process(), os.getppid()):
            (tmp_path / f"{name}.{process}.tmp").write_bytes(b"half")
    (tmp_path / "notes.tmp").write_bytes(b"half")
    (tmp_path / "log.jsonl").write_bytes(seal({"step": 1, "seconds": 1.0}) + b'{"step": 2, "sec')
    before = {path.name for path in tmp_path.iterdir()}
    toy_trainer(tmp_path, replace(SETTINGS, steps=1)).train()
    after = {path.name for path in tmp_path.iterdir()}
    assert before - after == {f"{name}.{dead_process()}.tmp" for name in names[:3]}
    assert after - before == {"step-00000001.safetensors"}
    assert [record["step"] for record in read_log(tmp_path / "log.jsonl")] == [1]


@pytest.mark.parametrize("change", [None, "data", "settings", "step"])
def test_a_checkpoint_of_another_training_is_neither_removed_nor_gone_past(tmp_path, uninterrupted, change):
    """One that somebody keeps in the folder under a name like the training's own."""
    shutil.copytree(uninterrupted, tmp_path, dirs_exist_ok=True)
    stranger, checkpoint = tmp_path / "step-00000001.safetensors", newest(uninterrupted)
    other = {"data": {"pairs": 1, "crc32": 0}, "settings": checkpoint.state["settings"] | {"seed": 6}}
    state = checkpoint.state | {name: value for name, value in other.items() if name == change}
    save_checkpoint(stranger, replace(checkpoint, step=40 if change == "step" else 1, state=state))
    if change is None:
        stranger.write_bytes(b"weights of mine")
    kept = stranger.read_bytes()
    trainer = toy_trainer(tmp_path, replace(SETTINGS, steps=41))
    trainer.resume()
    with pytest.raises(FileExistsError, match=r"00000001\.safetensors is not a checkpoint of this training: move it"):
        trainer.train()
    assert stranger.read_bytes() == kept
    stranger.rename(tmp_path.with_name("elsewhere"))  # as it says
    assert trainer.train().step == 41


def test_a_file_that_appears_while_training_is_not_pruned(tmp_path):
    def drop_a_file(model, figures):
        (tmp_path / "step-00000001.safetensors").write_bytes(b"weights of mine")
        return {}

    toy_trainer(tmp_path, replace(SETTINGS, steps=12), evaluate=drop_a_file).train()
    assert (tmp_path / "step-00000001.safetensors").read_bytes() == b"weights of mine"


def test_two_trainings_do_not_share_a_folder(tmp_path):
    with locked(tmp_path), ThreadPoolExecutor() as others, pytest.raises(BlockingIOError, match="is in use by process"):
        others.submit(toy_trainer(tmp_path).train).result()
    assert toy_trainer(tmp_path, replace(SETTINGS, steps=1)).train().step == 1
