"""Trials of models of one text: language models (GPT), and masked language models (BERT)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from minitransformer.costs import flops_per_token
from minitransformer.data.masked import MaskedText
from minitransformer.data.preparation import PreparedData, TextChoice
from minitransformer.data.rows import Rows
from minitransformer.data.text import TextDataset
from minitransformer.models import BERT, BERTConfig, GPTConfig, Model
from minitransformer.training import Dataset
from minitransformer.training.data import TrainingBatches

from .likelihood import row_losses
from .trial import Answers, Trial

TOKENS_AT_ONCE = 2048


@dataclass(frozen=True)
class TextRows:
    """A text in rows of `length` tokens, for a model whose longest row may be longer."""

    text: TextDataset
    length: int

    def __len__(self) -> int:
        """The number of lines."""
        return len(self.text)

    def checksum(self) -> int:
        """The CRC-32 of all ids and lengths."""
        return self.text.checksum()

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> TrainingBatches[Rows]:
        """Its batches: see `TextDataset.batches`."""
        return self.text.batches(tokens_per_batch, seed, replace(config, max_length=self.length))


def text_dataset(config: GPTConfig | BERTConfig, text: TextDataset, length: int | None = None) -> Dataset[Rows]:
    """Return the data set of a text for a model: for a GPT rows and next tokens, for a BERT lines with masked tokens.

    length: tokens of a language model's rows, by default its longest; rows with hidden tokens are lines.
    """
    if isinstance(config, BERTConfig):
        return MaskedText(text)
    return TextRows(text, length or config.max_length)


@dataclass(frozen=True)
class TextTrial(Trial):
    """The training of a GPT, on rows of `length` tokens, by default its longest; or of a BERT, on lines."""

    length: int | None = None

    def material(self, data: PreparedData, models: Sequence[Path]) -> tuple[Dataset[Rows], Dataset[Rows]]:
        """The training and the validation text."""
        train, valid = (text_dataset(self.config, TextDataset(each), self.length) for each in (data.train, data.valid))
        return train, valid

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        return super().describe() | {"length": self.length}

    @cached_property
    def weight(self) -> float:
        """The operations of the training, roughly."""
        return self.tokens * flops_per_token(self.config, self.length or self.config.max_length).training


@dataclass(frozen=True)
class TextLoss:
    """The loss of a model on the test set; for a BERT, without the lines that are too long for it.

    sentences  the number of lines, from the beginning of the test set
    length     tokens of a language model's rows, which see nothing before them; by default its longest
    skip       tokens at the beginning of each row that do not count
    """

    name: str = "reading"
    sentences: int = 1000
    length: int | None = None
    skip: int = 0
    averaged: bool = False

    def answer(self, model: Model[Any], data: PreparedData) -> Answers:
        """Evaluate; a row of the likelihoods is a row of tokens. Rows without a counted target are dropped."""
        start = perf_counter()
        assert isinstance(data.choice, TextChoice)
        lines = map(data.tokenizer.encode, islice(data.choice.lines("test"), self.sentences))
        if isinstance(model, BERT):
            lines = (line for line in lines if len(line) + 2 <= model.config.max_length)  # with <s> and </s>
        text = TextDataset.from_lines(lines)
        batches = text_dataset(model.config, text, self.length).batches(
            max(TOKENS_AT_ONCE, self.length or 0), None, model.config
        )
        found = np.concatenate([row_losses(model, batch, self.skip) for batch in batches.epoch(0)])
        kept = found[found[:, 1] > 0]
        return Answers(kept, np.empty((len(kept), 0)), perf_counter() - start)
