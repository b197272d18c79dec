"""Train a Transformer, or with --kind a GPT, BERT, T5, ViT, captioner or CLIP. A translator's preset, or another kind's
recipe, gives every hyper-parameter; each option overrides one. `info --preset NAME` shows a preset's sizes.

examples:
  {program} train --dataset multi30k --preset tiny --out runs/captions
  {program} train --dataset grammar --target fr --preset demo --steps 1000
  {program} train --data my_corpus --source en --target it --vocab-size 4000
  {program} train --kind gpt --text stories.txt --out runs/stories
  {program} train --kind bert --dataset grammar
  {program} train --kind vit
  {program} train --kind captioner --target de
  {program} train --kind clip
  {program} train --from gpt2 --text stories.txt --lora 8 --out runs/stories
  {program} train --from bert-base-uncased --table reviews.tsv --freeze 'tokens.*' 'encoder.layers.[0-7].*'
  {program} train --from runs/gpt/step-00003000.safetensors --objective grpo --reward grammar
  {program} train --from gpt2 --objective dpo --pairs pairs.tsv --lora 8
  {program} train --resume runs/captions
  {program} train --resume runs/captions --steps 8000
  torchrun --standalone --nproc-per-node 2 -m minitransformer train --dataset multi30k

A GPT learns the next token, a BERT masked ones (of 15 %: 80 % hidden, 10 % replaced, 10 % kept), a T5 to fill gaps in a
--text or to translate a --dataset, a ViT scikit-learn's handwritten digits, a captioner to describe pictures of
coloured shapes in English or German (--target), which the program draws anew for each step, a CLIP to find the text of
such a picture among many. With --from a published model goes on learning, a BERT also the labels of texts (--table), a
language model also from rewards of texts that it draws, or from pairs of which one text is preferred (--objective). At
the end the folder gets model/, which `transformers` reads, or with --lora adapter/, which PEFT reads beside the model
that it came from.

The folder gets the checkpoints (step-*.safetensors), log.jsonl (one line a step), loss.png, and in data/ the
tokenizer and the token ids. Ctrl-C saves and says how to go on; a killed training goes on from its last checkpoint.
While one runs, minitransformer.lock stands there and keeps others out.

Under torchrun processes share each step. They need the folder in common, the first one writes, and the result has the
same bits for every number of processes. What torchrun starts again goes on from the last checkpoint.
"""

import argparse
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..config import help_of
from ..data.preparation import DATASETS, CorpusChoice
from ..models import PRESETS, build_model
from ..training import LOG_NAME, PICTURE_NAME, Trainer, TrainingOutcome, TrainingSettings, read_log
from ..training.parallel.launch import is_torchrun, torchrun_command
from ..training.parallel.processes import Processes
from .backend import add_backend_options, chosen_backend
from .common import (
    Parser,
    add_field_options,
    add_option,
    add_timeout_option,
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
from .fine_tuning import add_start_options, check_start, write_folders
from .objectives import add_objective_options, objective_material, open_reference
from .plan import MODEL_OPTIONS, SETTINGS_OPTIONS, Plan, new_plan, resumed_plan
from .recipes import (
    ENGLISH_VOCAB_SIZE,
    EXAMPLES,
    LINE_KINDS,
    PRESET_SETTINGS,
    RECIPES,
    TRANSLATION,
    learned_from,
    material,
    varied_options,
)

PRESET_SIZES = ("d_model", "num_heads", "d_ff", "num_layers", "dropout", "max_length", "init_gain")
"""Fields of TransformerConfig that presets set."""

MOST_SENTENCES = 100_000_000
"""The most sentences that the grammar writes: twenty times the paper's 4.5 million pairs, gigabytes of tokens."""

HELP = "train a model on the grammar, on Multi30k or on your own text"


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
    help_text = "language to translate into: de (default), fr, or your files' suffix; to describe in: en (default), de"
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
    """Return the tokenizer of a plan's texts or captions; None for images with classes."""
    return plan.data.tokenizer if plan.data else plan.tokenizer


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
        data = material(plan.config, plan.data, plan.settings, plan.processes, plan.tokenizer)
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
