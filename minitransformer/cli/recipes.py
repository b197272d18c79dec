"""The recipes of `train`: for each kind of model its defaults, its data, and the figures of a validation.

A kind of `models.KINDS` can be trained from the command line once it has a recipe here.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from math import log
from typing import Any, Literal, cast

import numpy as np

from ..config import help_of
from ..data import BPETokenizer
from ..data.batching import OURS, Marks
from ..data.digits import NUM_CLASSES, SIZE, digits
from ..data.labelled import LabelledText
from ..data.masked import MaskedText
from ..data.preparation import CorpusChoice, PreparedData, TableChoice
from ..data.scenes import SceneDataset, caption_language, caption_tokenizer, scenes
from ..data.spans import SENTINELS, SpanText
from ..data.text import Marked, TextDataset
from ..decoding import Describer, Matcher, Translator
from ..evaluation import accuracy, evaluate, recall
from ..grammar.captions import judge
from ..grammar.scenes import draw
from ..models import DEFAULT_KIND, KINDS, GPTConfig, ModelConfig, StacksConfig, TranslationConfig
from ..training import Dataset, TrainingSettings
from ..training.parallel.processes import ALONE, Processes
from .common import in_groups

BLEU_SENTENCES = 500
"""The number of sentences that a validation translates to compute BLEU."""

Figures = Callable[[Any, Mapping[str, float]], Mapping[str, float]]
"""More figures of a validation, from the model and the figures so far: see `Trainer`."""


Learned = Literal["pairs", "next", "masked", "spans", "classes", "images", "captions", "matches"]
"""What a model may learn: of pairs to translate; of lines the next token, masked ones, spans, labels; of images their
classes, their captions, which of many captions is theirs."""

EXAMPLES: dict[Learned, str] = {
    "pairs": 'translate {model} "A dog runs."',
    "next": 'generate {model} "A dog"',
    "masked": 'fill {model} "A [MASK] runs."',
    "spans": 'fill {model} "A <extra_id_0> runs."',
    "classes": 'classify {model} "A dog runs."',
    "images": "classify {model} --digits 5",
    "captions": "caption {model} --scene 5",
    "matches": "info {model}",
}
"""The command that tries a model, by what it learned."""


@dataclass(frozen=True)
class Recipe:
    """The way in which `train` trains a kind of model; the paper's has presets besides.

    learns     what it learns of its data: of one kind of data one thing
    model      fields of the configuration
    settings   fields of the training's settings
    vocab_size the default number of tokens of a vocabulary, for text other than the grammar's
    """

    learns: tuple[Learned, ...]
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    vocab_size: int = 8000

    @property
    def reads(self) -> tuple[str, ...]:
        """The data that it takes: "pairs", "lines" of a text, both, or "images"."""
        return tuple("pairs" if each == "pairs" else "images" if each in PICTURES else "lines" for each in self.learns)


PICTURES: dict[Learned, tuple[str, str]] = {
    "images": ("digits", "scikit-learn's digits"),
    "captions": ("scenes", "scenes that it draws"),
    "matches": ("scenes", "scenes that it draws"),
}
"""What is learned of images, with the name of their folder and of the images themselves."""

DESCRIBED = ("captions", "matches")
"""What is learned of pictures with captions, whose language --target names."""

OF_THE_DATA = {"num_classes", "image_size", "channels", "token_types", "vocab_size"}
"""Fields that follow from the data."""

SMALL = {"d_model": 128, "num_heads": 4, "d_ff": 512, "max_length": 128}
BRIEFLY = {"label_smoothing": 0.0, "clip_norm": 1.0, "valid_interval": 200, "checkpoint_interval": 200}

TRANSLATION = "translation"
"""The name by which `train --kind` knows the paper's model."""

