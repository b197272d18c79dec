"""The family at the command line: `train --kind`, `generate`, `fill`, `classify`, and `evaluate --text`."""

import argparse
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cli_runs import Command, refuse

from minitransformer.cli.backend import NUMPY
from minitransformer.cli.evaluate import fitting_context
from minitransformer.cli.recipes import (
    RECIPES,
    TRANSLATION,
    _accuracy,
    learned,
    longest_line,
    recipe_of,
    sized,
)
from minitransformer.costs import reading_bytes
from minitransformer.data import BPETokenizer, preparation
from minitransformer.data.digits import digits
from minitransformer.data.masked import MaskedText
from minitransformer.data.preparation import open_prepared
from minitransformer.data.text import TextDataset
from minitransformer.decoding import Filler, Generator, Sampling, SpanFiller, beam_search
from minitransformer.evaluation import accuracy, text_nats
from minitransformer.inside import logit_lens
from minitransformer.layers import ByteCache
from minitransformer.models import BERTConfig, CLIPConfig, GPTConfig, RecurrentConfig, T5Config, ViTConfig, build_model
from minitransformer.plots import plot_logit_lens
from minitransformer.plots.loss import SCORES
from minitransformer.pretrained import save
from minitransformer.training import TrainingSettings, read_log, terminal
from minitransformer.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from minitransformer.training.parallel.processes import ALONE, Processes

TRAINING = [*("--tokens-per-batch", "512", "--valid-interval", "2", "--checkpoint-interval", "2", "--threads", "1")]
TINY = [*("--d-model", "16", "--num-heads", "2", "--d-ff", "16", "--num-layers", "1"), *TRAINING]
TEXT = [*("--max-length", "48", "--vocab-size", "330")]
TRIES = {"gpt": "generate", "bert": "fill", "t5": "fill", "vit": "classify", "captioner": "caption", "clip": "info"}
FIGURES = {"gpt": "bits_per_byte", "bert": "accuracy", "vit": "accuracy", "captioner": "true_captions"}
FIGURES |= {"clip": "recall"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "dogs.txt"
    names = "dog cat horse bird child teacher cook king".split()
    verbs = "sees hears likes finds".split()
    lines = [f"The {a} {verb} the old {b}.\n" for a in names for verb in verbs for b in names]
    path.write_text("\n".join(["", *lines]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "data"),
    [*((kind, ()) for kind in RECIPES if kind != TRANSLATION), ("captioner", ("--target", "de"))],
)
def test_a_kind_trains_and_resumes_with_the_same_bits(
    tmp_path: Path, command: Command, text: Path, kind: str, data: tuple[str | Path, ...]
) -> None:
    data = data if kind in ("vit", "captioner", "clip") else ("--text", text, *TEXT)
    # A cooldown depends on the number of steps, which here is two and then four.
    start = ["train", "--kind", kind, *data, *TINY, "--seed", "3", "--cooldown", "0"]
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    status, out, said = command(*start, "--steps", "4", "--out", whole)
    assert status == 0
    assert f" {TRIES[kind]} " in out.splitlines()[-1]
    assert command(*start, "--steps", "2", "--out", halves)[0] == 0
    assert command("train", "--resume", halves, "--steps", "4")[0] == 0
    last = "step-00000004.safetensors"
    a, b = load_checkpoint(whole / last), load_checkpoint(halves / last)
    assert a.parameters.keys() == b.parameters.keys()
    assert a.tokenizer == b.tokenizer
    for name, array in a.parameters.items():
        np.testing.assert_array_equal(array, b.parameters[name])
    records = read_log(whole / "log.jsonl")
    if kind in FIGURES:
        assert all(FIGURES[kind] in record for record in records[1::2])
        assert f"{terminal.FIGURES[FIGURES[kind]]} {records[1][FIGURES[kind]]:.2f}" in said
        assert FIGURES[kind] in [score.key for score in SCORES]
    assert (whole / "loss.png").exists()


def test_what_is_learned_follows_from_the_recipe_and_not_from_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "oracle", replace(RECIPES["gpt"], learns=("masked",)))
    assert sized("oracle", "lines", 9) == {"vocab_size": 10, "mask_id": 9}
    assert longest_line("oracle", "lines", GPTConfig(9, max_length=5)) == 5
    assert learned("oracle", "lines") == "masked"


