"""The command line from training to translation, as a user goes through it."""

import io
import json
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest
from support.cli_runs import SMALL, Command, Run, refuse, write_corpus

import minitransformer
from minitransformer import (
    RecurrentConfig,
    TrainingSettings,
    TransformerConfig,
    Translator,
    load_checkpoint,
    save_checkpoint,
)
from minitransformer.cli import COMMANDS, demo, main, plan, recipes, train
from minitransformer.cli.common import one_line
from minitransformer.costs import parameter_groups
from minitransformer.data import preparation
from minitransformer.data.preparation import open_prepared
from minitransformer.models import KINDS, PRESETS
from minitransformer.training import read_log

PNG = b"\x89PNG\r\n\x1a\n"


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Give `data` as standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def lines_of(text: str) -> list[str]:
    """As files count them: `str.splitlines` knows more line ends, and an untrained model writes them all."""
    return text.removesuffix("\n").split("\n")


def test_training_leaves_checkpoints_a_log_a_picture_and_its_data_as_options_say(trained: Run) -> None:
    names = {path.name for path in trained.folder.iterdir()}
    assert names == {"data", "log.jsonl", "loss.png", "step-00000002.safetensors", "step-00000004.safetensors"}
    assert (trained.folder / "loss.png").read_bytes().startswith(PNG)
    records = read_log(trained.folder / "log.jsonl")
    assert [record["step"] for record in records] == [1, 2, 3, 4]
    figures = {"validation_loss", "perplexity", "bleu"}
    assert [record["step"] for record in records if figures <= record.keys()] == [2, 4]
    lines = (trained.folder / "log.jsonl").read_text().splitlines()
    assert all(json.loads(line)["tokens_per_second"] > 0 for line in lines)
    checkpoint = load_checkpoint(trained.checkpoint)
    config, settings = checkpoint.config, checkpoint.state["settings"]
    assert (config["d_model"], config["num_layers"], config["vocab_size"], config["dropout"]) == (16, 1, 400, 0.3)
    assert (settings["steps"], settings["tokens_per_batch"], settings["peak_lr"]) == (4, 1024, 5e-3)


def test_every_hyper_parameter_is_an_option() -> None:
    marks = {"vocab_size", "pad_id", "bos_id", "eos_id", "other_eos_ids", "mask_id"}
    other = {"rotary", "sparse", "head", *recipes.OF_THE_DATA}  # trees of their own; the objective's; the data's
    every = {field.name for name in recipes.RECIPES for field in fields(cast(Any, recipes.config_class(name)))}
    # Those of loaded models alone.
    published = {"distillation", "extra_norms", "first_position", "logits_softcap", "pooler_activation", "scale"}
    assert plan.MODEL_OPTIONS.keys() == every - marks - other - published
    assert plan.SETTINGS_OPTIONS.keys() == {field.name for field in fields(TrainingSettings)}


def test_no_help_gives_a_default_that_a_preset_overrides() -> None:
    defaults = {field.name: field.default for field in fields(TransformerConfig) if field.name != "vocab_size"}
    for name in PRESETS:
        sizes = getattr(TransformerConfig, name)().to_dict()
        overridden = {field for field, default in defaults.items() if sizes[field] != default}
        assert overridden <= set(train.PRESET_SIZES)


def test_train_with_the_preset_demo_plans_the_same_as_demo(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = []
    for module in (plan, demo):
        monkeypatch.setattr(module, "prepare", lambda folder, choice, progress, given=None: choice)
    for module in (train, demo):
        monkeypatch.setattr(module, "train", lambda plan: plans.append(plan) or 1 / 0)
    for arguments in (["train", "--preset", "demo"], ["demo"]):
        with pytest.raises(ZeroDivisionError):
            command(*arguments, "--out", tmp_path)
    assert replace(plans[0], folder=tmp_path / "training") == plans[1]
    assert plans[0].config == TransformerConfig.demo()


def test_a_finished_training_goes_on_with_more_steps(trained: Run, tmp_path: Path, command: Command) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "run")
    status, out, _ = command("train", "--out", folder, "--resume", "--steps", "5")
    assert status == 0
    assert "finished after step 5" in out


def test_training_on_the_grammar(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "GRAMMAR_VALIDATION", 8)
    monkeypatch.setattr(preparation, "TOKENIZER_SENTENCES", 100)
    options = ["--dataset", "grammar", "--target", "fr", "--sentences", "150"]
    options += [*SMALL, "--steps", "1", "--max-length", "100"]
    status, out, _ = command("train", "--out", tmp_path, *options)
    assert status == 0
    assert "150 training pairs" in out
    assert load_checkpoint(tmp_path / "step-00000001.safetensors").step == 1


