"""Adapters in PEFT's files: PEFT reads them, and has our outputs and our gradients."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file
from support.pretrained_cases import exact, inputs, ours, random_model, theirs

from minitransformer.models import Model, Tuning, is_adapter
from minitransformer.pretrained import PretrainedError, load, save, save_adapter

KINDS = "gpt2 llama qwen3 gemma2 bert roberta distilbert t5 marian".split()
CASES = [(kind, seed) for kind in KINDS for seed in (0, 1)]
LORA = Tuning(frozen=("*",), rank=2, alpha=3.0)
MIXED = {"gpt2": ("*.query", "*.contract"), "llama": ("*.key", "*.up", "decoder.layers.0.*.contract")}


def adapted(kind: str, seed: int, folder: Path) -> tuple[Any, Any, Any]:
    """A model of `transformers`, ours, and ours with adapters that are not 0."""
    reference = random_model(kind, seed)
    reference.save_pretrained(folder)
    model, _ = load(folder, dtype="float64")
    targets = MIXED.get(kind) if seed else None
    tuned = model.tuned(replace(LORA, targets=targets) if targets else LORA)
    rng = np.random.default_rng(seed)
    for name, parameter in tuned.parameters.named.items():
        if is_adapter(name):
            parameter.data[...] = rng.normal(size=parameter.shape)
    return reference, model, tuned


def with_peft(reference: Any, folder: Path) -> Any:
    """PEFT's model of a folder of adapters, which it trains."""
    options: dict[str, Any] = {"is_trainable": True, "autocast_adapter_dtype": False}
    return peft.PeftModel.from_pretrained(reference, folder, **options).eval().double()


def as_files(model: Model[Any], folder: Path) -> dict[str, np.ndarray]:
    save_adapter(model, folder)
    return {name: each.numpy() for name, each in load_file(folder / "adapter_model.safetensors").items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_peft_computes_and_trains_what_was_saved(kind: str, seed: int, tmp_path: Path) -> None:
    reference, model, tuned = adapted(kind, seed, tmp_path)
    given = inputs(kind, reference, seed)
    values = as_files(tuned, tmp_path / "adapter")
    with exact(reference):
        there = with_peft(reference, tmp_path / "adapter")
        logits = theirs(there, given)
        out, cache = ours(kind, tuned, given)
        assert np.abs(out - logits.detach().numpy()).max() <= 1e-9
        assert np.abs(out - ours(kind, model, given)[0]).max() > 1e-3
        dout = np.random.default_rng(seed).normal(size=out.shape)
        logits.backward(torch.from_numpy(dout))
    tuned.backward(dout, cache)
    gradient = deepcopy(tuned)
    gradient.parameters.data[: len(gradient.parameters.grad)] = tuned.parameters.grad
    wanted = {name.replace(".default", ""): each.grad for name, each in there.named_parameters() if ".lora_" in name}
    found = as_files(gradient, tmp_path / "gradient")
    assert found.keys() == wanted.keys() == values.keys()
    for name, array in found.items():
        kept = values[name] != 0  # elsewhere B stays 0: other columns of the same tensor
        assert np.abs(array - wanted[name].numpy())[kept].max() <= 1e-9, name


@pytest.mark.parametrize("kind", KINDS)
def test_merged_the_model_is_a_folder_like_any_other(kind: str, tmp_path: Path) -> None:
    reference, _, tuned = adapted(kind, 0, tmp_path)
    save(tuned, tmp_path / "merged")
    given = inputs(kind, reference, 0)
    again = type(reference).from_pretrained(tmp_path / "merged", dtype=torch.float64)
    with exact(again):
        assert np.abs(theirs(again, given).detach().numpy() - ours(kind, tuned, given)[0]).max() <= 1e-9


def test_a_new_head_is_saved_beside_the_adapters_of_a_classifier(tmp_path: Path) -> None:
    random_model("bert", 0).save_pretrained(tmp_path)
    model, _ = load(tmp_path)
    classifier = model.with_head("classes", 3)
    with pytest.raises(PretrainedError, match="adapters belong to a published model, and this one came from no folder"):
        save_adapter(classifier.tuned(LORA), tmp_path / "adapter")
    classifier.origin = model.origin
    values = as_files(classifier.tuned(Tuning(("*",), ("head.*",), 2)), tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["task_type"], config["modules_to_save"]) == ("SEQ_CLS", ["bert.pooler.dense", "classifier"])
    weight = values["base_model.model.classifier.weight"]
    np.testing.assert_array_equal(weight, classifier.parameters.named["head.classes.weight"].data.T)
    assert config["base_model_name_or_path"] == str(tmp_path)


def test_a_model_without_adapters_has_none_to_save(tmp_path: Path) -> None:
    random_model("gpt2", 0).save_pretrained(tmp_path)
    model, _ = load(tmp_path)
    for each in (model, model.tuned(Tuning(("*.weight",)))):
        with pytest.raises(PretrainedError, match="the model has no adapters"):
            save_adapter(each, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
