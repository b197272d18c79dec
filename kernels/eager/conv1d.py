"""Convolution over time, as one matrix product over the positions that each output sees."""

import torch
from torch import Tensor

from minitransformer.ops.convolution import check_convolution

from ..checks import check_gradient, declared
from .linear import linear_backward, linear_forward
from .softmax import widened


@declared
def conv1d_forward(x: Tensor, weight: Tensor, bias: Tensor | None, *, padding: str = "causal") -> tuple[Tensor, tuple]:
    """`y_t = Σ_k x_{t+k−left} @ weight_k + bias`; x `(B, T, C_in)`, weight `(K, C_in, C_out)`, bias or `None`."""
    left, right = check_convolution(x.shape, weight.shape, padding)
    time = x.shape[1]
    taps, width_in, width_out = weight.shape
    padded = torch.nn.functional.pad(x, (0, 0, left, right))  # (B, left + T + right, C_in)
    length = padded.shape[1] - taps + 1
    windows = torch.cat([padded[:, k : k + length] for k in range(taps)], dim=-1)  # (B, T, K·C_in)
    y, linear_cache = linear_forward(windows, weight.reshape(taps * width_in, width_out), bias)
    return y, (linear_cache, padded.shape, left, time, weight.shape, y.shape)


def conv1d_backward(dy: Tensor, cache: tuple) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients `(dx, dweight, dbias)`: a position gets the sum of the gradients of the K windows that hold it."""
    linear_cache, padded_shape, left, time, weight_shape, shape = cache
    check_gradient("dy", dy, shape, linear_cache[0].dtype, linear_cache[0].device)
    dwindows, dweight, dbias = linear_backward(dy, linear_cache)
    taps, length = weight_shape[0], dy.shape[1]
    dwindows = dwindows.reshape(*dy.shape[:2], taps, padded_shape[2])  # (B, T, K, C_in)
    dpadded = widened(dy.new_zeros(padded_shape))
    for k in range(taps):
        dpadded[:, k : k + length] += dwindows[:, :, k]
    return dpadded[:, left : left + time].to(dy.dtype), dweight.reshape(weight_shape), dbias
