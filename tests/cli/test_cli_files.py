"""Files that are not a command's own: no output takes an input's place, no training a stranger's."""

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.cli_runs import SMALL, Command, Run, refuse, run_program
from support.folders import contents

from minitransformer import Translator, cli
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.system.lock import LOCK_NAME, locked


@pytest.fixture
def files(trained: Run, tmp_path: Path) -> Path:
    """A folder with a model, its text, and sentences."""
    shutil.copytree(trained.data, tmp_path / "text")
    shutil.copytree(trained.folder, tmp_path / "run")
    shutil.copy(trained.checkpoint, tmp_path / "model")
    for name in ("test.en", "test.de"):
        shutil.copy(trained.data / name, tmp_path)
    return tmp_path


def names_of(path: Path) -> Iterator[Path | str]:
    """Names that lead to one file."""
    yield path
    yield path.parent / ".." / path.parent.resolve().name / path.name
    yield from (f"{path}/", f"{path}/.", f"nowhere/../{path}")  # as `Path` and a writer read them
    for name, link in (("link", os.symlink), ("hard link", os.link)):
        link(path.resolve(), path.with_name(f"{path.name} {name}"))
        yield path.with_name(f"{path.name} {name}")
    if os.path.isdir("/proc/self/fd"):
        with open(path, "rb") as file:
            yield f"/proc/self/fd/{file.fileno()}"


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (["evaluate", "model", "--input", "test.en", "--reference", "test.de", "--output"], "model"),
        (["evaluate", "model", "--input", "test.en", "--reference", "test.de", "--output"], "test.en"),
        (["evaluate", "model", "--input", "test.en", "--reference", "test.de", "--output"], "test.de"),
        (["evaluate", "model", "--data", "text", "--output"], "text/test.de"),
        (["evaluate", "model", "--data", "text", "--split", "valid", "--output"], "text/valid.en"),
        (["translate", "model", "A dog.", "--attention"], "model"),
        (["translate", "model", "--file", "test.en", "--attention"], "test.en"),
        (["explore", "model", "--out"], "model"),
        (["inside", "model", "A dog.", "--out"], "model"),
        (["explore", "model", "--examples", "test.en", "--out"], "test.en"),
        (["average", "run/step-00000002.safetensors", "run/step-00000004.safetensors", "--output"],
         "run/step-00000002.safetensors"),
        (["average", "--last", "1", "run", "--output"], "run/step-00000004.safetensors"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)  # fmt: skip
def test_no_output_takes_the_place_of_an_input(
    files: Path, command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str], read: str
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr(Translator, "from_checkpoint", lambda *_: pytest.fail("it reads before it refuses"))
    monkeypatch.setattr(cli.average, "average_checkpoints", lambda *_: pytest.fail("it reads before it refuses"))
    before = (files / read).read_bytes()
    for name in names_of(Path(read)):
        refuse(command, *arguments, name, says=f"{arguments[-1]} {name} would replace what is read, ")
        assert (files / read).read_bytes() == before


def test_standard_input_is_an_input_too(files: Path) -> None:
    before = (files / "test.en").read_bytes()
    with open(files / "test.en") as source:
        run = run_program("translate", files / "model", "--attention", files / "test.en", stdin=source)
    assert run.returncode == 2
    assert "--attention" in run.stderr
    assert "would replace what is read, standard input: choose another name" in run.stderr
    assert (files / "test.en").read_bytes() == before


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("translate", ["--file", "test.en"]), ("translate", []), ("generate", ["--file", "test.en"])],
)
def test_what_is_read_is_not_written_to(files: Path, program: str, arguments: list[str]) -> None:
    """As `cat x >> x`, which would never end."""
    text = files / "test.en"
    before = text.read_bytes()
    with open(text, "ab") as out, open(text if not arguments else os.devnull) as source:
        run = run_program(program, "model", *arguments, stdin=source, stdout=out, cwd=files)
    assert run.returncode == 2
    assert "standard output goes into what is read, " in run.stderr
    assert text.read_bytes() == before


