"""Train a Transformer, or with --kind a GPT, BERT, T5 or ViT. A translator's preset, or another kind's recipe, gives
every hyper-parameter; each option overrides one. `info --preset NAME` shows a preset's sizes.

examples:
  {program} train --dataset multi30k --preset tiny --out runs/captions
  {program} train --dataset grammar --target fr --preset demo --steps 1000
  {program} train --data my_corpus --source en --target it --vocab-size 4000
  {program} train --kind gpt --text stories.txt --out runs/stories
  {program} train --kind bert --dataset grammar
  {program} train --kind vit
  {program} train --from gpt2 --text stories.txt --lora 8 --out runs/stories
  {program} train --from bert-base-uncased --table reviews.tsv --freeze 'tokens.*' 'encoder.layers.[0-7].*'
  {program} train --from runs/gpt/step-00003000.safetensors --objective grpo --reward grammar
  {program} train --from gpt2 --objective dpo --pairs pairs.tsv --lora 8
  {program} train --resume runs/captions
  {program} train --resume runs/captions --steps 8000
  torchrun --standalone --nproc-per-node 2 -m minitransformer train --dataset multi30k

A GPT learns the next token, a BERT masked ones (of 15 %: 80 % hidden, 10 % replaced, 10 % kept), a T5 to fill gaps in
a --text or to translate a --dataset, a ViT scikit-learn's handwritten digits. With --from a published model goes on
learning, a BERT also the labels of texts (--table), a language model also from rewards of texts that it draws, or from
pairs of which one text is preferred (--objective). At the end the folder gets model/, which `transformers` reads, or
with --lora adapter/, which PEFT reads beside the model that it came from.

The folder gets the checkpoints (step-*.safetensors), log.jsonl (one line a step), loss.png, and in data/ the
tokenizer and the token ids. Ctrl-C saves and says how to go on; a killed training goes on from its last checkpoint.
While one runs, minitransformer.lock stands there and keeps others out.

Under torchrun processes share each step. They need the folder in common, the first one writes, and the result has the
same bits for every number of processes. What torchrun starts again goes on from the last checkpoint.
"""

import argparse
import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..config import help_of
from ..costs import least_training_bytes, most_gradients
from ..data.preparation import DATASETS, CorpusChoice, PreparedData, is_made_from, prepare
from ..data.text import Marked
from ..decoding import tokenizer_of
from ..models import PRESETS, ModelConfig, TransformerConfig, build_model
from ..ops import numpy_ops
from ..system.lock import locked
from ..training import LOG_NAME, PICTURE_NAME, Trainer, TrainingOutcome, TrainingSettings, check_new, read_log
from ..training.checkpoint import latest, load_checkpoint
from ..training.parallel.launch import is_torchrun, torchrun_command
from ..training.parallel.processes import ALONE, Processes
from ..training.parallel.shards import SHARDS, share
from .backend import NUMPY, Backend, add_backend_options, chosen_backend
from .common import (
    Parser,
    add_field_options,
    add_option,
    add_timeout_option,
    as_bytes,
    given,
    heavy_work,
    invocation,
    language,
    path_name,
    positive_int,
    say,
    silent_unless,
    whole_number,
)
from .errors import INTERRUPTED
from .fine_tuning import (
    FINE_TUNING,
    LORA_RATE,
    add_start_options,
    check_made,
    check_start,
    open_start,
    resumed_model,
    write_folders,
)
from .objectives import SETTINGS as OBJECTIVE_SETTINGS
from .objectives import (
    Objective,
    add_objective_options,
    chosen_objective,
    kept_objective,
    objective_material,
    open_reference,
    policy_of,
    save_reference,
)
from .outputs import check_output
from .recipes import (
    ENGLISH_VOCAB_SIZE,
    EXAMPLES,
    LINE_KINDS,
    PRESET_SETTINGS,
    RECIPES,
    TRANSLATION,
    config_class,
    default_vocab_size,
    labels_of,
    learned_from,
    longest_line,
    marked,
    material,
    model_options,
    options_of,
    recipe_of,
    sized,
    varied_options,
)
from .training_text import (
    found_data,
    new_choice,
    new_dataset,
    refuse_changes,
    resumed_data,
    wanted_corpus,
)

