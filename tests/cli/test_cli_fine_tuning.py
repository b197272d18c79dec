"""`train --from`: published models and checkpoints are trained further, and go back to where they came from."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from support.cli_runs import Command
from support.word_models import LINES, SHARED, SIZES, word_llama, word_tokenizer

from minitransformer import pretrained
from minitransformer.cli.recipes import material
from minitransformer.data.preparation import open_prepared
from minitransformer.models import Tuning, is_adapter
from minitransformer.training import TrainingSettings, read_log
from minitransformer.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

tr: Any = transformers
BRIEFLY = ["--tokens-per-batch", 64, "--valid-interval", 2, "--checkpoint-interval", 2, "--threads", 1, "--seed", 3]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Llama, a RoBERTa and a T5 of `transformers`, and texts to train them on."""
    home = tmp_path_factory.mktemp("published")
    torch.manual_seed(0)
    word_llama(home / "llama")
    word_tokenizer(home / "roberta", ["<s>"], ["</s>"])
    _, ids = word_tokenizer(home / "roberta", ["<s>"], ["</s>"])
    shared = SHARED | {"vocab_size": len(ids)}
    roberta = tr.RobertaConfig(**SIZES, **shared, max_position_embeddings=34, type_vocab_size=1)
    tr.RobertaForMaskedLM(roberta).save_pretrained(home / "roberta")
    word_tokenizer(home / "t5", [], ["</s>"])
    t5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 1}
    tr.T5ForConditionalGeneration(tr.T5Config(**shared, **t5)).save_pretrained(home / "t5")
    (home / "text.txt").write_text("\n".join(LINES) + "\n")
    labels = ["kind" if "likes" in line else "other" for line in LINES]
    (home / "table.tsv").write_text("".join(f"{line}\t{label}\n" for line, label in zip(LINES, labels, strict=True)))
    for split, lines in (("train", LINES), ("valid", LINES[:8])):
        for language, turned in (("en", 1), ("de", -1)):
            text = [" ".join(line.replace(".", " .").split()[::turned]) for line in lines]
            (home / f"{split}.{language}").write_text("\n".join(text) + "\n")
    return home


@pytest.fixture
def command(command: Command) -> Any:
    """The command line, which numbers may be given to."""
    return lambda *arguments: command(*map(str, arguments))


CASES = {
    "next": ("llama", ["--text", "text.txt"], "generate"),
    "masked": ("roberta", ["--text", "text.txt"], "fill"),
    "classes": ("roberta", ["--table", "table.tsv"], "classify"),
    "spans": ("t5", ["--text", "text.txt"], "fill"),
    "pairs": ("t5", ["--data", "."], "translate"),
}


def options(folders: Path, case: str) -> list[Any]:
    model, (option, name), _ = CASES[case]
    return ["train", "--from", folders / model, option, folders / name, *BRIEFLY]


@pytest.mark.parametrize("more", [[], ["--lora", 2, "--lora-alpha", 6]], ids=["all", "lora"])
@pytest.mark.parametrize("case", CASES)
def test_a_published_model_goes_on_and_resumes_with_the_same_bits(
    folders: Path, tmp_path: Path, command: Command, case: str, more: list[Any]
) -> None:
    start, whole, halves = options(folders, case), tmp_path / "whole", tmp_path / "halves"
    status, out, _ = command(*start, *more, "--steps", 4, "--out", whole)
    assert (status, f" {CASES[case][2]} " in out.splitlines()[-1]) == (0, True)
    assert command(*start, *more, "--steps", 2, "--out", halves)[0] == 0
    assert command("train", "--resume", halves, "--steps", 4)[0] == 0
    last = "step-00000004.safetensors"
    a, b = load_checkpoint(whole / last), load_checkpoint(halves / last)
    assert a.parameters.keys() == b.parameters.keys()
    for name, array in a.parameters.items():
        np.testing.assert_array_equal(array, b.parameters[name])
    assert (a.state, a.tokenizer) == (b.state | {"settings": a.state["settings"]}, b.tokenizer)
    before = pretrained.load(folders / CASES[case][0])[0].parameters.state_dict()
    moved = {name for name, array in a.parameters.items() if not np.array_equal(array, before.get(name))}
    if more:
        assert moved == {n for n in a.parameters if is_adapter(n) or (n.startswith("head.") and case == "classes")}
    assert moved
    for name in ("adapter_model", "model"):
        files = [folder / ("adapter" if more else "model") / f"{name}.safetensors" for folder in (whole, halves)]
        assert [each.exists() for each in files] == [(name == "model") != bool(more)] * 2
        if files[0].exists():
            assert files[0].read_bytes() == files[1].read_bytes()