def test_only_a_translator_goes_by_the_recipe_of_another_kind() -> None:
    assert recipe_of(RecurrentConfig(9)) == TRANSLATION
    config: Any = SimpleNamespace(kind="oracle")
    with pytest.raises(ValueError, match="no recipe for a model of kind 'oracle', only translation, gpt, bert"):
        recipe_of(config)


def test_a_language_model_s_bits_per_byte_are_its_loss_spread_over_the_bytes(
    tmp_path: Path, command: Command, text: Path
) -> None:
    command("train", "--kind", "gpt", "--text", text, *TEXT, *TINY, "--steps", "2", "--out", tmp_path)
    record = read_log(tmp_path / "log.jsonl")[-1]
    lines = [line for line in text.read_text().split("\n") if line]
    valid = [
        line for line in text.read_text().splitlines()[-25:] if line
    ]  # the last 25 of 513 lines, half of them blank
    assert len(lines) == 256
    num_bytes = sum(len(line) + 1 for line in valid)
    tokens = len(open_prepared(tmp_path / "data").valid.ids)
    expected = record["validation_loss"] * tokens / np.log(2) / num_bytes
    assert record["bits_per_byte"] == pytest.approx(expected, rel=1e-12)


def test_options_of_other_kinds_are_refused_by_name(tmp_path: Path, command: Command, text: Path) -> None:
    for arguments, says in (
        (["--kind", "vit", "--text", text], "--text goes with --kind gpt, bert or t5: --kind vit reads images"),
        (
            ["--kind", "vit", "--dataset", "grammar"],
            "--dataset is of texts, and --kind vit reads scikit-learn's digits",
        ),
        (["--kind", "vit", "--max-length", "9"], "--max-length is not an option of --kind vit, but of"),
        (["--kind", "bert", "--gated"], "--gated is not an option of --kind bert, but of gpt, t5"),
        (["--kind", "t5", "--text", text, "--source", "en"], "--source is of a corpus, and --text has one language"),
        (["--kind", "gpt", "--target", "fr"], "--target is of translations, and --kind gpt reads one language"),
        (["--kind", "gpt", "--preset", "demo"], "--preset is of translators"),
        (["--text", text], "--text goes with --kind gpt, bert or t5: --kind translation reads pairs"),
        (["--positions", "alibi"], "positions is 'alibi', expected 'sinusoidal' or 'learned'"),
        (["--kind", "vit", "--sentences", "9"], "--sentences goes with --dataset grammar"),
        (["--kind", "gpt", "--text", tmp_path / "none.txt"], "none.txt"),
    ):
        refuse(command, "train", *arguments, "--out", tmp_path / "out", says=says)
    short = tmp_path / "short.txt"
    short.write_text("one line\n")
    refuse(
        command, "train", "--kind", "gpt", "--text", short, "--out", tmp_path / "out", says="has 1 lines, and a text"
    )


def test_a_resumed_training_keeps_its_kind_and_its_text(tmp_path: Path, command: Command, text: Path) -> None:
    folder = tmp_path / "run"
    command("train", "--kind", "gpt", "--text", text, *TEXT, *TINY, "--steps", "2", "--out", folder)
    refuse(command, "train", "--resume", folder, "--kind", "bert", says="holds a model of --kind gpt, not bert")
    refuse(command, "train", "--resume", folder, "--window", "4", says="window None, not 4")
    other = tmp_path / "other.txt"
    other.write_text("a\nb\n")
    refuse(command, "train", "--resume", folder, "--text", other, says="other.txt")
    assert command("train", "--resume", folder, "--text", text, "--steps", "3")[0] == 0


@pytest.mark.parametrize("kind", ["gpt", "bert", "t5"])
def test_data_that_was_deleted_is_made_again(tmp_path: Path, command: Command, text: Path, kind: str) -> None:
    """A part of it from what the rest says, and all of it from the text that is named again."""
    folder = tmp_path / "run"
    command("train", "--kind", kind, "--text", text, *TEXT, *TINY, "--steps", "2", "--out", folder)
    before = {path.relative_to(folder): path.read_bytes() for path in sorted((folder / "data").rglob("*.bin"))}
    assert before
    shutil.rmtree(folder / "data" / "train")
    assert command("train", "--resume", folder, "--steps", "3")[0] == 0
    shutil.rmtree(folder / "data")
    refuse(command, "train", "--resume", folder, says="add --data, --dataset, --text or --table to --resume")
    assert command("train", "--resume", folder, "--steps", "4", "--text", text)[0] == 0
    assert {path.relative_to(folder): path.read_bytes() for path in sorted((folder / "data").rglob("*.bin"))} == before


