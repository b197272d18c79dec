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
from . import plan
from .library import text_of
from .plan import KLS, NAME, TEMPERATURES, Writing, base_trial, lines_of, rewarded_trial, text_choice
from .telling import BASE, draw, judge, report

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "judge", "report", "trials"]

TITLE, MINUTES, ALONE = "Python that a GPT writes, and Python that judges it", 45.0, 45.0

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 9),
    "xz": lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME),
}
"""The compressors, each with its strongest setting."""


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """All bases, then all runs on rewards."""
    return plan.trials(scale)


def find(context: Context[Texts]) -> Findings:
    """Return what the library holds and how it packs, and the figures of all models, before and after the rewards."""
    runner, scale = context.runner, context.scale
    data = runner.data(text_choice())
    sides = [lines_of(data, each) for each in (data.train, data.valid)]
    train, valid = ("".join(f"{text_of(line)}\n" for line in lines).encode() for lines in sides)
    models = {BASE: [base_trial(scale, seed) for seed in plan.SEEDS]}
    models |= {f"{kl:g}": [rewarded_trial(scale, seed, kl) for seed in plan.SEEDS] for kl in KLS}
    return {
        "predictions": predictions_of(NAME),
        "python": python_version(),
        "functions": [len(lines) for lines in sides],
        "bytes": [len(train), len(valid)],
        "library": shares(Writing.judged(sides[1], set(sides[0]))),
        "packed": {name: bits_packed(pack, train, valid) for name, pack in PACKERS.items()},
        "models": {name: [summary(runner.result(trial)) for trial in seeds] for name, seeds in models.items()},
    }


def bits_packed(pack: Callable[[bytes], bytes], before: bytes, data: bytes) -> dict[str, float]:
    """The bits that a byte of `data` takes packed alone, and those that it adds to what was packed before."""
    added = len(pack(before + data)) - len(pack(before))
    return {"alone": 8 * len(pack(data)) / len(data), "after": 8 * added / len(data)}


def summary(result: TrialResult) -> dict[str, Any]:
    """The cost of a run, what its model writes at each temperature, how it reads, and its curve if it had rewards."""
    taken = ("parameters", "steps", "flops", "seconds", "epochs", "diverged")
    found: dict[str, Any] = {name: getattr(result, name) for name in taken}
    if result.diverged is None:
        names = ("step", "validation_reward", "validation_length", "validation_kl")
        found["curve"] = [[point[name] for name in names] for point in result.curve if names[1] in point]
        found["bits"] = asdict(interval(MEAN, result.answers("reading").statistics))
        found["writing"] = {f"{each:g}": written(result.answers(f"writing {each:g}")) for each in TEMPERATURES}
    return found


def written(answers: Answers) -> dict[str, Any]:
    """The shares of a model's texts, and the first six that are not from the training text."""
    lines, copied = answers.hypotheses, answers.statistics[:, Writing.FIGURES.index("copied")]
    new = [line for line, known in zip(lines, copied, strict=True) if not known]
    return shares(answers.statistics) | {"distinct": len(set(lines)) / len(lines), "examples": new[:6]}


def shares(statistics: np.ndarray) -> dict[str, float]:
    """The mean of each figure of `Writing`, and the share of texts that parse and are not from the training text."""
    found = dict(zip(Writing.FIGURES, statistics.mean(0).tolist(), strict=True))
    parses, _, copied, *_ = statistics.T
    return found | {"new": float((parses * (1 - copied)).mean())}