def test_arguments_files_pipes_and_the_api_give_the_same_translations(
    trained: Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = ["The dog sleeps.", "", "My brother reads a small book in the kitchen."]
    text = "".join(sentence + "\n" for sentence in sentences)
    (tmp_path / "text").write_text(text)
    translations = Translator.from_checkpoint(trained.checkpoint).translate(sentences)
    expected = "".join(one_line(translation) + "\n" for translation in translations)
    assert command("translate", trained.checkpoint, *sentences)[:2] == (0, expected)
    options = ["--file", tmp_path / "text", "--batch-size", "1"]
    assert command("translate", trained.checkpoint, *options)[:2] == (0, expected)
    type_in(monkeypatch, text.replace("\n", "\r\n").encode())
    assert command("translate", trained.checkpoint)[:2] == (0, expected)
    assert expected.split("\n")[1] == ""


def test_options_may_stand_before_the_sentences(trained: Run, command: Command) -> None:
    before = command("translate", trained.checkpoint, "--beam", "2", "A dog.", "A cat.")
    after = command("translate", trained.checkpoint, "A dog.", "A cat.", "--beam", "2")
    between = command("translate", trained.checkpoint, "A dog.", "--beam", "2", "A cat.")
    assert before[0] == 0
    assert before == after == between


def test_n_best_gives_scores_best_first(trained: Run, command: Command) -> None:
    status, out, _ = command("translate", trained.checkpoint, "A dog.", "A cat.", "--n-best", "3", "--beam", "3")
    rows = [line.split("\t") for line in lines_of(out)]
    assert status == 0
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    scores = [float(row[1]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)


def test_attention_is_drawn(trained: Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    picture = tmp_path / "maps.png"
    assert command("translate", trained.checkpoint, "The dog sleeps.", "--attention", picture)[0] == 0
    assert picture.read_bytes().startswith(PNG)


def test_a_conversation(trained: Run, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences: Iterable[str] = iter(["The dog sleeps.", "dog " * 100, "A cat."])

    def answer(prompt: str) -> str:
        for sentence in sentences:
            return sentence
        raise EOFError

    type_in(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer)
    status, out, _ = command("translate", trained.checkpoint)
    assert status == 0
    translations = Translator.from_checkpoint(trained.checkpoint).translate(["The dog sleeps.", "A cat."])
    lines = lines_of(out)
    assert [lines[1], lines[3]] == list(map(one_line, translations))
    assert "at most 48" in lines[2]


def test_evaluate_writes_its_translations_and_prints_signatures(trained: Run, tmp_path: Path, command: Command) -> None:
    output = tmp_path / "translated"
    status, out, _ = command(
        "evaluate", trained.checkpoint, "--input", trained.data / "test.en", "--reference", trained.data / "test.de",
        "--output", output, "--beam", "1",
    )  # fmt: skip
    assert status == 0
    assert re.search(r"^BLEU, cased +\d+\.\d\d .*case:mixed.*tok:13a", out, re.MULTILINE)
    assert re.search(r"^BLEU, lower-cased +\d+\.\d\d .*case:lc", out, re.MULTILINE)
    assert re.search(r"^exact match +0\.00 %$", out, re.MULTILINE)
    sentences = (trained.data / "test.en").read_text().splitlines()
    translations = Translator.from_checkpoint(trained.checkpoint).translate(sentences, beam=1)
    assert lines_of(output.read_text()) == list(map(one_line, translations))
    assert command("evaluate", trained.checkpoint, "--data", trained.data, "--beam", "1")[1] == re.sub(
        r"translations .*\n", "", out
    )


def test_evaluate_knows_the_languages_of_the_training(tmp_path: Path, command: Command) -> None:
    """From `xx` into `yy`: the average of its checkpoints knows it too, and options say otherwise."""
    text, folder, average = write_corpus(tmp_path / "text"), tmp_path / "run", tmp_path / "average"
    for path in text.iterdir():
        path.rename(path.with_suffix({".de": ".xx", ".en": ".yy"}[path.suffix]))
    languages = ["--source", "xx", "--target", "yy"]
    assert command("train", "--data", text, "--out", folder, *SMALL, "--steps", "2", *languages)[0] == 0
    assert command("average", folder / "step-00000002.safetensors", "--output", average)[0] == 0
    assert re.search("^  languages +xx → yy$", command("info", average)[1], re.MULTILINE)
    common = ["evaluate", average, "--beam", "1"]
    by_files = command(*common, "--input", text / "test.xx", "--reference", text / "test.yy")
    assert by_files[0] == 0
    assert command(*common, "--data", text) == by_files
    assert "lacks train in .xx and .de" in command(*common, "--data", text, "--target", "de")[2]
    assert "the source language of grammar is en, got 'xx'" in command(*common, "--dataset", "grammar")[2]


def test_the_picture_of_a_running_training_shows_its_newest_validation(
    trained: Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr("minitransformer.plots.plot_loss", lambda records, path: drawn.append(records[-1]))
    assert command("train", "--data", trained.data, "--out", tmp_path / "run", *SMALL)[0] == 0
    assert [record["step"] for record in drawn] == [2, 4, 4]
    assert all("bleu" in record for record in drawn)


def test_a_perfect_translation_scores_100(trained: Run, tmp_path: Path, command: Command) -> None:
    source, output = trained.data / "test.en", tmp_path / "translated"
    common = ["evaluate", trained.checkpoint, "--input", source, "--beam", "1"]
    command(*common, "--reference", trained.data / "test.de", "--output", output)
    out = command(*common, "--reference", output)[1]
    assert re.search(r"^exact match +100\.00 %$", out, re.MULTILINE)


def test_check_passes_and_fails(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from minitransformer import check

    rows = [check.CheckResult("softmax", 1e-9)]
    monkeypatch.setattr(check, "run_checks", lambda report: rows)
    assert command("check")[0] == 0
    rows.append(check.CheckResult("relu", 1.0, "dx differs"))
    assert command("check")[0] == 1


@pytest.mark.parametrize("name", [module.__name__.rpartition(".")[2] for module in COMMANDS])
def test_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f" {name}" in capsys.readouterr().out.partition("example")[2]


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"minitransformer {minitransformer.__version__}\n"


@pytest.mark.parametrize("name", PRESETS)
def test_info_on_a_preset(name: str, command: Command) -> None:
    config = getattr(TransformerConfig, name)()
    out = command("info", "--preset", name)[1]
    assert re.search(rf"^  vocab_size +{config.vocab_size}$", out, re.MULTILINE)
    total = re.search(r"^  all +([\d,]+)$", out, re.MULTILINE)
    assert total
    assert int(total[1].replace(",", "")) == sum(parameter_groups(config).values())
    assert re.search(r"^  vocab_size +500$", command("info", "--preset", name, "--vocab-size", "500")[1], re.MULTILINE)


def test_an_average_is_used_and_info_says_of_what(trained: Run, tmp_path: Path, command: Command) -> None:
    average = tmp_path / "average.safetensors"
    status, out, _ = command("average", "--last", "2", trained.folder, "--output", average)
    assert status == 0
    assert "steps 2, 4" in out
    assert command("translate", average, "A dog.")[0] == 0
    out = command("info", average)[1]
    assert re.search(r"^  average of steps +2, 4$", out, re.MULTILINE)
    assert re.search(r"^  d_model +16$", out, re.MULTILINE)
    again, both = tmp_path / "again.safetensors", sorted(trained.folder.glob("*.safetensors"))
    assert command("average", *both, "--output", again)[0] == 0
    assert again.read_bytes() == average.read_bytes()


def test_what_is_not_averaged(trained: Run, tmp_path: Path, command: Command) -> None:
    first, last = sorted(trained.folder.glob("*.safetensors"))
    other = tmp_path / "other"
    save_checkpoint(other, replace(load_checkpoint(first), tokenizer=None))
    for paths, says in (
        ([first, last, first], "is given twice"),
        ([first, other], "cannot be averaged"),
        (["--last", "9", trained.folder], "holds 2 checkpoints"),
    ):
        refuse(command, "average", *paths, "--output", tmp_path / "average", says=says)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


CONFIG = RecurrentConfig(vocab_size=400, d_model=16, max_length=48)


@pytest.fixture
def recurrent(trained: Run, tmp_path: Path) -> Path:
    """Two steps of a recurrent model, on the text of the Transformer's training."""
    folder = tmp_path / "run"
    shutil.copytree(trained.folder / "data", folder / "data")
    settings = TrainingSettings(**load_checkpoint(trained.checkpoint).state["settings"])
    settings = replace(settings, steps=2, valid_interval=2, checkpoint_interval=2)
    path = train.train(plan.Plan(folder, CONFIG, settings, open_prepared(folder / "data"))).checkpoint
    assert path is not None
    return path


def test_a_recurrent_model_is_shown_used_and_trained_on(recurrent: Path, command: Command) -> None:
    status, out, _ = command("info", recurrent)
    assert status == 0
    rows = dict(line.split(maxsplit=1) for line in out.splitlines() if len(line.split()) == 2)
    assert (rows["kind"], rows["cell"], rows["decoder.attention.score"]) == ("recurrent", "lstm", "16")
    status, out, _ = command("translate", recurrent, "A dog runs.")
    assert (status, out.count("\n")) == (0, 1)
    refuse(command, "translate", recurrent, "A dog.", "--attention", recurrent.parent / "a.png", says="recurrent model")
    refuse(command, "train", "--resume", recurrent.parent, "--num-heads", "2", says="has num_heads None, not 2")
    status, _, _ = command("train", "--resume", recurrent.parent, "--steps", "4")
    assert status == 0
    assert load_checkpoint(recurrent.parent / "step-00000004.safetensors").config == CONFIG.to_dict()


def test_an_unknown_kind_is_one_sentence(trained: Run, tmp_path: Path, command: Command) -> None:
    checkpoint = load_checkpoint(trained.checkpoint)
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, replace(checkpoint, config={"kind": "oracle", **checkpoint.config}))
    says = f"kind 'oracle', which this program does not know: it has {', '.join(KINDS)}"
    for arguments in (["info", path], ["translate", path, "A dog."]):
        refuse(command, *arguments, says=says)
