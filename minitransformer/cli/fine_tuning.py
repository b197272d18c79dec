"""`train --from`: a published model, or a checkpoint, is trained further on its own tokenizer's tokens."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data.preparation import TableChoice
from ..decoding import with_origin, with_tokenizer
from ..models import BERT, BERTConfig, CaptionerConfig, GPTConfig, Model, StacksConfig, Tuning
from ..training.checkpoint import Checkpoint
from .backend import Backend
from .common import Parser, add_option, number, path_name, positive_int
from .model_argument import add_bits_option, open_model
from .recipes import BRIEFLY, labels_of, model_options

FINE_TUNING = BRIEFLY | {
    "steps": 300,
    "tokens_per_batch": 1024,
    "warmup_steps": 20,
    "peak_lr": 5e-5,
    "beta2": 0.999,
    "eps": 1e-8,
    "valid_interval": 100,
    "checkpoint_interval": 100,
    "keep": 1,
}
"""The settings of a training that goes on from a model: few steps, all of them small."""

LORA_RATE = 3e-4
"""The peak of the learning rate for adapters, which start at 0 and stand larger steps."""

TUNING_OPTIONS = ("freeze", "lora", "lora_alpha", "lora_targets", "bits")


def add_start_options(parser: Parser) -> None:
    """Declare the options of a training that goes on from a model."""
    group = parser.add_argument_group("a model to start from")
    help_text = "train it further, with its tokenizer: a checkpoint, a folder of `save_pretrained`, a GGUF file, a name"
    add_option(group, "--from", "MODEL", path_name, help_text, dest="start")
    help_text = "parameters that stay as they are, such as 'tokens.*' 'encoder.layers.[0-3].*'"
    add_option(group, "--freeze", "PATTERN", str, help_text, nargs="+")
    help_text = "train adapters of this rank beside linear maps, and nothing else but a new head"
    add_option(group, "--lora", "RANK", positive_int, help_text)
    add_option(group, "--lora-alpha", "X", number(0), "adapters are multiplied by X / RANK (default: RANK)")
    help_text = f"maps with an adapter (default: {' '.join(Tuning.targets)})"
    add_option(group, "--lora-targets", "PATTERN", str, help_text, nargs="+")
    add_bits_option(group)
    help_text = "write the adapters into the weights of the folder that is made, instead of beside them"
    group.add_argument("--merge", action="store_true", help=help_text)


def check_start(args: argparse.Namespace) -> None:
    """Raise ValueError for options that do not go together."""
    if args.start is None:
        for option in (*TUNING_OPTIONS, "table"):
            if getattr(args, option) is not None and (option != "table" or args.resume is None):
                says = "goes with --from MODEL"
                if args.resume is not None:
                    says = "does not go with --resume: what is trained, and in how many bits, comes from its checkpoint"
                raise ValueError(f"--{option.replace('_', '-')} {says}")
        if args.merge and args.resume is None:
            raise ValueError("--merge goes with --from MODEL, or with --resume")
        return
    for option in ("preset", "vocab_size", "kind", "resume", *model_options()):
        if getattr(args, option, None) is not None:
            raise ValueError(f"--{option.replace('_', '-')} does not go with --from: the model is what it is")
    if args.lora is None and (args.lora_alpha is not None or args.lora_targets is not None or args.merge):
        raise ValueError("--lora-alpha, --lora-targets and --merge go with --lora")
    if args.lora is not None and args.freeze is not None:
        raise ValueError("--freeze does not go with --lora, which freezes all weights")
    if args.bits is not None and args.lora is None:
        raise ValueError("--bits goes with --lora: weights in few bits stay as they are, and adapters are trained")
    if args.bits is not None and args.table is not None:
        raise ValueError("--bits does not go with --table: the head of a model in few bits stays as it is")


def open_start(args: argparse.Namespace, backend: Backend, seed: int) -> tuple[Model[Any], Any]:
    """Return the model with the head that its data needs, of which the options say what is trained; and its tokenizer.

    Raises ValueError for a model that `train` has no data for, and as `open_model` and `Model.tuned` do.
    """
    model, tokenizer, _ = with_tokenizer(args.start, open_model(args.start, backend, args.bits))
    if model.bits is not None and model.tuning is not None:  # a checkpoint's adapters, beside few bits
        model = model.merged() if args.bits is None else model.merged().quantized(args.bits)
    config, new_head = model.config, False
    if model.origin is not None:
        model.origin = replace(model.origin, name=args.start)  # a checkpoint's is the model that it came from
    if isinstance(config, CaptionerConfig) or not isinstance(config, StacksConfig | GPTConfig | BERTConfig):
        raise ValueError(f"{args.start} holds a model of kind {config.kind!r}: --from takes a GPT, BERT, T5 or Marian")
    if args.table is not None:
        model, new_head = _classifier(args, model, seed)
    elif isinstance(config, BERTConfig) and config.head != "masked":
        raise ValueError(f"{args.start} holds a BERT with the head {config.head!r}: give it texts with labels, --table")
    tuning = None
    if args.lora is not None:
        options = {"targets": tuple(args.lora_targets)} if args.lora_targets else {}
        trained = ("head.*",) if new_head else ()
        tuning = Tuning(("*",), trained, args.lora, args.lora_alpha, **options)
    elif args.freeze is not None:
        tuning = Tuning(tuple(args.freeze))
    if args.merge and model.origin is None:
        raise ValueError(f"--merge writes a folder for other libraries, and {args.start} came from none of theirs")
    if tuning is not None:
        model = model.tuned(tuning, seed)
    if new_head and not any(each.trained for name, each in model.parameters.named.items() if name.startswith("head.")):
        raise ValueError("--freeze keeps the new head, which is random, as it is: without it no label can be learned")
    return model, tokenizer


def _classifier(args: argparse.Namespace, model: Any, seed: int) -> tuple[Model[Any], bool]:
    """Return a BERT that tells the table's labels apart, and whether its head is new: one that knows them all stays."""
    if not isinstance(model, BERT):
        raise ValueError(f"--table is for a BERT, and {args.start} holds a model of kind {model.config.kind!r}")
    labels = TableChoice(table=args.table).labels()
    if model.config.head == "classes" and set(labels) <= set(labels_of(model)):
        return model, False
    from ..pretrained import labelled

    classifier = model.with_head("classes", len(labels), seed)
    classifier.origin = labelled(classifier, model.origin, args.start, labels)
    return classifier, True


