"""CLIP: one encoder for pictures and one for texts, whose vectors meet in a common space. Source: Radford et al. 2021.

Nothing is written: of all texts the one belongs to a picture whose vector is nearest. So two towers that know nothing
of each other are enough, and the vectors of a million pictures are computed once, before anybody asks for one.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..config import SMALLEST, positive, rate, require, whole
from ..layers import (
    AttentionConfig,
    BlockConfig,
    Context,
    DropoutStream,
    FeedForwardConfig,
    Linear,
    NormConfig,
    Parameter,
    PatchEmbedding,
    Stack,
    StackConfig,
    TokenEmbedding,
)
from ..layers.feed_forward import Activation, activation_field
from ..ops import Array, Ops, without_spurious_warnings
from ..ops.initialize import constant
from .config import TextConfig, count_patches, head_width, require_below
from .contrastive import (
    FIRST_LOG_SCALE,
    MOST_LOG_SCALE,
    contrastive_loss_backward,
    contrastive_loss_forward,
    unit_rows,
)
from .model import Model


@dataclass(frozen=True)
class CLIPConfig(TextConfig):
    """The hyper-parameters of a CLIP: pre-norm blocks in both encoders, learned positions of patches and of words.

    An image is square, of `image_size` pixels a side; a text has at most `max_length` tokens, with <s> and </s>. Paper:
    the encoder of texts is narrower than that of pictures; here both have the same sizes. The paper's GELU is
    x · σ(1.702 x). Raises `ValueError` or `TypeError` for values that give no model.
    """

    kind: ClassVar[str] = "clip"

    vocab_size: int = whole()
    image_size: int = whole(32, "height and width of an image in pixels")
    patch_size: int = whole(4, "height and width of a patch")
    channels: int = whole(3, "numbers of a pixel")
    d_model: int = whole(128, "width of the model")
    num_heads: int = whole(4, "attention heads; they share d_model")
    d_ff: int = whole(256, "width inside the feed-forward layers")
    num_layers: int = whole(2, "layers of each encoder")
    embedding: int = whole(64, "width of the space in which pictures and texts meet")
    dropout: float = rate(0.0, "rate on the embeddings and on the output of each sub-layer")
    attention_dropout: float = rate(0.0, "rate on the attention weights")
    activation: Activation = activation_field("gelu")
    norm_eps: float = positive(1e-5, "what layer normalisation adds to the variance", SMALLEST, 1)
    max_length: int = whole(48)
    pad_id: int = whole(0, least=0)
    bos_id: int = whole(1, least=0)
    eos_id: int = whole(2, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_below(self, "pad_id", "bos_id", "eos_id")
        same = self.bos_id == self.eos_id
        require(not same, f"bos_id and eos_id are both {self.eos_id}: a text would end where it begins")
        _ = self.picture_encoder, self.text_encoder  # each part checks itself

    @property
    def num_patches(self) -> int:
        """The number of patches of an image."""
        return count_patches(self.image_size, self.patch_size)

    @property
    def num_layers_in_all(self) -> int:
        """The number of layers of both encoders together."""
        return 2 * self.num_layers

    @property
    def picture_encoder(self) -> StackConfig:
        """The configuration of a stack over the class's vector and the patches, which are normalised before it."""
        return self._stack(1 + self.num_patches, causal=False)

    @property
    def text_encoder(self) -> StackConfig:
        """The configuration of a stack over tokens, each of which sees those at or before it, as in a GPT."""
        return self._stack(self.max_length, causal=True)

    def _stack(self, length: int, causal: bool) -> StackConfig:
        width = head_width(self.d_model, self.num_heads)
        block = BlockConfig(
            AttentionConfig(self.num_heads, width, width, dropout=self.attention_dropout),
            FeedForwardConfig(self.d_ff, self.activation),
            NormConfig(True, self.norm_eps),
            d_model=self.d_model,
            causal=causal,
            dropout=self.dropout,
        )
        return StackConfig(block, self.num_layers, "learned", length, embedding_norm=not causal)