def test_a_line_without_end_is_refused(files: Path) -> None:
    with open("/dev/zero") as zeros:
        run = run_program("translate", files / "model", stdin=zeros)
    assert run.returncode == 2
    assert "standard input, line 1: longer than 1048576 bytes" in run.stderr


def test_the_cache_of_a_download_is_read_too(files: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(files))
    cached = files / "minitransformer" / "multi30k" / "train.en.gz"
    cached.parent.mkdir(parents=True)
    cached.touch()
    arguments = ["evaluate", files / "model", "--dataset", "multi30k", "--output", cached]
    refuse(command, *arguments, says="would replace what is read")


def test_the_picture_of_a_training_does_not_replace_its_text(files: Path, command: Command) -> None:
    text = files / "text" / "train.en"
    before = text.read_bytes()
    (files / "run" / "loss.png").unlink()
    (files / "run" / "loss.png").symlink_to(text)
    for option in ("--out", "--resume"):
        arguments = ["train", "--data", files / "text", option, files / "run", *SMALL]
        refuse(command, *arguments, says=f"{option} {files / 'run' / 'loss.png'} would replace what is read, {text}")
    assert text.read_bytes() == before


def test_outputs_through_links_and_to_pipes(files: Path, command: Command) -> None:
    test_set = ["--input", files / "test.en", "--reference", files / "test.de", "--beam", "1"]
    (files / "link").symlink_to("translated")
    assert command("evaluate", files / "model", *test_set, "--output", files / "link")[0] == 0
    assert (files / "link").is_symlink()
    expected = (files / "translated").read_bytes()
    assert expected.count(b"\n") == 6
    got = []
    os.mkfifo(files / "pipe")
    reader = threading.Thread(target=lambda: got.append((files / "pipe").read_bytes()))
    reader.start()
    assert command("evaluate", files / "model", *test_set, "--output", files / "pipe")[0] == 0
    reader.join()
    assert got == [expected]
    # A link to nothing must not hide the name of a training's checkpoint, either.
    (files / "average").symlink_to(files / "run" / "step-00000009.safetensors")
    arguments = ["average", "--last", "2", files / "run", "--output", files / "average"]
    refuse(command, *arguments, says="has the name of a training's own checkpoint")


STRANGERS = {
    "data/train/thesis.txt": b"years of work",
    "log.jsonl": b'{"step": 0, "loss": 2.3}\n',
    "loss.png": b"my loss",
    LOCK_NAME: b"mine",
}


def test_a_new_training_names_a_stranger_s_file_and_leaves_it(
    trained: Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """test_preparation.py has more cases for those in the place of its data."""
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    train = ["train", "--data", trained.data, "--out", folder, *SMALL, "--steps", "1", "--max-length", "47"]
    for name, content in STRANGERS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        before = contents(folder)
        with monkeypatch.context() as patch:
            patch.setattr(BPETokenizer, "train", lambda *_: pytest.fail("it works before it refuses"))
            assert "move it elsewhere" in refuse(command, *train, says=f"{path} ")
        assert contents(folder) == before
        path.rename(elsewhere)
    assert command(*train)[0] == 0


def test_the_demo_is_no_exception(tmp_path: Path, command: Command) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "log.jsonl").write_bytes(STRANGERS["log.jsonl"])
    refuse(command, "demo", "--out", tmp_path, says="log.jsonl is not a training's log: move it elsewhere or delete it")


def test_whoever_comes_second_is_told_who_is_there(trained: Run, tmp_path: Path, command: Command) -> None:
    """Neither a new training, nor a resumed one, nor the demo gets into a folder that somebody else works in."""
    folder = shutil.copytree(trained.folder, tmp_path / "out" / "training")
    new = ["train", "--data", trained.data, "--out", folder, *SMALL]
    with locked(folder), ThreadPoolExecutor() as others:
        for arguments in (new, ["train", "--resume", folder], ["demo", "--out", folder.parent]):
            says = f"{folder} is in use by process {os.getpid()} since "
            assert others.submit(refuse, command, *arguments, says=says).result()
