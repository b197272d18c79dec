"""The interface of tokenizers, ours and those of `minitransformer.pretrained`, and the marks around texts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..data import BPETokenizer
from ..data.batching import BOS_ID, EOS_ID
from ..models import TextConfig

Messages = Sequence[Mapping[str, Any]]
"""A conversation: each message has a role (system, user, assistant) and a content."""


class Tokenizer(Protocol):
    """Text to token ids and back: `BPETokenizer`, and the tokenizers of `minitransformer.pretrained`."""

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special tokens."""
        ...

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return each id as a text for people; a word begins with ▁ or another mark."""
        ...


def encode_prompt(config: Any, tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text to continue, after the mark that begins a text.

    A tokenizer of another library puts its own mark there. With ours the mark is the model's `bos_id`, or none if the
    same mark ends a text (GPT-2). A text that begins with the mark gets no second one. An empty text without a mark
    gets the model's `bos_id`, or else its `eos_id`. Raises `ValueError` as `check_ids` does.
    """
    if not hasattr(tokenizer, "around"):
        first, ids = [] if config.bos_id in (None, config.eos_id) else [config.bos_id], tokenizer.encode(text)
    else:
        first, ids, _ = tokenizer.around(text)
    if not ids and not first:
        first = [each for each in (config.bos_id, config.eos_id) if each is not None][:1]
    ids = ids if ids[: len(first)] == first else [*first, *ids]
    return check_ids(config, tokenizer, ids)


def encode_chat(config: Any, tokenizer: Any, messages: Messages) -> list[int]:
    """Return the ids of a conversation as the tokenizer's chat template writes it, up to where the model answers.

    Raises `ValueError` for a tokenizer without a template, and as the template and `check_ids` do.
    """
    if not hasattr(tokenizer, "apply_chat_template"):
        raise ValueError("a model that was trained here has no chat template: it continues texts, and does not chat")
    return check_ids(config, tokenizer, tokenizer.encode(tokenizer.apply_chat_template(messages)))


def encode_whole(config: Any, tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text that is read as a whole, with the marks around it: ours ends with the model's `eos_id`.

    Raises `ValueError` as `check_ids` does.
    """
    if not hasattr(tokenizer, "around"):
        return check_ids(config, tokenizer, [*tokenizer.encode(text), config.eos_id])
    return check_ids(config, tokenizer, [each for part in tokenizer.around(text) for each in part])


def encode_between_marks(config: Any, tokenizer: Any, text: str, longest: int | None = None) -> list[int]:
    """Return the ids of a text as a BERT reads it, between its marks, cut to `longest` ids in all.

    Ours has <s> before it and </s> after it. Raises `ValueError` as `check_ids` does.
    """
    around = getattr(tokenizer, "around", lambda text: ([BOS_ID], tokenizer.encode(text), [EOS_ID]))
    first, ids, last = around(text)
    most = len(ids) if longest is None else max(0, longest - len(first) - len(last))
    return check_ids(config, tokenizer, [*first, *ids[:most], *last])


def check_ids(config: TextConfig, tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Return `ids`. Raises `ValueError`, which names the token, for one that the model does not have."""
    for each in ids:
        if each >= config.vocab_size:
            token = tokenizer.tokens([each])[0]
            raise ValueError(f"the text has the token {token!r}, id {each}, but the model has {config.vocab_size} ids")
    return ids


def without_text(config: TextConfig, tokenizer: Tokenizer) -> list[int]:
    """Return the ids that our tokenizer lacks, without end marks: BERT's [MASK], rows that fill up a table.

    The tokenizers of the package tokenizers have none: they decode such ids as nothing.
    """
    first = tokenizer.vocab_size if isinstance(tokenizer, BPETokenizer) else config.vocab_size
    ends = {getattr(config, "eos_id", None), *getattr(config, "other_eos_ids", ())}
    return [id for id in range(first, config.vocab_size) if id not in ends]


def check_vocabulary(config: TextConfig, tokenizer: Tokenizer, exactly: bool = False) -> None:
    """Raise ValueError if a model has fewer tokens than our tokenizer or, with `exactly`, another number of them.

    A model's table may have rows for tokens that are not there yet. Other libraries' tokenizers are not checked here:
    some know tokens that their model lacks, which hardly any text has, and `check_ids` refuses a text that has one.
    """
    if hasattr(tokenizer, "around"):
        return
    if config.vocab_size < tokenizer.vocab_size or (exactly and config.vocab_size != tokenizer.vocab_size):
        raise ValueError(
            f"the model has {config.vocab_size} tokens and the tokenizer {tokenizer.vocab_size}: "
            "they don't belong together"
        )