RECIPES: dict[str, Recipe] = {
    TRANSLATION: Recipe(("pairs",)),
    "gpt": Recipe(
        ("next",),
        SMALL | {"num_layers": 4, "bos_id": 2, "eos_id": 2, "attention_dropout": 0.0},
        BRIEFLY | {"steps": 3000, "tokens_per_batch": 2048, "warmup_steps": 200, "peak_lr": 3e-3},
        3000,
    ),
    "bert": Recipe(
        ("masked",),
        SMALL | {"num_layers": 2, "attention_dropout": 0.0},
        BRIEFLY | {"steps": 4000, "tokens_per_batch": 4096, "warmup_steps": 400, "peak_lr": 2e-3},
        3000,
    ),
    "t5": Recipe(
        ("pairs", "spans"),
        # One table of tokens that starts as the paper's, and scaled scores: both suit Adam, whose steps have one size.
        SMALL
        | {"num_layers": 2, "d_k": 32, "dropout": 0.0, "bos_id": 1, "eos_id": 2}
        | {"scale_output": False, "scaled_scores": True},
        BRIEFLY
        | {"steps": 1600, "tokens_per_batch": 2048, "warmup_steps": 300, "peak_lr": 5e-3, "label_smoothing": 0.1},
    ),
    "vit": Recipe(
        ("images",),
        {"image_size": SIZE, "num_classes": NUM_CLASSES, "channels": 1, "patch_size": 2}
        # The usual 0.02 is for wide models: at this width patches and classes would hardly differ at first.
        | {"d_model": 64, "num_heads": 4, "d_ff": 128, "num_layers": 2, "dropout": 0.1, "init_std": 0.08},
        BRIEFLY
        | {"steps": 2000, "tokens_per_batch": 1088, "warmup_steps": 100, "peak_lr": 1e-3}
        | {"label_smoothing": 0.1},
    ),
    "captioner": Recipe(
        ("captions",),
        {"vocab_size": len(caption_tokenizer())},
        BRIEFLY | {"steps": 10_000, "tokens_per_batch": 2048, "warmup_steps": 800, "peak_lr": 2.5e-3, "cooldown": 0.5},
    ),
    "clip": Recipe(
        ("matches",),
        {"vocab_size": len(caption_tokenizer()), "patch_size": 8},
        # 128 scenes a batch: among few others a text is soon found.
        BRIEFLY
        | {"steps": 1200, "tokens_per_batch": 2048, "warmup_steps": 200, "peak_lr": 1e-3, "cooldown": 0.8}
        | {"threads": 1},
    ),
}


LINE_KINDS = " or ".join(", ".join(name for name in RECIPES if "lines" in RECIPES[name].reads).rsplit(", ", 1))
"""The names of the recipes for the lines of a text: "gpt, bert or t5"."""

PRESET_SETTINGS: dict[str, dict[str, Any]] = {
    "demo": {
        "steps": 2000,
        "tokens_per_batch": 1024,
        "warmup_steps": 250,
        "peak_lr": 4e-3,  # with 6e-3 after 200 steps nothing was learned
        "valid_interval": 200,
        "checkpoint_interval": 40,
    },
    # Paper: by §5.3 the peak would be (d_model · warmup_steps)^-0.5 = 0.002; the recipe for Multi30k has its own.
    "tiny": {"steps": 4000, "warmup_steps": 2000, "peak_lr": 5e-3, "valid_interval": 500, "checkpoint_interval": 500},
    "base": {"steps": 100_000, "tokens_per_batch": 25_000},
    "big": {"steps": 300_000, "tokens_per_batch": 25_000},
}
"""The settings of each preset: `base` and `big` as in the paper, §5.3 and Table 3."""

ENGLISH_VOCAB_SIZE = 1000
"""The default number of tokens of a vocabulary for the grammar's English alone."""


def default_vocab_size(name: str, dataset: str | None, reads: str) -> int:
    """Return the number of tokens of a vocabulary: the grammar needs fewer than other text."""
    if dataset == "grammar":
        return ENGLISH_VOCAB_SIZE if reads == "lines" else CorpusChoice.vocab_size
    return RECIPES[name].vocab_size


def recipe_of(config: ModelConfig) -> str:
    """Return the name of the recipe for this kind of model: a translator without its own, such as a baseline, has the
    paper's. Raises ValueError for another kind without a recipe.
    """
    if config.kind in RECIPES:
        return config.kind
    if not isinstance(config, TranslationConfig):
        raise ValueError(f"`train` has no recipe for a model of kind {config.kind!r}, only {', '.join(RECIPES)}")
    return TRANSLATION


def config_class(name: str) -> type[ModelConfig]:
    """Return the configuration that a recipe is for."""
    return KINDS[DEFAULT_KIND if name == TRANSLATION else name]


def options_of(name: str) -> dict[str, str]:
    """Return the help text of each field of a recipe's configuration that a training may choose."""
    return {option: text for option, text in help_of(config_class(name)).items() if text and option not in OF_THE_DATA}


