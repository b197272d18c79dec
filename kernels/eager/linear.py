"""The affine map: PyTorch's matrix product (cuBLAS, MKL); a kernel of our own would not be faster."""

import torch
from torch import Tensor

from ..checks import check_gradient, check_out, declared


@declared
def linear_forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, tuple]:
    """`y = x @ weight + bias`; x `(..., C_in)`, weight `(C_in, C_out)`, bias `(C_out,)` or `None`."""
    rows = x.reshape(x.shape[:-1].numel(), x.shape[-1])  # (N, C_in)
    y = rows @ weight if bias is None else torch.addmm(bias, rows, weight)  # (N, C_out)
    return y.reshape(*x.shape[:-1], weight.shape[1]), (rows, weight, bias is not None, x.shape)


def linear_backward(
    dy: Tensor, cache: tuple, out: tuple[Tensor, Tensor | None] | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients `(dx, dweight, dbias)`: `dx = dy @ weightᵀ`, `dweight = xᵀ @ dy`, `dbias = Σ dy`.

    `out=(dweight, dbias)` adds into these tensors, which may be of a wider dtype, and returns them.
    """
    rows, weight, has_bias, shape = cache
    check_gradient("dy", dy, (*shape[:-1], weight.shape[1]), rows.dtype, rows.device)
    dy = dy.reshape(len(rows), weight.shape[1])  # (N, C_out)
    dx = (dy @ weight.mT).reshape(shape)  # y = rows @ weight
    if out is None:
        return dx, rows.mT @ dy, dy.sum(0) if has_bias else None
    dweight, dbias = out
    check_out("out's dweight", dweight, weight.shape, dy.dtype, dy.device)
    add_product(dweight, rows.mT, dy)
    if has_bias:
        dbias = check_out("out's dbias", dbias, weight.shape[1:], dy.dtype, dy.device)
        dbias += dy.sum(0, dtype=dbias.dtype)  # y += bias
    return dx, dweight, dbias


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Compute `total += a @ b`; total has the dtype of the product's sums, float32 for narrower a and b."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif (total.is_cuda or total.is_meta) and total.dtype == torch.float32:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:  # elsewhere PyTorch's products cannot add into a wider total
        total.addmm_(a.to(total.dtype), b.to(total.dtype))
