"""The training runs: GPTs that read the library's functions, and go on with `ast.parse` as their judge.

Of each seed there is a base, and from it two runs of GRPO: with a weight of the divergence from the base, and without.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from platform import python_version
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from minitransformer.cli.objectives import policy_of
from minitransformer.cli.recipes import RECIPES
from minitransformer.data.preparation import PreparedData, Split, TextChoice
from minitransformer.data.sentence_pairs import Corpus, SentencePair
from minitransformer.data.text import TextDataset
from minitransformer.data.token_dataset import TokenDataset
from minitransformer.decoding import Generator
from minitransformer.decoding.sampling import Sampling
from minitransformer.models import GPT, GPTConfig
from minitransformer.ops import Ops
from minitransformer.training import TrainingSettings
from minitransformer.training.checkpoint import load_checkpoint
from minitransformer.training.rewards import RewardSettings, Rollouts, rows_of, score
from study.trials.run import lasting
from study.trials.text_models import TextRows, TextTrial
from study.trials.trial import Answers, Beginning, Trial

from ..rewards.arms import Counted
from .library import compiles, functions, parses, text_of

NAME, BASE = "code", "base"

VOCAB_SIZE, LENGTH = 2000, 256
"""Tokens of the vocabulary, and of a row of the base's training."""

MOST_TOKENS = 160
"""The most tokens of a text that is written: of the functions that validate the longest has 147."""

SEEDS = (0, 1, 2)

STEPS, REWARDED_STEPS = 2400, 80
"""The steps of each base, and of each run on rewards, at scale 1."""

KLS = (0.5, 0.0)
"""The weights of the divergence from the base."""

TEXTS, PEAK = 64, 5e-4
"""Texts of a step on rewards, all of one group, and the peak of its learning rate."""

SAMPLES, TOGETHER = 1000, 250
"""Texts by which a model is judged, and those that are drawn at a time."""

TEMPERATURES = (1.0, 0.7)


@dataclass(frozen=True, kw_only=True)
class LibraryText(TextChoice):
    """The functions of the standard library of the Python that runs this; `dataset` names its version."""

    def corpus(self) -> None:
        """None: the functions are read where Python keeps them."""

    def pairs(self, split: Split, corpus: Corpus | None = None) -> Iterator[SentencePair]:
        """The lines of a split, each with an empty translation; the test set is that for validation."""
        return (SentencePair(line, "") for line, trains in functions() if trains == (split == "train"))


def text_choice() -> LibraryText:
    """The text of all training runs."""
    return LibraryText(dataset=f"python-{python_version()}", vocab_size=VOCAB_SIZE, max_length=LENGTH)


def lines_of(data: PreparedData, lines: TokenDataset) -> list[str]:
    """The lines of a dataset."""
    return [data.tokenizer.decode(ids) for ids, _ in lines]


# --- Evaluations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writing:
    """A model writes from nothing. Statistics of a text: `FIGURES`, of which all but the length are 1 or 0."""

    name: str
    temperature: float
    seed: int
    samples: int = SAMPLES
    averaged: bool = False

    FIGURES: ClassVar = ("parses", "compiles", "copied", "short", "length")

    def answer(self, model: GPT, data: PreparedData) -> Answers:
        """Let the model write."""
        start, writer, lines = perf_counter(), Generator(model, data.tokenizer), list[str]()
        for first in range(0, self.samples, TOGETHER):
            prompts = [""] * min(TOGETHER, self.samples - first)
            sampling = Sampling(temperature=self.temperature, seed=self.samples * self.seed + first)
            lines += writer.generate(prompts, MOST_TOKENS, sampling)
        figures = self.judged(lines, set(lines_of(data, data.train)))
        return Answers(np.empty((0, 2)), figures, perf_counter() - start, lines)

    @staticmethod
    def judged(lines: Sequence[str], known: Set[str]) -> np.ndarray:
        """The figures of lines, `(N, 5)`: `copied` if the line is known, `short` if at most one line break is in it."""
        copied, short = [line in known for line in lines], [line.count("¶") <= 1 for line in lines]
        lengths = [len(text_of(line)) for line in lines]
        return np.array([parses(lines), compiles(lines), copied, short, lengths], np.float64).T


