"""Every architecture against `transformers`: read from its files, computed here, written, read there again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from support.pretrained_cases import KINDS, VITS, exact, inputs, ours, random_model, rewrite, theirs

from minitransformer.models import IGNORED
from minitransformer.pretrained import ARCHITECTURES, load, save

ALL = 15
QUICK = {"bert": 5, "roberta": 5, "xlm-roberta": 1, "camembert": 1, "distilbert": 5, "qwen3": 2, "gemma": 2, "mt5": 2}
"""How many are quick, where it isn't 4: each of BERT's heads once, and one of those that differ in a name alone."""


CASES = [
    pytest.param(kind, seed, marks=[] if seed < QUICK.get(kind, 4) else pytest.mark.slow)
    for kind in KINDS
    for seed in range(ALL)
]


def error(a: Any, b: Any) -> float:
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / max(1.0, np.abs(b).max()))


def padded(ids: np.ndarray, lengths: list[int], pad: int) -> np.ndarray:
    """The first ids of each row, and padding after them."""
    return np.where(np.arange(ids.shape[1]) < np.array(lengths)[:, None], ids, pad)


def old_names(kind: str, folder: Path) -> None:
    """The names and options of older files."""
    if kind == "gpt2":
        blocked = {"h.0.attn.bias": torch.ones(1, 1, 4, 4)}
        rewrite(folder, lambda t: {k.removeprefix("transformer."): v for k, v in t.items()} | blocked)
    elif kind == "bert":
        parts = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))

        def change(tensors: Any) -> Any:
            for new, old in parts:
                tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
            return tensors

        rewrite(folder, change)
    elif kind in VITS:
        rewrite(folder, lambda t: {k.replace("encoder.layer.", "layers."): v for k, v in t.items()})
    elif kind == "gemma3_text":
        path = folder / "config.json"
        values = json.loads(path.read_text())
        rope = values.pop("rope_parameters")
        values["rope_theta"] = rope["full_attention"]["rope_theta"]
        values["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        named = values.pop("layer_types")
        values["sliding_window_pattern"] = named.index("full_attention") + 1 if "full_attention" in named else 6
        path.write_text(json.dumps(values))
    elif kind == "llama":
        path = folder / "config.json"
        values = json.loads(path.read_text())
        rope = values.pop("rope_parameters")
        values["rope_theta"] = rope.pop("rope_theta")
        values["rope_scaling"] = rope if rope["rope_type"] != "default" else None
        path.write_text(json.dumps(values))
        rewrite(folder, lambda t: t | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)})
    elif kind == "marian":
        rewrite(folder, lambda t: t | {"model.encoder.embed_positions.weight": torch.ones(2, 2)})


def same_gradients(kind: str, ours: Any, theirs: Any) -> None:
    """The gradient of every parameter of ours is that of their tensors, unless these are fixed."""
    architecture = ARCHITECTURES[kind]
    tensors = (*theirs.named_parameters(remove_duplicate=False), *theirs.named_buffers())
    tensor_of = {architecture.canonical(name): each for name, each in tensors}
    rows = architecture.table(ours.config)
    assert {row.ours for row in rows} == set(ours.parameters.named)
    for row in rows:
        for name, gradient in row.to_theirs(ours.parameters.named[row.ours].grad).items():
            if (tensor := tensor_of[name]).requires_grad:
                unused = tensor.grad is None
                assert error(gradient, np.zeros_like(gradient) if unused else tensor.grad) <= 1e-9, name


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_equals_transformers(kind: str, seed: int, tmp_path: Path) -> None:
    model = random_model(kind, seed)
    sort = [torch.float32, torch.bfloat16, torch.float16][seed % 3]
    model.to(sort).save_pretrained(tmp_path, **({"max_shard_size": "2KB"} if seed % 4 == 1 else {}))
    model = type(model).from_pretrained(tmp_path, dtype=torch.float32).eval()  # its buffers were never narrow
    if seed % 4 == 2:
        old_names(kind, tmp_path)
    given = inputs(kind, model, seed)
    single, _ = load(tmp_path)
    with torch.no_grad():
        wanted = theirs(model, given)
    if kind == "marian":
        assert single.config.num_parameters == single.parameters.count
    assert error(ours(kind, single, given)[0], wanted) <= 1e-5

    double, _ = load(tmp_path, dtype="float64")
    logits, cache = ours(kind, double, given)
    with exact(model) as reference:
        wanted = theirs(reference, given)
        assert error(logits, wanted.detach()) <= 1e-9
        dlogits = np.random.default_rng(seed).normal(size=logits.shape)
        wanted.backward(torch.from_numpy(dlogits))
    double.backward(dlogits, cache)
    same_gradients(kind, double, model)


@pytest.mark.parametrize(("smoothing", "masked"), [(0.0, True), (0.1, True), (0.0, False)])
@pytest.mark.parametrize("kind", ["t5", "mt5", "marian"])
@pytest.mark.parametrize("seed", range(3))
def test_the_loss_of_padded_sentences_is_theirs(
    kind: str, seed: int, smoothing: float, masked: bool, tmp_path: Path
) -> None:
    """Rows of any lengths. As there, a source's padding is attended to unless a mask is given."""
    theirs = random_model(kind, seed)
    theirs.save_pretrained(tmp_path)
    model, _ = load(tmp_path, dtype="float64")
    pad, start = model.config.pad_id, model.config.bos_id
    assert pad == start
    source = padded(inputs(kind, theirs, seed)["input_ids"], [9, 4, 1], pad)
    labels = padded(inputs(kind, theirs, seed + 1)["input_ids"][:, :6], [3, 6, 2], IGNORED)
    target_in = np.where(labels == IGNORED, pad, labels)[:, :-1]
    target_in = np.concatenate([np.full((3, 1), start), target_in], axis=1)
    with exact(theirs) as reference:
        if kind == "marian":
            reference.final_logits_bias.requires_grad_()  # theirs is fixed; ours is learnt
        arrays = {"input_ids": source, "labels": labels}
        arrays |= {"attention_mask": (source != pad).astype(int)} if masked else {}
        tensors = {name: torch.from_numpy(each) for name, each in arrays.items()}
        out = reference(**tensors)
        wanted, flat = out.loss, (out.logits.flatten(0, 1), tensors["labels"].flatten())
        if smoothing:  # their own computes in float32
            wanted = torch.nn.functional.cross_entropy(*flat, label_smoothing=smoothing)
        wanted.backward()
    for targets in (labels, np.where(labels == IGNORED, pad, labels)):
        model.parameters.zero_grad()
        mask = source != pad if masked else None
        loss, cache = model.loss(source, target_in, targets, smoothing, source_mask=mask)
        model.loss_backward(1.0, cache)
        assert error(loss, wanted.item()) <= 1e-9
        same_gradients(kind, model, reference)


