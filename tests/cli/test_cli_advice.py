"""Whoever does what a message says gets on: each piece of advice is brought about, followed, and works.

A case yields the command that is refused, gets the error back, follows it, and yields the commands that then succeed.
"""

import ast
import re
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.cli_runs import SMALL, Command, Run, write_corpus

import minitransformer
import paper
from minitransformer import load_checkpoint
from minitransformer.training.checkpoint import checkpoint_path

Arguments = list[str | Path]
Steps = Generator[Arguments, str, None]
CASES: dict[str, tuple[Callable[["Scene"], Steps], tuple[str, ...]]] = {}

ELSEWHERE = {
    "no training's log: move it": "test_cli_files.py",
    "in the way: move it": "test_cli_files.py",
    "no lock of this program: move it": "test_cli_files.py",
    "wait until it has ended, or choose another folder": "test_cli_files.py",
    "not the demo's: move it": "test_cli_demo.py",
    "choose another --out, or delete it": "test_cli_demo.py",
    "run the experiment again": "paper/test_command.py",
    "is not this report: move it": "paper/test_command.py",
    "choose from": "paper/test_command.py",
    "the trial is done again": "paper/test_runner.py",
    "no part of a token dataset: move it": "data/test_token_dataset.py",
    "no token dataset: move it": "data/test_token_dataset.py",
    "move it elsewhere or delete it": "data/test_preparation.py, data/test_token_dataset.py",
    "and the data is made again": "data/test_preparation.py",
    ", and the dataset is made again": "data/test_preparation.py",
    "already holds a training, up to": "test_resume.py",
    "no checkpoint of this training: move it": "test_resume.py",
    "and the log begins anew": "test_training_log.py",
    "split it, or ask for it to be truncated": "test_translator.py",
}
"""Advice that tests beside what gives it follow: where they are."""

ADVICE = re.compile(r"\b(delete|move it|choose|add --|split it|try a|name (one|it|a)|(done|experiment) again|wait)\b")


@dataclass
class Scene:
    """A finished training of 4 steps, to be changed, its text, which stays, and room for more."""

    folder: Path
    text: Path
    run: Path

    @property
    def new(self) -> Path:
        return self.folder / "new"

    @property
    def checkpoint(self) -> Path:
        return checkpoint_path(self.run, 4)

    @property
    def begin(self) -> Arguments:
        return ["train", "--data", self.text, "--out", self.new, *SMALL, "--steps", "1"]

    @property
    def resume(self) -> Arguments:
        return ["train", "--resume", self.run, "--steps", "5"]


def advice(*says: str) -> Callable[[Callable[[Scene], Steps]], Callable[[Scene], Steps]]:
    """Adds a case: parts of the message, as the source has them."""

    def add(case: Callable[[Scene], Steps]) -> Callable[[Scene], Steps]:
        CASES[case.__name__] = case, says
        return case

    return add


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@advice("already holds a training: add --resume to go on with it, or choose another --out")
def an_existing_training(scene: Scene) -> Steps:
    again: Arguments = ["train", "--data", scene.text, *SMALL, "--out"]
    yield [*again, scene.run]
    yield [*again, scene.run, "--resume"]
    yield [*again, scene.new]


@advice("--resume needs the folder of the training: --resume FOLDER")
def resuming_nothing(scene: Scene) -> Steps:
    yield ["train", "--resume"]
    yield scene.resume


@advice("is damaged, or none of this program's", "move it elsewhere or delete it, and the data is made again")
def a_truncated_description_of_the_text(scene: Scene) -> Steps:
    damage(scene.run / "data" / "corpus.json")
    yield scene.resume
    (scene.run / "data" / "corpus.json").unlink()
    yield scene.resume


@advice("nothing in", "says which text this was: add --data or --dataset to --resume")
def all_data_deleted(scene: Scene) -> Steps:
    shutil.rmtree(scene.run / "data")
    yield scene.resume
    yield [*scene.resume, "--data", scene.text]


@advice("was trained on other data")
def all_data_deleted_and_another_text_named(scene: Scene) -> Steps:
    """Whoever has named the wrong text names the right one."""
    shutil.rmtree(scene.run / "data")
    yield [*scene.resume, "--data", write_corpus(scene.folder / "text", train=150)]
    yield [*scene.resume, "--data", scene.text]


@advice("is damaged (", "): delete the file, and the log begins anew")
def a_damaged_log(scene: Scene) -> Steps:
    log = scene.run / "log.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"loss": ', b'"loss": 1', 1))
    yield scene.resume
    log.unlink()
    yield scene.resume


@advice("try a lower learning rate, in another folder; ", " is from before")
def a_training_that_diverges(scene: Scene) -> Steps:
    wild: Arguments = [*scene.begin, "--peak-lr", "1e30", "--warmup-steps", "1", "--steps", "50"]
    wild += ["--checkpoint-interval", "1"]
    told = yield wild
    kept = re.search(r"folder; (\S+) is from before", told)
    assert kept
    assert all(np.isfinite(array).all() for array in load_checkpoint(kept[1]).parameters.values())
    yield [*wild, "--peak-lr", "1e-3", "--steps", "3", "--out", scene.folder / "another"]


@advice("try a lower learning rate, in another folder; ", "there is no checkpoint from before")
def a_training_that_diverges_at_once(scene: Scene) -> Steps:
    wild: Arguments = [*scene.begin, "--peak-lr", "1e39", "--warmup-steps", "1", "--steps", "50"]
    wild += ["--checkpoint-interval", "1"]
    yield wild
    yield [*wild, "--peak-lr", "1e-3", "--steps", "3", "--out", scene.folder / "another"]


