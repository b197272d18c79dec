"""Checkpoints under fire: what is saved loads with the same bits, and whatever else is told in one sentence."""

import json
import math
import os
import pickle
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open
from support.folders import flips

from minitransformer import RecurrentConfig, RecurrentTranslator
from minitransformer.layers import FlatParameters
from minitransformer.models import GPT, GPTConfig
from minitransformer.training import checkpoint as checkpoint_module
from minitransformer.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    average_checkpoints,
    checkpoint_path,
    latest,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)


@pytest.fixture
def checkpoint():
    rng = np.random.default_rng(0)
    parameters = {
        "embedding": rng.standard_normal((7, 4), dtype=np.float32),
        "transposed": rng.standard_normal((3, 5), dtype=np.float32).T,
        "strided": rng.standard_normal(12)[::3],
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.float32),
    }
    return Checkpoint(
        config={"d_model": 4, "vocab_size": 7, "dropout": 0.1},
        parameters=parameters,
        optimizer={"num_steps": np.array(9)} | {f"m.{name}": array + 1 for name, array in parameters.items()},
        tokenizer='{"merges": [["ü", "\\"sha256\\": \\""]], "note": "\\u2028 \\\\"}',
        step=9,
        state={"settings": {"seed": 3, "minutes": None}, "lr": 0.1 + 0.2},
    )


def assert_same(left, right):
    assert replace(left, parameters={}, optimizer=None) == replace(right, parameters={}, optimizer=None)
    for ours, theirs in ((left.parameters, right.parameters), (left.optimizer or {}, right.optimizer or {})):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            assert array.dtype == theirs[name].dtype
            np.testing.assert_array_equal(array, theirs[name], strict=True)


def test_loads_what_was_saved(tmp_path, checkpoint):
    path = tmp_path / "new" / "folder" / "a.safetensors"
    save_checkpoint(path, checkpoint)
    loaded = load_checkpoint(path)
    assert_same(loaded, checkpoint)
    loaded.parameters["embedding"] += 1  # the arrays are the caller's own
    assert_same(load_checkpoint(path), checkpoint)
    assert_same(load_checkpoint(str(path), with_optimizer=False), replace(checkpoint, optimizer=None))
    assert [file.name for file in path.parent.iterdir()] == ["a.safetensors"]


def test_same_state_gives_same_bytes(tmp_path, checkpoint):
    for name in "ab":
        save_checkpoint(tmp_path / name, checkpoint)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_is_a_safetensors_file_of_named_arrays_and_plain_json(tmp_path, checkpoint):
    save_checkpoint(tmp_path / "a", checkpoint)
    with safe_open(tmp_path / "a", framework="numpy") as file:
        assert set(checkpoint.parameters) <= set(file.keys())
        np.testing.assert_array_equal(file.get_tensor("transposed"), checkpoint.parameters["transposed"])
        description = json.loads(file.metadata()["minitransformer"])
    assert (description["version"], description["step"], description["config"]) == (2, 9, checkpoint.config)


def test_any_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "a"
    checkpoint = Checkpoint({"d_model": 3}, {"w": np.arange(50.0)}, {"m.w": np.ones(5)}, tokenizer="{}", step=2)
    save_checkpoint(path, checkpoint)
    for _ in flips(path):
        with pytest.raises(CheckpointError, match=r"is truncated or damaged|is not a minitransformer checkpoint"):
            load_checkpoint(path)
    assert_same(load_checkpoint(path), checkpoint)


