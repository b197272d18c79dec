"""The affine map `x @ weight + bias`, of which all projections of the Transformer are made."""

import math

from .arguments import Array, arguments, gradient_of
from .arrays import column_sums


@arguments("x ... C_in, weight C_in C_out, bias? C_out", products=True)
def linear_forward(x: Array, weight: Array, bias: Array | None) -> tuple[Array, tuple]:
    """`y = x @ weight + bias`, as the paper writes `xW + b`. Source: Vaswani 2017, §3.2.2 and §3.3."""
    width_in, width_out = weight.shape
    rows = x.reshape(math.prod(x.shape[:-1]), width_in)  # (N, C_in): one large product, not a batch of small ones
    y = rows @ weight  # (N, C_out)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], width_out), (rows, weight, bias, x.shape)


@gradient_of(
    lambda rows, weight, bias, shape: ((*shape[:-1], weight.shape[1]), rows.dtype),
    out=lambda rows, weight, bias, shape: {"dweight": weight, "dbias": bias},
    products=True,
)
def linear_backward(
    dy: Array, cache: tuple, out: tuple[Array, Array | None] | None = None
) -> tuple[Array, Array, Array | None]:
    """Gradients `(dx, dweight, dbias)`.

    `out=(dweight, dbias)` adds into these arrays and returns them, instead of making new ones.
    """
    rows, weight, bias, shape = cache
    dy = dy.reshape(len(rows), weight.shape[1])  # (N, C_out)
    dbias = None if bias is None else column_sums(dy)  # y += bias
    dweight = rows.T @ dy  # y = rows @ weight
    dx = (dy @ weight.T).reshape(shape)  # y = rows @ weight
    if out is None:
        return dx, dweight, dbias
    dweight_sum, dbias_sum = out
    dweight_sum += dweight
    if dbias is not None:
        dbias_sum += dbias
    return dx, dweight_sum, dbias_sum