def resumed_model(checkpoint: Checkpoint, backend: Backend) -> Any:
    """Return the model of a training that went on from a published one, or of which a part is trained; else None."""
    if not checkpoint.state.keys() & {"tuning", "origin"}:
        return None
    return with_origin(checkpoint.tuned_model(backend.ops, backend.dtype), checkpoint)


def check_made(folder: Path) -> None:
    """Raise FileExistsError if a folder holds one of the folders that `write_folders` makes."""
    for made in (folder / "model", folder / "adapter"):
        if made.exists():
            raise FileExistsError(f"{made} is there already, and this training would write it: choose another --out")


def write_folders(model: Any, tokenizer: Any, folder: Path, merge: bool) -> list[Path]:
    """Write what was trained as a folder that other libraries read, `adapter` for adapters, else `model`; return it.

    Where a training of adapters has left both, with --merge and without, both are written: neither is out of date.
    """
    from ..pretrained import save, save_adapter

    adapter, whole, made = folder / "adapter", folder / "model", list[Path]()
    adapted = model.tuning is not None and model.tuning.rank
    if adapted and (not merge or adapter.exists()):
        save_adapter(model, adapter)
        made.append(adapter)
    if not made or merge or whole.exists():
        save(model, whole, tokenizer)
        made.append(whole)
    return made
