"""What `train` can train: for each kind of model its configuration, a recipe, its data, and what a validation tells."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from math import log
from typing import Any, cast

from ..config import help_of
from ..data.digits import NUM_CLASSES, SIZE, digits
from ..data.masked import MaskedText
from ..data.preparation import PreparedData
from ..data.spans import SENTINELS, SpanText
from ..data.text import TextDataset
from ..decoding import Translator
from ..evaluation import accuracy, evaluate
from ..models import BERTConfig, GPTConfig, ModelConfig, T5Config, TransformerConfig, ViTConfig
from ..training import Dataset, TrainingSettings
from ..training.parallel.processes import ALONE, Processes
from .common import in_groups

BLEU_SENTENCES = 500
"""How many sentences a validation translates to compute BLEU."""

Figures = Callable[[Any, Mapping[str, float]], Mapping[str, float]]
"""More figures of a validation, from the model and the figures so far: see `Trainer`."""


@dataclass(frozen=True)
class Kind:
    """A kind of model that `train` trains, unless it has presets, with one recipe.

    reads      "pairs", "lines" of a text, both, or "images"
    model      fields of the configuration
    settings   fields of the training's settings
    vocab_size the default number of tokens of a vocabulary, for text other than the grammar's
    example    the command that tries the model
    """

    config: type[ModelConfig]
    reads: tuple[str, ...]
    example: str
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    vocab_size: int = 8000

    @property
    def options(self) -> dict[str, str]:
        """The help text of each field of the configuration that a training may choose."""
        return {name: text for name, text in help_of(self.config).items() if text and name not in OF_THE_DATA}


OF_THE_DATA = {"num_classes", "image_size", "channels", "token_types", "vocab_size"}
"""Fields that follow from the data."""

SMALL = {"d_model": 128, "num_heads": 4, "d_ff": 512, "max_length": 128}
BRIEFLY = {"label_smoothing": 0.0, "clip_norm": 1.0, "valid_interval": 200, "checkpoint_interval": 200}

KINDS: dict[str, Kind] = {
    "translation": Kind(TransformerConfig, ("pairs",), 'translate {model} "A dog runs."'),
    "gpt": Kind(
        GPTConfig,
        ("lines",),
        'generate {model} "A dog"',
        SMALL | {"num_layers": 4, "bos_id": 2, "eos_id": 2, "attention_dropout": 0.0},
        BRIEFLY | {"steps": 3000, "tokens_per_batch": 2048, "warmup_steps": 200, "peak_lr": 3e-3},
        3000,
    ),
    "bert": Kind(
        BERTConfig,
        ("lines",),
        'fill {model} "A [MASK] runs."',
        SMALL | {"num_layers": 2, "attention_dropout": 0.0},
        BRIEFLY | {"steps": 4000, "tokens_per_batch": 4096, "warmup_steps": 400, "peak_lr": 2e-3},
        3000,
    ),
    "t5": Kind(
        T5Config,
        ("pairs", "lines"),
        'translate {model} "A dog runs."',
        # One table of tokens that starts as the paper's, and scaled scores: both suit Adam, whose steps have one size.
        SMALL
        | {"num_layers": 2, "d_k": 32, "dropout": 0.0, "bos_id": 1, "eos_id": 2}
        | {"scale_output": False, "scaled_scores": True},
        BRIEFLY
        | {"steps": 1600, "tokens_per_batch": 2048, "warmup_steps": 300, "peak_lr": 5e-3, "label_smoothing": 0.1},
    ),
    "vit": Kind(
        ViTConfig,
        ("images",),
        "classify {model} --digits 5",
        {"image_size": SIZE, "num_classes": NUM_CLASSES, "channels": 1, "patch_size": 2}
        # The usual 0.02 is for wide models: at this width patches and classes would hardly differ at first.
        | {"d_model": 64, "num_heads": 4, "d_ff": 128, "num_layers": 2, "dropout": 0.1, "init_std": 0.08},
        BRIEFLY
        | {"steps": 2000, "tokens_per_batch": 1088, "warmup_steps": 100, "peak_lr": 1e-3}
        | {"label_smoothing": 0.1},
    ),
}


def kind_of(config: ModelConfig) -> str:
    """The name of the kind of model. Raises ValueError for one that `train` doesn't train."""
    for name, kind in KINDS.items():
        if type(config) is kind.config:
            return name
    return "translation"  # a baseline's


