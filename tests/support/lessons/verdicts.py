"""What the package computes and what the judges say, as plain data: the same wherever Python and NumPy run.

    python verdicts.py [--first] [package] LESSON …

prints it as JSON, for the package and for these lessons; with --first, for the first exercise of each.
"""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.lessons.answers import solution, wrong
from support.toy_training import SETTINGS, toy_trainer

from course.exercise import exercises
from course.gpu import ON_KERNELS
from course.sources import LESSONS
from minitransformer.data.preparation import CorpusChoice, prepare
from minitransformer.decoding import Translator
from minitransformer.training import LOG_NAME, read_log
from minitransformer.training.checkpoint import load_checkpoint

SENTENCES = [
    "The old teacher reads a book.",
    "Now, a student who closed many doors does not visit this hospital.",
]


def stub(*args: Any, **options: Any) -> Any:
    raise NotImplementedError


def verdicts(number: str, first: bool = False) -> dict[str, list[list[str]]]:
    """Each exercise's verdicts, a state and a hint, on its stub, its solution and its first mistake."""
    names = [name for name in exercises(number) if name not in ON_KERNELS.get(number, ())]
    found: dict[str, list[list[str]]] = {}
    for name in names[:1] if first else names:
        answers = stub, solution(number, name), next(iter(wrong(number, name).values()))[0]
        found[name] = [[*exercises(number)[name].verdict(answer)] for answer in answers]
    return found


def package() -> dict[str, Any]:
    """A pair of a text as ids, translations, and the numbers of a training of two steps and of its checkpoint."""
    translator = Translator.from_checkpoint(LESSONS / "weights" / "en-de.safetensors", threads=2)
    with tempfile.TemporaryDirectory() as folder:
        data = prepare(Path(folder) / "text", CorpusChoice(sentences=300, vocab_size=400, max_length=64), progress=True)
        pair = [ids.tolist() for ids in data.train[100]]
        trainer = toy_trainer(Path(folder), replace(SETTINGS, steps=2), progress=True)
        trainer.train()
        *_, last = read_log(Path(folder) / LOG_NAME)
        weights = load_checkpoint(trainer.last_checkpoint or "").parameters
    return {
        "pair": pair,
        "translations": translator.translate(SENTENCES, progress=True),
        "numbers": [last["loss"], last["validation_loss"], float(sum(abs(array).sum() for array in weights.values()))],
    }


def everything(*names: str, first: bool = False) -> dict[str, Any]:
    return {name: package() if name == "package" else verdicts(name, first) for name in names}


if __name__ == "__main__":
    first = sys.argv[1:2] == ["--first"]
    print(json.dumps(everything(*sys.argv[1 + first :], first=first)))
