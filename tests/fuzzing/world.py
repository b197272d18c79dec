"""The files among which commands are tried: a small training, its text, and what nobody should give to a command."""

import os
import shutil
from pathlib import Path

import numpy as np
from support.cli_runs import SMALL, write_corpus

from minitransformer import RecurrentConfig, RecurrentTranslator, load_checkpoint, save_checkpoint
from minitransformer.cli import main
from minitransformer.training.checkpoint import Checkpoint

ESCAPES = "\x1b[31mred\x1b[0m"
"""What turns a terminal's text red."""

MODELS = ("model", "link", "old", "run/step-00000002.safetensors", "run/step-00000004.safetensors", "recurrent")
TEXTS = (
    *("few.en", "few.de", "red" + ESCAPES, "line\nbreak", "-dash"),
    *("text/test.en", "text/test.de", "text/valid.en", "text/valid.de", "text/train.en", "text/train.de"),
)
"""Files that commands can read."""


def make_world(folder: Path) -> None:
    """A training of 4 steps in `run` on the text in `text`, and files of every other sort beside it."""
    folder.mkdir()
    text, run = write_corpus(folder / "text"), folder / "run"
    before = Path.cwd()
    os.chdir(folder)  # the training notes where its text is
    try:
        assert main(["train", "--data", "text", "--out", "run", *SMALL]) == 0
    finally:
        os.chdir(before)
    checkpoint = run / "step-00000004.safetensors"
    shutil.copy(checkpoint, folder / "model")
    shutil.copy(run / "step-00000002.safetensors", folder / "old")
    _write_recurrent(folder / "recurrent", load_checkpoint(checkpoint))
    content = checkpoint.read_bytes()
    (folder / "truncated").write_bytes(content[:-100])
    (folder / "flipped").write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    for name in TEXTS[:5]:
        lines = (text / ("test.de" if name == "few.de" else "test.en")).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(b"".join(lines[:2]))
    (folder / "latin").write_bytes(b"A dog.\nA c\xe4t.\n")
    (folder / "utf16").write_bytes("A dog.\nA cat.\n".encode("utf-16-le"))
    (folder / "zeros").write_bytes(bytes(1000))
    (folder / "long").write_text("dog " * 1000)
    (folder / "empty").touch()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "link").symlink_to("model")
    (folder / "folder").mkdir()


def _write_recurrent(path: Path, trained: Checkpoint) -> None:
    config = RecurrentConfig(trained.config["vocab_size"], d_model=16, max_length=48)
    model = RecurrentTranslator(config, seed=1)
    model.parameters.data *= np.float32(2)
    weights, state = model.parameters.state_dict(), {"languages": ["en", "de"]}
    save_checkpoint(path, Checkpoint(config.to_dict(), weights, tokenizer=trained.tokenizer, state=state))
