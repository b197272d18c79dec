"""The tasks of the paper's experiments: what the miniature models translate, and how they are trained."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from minitransformer.data.preparation import CorpusChoice
from minitransformer.models import TransformerConfig, TranslationConfig
from minitransformer.training import TrainingSettings
from study.trials.run import lasting
from study.trials.trial import NOMINAL_BATCH, step_flops


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
        """The settings for about `steps` steps: see `lasting`.

        A shorter warm-up has a higher peak, and no advantage: with 225 steps instead of 300, the larger Transformer of
        table 2 did not translate better after 900 steps.
        """
        return replace(lasting(self.settings, steps), **overrides)


# About as many epochs as the paper's base model: 100,000 batches of 25,000 tokens from 4.5 million pairs are some 20.
GRAMMAR = Task(
    "grammar",
    CorpusChoice(vocab_size=1200, sentences=10_000, max_length=160),
    TrainingSettings(tokens_per_batch=2048, warmup_steps=300, threads=1),
)


def multi30k_text(folder: str | None, **options: Any) -> CorpusChoice:
    """Multi30k, from a folder or downloaded."""
    return CorpusChoice(
        dataset=None if folder else "multi30k", data=str(Path(folder).resolve()) if folder else None, **options
    )


def multi30k(folder: str | None) -> Task:
    """Multi30k, from a folder or downloaded, with the dropout of the `tiny` preset, because there are few pairs.

    Trainings are shorter than the preset's: batches and warm-up are half as large, and the schedule is the paper's.
    """
    text = multi30k_text(folder, vocab_size=8000, max_length=256)
    settings = TrainingSettings(tokens_per_batch=2048, warmup_steps=1000, threads=1)
    return Task("multi30k", text, settings, {"dropout": 0.3})
