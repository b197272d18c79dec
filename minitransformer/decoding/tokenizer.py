"""What turns text into ids and back: our `BPETokenizer`, and those of `minitransformer.pretrained`."""

from collections.abc import Iterable
from typing import Protocol

from ..data import BPETokenizer
from ..models import TextConfig


class Tokenizer(Protocol):
    """A vocabulary of `vocab_size` tokens."""

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens."""
        ...

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each id as a text for people; a word begins with ▁ or another mark."""
        ...


def without_text(config: TextConfig, tokenizer: Tokenizer) -> list[int]:
    """The ids of a model that are neither of our tokenizer nor the end mark: BERT's [MASK], rows that fill up a table.

    Those of the package tokenizers decode such ids as nothing.
    """
    first = tokenizer.vocab_size if isinstance(tokenizer, BPETokenizer) else config.vocab_size
    return [id for id in range(first, config.vocab_size) if id != getattr(config, "eos_id", None)]


def check_vocabulary(config: TextConfig, tokenizer: Tokenizer, exactly: bool = False) -> None:
    """Raise ValueError if a model has fewer tokens than the tokenizer, or `exactly`, another number.

    A model's table may have rows for tokens that are not there yet.
    """
    if config.vocab_size < tokenizer.vocab_size or (exactly and config.vocab_size != tokenizer.vocab_size):
        raise ValueError(
            f"the model has {config.vocab_size} tokens and the tokenizer {tokenizer.vocab_size}: "
            "they don't belong together"
        )
