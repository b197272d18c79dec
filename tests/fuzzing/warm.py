"""Everything imported, once, and everything that takes long made small: what forks then need not do."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from world import ESCAPES

from minitransformer import check
from minitransformer.cli import demo
from minitransformer.data import preparation
from minitransformer.data.preparation import CorpusChoice
from minitransformer.models import TransformerConfig
from minitransformer.training import TrainingSettings, trainer
from minitransformer.training.signals import StopRequest
from paper import command, experiments
from paper.experiment import Task
from paper.trials.run import Interrupted
from paper.trials.runner import Runner
from paper.trials.trial import Evaluation, Trial

LAZY = ("safetensors.numpy", "sacrebleu", "tqdm.std", "threadpoolctl", "minitransformer.plots")
"""PyTorch is not among them: few cases need it, and with it every fork would take twice as long."""

SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "max_length": 200}


class Stopped(StopRequest):
    """A Ctrl-C that comes during the first step of every training: the step is finished, saved, and that is all."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.requested = True
        return self


def warm_up() -> None:
    """Import what commands import when they need it, and let trainings, check and paper be as small as they can be."""
    for name in LAZY:
        importlib.import_module(name)
    from minitransformer.plots.page import text_width

    text_width("a line, so that the fonts are known", 10)
    preparation.GRAMMAR_VALIDATION, preparation.TOKENIZER_SENTENCES = 4, 100
    demo.NUM_TEST, demo.CONFIG = 4, TransformerConfig(400, **SIZES)
    demo.CORPUS = replace(demo.CORPUS, vocab_size=400, sentences=60, max_length=200)
    demo.SETTINGS = TrainingSettings(steps=2, tokens_per_batch=1024, threads=1)
    trainer.StopRequest = Stopped
    check.run_checks = lambda report: []
    for name in experiments.EXPERIMENTS:
        experiments.EXPERIMENTS[name] = _small_experiment(name)  # type: ignore[assignment]
    command.OUT = Path("report")  # where it writes unless told otherwise: not beside its code
    Runner._run_side_by_side = _interrupted  # type: ignore[method-assign]


def _small_experiment(name: str) -> SimpleNamespace:
    def trials(task: Task, scale: float) -> Sequence[Trial]:
        text = CorpusChoice(vocab_size=400, sentences=100, max_length=160) if task.name == "grammar" else task.text
        settings = TrainingSettings(steps=2, tokens_per_batch=512, peak_lr=1e-3, threads=1)
        return [Trial(name, text, TransformerConfig(400, **SIZES), settings, (Evaluation(sentences=4, beam=1),))]

    def draw(findings: dict[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    return SimpleNamespace(
        NAME=name, TITLE=name, MINUTES=1.0, ALONE=2.0, trials=trials, find=lambda context: {}, draw=draw,
        report=lambda findings: [ESCAPES],
    )  # fmt: skip


def _interrupted(*_: object) -> None:
    raise Interrupted
