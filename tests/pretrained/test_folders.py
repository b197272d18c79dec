"""Folders that hold no model: one sentence each, and no memory taken."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from support.cli_runs import in_this_process, refuse
from support.pretrained_cases import random_model, rewrite
from support.refusals import refused_by_load

from minitransformer import pretrained
from minitransformer.data import BPETokenizer
from minitransformer.models import (
    GPT,
    ConvolutionalConfig,
    GPTConfig,
    T5Config,
    Transformer,
    TransformerConfig,
    build_model,
)
from minitransformer.pretrained import PretrainedError, load, save, t5
from minitransformer.pretrained.llama import read_rotary


def options(**changed: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

    return change


def content(change: Callable[[bytes], bytes], name: str = "model.safetensors") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return write


def tensors(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, change)


def misnamed(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def header(entry: Any) -> Callable[[Path], None]:
    return raw_header(json.dumps({"w": entry}).encode())


def raw_header(text: bytes) -> Callable[[Path], None]:
    return content(lambda _: len(text).to_bytes(8, "little") + text)


def link(name: str, target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def pipe(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def index(value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": value}))

    return change


NORM = "model.norm.weight"
YARN = {"rope_type": "yarn", "factor": 2.0}
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "no JSON": (content(lambda _: b"{", "config.json"), "not valid JSON"),
    "no object": (content(lambda _: b"[]", "config.json"), "not a JSON object"),
    "deep JSON": (content(lambda _: b"[" * 100_000, "config.json"), "not valid JSON"),
    "one key twice": (
        content(lambda _: b'{"model_type": 1, "model_type": 2}', "config.json"),
        "it has 'model_type' twice",
    ),
    "a configuration as long as a film": (
        content(lambda _: b" " * (10**7 + 1), "config.json"),
        "more than 10,000,000 b",
    ),
    "a pipe": (pipe, "config.json"),
    "a device": (link("config.json", "/dev/zero"), "config.json"),
    "weights from a device": (link("model.safetensors", "/dev/zero"), "model.safetensors"),
    "a link to itself": (link("model.safetensors", "model.safetensors"), "model.safetensors"),
    "no number": (options(rms_norm_eps=math.nan), "norm_eps is nan"),
    "an infinite number": (options(rope_parameters={"rope_type": "default", "rope_theta": math.inf}), "theta is inf"),
    "a long word": (options(model_type="long" * 1000), "model_type 'longlong"),
    "unknown model": (options(model_type="mamba"), "model_type 'mamba' is not supported"),
    "a list for a model": (options(model_type=["llama"]), "is not supported"),
    "yarn": (options(rope_parameters=None, rope_scaling=YARN), "rope_scaling 'yarn' is not supported"),
    "activation": (options(hidden_act="tanh"), "hidden_act 'tanh' is not supported"),
    "no width": (options(hidden_size=None), "it has no hidden_size"),
    "a text for a number": (options(num_hidden_layers="many"), "num_layers must be an integer"),
    "heads": (options(num_key_value_heads=5), "num_kv_heads is 5"),
    "terabytes": (options(vocab_size=10**12), "has shape"),
    "layers without end": (options(num_hidden_layers=10**12), "1,000,000,000,000 layers"),
    "a number without end": (options(hidden_size=10**30), "larger than"),
    "wrong shape": (tensors(lambda t: t | {NORM: torch.ones(3)}), "norm.weight has shape"),
    "missing": (
        tensors(lambda t: {k: v for k, v in t.items() if k != NORM}),
        "1 tensors of its model: model.norm",
    ),
    "surplus": (tensors(lambda t: t | {"extra": torch.ones(3)}), "does not have: extra"),
    "integers": (tensors(lambda t: t | {NORM: t[NORM].int()}), "of type I32"),
    "weights of another format": (misnamed, "no file of torch.save"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
    "truncated": (content(lambda data: data[:-5]), "truncated"),
    "longer": (content(lambda data: data + b"12345"), "damaged"),
    "empty": (content(lambda _: b""), "truncated or no safetensors"),
    "endless header": (content(lambda data: b"\xff" * 8 + data[8:]), "header does not fit"),
    "no header": (content(lambda data: data[:8] + b"x" + data[9:]), "header is not valid JSON"),
    "odd header": (header({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}), "describes 'w' wrongly"),
    "another size": (
        header({"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}),
        "another size",
    ),
    "beyond the file": (header({"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}), "truncated"),
    "overlap": (header({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}), "does not follow"),
    "a deep header": (raw_header(b"[" * 100_000), "header is not valid JSON"),
    "a tensor twice": (raw_header(b'{"w": {}, "w": {}}'), "it has 'w' twice"),
    "a tensor twice among many": (
        raw_header(b'{"w": {}, %s, "w": {}}' % b", ".join(b'"%d": {}' % n for n in range(40_000))),
        "it has 'w' twice",
    ),
    "many axes": (header({"dtype": "F32", "shape": [10**4000] * 300, "data_offsets": [0, 4]}), "describes 'w' wrongly"),
    "no type": (
        header({"dtype": [], "shape": [0], "data_offsets": [0, 0]}),
        "holds 1 tensors, but its configuration has",
    ),
    "a name that clears the screen": (
        tensors(lambda t: t | {"\x1b[2J": torch.ones(3)}),
        r"does not have: \x1b[2J",
    ),
    "index from the root": (index({"w": "/etc/passwd"}), "beside it"),
    "index upwards": (index({"w": "../secret.safetensors"}), "beside it"),
    "index of nothing": (index({"w": "gone.safetensors"}), "gone.safetensors"),
    "index without map": (index(None), "no weight_map"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    random_model("llama", 0).save_pretrained(folder)
    load(folder)
    return folder


@pytest.mark.parametrize("name", BAD)
def test_a_bad_folder_is_refused(name: str, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By `load`, and at the command line with status 2."""
    spoil, message = BAD[name]
    for path in good.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    spoil(tmp_path)
    refused_by_load(tmp_path, message, errors=(PretrainedError, FileNotFoundError))
    refuse(in_this_process(capsys), "generate", tmp_path, "A", says=message)


