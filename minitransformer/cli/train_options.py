"""The options of `train`: where the text comes from, the model's hyper-parameters and the training's."""

import argparse
from typing import Any

from ..data.preparation import DATASETS, CorpusChoice
from ..models import PRESETS, TransformerConfig
from ..training import TrainingSettings
from .backend import add_backend_options
from .common import add_field_options, language, path_name, positive_int, whole_number

CORPUS_OPTIONS = ("dataset", "data", "source", "target", "vocab_size", "sentences")

MODEL_OPTIONS = {
    "d_model": "width of the model",
    "num_heads": "attention heads; they share d_model",
    "d_ff": "width inside the feed-forward layers",
    "num_layers": "layers of the encoder, and of the decoder",
    "num_decoder_layers": "layers of the decoder, if others than the encoder's",
    "d_k": "width of a head's queries and keys (default: d_model / num_heads)",
    "d_v": "width of a head's values (default: d_model / num_heads)",
    "dropout": "rate on the embeddings and on the output of each sub-layer",
    "attention_dropout": "rate on the attention weights",
    "positions": "the paper's sine waves, or one learned vector for each position",
    "norm_first": "normalise before each sub-layer instead of after it",
    "max_length": "longest sentence in tokens; longer training pairs are left out",
    "window": "self-attention reaches this many tokens to either side (default: all)",
    "layernorm_eps": "what layer normalisation adds to the variance",
    "init_gain": "where matrices start: this times Xavier's bound",
}
"""Help for each field of TransformerConfig that a training may choose."""

SETTINGS_OPTIONS = {
    "steps": "optimiser steps in all",
    "minutes": "stop after this long, ready to be resumed",
    "tokens_per_batch": "longest side × sentences of a batch, at most",
    "accumulate": "batches whose gradients make one step",
    "label_smoothing": "share of the target's probability that is spread over the vocabulary",
    "clip_norm": "longest norm of a step's gradient (default: no limit)",
    "warmup_steps": "steps until the learning rate's peak",
    "peak_lr": "that peak (default of base and big: the paper's, (d_model × warmup_steps)^-0.5)",
    "beta1": "Adam's decay of the mean gradient",
    "beta2": "Adam's decay of the mean squared gradient",
    "eps": "Adam's ε",
    "seed": "of the initial weights, the order of the data and dropout",
    "threads": "threads that share a batch",
    "valid_interval": "steps from one validation to the next",
    "checkpoint_interval": "steps from one checkpoint to the next",
    "keep": "how many checkpoints stay",
}
"""Help for each field of TrainingSettings."""

PRESET_SIZES = ("d_model", "num_heads", "d_ff", "num_layers", "dropout", "max_length", "init_gain")
"""Fields of TransformerConfig that presets set."""

PRESET_SETTINGS: dict[str, dict[str, Any]] = {
    "demo": {
        "steps": 1600,
        "tokens_per_batch": 2048,
        "warmup_steps": 300,
        "peak_lr": 5e-3,
        "valid_interval": 200,
        "checkpoint_interval": 40,
    },
    # Paper: §5.3's peak would be (d_model · warmup_steps)^-0.5 = 0.002; the recipe for Multi30k names its own.
    "tiny": {"steps": 4000, "warmup_steps": 2000, "peak_lr": 5e-3, "valid_interval": 500, "checkpoint_interval": 500},
    "base": {"steps": 100_000, "tokens_per_batch": 25_000},
    "big": {"steps": 300_000, "tokens_per_batch": 25_000},
}
"""How each preset is trained unless told otherwise: `base` and `big` as in the paper, §5.3 and Table 3."""

VOCAB_SIZE = 8000
"""Of any text but the grammar's."""

MOST_SENTENCES = 100_000_000
"""Of the grammar: twenty times the 4.5 million of the paper's English-German, and gigabytes of tokens."""

EPILOG = """\
examples:
  {program} train --dataset multi30k --preset tiny --out runs/captions
  {program} train --dataset grammar --target fr --preset demo --steps 1000
  {program} train --data my_corpus --source en --target it --vocab-size 4000
  {program} train --resume runs/captions
  {program} train --resume runs/captions --steps 8000

The folder gets the checkpoints (step-*.safetensors), log.jsonl (one line a step), loss.png, and in data/ the
tokenizer and the token ids. Ctrl-C saves and says how to go on; a killed training goes on from its last checkpoint.
While one runs, minitransformer.lock stands there and keeps others out.
"""


def add_train_parser(commands: Any) -> argparse.ArgumentParser:
    """The parser of `train`."""
    parser = commands.add_parser(
        "train",
        help="train a model on the grammar, on Multi30k or on your own text",
        usage="%(prog)s [OPTION ...]",
        description="Train a Transformer. The preset gives every hyper-parameter; each option overrides one. "
        "`info --preset NAME` shows a preset's sizes.",
        epilog=EPILOG,
    )
    _add_run_options(parser.add_argument_group("the run"))
    _add_text_options(parser.add_argument_group("the text"))
    model = parser.add_argument_group("the model")
    model.add_argument("--preset", choices=PRESETS, help="sizes, and how to train them, to start from (default: tiny)")
    add_field_options(model, TransformerConfig, MODEL_OPTIONS, PRESET_SIZES)
    training = parser.add_argument_group("the training")
    add_field_options(training, TrainingSettings, SETTINGS_OPTIONS, set().union(*PRESET_SETTINGS.values()))
    return parser


def _add_run_options(group: argparse._ArgumentGroup) -> None:
    help_text = "where everything goes (default: runs/CORPUS-PRESET)"
    group.add_argument("--out", type=path_name, metavar="FOLDER", help=help_text)
    group.add_argument(
        "--resume",
        nargs="?",
        const=True,
        type=path_name,
        metavar="FOLDER",
        help="go on with the training in FOLDER, or in that of --out; all but the backend is known from there",
    )
    add_backend_options(group)


def _add_text_options(group: argparse._ArgumentGroup) -> None:
    corpus = group.add_mutually_exclusive_group()
    corpus.add_argument(
        "--dataset",
        choices=DATASETS,
        help="the built-in grammar's sentences (default), or 29,000 image captions (downloaded once)",
    )
    corpus.add_argument(
        "--data",
        type=path_name,
        metavar="DIR",
        help="your own text: train.en and train.de with as many lines, valid.en and valid.de; .gz too",
    )
    help_text = "language to translate from, the files' suffix (default: en)"
    group.add_argument("--source", type=language, metavar="LANG", help=help_text)
    help_text = "language to translate into: de (default), fr, or your files' suffix"
    group.add_argument("--target", type=language, metavar="LANG", help=help_text)
    help_text = f"tokens of the joint vocabulary (default: {VOCAB_SIZE}; grammar {CorpusChoice.vocab_size})"
    group.add_argument("--vocab-size", type=positive_int, metavar="N", help=help_text)
    help_text = f"pairs that the grammar writes for training (default: {CorpusChoice.sentences})"
    group.add_argument("--sentences", type=whole_number(most=MOST_SENTENCES), metavar="N", help=help_text)
