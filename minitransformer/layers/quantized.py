"""Layers whose matrices are in eight or four bits, each in the place of one in float: nothing trains their matrices.

    model                      its weights
    linear map                 `Quantized`, `(C_in, C_out)`, in the bits that were chosen
    tokens and output layer    one table `(V, C)`, in eight bits: a rounded row is wrong at every place of its token
    the rest                   in float: norms, biases, positions, and matrices whose C_in is no multiple of 32

`quantized_layers` puts them into a model. A gradient passes through them to what is trained, such as the adapters of
LoRA, which stand beside them: QLoRA. Source: Dettmers et al. 2023, §3.
"""

from dataclasses import replace
from typing import Any

from ..ops import Array
from .embedding import OutputLayer, TokenEmbedding
from .linear import Linear
from .parameter import GROUP, Layer, Parameter, QuantizedParameter

TABLE_BITS = 8


class QuantizedLinear(Linear):
    """A linear map in the place of another: its weight is in few bits, and its bias stays a parameter."""

    weight: Any

    def __init__(self, linear: Linear, weight: QuantizedParameter) -> None:
        vars(self).update(vars(linear) | {"weight": weight})

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C_in)` → `(..., C_out)`."""
        return self.ops.quantized_linear.forward(x, self.weight.value, self.bias.value if self.bias else None)

    def backward(self, dy: Array, cache: tuple) -> Array:
        """Return dx; add into the gradient of the bias, if it is trained."""
        dx, dbias = self.ops.quantized_linear.backward(dy, cache)
        if self.bias is not None:
            self.bias.add_grad(dbias)
        return dx


class QuantizedEmbedding(TokenEmbedding):
    """An embedding of tokens in the place of another: its table `(V, C)` is in few bits, held as a weight `(C, V)`."""

    def __init__(self, tokens: TokenEmbedding, table: QuantizedParameter, dtype: str) -> None:
        vars(self).update(vars(tokens) | {"table": table})
        self.dtype = dtype

    def forward(self, ids: Array) -> tuple[Array, tuple]:
        """ids `(B, T)` → `scale · table[ids]`, `(B, T, C)`; the backward has nothing to do."""
        rows = self.ops.cast(self.ops.quantized_rows(self.table.value, ids), self.dtype)
        return self.ops.activations(self.scale * rows), ()


class QuantizedOutput(OutputLayer):
    """An output layer in the place of another: its table `(V, C)` is in few bits, held as a weight `(C, V)`."""

    def __init__(self, output: OutputLayer, table: QuantizedParameter) -> None:
        ops = replace(output.ops, linear=output.ops.quantized_linear)
        vars(self).update(vars(output) | {"table": table, "in_one": False, "ops": ops})

    def logits(self, hidden: Array, transposed: Array | None = None) -> tuple[Array, tuple]:
        """hidden `(..., C)` → logits `(..., V)`; the table is a weight `(C, V)` already."""
        return super().logits(hidden, self.table.value)

    def logits_backward(self, dlogits: Array, cache: tuple) -> Array:
        """Return dhidden `(..., C)`; add into the gradient of the bias, if it is trained."""
        cache, tanh_cache = cache
        if self.softcap is not None:
            dlogits = self.ops.tanh.backward(dlogits, tanh_cache)  # the two factors cancel
        dhidden, dbias = self.ops.quantized_linear.backward(dlogits, cache)
        if self.bias is not None:
            self.bias.add_grad(dbias)
        return dhidden

    def transposed(self) -> None:
        """Return no copy: the table already lies as its products read it."""


def quantized_layers(model: Layer, bits: int, dtype: str) -> int:
    """Put layers in few bits into a model, whose parameters have no arrays yet, and freeze all that stays in float.

    bits: 8 or 4, of the linear maps; dtype: that of looked-up tokens. Returns how many matrices are in few bits.
    """
    for _, parameter in model.named_parameters():
        parameter.trained = False
    tables: dict[Parameter, QuantizedParameter] = {}  # of tokens and output layer, which may share one

    def in_few_bits(table: Parameter) -> QuantizedParameter:
        return tables.setdefault(table, QuantizedParameter(table.shape, TABLE_BITS, transposed=True))

    for owner in [model, *(layer for _, layer in model.named_layers())]:
        for name, layer in list(owner.members()):
            if isinstance(layer, Linear) and not layer.weight.shape[0] % GROUP:
                setattr(owner, name, QuantizedLinear(layer, QuantizedParameter(layer.weight.shape, bits)))
            elif isinstance(layer, TokenEmbedding) and name == "tokens" and not layer.table.shape[1] % GROUP:
                setattr(owner, name, QuantizedEmbedding(layer, in_few_bits(layer.table), dtype))
            elif isinstance(layer, OutputLayer) and not layer.table.shape[1] % GROUP:
                setattr(owner, name, QuantizedOutput(layer, in_few_bits(layer.table)))
    return sum(isinstance(parameter, QuantizedParameter) for _, parameter in model.named_parameters())
