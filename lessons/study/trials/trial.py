"""A trial: a training and the evaluations of its model, described so that the result depends on nothing else."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.preparation import CorpusChoice
from minitransformer.models import TranslationConfig, build_model
from minitransformer.ops import numpy_ops
from minitransformer.training import TrainingSettings

from .counting import counting

NOMINAL_BATCH = (32, 16, 16)
"""Sentences, and tokens of each in source and target: a batch to compare costs before any text is read."""


@dataclass(frozen=True)
class Evaluation:
    """How a trained model is evaluated.

    sentences  the number of sentences, from the beginning of the test set
    lengths    the least and most tokens, with the end mark, that both sides of a pair may have, or None for all pairs
    averaged   evaluate the mean of the last checkpoints instead of the last
    beam, length_penalty, max_extra  options of the search (Vaswani 2017, §6.1)
    """

    name: str = "evaluation"
    sentences: int = 1000
    lengths: tuple[int, int] | None = None
    averaged: bool = False
    beam: int = 4
    length_penalty: float = 0.6
    max_extra: int = 50


@dataclass(frozen=True)
class Trial:
    """One training and its evaluations; the model of the first evaluation is kept."""

    name: str
    text: CorpusChoice
    config: TranslationConfig
    settings: TrainingSettings
    evaluations: tuple[Evaluation, ...] = (Evaluation(),)

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        return {
            "text": asdict(self.text),
            "config": self.config.to_dict(),
            "settings": self.settings.to_dict(),
            "evaluations": [asdict(each) for each in self.evaluations],
        }

    @cached_property
    def weight(self) -> float:
        """The operations of the training, roughly: to sort trials, and to estimate how long the rest takes."""
        tokens = self.settings.steps * self.settings.accumulate * self.settings.tokens_per_batch
        return tokens / math.prod(NOMINAL_BATCH[:2]) * step_flops(self.config)


def key_of(name: str, description: Mapping[str, Any]) -> str:
    """A name for the files of a trial or text, different for each description."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
    return f"{name.lower().replace(' ', '-')}-{digest[:10]}"


@cache
def step_flops(config: TranslationConfig, batch: tuple[int, int, int] = NOMINAL_BATCH) -> float:
    """The operations of a training step on a batch (sentences, tokens of each source, of each target), unpadded."""
    sentences, *lengths = batch
    ops, tally = counting(numpy_ops)
    source, target = (np.full((sentences, length), config.vocab_size - 1) for length in lengths)
    build_model(config, ops).loss(source, target, target, with_grad=False)
    return tally.training


@dataclass(frozen=True)
class Answers:
    """The outputs of a model for each sentence, and their statistics.

    statistics  those of BLEU or of brackets, `(N, k)` (see `study.trials.bootstrap`)
    likelihood  minus the reference's log-probability in nats, and its number of tokens, `(N, 2)`
    """

    statistics: NDArray[np.float64]
    likelihood: NDArray[np.float64]
    hypotheses: list[str]
    references: list[str]
    seconds: float


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    pairs     the number of training pairs; `epochs` is how often each was seen
    flops     operations of the matrix products of all steps, forward and backward, counted on some of the batches
    curve     step, validation perplexity and seconds at each validation
    diverged  why the training ended early, without evaluations, or None
    """

    parameters: int
    steps: int
    tokens: int
    seconds: float
    pairs: int
    epochs: float
    flops: float
    curve: list[dict[str, float]]
    diverged: str | None = None
    evaluations: dict[str, Answers] = field(default_factory=dict)

    @property
    def total_seconds(self) -> float:
        """The seconds of the training and the evaluations together."""
        return self.seconds + sum(answers.seconds for answers in self.evaluations.values())

    def answers(self, evaluation: str | None = None) -> Answers:
        """The answers of one evaluation, by default the first. Raises `ValueError` if the training diverged."""
        if not self.evaluations:
            raise ValueError(f"there was no model to evaluate: {self.diverged}")
        return self.evaluations[evaluation or next(iter(self.evaluations))]

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        values = asdict(self)
        for answers in values["evaluations"].values():
            answers |= {name: answers[name].tolist() for name in ("statistics", "likelihood")}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrialResult":
        """The result that `to_dict` wrote."""
        evaluations = {
            name: Answers(**answers | {key: np.array(answers[key]) for key in ("statistics", "likelihood")})
            for name, answers in values["evaluations"].items()
        }
        return cls(**{**values, "evaluations": evaluations})
