"""ViT: an encoder over the patches of an image, which it classifies. Source: Dosovitskiy et al. 2021.

DeiT is a ViT with a second vector beside the class's, which learned from another model: Touvron et al. 2021, §4.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..config import SMALLEST, choice, positive, rate, whole
from ..layers import (
    AttentionConfig,
    BlockConfig,
    Context,
    DropoutStream,
    FeedForwardConfig,
    InitConfig,
    Linear,
    NormConfig,
    PatchEmbedding,
    Stack,
    StackConfig,
)
from ..layers.feed_forward import Activation, activation_field
from ..ops import Array, Ops, without_spurious_warnings
from .config import ModelConfig, count_patches, head_width
from .model import Model


@dataclass(frozen=True)
class ViTConfig(ModelConfig):
    """The hyper-parameters of a Vision Transformer; the defaults are its base model with patches of 16 × 16.

    An image is square, of `image_size` pixels a side. `distillation` is DeiT's, whose second vector, the distillation
    token, stands between the class's and the patches:

        none   there is no such token
        token  it is there, and only the layers see it
        head   it has a classifier of its own, and the logits are the mean of both classifiers' logits

    Raises `ValueError` or `TypeError` for values that give no model.
    """

    kind: ClassVar[str] = "vit"

    num_classes: int = whole(1000, "classes of images")
    image_size: int = whole(224, "height and width of an image in pixels")
    patch_size: int = whole(16, "height and width of a patch")
    channels: int = whole(3, "numbers of a pixel")
    d_model: int = whole(768, "width of the model")
    num_heads: int = whole(12, "attention heads; they share d_model")
    d_ff: int = whole(3072, "width inside the feed-forward layers")
    num_layers: int = whole(12, "layers")
    dropout: float = rate(0.0, "rate on the embeddings and on the output of each sub-layer")
    attention_dropout: float = rate(0.0, "rate on the attention weights")
    activation: Activation = activation_field("gelu")
    norm_eps: float = positive(1e-12, "what layer normalisation adds to the variance", SMALLEST, 1)
    init_std: float = positive(0.02, "standard deviation of the matrices at the start", SMALLEST)
    distillation: Literal["none", "token", "head"] = choice("none", "token", "head", default="none")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.encoder  # each part checks itself

    @property
    def num_patches(self) -> int:
        """The number of patches of an image."""
        return count_patches(self.image_size, self.patch_size)

    @property
    def num_tokens(self) -> int:
        """The number of vectors that the layers see: the class's, the distillation token's if any, the patches'."""
        return 1 + (self.distillation != "none") + self.num_patches

    @property
    def encoder(self) -> StackConfig:
        """The configuration of the stack: pre-norm blocks over the vectors of the class and the patches."""
        width = head_width(self.d_model, self.num_heads)
        block = BlockConfig(
            AttentionConfig(self.num_heads, width, width, dropout=self.attention_dropout),
            FeedForwardConfig(self.d_ff, self.activation),
            NormConfig(True, self.norm_eps),
            d_model=self.d_model,
            dropout=self.dropout,
            init=InitConfig(std=self.init_std),
        )
        return StackConfig(block, self.num_layers, "learned", self.num_tokens, embedding_std=self.init_std)


class ViT(Model[ViTConfig]):
    """A stack of blocks over the patches of images `(B, channels, height, width)`, which gives logits of classes."""

    def _build(self, ops: Ops) -> None:
        config = self.config
        sizes, distilled = (config.channels, config.patch_size, config.d_model), config.distillation != "none"
        self.patches = PatchEmbedding(ops, *sizes, config.init_std, distilled)
        self.encoder = Stack(ops, config.encoder, self.patches, self.dtype)
        self.classes = Linear(ops, config.d_model, config.num_classes, std=config.init_std)
        if config.distillation == "head":
            self.distilled_classes = Linear(ops, config.d_model, config.num_classes, std=config.init_std)

    @without_spurious_warnings
    def forward(self, images: Array, dropout: DropoutStream | None = None) -> tuple[Array, tuple]:
        """images `(B, channels, height, width)` → logits `(B, classes)`, read from the class's vector.

        With a distillation head: the mean of these and of those that it reads from the distillation token's vector.

        Raises `ValueError` for images of another shape than the configuration's.
        """
        config = self.config
        hidden, encoder_cache = self.encoder.forward(self._images(images), Context(dropout=dropout))
        logits, classes_cache = self.classes.forward(hidden[:, 0])
        distilled_cache = None
        if config.distillation == "head":
            distilled, distilled_cache = self.distilled_classes.forward(hidden[:, 1])
            logits = (logits + distilled) / 2
        return logits, (encoder_cache, hidden, classes_cache, distilled_cache, logits.shape)

    @without_spurious_warnings
    def backward(self, dlogits: Array, cache: tuple) -> None:
        """dlogits `(B, classes)`: add into the gradient of every parameter."""
        encoder_cache, hidden, classes_cache, distilled_cache, shape = cache
        dlogits, dhidden = self._received(dlogits, shape), self.ops.zeros(tuple(hidden.shape), hidden.dtype)
        if distilled_cache is not None:
            dlogits = dlogits / 2
            dhidden[:, 1] = self.distilled_classes.backward(dlogits, distilled_cache)
        dhidden[:, 0] = self.classes.backward(dlogits, classes_cache)
        self.encoder.backward(dhidden, encoder_cache)

    @without_spurious_warnings
    def loss(
        self,
        images: Array,
        targets: Array,
        label_smoothing: float = 0.0,
        dropout: DropoutStream | None = None,
        with_grad: bool = True,
    ) -> tuple[Array, tuple]:
        """Return the mean cross-entropy of the classes `(B,)` of images `(B, channels, height, width)`."""
        logits, cache = self.forward(images, dropout)
        loss, loss_cache = self.ops.cross_entropy.forward(logits, self.ops.asarray(targets), label_smoothing)
        return loss, (cache, loss_cache)

    @without_spurious_warnings
    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Add `dloss` times the loss's gradient into the gradient of every parameter."""
        cache, loss_cache = cache
        self.backward(self.ops.cross_entropy.backward(dloss, loss_cache), cache)


ViTConfig.model = ViT
