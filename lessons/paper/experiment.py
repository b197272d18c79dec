"""The interface of experiments, their task and their context: see `paper.experiments`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from minitransformer.data.preparation import CorpusChoice
from minitransformer.models import TransformerConfig, TranslationConfig
from minitransformer.training import TrainingSettings

from .trials.run import CHECKPOINTS
from .trials.runner import Runner
from .trials.trial import NOMINAL_BATCH, Trial, step_flops

Findings = dict[str, Any]
"""The results of an experiment, as JSON: everything in its part of the report, and as far as possible its pictures."""


@dataclass(frozen=True)
class Task:
    """The text that the miniature models translate, and how they are trained.

    settings   the settings of trainings, except for their steps
    overrides  fields of the Transformers' configurations
    """

    name: str
    text: CorpusChoice
    settings: TrainingSettings
    overrides: dict[str, Any] = field(default_factory=dict)

    def translation(self, target: str = "de") -> CorpusChoice:
        """The text with English and the target language."""
        return replace(self.text, target=target)

    def transformer(self, **overrides: Any) -> TransformerConfig:
        """The miniature of the paper's base model: half its layers, an eighth of its width."""
        config = TransformerConfig(
            self.text.vocab_size,
            d_model=64,
            num_heads=8,
            d_ff=256,
            num_layers=3,
            max_length=self.text.max_length,
            init_gain=0.5,
        )
        return replace(config, **self.overrides | overrides)

    def steps(self, operations: float, config: TranslationConfig) -> float:
        """The number of steps that a model of this configuration takes with this many operations and full batches."""
        of_nominal = self.settings.tokens_per_batch / math.prod(NOMINAL_BATCH[:2])
        return operations / (step_flops(config) * of_nominal)

    def training(self, steps: float, **overrides: Any) -> TrainingSettings:
        """The settings for about `steps` steps, at most a third of them warm-up; checkpoints divide them evenly.

        A shorter warm-up has a higher peak, and no advantage: with 225 steps instead of 300, the larger Transformer of
        table 2 did not translate better after 900 steps.
        """
        count = CHECKPOINTS * max(1, round(steps / CHECKPOINTS))
        settings = replace(self.settings, steps=count, warmup_steps=min(self.settings.warmup_steps, count // 3))
        return replace(settings, **overrides)


# About as many epochs as the paper's base model: 100,000 batches of 25,000 tokens from 4.5 million pairs are some 20.
GRAMMAR = Task(
    "grammar",
    CorpusChoice(vocab_size=1200, sentences=10_000, max_length=160),
    TrainingSettings(tokens_per_batch=2048, warmup_steps=300, threads=1),
)


def multi30k(folder: str | None) -> Task:
    """Multi30k, from a folder or downloaded, with the dropout of the `tiny` preset, because there are few pairs.

    Trainings are shorter than the preset's: batches and warm-up are half as large, and the schedule is the paper's.
    """
    text = CorpusChoice(
        dataset=None if folder else "multi30k",
        data=str(Path(folder).resolve()) if folder else None,
        vocab_size=8000,
        max_length=256,
    )
    settings = TrainingSettings(tokens_per_batch=2048, warmup_steps=1000, threads=1)
    return Task("multi30k", text, settings, {"dropout": 0.3})


@dataclass(frozen=True)
class Context:
    """What an experiment works with; `scale` is the factor on the steps of the default budget."""

    task: Task
    scale: float
    runner: Runner


class Experiment(Protocol):
    """A module of `paper.experiments`.

    NAME     its name on the command line, with which the names of its pictures begin
    TITLE    the title of its part of the report
    MINUTES  its share of the default budget on two cores, for trainings that no other experiment needs
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

    def trials(self, task: Task, scale: float) -> Sequence[Trial]:
        """The trainings that the experiment needs; `scale` multiplies their steps."""
        ...

    def find(self, context: Context) -> Findings:
        """Measure, and gather the results of the trials. Nothing else computes at the same time."""
        ...

    def draw(self, findings: Findings, folder: Path) -> None:
        """Draw the pictures, as `NAME-….png` in the folder."""
        ...

    def report(self, findings: Findings) -> list[str]:
        """The experiment's part of the report: blocks of Markdown."""
        ...
