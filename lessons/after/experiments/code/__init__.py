"""Python as a language: a GPT reads the functions of Python's own library, and `ast.parse` judges what it writes."""

import gzip
import lzma
from collections.abc import Callable, Sequence
from dataclasses import asdict
from platform import python_version
from typing import Any

import numpy as np

from study.experiment import Context, Findings
from study.trials.bootstrap import MEAN, interval
from study.trials.trial import Answers, Trial, TrialResult

from ...predictions import predictions_of
from ...task import Texts
from .library import text_of
from .plan import NAME, TEMPERATURES, Writing, lines_of, planned, text_choice
from .telling import draw, judge, report

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "judge", "report", "trials"]

TITLE, MINUTES, ALONE = "Python that a GPT writes", 45.0, 45.0

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 9),
    "xz": lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME),
}
"""The compressors, each with its strongest setting."""


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """All bases, then all runs on rewards."""
    return [trial for seeds in planned(scale).values() for trial in seeds]


def find(context: Context[Texts]) -> Findings:
    """Return what the library holds and how it packs, and the figures of all models, before and after the rewards."""
    data = context.runner.data(text_choice())
    sides = [lines_of(data, each) for each in (data.train, data.valid)]
    train, valid = ("".join(f"{text_of(line)}\n" for line in lines).encode() for lines in sides)
    return {
        "predictions": predictions_of(NAME),
        "python": python_version(),
        "functions": [len(lines) for lines in sides],
        "bytes": [len(train), len(valid)],
        "library": shares(sides[1], Writing.judged(sides[1], set(sides[0]))),
        "packed": {name: bits_packed(pack, train, valid) for name, pack in PACKERS.items()},
        "models": {
            name: [summary(context.runner.result(trial)) for trial in seeds]
            for name, seeds in planned(context.scale).items()
        },
    }


def bits_packed(pack: Callable[[bytes], bytes], before: bytes, data: bytes) -> dict[str, float]:
    """The bits that a byte of `data` takes packed alone, and those that it adds to what was packed before."""
    added = len(pack(before + data)) - len(pack(before))
    return {"alone": 8 * len(pack(data)) / len(data), "after": 8 * added / len(data)}


def summary(result: TrialResult) -> dict[str, Any]:
    """The cost of a run, how its model reads and what it writes, and its curve if it had rewards."""
    figures = ("step", "validation_reward", "validation_length", "validation_kl")
    return {
        **{name: getattr(result, name) for name in ("parameters", "steps", "flops", "seconds", "epochs")},
        "curve": [[point[name] for name in figures] for point in result.curve if figures[1] in point],
        "bits": asdict(interval(MEAN, result.answers("reading").statistics)),
        "writing": {f"{each:g}": written(result.answers(f"writing {each:g}")) for each in TEMPERATURES},
    }


def written(answers: Answers) -> dict[str, Any]:
    """The shares of a model's texts, and the first six that are not from the training text."""
    copied = answers.statistics[:, Writing.FIGURES.index("copied")]
    new = [line for line, known in zip(answers.hypotheses, copied, strict=True) if not known]
    return shares(answers.hypotheses, answers.statistics) | {"examples": new[:6]}


def shares(lines: Sequence[str], statistics: np.ndarray) -> dict[str, float]:
    """The mean of each figure of `Writing`, and the shares of texts that parse and are new, and that are distinct."""
    parses, _, copied, *_ = statistics.T
    found = dict(zip(Writing.FIGURES, statistics.mean(0).tolist(), strict=True))
    return found | {"new": float((parses * (1 - copied)).mean()), "distinct": len(set(lines)) / len(lines)}