def example_of(name: str, reads: str) -> str:
    """The command that tries a model; a T5 fills gaps, or translates what it learned from pairs."""
    return KINDS["bert" if (name, reads) == ("t5", "lines") else name].example.replace(
        "[MASK]", "[MASK]" if name == "bert" else "<extra_id_0>"
    )


def model_options() -> dict[str, type[ModelConfig]]:
    """The class that declares each option of a model: of several that have it, the one that allows most words."""
    declared: dict[str, type[ModelConfig]] = {}
    for kind in KINDS.values():
        for name in kind.options:
            declared.setdefault(name, kind.config)
    return declared | dict.fromkeys(("positions", "norm_first"), GPTConfig)


def varied_options() -> set[str]:
    """The options of models whose default depends on the kind or the preset."""
    defaults: dict[str, set[Any]] = {}
    for kind in KINDS.values():
        values = {each.name: each.default for each in fields(cast(Any, kind.config))} | dict(kind.model)
        for name in kind.options:
            defaults.setdefault(name, set()).add(values[name])
    return {name for name, values in defaults.items() if len(values) > 1}


def sized(name: str, reads: str, vocab_size: int) -> dict[str, int]:
    """The fields of a configuration that follow from a tokenizer of `vocab_size` tokens."""
    if reads == "images":
        return {}
    if name == "bert":
        return {"vocab_size": vocab_size + 1, "mask_id": vocab_size}
    return {"vocab_size": vocab_size + SENTINELS if (name, reads) == ("t5", "lines") else vocab_size}


def longest_line(name: str, reads: str, config: Any) -> int:
    """The longest line or sentence that the data keeps: lines that a stream joins may have any length."""
    return sys.maxsize if reads == "images" or (reads == "lines" and name != "bert") else config.max_length


@dataclass(frozen=True)
class Material:
    """What a model is trained and validated on, and what is told of it beside the loss."""

    train: Dataset[Any]
    valid: Dataset[Any]
    figures: Figures
    examples: str


def material(
    name: str, data: PreparedData | None, settings: TrainingSettings, processes: Processes = ALONE
) -> Material:
    """What a kind of model makes of the prepared data; images need none. The processes share each validation."""
    if data is None:
        train, valid = digits()
        return Material(train, valid, partial(_accuracy, valid, settings, processes), "images")
    if data.choice.languages is not None:
        return Material(data.train, data.valid, partial(_bleu, data, settings, processes), "training pairs")
    train, valid = TextDataset(data.train), TextDataset(data.valid)
    if name == "bert":
        train, valid = MaskedText(train), MaskedText(valid)
        return Material(train, valid, partial(_accuracy, valid, settings, processes), "training lines")
    if name == "t5":
        return Material(SpanText(train), SpanText(valid), lambda model, figures: {}, "training lines")
    num_bytes = sum(len(data.tokenizer.decode(line).encode("utf-8", "replace")) + 1 for line in valid)
    return Material(train, valid, partial(_bits_per_byte, len(valid.stream) / num_bytes), "training lines")


def _bits_per_byte(tokens_per_byte: float, model: Any, figures: Mapping[str, float]) -> dict[str, float]:
    """The bits that the model needs for a byte of the text, a line's end counted as one byte."""
    return {"bits_per_byte": figures["validation_loss"] * tokens_per_byte / log(2)}


def _accuracy(
    valid: Dataset[Any], settings: TrainingSettings, processes: Processes, model: Any, figures: Mapping[str, float]
) -> dict[str, float]:
    """The share of the targets that the model finds most probable, in percent."""
    size = max(4096, settings.tokens_per_batch)  # one setting for most trainings, and room for the longest line
    return {"accuracy": accuracy(model, valid.batches(size, None, model.config).epoch(0), processes.map)}


def _bleu(
    data: PreparedData, settings: TrainingSettings, processes: Processes, model: Any, figures: Mapping[str, float]
) -> dict[str, float]:
    """The BLEU of greedy translations of the first validation sentences, which are shared out in as many groups as a
    batch.
    """
    sources, references = data.valid_sentences(BLEU_SENTENCES)
    translator = Translator(model, data.tokenizer, threads=settings.threads)
    translations = in_groups(partial(translator.translate, beam=1), sources, settings.shards or 1, processes.map)
    return {"bleu": evaluate(translations, references).bleu}