def test_a_sparse_file_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    model = GPT(GPTConfig(11, d_model=4, num_heads=1, d_ff=4, num_layers=1, max_length=8))
    save(model, tmp_path)
    size = 10**12
    options(vocab_size=size)(tmp_path)
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:end])
    stop = 0
    for name, entry in entries.items():
        if name != "__metadata__":
            shape = [size, 4] if "wte" in name else entry["shape"]
            count = shape[0] * (shape[1] if len(shape) > 1 else 1)
            entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [stop, stop + 4 * count]}
            stop += 4 * count
    text = json.dumps(entries).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        try:
            file.truncate(8 + len(text) + stop)
        except OSError:
            pytest.skip("this file system has no such long files")
    with pytest.raises(PretrainedError, match="bytes for its weights"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TransformerConfig.demo(64, norm_first=True), "norm_first True can't be written as Marian"),
        (TransformerConfig.demo(64, positions="learned"), "positions 'learned'"),
        (TransformerConfig.demo(64, window=3), "window 3"),
        (TransformerConfig.demo(64, d_k=7), "key_width 7"),
        (
            GPTConfig(11, d_model=4, num_heads=2, d_ff=4, num_layers=1, max_length=8, positions="alibi"),
            "positions",
        ),
        (GPTConfig(11, d_model=4, num_heads=2, d_ff=4, num_layers=1, max_length=8, num_kv_heads=1), "num_kv_heads 1"),
        (GPTConfig(11, d_model=4, num_heads=2, d_ff=4, num_layers=1, embedding_scale=2.0), "embedding_scale 2.0"),
        (GPTConfig.llama(11, d_model=4, num_heads=2, d_ff=4, num_layers=1, embedding_scale=2.0), "embedding_scale 2.0"),
        (GPTConfig(11, d_model=4, num_heads=2, d_ff=0, num_layers=1), "d_ff 0 can't be written as GPT-2"),
        (GPTConfig.llama(11, d_model=4, num_heads=2, d_ff=0, num_layers=1), "d_ff 0 can't be written as Llama"),
        (ConvolutionalConfig(vocab_size=64), "of kind 'convolutional'"),
    ],
)
def test_what_others_cannot_express_is_refused_by_name(config: Any, message: str, tmp_path: Path) -> None:
    model = build_model(config)
    with pytest.raises(PretrainedError, match=message):
        save(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_paths_are_not_names(tmp_path: Path) -> None:
    for path in (tmp_path / "none", str(tmp_path / "none"), "./none", "a/b/c"):
        with pytest.raises(FileNotFoundError):
            load(path)
    (tmp_path / "step-00000001.safetensors").touch()
    with pytest.raises(PretrainedError, match="is a file, expected a folder"):
        load(tmp_path / "step-00000001.safetensors")


@pytest.mark.parametrize("stop", ["write_tensors", "save_tokenizer"])
def test_a_killed_save_leaves_nothing_that_loads(stop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old model of the same shapes, with other heads: half of each would be a third model."""
    config = GPTConfig(11, d_model=8, num_heads=2, d_ff=8, num_layers=1, max_length=16)
    save(GPT(config), tmp_path)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pretrained, stop, killed)
    with pytest.raises(KeyboardInterrupt):
        save(GPT(replace(config, num_heads=4), seed=1), tmp_path, BPETokenizer(" ab", []))
    with pytest.raises(FileNotFoundError):
        load(tmp_path)


def test_dtype_of_the_table_is_kept(tmp_path: Path) -> None:
    config = TransformerConfig.demo(64, d_model=8, num_heads=2, d_ff=8, num_layers=1)
    save(Transformer(config, dtype="float64"), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "float64"


@pytest.mark.parametrize("kind", ["gpt2", "bert", "vit"])
@pytest.mark.parametrize("word", ["_orig_mod.", "module.", "module._orig_mod."])
def test_names_of_compiled_and_of_parallel_models_are_read(kind: str, word: str, tmp_path: Path) -> None:
    random_model(kind, 0).save_pretrained(tmp_path)
    model, _ = load(tmp_path)
    rewrite(tmp_path, lambda tensors: {word + name: tensor for name, tensor in tensors.items()})
    np.testing.assert_array_equal(load(tmp_path)[0].parameters.data, model.parameters.data)


def test_nothing_of_an_earlier_model_is_left_beside_another(tmp_path: Path) -> None:
    """Its tokenizer stays only where no other one is given."""
    tokenizer = BPETokenizer.train(["ab abc"] * 3, 264)
    sizes: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1}
    save(build_model(T5Config(264, **sizes, d_k=4, eos_id=5)), tmp_path, tokenizer)
    assert (tmp_path / "generation_config.json").exists()
    (tmp_path / "spiece.model").touch()
    save(GPT(GPTConfig(264, **sizes, eos_id=2)), tmp_path)
    assert not (tmp_path / "generation_config.json").exists()
    assert (tmp_path / "tokenizer.json").exists()
    save(GPT(GPTConfig(264, **sizes, eos_id=2)), tmp_path, tokenizer)
    assert not (tmp_path / "spiece.model").exists()


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def test_an_original_length_of_null_is_none_given() -> None:
    rope = LLAMA3 | {"rope_theta": 1e4, "original_max_position_embeddings": 32}
    assert read_rotary({"rope_parameters": rope, "original_max_position_embeddings": None}).original_max_length == 32


@pytest.mark.parametrize(
    "changed",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_scaling": LLAMA3, "rope_theta": 5e4},
        {"rope_parameters": LLAMA3 | {"rope_theta": 1e4}, "original_max_position_embeddings": 16},
        {"rope_parameters": LLAMA3 | {"rope_theta": 1e4, "original_max_position_embeddings": 32}},
        {"rope_parameters": LLAMA3 | {"rope_theta": 1e4}},
        {"rope_parameters": None, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 8}},
    ],
)
def test_of_two_places_for_rotary_options_the_one_of_transformers_counts(changed: dict[str, Any]) -> None:
    values = {"max_position_embeddings": 64, **changed}
    config = transformers.LlamaConfig.from_dict(json.loads(json.dumps(values)))
    config.standardize_rope_params()  # as its model does
    theirs: Any = config.rope_parameters
    ours = read_rotary(values)
    assert (ours.theta, ours.factor) == (theirs["rope_theta"], theirs["factor"])
    assert ours.original_max_length == theirs["original_max_position_embeddings"]


def test_an_activation_that_contradicts_the_form_of_a_t5_is_refused() -> None:
    sizes = {"vocab_size": 9, "d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1}
    assert t5.from_config(sizes | {"dense_act_fn": "relu", "is_gated_act": False}, {}).activation == "relu"
    with pytest.raises(PretrainedError, match="dense_act_fn 'gelu' is not supported, only 'relu'"):
        t5.from_config(sizes | {"dense_act_fn": "gelu"}, {})