def learned(name: str, reads: str) -> Learned:
    """Return what a recipe's model learns of the data that it reads."""
    return RECIPES[name].learns[RECIPES[name].reads.index(reads)]


def model_options() -> dict[str, type[ModelConfig]]:
    """Return the class that declares each option of a model: of several, the one that allows most words."""
    declared: dict[str, type[ModelConfig]] = {}
    for name in RECIPES:
        for option in options_of(name):
            declared.setdefault(option, config_class(name))
    return declared | dict.fromkeys(("positions", "norm_first"), GPTConfig)


def varied_options() -> set[str]:
    """Return the options of models whose default depends on the kind or the preset."""
    defaults: dict[str, set[Any]] = {}
    for name, recipe in RECIPES.items():
        values = {each.name: each.default for each in fields(cast(Any, config_class(name)))} | dict(recipe.model)
        for option in options_of(name):
            defaults.setdefault(option, set()).add(values[option])
    return {name for name, values in defaults.items() if len(values) > 1}


def sized(name: str, reads: str, vocab_size: int) -> dict[str, int]:
    """Return the fields of a configuration that follow from a tokenizer of `vocab_size` tokens."""
    if reads == "images" and learned(name, reads) not in DESCRIBED:  # the recipe knows them
        return {}
    if learned(name, reads) == "masked":
        return {"vocab_size": vocab_size + 1, "mask_id": vocab_size}
    return {"vocab_size": vocab_size + SENTINELS if learned(name, reads) == "spans" else vocab_size}


def longest_line(name: str, reads: str, config: Any) -> int:
    """Return the longest line or sentence that the data keeps: lines that a stream joins may have any length."""
    return config.max_length if learned(name, reads) in ("pairs", "masked") else sys.maxsize


@dataclass(frozen=True)
class Material:
    """The data on which a model is trained and validated, and the figures of a validation beside the loss."""

    train: Dataset[Any]
    valid: Dataset[Any] | None
    figures: Figures
    examples: str


def learned_from(config: ModelConfig, choice: CorpusChoice | None) -> Learned:
    """Return what a model learns of such a text, or of images."""
    if isinstance(choice, TableChoice):
        return "classes"
    reads = "images" if choice is None else "lines" if choice.languages is None else "pairs"
    return "pairs" if reads == "pairs" else learned(recipe_of(config), reads)


def labels_of(model: Any) -> list[str]:
    """Return the names of a classifier's classes, which are those of the folder that it came from; none without one."""
    names = getattr(getattr(model, "origin", None), "values", {}).get("id2label") or {}
    return [names.get(str(i), str(i)) for i in range(model.config.num_classes)] if names else []


def marked(config: Any, tokenizer: Any, choice: CorpusChoice, labels: Sequence[str] = ()) -> Marked:
    """Return a model's tokenizer with the marks around a text that the model learns from, or the labels of a table.

    Raises ValueError for a model without a token that ends texts, and for a tokenizer whose marks no BERT has.
    """
    learns = learned_from(config, choice)
    labels = tuple(labels) if learns == "classes" else ()
    if learns == "pairs":
        return Marked(tokenizer, end=None)
    end = marks_of(config, tokenizer, learns).end
    if end is None:
        raise ValueError("the model has no token that ends a text")
    before = [] if learns != "next" or isinstance(tokenizer, BPETokenizer) else tokenizer.around("a")[0]
    return Marked(tokenizer, tuple(before), end, labels)


def marks_of(config: Any, tokenizer: Any, learns: Learned) -> Marks:
    """Return the ids around a text: those of an encoder–decoder's model, else of the tokenizer; a GPT's model ends it.

    Raises ValueError for a tokenizer whose marks no BERT has.
    """
    if isinstance(config, StacksConfig):
        return Marks(config.pad_id, config.bos_id, config.eos_id)
    if isinstance(tokenizer, BPETokenizer):
        return OURS
    if learns == "next":
        return OURS._replace(end=config.eos_id)
    before, _, after = tokenizer.around("a")
    if len(before) != 1 or len(after) != 1:
        raise ValueError("the tokenizer puts other marks around a text than one before it and one after it")
    return OURS._replace(begin=before[0], end=after[0])


