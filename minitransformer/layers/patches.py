"""The embedding of images, as ViT reads them."""

from ..ops import Array, Ops
from ..ops.initialize import constant, normal
from .linear import Linear
from .parameter import Layer, Parameter


class PatchEmbedding(Layer):
    """Square patches of an image as vectors, after a learned vector that stands for the class.

    Each patch is a row of channels · size² numbers, and one linear map, ViT's convolution, makes a vector of it. The
    class's vector comes first. Source: Dosovitskiy et al. 2021, §3.1, eq. 1.
    """

    def __init__(self, ops: Ops, channels: int, size: int, d_model: int, std: float | None = None) -> None:
        super().__init__(ops)
        self.size = size
        self.projection = Linear(ops, channels * size * size, d_model, std=std)
        self.class_token = Parameter((d_model,), constant(0.0) if std is None else normal(std))

    def forward(self, images: Array) -> tuple[Array, tuple]:
        """images `(B, channels, height, width)` → `(B, 1 + patches, C)`."""
        patches, patches_cache = self.ops.patches.forward(images, self.size)  # (B, T, channels·size²)
        x, projection_cache = self.projection.forward(patches)  # (B, T, C)
        first = self.ops.zeros((len(x), 1, x.shape[2]), x.dtype) + self.class_token.value
        return self.ops.concatenate([first, x], axis=1), (patches_cache, projection_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dimages; add into the parameters' gradients."""
        patches_cache, projection_cache = cache
        self.class_token.add_grad(dout[:, 0].sum(0))
        return self.ops.patches.backward(self.projection.backward(dout[:, 1:], projection_cache), patches_cache)
