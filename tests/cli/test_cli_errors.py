"""Bad input on the command line: one clear line, status 2, no traceback, nothing lost."""

import errno
import io
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from support.cli_runs import SMALL, Command, Run, refuse, run_program, write_corpus
from support.folders import contents, largest_file

from minitransformer import Checkpoint, cli, load_checkpoint, save_checkpoint
from minitransformer.cli.errors import message_of


def train_anew(command: Command, data: Path, folder: Path, *options: str, says: str) -> None:
    refuse(command, "train", "--data", data, "--out", folder, *SMALL, *options, says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: COMMAND"),
        (["demo", "--stepps", "3"], "--stepps"),
        (["train", "--steps", "many"], "--steps: expected a whole number, got 'many'"),
        (["train", "--dataset", "grammar", "--target", "it"], "the grammar writes de, fr and tree, not 'it'"),
        (["train", "--dataset", "multi30k", "--source", "de"], "source language of multi30k is en"),
        (["train", "--dataset", "grammar", "--data", "."], "not allowed with"),
        (["info", "--preset", "tiny", "--vocab-size", "0"], "--vocab-size: expected at least 1, got 0"),
        (["average", "--last", "2", "a", "b", "--output", "c"], "--last takes one folder"),
        (["evaluate", "x", "--dataset", "grammar", "--data", "."], "name one test set"),
        (["evaluate", "x"], "; for a language model --text FILE or --samples N"),
        (["evaluate", "x", "--input", "y"], "go together"),
        (["translate", "nothing.safetensors", "A dog."], "there is no checkpoint nothing.safetensors"),
        (["train", "--resume", "nowhere"], "no checkpoint to resume from in nowhere"),
        (["translate", "m", "--length-penalty", "300"], "--length-penalty: expected at most 10, got 300"),
        (["translate", "m", "--length-penalty", "nan"], "--length-penalty: expected a finite number, got 'nan'"),
        (["translate", "m", "--beam", "9" * 20], f"--beam: expected at most 1,000, got {'9' * 20}"),
        (["translate", "m", "--beam", "9" * 400], "--beam: expected at most 1,000, got 9999"),
        (["translate", "m", "--beam", "9" * 5000], "--beam: expected at most 1,000, got 9999"),
        (["translate", "m", "--beam", "1_0"], "--beam: expected a whole number, got '1_0'"),
        (["translate", "m", "--beam", "٣"], "--beam: expected a whole number, got '٣'"),
        (["translate", "m", "--beam=--"], "--beam: expected a value, got '--'"),
        (["translate", "m", "--threads", "1025"], "--threads: expected at most 1,024, got 1025"),
        (["translate", "m", "--n-best", "3", "--beam", "2"], "--n-best 3 is more than --beam 2"),
        (["translate", "m", "--n-best", "5"], "--n-best 5 is more than --beam 4"),
        (["train", "--d-ff", "9" * 20], "--d-ff: expected at most 9,223,372,036,854,775,807, got"),
        (["train", "--d-k", "9" * 400], "--d-k: expected at most 9,223,372,036,854,775,807, got"),
        (["train", "--d-model=--"], "--d-model: expected a value, got '--'"),
        (["train", "--eps", "inf"], "--eps: expected a finite number, got 'inf'"),
        (["train", "--eps", "1e-300"], "eps is 1e-300, expected a finite number above 0: 1.2e-38 to 1"),
        (["train", "--layernorm-eps", "1e300"], "layernorm_eps is 1e+300, expected"),
        (["train", "--init-gain", "1e308"], "init_gain is 1e+308, expected"),
        (["train", "--accumulate", "65536"], "accumulate is 65536, expected 1 to 4096"),
        (["train", "--sentences", "9" * 12], "--sentences: expected at most 100,000,000, got"),
        (["train", "--steps", "1.5"], "--steps: expected a whole number, got '1.5'"),
        (["info", "--preset", "base", "--length", "9" * 400], "--length: expected at most 9,223,372,036,854,775,807"),
        (["train", "--resume", ""], "--resume: expected the name of a file or folder, got an empty one"),
        (["train", "--data", ""], "--data: expected the name of a file or folder"),
        (["train", "--out", ""], "--out: expected the name of a file or folder"),
        (["translate", ""], "CHECKPOINT: expected the name of a file or folder"),
        (["translate", "m", "--file", ""], "--file: expected the name of a file or folder"),
        (["translate", "m", "--attention", ""], "--attention: expected the name of a file or folder"),
        (["evaluate", "m", "--output", ""], "--output: expected the name of a file or folder"),
        (["explore", "m", "--out", ""], "--out: expected the name of a file or folder"),
        (["explore", "m", "--out", "a.html", "--examples", ""], "--examples: expected the name of a file or folder"),
        (["average", "a", "--output", "c", ""], "CHECKPOINT: expected the name of a file or folder"),
        (["train", "--source", ""], "--source: expected a language, the suffix of files such as en, got ''"),
        (["train", "--target", "../de"], "--target: expected a language"),
        (["train", "--resume", "a", "--out", "b"], "--resume a and --out b name two folders, and a training has one"),
        (["train", "--data", ".", "--sentences", "5"], "--sentences goes with --dataset grammar"),
        (["evaluate", "m", "--input", "a", "--reference", "b", "--source", "en"], "go with --dataset or --data"),
        (["train", "--backend", "torch", "--dtype", "float16"], "train in bfloat16 or float32"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_what_no_command_takes(arguments: list[str], says: str, command: Command) -> None:
    """Each is refused before any file is read, in words of the command line and not of Python."""
    refuse(command, *arguments, says=says)


@pytest.mark.parametrize(
    "options",
    [["--num-layers", "2147483648"], ["--d-model", "2147483648"], ["--vocab-size", "2147483648"], ["--d-ff", "9" * 18]],
    ids=" ".join,
)
def test_a_model_that_no_memory_holds_is_refused_before_anything_is_made(
    options: list[str], trained: Run, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "run"
    refuse(command, "train", "--data", trained.data, "--out", out, *SMALL, *options, says="of memory to train")
    assert not out.exists()


def test_more_threads_than_there_is_memory_for(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.cli.backend.memory_limit", lambda: 3 * 10**9)
    options = ["--preset", "base", "--dataset", "grammar", "--out", tmp_path / "run", "--threads", "20"]
    says = "parameters takes at least 4.18 GB of memory to train: weights, a gradient for each of 20 threads"
    refuse(command, "train", *options, says=says)


def test_what_others_wrote_is_shown_and_not_obeyed(trained: Run, tmp_path: Path, command: Command) -> None:
    """Names of files, sentences, fields of a checkpoint: whatever a line repeats of them."""
    red = "\x1b[31mred\u202e"
    (tmp_path / red).write_text("dog " * 100)
    checkpoint = load_checkpoint(trained.checkpoint)
    checkpoint.config[red] = 1
    save_checkpoint(tmp_path / "strange", checkpoint)
    for arguments in (
        ["translate", red],
        ["translate", trained.checkpoint, "--file", tmp_path / red],
        ["translate", trained.checkpoint, "A dog.", "--beam", red],
        ["translate", trained.checkpoint, "A dog.", "--device", red],
        ["translate", tmp_path / "strange", "A dog."],
        ["info", tmp_path / "strange"],
        [red],
    ):
        status, out, err = command(*arguments)
        assert status == 2
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err
        assert "red" in err
    folder = tmp_path / f"out {red}"
    _, out, err = command("train", "--data", trained.data, "--out", folder, *SMALL, "--minutes", "1e-9")
    assert "\x1b" not in (out + err).replace("\x1b[A", "")  # the bar's own
    assert r"training in" in out


def test_a_long_sentence_or_name_does_not_make_a_long_line(trained: Run, command: Command) -> None:
    for arguments in (["x" * 100_000], ["translate", "m", "--beam", "x" * 100_000], ["train", "y" * 100_000]):
        _, _, err = command(*arguments)
        assert len(err) < 1200


def test_loops_of_links(trained: Run, tmp_path: Path, command: Command) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    for arguments in (
        ["info", loop],
        ["translate", loop, "A dog."],
        ["translate", trained.checkpoint, "--file", loop],
        ["train", "--data", loop],
        ["train", "--resume", loop],
        ["evaluate", trained.checkpoint, "--data", loop],
        ["train", "--resume", trained.folder, "--data", loop],
    ):
        refuse(command, *arguments, says="")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--num-heads", "3"], "num_heads is 3 and does not divide d_model, 16"),
        (["--d-model", "15", "--num-heads", "3"], "sinusoidal positions need an even width"),
        (["--dropout", "-0.1"], "dropout is -0.1"),
        (["--threads", "0"], "threads is 0, expected 1 to 1024"),
        (["--tokens-per-batch", "5"], "tokens_per_batch is 5"),
        (["--target", "it"], "lacks train in .en and .it"),
    ],
)
def test_impossible_settings(options: list[str], says: str, trained: Run, tmp_path: Path, command: Command) -> None:
    train_anew(command, trained.data, tmp_path / "run", *options, says=says)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"train.de": b"Ein Hund.\n"}, "train.de ends after 1 lines, but"),
        ({"train.en": b""}, "train.en ends after 0 lines"),
        ({"train.en": b"A dog\nA c\xe4t\n"}, "train.en, line 2: not UTF-8, byte 4 is 0xe4"),
        ({"valid.en": b"A dog.\n"}, "valid.en ends after 1 lines"),
        ({"train.en": b"", "train.de": b""}, "are empty"),
        ({"train.en": "A dog.\n".encode("utf-16-le")}, "train.en, line 1: no text in UTF-8, it has a NUL"),
    ],
)
def test_damaged_text(files: dict[str, bytes], says: str, tmp_path: Path, command: Command) -> None:
    text = write_corpus(tmp_path / "text")
    for name, content in files.items():
        (text / name).write_bytes(content)
    train_anew(command, text, tmp_path / "run", says=says)