@pytest.fixture
def short_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "GRAMMAR_VALIDATION", 10)


@pytest.mark.usefixtures("short_grammar")
def test_a_language_model_s_grammar_is_written_again(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "run"
    few = ["--sentences", "100"]
    command("train", "--kind", "gpt", "--dataset", "grammar", *few, *TEXT, *TINY, "--steps", "2", "--out", folder)
    shutil.rmtree(folder / "data")
    assert command("train", "--resume", folder, "--steps", "3", "--dataset", "grammar", *few)[0] == 0


@pytest.mark.usefixtures("short_grammar")
def test_pairs_that_were_deleted_are_not_replaced_by_a_text(tmp_path: Path, command: Command, text: Path) -> None:
    folder = tmp_path / "run"
    size = [*("--sentences", "100", "--vocab-size", "400", "--max-length", "200")]
    command("train", "--kind", "t5", "--dataset", "grammar", *size, *TINY, "--steps", "2", "--out", folder)
    (folder / "data" / "tokenizer.json").unlink()
    refuse(command, "train", "--resume", folder, "--text", text, says=f"has text None, not {text}")
    assert command("train", "--resume", folder, "--steps", "3")[0] == 0


SHAPE: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A folder with a checkpoint of each kind, and the language model as another library has it."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = BPETokenizer.train(text.read_text().split("\n"), 330)
    configs = {
        "gpt": GPTConfig(330, **SHAPE, max_length=32, bos_id=2, eos_id=2, init_std=0.3),
        "bert": BERTConfig(331, **SHAPE, max_length=32, mask_id=330, init_std=0.3),
        "classes": BERTConfig(331, **SHAPE, max_length=32, head="classes", num_classes=3),
        "vit": ViTConfig(10, 8, 2, 1, **SHAPE),
        "clip": CLIPConfig(330, **SHAPE),
        "t5": T5Config(430, **SHAPE, d_k=8, max_length=32, bos_id=1, eos_id=2),
    }
    for name, config in configs.items():
        weights = build_model(config, seed=2).parameters.state_dict()
        if name == "gpt":  # no bytes: libraries show those that are no UTF-8 in different ways
            weights["decoder.final_norm.beta"][0] = 9.0
            weights["tokens.table"][3:259, 0], weights["tokens.table"][259:, 0] = -1.0, 1.0
        save_checkpoint(folder / name, Checkpoint(config.to_dict(), weights, tokenizer=tokenizer.to_json()))
    save(load_checkpoint(folder / "gpt").model(), folder / "gpt2", tokenizer)
    return folder


def test_generate_streams_what_the_generator_writes(command: Command, models: Path) -> None:
    generator = Generator.from_checkpoint(models / "gpt")
    expected = [generator.generate("The dog", 9, Sampling(top_k=20, seed=seed))[0] for seed in (4, 5)]
    options = ["--max-tokens", "9", "--top-k", "20", "--seed", "4", "--samples", "2"]
    status, out, _ = command("generate", models / "gpt", "The dog", *options)
    assert (status, out) == (0, "".join(f"The dog{text}\n" for text in expected))
    assert command("generate", models / "gpt2", "The dog", *options)[1] == out  # a folder of another library's
    (best,) = generator.generate("The dog", 5, beam=3)
    assert command("generate", models / "gpt", "The dog", "--max-tokens", "5", "--beam", "3")[1] == f"The dog{best}\n"


def test_generate_with_a_draft(command: Command, models: Path, tmp_path: Path) -> None:
    """The text stays; what became of the proposals is said in one line."""
    small, deep = load_checkpoint(models / "gpt"), tmp_path / "deep"
    config = replace(GPTConfig.from_dict(small.config), num_layers=2)
    weights = build_model(config, seed=7).parameters.state_dict()
    save_checkpoint(deep, Checkpoint(config.to_dict(), weights, tokenizer=small.tokenizer))
    write = ["generate", deep, "The dog the dog", "--max-tokens", "12", "--temperature", "0"]
    text = command(*write)[1]
    for draft in ("prompt", "layers:1", deep, models / "gpt", models / "gpt2"):
        status, out, said = command(*write, "--draft", draft, "--draft-tokens", "3")
        assert (status, out) == (0, text)
        (counts,) = re.findall(r"(\d+) tokens proposed, (\d+) accepted, (\d+) calls of the model\n", said)
        proposed, accepted, calls = map(int, counts)
        assert proposed == accepted == 9 if draft == deep else proposed > 3
        assert accepted + calls == 12
    more = BPETokenizer.train(["zebras amaze zoos"] * 9, 270)
    save_checkpoint(tmp_path / "other", replace(small, tokenizer=more.to_json()))
    for options, says in (
        (["--draft", tmp_path / "other"], "other has other tokens than"),
        (["--draft", models / "bert"], "bert holds a model of kind 'bert', which does not continue texts"),
        (["--draft", "layers:2"], "num_layers is 2, expected at least 1 and fewer than the model's 2"),
        (["--draft", "layers:first"], "argument --draft: expected a whole number, got 'first'"),
        (["--draft", "prompt", "--beam", "2"], "--draft does not go with --beam"),
        (["--draft-tokens", "2"], "--draft-tokens goes with --draft"),
    ):
        refuse(command, *write[:3], *options, says=says)


def test_generate_keeps_keys_and_values_in_bytes(
    command: Command, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, write = load_checkpoint(models / "gpt"), ["The dog", "--max-tokens", "9", "--temperature", "0"]
    text = command("generate", models / "gpt", *write)[1]
    monkeypatch.setattr(ByteCache, "_in_bytes", lambda self, x: (self.ops.cast(0 * x, "uint8"), x[..., :1]))
    assert command("generate", models / "gpt", *write)[1] == text
    assert command("generate", models / "gpt", *write, "--cache-in-bytes")[1] != text
    config = replace(GPTConfig.from_dict(opened.config), attention="linear", attention_dropout=0.0)
    weights = build_model(config).parameters.state_dict()
    save_checkpoint(tmp_path / "linear", Checkpoint(config.to_dict(), weights, tokenizer=opened.tokenizer))
    refuse(command, "generate", tmp_path / "linear", *write, "--cache-in-bytes", says="linear attention keeps sums")


def test_generate_draws_what_each_layer_would_say(command: Command, models: Path, tmp_path: Path) -> None:
    status, out, _ = command("generate", models / "gpt", "The dog", "--max-tokens", "3", "--lens", tmp_path / "a.png")
    assert (status, out.startswith("The dog")) == (0, True)
    generator = Generator.from_checkpoint(models / "gpt")
    ids, names = generator.encode("The dog"), generator.tokenizer.tokens
    plot_logit_lens(
        logit_lens(generator.model, [ids])[:, 0], names(ids), names, tmp_path / "b.png",
        "What the model would say next, after each of its layers",
    )  # fmt: skip
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_continuation_keeps_its_space(models: Path) -> None:
    """Tokenizers take the space off the front of a text; in the middle it belongs there."""
    generator = Generator.from_checkpoint(models / "gpt")
    tokenizer = generator.tokenizer
    ids = tokenizer.encode("The dog sees the cat.")
    assert generator.text_after(ids[:2], ids[2:]) == tokenizer.decode(ids)[len(tokenizer.decode(ids[:2])) :]
    assert "".join(generator.stream("The dog", 12)) == generator.generate("The dog", 12)[0]


def test_fill_gives_the_softmax_of_each_gap(command: Command, models: Path) -> None:
    filler = Filler.from_checkpoint(models / "bert")
    tokenizer, model = filler.tokenizer, filler.model
    left, right = tokenizer.encode("The old"), tokenizer.encode("sees.")
    logits, _ = model.forward([[1, *left, 330, *right, 2]])
    row = np.exp(logits[0, 1 + len(left)].astype(np.float64))
    row /= row.sum()
    best = np.argsort(-row)[:3]
    (guesses,) = filler.fill("The old [MASK] sees.", 3)
    for token, guess in zip(best.tolist(), guesses, strict=True):
        text = tokenizer.decode([token]).strip()
        assert guess.text == (tokenizer.tokens([token])[0] if text in ("", "\ufffd") else text)  # <0xC3>
        assert guess.probability == pytest.approx(row[token], rel=1e-5)
    status, out, _ = command("fill", models / "bert", "The old [MASK] sees. [MASK]!", "--count", "3")
    assert status == 0
    assert [line.count("\t") for line in out.splitlines()] == [1, 1, 1, 0, 1, 1, 1]


def test_a_t5_fills_gaps_of_any_length(command: Command, models: Path) -> None:
    """A gap gets what stands between two marks of an output; its probability is the product of its tokens'."""
    filler = SpanFiller.from_checkpoint(models / "t5")
    tokenizer, config = filler.tokenizer, filler.model.config
    text, marks = "The <extra_id_0> sees <extra_id_1>.", (429, 428)
    gaps = filler.fill(text, 3)
    source = [*tokenizer.encode("The"), 429, *tokenizer.encode("sees"), 428, *tokenizer.encode(".")[1:], 2]
    found = beam_search(filler.model, np.array([source]), 4, 0.0, n_best=3)[0]
    for each, guesses in zip(found, zip(*gaps, strict=True), strict=True):
        written = [*each.ids, config.eos_id][: len(each.ids) + each.ended]
        logits = filler.model.forward([source], [[config.bos_id, *written[:-1]]])[0][0].astype(np.float64)
        nats = logits[np.arange(len(written)), written].sum() - np.log(np.exp(logits).sum(1)).sum()
        assert guesses[0].probability == guesses[1].probability == pytest.approx(np.exp(nats), rel=1e-3)
    known = tokenizer.encode("dog cat")
    for ids, says in (
        ([429, *known, 428, *known[:1], 2], ["dog cat", "dog"]),
        ([428, *known], ["", "dog cat"]),
        ([429, 428], ["", ""]),
    ):
        assert [filler._between(ids, mark) for mark in marks] == says
    status, out, _ = command("fill", models / "t5", text, "--count", "3")
    assert (status, [line.count("\t") for line in out.splitlines()]) == (0, [1, 1, 1, 0, 1, 1, 1])


def test_info_of_every_kind(command: Command, models: Path) -> None:
    for name in ("gpt", "bert", "vit", "clip", "t5", "gpt2"):
        status, out, _ = command("info", models / name)
        assert status == 0
        total, costs = out.split("\n  all ")[1].split("\n", maxsplit=1)
        read = "patch of a picture" if name == "clip" else "(source )?token"
        assert ("  training, a token" in costs) == (name != "clip")
        assert re.search(rf"^  forward, a {read} +[0-9.]+ MFLOP$", costs, re.MULTILINE)
        assert int(total.replace(",", "")) == load_checkpoint(models / name.removesuffix("2")).model().parameters.count
    assert "330 tokens" in out


def test_classify_digits_pictures_and_texts(command: Command, models: Path, tmp_path: Path) -> None:
    from matplotlib.image import imsave

    _, valid = digits()
    model = load_checkpoint(models / "vit").model()
    logits, _ = model.forward(valid.images[[3, 8]])
    status, out, _ = command("classify", models / "vit", "--digits", "3", "8")
    assert status == 0
    assert [line.split("\t")[1] for line in out.splitlines()] == [str(each) for each in logits.argmax(1)]
    assert out.startswith(f"digit 3, a {valid.classes[3]}\t")
    large = np.kron((valid.images[3, 0] + 1) / 2, np.ones((4, 4)))  # 32 × 32 pixels, averaged down to 8 × 8
    imsave(tmp_path / "digit.png", large, cmap="gray", vmin=0, vmax=1)
    _, picture, _ = command("classify", models / "vit", tmp_path / "digit.png")
    assert picture.split("\t")[1] == out.split("\t")[1]
    status, texts, _ = command("classify", models / "classes", "The dog sees.", "A cat.")
    assert (status, len(texts.splitlines())) == (0, 2)
    batches = valid.batches(4096, None, model.config)
    right = np.concatenate([model.forward(batch.inputs[0])[0].argmax(1) for batch in batches.epoch(0)]) == valid.classes
    assert accuracy(model, batches.epoch(0)) == pytest.approx(100 * right.mean())


def test_a_text_is_read_in_windows_that_fit_into_the_memory(
    command: Command, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("The dog sees a cat.\n" * 20)
    config = load_checkpoint(models / "gpt").model().config
    weights, fits = 4 * config.num_parameters, reading_bytes(config, 16)
    arguments = ["evaluate", models / "gpt", "--text", tmp_path / "text"]
    _, whole, _ = command(*arguments)
    assert "window" not in whole
    _, of_sixteen, _ = command(*arguments, "--context", "16")
    _, of_eight, _ = command(*arguments, "--context", "8")
    for memory, window, expected in ((2 * fits, 16, of_sixteen), (2 * fits - 2, 8, of_eight)):
        monkeypatch.setattr("minitransformer.cli.backend.memory_limit", lambda memory=memory: weights + memory)
        status, out, _ = command(*arguments)
        first, rest = out.split("\n", 1)
        says = f"{window}    of the model's 32 tokens: more take too much memory; --context N sets it"
        assert (status, first.split(None, 1), rest) == (0, ["window", says], expected)
        assert command(*arguments, "--context", "32")[1] == whole


def test_processes_of_one_machine_share_its_memory_and_agree_on_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    config = GPTConfig(100, 16, 2, 32, 2, max_length=64)
    weights, fits = 4 * config.num_parameters, reading_bytes(config, 64)
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    for memory, context in ((4 * (weights + 2 * fits), 64), (4 * (weights + 2 * fits) - 8, 32), (1, 1)):
        monkeypatch.setattr("minitransformer.cli.backend.memory_limit", lambda memory=memory: memory)
        processes = Processes(0, 8, store=object())
        args = argparse.Namespace(backend="numpy", bits=None)
        assert fitting_context(args, config, NUMPY, processes) == context


def test_a_text_s_nats_are_float64_whatever_the_model_computes_in(models: Path) -> None:
    model = load_checkpoint(models / "gpt").model(dtype="float32")
    ids = np.random.default_rng(0).integers(3, 330, 32)
    logits = model.forward([[2, *ids[:-1]]])[0][0].astype(np.float64)
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(32), ids]
    assert text_nats(model, ids.tolist(), 2) == pytest.approx(expected.sum(), rel=1e-14)
    with pytest.raises(ValueError, match="targets"):
        text_nats(model, [5, 330], 2)


@pytest.mark.parametrize("stride", [1, 7, 16, 32])
def test_a_text_s_nats_are_summed_over_windows(models: Path, stride: int) -> None:
    """Every token once, each with a context of at least `longest − stride` tokens where there are so many."""
    model = load_checkpoint(models / "gpt").model(dtype="float64")
    ids = np.random.default_rng(0).integers(3, 330, 75).tolist()
    tokens, expected = [2, *ids], 0.0
    for place in range(1, len(tokens)):
        start = 0 if place <= 32 else min(32 + stride * -(-(place - 32) // stride), 75) - 32
        logits, _ = model.forward([tokens[start:place]])
        expected -= logits[0, -1, tokens[place]] - np.log(np.exp(logits[0, -1]).sum())
    assert text_nats(model, ids, 2, stride) == pytest.approx(expected, rel=1e-12)


def test_a_window_may_be_shorter_than_the_model_s_longest_text(models: Path) -> None:
    model = load_checkpoint(models / "gpt").model(dtype="float64")
    ids = np.random.default_rng(0).integers(3, 330, 30).tolist()
    tokens, expected = [2, *ids], 0.0
    for place in range(1, len(tokens)):
        start = 0 if place <= 8 else min(8 + 3 * -(-(place - 8) // 3), 30) - 8
        logits, _ = model.forward([tokens[start:place]])
        expected -= logits[0, -1, tokens[place]] - np.log(np.exp(logits[0, -1]).sum())
    assert text_nats(model, ids, 2, 3, context=8) == pytest.approx(expected, rel=1e-12)


def test_evaluate_a_text(command: Command, models: Path, text: Path) -> None:
    status, out, _ = command("evaluate", models / "gpt", "--text", text)
    assert status == 0
    figures = {line[:20].strip(): float(line[20:].replace(",", "")) for line in out.splitlines()}
    nats = figures["tokens"] * np.log(figures["perplexity"])
    assert figures["bits per byte"] == pytest.approx(nats / np.log(2) / figures["bytes"], rel=1e-3)
    assert figures["bytes"] == len(text.read_bytes()) - 256  # without the blank lines


def test_the_parser_judges_what_a_language_model_writes(
    command: Command, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = iter(["A dog sleeps.", "A dog sleep.", " A dog sleeps.", "", "Every cat runs."] * 60)
    monkeypatch.setattr(Generator, "generate", lambda self, prompts, *rest: [next(written) for _ in prompts])
    status, out, _ = command("evaluate", models / "gpt", "--samples", "300")
    assert (status, out.split()[1::2]) == (0, ["300", "5", "60.00"])


def test_a_model_whose_weights_are_no_numbers_writes_nothing(command: Command, models: Path, tmp_path: Path) -> None:
    generator = Generator.from_checkpoint(models / "gpt")
    generator.model.parameters.data[...] = np.nan
    save(generator.model, tmp_path, generator.tokenizer)
    for options in ([], ["--temperature", "0"], ["--beam", "2"]):
        refuse(command, "generate", tmp_path, "The dog", *options, says="logits are NaN")
    refuse(command, "evaluate", tmp_path, "--text", __file__, says="the text's loss is nan")
    for name, arguments in (("bert", ["fill", "A [MASK]."]), ("classes", ["classify", "A dog."])):
        checkpoint = load_checkpoint(models / name)
        model = checkpoint.model()
        model.parameters.data[...] = np.nan
        save(model, tmp_path / name, BPETokenizer.from_json(checkpoint.tokenizer or ""))
        refuse(command, arguments[0], tmp_path / name, arguments[1], says="logits are NaN")
    refuse(command, "embed", tmp_path / "bert", "A dog.", says="the vectors are NaN")


@pytest.mark.parametrize("name", ["t5", "gpt"])
def test_weights_whose_squares_overflow_are_refused(command: Command, models: Path, tmp_path: Path, name: str) -> None:
    """A norm would make 0 of them, and the model would end every text at once."""
    checkpoint = load_checkpoint(models / name)
    checkpoint.parameters["tokens.table"][0, 0] = -3e38
    save_checkpoint(tmp_path / "model", checkpoint)
    says = f"{tmp_path / 'model'}: the model's parameters are far too large"
    refuse(command, "fill" if name == "t5" else "generate", tmp_path / "model", "A <extra_id_0>.", says=says)


def test_files_of_another_library_are_told_from_checkpoints(command: Command, models: Path, tmp_path: Path) -> None:
    weights = models / "gpt2" / "model.safetensors"
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(99))
    os.mkfifo(tmp_path / "pipe")
    for line in (["generate"], ["info"], ["evaluate", "--samples", "3"]):
        refuse(command, line[0], weights, *line[1:], says=f"name the folder, {weights.parent}")
        refuse(command, line[0], tmp_path / "model.gguf", *line[1:], says="is of version 0 of GGUF")
        refuse(command, line[0], tmp_path / "pipe", *line[1:], says="is a device or a pipe")
    assert command("info", weights.parent)[0] == 0


@pytest.mark.parametrize("kind", ["gpt", "classes"])
def test_a_tokenizer_that_fails_at_a_text_says_so(command: Command, models: Path, tmp_path: Path, kind: str) -> None:
    """The engine of its regular expressions gives up after ten million steps, and ends the package with a panic."""
    checkpoint = load_checkpoint(models / kind)
    save(checkpoint.model(), tmp_path / "model", BPETokenizer.from_json(checkpoint.tokenizer or ""))
    path, text = tmp_path / "model" / "tokenizer.json", "a" * 40 + "b"
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    path.write_text(json.dumps({**json.loads(path.read_text()), "pre_tokenizer": slow}))
    (tmp_path / "text").write_text(text)
    commands = {"gpt": [["generate", text], ["evaluate", "--text", tmp_path / "text"]], "classes": [["classify", text]]}
    for name, *rest in commands[kind]:
        refuse(command, name, tmp_path / "model", *rest, says="the tokenizer can't encode this text")


def test_the_last_seed_has_a_next_one(command: Command, models: Path) -> None:
    options = ["--max-tokens", "4", "--samples", "2", "--seed"]
    _, last, _ = command("generate", models / "gpt", "The dog", *options, str(2**63 - 1))
    _, first, _ = command("generate", models / "gpt", "The dog", *options, "0")
    assert last.splitlines()[1] == first.splitlines()[0]


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(command: Command, models: Path, tmp_path: Path) -> None:
    for name, arguments in (("gpt", ["evaluate", "--text", __file__]), ("classes", ["classify", "A dog."])):
        checkpoint = load_checkpoint(models / name)
        more = BPETokenizer.train(Path(__file__).read_text(encoding="utf-8").split("\n"), 400)
        save_checkpoint(tmp_path / name, replace(checkpoint, tokenizer=more.to_json()))
        says = "tokens and the tokenizer 400: they don't belong together"
        refuse(command, arguments[0], tmp_path / name, *arguments[1:], says=says)


def test_the_accuracy_of_a_line_that_is_longer_than_most_batches(models: Path) -> None:
    """A training's own size of batches may be larger than that of the accuracy."""
    lines = np.random.default_rng(0).integers(3, 330, (1, 4100))
    model = build_model(BERTConfig(331, 4, 1, 4, 1, max_length=4102, mask_id=330))
    valid, settings = MaskedText(TextDataset.from_lines(lines)), TrainingSettings(tokens_per_batch=4102)
    assert 0 <= _accuracy(valid, settings, ALONE, model, {})["accuracy"] <= 100


def test_what_a_model_is_not_for_is_said_in_one_sentence(command: Command, models: Path, tmp_path: Path) -> None:
    gpt, bert, vit, t5 = (models / name for name in ("gpt", "bert", "vit", "t5"))
    for arguments, says in (
        (["generate", bert, "A"], "holds a model of kind 'bert', which does not continue texts"),
        (["generate", gpt, "dog " * 50], "and the model's texts have at most 32"),
        (["generate", gpt, "A", "--beam", "2", "--top-k", "3"], "a --beam draws nothing"),
        (["generate", gpt, "A", "dog", "--lens", tmp_path / "a.png"], "--lens draws one prompt, got 2"),
        (["generate", gpt, "--file", "x", "--lens", tmp_path / "a.png"], "--lens draws one prompt, got a file"),
        (["generate", gpt, "A", "--lens", gpt], "would replace what is read"),
        (["generate", gpt, "A", "--file", "x"], "prompts and --file do not go together"),
        (["generate", tmp_path / "none" / "deeper", "A"], "No such folder"),
        (["fill", gpt, "A [MASK]."], "can't fill gaps"),
        (["fill", models / "classes", "A [MASK]."], "classes: the BERT has the head of a classifier, not the masked"),
        (["fill", bert, "A dog."], "there is no [MASK] in the text"),
        (["fill", t5, "A dog."], "the gaps of a text are <extra_id_0>, <extra_id_1>, … in this order"),
        (["fill", t5, "A <extra_id_1>."], "in this order"),
        (["fill", t5, "A <extra_id_0>.", "--count", "1001"], "--count"),
        (["translate", t5, "A dog."], "was trained to fill the gaps of a text, not to translate: `fill` asks it"),
        (["classify", models / "classes", "a dog", "\udcff"], "input 2 is not UTF-8"),
        (["generate", t5, "A dog"], "does not continue texts; `translate` shows what it writes"),
        (["info", tmp_path], "is a folder without a model"),
        (["classify", vit], "name what to classify"),
        (["classify", vit, "--digits", "400"], "there are 364 held-out digits"),
        (["classify", vit, gpt], "gpt is not an image that can be read"),
        (["classify", vit, models / "none.png"], "none.png: No such file"),
        (["classify", models / "classes", "--digits", "3"], "classes classifies texts"),
        (["embed", gpt, "A dog."], "a model of kind 'gpt' makes no vectors of texts: a BERT does"),
        (["embed", bert], "name what to embed: texts, or --file, one of the two"),
        (["embed", bert, "A", "\udcff"], "text 2 is not UTF-8"),
        (["embed", bert, "A", "--out", bert], "would replace what is read"),
        (["similar", bert, "A dog."], "name two texts or more, or one and --file"),
        (["classify", bert, "A dog."], "a model of kind 'bert' without a classifier"),
        (["evaluate", bert, "--text", __file__], "not a language model"),
        (["evaluate", gpt, "--stride", "3"], "--stride goes with --text"),
        (["evaluate", gpt, "--context", "3"], "--context goes with --text"),
        (["evaluate", bert, "--samples", "3"], "not a language model"),
        (["evaluate", gpt, "--samples", "3", "--dataset", "grammar"], "--dataset does not go with --samples"),
        (["evaluate", gpt, "--text", __file__, "--samples", "3"], "--samples does not go with --text"),
        (["evaluate", gpt, "--text", __file__, "--target", "en"], "--target does not go with --text"),
        (["evaluate", gpt, "--text", __file__, "--stride", "33"], "stride is 33, expected 1 to 32"),
        (["evaluate", gpt, "--text", __file__, "--context", "8", "--stride", "9"], "stride is 9, expected 1 to 8"),
        (
            ["evaluate", gpt, "--text", __file__, "--context", "33"],
            "context is 33, expected 1 to 32, the",
        ),
        (["translate", gpt, "A dog."], "kind 'gpt', which does not translate"),
    ):
        refuse(command, *arguments, says=says)
