"""The affine map that every projection of the Transformer is."""

import math

from .arguments import check_floats, check_gradient_of, check_out, check_shape
from .arrays import Array, ones, quiet_products


@quiet_products
def linear_forward(x: Array, weight: Array, bias: Array | None) -> tuple[Array, tuple]:
    """`y = x @ weight + bias`, as the paper writes `xW + b`.

    x `(..., C_in)`, weight `(C_in, C_out)`, bias `(C_out,)` or `None` → y `(..., C_out)`.
    Raises `ValueError` for shapes that do not fit, `TypeError` for mixed dtypes. Source: Vaswani 2017, §3.2.2, eq. 2.
    """
    check_floats("x weight bias?", x, weight, bias)
    shape = x.shape
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {weight.shape}, expected (C_in, C_out)")
    width_in, width_out = weight.shape
    if not shape or shape[-1] != width_in:
        raise ValueError(f"x has shape {shape}, expected (..., {width_in}), the rows of weight {weight.shape}")
    # One large product instead of a batch of small ones.
    rows = x.reshape(math.prod(shape[:-1]), width_in)  # (N, C_in)
    y = rows.dot(weight)  # (N, C_out); the same as `@` for matrices, and called faster
    if bias is not None:
        check_shape("bias", bias, (width_out,))
        y += bias
    return y.reshape(*shape[:-1], width_out), (rows, weight, bias is not None, shape)


@quiet_products
def linear_backward(
    dy: Array, cache: tuple, out: tuple[Array, Array | None] | None = None
) -> tuple[Array, Array, Array | None]:
    """Gradients `(dx, dweight, dbias)`: `dx = dy @ weightᵀ`, `dweight = xᵀ @ dy`, `dbias = Σ dy`.

    `out=(dweight, dbias)` adds into these arrays, and returns them, instead of making new ones.
    """
    rows, weight, has_bias, shape = cache
    check_gradient_of("dy", dy, (*shape[:-1], weight.shape[1]), rows.dtype)
    dy = dy.reshape(len(rows), weight.shape[1])  # (N, C_out)
    dx = (dy @ weight.T).reshape(shape)  # y = rows @ weight
    dweight = rows.T @ dy
    dbias = ones(len(dy), dy.dtype) @ dy if has_bias else None  # y += bias; a sum as a product is faster
    if out is None:
        return dx, dweight, dbias
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise TypeError(f"out must be the pair (dweight, dbias), got {type(out).__name__}")
    for name, total, gradient in zip(("dweight", "dbias"), out, (dweight, dbias), strict=True):
        if gradient is not None:
            check_out(f"out's {name}", total, gradient.shape, gradient.dtype)
            total += gradient
    return dx, *out