def test_adapters_beside_few_bits_go_on_with_the_same_bits(folders: Path, tmp_path: Path, command: Command) -> None:
    _, ids = word_tokenizer(tmp_path / "wide", ["<s>"], [])
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = tr.LlamaConfig(**sizes, **SHARED, vocab_size=len(ids), max_position_embeddings=64)
    tr.LlamaForCausalLM(config).save_pretrained(tmp_path / "wide")
    start = ["train", "--from", tmp_path / "wide", "--text", folders / "text.txt", *BRIEFLY, "--lora", 2, "--bits", 4]
    start += ["--peak-lr", 0.05]
    assert command(*start, "--steps", 4, "--out", tmp_path / "whole")[0] == 0
    assert command(*start, "--steps", 2, "--out", tmp_path / "halves")[0] == 0
    assert command("train", "--resume", tmp_path / "halves", "--steps", 4, "--merge")[0] == 0
    last = "step-00000004.safetensors"
    a, b = load_checkpoint(tmp_path / "whole" / last), load_checkpoint(tmp_path / "halves" / last)
    assert (a.state["bits"], len(a.quantized)) == (4, 6)
    for name, array in a.parameters.items():
        np.testing.assert_array_equal(array, b.parameters[name])
    adapter = [tmp_path / name / "adapter" / "adapter_model.safetensors" for name in ("whole", "halves")]
    assert (adapter[0].exists(), adapter[1].exists()) == (True, True)
    assert adapter[0].read_bytes() == adapter[1].read_bytes()
    model, _ = pretrained.load(tmp_path / "halves" / "model")
    few = a.model()
    tokens = np.array([[0, 6, 7, 8]])
    np.testing.assert_allclose(model.forward(tokens)[0], few.forward(tokens)[0], atol=1e-5)
    for name, more in (("wide", ["--bits", 8]), (f"whole/{last}", []), (f"whole/{last}", ["--bits", 8])):
        status, out, _ = command("generate", tmp_path / name, "The dog", "--max-tokens", 3, *more)
        assert (status, out.startswith("The dog")) == (0, True)
        status, out, _ = command("evaluate", tmp_path / name, "--text", folders / "text.txt", *more)
        assert (status, "perplexity" in out) == (0, True)
    assert command("inside", tmp_path / "whole" / last, "The dog", "--out", tmp_path / "page.html")[0] == 0
    again = [*start[:2], tmp_path / "whole" / last, *start[3:], "--steps", 1, "--out", tmp_path / "again"]
    assert command(*again)[0] == 0


def test_a_folder_that_was_trained_is_read_by_transformers_with_the_same_logits(
    folders: Path, tmp_path: Path, command: Command
) -> None:
    assert (
        command(*options(folders, "next"), "--lora", 2, "--merge", "--peak-lr", 0.1, "--steps", 3, "--out", tmp_path)[0]
        == 0
    )
    ours, tokenizer = pretrained.load(tmp_path / "model")
    ids = np.array([tokenizer.encode("The dog likes the old cat.", special_tokens=True)])
    theirs = tr.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    logits = theirs(torch.from_numpy(ids)).logits.detach().numpy()
    merged = load_checkpoint(tmp_path / "step-00000003.safetensors").model()
    assert not any(map(is_adapter, merged.parameters.named))
    for model in (ours, merged):
        np.testing.assert_allclose(model.forward(ids)[0], logits, atol=1e-5)
    theirs = json.loads((tmp_path / "model" / "config.json").read_text())
    came_from = json.loads((folders / "llama" / "config.json").read_text())
    assert {name: theirs[name] for name in came_from} == came_from
    assert np.abs(merged.forward(ids)[0] - pretrained.load(folders / "llama")[0].forward(ids)[0]).max() > 1e-4


