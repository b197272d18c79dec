"""What a folder or a GGUF file holds and nothing here reads, or what is read and has no effect."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import gguf_model
from .files import CONFIG, GENERATION, INDEX, PICKLE_INDEX
from .keys import ABOUT, NOTHING, SUPPORTED, Keys
from .tokenizers import FILE, TOKENIZER_FILES, VOCABULARIES

LEGAL = ("README", "LICENSE", "NOTICE", ".git")
"""The beginnings of names of files that are about a model, and no part of it."""


def in_folder(
    folder: Path, values: Mapping[str, Any], generation: Mapping[str, Any], beside: Iterable[str],
    marks: Collection[str], keys: Keys, weights: Iterable[Path],
) -> dict[str, list[str]]:  # fmt: skip
    """Return the names of what is not used, by where it stands: files, keys of both configurations.

    values and generation: `config.json` and `generation_config.json`; beside: the paths of other files that are read;
    marks: the keys that are taken from the second; weights: the files in which the model's tensors are.
    """
    vocabularies = {name for names in VOCABULARIES.values() for name in names}
    tokenizer = {*TOKENIZER_FILES} - (vocabularies if (folder / FILE).is_file() else set())
    read = {CONFIG, GENERATION, INDEX, PICKLE_INDEX, *tokenizer, *(path.name for path in weights)}
    read |= {path.partition("/")[0] for path in beside}
    files = [each.name + "/" * each.is_dir() for each in folder.iterdir() if each.name not in read]
    used = {*keys.obeyed, *keys.aliases, *keys.supported, *SUPPORTED, *ABOUT, "tie_word_embeddings"}
    used |= {f"{name}_token_id" for name in ("pad", "bos", "eos")}  # which the tokenizer's methods know
    return {
        "files": sorted(name for name in files if not name.startswith(LEGAL)),
        CONFIG: _given(values, used),
        GENERATION: _given(generation, {*marks, *ABOUT, "_from_model_config"}),
    }


def in_gguf(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the metadata that is not used."""
    from . import gguf_tokenizer  # which needs the package tokenizers

    families = {f"{metadata['general.architecture']}.": gguf_model.KEYS, gguf_tokenizer.PREFIX: gguf_tokenizer.KEYS}
    used = {f"{family}{name}" for family, keys in families.items() for name in {*keys.obeyed, *keys.supported}}
    used |= {f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom", "unknown", "padding")}
    used |= {"tokenizer.chat_template", "split.count"}
    return {"metadata": [name for name in _given(metadata, used) if not name.startswith("general.")]}


def _given(values: Mapping[str, Any], used: set[str]) -> list[str]:
    """Return the keys that ask for something and are not used."""
    arrays = {name for name, value in values.items() if isinstance(value, np.ndarray)}
    return sorted(name for name in values.keys() - used if name in arrays or values[name] not in NOTHING)