def test_a_training_is_not_written_over(trained: Run, command: Command) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.folder.rglob("*")}
    train_anew(command, trained.data, trained.folder, "--vocab-size", "500", says="already holds a training")
    assert {path: path.stat().st_mtime_ns for path in trained.folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--num-heads", "4"], "num_heads 2, not 4"),
        (["--preset", "base"], "d_model 16, not 512"),
        (["--seed", "7"], "seed was 0 and is 7"),
        (["--vocab-size", "500"], "vocab_size 400, not 500"),
        (["--dataset", "grammar"], "not grammar"),
    ],
)
def test_a_resumed_training_keeps_its_configuration(
    options: list[str], says: str, trained: Run, command: Command
) -> None:
    refuse(command, "train", "--resume", trained.folder, *options, says=says)


def test_damaged_and_foreign_checkpoints(trained: Run, tmp_path: Path, command: Command) -> None:
    content = trained.checkpoint.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    model = load_checkpoint(trained.checkpoint)
    save_checkpoint(tmp_path / "mute", Checkpoint(model.config, model.parameters))
    for name, damaged, says in (
        ("truncated", content[:-1], "is truncated or damaged"),
        ("flipped", bytes(flipped), "is truncated or damaged"),
        ("foreign", b"PK\x03\x04" + bytes(100), "is not a minitransformer checkpoint"),
        ("empty", b"", "it is empty"),
        ("mute", (tmp_path / "mute").read_bytes(), "holds no tokenizer"),
    ):
        (tmp_path / name).write_bytes(damaged)
        refuse(command, "translate", tmp_path / name, "A dog.", says=says)
    refuse(command, "translate", tmp_path, "A dog.", says="is a folder")
    refuse(command, "info", tmp_path / "flipped", says="is truncated or damaged")
    (tmp_path / "truncated").rename(tmp_path / "step-00000004.safetensors")
    refuse(command, "train", "--resume", tmp_path, says="is truncated or damaged")


