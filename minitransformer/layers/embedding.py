"""Tokens at both ends of a model: the embedding, with positions, is its input; the logits are its output."""

import math

from ..ops import Array, Ops
from ..ops.arguments import check_flag
from ..ops.initialize import normal
from .context import PLAIN, Context
from .linear import frozen_backward
from .norm import Norm
from .parameter import Layer, Parameter
from .patches import PatchEmbedding
from .positions import LearnedPositions, SinusoidalPositions

IGNORED = -100
"""A target that does not count, outside every vocabulary; PyTorch's and Hugging Face's number for it."""


class TokenEmbedding(Layer):
    """The table `(V, C)` of source tokens, target tokens and the output layer. Source: Vaswani 2017, §3.4.

    Look-ups are multiplied by `scale`, the paper's √d_model unless it is given; the output layer is not. Entries start
    as N(0, std²), where std² is 1/d_model unless it is given. So a look-up of the paper's has variance 1, which is near
    that of the sinusoids added to it.
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
        """Add into the table's gradient; ids have none."""
        if self.table.trained:
            self.ops.embedding.backward(dout, cache, out=self.table.grad)


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
        """Add into the gradients of tables and projections; ids and images have none."""
        token_cache, type_cache, position_cache, norm_cache, dropout_cache = cache
        dx = self.ops.dropout.backward(dx, dropout_cache)
        dx = self.norm.backward(dx, norm_cache) if self.norm else dx
        dx = self.positions.backward(dx, position_cache) if self.positions else dx
        if self.types is not None:
            self.types.backward(dx, type_cache)
        self.tokens.backward(dx, token_cache)


class OutputLayer(Layer):
    """`logits = hidden @ tableᵀ + bias` over the vocabulary, and the loss of the wanted tokens.

    The table `(V, C)` may be that of the tokens' embedding; BERT and Marian have a bias `(V,)`. With a `softcap` c
    logits become `c · tanh(logits / c)` (Gemma 2). Source: Vaswani 2017, §3.4 and §5.4.
    """

    def __init__(self, ops: Ops, table: Parameter, bias: Parameter | None = None, softcap: float | None = None) -> None:
        super().__init__(ops)
        self.table, self.bias, self.softcap = table, bias, softcap
        self.in_one = bias is None and softcap is None  # the loss and the product are one op

    def logits(self, hidden: Array, transposed: Array | None = None) -> tuple[Array, tuple]:
        """hidden `(..., C)` → logits `(..., V)`; `transposed` may be what `transposed()` returned."""
        weight = self.table.value.swapaxes(0, 1) if transposed is None else transposed
        logits, cache = self.ops.linear.forward(hidden, weight, None if self.bias is None else self.bias.value)
        if self.softcap is None:
            return logits, (cache, None)
        bent, tanh_cache = self.ops.tanh.forward(logits * (1 / self.softcap))
        return bent * self.softcap, (cache, tanh_cache)

    def logits_backward(self, dlogits: Array, cache: tuple) -> Array:
        """Return dhidden `(..., C)`; add into the gradients of table and bias."""
        cache, tanh_cache = cache
        if self.softcap is not None:
            dlogits = self.ops.tanh.backward(dlogits, tanh_cache)  # the two factors cancel
        if not (self.table.trained and (self.bias is None or self.bias.trained)):
            return frozen_backward(self.ops, dlogits, cache, self.table, self.bias, transposed=True)
        out = self.table.grad.swapaxes(0, 1), None if self.bias is None else self.bias.grad
        dhidden, _, _ = self.ops.linear.backward(dlogits, cache, out=out)
        return dhidden

    def transposed(self) -> Array | None:
        """`tableᵀ`, `(C, V)`, copied: many products with few rows are a fifth faster with it than with the view."""
        table = self.table.value
        copy = self.ops.zeros(tuple(reversed(table.shape)), table.dtype)
        copy[...] = table.swapaxes(0, 1)
        return copy

    def loss(
        self,
        hidden: Array,
        targets: Array,
        label_smoothing: float = 0.0,
        ignored: int | None = None,
        with_grad: bool = True,
        weights: Array | None = None,
    ) -> tuple[Array, tuple]:
        """The mean cross-entropy of targets `(B, T)`, times weights `(B, T)`, under the logits of hidden `(B, T, C)`.

        Targets equal to `ignored` do not count. Without a bias, a softcap and a frozen table no logits are kept.
        """
        check_flag("with_grad", with_grad)
        targets = self.ops.asarray(targets)
        if tuple(targets.shape) != tuple(hidden.shape[:2]):
            raise ValueError(f"the targets have shape {tuple(targets.shape)}, expected {tuple(hidden.shape[:2])}")
        if self.in_one and (self.table.trained or not with_grad):
            rows, wanted = hidden.reshape(-1, hidden.shape[2]), targets.reshape(-1)  # (N, C), (N,)
            flat = None if weights is None else weights.reshape(-1)
            options = {"label_smoothing": label_smoothing, "ignore_index": ignored, "with_grad": with_grad}
            loss, cache = self.ops.linear_cross_entropy.forward(rows, self.table.value, wanted, weights=flat, **options)
            return loss, (cache, hidden.shape)
        logits, logits_cache = self.logits(hidden)
        loss, cache = self.ops.cross_entropy.forward(logits, targets, label_smoothing, ignored, weights=weights)
        return loss, (cache, logits_cache)

    def loss_backward(self, dloss: float, cache: tuple) -> Array:
        """Return dhidden `(B, T, C)`; add into the gradients of table and bias."""
        loss_cache, rest = cache
        if self.in_one and self.table.trained:
            dhidden, _ = self.ops.linear_cross_entropy.backward(dloss, loss_cache, out=self.table.grad)
            return dhidden.reshape(rest)
        return self.logits_backward(self.ops.cross_entropy.backward(dloss, loss_cache), rest)
