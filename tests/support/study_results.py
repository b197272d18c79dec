"""Made-up results of trials, for experiments that are to be gathered and reported without training anything."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from minitransformer.data.preparation import CorpusChoice
from study.trials.bootstrap import bleu_statistics, bracket_statistics
from study.trials.trial import Answers, Trial, TrialResult

SENTENCES = 40
REFERENCE = "a b c d e f g h"
TREE = "(S (NP XX XX )NP (VP XX )VP )S"


def made_up(trial: Trial, quality: float = 0.5, diverged: str | None = None, mute: bool = False) -> TrialResult:
    """A result in which about that part of the sentences is right, the others not at all; the same every time.

    mute: the same is said of every sentence.
    """
    rng = np.random.default_rng(0)
    evaluations = {}
    for evaluation in trial.evaluations:
        right = rng.random(SENTENCES) < quality
        reference, wrong = (TREE, "(S XX") if trial.text.target == "tree" else (REFERENCE, "x y z u v w")
        references, wrongs = ([text] * SENTENCES for text in (reference, wrong))
        if trial.text.target != "tree":
            references, wrongs = ([f"{text} {n}" for n, text in enumerate(texts)] for texts in (references, wrongs))
        hypotheses = [ours if each else theirs for each, ours, theirs in zip(right, references, wrongs, strict=True)]
        if mute:
            hypotheses = ["the same of everything"] * SENTENCES
        statistics = bracket_statistics if trial.text.target == "tree" else bleu_statistics
        nats = 8 * (1.5 - quality) * np.ones(SENTENCES)
        evaluations[evaluation.name] = Answers(
            statistics=statistics(hypotheses, references),
            likelihood=np.stack([nats, np.full(SENTENCES, 8.0)], axis=1),
            hypotheses=hypotheses,
            references=references,
            seconds=1.0,
        )
    steps = trial.settings.steps
    return TrialResult(
        parameters=1000,
        steps=steps,
        tokens=100 * steps,
        seconds=10.0,
        pairs=5000,
        epochs=steps / 50,
        flops=1e9 * steps,
        curve=[{"step": s, "loss": 2.0, "perplexity": 3.0, "seconds": 1.0 * s} for s in (1, steps // 2, steps)],
        diverged=diverged,
        evaluations={} if diverged else evaluations,
    )


@dataclass
class MadeUpRunner:
    """Gives a made-up result for any trial: of that quality where its name is known, else of 0.5."""

    qualities: dict[str, float] = field(default_factory=dict)
    diverged: dict[str, str] = field(default_factory=dict)
    mute: frozenset[str] = frozenset()

    def result(self, trial: Trial) -> TrialResult:
        """As `Runner.result`."""
        name = trial.name
        return made_up(trial, self.qualities.get(name, 0.5), self.diverged.get(name), name in self.mute)


def made_up_reading(trial: Trial, loss: float, diverged: str | None = None) -> TrialResult:
    """A result of a model that reads, with about this loss of a token in every reading; the same every time."""
    rows = loss + 0.05 * np.random.default_rng(0).standard_normal(SENTENCES)
    likelihood = np.stack([50 * rows, np.full(SENTENCES, 50.0)], axis=1)
    evaluations = {each.name: Answers(likelihood, np.empty((SENTENCES, 0)), 1.0) for each in trial.evaluations}
    return replace(
        made_up(replace(trial, evaluations=()), diverged=diverged), evaluations={} if diverged else evaluations
    )


@dataclass
class MadeUpReader:
    """Gives a made-up result for any trial of a model that reads: with that loss where its name is known, else 1.5."""

    losses: dict[str, float] = field(default_factory=dict)
    diverged: dict[str, str] = field(default_factory=dict)

    def result(self, trial: Trial) -> TrialResult:
        """As `Runner.result`."""
        return made_up_reading(trial, self.losses.get(trial.name, 1.5), self.diverged.get(trial.name))

    def model_path(self, trial: Trial) -> Path:
        """As `Runner.model_path`; there is no such file."""
        return Path(trial.name)

    def data(self, text: CorpusChoice) -> None:
        """No data: what needs some is left out of such tests."""