MODEL_OPTIONS = model_options()
"""The class that declares each option of a model."""

SETTINGS_OPTIONS = help_of(TrainingSettings)

PRESET_SIZES = ("d_model", "num_heads", "d_ff", "num_layers", "dropout", "max_length", "init_gain")
"""Fields of TransformerConfig that presets set."""

MOST_SENTENCES = 100_000_000
"""The most sentences that the grammar writes: twenty times the paper's 4.5 million pairs, gigabytes of tokens."""

HELP = "train a model on the grammar, on Multi30k or on your own text"


@dataclass(frozen=True)
class Plan:
    """Everything that determines a training; images need no prepared data.

    corpus  what the options of a new training say of its text
    model   the model that is trained, if it is not a new one
    merge   write adapters into the weights of the folder that is made at the end
    objective  a reward or preferences, instead of data; then `tokenizer` is the model's
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


def add_options(parser: Parser) -> None:
    """Declare the options of `train`."""
    parser.usage = "%(prog)s [OPTION ...]"
    group = parser.add_argument_group("the run")
    add_option(group, "--out", "FOLDER", path_name, "where everything goes (default: runs/CORPUS-PRESET)")
    help_text = "go on with the training in FOLDER, or in that of --out; all but the backend is known from there"
    add_option(group, "--resume", "FOLDER", path_name, help_text, nargs="?", const=True)
    add_backend_options(group)
    add_timeout_option(group)
    add_start_options(parser)
    add_objective_options(parser)
    help_text = "what to train (default: translation, the paper's model)"
    group.add_argument("--kind", choices=RECIPES, help=help_text)
    group = parser.add_argument_group("the text")
    corpus = group.add_mutually_exclusive_group()
    help_text = "the built-in grammar's sentences (default), or 29,000 image captions (downloaded once)"
    corpus.add_argument("--dataset", choices=DATASETS, help=help_text)
    help_text = "your own text: train.en and train.de with as many lines, valid.en and valid.de; .gz too"
    add_option(corpus, "--data", "DIR", path_name, help_text)
    help_text = f"a text for --kind {LINE_KINDS}: each line is a text of its own, the last 5 %% validate; .gz too"
    add_option(corpus, "--text", "FILE", path_name, help_text)
    help_text = "with --from, texts with labels for a BERT: each line a text, a tab, a label; every 20th validates"
    add_option(corpus, "--table", "FILE", path_name, help_text)
    add_option(group, "--source", "LANG", language, "language to translate from, the files' suffix (default: en)")
    help_text = "language to translate into: de (default), fr, or your files' suffix"
    add_option(group, "--target", "LANG", language, help_text)
    sizes = f"{RECIPES[TRANSLATION].vocab_size}, grammar {CorpusChoice.vocab_size}"
    sizes += f"; of one language {RECIPES['gpt'].vocab_size}, grammar {ENGLISH_VOCAB_SIZE}"
    help_text = f"tokens of the joint vocabulary (default: {sizes})"
    add_option(group, "--vocab-size", "N", positive_int, help_text)
    help_text = f"sentences that the grammar writes for training (default: {CorpusChoice.sentences})"
    add_option(group, "--sentences", "N", whole_number(most=MOST_SENTENCES), help_text)
    group = parser.add_argument_group("the model")
    help_text = "sizes of a translator, and how to train them, to start from (default: tiny)"
    group.add_argument("--preset", choices=PRESETS, help=help_text)
    for cls in dict.fromkeys(MODEL_OPTIONS.values()):
        texts = {name: text for name, text in help_of(cls).items() if MODEL_OPTIONS.get(name) is cls}
        add_field_options(group, cls, texts, {*PRESET_SIZES, *varied_options()})
    group = parser.add_argument_group("the training")
    recipes = [*PRESET_SETTINGS.values(), *(recipe.settings for recipe in RECIPES.values())]
    add_field_options(group, TrainingSettings, SETTINGS_OPTIONS, set().union(*recipes))


def run(args: argparse.Namespace) -> int:
    """Train, or resume a training, and say where the result is."""
    if args.dtype == "float16":
        raise ValueError("small gradients are 0 in float16: train in bfloat16 or float32 (float16 is for translating)")
    check_start(args)
    backend = chosen_backend(args)
    with (
        heavy_work(),
        Processes.join(backend.device, args.timeout) as processes,
        silent_unless(processes.first),
        ExitStack() as locks,
    ):
        make, plan = (resumed_plan if args.resume else new_plan), None
        with processes.together(patient=True):  # the first process prepares what the others then find
            if processes.first:
                plan = make(args, backend, processes, locks)
        with processes.together():
            plan = plan or make(args, backend, processes, locks)
        processes.agree(**plan.corpus)
        report(args, plan, outcome := train(plan))
    # A training that was asked to stop has failed in a shell's eyes, and torchrun would start it again.
    return INTERRUPTED if outcome.reason == "interrupted" and not processes.launched else 0


def report(args: argparse.Namespace, plan: Plan, outcome: TrainingOutcome) -> None:
    """Say where the result is, and what to do with it."""
    if outcome.reason == "finished":
        say(str(outcome))  # otherwise the trainer has said it above the progress bar
    else:
        again = torchrun_command() if plan.processes.launched and is_torchrun() else invocation()
        say(f"to go on: {again} train --resume {shlex.quote(str(plan.folder))}{_backend_options(args)}")
    if outcome.checkpoint is not None:
        learned = "next" if plan.objective else learned_from(plan.config, plan.data and plan.data.choice)
        example = EXAMPLES[learned]
        say(f"try it:   {invocation()} {example.format(model=shlex.quote(str(outcome.checkpoint)))}")


def _backend_options(args: argparse.Namespace) -> str:
    """Return the options that name the backend, which resuming must repeat: a checkpoint does not hold them."""
    chosen = {name: getattr(args, name) for name in ("backend", "dtype", "device")}
    return "".join(f" --{name} {value}" for name, value in chosen.items() if value not in (None, "numpy"))


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
    vocab_size = tokenizer.vocab_size if tokenizer else args.vocab_size or default_vocab_size(name, dataset, reads)
    config = model.config if model else new_config(name, args, vocab_size, reads)
    if model is None or model.tuning is None:
        check_memory(config, settings, backend, processes)
    choice = new_choice(args, reads, dataset, vocab_size, longest_line(name, reads, config))
    folder = new_folder(name, args, "digits" if reads == "images" else choice.name)
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
    return Plan(folder, config, settings, data, path is not None, backend, processes, vars(choice), model, args.merge)


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
    folder = Path(args.out or f"runs/{objective.name}")
    check_output("--out", folder / PICTURE_NAME, objective.files)
    if processes.first:
        locks.enter_context(locked(folder))
    path = latest(folder)
    if processes.first:
        goes_on = processes.launched and path is not None and began(path, model.config, settings, None)
        check_folder(folder, path, goes_on)
        if path is None:
            check_made(folder)
            save_reference(model, folder)
    options = {"corpus": objective.to_dict(), "merge": args.merge, "objective": objective, "tokenizer": tokenizer}
    return Plan(folder, model.config, settings, None, path is not None, backend, processes, model=model, **options)


def new_settings(args: argparse.Namespace, processes: Processes) -> TrainingSettings:
    """Return the settings of a new training: those of its recipe or preset, and the options that were given."""
    recipe = RECIPES[args.kind or TRANSLATION].settings or PRESET_SETTINGS[args.preset or "tiny"]
    if args.start:
        recipe = FINE_TUNING | (OBJECTIVE_SETTINGS if args.objective else {})
        recipe |= {"peak_lr": LORA_RATE} if args.lora else {}
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
    if kinds == ("images",):
        for option in ("dataset", "data", "source", "target", "vocab_size"):
            if getattr(args, option) is not None:
                option = option.replace("_", "-")
                raise ValueError(f"--{option} is of texts, and --kind {name} reads scikit-learn's digits")
    if "pairs" not in kinds and args.target is not None:
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
    if reads != "images":
        wanted, tokenizer = wanted_corpus(args), tokenizer_of(checkpoint)
        data = (
            resumed_data(folder / "data", checkpoint, tokenizer, labels_of(model), wanted)
            if processes.first
            else found_data(folder / "data", tokenizer)
        )
        refuse_changes(f"the data in {folder / 'data'}", vars(data.choice), wanted)
    say(f"going on with the training in {folder} after step {checkpoint.step}")
    return Plan(folder, config, settings, data, True, backend, processes, model=model, merge=args.merge)


def train(plan: Plan) -> TrainingOutcome:
    """Train as planned, and draw `loss.png` into the folder of the checkpoints and the log."""
    with plan.processes.together():
        trainer = trainer_of(plan)
    outcome = trainer.train()
    if plan.processes.first:
        draw_losses(plan.folder)
        tokenizer = tokenizer_in(plan)
        if outcome.reason == "finished" and tokenizer and trainer.model.origin is not None:
            say_folders(plan, write_folders(trainer.model, tokenizer, plan.folder, plan.merge))
    return outcome


def tokenizer_in(plan: Plan) -> Any:
    """Return the tokenizer of a plan's texts; None for images."""
    return plan.tokenizer or (plan.data and plan.data.tokenizer)


