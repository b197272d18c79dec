"""Configurations of models: what all have in common, and the Transformer's with its presets."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, cast

from ..config import LARGEST, SMALLEST, Config, choice, flag, positive, rate, require, whole
from ..layers import (
    AttentionConfig,
    BlockConfig,
    FeedForwardConfig,
    InitConfig,
    NormConfig,
    Parameter,
    QuantizedParameter,
    StackConfig,
)

DEFAULT_KIND = "transformer"
"""The kind of model of a configuration that names none."""


class ModelConfig(Config, ABC):
    """The base of each model's configuration, with what trainers and checkpoints need of all of them."""

    kind: ClassVar[str]
    model: ClassVar[Any]
    """The class of the models: each sets itself, below its definition."""
    d_model: int
    num_layers: int
    num_decoder_layers: int | None = None

    @property
    def decoder_layers(self) -> int:
        """The number of layers of the decoder."""
        return self.num_decoder_layers or self.num_layers

    @property
    def num_layers_in_all(self) -> int:
        """The number of layers of the encoder and of the decoder together."""
        return self.num_layers

    @property
    def num_parameters(self) -> int:
        """The number of parameters, counted without making the model; tied ones count once."""
        return sum(self.parameter_sizes().values())

    def parameter_sizes(self) -> dict[str, int]:
        """Return how many numbers each parameter has, by name, from layers that are declared and have no memory."""
        return self._of_parameters(lambda parameter: math.prod(parameter.shape))

    def weight_bytes(self, dtype: str = "float32", bits: int | None = None) -> int:
        """Return the memory of the weights; with `bits`, 8 or 4, matrices are in so many (`layers.quantized`)."""

        def size(parameter: Parameter) -> int:
            few = isinstance(parameter, QuantizedParameter)
            return parameter.most_bytes if few else math.prod(parameter.shape) * (8 if dtype == "float64" else 4)

        return sum(self._of_parameters(size, bits).values())

    def _of_parameters(self, size: Callable[[Parameter], int], bits: int | None = None) -> dict[str, int]:
        """Return a size of each parameter by name.

        Stacks are declared with two layers. All that a stack's layers share belongs to the first; the size of each
        parameter of the second is that of all layers after the first together.
        """
        config = cast(Any, self)
        two = {each.name: 2 for each in fields(config) if each.name in ("num_layers", "num_decoder_layers")}
        names: dict[Parameter, str] = {}  # a shared parameter has its first name
        for name, parameter in self.model.declared(replace(config, **two), bits=bits).named_parameters():
            names.setdefault(parameter, name)
        sizes = {name: size(parameter) for parameter, name in names.items()}
        for name in sizes:
            if ".layers.1." in name:
                sizes[name] *= (self.decoder_layers if name.startswith("decoder.") else self.num_layers) - 1
        return sizes

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON, and the kind unless it is the default."""
        values = super().to_dict()
        return values if self.kind == DEFAULT_KIND else {"kind": self.kind, **values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the configuration that `to_dict` wrote.

        Raises `ValueError` for another kind of model, an unknown field or a missing one that has no default.
        """
        values = dict(values)
        kind = values.pop("kind", DEFAULT_KIND)
        if kind != cls.kind:
            raise ValueError(f"the configuration is of a model of kind {kind!r}, not {cls.kind!r}")
        for each in fields(cast(Any, cls)):
            if each.default is MISSING and each.name not in values:
                raise ValueError(f"the configuration has no {each.name}")
        return super().from_dict(values)


def head_width(d_model: int, num_heads: int) -> int:
    """Return the width of each of the heads that share d_model. Raises ValueError unless they share it evenly."""
    require(d_model % num_heads == 0, f"num_heads is {num_heads} and does not divide d_model, {d_model}")
    return d_model // num_heads


