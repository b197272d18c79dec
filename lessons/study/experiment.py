"""The interface of studies and their experiments: a study is a set of experiments with one report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from .trials.runner import Runner
from .trials.trial import Trial

Findings = dict[str, Any]
"""The results of an experiment, as JSON: everything in its part of the report, and as far as possible its pictures."""


class Named(Protocol):
    """A task of a study: what its experiments work on. The study says what else it holds."""

    @property
    def name(self) -> str: ...


TaskT = TypeVar("TaskT", bound=Named)
TaskT_co = TypeVar("TaskT_co", bound=Named, covariant=True)
TaskT_contra = TypeVar("TaskT_contra", bound=Named, contravariant=True)


@dataclass(frozen=True)
class Context(Generic[TaskT_co]):
    """The task, the runner and the scale of an experiment; `scale` multiplies the steps of the default budget."""

    task: TaskT_co
    scale: float
    runner: Runner


class Experiment(Protocol[TaskT_contra]):
    """A module of a study's experiments.

    NAME     its name on the command line, with which the names of its pictures begin
    TITLE    the title of its part of the report
    MINUTES  its share of the default budget on two cores, for training runs that no other experiment needs
    ALONE    its minutes if it runs alone
    """

    @property
    def NAME(self) -> str: ...

    @property
    def TITLE(self) -> str: ...

    @property
    def MINUTES(self) -> float: ...

    @property
    def ALONE(self) -> float: ...

    def trials(self, task: TaskT_contra, scale: float) -> Sequence[Trial]:
        """The training runs that the experiment needs; `scale` multiplies their steps."""
        ...

    def find(self, context: Context[TaskT_contra]) -> Findings:
        """Measure, and gather the results of the trials. Nothing else computes at the same time."""
        ...

    def draw(self, findings: Findings, folder: Path) -> None:
        """Draw the pictures, as `NAME-….png` in the folder."""
        ...

    def report(self, findings: Findings) -> list[str]:
        """The experiment's part of the report: blocks of Markdown."""
        ...


@dataclass
class Study(Generic[TaskT]):
    """A set of experiments, their command and their report.

    name         of its package, of `make …`, of the folder in `runs`, and of the report, `<name>.md`
    subject      the words for its experiments in messages, such as "the paper's experiments"
    help         a sentence for the command's help
    examples     options to show there, one use a line
    head         the blocks of Markdown that begin the report; the first is its title
    out          the folder of report, results and pictures unless told otherwise
    experiments  by name, in the order of the report
    minutes      the default budget for training runs, on two cores
    tasks        what experiments can work on, each with the factor on the default budget that it takes; the first one's
                 results have no suffix
    task         makes a task from its name and the folder with Multi30k's files, or None
    data_goes_with  what reads that folder, as a user types it: "--task NAME", or the name of an experiment
    """

    name: str
    subject: str
    help: str
    examples: Sequence[str]
    head: Sequence[str]
    out: Path
    experiments: Mapping[str, Experiment[TaskT]]
    minutes: float
    tasks: Mapping[str, float]
    task: Callable[[str, str | None], TaskT]
    data_goes_with: str

    @property
    def home(self) -> str:
        """The task whose results have no suffix."""
        return next(iter(self.tasks))

    @property
    def program(self) -> str:
        """The command as a reader types it."""
        return f"PYTHONPATH=lessons python -m {self.name}"

    @property
    def report_name(self) -> str:
        """The name of the report's file."""
        return f"{self.name}.md"

    def budget(
        self, chosen: Sequence[Experiment[Any]], minutes: float | None, task: str | None = None
    ) -> tuple[float, float]:
        """The minutes for these experiments, and the factor on the steps of the first task's default budget.

        Raises ValueError for minutes that are not positive, or more than a year.
        """
        usual = self.minutes if len(chosen) == len(self.experiments) else sum(each.ALONE for each in chosen)
        if minutes is None:
            minutes = usual * self.tasks[task or self.home]
        if not 0 < minutes <= A_YEAR:
            raise ValueError(f"--minutes must be positive and at most {A_YEAR:,}, a year, got {minutes:g}")
        return minutes, (minutes / usual if usual else 1.0)


A_YEAR = 365 * 24 * 60
