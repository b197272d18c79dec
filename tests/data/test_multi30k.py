"""Multi30k's download: exactly the pinned files or one clear error, whatever the server does."""

import gzip
import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.folders import contents
from support.multi30k_files import multi30k_dir

from minitransformer.data import multi30k
from minitransformer.data.sentence_pairs import corpus_from_folder

FILES = {name: gzip.compress(f"text of {name}\n".encode(), mtime=0) for name in multi30k.SHA256}


class Server(http.server.ThreadingHTTPServer):
    """Serves FILES on 127.0.0.1; `faults` says which name goes wrong and how, `requested` what was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: dict[str, str] = {}
        self.requested: list[str] = []
        self.closing = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """One request, right or wrong."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        """Answer with the file, in the way the server's `faults` name."""
        name = self.path.lstrip("/")
        self.server.requested.append(name)
        content, fault = FILES[name], self.server.faults.get(name)
        if fault == "missing":
            self.send_error(404)
            return
        if fault == "silent":
            self.server.closing.wait(60)
            return
        if fault == "slow to begin":
            self.trickle(b"HTTP/1.0 200 OK\r\nLocation: " + 1000 * b"x")
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault == "slow":
            self.trickle(content)
            return
        sent = {"tampered": content[:-1] + bytes([content[-1] ^ 1]), "truncated": content[:-7], "stalled": content[:-7]}
        self.wfile.write(sent.get(str(fault), content))
        if fault == "stalled":
            self.wfile.flush()
            self.server.closing.wait(60)

    def trickle(self, content: bytes) -> None:
        """Send a byte now and then, always before the client's patience with one is at its end."""
        with suppress(ConnectionError):
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.closing.wait(0.05):
                    return

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running server, whose files are the pinned ones."""
    pinned = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(multi30k, "SHA256", pinned)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("language", ["de", "fr"])
def test_downloads_once(server: Server, tmp_path: Path, language: str) -> None:
    corpus = multi30k.load(language, tmp_path / "cache", server.url)
    names = [f"{split}.{suffix}.gz" for split in multi30k.SPLITS for suffix in ("en", language)]
    assert contents(tmp_path / "cache") == {name: FILES[name] for name in names}
    assert list(corpus.train.read()) == [("text of train.en.gz", f"text of train.{language}.gz")]
    assert list(corpus.valid.read()) == [("text of val.en.gz", f"text of val.{language}.gz")]
    assert corpus.test is not None
    assert corpus.test.source == tmp_path / "cache" / "test_2016_flickr.en.gz"
    assert multi30k.load(language, tmp_path / "cache", server.url) == corpus
    assert sorted(server.requested) == sorted(names)


def test_a_damaged_file_in_the_cache_is_downloaded_again(server: Server, tmp_path: Path) -> None:
    multi30k.load("de", tmp_path, server.url)
    server.requested.clear()
    (tmp_path / "val.de.gz").write_bytes(FILES["val.de.gz"][:-1])
    multi30k.load("de", tmp_path, server.url)
    assert server.requested == ["val.de.gz"]
    assert contents(tmp_path)["val.de.gz"] == FILES["val.de.gz"]


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("tampered", ValueError, "is not the expected file: its SHA-256 must be {expected}, but is {actual}"),
        ("truncated", ConnectionError, "it ended after {short} of {size} bytes"),
        ("stalled", TimeoutError, "nothing arrived for 3 seconds"),
        ("silent", TimeoutError, "nothing arrived for 3 seconds"),
        ("missing", ConnectionError, "the server answers 404 Not Found"),
    ],
)
def test_a_bad_download_is_one_sentence_and_leaves_nothing(
    server: Server, tmp_path: Path, fault: str, error: type[Exception], message: str
) -> None:
    name = "val.de.gz"
    server.faults[name] = fault
    content = FILES[name]
    tampered = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(error) as caught:
        multi30k.load("de", tmp_path, server.url, timeout=3.0)
    assert str(caught.value).startswith(f"{'' if fault == 'tampered' else 'cannot download '}{server.url}/{name}")
    expected, actual = (hashlib.sha256(data).hexdigest() for data in (content, tampered))
    sentence = message.format(expected=expected, actual=actual, short=len(content) - 7, size=len(content))
    assert str(caught.value).endswith(sentence)
    kept = ["train.de.gz", "train.en.gz", "val.en.gz"]  # what arrived before is whole, and is not asked for again
    assert contents(tmp_path) == {name: FILES[name] for name in kept}
    server.faults.clear()
    server.requested.clear()
    multi30k.load("de", tmp_path, server.url)
    assert sorted(server.requested) == ["test_2016_flickr.de.gz", "test_2016_flickr.en.gz", name]


@pytest.mark.parametrize("fault", ["slow", "slow to begin"])
def test_a_server_that_never_ends_is_left(server: Server, tmp_path: Path, fault: str) -> None:
    """It sends something within every `timeout`."""
    multi30k.load("de", tmp_path, server.url)
    (tmp_path / "val.de.gz").unlink()
    server.faults["val.de.gz"] = fault
    with pytest.raises(ConnectionError, match=rf"download {server.url}/val\.de\.gz: it took more than 0.5 seconds"):
        multi30k.load("de", tmp_path, server.url, limit=0.5)
    assert "val.de.gz" not in contents(tmp_path)


def test_a_server_that_sends_too_much(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi30k, "MAX_BYTES", 10)
    with pytest.raises(ConnectionError, match=r"train\.en\.gz: more than 10 bytes arrived"):
        multi30k.load("de", tmp_path, server.url)


def test_no_server(tmp_path: Path) -> None:
    with Server() as server:
        url = server.url
    with pytest.raises(ConnectionError, match=r"cannot download http://127.*refused"):
        multi30k.load("de", tmp_path, url)


def test_only_the_languages_it_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="language must be one of de, fr, got 'cs'"):
        multi30k.load("cs", tmp_path)


def test_default_cache_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert multi30k.default_cache_dir() == Path("/somewhere/minitransformer/multi30k")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ada"))
    assert multi30k.default_cache_dir() == Path("/home/ada/.cache/minitransformer/multi30k")


def test_the_real_files_are_the_pinned_ones() -> None:
    folder = multi30k_dir()
    if folder is None:
        pytest.skip("Multi30k is not on this machine: set MULTI30K_DIR to the folder of its .gz files")
    for name, pinned in multi30k.SHA256.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == pinned, name
    for language in multi30k.LANGUAGES:
        corpus = multi30k.load(language, cache_dir=folder, base_url="http://127.0.0.1:1")  # nothing to download
        assert corpus == corpus_from_folder(folder, "en", language)
        assert corpus.test is not None
        sizes = [sum(1 for _ in files.read()) for files in (corpus.train, corpus.valid, corpus.test)]
        assert sizes == [29_000, 1_014, 1_000]
