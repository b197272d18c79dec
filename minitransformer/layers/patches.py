"""The embedding of images, as ViT and DeiT read them."""

from ..ops import Array, Ops
from ..ops.initialize import constant, normal
from .linear import Linear
from .parameter import Layer, Parameter


class PatchEmbedding(Layer):
    """Square patches of an image as vectors, after a learned vector that stands for the class.

    Each patch is a row of channels · size² numbers, and one linear map, ViT's convolution, makes a vector of it. The
    class's vector comes first; then, if the model is `distilled`, DeiT's distillation token. A model that reads the
    patches alone is not `classified`. Source: Dosovitskiy et al. 2021, §3.1, eq. 1; Touvron et al. 2021, §4.
    """

    def __init__(
        self,
        ops: Ops,
        channels: int,
        size: int,
        d_model: int,
        std: float | None = None,
        distilled: bool = False,
        classified: bool = True,
    ) -> None:
        super().__init__(ops)
        self.size = size
        self.projection = Linear(ops, channels * size * size, d_model, std=std)
        start = constant(0.0) if std is None else normal(std)
        self.class_token = Parameter((d_model,), start) if classified else None
        self.distillation_token = Parameter((d_model,), start) if distilled else None

    def forward(self, images: Array) -> tuple[Array, tuple]:
        """images `(B, channels, height, width)` → `(B, tokens, C)`, patches after no token, one or two."""
        patches, patches_cache = self.ops.patches.forward(images, self.size)  # (B, T, channels·size²)
        x, projection_cache = self.projection.forward(patches)  # (B, T, C)
        row = self.ops.zeros((len(x), 1, x.shape[2]), x.dtype)
        first = [row + token.value for token in self._tokens()]
        return self.ops.concatenate([*first, x], axis=1), (patches_cache, projection_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dimages; add into the parameters' gradients."""
        patches_cache, projection_cache = cache
        tokens = self._tokens()
        for place, token in enumerate(tokens):
            token.add_grad(dout[:, place].sum(0))
        dx = self.projection.backward(dout[:, len(tokens) :], projection_cache)
        return self.ops.patches.backward(dx, patches_cache)

    def _tokens(self) -> list[Parameter]:
        return [token for token in (self.class_token, self.distillation_token) if token is not None]
