"""The span filler: a T5 fills the gaps of a text with pieces of any length."""

import math
import re

import numpy as np

from ..data.batching import EOS_ID
from ..data.spans import SENTINELS
from ..models import EncoderDecoder, Model, T5Config, most_tokens
from .filler import Guess, encode_marks
from .loading import FromCheckpoint
from .search import beam_search
from .tokenizer import Tokenizer, check_vocabulary, encode_whole

GAP = re.compile("<extra_id_(0|[1-9][0-9]*)>")
WIDTH = 4
"""The least width of the search."""


class SpanFiller(FromCheckpoint):
    """Fills gaps of any length: `SpanFiller.from_checkpoint(path).fill("The <extra_id_0> barks.")`.

    Raises `ValueError` for a model that is no T5, or that has fewer tokens than the tokenizer.
    """

    def __init__(self, model: Model[T5Config], tokenizer: Tokenizer) -> None:
        if not isinstance(model, EncoderDecoder) or not isinstance(model.config, T5Config):
            raise ValueError(f"a model of kind {model.config.kind!r} can't fill gaps of any length: a T5 can")
        check_vocabulary(model.config, tokenizer)
        self.model, self.tokenizer = model, tokenizer

    def fill(self, text: str, count: int = 5) -> list[list[Guess]]:
        """Return each gap's text in the `count` most probable outputs that a beam search finds, the best first.

        The gaps are `<extra_id_0>`, `<extra_id_1>`, … in this order; a guess's probability is that of the whole output,
        with the other gaps. Raises `ValueError` for other gaps or none, and for a text that is too long.
        """
        numbers = [int(number) for number in GAP.findall(text)]
        if not numbers or numbers != list(range(len(numbers))):
            raise ValueError(f"the gaps of a text are <extra_id_0>, <extra_id_1>, … in this order, but it is {text!r}")
        marks = [self._mark(number) for number in numbers]
        ids = self._encode(text, marks)
        if len(ids) > most_tokens(self.model.config):
            raise ValueError(f"the text has {len(ids)} tokens, and the model reads {most_tokens(self.model.config)}")
        (found,) = beam_search(self.model, np.array([ids]), max(count, WIDTH), 0.0, n_best=count)
        return [[Guess(self._between(each.ids, mark), math.exp(each.log_prob)) for each in found] for mark in marks]

    def _mark(self, number: int) -> int:
        """Return the id of a gap's mark: the tokenizer's own, or with our tokenizer one of the vocabulary's last."""
        inner = getattr(self.tokenizer, "inner", None)
        if inner is None:
            here = self.model.config.vocab_size - self.tokenizer.vocab_size >= SENTINELS > number
            found = self.model.config.vocab_size - 1 - number if here else None
        else:
            found = inner.token_to_id(f"<extra_id_{number}>")
        if found is None:
            raise ValueError(f"the model knows no <extra_id_{number}>: it was not trained to fill so many gaps")
        return found

    def _encode(self, text: str, marks: list[int]) -> list[int]:
        """Return the ids of a text, its gaps' marks among them, with the end mark."""
        if hasattr(self.tokenizer, "inner"):  # a tokenizer of the package tokenizers knows its marks
            return encode_whole(self.model.config, self.tokenizer, text)
        gaps = {f"<extra_id_{number}>": mark for number, mark in enumerate(marks)}
        return [*encode_marks(self.tokenizer, text, gaps), EOS_ID]

    def _between(self, ids: list[int], mark: int) -> str:
        """Return the text after a mark, up to the next one; empty where the mark is missing."""
        if mark not in ids:
            return ""
        last = self._mark(0)  # the first mark has the largest id
        after = ids[ids.index(mark) + 1 :]
        ends = [place for place, token in enumerate(after) if last - SENTINELS < token <= last]
        return self.tokenizer.decode(after[: ends[0] if ends else None]).strip()
