"""A small training, the text for it, and the ways to run a command that the tests of the command line share."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from minitransformer import TrainingSettings, TransformerConfig
from minitransformer.cli import demo, main
from minitransformer.data import preparation
from minitransformer.grammar import pairs
from minitransformer.system.atomic import atomic_write

SMALL = [
    *("--d-model", "16", "--num-heads", "2", "--d-ff", "16", "--num-layers", "1", "--max-length", "48"),
    *("--vocab-size", "400", "--tokens-per-batch", "1024", "--steps", "4", "--valid-interval", "2"),
    *("--checkpoint-interval", "2", "--threads", "1"),
]
"""Options of `train` for a model of some thousand parameters."""

PROGRAM = [sys.executable, "-m", "minitransformer"]
Command = Callable[..., tuple[int, str, str]]


class Run(NamedTuple):
    """A training's folder and its text."""

    folder: Path
    data: Path

    @property
    def checkpoint(self) -> Path:
        """The last one."""
        return self.folder / "step-00000004.safetensors"


def write_corpus(folder: Path, train: int = 200, valid: int = 8, test: int = 6) -> Path:
    """Parallel text of the grammar as files."""
    folder.mkdir(parents=True)
    for split, count in (("train", train), ("valid", valid), ("test", test)):
        short = (pair for pair in pairs(split, seed=1) if len(max(pair, key=len)) < 60)
        chosen = list(islice(short, count))
        for suffix, side in (("en", 0), ("de", 1)):
            text = "".join(pair[side] + "\n" for pair in chosen)
            (folder / f"{split}.{suffix}").write_text(text, encoding="utf-8")
    return folder


def make_demo_small(patch: Callable[[Any, str, Any], None]) -> None:
    """A demo of a second; `patch` is `setattr`, or does the same for a while."""
    sizes: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "max_length": 200}
    patch(preparation, "GRAMMAR_VALIDATION", 4)
    patch(preparation, "TOKENIZER_SENTENCES", 100)
    patch(demo, "NUM_TEST", 12)
    patch(demo, "CONFIG", TransformerConfig(400, **sizes))
    patch(demo, "CORPUS", replace(demo.CORPUS, vocab_size=400, sentences=60, max_length=200))
    patch(demo, "SETTINGS", TrainingSettings(steps=2, tokens_per_batch=1024, threads=1))


def quick_picture(*arguments: object, **_: object) -> None:
    """In the place of `plot_loss` and `plot_attention`: drawn in no time, and written as ever."""
    with atomic_write(next(each for each in arguments if isinstance(each, str | Path))) as file:
        file.write(b"a picture")


def in_this_process(capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs a command here: its exit status, standard output and standard error."""

    def run(*arguments: str | os.PathLike[str]) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([os.fspath(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def refuse(command: Command, *arguments: str | os.PathLike[str], says: str) -> str:
    """Run a command that must end with one line on standard error, which has `says` in it; the line."""
    status, out, err = command(*arguments)
    assert status == 2, out
    lines = [line for line in err.splitlines() if line and "%|" not in line]  # the training's bar may be there
    assert len(lines) == 1, err
    assert lines[0].startswith("minitransformer: error: ")
    assert says in lines[0], lines[0]
    return lines[0]


def run_program(*arguments: str | os.PathLike[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own; what is not told otherwise of its output is captured."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*PROGRAM, *arguments], text=True, timeout=60, **options)
