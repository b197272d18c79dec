"""Folders by name: a name that is no folder on this machine is that of a repository on the Hugging Face hub."""

import errno
from pathlib import Path

from .errors import PretrainedError
from .files import BESIDE, CONFIG, GENERATION, INDEX, PICKLE_INDEX
from .tokenizers import TOKENIZER_FILES

WANTED = [CONFIG, GENERATION, "model*.safetensors", INDEX, *BESIDE, *TOKENIZER_FILES]
"""The files of a repository that are downloaded: no code, and nothing in the folders of other programs."""

FOLDERS = ["[!0-9]*/*"]
"""Other programs' folders, whose files are not downloaded; those of sentence-transformers are numbered: 1_Pooling."""

PICKLES = ["pytorch_model*.bin", PICKLE_INDEX]
"""Downloaded too, where a repository has no safetensors files."""


def folder_of(folder_or_name: str | Path) -> Path:
    """Return the folder itself, or download the repository of this name and return its folder.

    Files that are on this machine already are not downloaded again. Raises FileNotFoundError for a path without a
    folder and PretrainedError for a file and for a name that can't be downloaded.
    """
    folder = Path(folder_or_name)
    if folder.is_dir():
        return folder
    name = str(folder_or_name)
    if folder.is_file():
        reader = "Generator.from_checkpoint or Translator.from_checkpoint"
        raise PretrainedError(f"{name} is a file, expected a folder, a GGUF file or a name; {reader} reads checkpoints")
    if isinstance(folder_or_name, Path) or name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise FileNotFoundError(errno.ENOENT, "No such folder", name)
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise PretrainedError(
            f"{name} is no folder; to download it by name, install huggingface_hub: pip install huggingface_hub"
        ) from None
    try:
        folder = Path(snapshot_download(name, allow_patterns=WANTED, ignore_patterns=FOLDERS))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(name, allow_patterns=[CONFIG, *PICKLES], ignore_patterns=FOLDERS)
    except errors.GatedRepoError:
        reason = "its owner asks for consent: give it on the model's page, then log in with `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "the hub has no such model, or it is private: then log in with `hf auth login`"
    except errors.LocalEntryNotFoundError:
        reason = "the hub can't be reached, or it fails, and the model was not downloaded before"
    except Exception as error:  # huggingface_hub raises many kinds
        reason = " ".join(str(error).split())[:300]
    else:
        if not any(any(folder.glob(each)) for each in ("*.safetensors", *PICKLES)):
            raise PretrainedError(f"{name} has no weights on the hub in safetensors files or in pytorch_model.bin")
        return folder
    raise PretrainedError(f"{name} is no folder, and it can't be downloaded: {reason}")
