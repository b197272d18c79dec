"""A name that is no folder is downloaded, here from a server on this machine: what is needed, once, and no code."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from support.pretrained_cases import random_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROGRAM = """
import sys
from minitransformer.cli import main
from minitransformer.pretrained import load
for name in sys.argv[1:]:
    if name not in ("some/model", "some/pickled"):
        print(main(["generate", name, "Once"]))
    else:
        model, tokenizer = load(name)
        text = "no text" if tokenizer is None else tokenizer.decode(tokenizer.encode("the dog"))
        print(model.config.kind, model.parameters.count, text)
"""
WANTED = {"config.json", "generation_config.json", "model.safetensors", "vocab.json", "merges.txt"}
BESIDE = {"modules.json": b"[]", "1_Pooling/config.json": b"{}"}
ERRORS = {"gated": (403, "GatedRepo"), "other": (401, "RepoNotFound"), "broken": (500, None)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[ThreadingHTTPServer, list[str]]]:
    """A hub with the repository some/model, and the paths of the files that it was asked for."""
    folder, sent = tmp_path / "there", list[str]()
    random_model("gpt2", 0).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({letter: number for number, letter in enumerate("thedogĠ")}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    torch.save(random_model("gpt2", 0).state_dict(), folder / "pytorch_model.bin")
    for name in (*BESIDE, "modeling.py", "README.md", "onnx/config.json", "onnx/model.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(BESIDE.get(name, b"nothing that is needed"))
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(True)

        def do_HEAD(self) -> None:
            self.answer(False)

        def answer(self, with_body: bool) -> None:
            path = self.path.partition("?")[0]
            repository, _, rest = path.removeprefix("/api/models").removeprefix("/some/").partition("/")
            name = rest.partition("/")[2].partition("/")[2]  # resolve/main/name
            body, status, code = b"{}", *ERRORS.get(repository, (404, None))
            if repository in ("model", "pickled", "bare"):
                kept = {"pickled": {"config.json", "pytorch_model.bin"}, "bare": {"config.json"}}
                there = {name: files[name] for name in kept.get(repository, files)}
                if path.startswith("/api/models") and rest.startswith("tree"):
                    entries = [{"type": "file", "path": n, "size": len(b), "oid": n} for n, b in there.items()]
                    body, status = json.dumps(entries).encode(), 200
                elif path.startswith("/api/models"):
                    values = {"_id": "1", "id": f"some/{repository}", "sha": COMMIT, "private": False, "tags": []}
                    values |= {"siblings": [{"rfilename": name} for name in there], "downloads": 0}
                    body, status = json.dumps(values).encode(), 200
                elif name in there:
                    body, status = there[name], 200
                    sent.extend([name] * with_body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{abs(hash(body)):x}"')
            self.send_header("X-Repo-Commit", COMMIT)
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    hub = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    yield hub, sent
    hub.shutdown()
    thread.join()
    hub.server_close()


def run(home: Path, endpoint: str, *names: str, offline: bool = False) -> tuple[list[str], list[str]]:
    """The lines that the program says of each name on standard output and on standard error."""
    environment = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("HF_")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": str(int(offline))}
    command = [sys.executable, "-c", PROGRAM, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_a_model_is_downloaded_by_name(server: tuple[ThreadingHTTPServer, list[str]], tmp_path: Path) -> None:
    hub, sent = server
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    count = sum(p.numel() for p in random_model("gpt2", 0).parameters())
    wanted = [f"gpt {count} the dog"]
    refused = ["some/gated", "some/other", "some/broken", "some/bare", "not a name"]
    said, errors = run(tmp_path, endpoint, "some/model", "some/model", "some/pickled", *refused)
    assert said == [*wanted * 2, f"gpt {count} no text", *["2"] * len(refused)]
    assert sorted(sent) == sorted([*WANTED, *BESIDE, "config.json", "pytorch_model.bin", "config.json"])
    reasons = ("its owner asks for consent", "no such model", "or it fails", "no weights on the hub", "")
    for name, reason, line in zip(refused, reasons, errors, strict=True):
        assert name in line
        assert reason in line
    assert run(tmp_path, "http://127.0.0.1:9", "some/model")[0] == wanted
    said, errors = run(tmp_path, endpoint, "some/model", "some/new", offline=True)
    assert said == [*wanted, "2"]
    assert "the hub can't be reached" in errors[0]
    assert len(errors) == 1