def count_patches(image_size: int, patch_size: int) -> int:
    """Return the number of patches of a square image. Raises ValueError unless they cover it evenly."""
    fits = image_size % patch_size == 0
    require(fits, f"patch_size is {patch_size} and does not divide image_size, {image_size}")
    return (image_size // patch_size) ** 2


class TextConfig(ModelConfig):
    """The base of the configurations of models that read tokens; `max_length` is the longest sequence of them."""

    vocab_size: int
    max_length: int

    @property
    def endless(self) -> bool:
        """True if positions know no end, so that `max_length` is no limit but the length of the training."""
        return False


def most_tokens(config: Any) -> int:
    """Return the longest sequence that a model of this configuration can compute."""
    return sys.maxsize if getattr(config, "endless", False) else config.max_length


def require_below(config: TextConfig, *names: str) -> None:
    """Raise ValueError, naming the field, for an id outside the vocabulary."""
    for name in names:
        given = getattr(config, name)
        inside = all(each < config.vocab_size for each in (given if isinstance(given, tuple) else [given or 0]))
        require(inside, f"{name} is {given}, expected an id below the vocabulary")


class TranslationConfig(TextConfig):
    """The base of the configurations of encoder–decoders, with what searches and batches need.

    `embedding_scale` multiplies looked-up vectors, by default √d_model. `tied`: the output layer's table is that of the
    tokens. `output_bias`: the logits have a bias. `pad_may_begin`: the padding token may be the one that begins a
    target, and then a source's mask is given and not inferred. `other_eos_ids`: what ends a text besides `eos_id`.
    """

    pad_id: int
    bos_id: int
    eos_id: int

    embedding_scale: float | None = None
    tied: bool = True
    output_bias: bool = False
    pad_may_begin: bool = False
    other_eos_ids: tuple[int, ...] = ()

    @property
    def embedding_std(self) -> float | None:
        """The standard deviation of the table of tokens at the start; `None`: 1/√d_model."""
        return None

    def __post_init__(self) -> None:
        super().__post_init__()
        specials = (self.pad_id, self.bos_id, self.eos_id)
        distinct = len(set(specials)) >= 3 - self.pad_may_begin and max(specials) < self.vocab_size
        count = "two" if self.pad_may_begin else "three"
        require(distinct, f"pad_id, bos_id, eos_id are {specials}, expected {count} ids below {self.vocab_size}")
        require_below(self, "other_eos_ids")

    @property
    def num_layers_in_all(self) -> int:
        """The number of layers of the encoder and of the decoder together."""
        return self.num_layers + self.decoder_layers


class StacksConfig(TranslationConfig):
    """The base of the configurations that `Transformer` builds: encoder and decoder are stacks of blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.encoder, self.decoder  # each part checks itself

    @property
    def encoder(self) -> StackConfig:
        """The configuration of the encoder: every position of the source sees all others."""
        return self._stack(self.num_layers, decodes=False)

    @property
    def decoder(self) -> StackConfig:
        """The configuration of the decoder: a position of the target sees those at or before it, and the memory."""
        return self._stack(self.decoder_layers, decodes=True)

    @abstractmethod
    def _stack(self, num_layers: int, decodes: bool) -> StackConfig: ...


PRESETS = ("demo", "tiny", "base", "big")
"""The named sizes of `TransformerConfig`: each is a classmethod of it."""


@dataclass(frozen=True)
class TransformerConfig(StacksConfig):
    """The hyper-parameters of a Transformer as the paper names them; the defaults are its base model (table 3).

    `encoder` and `decoder` give the same as the configuration of a stack, with those of its blocks and layers inside.

    `num_decoder_layers`, `d_k` and `d_v` default to `num_layers` and `d_model / num_heads`. `max_length` is the longest
    sequence in tokens, with its begin or end mark. `window` restricts self-attention to keys at this distance or less.
    Matrices start within `init_gain` times Xavier's bound: the small presets halve it, so that the residual connections
    outweigh the sub-layers at first, and training starts faster.
    Raises `ValueError` or `TypeError` for values that give no model.
    """

    kind: ClassVar[str] = DEFAULT_KIND

    vocab_size: int = whole()
    d_model: int = whole(512, "width of the model")
    num_heads: int = whole(8, "attention heads; they share d_model")
    d_ff: int = whole(2048, "width inside the feed-forward layers")
    num_layers: int = whole(6, "layers of the encoder, and of the decoder")
    num_decoder_layers: int | None = whole(None, "layers of the decoder, if others than the encoder's")
    d_k: int | None = whole(None, "width of a head's queries and keys (default: d_model / num_heads)")
    d_v: int | None = whole(None, "width of a head's values (default: d_model / num_heads)")
    dropout: float = rate(0.1, "rate on the embeddings and on the output of each sub-layer")
    # 0 as in §5.4; tensor2tensor, the authors' code, drops attention weights too.
    attention_dropout: float = rate(0.0, "rate on the attention weights")
    positions: Literal["sinusoidal", "learned"] = choice(
        "sinusoidal",
        "learned",
        default="sinusoidal",
        help="the paper's sine waves, or one learned vector for each position",
    )
    norm_first: bool = flag(False, "normalise before each sub-layer instead of after it")
    max_length: int = whole(512, "longest sentence in tokens; longer training pairs are left out")
    window: int | None = whole(None, "self-attention reaches this many tokens to either side (default: all)", least=0)
    layernorm_eps: float = positive(1e-5, "what layer normalisation adds to the variance", SMALLEST, 1)
    # Paper: does not say how matrices start; with 0.5, as in the small presets, post-norm learns faster.
    init_gain: float = positive(1.0, "where matrices start: this times Xavier's bound", SMALLEST, LARGEST)
    pad_id: int = whole(0, least=0)
    bos_id: int = whole(1, least=0)
    eos_id: int = whole(2, least=0)

    def _stack(self, num_layers: int, decodes: bool) -> StackConfig:
        attention = AttentionConfig(
            self.num_heads, self.key_width, self.value_width, self.window, self.attention_dropout
        )
        block = BlockConfig(
            attention,
            FeedForwardConfig(self.d_ff),
            NormConfig(self.norm_first, self.layernorm_eps),
            d_model=self.d_model,
            causal=decodes,
            cross=decodes,
            dropout=self.dropout,
            init=InitConfig(self.init_gain),
        )
        return StackConfig(block, num_layers, self.positions, self.max_length)

    @property
    def key_width(self) -> int:
        """d_k: the width of one head's queries and keys."""
        return self.d_k or head_width(self.d_model, self.num_heads)

    @property
    def value_width(self) -> int:
        """d_v: the width of one head's values."""
        return self.d_v or head_width(self.d_model, self.num_heads)

    @classmethod
    def demo(cls, vocab_size: int = 2400, **overrides: Any) -> "TransformerConfig":
        """Return the model of `make demo`, which trains in minutes on two cores."""
        sizes: dict[str, Any] = {
            "d_model": 128,
            "num_heads": 4,
            "d_ff": 256,  # Paper: 4 · d_model. On the grammar half of it learns as much a step, in 0.8 of the time.
            "num_layers": 2,
            "dropout": 0.0,  # Paper: 0.1. The grammar's sentences never repeat, so there is nothing to overfit.
            "max_length": 128,
            "init_gain": 0.5,
        }
        return cls(vocab_size, **sizes | overrides)

    @classmethod
    def tiny(cls, vocab_size: int = 8000, **overrides: Any) -> "TransformerConfig":
        """Return the published small recipe for Multi30k: 2.35 million parameters with a vocabulary of 8,000.

        Source: Wu et al. 2021, "Good for Misconceived Reasons", §4.1.
        """
        sizes: dict[str, Any] = {"d_model": 128, "num_heads": 4, "d_ff": 256, "num_layers": 4, "max_length": 256}
        sizes |= {"dropout": 0.3, "init_gain": 0.5}
        return cls(vocab_size, **sizes | overrides)

    @classmethod
    def base(cls, vocab_size: int = 37_000, **overrides: Any) -> "TransformerConfig":
        """Return Table 3's base, with the vocabulary of "about 37000 tokens" of §5.1: 63 million parameters."""
        return cls(vocab_size, **overrides)

    @classmethod
    def big(cls, vocab_size: int = 37_000, language_pair: str = "en-de", **overrides: Any) -> "TransformerConfig":
        """Return Table 3's big: 214 million parameters. Its dropout is 0.3 for English→German, 0.1 for French."""
        rates = {"en-de": 0.3, "en-fr": 0.1}
        if language_pair not in rates:
            raise ValueError(f"language_pair is {language_pair!r}, expected one of {', '.join(rates)}")
        sizes: dict[str, Any] = {"d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": rates[language_pair]}
        return cls(vocab_size, **sizes | overrides)
