"""The world of the commands: a small training, its text, and what nobody should give to a command.

And what is imported and made small once, so that their forks need not do it.
"""

import contextlib
import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from support.cli_runs import SMALL, make_demo_small, quick_picture, write_corpus

from minitransformer import RecurrentConfig, RecurrentTranslator, check, load_checkpoint, plots, save_checkpoint
from minitransformer.cli import demo, main
from minitransformer.data import BPETokenizer, multi30k
from minitransformer.data.preparation import CorpusChoice
from minitransformer.data.scenes import caption_tokenizer
from minitransformer.models import BERTConfig, CaptionerConfig, CLIPConfig, GPTConfig, ViTConfig, build_model
from minitransformer.plots.page import text_width
from minitransformer.training import TrainingSettings, trainer
from minitransformer.training.checkpoint import Checkpoint
from paper import command, experiments
from paper.task import Task
from study.trials.run import Interrupted
from study.trials.runner import Runner
from study.trials.translating import Translating
from study.trials.trial import Trial

LAZY = ("sacrebleu", "tqdm.std", "threadpoolctl")
"""PyTorch is not among them: few cases need it, and with it every fork would take twice as long."""

ESCAPES = "\x1b[31mred\x1b[0m"
"""What turns a terminal's text red."""

MODELS = ("model", "link", "old", "run/step-00000002.safetensors", "run/step-00000004.safetensors", "recurrent")
FAMILY = ("gpt", "bert", "vit", "captioner", "clip")
TEXTS = (
    *("few.en", "few.de", "red" + ESCAPES, "line\nbreak", "-dash"),
    *("text/test.en", "text/test.de", "text/valid.en", "text/valid.de", "text/train.en", "text/train.de"),
)
"""Files that commands can read."""


def make_world(folder: Path) -> None:
    """A training of 4 steps in `run` on the text in `text`, and files of every other sort beside it."""
    folder.mkdir()
    text, run = write_corpus(folder / "text"), folder / "run"
    with contextlib.chdir(folder):  # the training notes where its text is
        assert main(["train", "--data", "text", "--out", "run", *SMALL]) == 0
    checkpoint = run / "step-00000004.safetensors"
    shutil.copy(checkpoint, folder / "model")
    shutil.copy(run / "step-00000002.safetensors", folder / "old")
    _write_recurrent(folder / "recurrent", load_checkpoint(checkpoint))
    _write_family(folder, str(load_checkpoint(checkpoint).tokenizer))
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
    (folder / "pairs").write_text("A dog sleeps.\tA cat runs.\n" * 20)
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


def _write_family(folder: Path, tokenizer: str) -> None:
    """A small model of each other kind that a command reads."""
    size, words = BPETokenizer.from_json(tokenizer).vocab_size, caption_tokenizer()
    shape: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1}
    configs = (
        GPTConfig(size, **shape, max_length=48, bos_id=2, eos_id=2),
        BERTConfig(size + 1, **shape, max_length=48, mask_id=size),
        ViTConfig(10, 8, 4, 1, **shape),
        CaptionerConfig(len(words), **shape),
        CLIPConfig(len(words), **shape),
    )
    for name, config in zip(FAMILY, configs, strict=True):
        weights = build_model(config, seed=1).parameters.state_dict()
        own = words.to_json() if name in ("captioner", "clip") else tokenizer
        save_checkpoint(folder / name, Checkpoint(config.to_dict(), weights, tokenizer=own))


def warm_up() -> None:
    """Import what commands import when they need it, and let trainings, check and paper be as small as they can be."""
    for name in LAZY:
        importlib.import_module(name)
    text_width("a line, so that the fonts are known", 10)
    plots.plot_loss = quick_picture
    make_demo_small(setattr)
    stopped = SimpleNamespace(requested=True)  # Ctrl-C in every first step
    trainer.stop_request = lambda speaks=False: contextlib.nullcontext(stopped)
    check.run_checks = lambda report: []
    for name in experiments.EXPERIMENTS:
        experiments.EXPERIMENTS[name] = _small_experiment(name)  # type: ignore[assignment]
    multi30k._fetch = _offline
    command.STUDY.out = Path("report")  # where it writes unless told otherwise: not beside its code
    Runner._run_side_by_side = _interrupted  # type: ignore[method-assign]


def _small_experiment(name: str) -> SimpleNamespace:
    def trials(task: Task, scale: float) -> Sequence[Trial]:
        text = CorpusChoice(vocab_size=400, sentences=100, max_length=160) if task.name == "grammar" else task.text
        settings = TrainingSettings(steps=2, tokens_per_batch=512, peak_lr=1e-3, threads=1)
        return [Trial(name, text, demo.CONFIG, settings, (Translating(sentences=4, beam=1),))]

    def draw(findings: dict[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    return SimpleNamespace(
        NAME=name, TITLE=name, MINUTES=1.0, ALONE=2.0, trials=trials, find=lambda context: {}, draw=draw,
        report=lambda findings: [ESCAPES],
    )  # fmt: skip


def _interrupted(*_: object) -> None:
    raise Interrupted


def _offline(*_: object) -> bytes:
    raise OSError("there is no network")
