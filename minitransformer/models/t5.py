"""T5: the encoder–decoder with relative positions, RMS normalisation and no biases. Source: Raffel et al. 2020."""

from dataclasses import dataclass
from typing import ClassVar

from ..config import SMALLEST, flag, ids, positive, rate, whole
from ..layers import AttentionConfig, BiasConfig, BlockConfig, FeedForwardConfig, NormConfig, StackConfig
from ..layers.feed_forward import Activation, activation_field
from .config import StacksConfig


@dataclass(frozen=True)
class T5Config(StacksConfig):
    """The hyper-parameters of a T5; the defaults are those of its small model. `Transformer` builds it.

    Scores are not divided by √d_k: the first queries are smaller instead. That suits Adafactor, which T5 was trained
    with and whose steps grow with the weights; Adam's have one size and soon turn small queries, so a training here has
    `scaled_scores`. One table of biases by distance serves all blocks of a stack. Version 1.1 has a gated feed-forward
    network (`activation="gelu_tanh", gated=True`) and an output layer of its own (`tied=False, scale_output=False`);
    `scale_output` multiplies the decoder's output by d_model^−½. Where a target begins with the padding token, as by
    default, a source's mask is given and not inferred. Raises `ValueError` or `TypeError` for values that give no
    model.
    """

    kind: ClassVar[str] = "t5"

    vocab_size: int = whole()
    d_model: int = whole(512, "width of the model")
    num_heads: int = whole(8, "attention heads")
    d_ff: int = whole(2048, "width inside the feed-forward layers")
    num_layers: int = whole(6, "layers of the encoder, and of the decoder")
    num_decoder_layers: int | None = whole(None, "layers of the decoder, if others than the encoder's")
    d_k: int = whole(64, "width of a head")
    buckets: int = whole(32, "distances that attention tells apart", least=4)
    max_distance: int = whole(128, "from this distance on all are one")
    max_length: int = whole(512, "longest sequence in tokens")
    dropout: float = rate(0.1, "rate on the embeddings and on the output of each sub-layer")
    activation: Activation = activation_field("relu")
    gated: bool = flag(False, "the activation gates a second map")
    norm_eps: float = positive(1e-6, "what normalisation adds to the mean square", SMALLEST, 1)
    tied: bool = flag(True, "the output layer shares the table of tokens")
    scale_output: bool = flag(True, "multiply the decoder's output by d_model^-0.5")
    scaled_scores: bool = flag(False, "divide attention's scores by √d_k, which T5 leaves to the weights")
    pad_id: int = whole(0, least=0)
    bos_id: int = whole(0, least=0)
    eos_id: int = whole(1, least=0)
    other_eos_ids: tuple[int, ...] = ids()

    embedding_scale = 1.0
    pad_may_begin = True

    @property
    def endless(self) -> bool:
        """True: relative positions know no end."""
        return True

    @property
    def embedding_std(self) -> float | None:
        """1, as the original's, unless the table gives the logits too and these are not multiplied by d_model^−½."""
        return 1.0 if self.scale_output or not self.tied else None

    def _stack(self, num_layers: int, decodes: bool) -> StackConfig:
        attention = AttentionConfig(
            self.num_heads,
            self.d_k,
            self.d_k,
            bias=False,
            scale=None if self.scaled_scores else 1.0,
            relative=BiasConfig("t5", self.buckets, self.max_distance),
        )
        block = BlockConfig(
            attention,
            FeedForwardConfig(self.d_ff, self.activation, self.gated, bias=False),
            NormConfig(True, self.norm_eps, "rmsnorm"),
            d_model=self.d_model,
            causal=decodes,
            cross=decodes,
            dropout=self.dropout,
        )
        scale = self.d_model**-0.5 if decodes and self.scale_output else 1.0
        return StackConfig(block, num_layers, "none", self.max_length, output_scale=scale)