def test_truncated_or_lengthened_anywhere_is_noticed(tmp_path, checkpoint):
    path = tmp_path / "a"
    save_checkpoint(path, checkpoint)
    content = path.read_bytes()
    for length in [*range(130), *range(130, len(content), 17), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"is truncated or damaged|is not a minitransformer checkpoint"):
            load_checkpoint(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(CheckpointError, match=f"truncated or damaged: its {len(content) + 1} bytes do not match"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"The quick brown fox jumps over the lazy dog.\n" * 9,
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(200),
        pickle.dumps({"weights": [1.0]}),
        (64).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(64) + bytes(4),
        bytes(500),
    ],
    ids=["empty", "one byte", "text", "png", "pickle", "another safetensors file", "zeros"],
)
def test_what_is_not_a_checkpoint(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{re.escape(str(path))} is not a minitransformer checkpoint") as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "none")
    with pytest.raises(CheckpointError, match="is a folder"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_of_the_format(tmp_path, checkpoint, monkeypatch, version):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "VERSION", version)
        save_checkpoint(tmp_path / "a", checkpoint)
    with pytest.raises(CheckpointError, match=f"version {version} of the checkpoint format; this program reads 2"):
        load_checkpoint(tmp_path / "a")


@pytest.fixture
def of_a_model():
    """A checkpoint whose configuration and weights belong together."""
    model = RecurrentTranslator(RecurrentConfig(vocab_size=7, d_model=4))
    return Checkpoint(model.config.to_dict(), model.parameters.state_dict())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 10**9}, "holds 392 weights in 13 arrays, but its configuration is of a model of 288,000,000,"),
        ({"d_model": 10**6}, "but its configuration is of a model of 2"),
        ({"vocab_size": 2**62}, "but its configuration is of a model of 18,446,744,073,709,551,9"),
        ({"num_layers": 2**70}, "num_layers is larger than"),
        ({"num_layers": "2"}, "num_layers must be an integer, got str"),
        ({"kind": ["recurrent"]}, "of kind \\['recurrent'\\], which this program does not know"),
        ({"cell": None}, "cell is None, expected"),
    ],
)
def test_a_model_is_made_only_where_the_file_holds_its_weights(of_a_model, monkeypatch, changes, message):
    monkeypatch.setattr(checkpoint_module, "build_model", lambda *_: pytest.fail("it is made"))
    with pytest.raises(CheckpointError, match=message):
        replace(of_a_model, config={**of_a_model.config, **changes}).model()


def test_a_model_of_more_layers_than_there_are_arrays_is_not_made(of_a_model, monkeypatch):
    config = RecurrentConfig(vocab_size=3, d_model=1, num_layers=50, cell="tanh", attention=False)
    one_array = {"everything": np.zeros(config.num_parameters, np.float32)}
    monkeypatch.setattr(checkpoint_module, "build_model", lambda *_: pytest.fail("it is made"))
    with pytest.raises(CheckpointError, match=r"in 1 arrays, but its configuration is of a model of .* in 100 layers"):
        Checkpoint(config.to_dict(), one_array).model()


def test_no_weights_are_drawn_that_a_checkpoint_replaces(of_a_model, monkeypatch):
    monkeypatch.setattr(FlatParameters, "initialize", lambda *_: pytest.fail("they are drawn"))
    weights = of_a_model.model().parameters.state_dict()
    assert all((weights[name] == array).all() for name, array in of_a_model.parameters.items())


def test_weights_of_other_names_shapes_and_types_are_told(of_a_model):
    of_a_model.model()
    weights = of_a_model.parameters
    name, array = next(iter(weights.items()))
    others = {key: value for key, value in weights.items() if key != name}
    for changed, message in (
        ({**others, "other": array}, "do not fit its configuration: state is not this model's"),
        ({**others, name: array.T}, f"do not fit its configuration: {name} has shape"),
        ({**others, name: array.astype(np.int32)}, f"the checkpoint's {name} is of type int32, expected floats"),
    ):
        with pytest.raises(CheckpointError, match=message):
            replace(of_a_model, parameters=changed).model()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": -1}, "its step is -1, expected a whole number"),
        ({"step": 2**70}, "an integer of more than 64 bits"),
        ({"config": [1]}, r"its config is \[1\], expected an object"),
        ({"tokenizer": 5}, "its tokenizer is 5, expected text or null"),
        ({"state": {"languages": ["en"]}}, r"its languages is \['en'\], expected two languages or null"),
        ({"state": {"languages": ["en", "../de"]}}, "expected two languages or null"),
        ({"state": {"settings": 3}}, "its settings is 3, expected an object"),
        ({"state": {"averaged_steps": "12"}}, "its averaged_steps is '12', expected a list of whole numbers"),
        ({"state": {"x": math.nan}}, "NaN is not a number in JSON"),
        ({"state": {"x": [[[[[[[[1]]]]]]]]}}, "nested more than 8 levels deep"),
        ({"parameters": {"w": np.array([1.0, math.inf])}}, "w holds a number that is not finite"),
    ],
)
def test_what_no_checkpoint_holds_is_one_sentence(tmp_path, checkpoint, changes, message):
    save_checkpoint(tmp_path / "a", replace(checkpoint, **changes))
    with pytest.raises(CheckpointError, match=f"a is not a checkpoint that this program can use: .*{message}") as error:
        load_checkpoint(tmp_path / "a")
    assert len(str(error.value)) < 300


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="pipe is a device or a pipe, not a checkpoint file"):
        load_checkpoint(tmp_path / "pipe")


