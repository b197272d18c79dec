"""Captioner: ViT's encoder reads a picture, the Transformer's decoder writes what it sees. Source: Xu et al. 2015.

The memory of the decoder is one vector for each patch, where Xu et al. have the places of a convolutional layer's
output. So each word attends to the patches, and the weights of this attention show where the model looks.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..config import SMALLEST, positive, rate, whole
from ..layers import AttentionConfig, BlockConfig, FeedForwardConfig, NormConfig, PatchEmbedding, Stack, StackConfig
from ..layers.feed_forward import Activation, activation_field
from ..ops import Array, Ops
from .config import StacksConfig, count_patches, head_width
from .encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class CaptionerConfig(StacksConfig):
    """The hyper-parameters of a captioner: pre-norm blocks in both stacks, learned positions of patches and of words.

    An image is square, of `image_size` pixels a side; a caption has at most `max_length` tokens. Raises `ValueError` or
    `TypeError` for values that give no model.
    """

    kind: ClassVar[str] = "captioner"

    vocab_size: int = whole()
    image_size: int = whole(32, "height and width of an image in pixels")
    patch_size: int = whole(4, "height and width of a patch")
    channels: int = whole(3, "numbers of a pixel")
    d_model: int = whole(128, "width of the model")
    num_heads: int = whole(4, "attention heads; they share d_model")
    d_ff: int = whole(256, "width inside the feed-forward layers")
    num_layers: int = whole(2, "layers of the encoder, and of the decoder")
    num_decoder_layers: int | None = whole(None, "layers of the decoder, if others than the encoder's")
    dropout: float = rate(0.0, "rate on the embeddings and on the output of each sub-layer")
    attention_dropout: float = rate(0.0, "rate on the attention weights")
    activation: Activation = activation_field("gelu")
    norm_eps: float = positive(1e-5, "what layer normalisation adds to the variance", SMALLEST, 1)
    max_length: int = whole(48)
    pad_id: int = whole(0, least=0)
    bos_id: int = whole(1, least=0)
    eos_id: int = whole(2, least=0)

    @property
    def num_patches(self) -> int:
        """The number of patches of an image, and of vectors in the memory."""
        return count_patches(self.image_size, self.patch_size)

    def _stack(self, num_layers: int, decodes: bool) -> StackConfig:
        width = head_width(self.d_model, self.num_heads)
        block = BlockConfig(
            AttentionConfig(self.num_heads, width, width, dropout=self.attention_dropout),
            FeedForwardConfig(self.d_ff, self.activation),
            NormConfig(True, self.norm_eps),
            d_model=self.d_model,
            causal=decodes,
            cross=decodes,
            dropout=self.dropout,
        )
        return StackConfig(block, num_layers, "learned", self.max_length if decodes else self.num_patches)


class Captioner(EncoderDecoder[CaptionerConfig, Stack, Stack]):
    """A stack of blocks over the patches of images `(B, channels, height, width)`, and one that writes their captions.

    Images take the place of the source of an `EncoderDecoder`; no patch is padding, so they have no mask.
    """

    def _stacks(self, ops: Ops) -> tuple[Stack, Stack]:
        config = self.config
        self.patches = PatchEmbedding(ops, config.channels, config.patch_size, config.d_model, classified=False)
        encoder = Stack(ops, config.encoder, self.patches, self.dtype)
        return encoder, Stack(ops, config.decoder, self.tokens, self.dtype)

    def _source(self, source: Any, given: Any = None, infers: bool = False) -> tuple[Array, None]:
        """Return images as the encoder takes them. Raises `ValueError` for another shape, and for a mask."""
        if given is not None:
            raise ValueError("source_mask is of tokens, and a picture has no padding: expected None")
        return self._images(source), None


CaptionerConfig.model = Captioner
