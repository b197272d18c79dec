"""Whoever does what a message says gets on: each piece of advice is brought about, followed, and works."""

import ast
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cli_runs import SMALL, Command, Run, write_corpus
from support.tables import sections

import after
import minitransformer
import paper
import study

DIALOGUES = """
[already holds a training: add --resume to go on with it, or choose another --out]
train --data {text} {small} --out {run}
train --data {text} {small} --out {run} --resume
train --data {text} {small} --out {new}
[--resume needs the folder of the training: --resume FOLDER]
train --resume
train --resume {run} --steps 5
[is damaged, or not written by this program … move it elsewhere or delete it, and the data is made again]
! cut {run}/data/corpus.json
train --resume {run} --steps 5
! delete {run}/data/corpus.json
train --resume {run} --steps 5
[nothing in … says which text this was: add --data, --dataset, --text or --table to --resume]
! delete {run}/data
train --resume {run} --steps 5
train --resume {run} --steps 5 --data {text}
[was trained on other data]
! delete {run}/data
train --resume {run} --steps 5 --data {other}
train --resume {run} --steps 5 --data {text}
[is damaged ( … ): delete the file, and the log begins again]
! spoil {run}/log.jsonl
train --resume {run} --steps 5
! delete {run}/log.jsonl
train --resume {run} --steps 5
[try a lower learning rate, in another folder;  …  is from before]
train --data {text} {small} --checkpoint-interval 1 --warmup-steps 1 --steps 50 --out {new} --peak-lr 1e30
info {kept}
train --data {text} {small} --checkpoint-interval 1 --warmup-steps 1 --steps 3 --out {another} --peak-lr 1e-3
[try a lower learning rate, in another folder; there is no checkpoint from before]
train --data {text} {small} --checkpoint-interval 1 --warmup-steps 1 --steps 50 --out {new} --peak-lr 1e39
train --data {text} {small} --checkpoint-interval 1 --warmup-steps 1 --steps 3 --out {another} --peak-lr 1e-3
[would replace what is read,  … : choose another name]
average --last 2 {run} --output {checkpoint}
average --last 2 {run} --output {another}
[has the name of a training's own checkpoint: choose another name]
average --last 2 {run} --output {another}/step-00000009.safetensors
average --last 2 {run} --output {another}
[is a folder without a model: name a checkpoint, or a folder with a config.json]
translate {run} {short}
translate {checkpoint} {short}
[tokens with its end mark, but the model takes at most … split it, or add --truncate]
translate {checkpoint} {long}
translate {checkpoint} {long} --truncate
translate {checkpoint} {short} {short} {short} {short} {short}
[tokens with its end mark, but the model takes at most … split it, or ask for it to be truncated]
! write {another} {long}
! write {new} Hund
evaluate {checkpoint} --beam 1 --input {another} --reference {new}
evaluate {checkpoint} --beam 1 --input {another} --reference {new} --truncate
! write {another} {short} {short} {short} {short} {short}
! write {new} Hund Hund Hund Hund Hund
evaluate {checkpoint} --beam 1 --input {another} --reference {new}
[name one test set: --input FILE with --reference FILE, or --dataset, or --data DIR]
evaluate {checkpoint} --beam 1
evaluate {checkpoint} --beam 1 --input {text}/test.en --reference {text}/test.de
evaluate {checkpoint} --beam 1 --data {text}
[name a checkpoint or a --preset, one of the two]
info
info {checkpoint}
info --preset tiny
[vocab_size must be at most … for this text, whose words give no more tokens]
train --data {text} --out {new} {small} --steps 1 --vocab-size 100000
train --data {text} --out {new} {small} --steps 1 --vocab-size {bound}
[vocab_size must be at least]
train --data {text} --out {new} {small} --steps 1 --vocab-size 100
train --data {text} --out {new} {small} --steps 1 --vocab-size {bound}
[train in bfloat16 or float32 (float16 is for translating)]
train --data {text} --out {new} {small} --steps 1 --backend torch --dtype float16
train --data {text} --out {new} {small} --steps 1 --backend torch --dtype bfloat16
translate {checkpoint} "A dog." --backend torch --dtype float16
[needs a GPU that PyTorch can use, and there is none: use the torch backend or numpy]
translate {checkpoint} "A dog." --backend triton
translate {checkpoint} "A dog." --backend torch
translate {checkpoint} "A dog." --backend numpy
[invalid choice … --help]
fly
info --preset demo
"""
"""Under the parts of a message: the command that is refused with it, then what it advises, which succeeds.

`run` is a finished training of 4 steps, `text` its text, `other` another one; `new` and `another` are free names. What
the message itself names is the `kept` checkpoint and the `bound` of a number. A line with `!` is done to files.
"""

