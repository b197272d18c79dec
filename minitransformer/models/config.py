"""What a Transformer is made of, and the named sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..layers import BlockConfig
from .model_config import (
    DEFAULT_KIND,
    ModelConfig,
    check_counts,
    check_flags,
    check_positive,
    check_rates,
    check_special_tokens,
)

PRESETS = ("demo", "tiny", "base", "big")
"""Names of the classmethods that give a known size."""


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """The hyper-parameters of a model; the defaults are the paper's base. Source: Vaswani 2017, table 3.

    `num_decoder_layers`, `d_k` and `d_v` default to `num_layers` and `d_model / num_heads`. `max_length` is the longest
    sequence, in tokens with its begin or end mark. `window` restricts self-attention to keys at that distance or less.
    `init_gain` times Xavier's bound is where matrices start: the small presets halve it, so that at first the residual
    connections outweigh the sub-layers, and training starts faster.
    Raises `ValueError` or `TypeError` for what can't be a model.
    """

    kind: ClassVar[str] = DEFAULT_KIND

    vocab_size: int
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0  # as in §5.4; tensor2tensor, the authors' code, has it
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    norm_first: bool = False
    max_length: int = 512
    window: int | None = None
    layernorm_eps: float = 1e-5
    init_gain: float = 1.0  # Paper: says nothing of it; the small presets start at 0.5, where post-norm learns faster.
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        check_counts(self, 1, "vocab_size", "d_model", "num_heads", "d_ff", "num_layers", "max_length")
        check_counts(self, 1, *(n for n in ("num_decoder_layers", "d_k", "d_v") if getattr(self, n) is not None))
        if self.window is not None:
            check_counts(self, 0, "window")
        check_rates(self, "dropout", "attention_dropout")
        check_flags(self, "norm_first")
        check_positive(self, "layernorm_eps", most=1)  # it is to be small beside a variance of about 1
        check_positive(self, "init_gain")
        if (self.d_k is None or self.d_v is None) and self.d_model % self.num_heads:
            raise ValueError(f"num_heads is {self.num_heads} and does not divide d_model, {self.d_model}")
        if self.positions not in ("sinusoidal", "learned"):
            raise ValueError(f"positions is {self.positions!r}, expected 'sinusoidal' or 'learned'")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}: sinusoidal positions need an even width")
        check_special_tokens(self)

    @property
    def num_layers_in_all(self) -> int:
        """Layers of the encoder and of the decoder."""
        return self.num_layers + self.decoder_layers

    @property
    def num_parameters(self) -> int:
        """All that is learned: the embeddings, one table for source, target and output, counted once.

        With A = C·H·(2 d_k + d_v) + H·(2 d_k + d_v) + H·d_v·C + C for an attention's four projections, F for a
        feed-forward network and 2·C for a layer normalisation, an encoder layer has A + F + 2·2C, a decoder layer
        2A + F + 3·2C; pre-norm stacks end with one normalisation more.
        """
        width, projected = self.d_model, self.num_heads * (2 * self.key_width + self.value_width)
        attention = (width + 1) * projected + (self.num_heads * self.value_width + 1) * width
        feed_forward = (width + 1) * self.d_ff + (self.d_ff + 1) * width
        norm = 2 * width
        encoder = self.num_layers * (attention + feed_forward + 2 * norm)
        decoder = self.decoder_layers * (2 * attention + feed_forward + 3 * norm)
        positions = 2 * self.max_length * width if self.positions == "learned" else 0
        return self.vocab_size * width + positions + encoder + decoder + 2 * norm * self.norm_first

    @property
    def key_width(self) -> int:
        """d_k: the width of one head's queries and keys."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_width(self) -> int:
        """d_v: the width of one head's values."""
        return self.d_v or self.d_model // self.num_heads

    @property
    def decoder_layers(self) -> int:
        """The number of decoder layers."""
        return self.num_decoder_layers or self.num_layers

    def block(self) -> BlockConfig:
        """The part that an encoder or decoder layer needs."""
        return BlockConfig(
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_k=self.key_width,
            d_v=self.value_width,
            d_ff=self.d_ff,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            norm_first=self.norm_first,
            window=self.window,
            eps=self.layernorm_eps,
            init_gain=self.init_gain,
        )

    @classmethod
    def demo(cls, vocab_size: int = 2400, **overrides: Any) -> "TransformerConfig":
        """What `make demo` trains: small enough for minutes on two cores."""
        return cls._preset(
            vocab_size,
            overrides,
            d_model=128,
            num_heads=4,
            d_ff=512,
            num_layers=2,
            dropout=0.0,  # Paper: 0.1; a grammar never repeats itself, so there is nothing to overfit.
            max_length=128,
            init_gain=0.5,
        )

    @classmethod
    def tiny(cls, vocab_size: int = 8000, **overrides: Any) -> "TransformerConfig":
        """The published small recipe for Multi30k: 2.35 million parameters with a vocabulary of 8,000.

        Source: Wu et al. 2021, "Good for Misconceived Reasons", §4.1.
        """
        return cls._preset(
            vocab_size,
            overrides,
            d_model=128,
            num_heads=4,
            d_ff=256,
            num_layers=4,
            dropout=0.3,
            max_length=256,
            init_gain=0.5,
        )

    @classmethod
    def base(cls, vocab_size: int = 37_000, **overrides: Any) -> "TransformerConfig":
        """Table 3's base, with the vocabulary of "about 37000 tokens" of §5.1: 63 million parameters."""
        return cls._preset(vocab_size, overrides)

    @classmethod
    def big(cls, vocab_size: int = 37_000, language_pair: str = "en-de", **overrides: Any) -> "TransformerConfig":
        """Table 3's big: 214 million. Dropout is 0.3 for English→German (`en-de`), 0.1 for English→French (`en-fr`)."""
        rates = {"en-de": 0.3, "en-fr": 0.1}
        if language_pair not in rates:
            raise ValueError(f"language_pair is {language_pair!r}, expected one of {', '.join(rates)}")
        return cls._preset(vocab_size, overrides, d_model=1024, num_heads=16, d_ff=4096, dropout=rates[language_pair])

    @classmethod
    def _preset(cls, vocab_size: int, overrides: Mapping[str, Any], **values: Any) -> "TransformerConfig":
        return cls(vocab_size=vocab_size, **{**values, **overrides})
