"""Models opened for decoding, each with the tokenizer of its texts."""

from pathlib import Path
from typing import Any, NamedTuple, Self

from ..models import Model
from ..ops import Ops, numpy_ops
from ..training.checkpoint import Checkpoint, CheckpointError, load_checkpoint


class Opened(NamedTuple):
    """A model and its tokenizer, `None` if it has none; `languages`: source and target of a translator, if known."""

    model: Model[Any]
    tokenizer: Any
    languages: tuple[str, str] | None = None


def open_checkpoint(path: str | Path, ops: Ops = numpy_ops, dtype: str = "float32") -> Opened:
    """Open a checkpoint: its model and its tokenizer.

    Raises as `load_checkpoint` does, and `CheckpointError` for a tokenizer that is damaged.
    """
    checkpoint = load_checkpoint(path, with_optimizer=False)
    try:
        model = with_origin(checkpoint.model(ops, dtype), checkpoint)
        return Opened(model, tokenizer_of(checkpoint), checkpoint.languages)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def tokenizer_of(checkpoint: Checkpoint) -> Any:
    """Return a checkpoint's tokenizer, ours or another library's, or None. Raises ValueError for a damaged one."""
    from ..pretrained import tokenizer_from_json

    return tokenizer_from_json(checkpoint.tokenizer) if checkpoint.tokenizer else None


def with_origin(model: Any, checkpoint: Checkpoint) -> Any:
    """Return the model, which gets what the folder held that it came from, if it is a published one's."""
    from ..pretrained import Origin

    if (origin := checkpoint.state.get("origin")) is not None:
        model.origin = Origin.from_json(model.config, origin)
    return model


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