def say_folders(plan: Plan, made: list[Path]) -> None:
    """Say which folders were written, and what PEFT does not find: a model that adapters belong to and that is a file.

    PEFT loads folders, and names of the hub.
    """
    say(f"wrote {' and '.join(map(str, made))}")
    base = plan.model.origin.name
    if made[-1].name == "adapter" and Path(base).is_file():
        merge = f"{invocation()} train --resume {shlex.quote(str(plan.folder))} --merge"
        say(f"PEFT can't load {base}, which the adapters belong to: `{merge}` writes the whole model")


def trainer_of(plan: Plan) -> Trainer:
    """Return the trainer that a plan describes, resumed where the plan goes on with a training."""
    if plan.settings.shards is not None and plan.backend.ops.has_threads:
        from kernels import availability

        availability.use_threads(1)  # of the CPU: with another number results would have other bits
    model = plan.model or build_model(plan.config, plan.backend.ops, plan.backend.dtype, plan.settings.seed)
    if plan.objective is None:
        data = material(plan.config, plan.data, plan.settings, plan.processes)
    else:
        reference = open_reference(plan.objective, plan.folder, plan.backend)
        data = objective_material(plan.objective, model, plan.tokenizer, reference, plan.settings)
    left_out = f" ({plan.data.train.num_dropped:,} left out)" if plan.data else ""
    say(
        f"{model.parameters.count:,} parameters, {len(data.train):,} {data.examples}{left_out}, "
        f"{plan.settings.steps:,} steps; {plan.backend}"
    )
    trainer = Trainer(
        model,
        data.train,
        plan.settings,
        folder=plan.folder,
        valid=data.valid,
        tokenizer=tokenizer_in(plan),
        languages=plan.data and plan.data.choice.languages,
        evaluate=data.figures,
        on_validation=lambda: draw_losses(plan.folder),
        processes=plan.processes,
    )
    if plan.resumes:
        trainer.resume()
    return trainer


def draw_losses(folder: Path, picture: Path | None = None) -> None:
    """Draw the log so far as `picture`, by default `loss.png` in its folder; without a log nothing is drawn."""
    from ..plots import plot_loss

    log = folder / LOG_NAME
    records = read_log(log) if log.exists() else []
    if records:
        plot_loss(records, picture or folder / PICTURE_NAME)
