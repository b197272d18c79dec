"""The text of `train`: which one the options name, and its token ids, made once and found again."""

import argparse
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..data.preparation import (
    CorpusChoice,
    PreparedData,
    TableChoice,
    TextChoice,
    kept_choice,
    open_prepared,
    prepare,
)
from ..training.checkpoint import Checkpoint
from .common import given, say
from .recipes import RECIPES, longest_line, marked, recipe_of

SOURCES = ("dataset", "data", "text", "table")
CORPUS_OPTIONS = (*SOURCES, "source", "target", "vocab_size", "sentences")


def new_dataset(args: argparse.Namespace, reads: str) -> str | None:
    """Return the name of the dataset, None for the user's own text. Raises ValueError for --sentences of another."""
    dataset = None if reads == "images" or args.data or args.text or args.table else args.dataset or "grammar"
    if args.sentences is not None and dataset != "grammar":
        raise ValueError("--sentences goes with --dataset grammar, which writes as many as it is asked for")
    return dataset


def new_choice(
    args: argparse.Namespace, reads: str, dataset: str | None, vocab_size: int, max_length: int
) -> CorpusChoice:
    """Return the text that the options name, and how it becomes tokens."""
    text = {"text": os.path.realpath(args.text) if args.text else None} if reads == "lines" else {}
    text |= {"table": os.path.realpath(args.table)} if args.table else {}
    return (TableChoice if args.table else TextChoice if reads == "lines" else CorpusChoice)(
        dataset=dataset,
        data=os.path.realpath(args.data) if args.data else None,
        vocab_size=vocab_size,
        max_length=max_length,
        **text,
        **given(args, ("source", "target", "sentences", "seed")),
    )


def wanted_corpus(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of the choice of a text that options give."""
    wanted = given(args, CORPUS_OPTIONS)
    for name in wanted.keys() & {"data", "text", "table"}:
        wanted |= {"dataset": None, name: os.path.realpath(wanted[name])}
    return wanted


def found_data(folder: Path, tokenizer: Any = None) -> PreparedData:
    """Open what the first process has prepared in another one. Raises FileNotFoundError if that does not see it."""
    try:
        return open_prepared(folder, tokenizer)
    except (FileNotFoundError, NotADirectoryError):
        what = "is not the folder in which the first process prepared the data: all processes need it in common"
        raise FileNotFoundError(errno.ENOENT, f"{folder} {what}") from None


def resumed_data(
    folder: Path, checkpoint: Checkpoint, tokenizer: Any, labels: Sequence[str], named: dict[str, Any]
) -> PreparedData:
    """Return the data of a resumed training; deleted parts of it are made again from the same text.

    tokenizer and labels: those of the checkpoint; named: the fields of the choice that options give. They count if the
    data is not that of the checkpoint, or no file is left that names its text. Raises FileNotFoundError if nothing
    names the text, and ValueError for a field that the choice does not have.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        data = open_prepared(folder, tokenizer)
        if not named or data.train.checksum() == checkpoint.state.get("data", {}).get("crc32"):
            return data
    kept, names_text = kept_choice(folder), any(named.get(name) for name in SOURCES)
    if kept is None and not names_text:
        raise FileNotFoundError(
            f"nothing in {folder} says which text this was: add --data, --dataset, --text or --table to --resume, and "
            "--sentences where the training had it"
        )
    kind, known = _lost_choice(checkpoint, tokenizer) if kept is None else (type(kept), vars(kept))
    kind = TableChoice if named.get("table") else kind
    if names_text:
        known = {name: value for name, value in known.items() if name not in SOURCES}
    refuse_changes(f"the data in {folder}", {}, {name: named[name] for name in named if not hasattr(kind, name)})
    say(f"making the data in {folder} again")
    choice = kind(**known | named)
    return prepare(folder, choice, True, marked(checkpoint.model_config(), tokenizer, choice, labels))


def _lost_choice(checkpoint: Checkpoint, tokenizer: Any) -> tuple[type[CorpusChoice], dict[str, Any]]:
    """Return the kind of choice that a training's data was made from, and its fields but for the text."""
    config = checkpoint.model_config()
    reads = "lines" if checkpoint.languages is None and "lines" in RECIPES[recipe_of(config)].reads else "pairs"
    known: dict[str, Any] = dict(zip(("source", "target"), checkpoint.languages or (), strict=False))
    known["vocab_size"] = tokenizer.vocab_size
    known["max_length"] = longest_line(recipe_of(config), reads, config)
    known["seed"] = checkpoint.state["settings"].get("seed", CorpusChoice.seed)
    return TextChoice if reads == "lines" else CorpusChoice, known


def refuse_changes(what: str, kept: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise ValueError, naming each option that differs from what a resumed training must keep."""
    changes = [f"{name} {kept.get(name)}, not {value}" for name, value in wanted.items() if kept.get(name) != value]
    if changes:
        raise ValueError(f"{what} has {', '.join(changes)}: a resumed training keeps it")