def test_the_marks_of_a_text_are_those_of_the_model(folders: Path, tmp_path: Path, command: Command) -> None:
    """A Llama learns <s> line </s>, and its ids begin with 0; a RoBERTa's padding is 1; with a T5's a target begins."""
    for case, first in (("next", 0), ("masked", 0), ("classes", 0), ("pairs", 1), ("spans", 1)):
        folder = tmp_path / case
        assert command(*options(folders, case), "--steps", 1, "--out", folder)[0] == 0
        model, tokenizer = pretrained.load(folder / "model")
        data = open_prepared(folder / "data", tokenizer)
        batch = material(model.config, data, TrainingSettings()).train.batches(1024, 0, model.config).batch(0, 0)
        ids, targets, *others = batch.inputs
        if case == "next":
            assert data.train[0][0].tolist() == [0, *tokenizer.encode(LINES[0]), 2]
        elif case == "pairs":
            lines = (folders / "train.de").read_text().splitlines()
            (target_in, target_out), pairs = (
                (each[0].tolist() for each in (targets, others[0])),
                list(map(tokenizer.encode, lines)),
            )
            written = [each for each in target_in if each != 1]
            assert written in pairs
            assert target_in[: len(written) + 1] == [first, *written]
            assert target_out == [*written, 2, *[1] * (len(target_in) - len(written) - 1)]
        elif case == "spans":
            assert (targets[:, 0] == first).all()
            assert (ids == tokenizer.inner.token_to_id("<extra_id_0>")).any()
        else:
            assert (ids[:, 0] == first).all()
            assert (others[1] == (ids != 1)).all()
            assert not others[1].all()
            assert ((ids == 2).sum(1) == 1).all()


def test_frozen_parameters_stay_bit_for_bit(folders: Path, tmp_path: Path, command: Command) -> None:
    patterns = ["tokens.*", "decoder.layers.0.*"]
    start = [*options(folders, "next"), "--freeze", *patterns, "--steps", 3, "--out", tmp_path]
    assert command(*start)[0] == 0
    after = load_checkpoint(tmp_path / "step-00000003.safetensors")
    before = pretrained.load(folders / "llama")[0].parameters.state_dict()
    stayed = {name for name, array in after.parameters.items() if np.array_equal(array, before[name])}
    assert stayed == {name for name in before if name.startswith(("tokens.", "decoder.layers.0."))}
    assert after.tuning == Tuning(tuple(patterns))
    assert not any("layers.0." in name for name in after.optimizer or {})


