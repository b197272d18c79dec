"""The input of a stack: tokens or patches of an image as vectors, with their positions."""

import math

from ..ops import Array, Ops
from ..ops.initialize import constant, normal
from .context import PLAIN, Context
from .linear import Linear
from .norm import Norm
from .parameter import Layer, Parameter
from .positions import LearnedPositions, SinusoidalPositions


class TokenEmbedding(Layer):
    """One table `(V, C)` for source tokens, target tokens and the output layer. Source: Vaswani 2017, §3.4.

    Look-ups are multiplied by `scale`, the paper's √d_model unless it is given; the output layer is not. Entries start
    as N(0, std²), by default 1/d_model, so a look-up of the paper's has variance 1, which is near that of the sinusoids
    added to it.
    """

    def __init__(
        self, ops: Ops, vocab_size: int, d_model: int, scale: float | None = None, std: float | None = None
    ) -> None:
        super().__init__(ops)
        self.scale = math.sqrt(d_model) if scale is None else scale
        self.table = Parameter((vocab_size, d_model), normal(std or 1 / math.sqrt(d_model)))

    def forward(self, ids: Array) -> tuple[Array, tuple]:
        """ids `(B, T)` → `scale · table[ids]`, `(B, T, C)`."""
        return self.ops.embedding.forward(ids, self.table.value, self.scale)

    def backward(self, dout: Array, cache: tuple) -> None:
        """Adds into the table's gradient; ids have none."""
        self.ops.embedding.backward(dout, cache, out=self.table.grad)


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
        """Returns dimages; adds into the parameters' gradients."""
        patches_cache, projection_cache = cache
        self.class_token.grad += dout[:, 0].sum(0)
        return self.ops.patches.backward(self.projection.backward(dout[:, 1:], projection_cache), patches_cache)


class InputEmbedding(Layer):
    """The input of a stack: `Dropout(√d_model · table[ids] + positions)`.

    Several stacks may share the table of tokens. A recurrent network reads one token after the other and needs no
    positions: they are `None`. BERT adds a learned vector for the sentence that a token belongs to, its type, and
    normalises the sum.
    """

    def __init__(
        self,
        ops: Ops,
        tokens: TokenEmbedding | PatchEmbedding,
        positions: SinusoidalPositions | LearnedPositions | None,
        dropout: float,
        types: TokenEmbedding | None = None,
        norm: Norm | None = None,
    ) -> None:
        super().__init__(ops)
        self.tokens, self.positions, self.rate = tokens, positions, dropout
        self.types, self.norm = types, norm

    def forward(self, ids: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """ids `(B, T)`, or images → `(B, T, C)`; with a cache, ids stand at the positions that come next."""
        x, token_cache = self.tokens.forward(ids)
        type_cache = norm_cache = position_cache = None
        if self.types is not None:
            kinds, type_cache = self.types.forward(context.token_types)
            x = x + kinds
        if self.positions is not None:
            x, position_cache = self.positions.forward(x, context.position, context.padding)
        if self.norm is not None:
            x, norm_cache = self.norm.forward(x)
        x, dropout_cache = self.ops.dropout.forward(x, context.dropout_at(self.site, self.rate))
        return x, (token_cache, type_cache, position_cache, norm_cache, dropout_cache)

    def backward(self, dx: Array, cache: tuple) -> None:
        """Adds into the gradients of tables and projections; ids and images have none."""
        token_cache, type_cache, position_cache, norm_cache, dropout_cache = cache
        dx = self.ops.dropout.backward(dx, dropout_cache)
        dx = self.norm.backward(dx, norm_cache) if self.norm else dx
        dx = self.positions.backward(dx, position_cache) if self.positions else dx
        if self.types is not None:
            self.types.backward(dx, type_cache)
        self.tokens.backward(dx, token_cache)
