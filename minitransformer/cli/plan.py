"""The plan of a training: all that determines it, from the options of a new one or from the checkpoints of another."""

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..config import help_of
from ..costs import least_training_bytes, most_gradients
from ..data.preparation import CorpusChoice, PreparedData, is_made_from, prepare
from ..data.scenes import CAPTION_LANGUAGES, caption_language, caption_tokenizer
from ..data.text import Marked
from ..decoding import tokenizer_of
from ..models import ModelConfig, TransformerConfig
from ..ops import numpy_ops
from ..system.lock import locked
from ..training import PICTURE_NAME, TrainingSettings, check_new
from ..training.checkpoint import latest, load_checkpoint
from ..training.parallel.processes import ALONE, Processes
from ..training.parallel.shards import SHARDS, share
from .backend import NUMPY, Backend
from .common import as_bytes, given, say
from .fine_tuning import FINE_TUNING, LORA_RATE, check_made, open_start, resumed_model
from .objectives import (
    REFERENCE,
    Objective,
    chosen_objective,
    kept_objective,
    objective_material,
    policy_of,
    refuse_objective,
    save_reference,
)
from .objectives import SETTINGS as OBJECTIVE_SETTINGS
from .outputs import check_output
from .recipes import (
    DESCRIBED,
    LINE_KINDS,
    PICTURES,
    PRESET_SETTINGS,
    RECIPES,
    TRANSLATION,
    config_class,
    default_vocab_size,
    labels_of,
    learned,
    longest_line,
    marked,
    model_options,
    options_of,
    recipe_of,
    sized,
)
from .training_text import found_data, new_choice, new_dataset, refuse_changes, resumed_data, wanted_corpus

MODEL_OPTIONS = model_options()
"""The class that declares each option of a model."""

SETTINGS_OPTIONS = help_of(TrainingSettings)


@dataclass(frozen=True)
class Plan:
    """Everything that determines a training; images need no prepared data.

    corpus  what the options of a new training say of its text
    model   the model that is trained, if it is not a new one
    merge   write adapters into the weights of the folder that is made at the end
    objective  a reward or preferences, instead of data
    tokenizer  the model's; used where no data is prepared
    """

    folder: Path
    config: ModelConfig
    settings: TrainingSettings
    data: PreparedData | None
    resumes: bool = False
    backend: Backend = NUMPY
    processes: Processes = ALONE
    corpus: Mapping[str, Any] = field(default_factory=dict, compare=False)
    model: Any = None
    merge: bool = False
    objective: Objective | None = None
    tokenizer: Any = None


def new_plan(args: argparse.Namespace, backend: Backend, processes: Processes, locks: ExitStack) -> Plan:
    """Return the plan of a new training, from its recipe and options; the first process locks its folder.

    Under torchrun, which starts a command again if it fails, a training that this command began goes on.
    """
    settings = new_settings(args, processes)
    model, tokenizer = open_start(args, backend, settings.seed) if args.start else (None, None)
    objective = chosen_objective(args)
    if objective is not None:
        return objective_plan(args, objective, settings, model, tokenizer, backend, processes, locks)
    name = recipe_of(model.config) if model else args.kind or TRANSLATION
    reads = reading(name, args)
    dataset = new_dataset(args, reads)
    if learned(name, reads) in DESCRIBED:
        tokenizer = caption_tokenizer(CAPTION_LANGUAGES[args.target or "en"])
    vocab_size = tokenizer.vocab_size if tokenizer else args.vocab_size or default_vocab_size(name, dataset, reads)
    config = model.config if model else new_config(name, args, vocab_size, reads)
    if config.model.compares_rows:
        settings.check_undivided()  # before anything is written
    if model is None or model.tuning is None:
        check_memory(config, settings, backend, processes)
    choice = new_choice(args, reads, dataset, vocab_size, longest_line(name, reads, config))
    corpus = PICTURES[learned(name, reads)][0] if reads == "images" else choice.name
    folder = new_folder(name, args, f"{corpus}-de" if reads == "images" and args.target == "de" else corpus)
    check_output("--out", folder / PICTURE_NAME, [args.data, args.text, args.table])
    if processes.first:
        locks.enter_context(locked(folder))
    path, text = latest(folder), None if reads == "images" else choice
    if processes.first:
        check_folder(folder, path, processes.launched and path is not None and began(path, config, settings, text))
    if args.start and path is None:
        check_made(folder)
    tokens = marked(config, tokenizer, choice, labels_of(model)) if model else None
    data = text and prepared_data(folder / "data", text, processes, tokens)
    options = {"corpus": vars(choice), "model": model, "merge": args.merge, "tokenizer": tokenizer}
    return Plan(folder, config, settings, data, path is not None, backend, processes, **options)


