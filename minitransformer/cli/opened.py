"""Opens a model by the name that a user gives: a checkpoint of ours, or a folder of another library's."""

from pathlib import Path
from typing import Any, NamedTuple

from ..data import BPETokenizer
from ..models import Model
from ..training.checkpoint import load_checkpoint
from .backend import Backend


class Opened(NamedTuple):
    """A model and its tokenizer, `None` if it has none."""

    model: Model[Any]
    tokenizer: Any


def open_model(name: str, backend: Backend) -> Opened:
    """The model in a checkpoint, or in a folder that `save_pretrained` of `transformers` wrote, or of that name.

    Raises FileNotFoundError, CheckpointError, or PretrainedError for a folder that can't be used.
    """
    path = Path(name)
    if path.is_file() or path.suffix == ".safetensors":
        checkpoint = load_checkpoint(path, with_optimizer=False)
        tokenizer = BPETokenizer.from_json(checkpoint.tokenizer) if checkpoint.tokenizer else None
        return Opened(checkpoint.model(backend.ops, backend.dtype), tokenizer)
    from ..pretrained import load

    return Opened(*load(name, backend.ops, backend.dtype))


def with_tokenizer(name: str, opened: Opened) -> Opened:
    """The same. Raises ValueError if there is no tokenizer."""
    if opened.tokenizer is None:
        raise ValueError(f"{name} holds no tokenizer: it can't read or write text")
    return opened