HEADS_OF_TOKENS = [("bert", 3), ("bert", 4), ("roberta", 3), ("distilbert", 4)]


@pytest.mark.parametrize(("kind", "seed"), HEADS_OF_TOKENS)
def test_the_loss_of_tokens_and_of_answers_is_theirs(kind: str, seed: int, tmp_path: Path) -> None:
    theirs = random_model(kind, seed)
    theirs.save_pretrained(tmp_path)
    model, _ = load(tmp_path, dtype="float64")
    given, rng = inputs(kind, theirs, seed), np.random.default_rng(seed)
    if model.config.head == "answer":
        targets = rng.integers(0, 9, (3, 2))
        labels = {"start_positions": targets[:, 0], "end_positions": targets[:, 1]}
    else:
        targets = np.where(rng.random((3, 9)) < 0.3, IGNORED, rng.integers(0, model.config.num_classes, (3, 9)))
        labels = {"labels": targets}
    loss, cache = model.loss(given["input_ids"], targets, given.get("token_type_ids"), given["attention_mask"])
    model.loss_backward(1.0, cache)
    with exact(theirs) as reference:
        wanted = reference(**{name: torch.from_numpy(each) for name, each in (given | labels).items()}).loss
        wanted.backward()
    assert error(loss, wanted.item()) <= 1e-9
    same_gradients(kind, model, reference)


@pytest.mark.parametrize("seed", range(3))
def test_the_padding_of_a_roberta_moves_no_position(seed: int, tmp_path: Path) -> None:
    model = random_model("roberta", 5 * seed)
    model.save_pretrained(tmp_path)
    here, _ = load(tmp_path, dtype="float64")
    ids = padded(inputs("roberta", model, seed)["input_ids"], [9, 4, 1], here.config.pad_id)
    real = ids != here.config.pad_id
    with exact(model) as reference, torch.no_grad():
        wanted = reference(torch.from_numpy(ids), attention_mask=torch.from_numpy(real.astype(int))).logits
    assert error(here.forward(ids, mask=real)[0][real], wanted.numpy()[real]) <= 1e-9


@pytest.mark.parametrize("seed", [3, pytest.param(0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_came_from_no_folder_goes_there(kind: str, seed: int, tmp_path: Path) -> None:
    """As the first architecture that can hold it: a Mistral without a window is a Llama."""
    model = random_model(kind, seed)
    model.save_pretrained(tmp_path / "theirs")
    there, _ = load(tmp_path / "theirs")
    there.origin = None
    save(there, tmp_path / "ours")
    (name,) = json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"]
    again, report = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    given = inputs(kind, model, seed)
    with torch.no_grad():
        assert error(theirs(again.eval(), given), theirs(model, given)) <= 1e-6
    assert load(tmp_path / "ours")[0].config == there.config


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_goes_back_bit_for_bit(kind: str, seed: int, tmp_path: Path) -> None:
    model = random_model(kind, seed)
    model.save_pretrained(tmp_path / "theirs")
    there, _ = load(tmp_path / "theirs")
    save(there, tmp_path / "ours")
    again, report = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name
    given = inputs(kind, model, seed)
    with torch.no_grad():
        assert torch.equal(theirs(model, given), theirs(again.eval(), given))
    here, _ = load(tmp_path / "ours")
    assert here.config == there.config
    assert np.array_equal(here.parameters.data, there.parameters.data)