def test_another_configuration_names_the_fields(checkpoint):
    config = SimpleNamespace(to_dict=lambda: {"d_model": 8, "vocab_size": 7, "dropout": 0.1, "window": 3})
    model = SimpleNamespace(config=config)
    with pytest.raises(CheckpointError, match="d_model is 4 in the checkpoint and 8 in the model, window is") as error:
        checkpoint.restore(model)
    assert "vocab_size" not in str(error.value)


def test_a_model_with_several_end_marks_is_restored(tmp_path):
    model = GPT(GPTConfig(7, d_model=4, num_heads=2, d_ff=4, num_layers=1, max_length=8, other_eos_ids=(5, 6)))
    save_checkpoint(tmp_path / "file", Checkpoint(model.config.to_dict(), model.parameters.state_dict()))
    found = load_checkpoint(tmp_path / "file")
    found.restore(model)
    assert found.model().config == model.config


def test_average_is_the_mean_in_float64(tmp_path, checkpoint):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((3, 2)).astype(np.float32) for _ in range(5)]
    paths = []
    for step, array in enumerate(arrays):
        paths.append(checkpoint_path(tmp_path, step))
        state = {"languages": ["en", "fr"]}
        save_checkpoint(paths[-1], replace(checkpoint, parameters={"w": array}, step=step, state=state))
    average = average_checkpoints(paths)
    expected = np.mean(np.stack(arrays).astype(np.float64), axis=0).astype(np.float32)
    np.testing.assert_array_equal(average.parameters["w"], expected, strict=True)
    assert average.optimizer is None
    assert (average.step, average.tokenizer, average.config) == (4, checkpoint.tokenizer, checkpoint.config)
    assert average.state == {"averaged_steps": [0, 1, 2, 3, 4], "languages": ("en", "fr")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"d_model": 8, "vocab_size": 7, "dropout": 0.1}}, "d_model is 8 in it and 4 in the first"),
        ({"tokenizer": "{}"}, "their tokenizers differ"),
        ({"parameters": {"embedding": np.zeros(1)}}, r"embedding is \(1,\) in it and \(7, 4\) in the first"),
    ],
)
def test_average_of_unlike_checkpoints(tmp_path, checkpoint, change, message):
    save_checkpoint(tmp_path / "a", checkpoint)
    save_checkpoint(tmp_path / "b", replace(checkpoint, **change))
    with pytest.raises(CheckpointError, match=f"b cannot be averaged with .*a: .*{message}"):
        average_checkpoints([tmp_path / "a", tmp_path / "b"])


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_average_of_whole_numbers(tmp_path, checkpoint, order):
    save_checkpoint(tmp_path / "a", checkpoint)
    whole = {name: np.ones(array.shape, np.int32) for name, array in checkpoint.parameters.items()}
    save_checkpoint(tmp_path / "b", replace(checkpoint, parameters=whole))
    with pytest.raises(CheckpointError, match="is of type int32, expected floats"):
        average_checkpoints([tmp_path / name for name in order])


def test_average_of_nothing():
    with pytest.raises(ValueError, match="paths is empty"):
        average_checkpoints([])


def names(paths):
    return [Path(path).stem for path in paths]


def test_latest_is_of_the_highest_step(tmp_path):
    assert latest(tmp_path / "none") is None
    assert latest(tmp_path) is None
    for name in ("step-00000900", "step-100000000", "step-00001000", "step-best", "average"):
        (tmp_path / f"{name}.safetensors").touch()
    (tmp_path / "step-200000000.safetensors.tmp").touch()
    assert names(list_checkpoints(tmp_path)) == ["step-00000900", "step-00001000", "step-100000000"]
    assert latest(tmp_path) == checkpoint_path(tmp_path, 100_000_000)


def test_pruning_keeps_the_last_regular_ones_and_the_last(tmp_path):
    for step in (10, 20, 25, 30, 40, 47):
        checkpoint_path(tmp_path, step).touch()
    prune_checkpoints(tmp_path, keep=3, interval=10)
    assert names(list_checkpoints(tmp_path)) == ["step-00000020", "step-00000030", "step-00000040", "step-00000047"]
    checkpoint_path(tmp_path, 50).touch()
    prune_checkpoints(tmp_path, keep=3, interval=10)
    assert names(list_checkpoints(tmp_path)) == ["step-00000030", "step-00000040", "step-00000050"]