@dataclass(frozen=True)
class Reading:
    """A model reads each function that validates, from nothing. The statistics are bits, and bytes with a line's end.

    The bytes are those of the function itself, not of its line.
    """

    name: str = "reading"
    averaged: bool = False

    def answer(self, model: GPT, data: PreparedData) -> Answers:
        """Read."""
        start, first = perf_counter(), Generator(model, data.tokenizer).encode("")
        likelihood = []
        for ids, _ in data.valid:
            inputs, targets = rows_of([first], [ids.tolist()])
            likelihood.append([-score(model, inputs, targets)[0].sum(), len(ids)])
        nats = np.array(likelihood)[:, 0]
        sizes = [len(text_of(line).encode()) + 1 for line in lines_of(data, data.valid)]
        return Answers(np.array(likelihood), np.stack([nats / log(2), sizes], axis=1), perf_counter() - start)


# --- Training runs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Judged(TextTrial):
    """GRPO from a base, with `ast.parse` as the judge. A validation draws as many texts as a step."""

    base: Trial
    rewards: RewardSettings
    fewest_steps: ClassVar[int] = 10

    @property
    def needs(self) -> tuple[Trial, ...]:
        """The base's training."""
        return (self.base,)

    def begin(self, data: PreparedData, models: Sequence[Path], ops: Ops, dtype: str) -> Beginning:
        """Return the base, the texts that it draws, and the validation, which also tells the divergence."""
        (path,) = models
        model, start = (policy_of(load_checkpoint(path, with_optimizer=False).model(ops, dtype), "") for _ in range(2))
        writer, watched = Generator(model, data.tokenizer), replace(self.rewards, group=TEXTS, kl=1.0)
        learned, watch = (Rollouts(writer, parses, each, reference=start) for each in (self.rewards, watched))
        valid = TextRows(TextDataset(data.valid), LENGTH)
        return Beginning(model, Counted(learned, 3 + 2), valid, lambda model, figures: watch.figures(1))

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        return super().describe() | {"base": self.base.describe(), "rewards": self.rewards.to_dict()}


def planned(scale: float) -> dict[str, list[TextTrial]]:
    """The bases, one of each seed, and the runs on rewards that go on from them, by the weight of the divergence."""
    bases = [base_trial(scale, seed) for seed in SEEDS]
    return {BASE: bases, **{f"{kl:g}": [rewarded_trial(scale, base, kl) for base in bases] for kl in KLS}}


def base_trial(scale: float, seed: int) -> TextTrial:
    """The training of a GPT on the library, by the recipe of `train --kind gpt` with other rows and positions."""
    recipe = RECIPES["gpt"]
    config = GPTConfig(VOCAB_SIZE, **{**recipe.model, "max_length": LENGTH, "positions": "rotary"})
    settings = lasting(TrainingSettings(**{**recipe.settings, "seed": seed, "threads": 1}), scale * STEPS)
    asked = (*(Writing(f"writing {each:g}", each, seed, SAMPLES, averaged=True) for each in TEMPERATURES),)
    return TextTrial(f"{NAME} {BASE}, seed {seed}", text_choice(), config, settings, (*asked, Reading(averaged=True)))


def rewarded_trial(scale: float, base: TextTrial, kl: float) -> Judged:
    """The run on rewards that goes on from a base, and is asked the same as it, with the same random numbers."""
    settings = TrainingSettings(
        tokens_per_batch=TEXTS * (1 + MOST_TOKENS),
        peak_lr=PEAK,
        warmup_steps=20,
        label_smoothing=0.0,
        clip_norm=1.0,
        seed=base.settings.seed,
        threads=1,
    )
    return Judged(
        f"{NAME} weight {kl:g}, seed {settings.seed}",
        base.text,
        replace(base.config, dropout=0.0),
        lasting(settings, scale * REWARDED_STEPS),
        tuple(replace(each, averaged=False) for each in base.evaluations),  # type: ignore[type-var]
        base=base,
        rewards=RewardSettings(max_tokens=MOST_TOKENS, kl=kl),
    )
