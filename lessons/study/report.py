"""Keep the results of experiments as JSON, and write one report from all of them.

results/<experiment>.json   findings, and the command, budget and machine that they came from
pictures/*.png              (for other tasks than a study's first: results/<experiment>-<task>.json, pictures/<task>/)
<study>.md                  a section for each file in results/
"""

import json
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from minitransformer.system.atomic import atomic_write
from minitransformer.system.visible import visible

from .experiment import Experiment, Findings, Study
from .markdown import paragraph
from .trials.runner import CHANGE, EDITION

NUMBERS = re.compile(r'\[\n[^\[\]{}"]*\]')
"""A list of plain numbers in JSON, which is written on one line; no string of JSON has a line break."""


@dataclass(frozen=True)
class Origin:
    """The origin of findings.

    minutes       the command's budget for training runs
    scale         the factor on the default's steps that this budget gives
    core_minutes  minutes of one core that this experiment's training runs and evaluations took, shared ones included
    edition       the edition of the code that trained
    """

    command: str
    task: str
    minutes: float
    scale: float
    core_minutes: float
    backend: str
    machine: str
    edition: int

    def line(self) -> str:
        """The line under a section's title."""
        trainings = ""
        if self.core_minutes:
            share = "" if self.scale == 1 else f", which pays for {self.scale:.3g} times the default's steps"
            trainings = paragraph(f"""
                a budget of {self.minutes:g} minutes{share}; training runs and evaluations of this section took
                {self.core_minutes:.0f} core-minutes.
            """)
        if self.core_minutes and self.edition != EDITION:
            trainings += f" The code has changed since: {CHANGE}. Trained again, figures differ as between two seeds."
        return " ".join(f"*`{self.command}`: {trainings} {self.backend}; {self.machine}.*".split())


def machine() -> str:
    """The processor, its cores, and the versions of Python and NumPy."""
    name = platform.processor() or platform.machine()
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        name = next(line.split(":", 1)[1].strip() for line in described.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        pass  # not Linux, or the processor's name is not in the file
    return f"{name}, {os.cpu_count()} cores; Python {platform.python_version()}, NumPy {np.__version__}"


def check_folder(study: Study[Any], out: Path) -> None:
    """Raise `OSError` if results can't be written, or if another file has the report's name.

    The command calls it before the training runs, so that none is in vain.
    """
    path, results = out / study.report_name, out / "results"
    if path.is_file() and not path.read_bytes().startswith(study.head[0].encode()):
        raise FileExistsError(f"{path} is not this report: move it elsewhere, or choose another --out")
    results.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=results):
        pass


def from_longer(study: Study[Any], out: Path, experiment: Experiment[Any], task: str, scale: float) -> Path | None:
    """The file of results that would be replaced although it came from longer training runs; None if there is none."""
    try:
        origin = _read(study, out, experiment, task).origin
        return _path(study, out, experiment, task) if origin.core_minutes and origin.scale > scale else None
    except (OSError, ValueError, TypeError):
        return None  # there are no results, or they can't be read


def save_findings(
    study: Study[Any], out: Path, experiment: Experiment[Any], origin: Origin, findings: Findings
) -> None:
    """Write the findings of an experiment. Raises `OSError` as `atomic_write` does."""
    with atomic_write(_path(study, out, experiment, origin.task)) as file:
        content = {"origin": asdict(origin), "findings": findings}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        file.write(NUMBERS.sub(lambda each: " ".join(each[0].split()), text).encode() + b"\n")


def write_report(study: Study[Any], out: Path) -> Path:
    """Write the report and draw all pictures from the results in `out`; returns the report's path.

    Raises as `report_text` does.
    """
    text = report_text(study, out)
    check_folder(study, out)
    for section in sections(study, out):
        section.draw(out / "pictures" / section.folder)
    path = out / study.report_name
    with atomic_write(path) as file:
        file.write("".join(visible(line) + "\n" for line in text.split("\n")).encode())
    return path


def report_text(study: Study[Any], out: Path) -> str:
    """The text of the report on the results in `out`. Raises as `sections` does, and `ValueError` for old results.

    If an experiment has a second task, its part leaves out the end that equals the first task's, such as the paper's
    own table.
    """
    written, said = list(study.head), {}
    for section in sections(study, out):
        blocks = section.blocks()
        written += _without_common_end(blocks, said.get(section.experiment.NAME, []))
        said[section.experiment.NAME] = blocks
    return "\n\n".join(written)


def _without_common_end(blocks: list[str], others: list[str]) -> list[str]:
    common = takewhile(lambda pair: pair[0] == pair[1], zip(reversed(blocks), reversed(others), strict=False))
    return blocks[: len(blocks) - len(list(common))]


@dataclass(frozen=True)
class Section:
    """An experiment, its findings, and their origin."""

    path: Path
    experiment: Experiment[Any]
    origin: Origin
    findings: Findings
    at_home: bool

    @property
    def folder(self) -> str:
        """The folder of its pictures, in that of all pictures."""
        return "" if self.at_home else self.origin.task

    def blocks(self) -> list[str]:
        """The section's blocks of the report. Raises `ValueError` for findings of another edition of the experiment."""
        title, task = self.experiment.TITLE, self.origin.task
        with self._fitting():
            text = "\n\n".join([self.origin.line(), *self.experiment.report(self.findings)])
        if not self.at_home:
            title = f"{title}, on {task.capitalize()}"
            text = text.replace("](pictures/", f"](pictures/{task}/")
        return [f"## {title}", *text.split("\n\n")]

    def draw(self, folder: Path) -> None:
        """Draw the section's pictures. Raises as `blocks` does, and `OSError` as `atomic_write` does."""
        with self._fitting():
            self.experiment.draw(self.findings, folder)

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
            raise ValueError(f"{self.path} does not fit its report ({error!r}): run the experiment again") from error


def sections(study: Study[Any], out: Path) -> list[Section]:
    """The results in `out`, in the order of the report.

    Raises `FileNotFoundError` if there are none, and `ValueError` if one is damaged.
    """
    pairs = ((each, task) for each in study.experiments.values() for task in study.tasks)
    found = [_read(study, out, *pair) for pair in pairs if _path(study, out, *pair).is_file()]
    if not found:
        raise FileNotFoundError(f"{out} holds no results of {study.subject}")
    return found


def _read(study: Study[Any], out: Path, experiment: Experiment[Any], task: str) -> Section:
    path = _path(study, out, experiment, task)
    try:
        content = json.loads(path.read_bytes())
        origin, findings = Origin(**content["origin"]), content["findings"]
        if origin.task != task:
            raise ValueError("it is of another task than its name says")
        return Section(path, experiment, origin, findings, task == study.home)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): delete it, and run the experiment again") from None


def _path(study: Study[Any], out: Path, experiment: Experiment[Any], task: str) -> Path:
    return out / "results" / f"{experiment.NAME}{'' if task == study.home else f'-{task}'}.json"
