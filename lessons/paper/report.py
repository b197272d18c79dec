"""Keeps the results of experiments as JSON, and writes one report from all of them.

results/<experiment>.json   findings, and the command, budget and machine that they came from
pictures/*.png              (for tasks other than the grammar: results/<experiment>-<task>.json, pictures/<task>/)
paper.md                    a section for each file in results/
"""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from minitransformer.atomic import atomic_write
from minitransformer.visible import visible

from .experiment import Experiment, Findings
from .markdown import paragraph
from .trials.runner import CHANGE, EDITION

HOME = "grammar"
"""The task whose results have no suffix."""

HEAD = [
    "# The paper's experiments",
    paragraph("""
        Every table and figure of *Attention Is All You Need* (Vaswani et al., 2017) beside what this project finds.
        What is arithmetic is computed from configurations, to the number. What takes eight GPUs for days is done in
        miniature, mostly on the sentences of a grammar: it says what holds at that size and after so short a training,
        no more. No model is called better than another unless the 95 % interval of their difference, over bootstrap
        samples of the test sentences, leaves out zero. That covers the choice of the test sentences, not that of the
        seed; and of so many intervals one in twenty misses what it is to cover.
    """),
    paragraph("""
        This file, its pictures and the JSON beside it are written by the commands that each section names; `make paper`
        runs all that are about the grammar. BLEU is sacreBLEU's with its defaults (13a tokenisation, cased) on
        untokenised text; of Multi30k on the Flickr test set of 2016.
    """),
]


@dataclass(frozen=True)
class Origin:
    """The origin of findings.

    minutes       the command's budget for trainings
    scale         the factor on the default's steps that this budget gives
    core_minutes  minutes of one core that this experiment's trainings and evaluations took, shared ones included
    edition       the edition of the code that trained
    """

    command: str
    task: str
    minutes: float
    scale: float
    core_minutes: float
    backend: str
    machine: str
    edition: int = 3  # of results that do not say

    def line(self) -> str:
        """The line under a section's title."""
        trainings = ""
        if self.core_minutes:
            trainings = paragraph(f"""
                a budget of {self.minutes:g} minutes, which pays for {self.scale:.3g} times the default's steps;
                trainings and evaluations of this section took {self.core_minutes:.0f} core-minutes.
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


def check_folder(out: Path) -> None:
    """Raises `OSError` if results can't be written, or if another file has the report's name.

    The command calls it before the trainings, so that none is in vain.
    """
    path, results = out / "paper.md", out / "results"
    if path.is_file() and not path.read_bytes().startswith(HEAD[0].encode()):
        raise FileExistsError(f"{path} is not this report: move it elsewhere, or choose another --out")
    results.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=results):
        pass


def from_longer(out: Path, experiment: Experiment, task: str, scale: float) -> Path | None:
    """The file of results that would be replaced although it came from longer trainings; None if there is none."""
    try:
        return _path(out, experiment, task) if _read(out, experiment, task).origin.scale > scale else None
    except (OSError, ValueError, TypeError):
        return None  # there are no results, or they can't be read


def save_findings(out: Path, experiment: Experiment, origin: Origin, findings: Findings) -> None:
    """Write the findings of an experiment. Raises `OSError` as `atomic_write` does."""
    with atomic_write(_path(out, experiment, origin.task)) as file:
        content = {"origin": asdict(origin), "findings": findings}
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")


def write_report(out: Path, experiments: Mapping[str, Experiment], tasks: Sequence[str]) -> Path:
    """Write `paper.md` and draw all pictures from the results in `out`; returns the report's path.

    Raises as `report_text` does.
    """
    text = report_text(out, experiments, tasks)
    check_folder(out)
    for section in sections(out, experiments, tasks):
        section.draw(out / "pictures" if section.origin.task == HOME else out / "pictures" / section.origin.task)
    path = out / "paper.md"
    with atomic_write(path) as file:
        file.write("".join(visible(line) + "\n" for line in text.split("\n")).encode())
    return path


def report_text(out: Path, experiments: Mapping[str, Experiment], tasks: Sequence[str]) -> str:
    """The text of the report on the results in `out`. Raises as `sections` does, and `ValueError` for old results.

    If an experiment has a second task, its part leaves out the end that equals the first task's, such as the paper's
    own table.
    """
    written, said = list(HEAD), {}
    for section in sections(out, experiments, tasks):
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
    experiment: Experiment
    origin: Origin
    findings: Findings

    def blocks(self) -> list[str]:
        """The section's blocks of the report. Raises `ValueError` for findings of another edition of the experiment."""
        title, task = self.experiment.TITLE, self.origin.task
        with self._fitting():
            text = "\n\n".join([self.origin.line(), *self.experiment.report(self.findings)])
        if task != HOME:
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


def sections(out: Path, experiments: Mapping[str, Experiment], tasks: Sequence[str]) -> list[Section]:
    """The results in `out`, in the order of the report.

    Raises `FileNotFoundError` if there are none, and `ValueError` if one is damaged.
    """
    pairs = ((each, task) for each in experiments.values() for task in tasks)
    found = [_read(out, experiment, task) for experiment, task in pairs if _path(out, experiment, task).is_file()]
    if not found:
        raise FileNotFoundError(f"{out} holds no results of the paper's experiments")
    return found


def _read(out: Path, experiment: Experiment, task: str) -> Section:
    path = _path(out, experiment, task)
    try:
        content = json.loads(path.read_bytes())
        section = Section(path, experiment, Origin(**content["origin"]), content["findings"])
        if section.origin.task != task:
            raise ValueError("it is of another task than its name says")
        return section
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): delete it, and run the experiment again") from None


def _path(out: Path, experiment: Experiment, task: str) -> Path:
    return out / "results" / f"{experiment.NAME}{'' if task == HOME else f'-{task}'}.json"
