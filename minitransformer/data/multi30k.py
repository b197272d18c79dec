"""Multi30k (Elliott et al. 2016, 2017): 29,000 English image captions with German and French translations.

The files are downloaded from the dataset's own repository, at a pinned commit, and each must have a pinned SHA-256.
This project does not redistribute them: the dataset states no licence, and its README allows non-commercial
research and education. `corpus_from_folder` reads files that are already on disk.
"""

import http.client
import os
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from pathlib import Path

from ..system.atomic import atomic_write
from ..system.progress import tqdm
from .sentence_pairs import Corpus, ParallelFiles
from .token_dataset import file_sha256, sha256

COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
BASE_URL = f"https://raw.githubusercontent.com/multi30k/dataset/{COMMIT}/data/task1/raw"
LANGUAGES = ("de", "fr")
SPLITS = ("train", "val", "test_2016_flickr")
SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}
MAX_BYTES = 1 << 24  # several times the largest file: a server that sends more does not send the file
CHUNK_BYTES = 1 << 16


def load(
    language: str = "de",
    cache_dir: str | os.PathLike[str] | None = None,
    base_url: str = BASE_URL,
    timeout: float = 30.0,
    limit: float = 600.0,
) -> Corpus:
    """Return the English→German or English→French corpus; download files that the cache lacks or that were changed.

    The cache is `cache_dir`, by default `minitransformer/multi30k` in `$XDG_CACHE_HOME` or `~/.cache`. Raises
    ValueError for another language or a file that is not the pinned one, TimeoutError if the server sends nothing for
    `timeout` seconds, ConnectionError if a download takes more than `limit` seconds or fails in another way.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, got {language!r}")
    folder = Path(cache_dir) if cache_dir is not None else default_cache_dir()

    def files(split: str) -> ParallelFiles:
        paths = (folder / f"{split}.{suffix}.gz" for suffix in ("en", language))
        return ParallelFiles(*(_cached(path, base_url, timeout, limit) for path in paths))

    return Corpus(*map(files, SPLITS))


def default_cache_dir() -> Path:
    """Return the default folder for downloads: under `$XDG_CACHE_HOME`, or else `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "minitransformer" / "multi30k"


def _cached(path: Path, base_url: str, timeout: float, limit: float) -> Path:
    """Return the path of a pinned file in the cache, downloaded unless it is there unchanged. Raises as `load` does."""
    pinned, url = SHA256[path.name], f"{base_url}/{path.name}"
    if path.is_file() and file_sha256(path) == pinned:
        return path
    try:
        content = _fetch_within(limit, url, timeout)
    except urllib.error.HTTPError as error:
        error.close()
        raise ConnectionError(f"cannot download {url}: the server answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            raise TimeoutError(f"cannot download {url}: nothing arrived for {timeout:g} seconds") from None
        raise ConnectionError(f"cannot download {url}: {reason}") from None
    if sha256(content) != pinned:
        raise ValueError(f"{url} is not the expected file: its SHA-256 must be {pinned}, but is {sha256(content)}")
    with atomic_write(path) as file:
        file.write(content)
    return path


def _fetch_within(limit: float, url: str, timeout: float) -> bytes:
    """Fetch in a thread, and abandon it after `limit` seconds: `timeout` limits only the wait for each piece."""
    outcome: Future[bytes] = Future()
    abandoned = threading.Event()

    def fetch() -> None:
        try:
            outcome.set_result(_fetch(url, timeout, abandoned))
        except Exception as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    try:
        thread.join(limit)
    finally:
        abandoned.set()
    if not outcome.done():
        raise ConnectionAbortedError(f"it took more than {limit:g} seconds")
    return outcome.result()


def _fetch(url: str, timeout: float, abandoned: threading.Event) -> bytes:
    content = bytearray()
    with urllib.request.urlopen(url, timeout=timeout) as response:
        announced = response.length  # None where the server does not say
        name = url.rpartition("/")[2]
        # disable=None: no bar where standard error is not a terminal.
        with tqdm(desc=name, total=announced, unit="B", unit_scale=True, leave=False, disable=None) as bar:
            while not abandoned.is_set() and (chunk := response.read1(CHUNK_BYTES)):
                content += chunk
                bar.update(len(chunk))
                if len(content) > MAX_BYTES:
                    raise ConnectionError(f"more than {MAX_BYTES} bytes arrived")
    if announced is not None and len(content) != announced:
        raise ConnectionError(f"it ended after {len(content)} of {announced} bytes")
    return bytes(content)