class CLIP(Model[CLIPConfig]):
    """A stack of blocks over the patches of images, one over the tokens of texts, and a linear map behind each.

    Images are `(B, channels, height, width)`, ids `(B, T)`: <s>, a text, </s>, then padding. The class's vector stands
    for a picture, and the vector at </s>, which has seen the whole text, for a text. The loss compares all pairs of a
    batch, so a part of a batch has another one: see `compares_rows`.
    """

    compares_rows = True

    def _build(self, ops: Ops) -> None:
        config, widths = self.config, (self.config.d_model, self.config.embedding)
        self.patches = PatchEmbedding(ops, config.channels, config.patch_size, config.d_model)
        self.picture_encoder = Stack(ops, config.picture_encoder, self.patches, self.dtype)
        self.picture_projection = Linear(ops, *widths, bias=False)
        self.tokens = TokenEmbedding(ops, config.vocab_size, config.d_model, 1.0)
        self.text_encoder = Stack(ops, config.text_encoder, self.tokens, self.dtype)
        self.text_projection = Linear(ops, *widths, bias=False)
        self.log_scale = Parameter((), constant(FIRST_LOG_SCALE), exact=True)

    @without_spurious_warnings
    def forward(self, images: Array, ids: Array, dropout: DropoutStream | None = None) -> tuple[tuple, tuple]:
        """Return the vectors of images `(B, E)` and those of texts `(B, E)`, not yet of length 1, and the cache.

        Raises `ValueError` for images of another shape than the configuration's, for too many tokens, and for a text
        without </s>.
        """
        context = Context(dropout=dropout)
        (a, picture_cache), (b, text_cache) = self._pictures(images, context), self._texts(ids, context)
        return (a, b), (picture_cache, text_cache, a.shape, b.shape)

    @without_spurious_warnings
    def backward(self, dvectors: tuple[Array, Array], cache: tuple) -> None:
        """dvectors, two of `(B, E)`: add into the gradient of every parameter but the scale's."""
        picture_cache, text_cache, *shapes = cache
        da, db = map(self._received, dvectors, shapes)
        self._pictures_backward(da, picture_cache)
        self._texts_backward(db, text_cache)

    @without_spurious_warnings
    def loss(
        self,
        images: Array,
        ids: Array,
        label_smoothing: float = 0.0,
        dropout: DropoutStream | None = None,
        with_grad: bool = True,
    ) -> tuple[Array, tuple]:
        """Return the contrastive loss of images and their texts: row i of one belongs to row i of the other."""
        (a, b), cache = self.forward(images, ids, dropout)
        # Paper: a scale above 100 is set to 100 (§2.5). Here it is read as 100, and its gradient can only lower it.
        log_scale = self.log_scale.value.clip(max=MOST_LOG_SCALE)
        loss, loss_cache = contrastive_loss_forward(a, b, log_scale, label_smoothing, self.ops)
        return loss, (cache, loss_cache)

    @without_spurious_warnings
    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Add `dloss` times the loss's gradient into the gradient of every parameter."""
        cache, loss_cache = cache
        da, db, dlog_scale = contrastive_loss_backward(dloss, loss_cache)
        self.log_scale.add_grad(dlog_scale * ((self.log_scale.value <= MOST_LOG_SCALE) | (dlog_scale > 0)))
        self.backward((da, db), cache)

    @without_spurious_warnings
    def encode_pictures(self, images: Array) -> Array:
        """Images → vectors of length 1, `(B, E)`: their products with those of texts are cosines."""
        return unit_rows(self.ops.cast(self._pictures(images, Context(keep=False))[0], self.dtype))[0]

    @without_spurious_warnings
    def encode_texts(self, ids: Array) -> Array:
        """ids `(B, T)` → vectors of length 1, `(B, E)`."""
        return unit_rows(self.ops.cast(self._texts(ids, Context(keep=False))[0], self.dtype))[0]

    def _pictures(self, images: Any, context: Context) -> tuple[Array, tuple]:
        hidden, cache = self.picture_encoder.forward(self._images(images), context)  # (B, 1 + patches, C)
        vectors, projection_cache = self.picture_projection.forward(hidden[:, 0])
        return vectors, (cache, hidden, projection_cache)

    def _pictures_backward(self, dvectors: Array, cache: tuple) -> None:
        cache, hidden, projection_cache = cache
        dhidden = self.ops.zeros(tuple(hidden.shape), hidden.dtype)
        dhidden[:, 0] = self.picture_projection.backward(dvectors, projection_cache)
        self.picture_encoder.backward(dhidden, cache)

    def _texts(self, ids: Any, context: Context) -> tuple[Array, tuple]:
        ids = self._ids("ids", ids)
        ends = self.ops.to_numpy(ids) == self.config.eos_id
        require(bool(ends.any(1).all()), f"ids has a text without eos_id, {self.config.eos_id}, at its end")
        hidden, cache = self.text_encoder.forward(ids, context)  # (B, T, C)
        # The first </s> of each text, in a table of all positions.
        places = self.ops.asarray(range(0, ends.size, ends.shape[1]), "int64") + self.ops.asarray(ends.argmax(1))
        rows, rows_cache = self.ops.embedding.forward(places, hidden.reshape(ends.size, hidden.shape[2]))  # (B, C)
        vectors, projection_cache = self.text_projection.forward(rows)
        return vectors, (cache, hidden.shape, rows_cache, projection_cache)

    def _texts_backward(self, dvectors: Array, cache: tuple) -> None:
        cache, shape, rows_cache, projection_cache = cache
        drows = self.text_projection.backward(dvectors, projection_cache)
        self.text_encoder.backward(self.ops.embedding.backward(drows, rows_cache).reshape(shape), cache)


CLIPConfig.model = CLIP