@advice("would replace what is read, ", ": choose another name")
def an_output_that_is_an_input(scene: Scene) -> Steps:
    average: Arguments = ["average", "--last", "2", scene.run, "--output"]
    yield [*average, scene.checkpoint]
    yield [*average, scene.folder / "average"]


@advice("has the name of a training's own checkpoint: choose another name")
def an_average_named_like_a_checkpoint(scene: Scene) -> Steps:
    average: Arguments = ["average", "--last", "2", scene.run, "--output"]
    yield [*average, scene.folder / "step-00000009.safetensors"]
    yield [*average, scene.folder / "average"]


@advice("tokens with its end mark, but the model takes at most", "split it, or add --truncate")
def a_long_sentence(scene: Scene) -> Steps:
    translate: Arguments = ["translate", scene.checkpoint]
    yield [*translate, "dog " * 50]
    yield [*translate, "dog " * 50, "--truncate"]
    yield [*translate, *5 * ["dog " * 10]]


@advice("tokens with its end mark, but the model takes at most", "split it, or ask for it to be truncated")
def a_long_sentence_in_a_test_set(scene: Scene) -> Steps:
    source, target = scene.folder / "source", scene.folder / "target"
    evaluate: Arguments = ["evaluate", scene.checkpoint, "--input", source, "--reference", target, "--beam", "1"]
    source.write_text("dog " * 50 + "\n")
    target.write_text("Hund\n")
    yield evaluate
    yield [*evaluate, "--truncate"]
    source.write_text(("dog " * 10 + "\n") * 5)
    target.write_text("Hund\n" * 5)
    yield evaluate


@advice("name one test set: --input FILE with --reference FILE, or --dataset, or --data DIR")
def no_test_set(scene: Scene) -> Steps:
    evaluate: Arguments = ["evaluate", scene.checkpoint, "--beam", "1"]
    yield evaluate
    yield [*evaluate, "--input", scene.text / "test.en", "--reference", scene.text / "test.de"]
    yield [*evaluate, "--data", scene.text]


@advice("name a checkpoint or a --preset, one of the two")
def information_about_nothing(scene: Scene) -> Steps:
    yield ["info"]
    yield ["info", scene.checkpoint]
    yield ["info", "--preset", "tiny"]


@advice("vocab_size must be at most", "for this text, whose words give no more tokens")
def a_vocabulary_too_large(scene: Scene) -> Steps:
    told = yield [*scene.begin, "--vocab-size", "100000"]
    at_most = re.search(r"at most (\d+)", told)
    assert at_most
    yield [*scene.begin, "--vocab-size", at_most[1]]


@advice("vocab_size must be at least")
def a_vocabulary_too_small(scene: Scene) -> Steps:
    told = yield [*scene.begin, "--vocab-size", "100"]
    at_least = re.search(r"at least (\d+)", told)
    assert at_least
    yield [*scene.begin, "--vocab-size", at_least[1]]


@advice("train in bfloat16 or float32 (float16 is for translating)")
def training_in_float16(scene: Scene) -> Steps:
    yield [*scene.begin, "--backend", "torch", "--dtype", "float16"]
    yield [*scene.begin, "--backend", "torch", "--dtype", "bfloat16"]
    yield ["translate", scene.checkpoint, "A dog.", "--backend", "torch", "--dtype", "float16"]


@advice("needs a GPU that PyTorch can use, and there is none: use the torch backend or numpy")
def triton_without_a_gpu(scene: Scene) -> Steps:
    translate: Arguments = ["translate", scene.checkpoint, "A dog.", "--backend"]
    yield [*translate, "triton"]
    yield [*translate, "torch"]
    yield [*translate, "numpy"]


@advice("invalid choice", "--help")
def a_command_that_there_is_not(scene: Scene) -> Steps:
    yield ["fly"]
    yield ["info", "--preset", "demo"]


@pytest.mark.parametrize("name", CASES)
def test_following_a_message_s_advice_works(
    name: str, trained: Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    case, says = CASES[name]
    scene = Scene(tmp_path, trained.data, tmp_path / "run")
    shutil.copytree(trained.folder, scene.run)
    steps = case(scene)
    status, out, err = command(*next(steps))
    error = next(line for line in err.splitlines() if line.startswith("minitransformer: error: "))
    assert status == 2, out
    assert all(part in error for part in says), error
    done = 0
    while True:
        try:
            arguments = steps.send(error)
        except StopIteration:
            break
        assert command(*arguments)[0] == 0, arguments
        done += 1
    assert done


def messages() -> list[str]:
    """The literal parts of every message that the packages raise, of those that advise."""
    found, packages = [], (Path(str(package.__file__)).parent for package in (minitransformer, paper))
    for path in (path for package in packages for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise | ast.Return) and isinstance(_exception(node), ast.Call):
                parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found.append("\0".join(part for part in parts if isinstance(part, str)))
    return [text for text in found if ADVICE.search(text)]


def _exception(node: Any) -> ast.expr | None:
    """What is raised, or returned to be raised."""
    call = node.exc if isinstance(node, ast.Raise) else node.value
    is_error = isinstance(call, ast.Call) and re.search(r"Error$|Diverged$", ast.unparse(call.func))
    return call if is_error else None


def test_every_message_that_advises_is_followed() -> None:
    known = [part for _, says in CASES.values() for part in says if ADVICE.search(part)]
    found = messages()
    assert len(found) > 20
    for message in found:
        assert any(part in message for part in [*known, *ELSEWHERE]), message
