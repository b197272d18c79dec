"""Train a small model on the grammar's English and German, and test it on sentences it never saw.

examples:
  {program} demo
  {program} demo --steps 100 --out runs/quick

The folder gets model.safetensors, loss.png, attention.png and report.txt. Ctrl-C saves; the same command goes on.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ..data.preparation import CorpusChoice, prepare
from ..decoding import Translator
from ..evaluation import evaluate, exact_match_by
from ..grammar import Example, sample
from ..models import TransformerConfig
from ..system.atomic import remove_unfinished
from ..system.lock import locked
from ..training import TrainingSettings, check_new
from ..training.checkpoint import (
    Checkpoint,
    average_checkpoints,
    description_of,
    latest,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from .common import (
    Parser,
    add_option,
    given,
    heavy_work,
    invocation,
    path_name,
    positive_int,
    say,
    write_lines,
)
from .errors import INTERRUPTED
from .plan import Plan
from .recipes import PRESET_SETTINGS
from .train import draw_losses, train

HELP = "train a small English→German model in a few minutes and show what it can do"

CORPUS = CorpusChoice(max_length=TransformerConfig.demo().max_length)
CONFIG = TransformerConfig.demo(CORPUS.vocab_size)
SETTINGS = TrainingSettings(**PRESET_SETTINGS["demo"])
BEAM = 1
NUM_TEST = 1000
TEST_SEED = 0
NUM_SHOWN = 5
OUTPUTS = MODEL, *_ = ("model.safetensors", "loss.png", "attention.png", "report.txt")


def add_options(parser: Parser) -> None:
    """Declare the options of `demo`."""
    add_option(parser, "--steps", "N", positive_int, f"optimiser steps (default: {SETTINGS.steps})")
    add_option(parser, "--threads", "N", positive_int, "threads that share a batch (default: 2)")
    add_option(parser, "--out", "FOLDER", path_name, "where it goes (default: runs/demo)", default="runs/demo")


def run(args: argparse.Namespace) -> int:
    """Train, save the model, report on it and draw the pictures."""
    out = Path(args.out)
    settings = replace(SETTINGS, **given(args, ("steps", "threads")))
    with heavy_work(), locked(out / "training"):
        check_own(out)
        outcome = train(plan(out / "training", settings))
        if outcome.reason == "interrupted":
            say("the same command goes on from there")
            return INTERRUPTED
        model, losses, attention, report = (out / name for name in OUTPUTS)
        save_checkpoint(model, average_checkpoints(list_checkpoints(out / "training")))  # Vaswani 2017, §6.1
        draw_losses(out / "training", losses)
        translator = Translator.from_checkpoint(model, threads=settings.threads)
        lines = report_on(translator, list(islice(sample("test", TEST_SEED), NUM_TEST)), attention)
    say(*lines)
    write_lines(report, lines)
    say("", f"model             {model}", f"loss curve        {losses}", f"attention maps    {attention}")
    say("", f'try it: {invocation()} translate {model} "The old teacher reads a book."')
    return 0


def check_own(out: Path) -> None:
    """Raise FileExistsError for a file that the demo would replace but did not write; remove what a killed demo left.

    Files are the demo's own if its training or its model is in the same folder.
    """
    model = description_of(out / MODEL)
    own = latest(out / "training") is not None or model.get("config") == CONFIG.to_dict()
    for name in OUTPUTS:
        if (out / name).exists() and not own:
            raise FileExistsError(f"{out / name} is not the demo's: move it elsewhere, or choose another --out")
    remove_unfinished(out, "|".join(map(re.escape, OUTPUTS)))


def plan(folder: Path, settings: TrainingSettings) -> Plan:
    """Return the plan of the demo's training in `folder`, which resumes if it has begun, even if it is finished.

    Raises ValueError if the folder holds another training.
    """
    path = latest(folder)
    if path is None:
        check_new(folder)
        say("writing sentences with the grammar …")
    else:
        checkpoint = load_checkpoint(path, with_optimizer=False)
        try:
            check_continues(checkpoint, settings)
        except ValueError as error:
            raise ValueError(
                f"{folder} holds a training that this one does not continue ({error}): "
                "choose another --out, or delete it"
            ) from None
        say(f"going on after step {checkpoint.step}")
    data = prepare(folder / "data", CORPUS, progress=True)
    return Plan(folder, CONFIG, settings, data, resumes=path is not None)


def check_continues(checkpoint: Checkpoint, settings: TrainingSettings) -> None:
    """Raise ValueError unless the demo with `settings` can continue the training of `checkpoint`."""
    if "settings" not in checkpoint.state:
        raise ValueError("its last checkpoint holds a model alone")
    if checkpoint.config != CONFIG.to_dict():
        raise ValueError("its model is another")
    if checkpoint.step > settings.steps:
        raise ValueError(f"it has taken {checkpoint.step} steps already")
    settings.check_continues(TrainingSettings.from_dict(checkpoint.state["settings"]))


def report_on(translator: Translator, examples: Sequence[Example], attention: Path) -> list[str]:
    """Translate sentences that training never saw, and draw the attention of one; returns the lines of the report."""
    from ..plots import plot_attention

    sources, references = [each.english for each in examples], [each.german for each in examples]
    hypotheses = translator.translate(sources, beam=BEAM, truncate=True, progress=True)
    shown = list(zip(sources, hypotheses, references, strict=True))[:NUM_SHOWN]
    shortest = min((source for source, _, _ in shown), key=len)
    maps = translator.attention(shortest)
    plot_attention(maps.cross, maps.source_tokens, maps.target_tokens, attention, title=f"Cross-attention: {shortest}")
    score = evaluate(hypotheses, references)
    lines = ["", f"{score.num_sentences:,} sentences that the model never saw", ""]
    lines += [f"{'BLEU':24}{score.bleu:10.1f}", f"{'exactly right':24}{score.exact_match:8.1f} %", ""]
    rows = exact_match_by([each.constructions for each in examples], hypotheses, references)
    lines += [f"{'construction':24}{'sentences':>10}  exactly right", f"{'-' * 34}  -------------"]
    lines += [*(f"{row.name:24}{row.num_sentences:10,}{row.percent:13.1f} %" for row in rows), ""]
    for source, hypothesis, reference in shown:
        lines += [f"  English    {source}", f"{'✓' if hypothesis == reference else '✗'} ours       {hypothesis}"]
        lines += [f"  reference  {reference}", ""]
    return lines[:-1]
