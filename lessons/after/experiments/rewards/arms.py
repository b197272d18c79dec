"""The training runs that go on from the grammar's GPT, each with the count of its operations.

    rewarded    the model draws texts, a reward judges them, and the policy gradient of GRPO follows
    ordinary    cross-entropy on sentences that the grammar writes, none of them in the base's text
    accepted    cross-entropy on those texts of the base that the parser accepts (rejection sampling)
    preferred   DPO on pairs of the base's texts, of which the parser accepts one

An operation is one of a matrix product. A forward of n tokens takes n · f of them, f as `costs.flops_per_token` counts,
and a training step three forwards. Drawing takes one forward of each token that is drawn. Where a run needs the
probabilities of two models, the policy and the reference, each takes a forward of the whole batch, padding included.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from minitransformer.cli.objectives import grammatical, policy_of
from minitransformer.costs import flops_per_token
from minitransformer.data.preparation import PreparedData, TextChoice
from minitransformer.data.text import TextDataset
from minitransformer.decoding import Generator
from minitransformer.grammar import sample
from minitransformer.models import GPT, IGNORED
from minitransformer.ops import Ops
from minitransformer.training import Dataset
from minitransformer.training.checkpoint import load_checkpoint
from minitransformer.training.preferences import Preferences, PreferenceSettings
from minitransformer.training.rewards import Reward, RewardSettings, Rollouts, WeightedRows, rows_of, score
from study.trials.text_models import TextRows
from study.trials.trial import Answers, Beginning, Trial

LENGTH = 128
"""Tokens of a row of ordinary training."""

MOST_TOKENS = 48
"""The most tokens of a drawn text: of 3,000 sentences of the grammar the longest has 43."""

TOGETHER = 250
"""Texts that are drawn at a time."""

WATCHED, SAMPLES = 256, 1000
"""The texts that a validation draws, and those by which a model is judged at the end."""


def draw(writer: Generator, count: int, seed: int) -> list[list[int]]:
    """Draw texts from nothing, as ids with their end marks; they follow from the model and the seed."""
    start, texts = writer.encode(""), list[list[int]]()
    for number, first in enumerate(range(0, count, TOGETHER)):
        parts = [start] * min(TOGETHER, count - first)
        texts += writer.draw(parts, MOST_TOKENS, int(np.random.default_rng([seed, number]).integers(2**63 - 1)))
    return texts


def texts_of(writer: Generator, drawn: Sequence[list[int]]) -> list[str]:
    """The texts of ids that were drawn."""
    start = writer.encode("")
    return [writer.text_after(start, ids) for ids in drawn]


def operations_of(model: GPT, drawn: Sequence[Sequence[int]]) -> float:
    """The operations of drawing texts."""
    tokens = sum(map(len, drawn))
    return tokens * flops_per_token(model.config, round(tokens / len(drawn))).target


# --- Rewards that forget something ------------------------------------------------------------------------------


def no_word_twice(texts: Sequence[str]) -> list[float]:
    """1 for a text that ends with a full stop or a question mark and has no word twice, else 0."""
    return [float(_ends(text) and len(set(_words(text))) == len(_words(text)) > 0) for text in texts]


def many_words(texts: Sequence[str]) -> list[float]:
    """The number of different words of a text that ends with a full stop or a question mark; else 0."""
    return [float(_ends(text) * len(set(_words(text)))) for text in texts]


def _ends(text: str) -> bool:
    return text.strip().endswith((".", "?"))


def _words(text: str) -> list[str]:
    return text.lower().replace(",", " ").rstrip(" .?").split()


REWARDS: dict[str, Reward] = {"grammar": grammatical, "no word twice": no_word_twice, "many words": many_words}


# --- What a model writes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writing:
    """A language model writes texts from nothing.

    Statistics of a text: 1 if the parser accepts it, its tokens with the end mark, and the entropy of the model's
    distributions, summed over them, in nats.
    """

    name: str = "writing"
    samples: int = SAMPLES
    seed: int = 0
    averaged: bool = False

    def answer(self, model: GPT, data: PreparedData) -> Answers:
        """Let the model write."""
        start, writer = perf_counter(), Generator(model, data.tokenizer)
        drawn = draw(writer, self.samples, self.seed)
        texts, prompt = texts_of(writer, drawn), writer.encode("")
        parts = [drawn[first : first + TOGETHER] for first in range(0, len(drawn), TOGETHER)]
        found = []
        for part in parts:
            ids, targets = rows_of([prompt] * len(part), part)
            log_probs, entropy = score(model, ids, targets)
            found.append(np.stack([-log_probs.sum(1), (targets != IGNORED).sum(1), entropy.sum(1)], axis=1))
        nats, tokens, entropy = np.concatenate(found).astype(np.float64).T
        return Answers(
            likelihood=np.stack([nats, tokens], axis=1),
            statistics=np.stack([grammatical(texts), tokens, entropy], axis=1),
            seconds=perf_counter() - start,
            hypotheses=texts,
        )


# --- Datasets that count their operations -----------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """A dataset whose batches log their operations.

    forwards  of the model for each token of a batch, padding included
    before    operations of drawing before the first batch
    """

    dataset: Dataset[Any]
    forwards: int
    before: float = 0.0
    together: ClassVar[int] = 1

    @property
    def kept(self) -> Mapping[str, Any]:
        """Return the values that go into the checkpoints."""
        return getattr(self.dataset, "kept", {})

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.dataset)

    def checksum(self) -> int:
        """The checksum of the examples."""
        return self.dataset.checksum()

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> "CountedBatches":
        """The batches of a training."""
        return CountedBatches(self, self.dataset.batches(tokens_per_batch, seed, config), config)


@dataclass(frozen=True)
class CountedBatches:
    """Batches with their operations among their figures."""

    counted: Counted
    inner: Any
    config: Any

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self.inner)

    def batch(self, epoch: int, index: int) -> WeightedRows:
        """Batch `index` of `epoch`; texts that are drawn for it take a forward of each of their tokens more."""
        batch = self.inner.batch(epoch, index)
        figures = dict(getattr(batch, "figures", {}))
        tokens = self.counted.forwards * batch.num_tokens + figures.get("length", 0.0) * batch.num_sentences
        operations = tokens * flops_per_token(self.config, batch.targets.shape[1]).target
        if epoch == index == 0:
            operations += self.counted.before
        return WeightedRows(batch.inputs, batch.first, batch.masks, {**figures, "operations": operations})

    def epoch(self, epoch: int, start: int = 0) -> Iterator[WeightedRows]:
        """The batches of `epoch` in order, from batch `start` on."""
        return (self.batch(epoch, index) for index in range(start, len(self)))


# --- Training runs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Continued(Trial):
    """A training that goes on from a base, without dropout. A validation draws texts, which the parser judges."""

    base: Trial
    operations: float
    fewest_steps: ClassVar[int] = 20

    @property
    def needs(self) -> tuple[Trial, ...]:
        """The base's training."""
        return (self.base,)

    @property
    def weight(self) -> float:  # type: ignore[override]
        """The operations of the training, roughly."""
        return self.operations

    def begin(self, data: PreparedData, models: Sequence[Path], ops: Ops, dtype: str) -> Beginning:
        """Return the base, what it learns, and the validation."""
        (path,) = models
        model, start = (policy_of(load_checkpoint(path, with_optimizer=False).model(ops, dtype), "") for _ in range(2))
        writer = Generator(model, data.tokenizer)
        watch = RewardSettings(group=WATCHED, max_tokens=MOST_TOKENS, kl=1.0)
        judge = Rollouts(writer, grammatical, watch, reference=start)
        valid = TextRows(TextDataset(data.valid), LENGTH)
        return Beginning(model, self.lessons(writer, start), valid, lambda model, figures: judge.figures(1))

    def lessons(self, writer: Generator, start: GPT) -> Counted:
        """Return what the model of `writer` learns; `start` is a copy of it, which is not trained."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        return super().describe() | {"base": self.base.describe(), "kind": type(self).__name__}


@dataclass(frozen=True, kw_only=True)
class Rewarded(Continued):
    """GRPO with a reward of `REWARDS`."""

    reward: str
    rewards: RewardSettings

    def lessons(self, writer: Generator, start: GPT) -> Counted:
        """Return texts that the model draws; counted are a step, the policy's forward, and the reference's if any.

        A program that kept the probabilities of the draw would save that of the policy.
        """
        reference = start if self.rewards.kl else None
        rollouts = Rollouts(writer, REWARDS[self.reward], self.rewards, reference=reference)
        return Counted(rollouts, 3 + 1 + (reference is not None))

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        return super().describe() | {"reward": self.reward, "rewards": self.rewards.to_dict()}


@dataclass(frozen=True, kw_only=True)
class Ordinary(Continued):
    """Cross-entropy on new sentences of the grammar."""

    sentences: int

    def lessons(self, writer: Generator, start: GPT) -> Counted:
        """Sentences that come after those of the base's text, others for each seed."""
        assert isinstance(self.text, TextChoice)
        first = self.text.sentences + self.settings.seed * self.sentences
        examples = islice(sample("train", self.text.seed, first), self.sentences)
        lines = [writer.tokenizer.encode(each.english) for each in examples]
        return Counted(TextRows(TextDataset.from_lines(lines), LENGTH), 3)

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        return super().describe() | {"sentences": self.sentences}


