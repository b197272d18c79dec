"""The argument that names a model, and what it names: a checkpoint of ours, or a folder of another library's."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from ..decoding import Opened, Translator, open_checkpoint, with_tokenizer
from ..models import EncoderDecoder
from ..training.checkpoint import description_of
from .backend import Backend
from .common import add_option, path_name

LARGEST = 1e12
"""No trained model has parameters as large. A norm of what they make divides by infinity, and its zeros would be taken
for what the model says."""


def add_checkpoint_argument(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Add the argument for the checkpoint."""
    add_option(parser, "checkpoint", "CHECKPOINT", path_name, "a file that `train` or `demo` saved", **more)


@contextmanager
def about(name: str) -> Iterator[None]:
    """Say of a ValueError which model it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def is_checkpoint(name: str) -> bool:
    """Return True for the name of a checkpoint, and False for that of a folder, a GGUF file or a repository.

    Raises ValueError for a file of another library's, which says what to name instead.
    """
    path = Path(name)
    if path.is_file() and not description_of(path):
        from ..pretrained.gguf_file import is_gguf

        if is_gguf(path):
            return False
        if (path.parent / "config.json").is_file():
            raise ValueError(f"{name} is a part of another library's folder: name the folder, {path.parent}")
    return name.endswith(".safetensors") or (path.exists() and not path.is_dir())


def add_bits_option(group: argparse._ActionsContainer) -> None:
    """Declare `--bits`, with which `open_model` makes a model smaller."""
    help_text = "hold the model's matrices in 8 or 4 bits: less than a third of the memory, and slower"
    add_option(group, "--bits", "N", _bits, help_text)


def _bits(text: str) -> int:
    if text not in ("8", "4"):
        raise argparse.ArgumentTypeError(f"expected 8 or 4, got {shortened(text)}")
    return int(text)


def open_model(name: str, backend: Backend, bits: int | None = None) -> Opened:
    """Return the model in a checkpoint, in a GGUF file, in a folder of `save_pretrained`, or of that name on the hub.

    With `bits`, 8 or 4, its matrices are in so many.
    Raises FileNotFoundError, CheckpointError, ValueError for a folder without a model, and PretrainedError for one
    that can't be used.
    """
    if is_checkpoint(name):
        opened = open_checkpoint(name, backend.ops, backend.dtype)
        if bits is not None and opened.model.bits != bits:
            model = opened.model if opened.model.bits is None else opened.model.merged()
            opened = opened._replace(model=model.quantized(bits))
    else:
        from ..pretrained import load

        check_folder(name)
        opened = Opened(*load(name, backend.ops, backend.dtype, bits))
    weights = opened.model.parameters.data
    largest = max(float(weights.max()), -float(weights.min()))
    if largest > LARGEST:  # NaN is noticed where it comes out
        raise ValueError(f"{name}: the model's parameters are far too large: one is {largest:.3g}")
    return opened


def check_folder(name: str) -> None:
    """Raise ValueError for a folder without a model, such as one with adapters alone."""
    from ..pretrained.adapters import CONFIG as ADAPTERS
    from ..pretrained.files import read_json

    if not Path(name).is_dir() or (Path(name) / "config.json").exists():
        return
    if (Path(name) / ADAPTERS).is_file():
        base = read_json(Path(name) / ADAPTERS).get("base_model_name_or_path")
        raise ValueError(
            f"{name} holds adapters of {shortened(base)}, not a whole model: name the checkpoint of the training that "
            "made them, or merge them into that model with PEFT"
        )
    raise ValueError(f"{name} is a folder without a model: name a checkpoint, or a folder with a config.json")


def open_translator(name: str, backend: Backend, threads: int | None, bits: int | None = None) -> Translator:
    """Return the translator of a checkpoint, or of a folder with a Marian or a T5: processes share its sentences.

    Raises ValueError for other models too.
    """
    model, tokenizer, languages = with_tokenizer(name, open_model(name, backend, bits))
    if not isinstance(model, EncoderDecoder):
        raise ValueError(f"{name} holds a model of kind {model.config.kind!r}, which does not translate")
    with about(name):
        return Translator(model, tokenizer, languages, threads, forks=True)
