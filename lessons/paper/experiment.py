"""What every experiment offers, and what it is given: see `paper.experiments`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from minitransformer.data.preparation import CorpusChoice
from minitransformer.models import ModelConfig, TransformerConfig
from minitransformer.training import TrainingSettings

from .trials.run import CHECKPOINTS
from .trials.runner import Runner
from .trials.trial import NOMINAL_BATCH, Trial, step_flops

Findings = dict[str, Any]
"""What an experiment found, as JSON holds it: all that its part of the report says, and its pictures where they can."""


@dataclass(frozen=True)
class Task:
    """What the miniature trainings translate, and how they are trained.

    settings   of the trainings, but for their steps
    overrides  of the Transformers' configurations
    """

    name: str
    text: CorpusChoice
    settings: TrainingSettings
    overrides: dict[str, Any] = field(default_factory=dict)

    def translation(self, target: str = "de") -> CorpusChoice:
        """English and that language."""
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

    def steps(self, operations: float, config: ModelConfig) -> float:
        """How many steps such a model can take for so many floating-point operations, with full batches."""
        of_nominal = self.settings.tokens_per_batch / math.prod(NOMINAL_BATCH[:2])
        return operations / (step_flops(config) * of_nominal)

    def training(self, steps: float, **overrides: Any) -> TrainingSettings:
        """The settings for about so many steps, at most a third to warm up; checkpoints divide them evenly.

        A shorter warm-up has a higher peak: with 225 steps of it instead of 300, the larger Transformer of table 2 was
        no nearer to translating after 900.
        """
        count = CHECKPOINTS * max(1, round(steps / CHECKPOINTS))
        settings = replace(self.settings, steps=count, warmup_steps=min(self.settings.warmup_steps, count // 3))
        return replace(settings, **overrides)


# About as many times over as the paper's base model saw its text: 100,000 batches of 25,000 tokens from 4.5 million
# pairs are some 20 epochs.
GRAMMAR = Task(
    "grammar",
    CorpusChoice(vocab_size=1200, sentences=10_000, max_length=160),
    TrainingSettings(tokens_per_batch=2048, warmup_steps=300, threads=1),
)


def multi30k(folder: str | None) -> Task:
    """Multi30k, from a folder or downloaded, with the dropout of the `tiny` preset: few pairs.

    Batches are half of the preset's, and the warm-up too, on the paper's own schedule: trainings are shorter.
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
    """What an experiment has to work with; scale: of the trainings that the default budget pays for."""

    task: Task
    scale: float
    runner: Runner


class Experiment(Protocol):
    """A module of `paper.experiments`.

    NAME     as the command line knows it, and its pictures' names begin
    TITLE    of its part of the report
    MINUTES  of the default budget on two cores, for what no other experiment trains
    ALONE    minutes for the same if the experiment is run by itself
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
        """The trainings that it needs; `scale` multiplies their steps."""
        ...

    def find(self, context: Context) -> Findings:
        """Measure, and gather what the trials came to. Nothing else is computing meanwhile."""
        ...

    def draw(self, findings: Findings, folder: Path) -> None:
        """Its pictures, as `NAME-….png` in the folder."""
        ...

    def report(self, findings: Findings) -> list[str]:
        """Its part of the report: blocks of Markdown."""
        ...
