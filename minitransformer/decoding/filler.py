"""The filler: it guesses the tokens that are masked in a text, with a BERT."""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..data.batching import BOS_ID, EOS_ID
from ..data.masked import MASK
from ..data.tokenizer import BPETokenizer
from ..models import BERT, BERTConfig, Model
from .generator import REPLACEMENT
from .loading import FromCheckpoint
from .sampling import softmax_of
from .tokenizer import Tokenizer, check_vocabulary, encode_whole, without_text


class Guess(NamedTuple):
    """The text of a token, or the name of a class, and its probability."""

    text: str
    probability: float


class Filler(FromCheckpoint):
    """Fills gaps: `Filler.from_checkpoint(path).fill("The [MASK] barks.")`.

    Raises `ValueError` for a model that is no BERT with a masked head, or that has fewer tokens than the tokenizer.
    """

    def __init__(self, model: Model[BERTConfig], tokenizer: Tokenizer) -> None:
        if not isinstance(model, BERT):
            raise ValueError(f"a model of kind {model.config.kind!r} can't fill gaps: a BERT or a T5 can")
        if model.config.head != "masked":
            heads = {"classes": "the head of a classifier", "tokens": "a classifier of tokens"}
            has = (heads | {"answer": "the head that answers questions"}).get(model.config.head, "no head")
            raise ValueError(f"the BERT has {has}, not the masked one that fills gaps (BertForMaskedLM)")
        check_vocabulary(model.config, tokenizer)
        self.model, self.tokenizer = model, tokenizer

    def fill(self, text: str, count: int = 5) -> list[list[Guess]]:
        """Return the `count` most probable tokens of each [MASK] in a text, the best first; each gap on its own.

        The tokenizer's own name of a gap, such as RoBERTa's <mask>, is one too. Raises `ValueError` for a text without
        a gap, and for one that is too long for the model.
        """
        ids, mask_id = self.encode(text)
        gaps = np.flatnonzero(ids == mask_id)
        if not len(gaps):
            mask = getattr(self.tokenizer, "mask_token", MASK)
            raise ValueError(f"there is no {mask} in the text {text!r}")
        logits, _ = self.model.forward(ids[None])
        probabilities = softmax_of(self.model.ops.to_numpy(logits)[0, gaps])  # (gaps, V)
        beyond = range(self.tokenizer.vocab_size, self.model.config.vocab_size)  # rows that fill up a table
        forbidden = sorted({*without_text(self.model.config, self.tokenizer), *beyond})
        known = probabilities.copy()
        known[:, forbidden] = -1.0
        best = np.argsort(-known, axis=1, kind="stable")[:, : min(count, known.shape[1] - len(forbidden))]
        return [
            [Guess(self._text(int(token)), float(row[token])) for token in tokens]
            for row, tokens in zip(probabilities, best, strict=True)
        ]

    def _text(self, token: int) -> str:
        """Return a token's text; for one without text (a space, a mark, a byte of a character), its readable name."""
        text = self.tokenizer.decode([token]).strip()
        return text if text and REPLACEMENT not in text else self.tokenizer.tokens([token])[0]

    def encode(self, text: str) -> tuple[np.ndarray, int]:
        """Return the ids of a text with the marks around it, `(T,)`, and the id that stands for a gap."""
        inner: Any = getattr(self.tokenizer, "inner", None)
        if inner is not None:  # a tokenizer of the package tokenizers knows its marks
            mask = getattr(self.tokenizer, "mask_token", MASK)
            mask_id = inner.token_to_id(mask)
            if mask_id is None:
                raise ValueError(f"the tokenizer has no {mask}")
            return np.array(
                encode_whole(self.model.config, self.tokenizer, text.replace(MASK, mask)), np.int64
            ), mask_id
        mask_id = self.model.config.mask_id
        if mask_id is None:
            raise ValueError("the model has no mask_id, the token that hides others")
        return np.array([BOS_ID, *encode_marks(self.tokenizer, text, {MASK: mask_id}), EOS_ID], np.int64), mask_id


def encode_marks(tokenizer: Tokenizer, text: str, marks: Mapping[str, int]) -> list[int]:
    """Encode a text whose marks the tokenizer does not know: each mark, with the space before it, becomes its id.

    The text is cut at its marks: a character put in their place could occur in the text too.
    """
    encode = tokenizer.encode_words if isinstance(tokenizer, BPETokenizer) else tokenizer.encode
    pieces = re.split(f" ?({'|'.join(map(re.escape, marks))})", " " + text)  # text, mark, text, mark, …, text
    encoded = ([marks[piece]] if place % 2 else encode(piece) for place, piece in enumerate(pieces))
    return list(chain.from_iterable(encoded))
