"""Opens a model by the name that a user gives: a checkpoint of ours, or a folder of another library's."""

from pathlib import Path

from ..decoding import Opened, Translator, open_checkpoint, with_tokenizer
from ..models import EncoderDecoder
from .backend import Backend


def is_checkpoint(name: str) -> bool:
    """Whether a name is that of a checkpoint, and not of a folder or of a repository."""
    return Path(name).is_file() or name.endswith(".safetensors")


def open_model(name: str, backend: Backend) -> Opened:
    """The model in a checkpoint, or in a folder that `save_pretrained` of `transformers` wrote, or of that name.

    Raises FileNotFoundError, CheckpointError, ValueError for a folder without a model, and PretrainedError for one
    that can't be used.
    """
    if is_checkpoint(name):
        return open_checkpoint(name, backend.ops, backend.dtype)
    path = Path(name)
    if path.is_dir() and not (path / "config.json").exists():
        raise ValueError(f"{name} is a folder without a model: name a checkpoint, or a folder with a config.json")
    from ..pretrained import load

    return Opened(*load(name, backend.ops, backend.dtype))


def open_translator(name: str, backend: Backend, threads: int | None) -> Translator:
    """The translator of a checkpoint, or of a folder with a Marian or a T5: processes share its sentences.

    Raises ValueError for other models too.
    """
    model, tokenizer, languages = with_tokenizer(name, open_model(name, backend))
    if not isinstance(model, EncoderDecoder):
        raise ValueError(f"{name} holds a model of kind {model.config.kind!r}, which does not translate")
    try:
        return Translator(model, tokenizer, languages, threads, forks=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
