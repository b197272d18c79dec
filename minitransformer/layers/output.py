"""The output layer of a model of text: the logits of each next token, and their loss."""

from ..ops import Array, Ops
from .parameter import Layer, Parameter

IGNORED = -100
"""A target that does not count, outside every vocabulary; PyTorch's and Hugging Face's number for it."""


class OutputLayer(Layer):
    """`logits = hidden @ tableᵀ + bias` over the vocabulary, and the loss of the wanted tokens.

    The table `(V, C)` may be that of the tokens' embedding; BERT and Marian have a bias `(V,)`. Source: Vaswani 2017,
    §3.4 and §5.4.
    """

    def __init__(self, ops: Ops, table: Parameter, bias: Parameter | None = None) -> None:
        super().__init__(ops)
        self.table, self.bias = table, bias

    def logits(self, hidden: Array, transposed: Array | None = None) -> tuple[Array, tuple]:
        """hidden `(..., C)` → logits `(..., V)`; `transposed` may be what `transposed()` returned."""
        weight = self.table.value.swapaxes(0, 1) if transposed is None else transposed
        return self.ops.linear.forward(hidden, weight, None if self.bias is None else self.bias.value)

    def logits_backward(self, dlogits: Array, cache: tuple) -> Array:
        """Return dhidden `(..., C)`; add into the gradients of table and bias."""
        out = self.table.grad.swapaxes(0, 1), None if self.bias is None else self.bias.grad
        dhidden, _, _ = self.ops.linear.backward(dlogits, cache, out=out)
        return dhidden

    def transposed(self) -> Array:
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
    ) -> tuple[Array, tuple]:
        """The mean cross-entropy of targets `(B, T)` under the logits of hidden `(B, T, C)`.

        Targets equal to `ignored` do not count. Without a bias the logits are not kept.
        """
        targets = self.ops.asarray(targets)
        if tuple(targets.shape) != tuple(hidden.shape[:2]):
            raise ValueError(f"the targets have shape {tuple(targets.shape)}, expected {tuple(hidden.shape[:2])}")
        if self.bias is not None:
            logits, logits_cache = self.logits(hidden)
            loss, cache = self.ops.cross_entropy.forward(logits, targets, label_smoothing, ignored)
            return loss, (cache, logits_cache)
        rows, wanted = hidden.reshape(-1, hidden.shape[2]), targets.reshape(-1)
        loss, cache = self.ops.linear_cross_entropy.forward(
            rows,
            self.table.value,
            wanted,
            label_smoothing=label_smoothing,
            ignore_index=ignored,
            with_grad=with_grad,
        )
        return loss, (cache, hidden.shape)

    def loss_backward(self, dloss: float, cache: tuple) -> Array:
        """Return dhidden `(B, T, C)`; add into the gradients of table and bias."""
        loss_cache, rest = cache
        if self.bias is not None:
            return self.logits_backward(self.ops.cross_entropy.backward(dloss, loss_cache), rest)
        dhidden, _ = self.ops.linear_cross_entropy.backward(dloss, loss_cache, out=self.table.grad)
        return dhidden.reshape(rest)