def test_a_classifier_keeps_its_labels_and_a_head_that_knows_them(
    folders: Path, tmp_path: Path, command: Command
) -> None:
    first = [*options(folders, "classes"), "--steps", 60, "--peak-lr", 0.01, "--out", tmp_path / "first"]
    assert command(*first)[0] == 0
    assert read_log(tmp_path / "first" / "log.jsonl")[-1]["accuracy"] == 100
    config = json.loads((tmp_path / "first" / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "kind", "1": "other"}
    assert config["architectures"] == ["RobertaForSequenceClassification"]
    status, out, _ = command("classify", tmp_path / "first" / "model", "The cat likes the old dog.")
    assert (status, out.split("\t")[1] in ("0", "kind")) == (0, True)
    again = ["train", "--from", tmp_path / "first" / "model", "--table", folders / "table.tsv", *BRIEFLY]
    assert command(*again, "--lora", 2, "--steps", 1, "--out", tmp_path / "second")[0] == 0
    checkpoint = load_checkpoint(tmp_path / "second" / "step-00000001.safetensors")
    assert checkpoint.tuning == Tuning(("*",), (), 2)
    assert not any(
        "classifier" in name for name in load_file(tmp_path / "second" / "adapter" / "adapter_model.safetensors")
    )


def test_our_own_checkpoint_goes_on_with_its_tokenizer(folders: Path, tmp_path: Path, command: Command) -> None:
    sizes = [
        "--d-model",
        16,
        "--num-heads",
        2,
        "--d-ff",
        16,
        "--num-layers",
        1,
        "--vocab-size",
        290,
        "--max-length",
        32,
    ]
    text = ["--text", folders / "text.txt", *BRIEFLY]
    assert command("train", "--kind", "gpt", *text, *sizes, "--steps", 2, "--out", tmp_path / "a")[0] == 0
    path = tmp_path / "a" / "step-00000002.safetensors"
    (folders / "other.txt").write_text("A quick fox jumps over lazy cows.\n" * 30)
    other = ["--text", folders / "other.txt", *BRIEFLY]
    assert command("train", "--from", path, *other, "--lora", 2, "--steps", 2, "--out", tmp_path / "b")[0] == 0
    before, after = load_checkpoint(path), load_checkpoint(tmp_path / "b" / path.name)
    assert after.tokenizer == before.tokenizer
    assert all(np.array_equal(array, after.parameters[name]) for name, array in before.parameters.items())
    assert command("generate", tmp_path / "b" / path.name, "The", "--max-tokens", 2)[0] == 0
    assert not (tmp_path / "b" / "adapter").exists()  # it belongs to no published model


TABLES = {
    "one": ["yes"] * 20,
    "blank": [""] * 20,
    "few": ["yes", "no"] * 9,
    "gap": [*["yes", "no"] * 9, "yes", "", "no"],
    "rare": [*["yes", "no"] * 19, "no", "other"],
}
"""Labels line by line, of tables that no classifier can learn."""


def test_what_can_t_be_is_refused_in_one_sentence(folders: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "bad.tsv").write_text("no label\n" * 20)
    for name, labels in TABLES.items():
        (tmp_path / f"{name}.tsv").write_text("".join(f"a text\t{label}\n" if label else "\n" for label in labels))
    llama, roberta, text = folders / "llama", folders / "roberta", ["--text", folders / "text.txt"]
    for arguments, says in (
        (["--lora", 2, *text], "--lora goes with --from MODEL"),
        (["--from", llama, "--kind", "gpt", *text], "--kind does not go with --from"),
        (["--from", llama, "--d-model", 8, *text], "--d-model does not go with --from"),
        (["--from", llama, "--merge", *text], "--merge go with --lora"),
        (["--from", llama, "--lora", 2, "--freeze", "*", *text], "--freeze does not go with --lora"),
        (["--lora", 2, "--bits", 4, *text], "--lora goes with --from MODEL"),
        (["--bits", 4, *text], "--bits goes with --from MODEL"),
        (
            ["--resume", tmp_path, "--bits", 8],
            "--bits does not go with --resume: what is trained, and in how many bits",
        ),
        (["--resume", tmp_path, "--lora", 2], "--lora does not go with --resume"),
        (["--from", llama, "--bits", 4, *text], "--bits goes with --lora: weights in few bits stay as they are"),
        (["--from", llama, "--lora", 2, "--bits", 3, *text], "argument --bits: expected 8 or 4, got '3'"),
        (["--from", llama, "--lora", 2, "--bits", 4, *text], "no matrix of the model has rows of a multiple of 32"),
        (
            ["--from", roberta, "--table", folders / "table.tsv", "--lora", 2, "--bits", 4],
            "--bits does not go with --table",
        ),
        (["--from", llama, "--freeze", "wte*", *text], "no name matches 'wte*', such as"),
        (["--from", llama, "--lora", 99, *text], "the rank is 99, but "),
        (["--from", llama, "--lora", 2, "--lora-targets", "q_proj", *text], "no name matches 'q_proj', such as"),
        (["--from", llama, "--table", folders / "table.tsv"], "--table is for a BERT, and"),
        (["--from", roberta, "--table", tmp_path / "bad.tsv"], "bad.tsv, line 1: expected a text, a tab and a label"),
        (["--from", roberta, "--table", tmp_path / "one.tsv"], "one.tsv needs two labels or more, and has yes"),
        (["--from", roberta, "--table", tmp_path / "blank.tsv"], "blank.tsv needs two labels or more, and has no line"),
        (["--from", roberta, "--table", tmp_path / "few.tsv"], "few.tsv has no text in line 20: every 20th line is"),
        (["--from", roberta, "--table", tmp_path / "gap.tsv"], "gap.tsv has no text in line 20: every 20th line is"),
        (["--from", roberta, "--table", tmp_path / "rare.tsv"], "rare.tsv, line 40: only lines for validation, every"),
        (["--from", roberta, "--table", folders / "table.tsv", "--source", "en"], "and --table has one language"),
        (["--from", roberta, "--table", folders / "table.tsv", "--sentences", 9], "--sentences goes with --dataset"),
        (["--from", roberta, "--table", folders / "table.tsv", "--freeze", "head.*"], "--freeze keeps the new head"),
        (["--from", tmp_path, *text], "is a folder without a model"),
    ):
        status, _, error = command("train", *arguments, "--out", tmp_path / "out")
        assert (status, says in error, error.count("\n")) == (2, True, 1), (arguments, error)
    assert not (tmp_path / "out").exists()


def test_adapters_and_a_merged_model_are_both_of_the_last_step(folders: Path, tmp_path: Path, command: Command) -> None:
    adapter, whole = tmp_path / "adapter" / "adapter_model.safetensors", tmp_path / "model" / "model.safetensors"
    start = [*options(folders, "next"), "--lora", 2, "--peak-lr", 0.1, "--out", tmp_path]
    assert command(*start, "--steps", 2)[1].count(f"wrote {tmp_path / 'adapter'}\n") == 1
    resume, both = ["train", "--resume", tmp_path], f"wrote {tmp_path / 'adapter'} and {tmp_path / 'model'}\n"
    before = adapter.read_bytes()
    assert both in command(*resume, "--steps", 4, "--merge")[1]
    assert adapter.read_bytes() != before
    assert both in command(*resume, "--steps", 6)[1]
    merged = load_checkpoint(tmp_path / "step-00000006.safetensors").model().merged()
    weights = pretrained.load(whole.parent)[0].parameters
    np.testing.assert_array_equal(weights.data, merged.parameters.data)
    other = tmp_path / "merged"
    assert f"wrote {other / 'model'}\n" in command(*start[:-1], other, "--steps", 1, "--merge")[1]
    assert not (other / "adapter").exists()


def test_adapters_whose_model_is_a_file_say_what_peft_can_read(folders: Path, tmp_path: Path, command: Command) -> None:
    assert command(*options(folders, "next"), "--steps", 1, "--out", tmp_path / "a")[0] == 0
    base, run = tmp_path / "a" / "step-00000001.safetensors", tmp_path / "b"
    again = ["train", "--from", base, "--text", folders / "text.txt", *BRIEFLY, "--lora", 2, "--steps", 1]
    _, out, _ = command(*again, "--out", run)
    assert f"PEFT can't load {base}, which the adapters belong to: `" in out
    advice = shlex.split(out.partition("belong to: `")[2].partition("`")[0])
    assert advice[-4:] == ["train", "--resume", str(run), "--merge"]
    _, out, _ = command(*advice[-4:])
    assert "PEFT" not in out
    tr.AutoModelForCausalLM.from_pretrained(run / "model")
    assert "PEFT" not in command(*options(folders, "next"), "--lora", 2, "--steps", 1, "--out", tmp_path / "c")[1]


def test_adapters_alone_are_no_model(folders: Path, tmp_path: Path, command: Command) -> None:
    assert command(*options(folders, "next"), "--lora", 2, "--steps", 1, "--out", tmp_path)[0] == 0
    for name in ("generate", "info"):
        status, _, error = command(name, tmp_path / "adapter", *(["The"] if name == "generate" else []))
        says = f"holds adapters of '{folders}"[:20]
        assert (status, says in error, "not a whole model: name the checkpoint" in error) == (2, True, True), error
    assert command("generate", tmp_path / "step-00000001.safetensors", "The", "--max-tokens", 2)[0] == 0


def test_a_setting_that_a_resumed_training_refuses_leaves_no_data(
    folders: Path, tmp_path: Path, command: Command
) -> None:
    assert command(*options(folders, "next"), "--steps", 2, "--out", tmp_path)[0] == 0
    shutil.rmtree(tmp_path / "data")
    resume = ["train", "--resume", tmp_path, "--text", folders / "text.txt"]
    status, _, error = command(*resume, "--peak-lr", 1)
    assert (status, "a resumed training keeps its settings, but peak_lr" in error) == (2, True)
    assert not (tmp_path / "data").exists()
    assert command(*resume, "--steps", 3)[0] == 0


def test_a_model_is_not_written_over(folders: Path, tmp_path: Path, command: Command) -> None:
    """Neither the one that a training starts from nor another one that lies where it would write."""
    shutil.copytree(folders / "llama", tmp_path / "model")
    before = (tmp_path / "model/model.safetensors").read_bytes()
    for start in (tmp_path / "model", folders / "llama"):
        train = ["train", "--from", start, "--text", folders / "text.txt", *BRIEFLY, "--steps", 1]
        status, _, error = command(*train, "--out", tmp_path)
        assert (status, f"{tmp_path / 'model'} is there already" in error) == (2, True)
        assert command(*train, "--out", tmp_path / start.parent.name)[0] == 0
    assert (tmp_path / "model/model.safetensors").read_bytes() == before


def test_labels_whose_data_are_lost_are_read_again(folders: Path, tmp_path: Path, command: Command) -> None:
    run, table = tmp_path / "run", folders / "table.tsv"
    assert command(*options(folders, "classes"), "--steps", 2, "--out", run)[0] == 0
    shutil.rmtree(run / "data")
    (tmp_path / "more.tsv").write_text(table.read_text() + "The dog.\tstrange\n")
    for more, says in (
        ([], "add --data, --dataset, --text or --table"),
        (["--table", tmp_path / "more.tsv"], "the label 'strange' is none of the model's, kind, other"),
        (["--merge"], "--merge writes adapters into the weights, and the training in"),
    ):
        status, _, error = command("train", "--resume", run, "--steps", 4, *more)
        assert (status, says in error, error.splitlines()[-1].count("minitransformer: error")) == (2, True, 1), error
    assert command("train", "--resume", run, "--steps", 4, "--table", table)[0] == 0


def test_a_checkpoint_with_other_adapters_than_it_says_is_refused(folders: Path, tmp_path: Path) -> None:
    model = pretrained.load(folders / "llama")[0].tuned(Tuning(("*",), rank=2))
    for tuning, says in (
        (Tuning(("*",), rank=7).to_dict(), "the checkpoint's adapters are not those that its tuning names"),
        (Tuning(("*",), rank=10**9).to_dict(), "the checkpoint's tuning is none of its model: the rank is 1000000000"),
        (Tuning(("tokens.*",)).to_dict(), "the checkpoint's adapters are not those"),
        ({"rank": 2, "frozen": [3]}, "the checkpoint's tuning is none of a model: frozen must be patterns"),
    ):
        values = model.config.to_dict(), model.parameters.state_dict()
        save_checkpoint(tmp_path / "a", Checkpoint(*values, state={"tuning": tuning}))
        with pytest.raises(ValueError, match=says):
            load_checkpoint(tmp_path / "a").model()