def objective_plan(
    args: argparse.Namespace,
    objective: Objective,
    settings: TrainingSettings,
    model: Any,
    tokenizer: Any,
    backend: Backend,
    processes: Processes,
    locks: ExitStack,
) -> Plan:
    """Return the plan of a new training on rewards or preferences; the first process keeps the model at the start."""
    model = policy_of(model, args.start)
    _ = objective_material(objective, model, tokenizer, model, settings)  # refuses it before anything is written
    settings.check_weighted(objective.rewards.updates)
    folder = Path(args.out or f"runs/{objective.name}")
    for name in (PICTURE_NAME, REFERENCE):
        check_output("--out", folder / name, [args.start, *objective.files])
    if processes.first:
        locks.enter_context(locked(folder))
    path = latest(folder)
    if processes.first:
        goes_on = processes.launched and path is not None and began(path, model.config, settings, None)
        check_folder(folder, path, goes_on)
        if path is None:
            check_made(folder)
            if objective.needs_reference:
                save_reference(model, folder)
    options = {"corpus": objective.to_dict(), "merge": args.merge, "objective": objective, "tokenizer": tokenizer}
    return Plan(folder, model.config, settings, None, path is not None, backend, processes, model=model, **options)


def new_settings(args: argparse.Namespace, processes: Processes) -> TrainingSettings:
    """Return the settings of a new training: those of its recipe or preset, and the options that were given."""
    recipe = RECIPES[args.kind or TRANSLATION].settings or PRESET_SETTINGS[args.preset or "tiny"]
    if args.start:
        recipe = FINE_TUNING | (OBJECTIVE_SETTINGS if args.objective else {})
        recipe |= {"peak_lr": LORA_RATE} if args.lora else {}
    if (updates := getattr(args, "updates", 1)) > 1:  # whole rollouts
        whole = {name: -(-recipe[name] // updates) * updates for name in ("steps", "checkpoint_interval")}
        recipe = dict(recipe) | whole
    shards = {"shards": SHARDS} if processes.launched else {}
    return TrainingSettings(**shards | dict(recipe) | given(args, SETTINGS_OPTIONS))


def new_folder(name: str, args: argparse.Namespace, corpus: str) -> Path:
    """Return the folder of a new training: by default one named for its text and its preset or kind."""
    return Path(args.out or f"runs/{corpus}-{args.preset or ('tiny' if name == TRANSLATION else name)}")


def check_folder(folder: Path, path: Path | None, goes_on: bool) -> None:
    """Raise FileExistsError for a folder with a checkpoint at `path`, unless it goes on, or with others' files."""
    if path is not None and not goes_on:
        raise FileExistsError(
            f"{folder} already holds a training: add --resume to go on with it, or choose another --out"
        )
    check_new(folder)
    say(f"training in {folder}" if path is None else f"going on with the training in {folder}")


def prepared_data(
    folder: Path, choice: CorpusChoice, processes: Processes, tokens: Marked | None = None
) -> PreparedData:
    """Return the text as token ids, which the first process makes and the others find."""
    if not processes.first:
        return found_data(folder, tokens and tokens.tokenizer)
    return prepare(folder, choice, True, tokens)


def began(path: Path, config: ModelConfig, settings: TrainingSettings, choice: CorpusChoice | None) -> bool:
    """Return True if a checkpoint's training is of this model, with these settings, on this text if it reads one."""
    checkpoint = load_checkpoint(path, with_optimizer=False)
    try:
        settings.check_continues(TrainingSettings.from_checkpoint(checkpoint, path))
    except ValueError:
        return False
    return checkpoint.config == config.to_dict() and (choice is None or is_made_from(path.parent / "data", choice))


def reading(name: str, args: argparse.Namespace) -> str:
    """Return "pairs", "lines" or "images", which the model will read. Raises ValueError for options of other data."""
    kinds = RECIPES[name].reads
    if args.text and "lines" not in kinds:
        raise ValueError(f"--text goes with --kind {LINE_KINDS}: --kind {name} reads {kinds[0]}")
    alone = "text" if args.text else "table" if args.table else None
    if alone:
        for option in ("source", "target"):
            if getattr(args, option) is not None:
                raise ValueError(f"--{option} is of a corpus, and --{alone} has one language")
    described = not set(DESCRIBED).isdisjoint(RECIPES[name].learns)
    if described and args.target not in (None, *CAPTION_LANGUAGES):
        raise ValueError(f"--kind {name} knows captions in {' or '.join(CAPTION_LANGUAGES)}, not in {args.target}")
    if kinds == ("images",):
        for option in ("dataset", "data", "source", "vocab_size", *([] if described else ["target"])):
            if getattr(args, option) is not None:
                option = option.replace("_", "-")
                read = PICTURES[learned(name, "images")][1]
                raise ValueError(f"--{option} is of texts, and --kind {name} reads {read}")
    if "pairs" not in kinds and not described and args.target is not None:
        raise ValueError(f"--target is of translations, and --kind {name} reads one language")
    if name != TRANSLATION and args.preset is not None:
        raise ValueError(f"--preset is of translators: --kind {name} has one recipe, and options to change it")
    return "lines" if alone else kinds[0]


def new_config(name: str, args: argparse.Namespace, vocab_size: int, reads: str) -> ModelConfig:
    """Return the configuration of a new model of this kind with the options that were given."""
    check_options(name, args)
    if name == TRANSLATION:
        return preset_config(args, vocab_size)
    values = dict(RECIPES[name].model) | sized(name, reads, vocab_size) | given(args, options_of(name))
    return config_class(name)(**values)


def check_options(name: str, args: argparse.Namespace) -> None:
    """Raise ValueError, naming it, for an option of a model that models of this kind do not have."""
    for option in given(args, MODEL_OPTIONS):
        if option not in options_of(name):
            having = ", ".join(other for other in RECIPES if option in options_of(other))
            raise ValueError(f"--{option.replace('_', '-')} is not an option of --kind {name}, but of {having}")


def check_memory(config: ModelConfig, settings: TrainingSettings, backend: Backend, processes: Processes) -> None:
    """Raise ValueError if weights, gradients and Adam's moments alone need more memory than the backend has."""
    threads = settings.threads if backend.ops is numpy_ops else 1
    gradients = most_gradients(share(settings.shards or threads, processes.rank, processes.size), threads)
    of_threads = f"a gradient for each of {threads} threads"
    held = of_threads if settings.shards is None else f"{gradients} gradients at a time"
    needed, available = least_training_bytes(config, gradients, backend.dtype), backend.memory()
    if available is not None and needed > available:
        raise ValueError(
            f"a model of {config.num_parameters:,} parameters takes at least {as_bytes(needed)} of memory to train: "
            f"weights, {held}, Adam's two moments; there are {as_bytes(available)}"
        )


def preset_config(args: argparse.Namespace, vocab_size: int) -> TransformerConfig:
    """Return the preset's configuration with the options that were given."""
    overrides = given(args, options_of(TRANSLATION))
    if args.preset == "big" and args.target == "fr":
        overrides = {"language_pair": "en-fr"} | overrides
    return getattr(TransformerConfig, args.preset or "tiny")(vocab_size, **overrides)


def resumed_plan(args: argparse.Namespace, backend: Backend, processes: Processes, locks: ExitStack) -> Plan:
    """Return the plan of the training in a folder, which the first process locks; no option may change its results."""
    if args.resume is True and args.out is None:
        raise ValueError("--resume needs the folder of the training: --resume FOLDER")
    refuse_objective(args)
    folder = Path(args.out if args.resume is True else args.resume)
    if args.out is not None and Path(args.out) != folder:
        raise ValueError(f"--resume {folder} and --out {args.out} name two folders, and a training has one")
    check_output("--resume", folder / PICTURE_NAME, [args.data, args.text, args.table])
    if latest(folder) is not None and processes.first:  # only if there is one: locking makes the folder
        locks.enter_context(locked(folder))
    path = latest(folder)  # again: another training may have written meanwhile
    if path is None:
        shared = "" if processes.first else ": all processes need the folder in common"
        raise FileNotFoundError(f"there is no checkpoint to resume from in {folder}{shared}")
    checkpoint = load_checkpoint(path, with_optimizer=False)
    earlier = TrainingSettings.from_checkpoint(checkpoint, path)
    config = checkpoint.model_config()
    name = recipe_of(config)
    if args.kind not in (None, name):
        raise ValueError(f"{path} holds a model of --kind {name}, not {args.kind}")
    reads = reading(name, args)
    check_options(name, args)
    wanted = given(args, MODEL_OPTIONS)
    if args.preset and isinstance(config, TransformerConfig):
        wanted = preset_config(args, config.vocab_size).to_dict()
    refuse_changes(f"the model in {path}", config.to_dict(), wanted)
    settings = replace(earlier, **given(args, SETTINGS_OPTIONS))
    settings.check_continues(earlier)
    if processes.size > 1 and settings.shards is None:
        raise ValueError(
            f"the training in {folder} has no --shards that {processes.size} processes could share: it goes on in one"
        )
    model = resumed_model(checkpoint, backend)
    if args.merge and (model is None or model.tuning is None or not model.tuning.rank):
        raise ValueError(f"--merge writes adapters into the weights, and the training in {folder} has none")
    if model is None or model.tuning is None:
        check_memory(config, settings, backend, processes)
    data, objective = None, kept_objective(checkpoint)
    if objective is not None:
        say(f"going on with the training in {folder} after step {checkpoint.step}")
        policy = policy_of(model or checkpoint.model(backend.ops, backend.dtype), str(path))
        options = {"corpus": objective.to_dict(), "merge": args.merge, "objective": objective}
        options |= {"model": policy, "tokenizer": tokenizer_of(checkpoint)}
        return Plan(folder, config, settings, None, True, backend, processes, **options)
    wanted, tokenizer = wanted_corpus(args), tokenizer_of(checkpoint)
    if reads != "images":
        data = (
            resumed_data(folder / "data", checkpoint, tokenizer, labels_of(model), wanted)
            if processes.first
            else found_data(folder / "data", tokenizer)
        )
        refuse_changes(f"the data in {folder / 'data'}", vars(data.choice), wanted)
    elif args.target:
        (kept,) = (code for code, each in CAPTION_LANGUAGES.items() if each == caption_language(tokenizer))
        refuse_changes(f"the model in {path}", {"target": kept}, {"target": args.target})
    say(f"going on with the training in {folder} after step {checkpoint.step}")
    options = {"model": model, "merge": args.merge, "tokenizer": tokenizer}
    return Plan(folder, config, settings, data, True, backend, processes, **options)