def test_sentences_that_cannot_be_translated(
    trained: Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "dog " * 100
    refuse(command, "translate", trained.checkpoint, "A dog.", long, says="sentence 2 has ")
    (tmp_path / "text").write_text(f"A dog.\n{long}\n")
    refuse(command, "translate", trained.checkpoint, "--file", tmp_path / "text", says="text, line 2 has ")
    assert command("translate", trained.checkpoint, "--file", tmp_path / "text")[1].count("\n") == 1  # what came before
    (tmp_path / "latin").write_bytes(b"A dog.\nA c\xe4t.\n")
    refuse(command, "translate", trained.checkpoint, "--file", tmp_path / "latin", says="line 2: not UTF-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"A dog.\nA c\xe4t.\n")))
    refuse(command, "translate", trained.checkpoint, says="standard input, line 2: not UTF-8, byte 4 is 0xe4")
    refuse(command, "translate", trained.checkpoint, "A c\udce4t.", says="sentence 1 is not UTF-8")
    picture = tmp_path / "maps.png"
    refuse(command, "translate", trained.checkpoint, "A", "B", "--attention", picture, says="one sentence, got 2")
    refuse(command, "translate", trained.checkpoint, "", "--attention", picture, says="empty")
    refuse(command, "translate", trained.checkpoint, "A", "--file", tmp_path / "text", says="do not go together")


def test_files_that_cannot_be_written(
    trained: Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # real pictures
    (tmp_path / "file").write_text("in the way")
    inside = tmp_path / "file" / "inside"
    train_anew(command, trained.data, inside, says=str(inside))
    refuse(command, "demo", "--out", inside, says=str(inside))
    refuse(command, "average", trained.checkpoint, "--output", inside, says=f"cannot write {inside}")
    refuse(command, "translate", trained.checkpoint, "A dog.", "--attention", inside, says=f"cannot write {inside}")
    test_set = ["--input", trained.data / "test.en", "--reference", trained.data / "test.de"]
    refuse(command, "evaluate", trained.checkpoint, *test_set, "--output", inside, says=f"cannot write {inside}")
    assert (tmp_path / "file").read_text() == "in the way"


def test_files_that_cannot_be_read(trained: Run, tmp_path: Path, command: Command) -> None:
    missing = tmp_path / "none"
    refuse(command, "translate", trained.checkpoint, "--file", missing, says="none: No such file or directory")
    refuse(command, "train", "--data", missing, says="is not a folder")
    (tmp_path / "text").write_text("A dog.\n")
    test_set = ["--input", tmp_path / "text", "--reference", trained.data / "test.de"]
    refuse(command, "evaluate", trained.checkpoint, *test_set, says="text ends after 1 lines")
    (tmp_path / "valid.en").write_text("A dog.\n")
    refuse(command, "evaluate", trained.checkpoint, "--data", tmp_path, says="lacks train")


def test_a_full_disk_keeps_the_last_checkpoint(trained: Run, tmp_path: Path, command: Command) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "run")
    before = contents(folder)["step-00000004.safetensors"]
    resume = ["train", "--resume", folder, "--steps", "5"]
    with largest_file(len(before) // 2):
        status, _, err = command(*resume)
    path = folder / "step-00000005.safetensors"
    assert (status, err.splitlines()[-1]) == (
        2, f"minitransformer: error: cannot write {path}: {os.strerror(errno.EFBIG)}"
    )  # fmt: skip
    assert contents(folder)["step-00000004.safetensors"] == before
    assert command(*resume)[0] == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, as Linux has it")
def test_a_full_standard_output(trained: Run) -> None:
    with open("/dev/full", "w") as full:
        run = run_program("translate", trained.checkpoint, "A dog.", stdout=full)
    assert (run.returncode, run.stderr) == (2, f"minitransformer: error: {os.strerror(errno.ENOSPC)}\n")


def test_ctrl_c_outside_a_training(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.translate, "open_translator", interrupt)
    status, _, err = command("translate", "model.safetensors", "A dog.")
    assert (status, err) == (130, "\nminitransformer: interrupted\n")


def test_bugs_keep_their_traceback(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def misuse_numpy(*_: object, **__: object) -> NoReturn:
        raise AssertionError(np.zeros(2) + np.zeros(3))

    def misuse_python(*_: object, **__: object) -> None:
        int("three")

    for bug in (misuse_numpy, misuse_python):
        monkeypatch.setattr(cli.translate, "open_translator", bug)
        with pytest.raises(ValueError):
            command("translate", "model.safetensors", "A dog.")


def test_a_numpy_error_in_our_own_code_is_a_bug() -> None:
    from minitransformer.models import Transformer, TransformerConfig

    model = Transformer(TransformerConfig.demo(300, d_model=8, num_heads=2, d_ff=8, num_layers=1))
    with pytest.raises(ValueError) as broadcast:
        model.parameters.views(np.zeros(3))
    assert message_of(broadcast.value) is None
    with pytest.raises(ValueError) as refused_by_an_op:
        model.encode(np.array([[300]]))
    assert message_of(refused_by_an_op.value) is None
    with pytest.raises(ValueError) as deliberate:
        model.encode(np.array([300]))
    assert message_of(deliberate.value) == str(deliberate.value)


def test_debugging_shows_the_traceback(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITRANSFORMER_DEBUG", "1")
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        command("translate", "nothing.safetensors", "A dog.")


def test_running_out_of_memory_is_told() -> None:
    assert message_of(MemoryError("Unable to allocate 1 TiB")) == "out of memory: Unable to allocate 1 TiB"