ELSEWHERE = {
    "not a training's log: move it": "test_cli_files.py",
    "in the way: move it": "test_cli_files.py",
    "not a lock of this program: move it": "test_cli_files.py",
    "wait until it has ended, or choose another folder": "test_cli_files.py",
    "not the demo's: move it": "test_cli_demo.py",
    "choose another --out, or delete it": "test_cli_demo.py",
    "would write it: choose another --out": "test_cli_fine_tuning.py",
    "run the experiment again": "paper/test_command.py",
    "is not this report: move it": "paper/test_command.py",
    "choose from": "paper/test_command.py",
    "the trial is done again": "study/test_runner.py",
    "not part of a token dataset: move it": "data/test_token_dataset.py",
    "not a token dataset: move it": "data/test_token_dataset.py",
    "move it elsewhere or delete it": "data/test_preparation.py, data/test_token_dataset.py",
    "and the data is made again": "data/test_preparation.py",
    ", and the dataset is made again": "data/test_preparation.py",
    "already holds a training, up to": "training/test_resume.py",
    "not a checkpoint of this training: move it": "training/test_resume.py",
    "and the log begins again": "training/test_training_log.py",
    "split it, or ask for it to be truncated": "decoding/test_translator.py",
    "name a folder with a config.json": "test_cli_family.py",
}
"""Advice that tests beside what gives it follow: where they are."""

ADVICE = re.compile(r"\b(delete|move it|choose|add --|split it|try a|name (one|it|a)|(done|experiment) again|wait)\b")


def change_files(verb: str, name: str, *lines: str) -> None:
    path = Path(name)
    if verb == "write":
        path.write_text("".join(line + "\n" for line in lines))
    elif verb == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif verb == "spoil":
        path.write_bytes(path.read_bytes().replace(b'"loss": ', b'"loss": 1', 1))
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.parametrize("says", sections(DIALOGUES))
def test_following_a_message_s_advice_works(
    says: str, trained: Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    names = {name: str(tmp_path / name) for name in ("run", "new", "another", "other")}
    names |= {"text": str(trained.data), "checkpoint": f"{names['run']}/{trained.checkpoint.name}"}
    names |= {"small": shlex.join(SMALL), "long": shlex.quote("dog " * 50), "short": shlex.quote("dog " * 10)}
    shutil.copytree(trained.folder, names["run"])
    if "trained on other data" in says:
        write_corpus(tmp_path / "other", train=150)
    error = ""
    for (line,) in sections(DIALOGUES)[says]:
        word, *arguments = shlex.split(line.format(**names))
        if word == "!":
            change_files(*arguments)
            continue
        status, out, err = command(word, *arguments)
        assert status == (0 if error else 2), line + out + err
        if not error:
            error = next(line for line in err.splitlines() if line.startswith("minitransformer: error: "))
            assert all(part in error for part in says.split(" … ")), error
            for found in re.finditer(r"folder; (?P<kept>\S+) is from|at (?:most|least) (?P<bound>\d+)", error):
                names |= found.groupdict()


def messages() -> list[str]:
    """The literal parts of every message that the packages raise, of those that advise."""
    found, packages = [], (Path(str(package.__file__)).parent for package in (minitransformer, after, paper, study))
    for path in (path for package in packages for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise | ast.Return) and isinstance(_exception(node), ast.Call):
                parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found.append("\0".join(part for part in parts if isinstance(part, str)))
    return [text for text in found if ADVICE.search(text)]


def _exception(node: Any) -> ast.expr | None:
    """Return the exception that is raised, or returned to be raised."""
    call = node.exc if isinstance(node, ast.Raise) else node.value
    is_error = isinstance(call, ast.Call) and re.search(r"Error$|Diverged$", ast.unparse(call.func))
    return call if is_error else None


def test_every_message_that_advises_is_followed() -> None:
    known = [part for says in sections(DIALOGUES) for part in says.split(" … ") if ADVICE.search(part)]
    found = messages()
    assert len(found) > 20
    for message in found:
        assert any(part in message for part in [*known, *ELSEWHERE]), message
