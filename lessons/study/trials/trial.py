"""A trial: a training and the evaluations of its model, described so that the result depends on nothing else."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.preparation import CorpusChoice, PreparedData
from minitransformer.models import Model, TranslationConfig, build_model
from minitransformer.ops import Ops, numpy_ops
from minitransformer.training import Dataset, TrainingSettings

from .counting import counting

NOMINAL_BATCH = (32, 16, 16)
"""Sentences, and tokens of each in source and target: a batch to compare costs before any text is read."""


class Evaluation(Protocol):
    """An evaluation of a trained model, as a frozen dataclass; `averaged`: of the mean of the last checkpoints."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str: ...

    @property
    def averaged(self) -> bool: ...

    def answer(self, model: Any, data: PreparedData) -> "Answers":
        """Evaluate the model on the test set."""
        ...


@dataclass(frozen=True)
class Beginning:
    """The beginning of a training: the model, its data, and `figures`, more of them in a validation (see `Trainer`)."""

    model: Model[Any]
    train: Dataset[Any]
    valid: Dataset[Any]
    figures: Callable[[Any, Mapping[str, float]], Mapping[str, float]] | None = None


@dataclass(frozen=True)
class Trial:
    """One training and its evaluations; the model of the first evaluation is kept. This one trains a translator."""

    name: str
    text: CorpusChoice
    config: Any
    settings: TrainingSettings
    evaluations: tuple[Evaluation, ...]

    fewest_steps: ClassVar[int] = 50
    """The fewest steps between two validations."""

    @property
    def needs(self) -> tuple["Trial", ...]:
        """The trials that must be done before, because this one uses their models."""
        return ()

    def model(self, ops: Ops, dtype: str) -> Model[Any]:
        """The model to train."""
        return build_model(self.config, ops, dtype, self.settings.seed)

    def material(self, data: PreparedData, models: Sequence[Path]) -> tuple[Dataset[Any], Dataset[Any]]:
        """Return the data to train and to validate on; `models` are the checkpoints of the trials it needs."""
        return data.train, data.valid

    def begin(self, data: PreparedData, models: Sequence[Path], ops: Ops, dtype: str) -> Beginning:
        """Return what the training begins with; `models` are the checkpoints of the trials it needs."""
        return Beginning(self.model(ops, dtype), *self.material(data, models))

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
        return self.tokens / math.prod(NOMINAL_BATCH[:2]) * step_flops(self.config)

    @property
    def tokens(self) -> int:
        """The tokens of a side of all batches, padding included, at most."""
        return self.settings.steps * self.settings.accumulate * self.settings.tokens_per_batch


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
    """The results of an evaluation for each sentence or row of the test set.

    likelihood  minus the log-probability of its tokens in nats, and their number, `(N, 2)`
    statistics  of BLEU or of brackets, `(N, k)` (see `study.trials.bootstrap`); k is 0 for a model that writes nothing
    hypotheses, references  what the model wrote, and what was wanted
    """

    likelihood: NDArray[np.float64]
    statistics: NDArray[np.float64]
    seconds: float
    hypotheses: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    pairs     the number of training pairs, or of lines; `epochs` is how often each was seen
    flops     operations of the matrix products of all steps, forward and backward, counted on some of the batches; or
              those that the batches themselves log
    curve     step, loss, validation perplexity and seconds at each validation; of batches that log their operations all
              figures, with the operations so far
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
