"""Models opened for decoding, each with the tokenizer of its texts."""

from pathlib import Path
from typing import Any, NamedTuple, Self

from ..models import Model
from ..ops import Ops, numpy_ops
from ..training.checkpoint import CheckpointError, load_checkpoint


class Opened(NamedTuple):
    """A model and its tokenizer, `None` if it has none; `languages`: source and target of a translator, if known."""

    model: Model[Any]
    tokenizer: Any
    languages: tuple[str, str] | None = None


def open_checkpoint(path: str | Path, ops: Ops = numpy_ops, dtype: str = "float32") -> Opened:
    """Open a checkpoint: its model and its tokenizer.

    Raises as `load_checkpoint` does, and `CheckpointError` for a tokenizer that is damaged.
    """
    from ..pretrained import Origin, tokenizer_from_json

    checkpoint = load_checkpoint(path, with_optimizer=False)
    try:
        tokenizer = tokenizer_from_json(checkpoint.tokenizer) if checkpoint.tokenizer else None
        model, origin = checkpoint.model(ops, dtype), checkpoint.state.get("origin")
        if origin is not None:
            model.origin = Origin.from_json(model.config, origin)
        return Opened(model, tokenizer, checkpoint.languages)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def with_tokenizer(path: str | Path, opened: Opened) -> Opened:
    """Return `opened`. Raises `CheckpointError` if it has no tokenizer."""
    if opened.tokenizer is None:
        raise CheckpointError(f"{path} holds no tokenizer: it can't read or write text")
    return opened


class FromCheckpoint:
    """The base of classes that are made of a model and its tokenizer, and so of a checkpoint that holds both."""

    def __init__(self, model: Any, tokenizer: Any) -> None: ...

    @classmethod
    def from_checkpoint(cls, path: str | Path, ops: Ops = numpy_ops, dtype: str = "float32") -> Self:
        """Make an instance of a checkpoint's model and tokenizer.

        Raises as `load_checkpoint` does, and `CheckpointError` for a checkpoint without a tokenizer or with a model of
        another kind.
        """
        model, tokenizer, _ = with_tokenizer(path, open_checkpoint(path, ops, dtype))
        try:
            return cls(model, tokenizer)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error
