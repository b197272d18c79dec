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
from minitransformer.models import ModelConfig, build_model
from minitransformer.ops import numpy_ops
from minitransformer.training import TrainingSettings

from .counting import counting

NOMINAL_BATCH = (32, 16, 16)
"""Sentences, and the tokens of each on either side, for costs that are compared before any text is read."""


@dataclass(frozen=True)
class Evaluation:
    """What a trained model is asked.

    sentences  how many of the test set, from its beginning
    lengths    only pairs of which both sides have so many tokens with their end mark, the bounds included, or None
    averaged   ask the mean of the last checkpoints instead of the last
    beam, length_penalty, max_extra  of the search (Vaswani 2017, §6.1)
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
    """One training and its evaluations; the first evaluation's model is kept."""

    name: str
    text: CorpusChoice
    config: ModelConfig
    settings: TrainingSettings
    evaluations: tuple[Evaluation, ...] = (Evaluation(),)

    def describe(self) -> dict[str, Any]:
        """All that the result depends on, as JSON holds it."""
        return {
            "text": asdict(self.text),
            "config": self.config.to_dict(),
            "settings": self.settings.to_dict(),
            "evaluations": [asdict(each) for each in self.evaluations],
        }

    @cached_property
    def weight(self) -> float:
        """About how much work it is, to order trials by and to tell how long the rest takes."""
        tokens = self.settings.steps * self.settings.accumulate * self.settings.tokens_per_batch
        return tokens / math.prod(NOMINAL_BATCH[:2]) * step_flops(self.config)


def key_of(name: str, description: Mapping[str, Any]) -> str:
    """A name for files that no other description shares."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
    return f"{name.lower().replace(' ', '-')}-{digest[:10]}"


@cache
def step_flops(config: ModelConfig, batch: tuple[int, int, int] = NOMINAL_BATCH) -> float:
    """Operations of a training step on so many sentences, so long on either side, without padding."""
    sentences, *lengths = batch
    ops, tally = counting(numpy_ops)
    source, target = (np.full((sentences, length), config.vocab_size - 1) for length in lengths)
    build_model(config, ops).loss(source, target, target, with_grad=False)
    return tally.training


@dataclass(frozen=True)
class Answers:
    """What a model answered, sentence by sentence.

    statistics  of BLEU or of brackets, `(N, k)` (see `paper.trials.bootstrap`)
    likelihood  minus the reference's log-probability in nats, and its tokens, `(N, 2)`
    """

    statistics: NDArray[np.float64]
    likelihood: NDArray[np.float64]
    hypotheses: list[str]
    references: list[str]
    seconds: float


@dataclass(frozen=True)
class TrialResult:
    """What a training came to.

    pairs     that it was trained on, and how many times over, `epochs`
    flops     of the matrix products of all its steps, forward and backward, counted on some of its batches
    curve     step, validation perplexity and seconds at each validation
    diverged  why the training ended early, or None; then there are no evaluations
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
        """The answers of one evaluation, the first unless named. Raises `ValueError` where the training diverged."""
        if not self.evaluations:
            raise ValueError(f"there was no model to evaluate: {self.diverged}")
        return self.evaluations[evaluation or next(iter(self.evaluations))]

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
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
