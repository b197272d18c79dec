"""Folders by name: a name that is no folder on this machine is one on the Hugging Face hub."""

import errno
from pathlib import Path

from .files import PretrainedError

WANTED = ["*.json", "*.safetensors", "*.txt", "*.spm", "*.model"]
"""What is downloaded of a repository: no pickles and no code."""


def folder_of(folder_or_name: str | Path) -> Path:
    """The folder itself, or the one into which the repository of this name was downloaded.

    Raises FileNotFoundError for a path without a folder and PretrainedError for a name that can't be downloaded.
    """
    folder = Path(folder_or_name)
    if folder.is_dir():
        return folder
    name = str(folder_or_name)
    if isinstance(folder_or_name, Path) or name.count("/") > 1 or name.startswith((".", "/", "~")) or folder.exists():
        raise FileNotFoundError(errno.ENOENT, "No such folder", name)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        raise PretrainedError(
            f"{name} is no folder; to download it by name, install huggingface_hub: pip install huggingface_hub"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise PretrainedError(f"{name} is no folder, and it can't be downloaded: {reason}") from None