def _datasets(config: Any, data: PreparedData, learns: Learned) -> tuple[Dataset[Any], Dataset[Any]]:
    """Return the data to train on and to validate on, with the marks of the model and of its tokenizer."""
    tokenizer, ours = data.tokenizer, isinstance(data.tokenizer, BPETokenizer)

    def made(split: Any) -> Any:
        split.marks = marks_of(config, tokenizer, learns)
        text = TextDataset(split)
        if learns == "pairs":
            return split
        if learns == "classes":
            return LabelledText(text, np.array([target[0] - 1 for _, target in split]))
        if learns == "masked":
            return MaskedText(text, None if ours else tokenizer.words)
        if learns == "spans":
            return SpanText(text, None if ours else tokenizer.inner.token_to_id("<extra_id_0>"))
        return text

    return made(data.train), made(data.valid)


def material(
    config: ModelConfig,
    data: PreparedData | None,
    settings: TrainingSettings,
    processes: Processes = ALONE,
    tokenizer: Any = None,
) -> Material:
    """Return the material of a model from the prepared data.

    Images need no data; the language of their captions follows from the tokenizer. Processes share each validation.
    Raises ValueError for a tokenizer of other captions than the grammar's.
    """
    learns = learned_from(config, data and data.choice)
    if learns in DESCRIBED:
        train, valid = scenes(settings.seed, caption_language(tokenizer))
        captions = partial(_true_captions, valid, settings, processes)
        return Material(train, valid, captions if learns == "captions" else partial(_recall, valid), "scenes an epoch")
    if data is None:
        train, valid = digits()
        return Material(train, valid, partial(_accuracy, valid, settings, processes), "images")
    train, valid = _datasets(config, data, learns)
    if learns == "pairs":
        return Material(train, valid, partial(_bleu, data, settings, processes), "training pairs")
    if learns in ("masked", "classes"):
        return Material(train, valid, partial(_accuracy, valid, settings, processes), "training lines")
    if not isinstance(valid, TextDataset):
        return Material(train, valid, lambda model, figures: {}, "training lines")
    num_bytes = sum(len(data.tokenizer.decode(line).encode("utf-8", "replace")) + 1 for line in valid)
    return Material(train, valid, partial(_bits_per_byte, len(valid.stream) / num_bytes), "training lines")


def _bits_per_byte(tokens_per_byte: float, model: Any, figures: Mapping[str, float]) -> dict[str, float]:
    """Return the bits that the model needs for a byte of the text, a line's end counted as one byte."""
    return {"bits_per_byte": figures["validation_loss"] * tokens_per_byte / log(2)}


def _accuracy(
    valid: Dataset[Any], settings: TrainingSettings, processes: Processes, model: Any, figures: Mapping[str, float]
) -> dict[str, float]:
    """Return the share of the targets that the model finds most probable, in percent."""
    size = max(4096, settings.tokens_per_batch)  # one setting for most trainings, and room for the longest line
    return {"accuracy": accuracy(model, valid.batches(size, None, model.config).epoch(0), processes.map)}


def _true_captions(
    valid: SceneDataset, settings: TrainingSettings, processes: Processes, model: Any, figures: Mapping[str, float]
) -> dict[str, float]:
    """Return the share of validation scenes whose caption, greedily searched, is exactly true, in percent."""
    describer, pictures = Describer(model, caption_tokenizer(valid.language)), [draw(scene) for scene in valid.scenes]
    captions = in_groups(partial(describer.describe, beam=1), pictures, settings.shards or 1, processes.map)
    true = [judge(text, scene, valid.language).true for text, scene in zip(captions, valid.scenes, strict=True)]
    return {"true_captions": 100 * sum(true) / len(true)}


def _recall(valid: SceneDataset, model: Any, figures: Mapping[str, float]) -> dict[str, float]:
    """Return the share of validation pictures, of different captions, whose own is the nearest of all, in percent."""
    different = valid.different()
    pictures, matcher = [*map(draw, different.values())], Matcher(model, caption_tokenizer(valid.language))
    return {"recall": 100 * float(recall(matcher.similarities(pictures, list(different))).mean())}


def _bleu(
    data: PreparedData, settings: TrainingSettings, processes: Processes, model: Any, figures: Mapping[str, float]
) -> dict[str, float]:
    """Return the BLEU of greedy translations of the first validation sentences, in as many groups as a batch."""
    sources, references = data.valid_sentences(BLEU_SENTENCES)
    translator = Translator(model, data.tokenizer, threads=settings.threads)
    translations = in_groups(partial(translator.translate, beam=1), sources, settings.shards or 1, processes.map)
    return {"bleu": evaluate(translations, references).bleu}