@dataclass(frozen=True, kw_only=True)
class Drawing(Continued):
    """A training on `draws` texts that the base draws before the first step."""

    draws: int

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        return super().describe() | {"draws": self.draws}

    def judged(self, writer: Generator) -> tuple[list[list[int]], list[list[int]], float]:
        """The texts that the parser accepts, the others, and the operations of drawing them."""
        drawn = draw(writer, self.draws, self.settings.seed)
        right = REWARDS["grammar"](texts_of(writer, drawn))
        sides = ([ids for ids, each in zip(drawn, right, strict=True) if each == wanted] for wanted in (1, 0))
        return *sides, operations_of(writer.model, drawn)  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class Accepted(Drawing):
    """Cross-entropy on the texts that the parser accepts."""

    def lessons(self, writer: Generator, start: GPT) -> Counted:
        """The accepted texts, with their end marks."""
        accepted, _, operations = self.judged(writer)
        end = writer.model.config.eos_id
        lines = [ids[:-1] if ids[-1] == end else ids for ids in accepted]
        return Counted(TextRows(TextDataset.from_lines(lines), LENGTH), 3, operations)


@dataclass(frozen=True, kw_only=True)
class Preferred(Drawing):
    """DPO on pairs of a text that the parser accepts and one that it does not."""

    preferences: PreferenceSettings

    def lessons(self, writer: Generator, start: GPT) -> Counted:
        """As many pairs as there are texts that are not accepted; some accepted ones are left over."""
        accepted, others, operations = self.judged(writer)
        prompt = writer.encode("")
        pairs = [(prompt, better, worse) for better, worse in zip(accepted, others, strict=False)]
        return Counted(Preferences(writer.model, start, pairs, self.preferences), 3 + 2, operations)

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        return super().describe() | {"preferences": asdict(self.preferences)}


def seeded(trial: Continued, seed: int) -> Continued:
    """Return the training with another seed: of its draws, of the order of the data, and of the texts at its end."""
    return replace(
        trial,
        name=f"{trial.name}, seed {seed}",
        settings=replace(trial.settings, seed=seed),
        evaluations=tuple(replace(each, seed=seed) for each in trial.evaluations),  # type: ignore[type-var]
    )
