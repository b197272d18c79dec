"""`train --kind`: every kind of model through the command line, resumed with the same bits, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import Command, refuse

from minitransformer.data.preparation import open_prepared
from minitransformer.training import read_log
from minitransformer.training.checkpoint import load_checkpoint

TRAINING = [*("--tokens-per-batch", "512", "--valid-interval", "2", "--checkpoint-interval", "2", "--threads", "1")]
TINY = [*("--d-model", "16", "--num-heads", "2", "--d-ff", "16", "--num-layers", "1"), *TRAINING]
TEXT = [*("--max-length", "48", "--vocab-size", "330")]
TRIES = {"gpt": "generate", "bert": "fill", "t5": "fill", "vit": "classify"}
FIGURES = {"gpt": "bits_per_byte", "bert": "accuracy", "vit": "accuracy"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "dogs.txt"
    names = "dog cat horse bird child teacher cook king".split()
    verbs = "sees hears likes finds".split()
    lines = [f"The {a} {verb} the old {b}.\n" for a in names for verb in verbs for b in names]
    path.write_text("\n".join(["", *lines]), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["gpt", "bert", "t5", "vit"])
def test_a_kind_trains_and_resumes_with_the_same_bits(tmp_path: Path, command: Command, text: Path, kind: str) -> None:
    data = [] if kind == "vit" else ["--text", text, *TEXT]
    start = ["train", "--kind", kind, *data, *TINY, "--seed", "3"]
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    status, out, _ = command(*start, "--steps", "4", "--out", whole)
    assert status == 0
    assert f" {TRIES[kind]} " in out.splitlines()[-1]
    assert command(*start, "--steps", "2", "--out", halves)[0] == 0
    assert command("train", "--resume", halves, "--steps", "4")[0] == 0
    last = "step-00000004.safetensors"
    a, b = load_checkpoint(whole / last), load_checkpoint(halves / last)
    assert a.parameters.keys() == b.parameters.keys()
    for name, array in a.parameters.items():
        np.testing.assert_array_equal(array, b.parameters[name])
    records = read_log(whole / "log.jsonl")
    assert all(FIGURES[kind] in record for record in records[1::2] if kind in FIGURES)
    assert (whole / "loss.png").exists()


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
