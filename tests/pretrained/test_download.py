"""A name that is no folder is downloaded, here from a server on this machine; no pickle and no code comes with it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.pretrained_cases import random_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROGRAM = """
import sys
from minitransformer.pretrained import load
try:
    model, tokenizer = load(sys.argv[1])
    print(model.config.kind, model.parameters.count, tokenizer)
except ValueError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    folder, asked = tmp_path / "there", []
    random_model("gpt2", 0).save_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "modeling.py").write_text("raise SystemExit")

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(True)

        def do_HEAD(self) -> None:
            self.answer(False)

        def answer(self, with_body: bool) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            body, status = b"{}", 404
            if path.startswith("/api/models/some/model/tree/"):
                sizes = {each.name: each.stat().st_size for each in folder.iterdir()}
                entries = [{"type": "file", "path": name, "size": size, "oid": name} for name, size in sizes.items()]
                body, status = json.dumps(entries).encode(), 200
            elif path.startswith("/api/models/some/model"):
                files = [{"rfilename": each.name} for each in folder.iterdir()]
                values = {"_id": "1", "id": "some/model", "modelId": "some/model", "sha": COMMIT, "siblings": files}
                body, status = json.dumps({**values, "private": False, "tags": [], "downloads": 0}).encode(), 200
            elif path.startswith("/some/model/resolve/"):
                body, status = (folder / path.rpartition("/")[2]).read_bytes(), 200
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{abs(hash(body)):x}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    hub = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{hub.server_port}", tmp_path / "home", asked
    hub.shutdown()
    thread.join()
    hub.server_close()


def run(name: str, endpoint: str, home: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("HF_")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_is_downloaded_by_name(server: tuple[str, Path, list[str]]) -> None:
    endpoint, home, asked = server
    count = sum(p.numel() for p in random_model("gpt2", 0).parameters())
    assert run("some/model", endpoint, home).split() == ["gpt", str(count), "None"]
    assert not any(path.endswith((".bin", ".py")) for path in asked)
    found = run("some/other", endpoint, home)
    assert found.startswith("PretrainedError some/other is no folder, and it can't be downloaded: ")
    assert found.count("\n") == 1
