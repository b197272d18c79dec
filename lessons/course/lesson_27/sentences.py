"""Lesson 27: short sentences of the grammar, word by word, and a small GPT that writes them."""

import re
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.grammar import sample, translate
from minitransformer.models import GPT, IGNORED, GPTConfig

from ..training import train

END, LONGEST = 0, 9
"""The id of the mark around sentences, and the most words of a text, with the mark after it."""

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Sentences:
    """The grammar's sentences of at most seven words, from the 300 most frequent ones, and a GPT that reads them."""

    def __init__(self) -> None:
        texts = (re.findall(r"\w+|[^\w\s]", example.english) for example in islice(sample("train", 0), 12_000))
        short = [text for text in texts if len(text) <= LONGEST - 2]
        counts = Counter(word for text in short for word in text)
        self.words = ["</s>", *(word for word, _ in counts.most_common(300))]
        number = {word: id for id, word in enumerate(self.words)}
        self.known = [[number[word] for word in text] + [END] for text in short if all(word in number for word in text)]

    def model(self) -> GPT:
        """Return a GPT of one block, with the weights of the start."""
        config = GPTConfig(len(self.words), d_model=32, num_heads=4, d_ff=128, num_layers=1, max_length=LONGEST,
                           eos_id=END, dropout=0.0, attention_dropout=0.0)  # fmt: skip
        return GPT(config, seed=0)

    def read(self, model: GPT, steps: int) -> list[float]:
        """Train a model on the sentences, as in lesson 19; return the losses."""
        rng = np.random.default_rng(0)
        rows = np.full((len(self.known), LONGEST), IGNORED)
        for row, text in zip(rows, self.known, strict=True):
            row[: len(text)] = text
        ids = np.where(rows == IGNORED, END, rows)

        def batch() -> dict[str, Any]:
            chosen = rng.integers(len(rows), size=64)
            return {"ids": _after_the_mark(ids[chosen])[:, :-1], "targets": rows[chosen]}

        return train(model, batch, steps, peak_lr=6e-3, warmup=40)

    def write(self, model: GPT, count: int, rng: np.random.Generator) -> tuple[Ids, Flags]:
        """Draw texts word by word: ids `(B, T)`, and True up to each one's mark."""
        ids = _after_the_mark(np.zeros((count, 0), np.int64))
        counted = np.ones((count, 0), bool)
        for _ in range(LONGEST):
            goes_on = (counted & (ids[:, 1:] == END)).sum(axis=1) == 0
            logits = model.forward(ids)[0][:, -1].astype(np.float64)  # (B, V)
            drawn = (logits + rng.gumbel(size=logits.shape)).argmax(axis=-1)  # from the softmax (Gumbel 1954)
            ids = np.concatenate([ids, np.where(goes_on, drawn, END)[:, None]], axis=1)
            counted = np.concatenate([counted, goes_on[:, None]], axis=1)
        return ids[:, 1:], counted

    def text(self, ids: Ids) -> str:
        """Return a text's words, without its mark."""
        words = [self.words[id] for id in ids if id != END]
        return re.sub(r" (?=[.?!,])", "", " ".join(words))


def inputs(ids: Ids) -> Ids:
    """Return what the model reads when it writes `ids`: each word one place later, after the mark."""
    return _after_the_mark(ids)[:, :-1]


def _after_the_mark(ids: Ids) -> Ids:
    return np.concatenate([np.full((len(ids), 1), END), ids], axis=1)


def is_grammatical(text: str) -> bool:
    """Return True if the grammar can form a text: its parser has no derivative."""
    try:
        translate(text)
    except ValueError:
        return False
    return True
