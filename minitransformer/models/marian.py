"""Marian: the paper's encoder–decoder as the Marian toolkit trains it. Source: Junczys-Dowmunt et al. 2018."""

from dataclasses import dataclass
from typing import ClassVar

from ..config import ids, positive, rate, whole
from ..layers import AttentionConfig, BlockConfig, FeedForwardConfig, NormConfig, StackConfig
from ..layers.feed_forward import Activation, activation_field
from .config import StacksConfig, head_width


@dataclass(frozen=True)
class MarianConfig(StacksConfig):
    """The hyper-parameters of a Marian; the defaults are those of its base models. `Transformer` builds it.

    It is the paper's model with all sines of the positions before all cosines, a choice of activation, and a bias of
    the logits. `embedding_scale` is √d_model unless it is given. Where a target begins with the padding token, as by
    default, a source's mask is given and not inferred. Raises `ValueError` or `TypeError` for values that give no
    model.
    """

    kind: ClassVar[str] = "marian"

    vocab_size: int = whole()
    d_model: int = whole(512, "width of the model")
    num_heads: int = whole(8, "attention heads of the encoder; they share d_model")
    num_decoder_heads: int | None = whole(None, "attention heads of the decoder, if others than the encoder's")
    d_ff: int = whole(2048, "width inside the encoder's feed-forward layers")
    d_decoder_ff: int | None = whole(None, "width inside the decoder's, if another")
    num_layers: int = whole(6, "layers of the encoder, and of the decoder")
    num_decoder_layers: int | None = whole(None, "layers of the decoder, if others than the encoder's")
    dropout: float = rate(0.1, "rate on the embeddings and on the output of each sub-layer")
    attention_dropout: float = rate(0.0, "rate on the attention weights")
    activation: Activation = activation_field("silu")
    embedding_scale: float | None = positive(None, "what multiplies embeddings (default: the root of d_model)")
    max_length: int = whole(512, "longest sequence in tokens")
    pad_id: int = whole(0, least=0)
    bos_id: int = whole(0, least=0)
    eos_id: int = whole(1, least=0)
    other_eos_ids: tuple[int, ...] = ids()

    output_bias = True
    pad_may_begin = True

    def _stack(self, num_layers: int, decodes: bool) -> StackConfig:
        heads, d_ff = (self.decoder_heads, self.decoder_ff) if decodes else (self.num_heads, self.d_ff)
        width = head_width(self.d_model, heads)
        block = BlockConfig(
            AttentionConfig(heads, width, width, dropout=self.attention_dropout),
            FeedForwardConfig(d_ff, self.activation),
            NormConfig(),
            d_model=self.d_model,
            causal=decodes,
            cross=decodes,
            dropout=self.dropout,
        )
        return StackConfig(block, num_layers, "sinusoidal_halves", self.max_length)

    @property
    def decoder_heads(self) -> int:
        """The number of attention heads of the decoder."""
        return self.num_decoder_heads or self.num_heads

    @property
    def decoder_ff(self) -> int:
        """The width inside the decoder's feed-forward layers."""
        return self.d_decoder_ff or self.d_ff
