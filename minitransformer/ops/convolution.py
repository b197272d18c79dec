"""Convolutions: over time, of each position and its neighbours, and of an image, cut into patches."""

from functools import partial

import numpy as np

from .arguments import Array, arguments, check_integer, gradient_of, unchecked
from .linear import linear_backward, linear_forward


@arguments("x B T C_in, weight K≥1 C_in C_out, bias? C_out", products=True)
def conv1d_forward(x: Array, weight: Array, bias: Array | None, *, padding: str = "causal") -> tuple[Array, tuple]:
    """`y_t = Σ_k x_{t+k−left} @ weight_k + bias`, with zeros before the first position and after the last.

    `padding`, the zeros: `"causal"`, K − 1 on the left, so that y_t sees x_{t−K+1}, …, x_t and no future; `"same"`, as
    many on either side, for an odd K; `"valid"`, none, and y has T − K + 1 positions. Raises `ValueError` for another.
    Source: Waibel et al. 1989; Gehring et al. 2017, §3.2.
    """
    left, right = check_convolution(x.shape, weight.shape, padding)
    batch, time, width_in = x.shape
    taps, _, width_out = weight.shape
    padded = np.zeros((batch, left + time + right, width_in), x.dtype)
    padded[:, left : left + time] = x
    length = left + time + right - taps + 1
    # The K positions that each output sees, side by side: the convolution is then one matrix product.
    windows = np.concatenate([padded[:, k : k + length] for k in range(taps)], axis=-1)  # (B, T, K·C_in)
    y, linear_cache = unchecked(linear_forward)(windows, weight.reshape(taps * width_in, width_out), bias)
    return y, (linear_cache, padded.shape, left, time, weight.shape, y.shape)


@gradient_of(
    lambda linear_cache, padded_shape, left, time, weight_shape, y_shape: (y_shape, linear_cache[0].dtype),
    products=True,
)
def conv1d_backward(dy: Array, cache: tuple) -> tuple[Array, Array, Array | None]:
    """Gradients `(dx, dweight, dbias)`: a position gets the sum of the gradients of the K windows that hold it."""
    linear_cache, padded_shape, left, time, weight_shape, _ = cache
    dwindows, dweight, dbias = unchecked(linear_backward)(dy, linear_cache)
    taps, length = weight_shape[0], dy.shape[1]
    dwindows = dwindows.reshape(*dy.shape[:2], taps, padded_shape[2])  # (B, T, K, C_in)
    dpadded = np.zeros(padded_shape, dy.dtype)
    for k in range(taps):
        dpadded[:, k : k + length] += dwindows[:, :, k]  # windows[:, :, k] = padded[:, k : k + length]
    return dpadded[:, left : left + time], dweight.reshape(weight_shape), dbias


def check_convolution(x_shape: tuple[int, ...], weight_shape: tuple[int, ...], padding: str) -> tuple[int, int]:
    """Return the numbers of zeros on the left and on the right. Raises `ValueError` where the arguments do not fit."""
    if len(weight_shape) != 3 or not weight_shape[0]:
        raise ValueError(f"weight has shape {tuple(weight_shape)}, expected (K, C_in, C_out) with K ≥ 1")
    taps, width_in, _ = weight_shape
    if x_shape[2] != width_in:
        raise ValueError(
            f"x has shape {tuple(x_shape)}, expected (B, T, {width_in}), the width of weight {tuple(weight_shape)}"
        )
    sides = {"causal": (taps - 1, 0), "same": (taps // 2, taps // 2), "valid": (0, 0)}
    if not isinstance(padding, str) or padding not in sides:
        raise ValueError(f"padding is {padding!r}, expected one of {', '.join(sides)}")
    if padding == "same" and taps % 2 == 0:
        raise ValueError(f"weight has {taps} positions: padding 'same' needs an odd number, with one in the middle")
    if padding == "valid" and x_shape[1] < taps:
        raise ValueError(f"x has shape {tuple(x_shape)}: padding 'valid' needs at least weight's {taps} positions")
    return sides[padding]


@arguments("images B channels height width", size=partial(check_integer, at_least=1))
def patches_forward(images: Array, size: int) -> tuple[Array, tuple]:
    """Cut images into squares of size × size pixels: `(B, channels, height, width)` → `(B, T, channels·size²)`.

    The T = (height/size) · (width/size) patches come row by row, and each patch's entries channel by channel, row by
    row: with a `linear` it is ViT's convolution, whose weight `(C_out, channels, size, size)`, flattened to
    `(C_out, channels·size²)`, is the linear map's transposed. Raises `ValueError` unless size divides both sides.
    Source: Dosovitskiy et al. 2021, §3.1.
    """
    check_sides(images.shape, size)
    batch, channels, height, width = images.shape
    split = images.reshape(batch, channels, height // size, size, width // size, size)
    rows = split.transpose(0, 2, 4, 1, 3, 5)  # (B, height/size, width/size, channels, size, size)
    y = rows.reshape(batch, (height // size) * (width // size), channels * size * size)
    return y, (images.shape, y.shape, images.dtype, size)


@gradient_of(lambda images_shape, shape, dtype, size: (shape, dtype))
def patches_backward(dy: Array, cache: tuple) -> Array:
    """The gradient dimages: each entry goes back to the pixel that it came from."""
    (batch, channels, height, width), _, _, size = cache
    rows = dy.reshape(batch, height // size, width // size, channels, size, size)
    split = rows.transpose(0, 3, 1, 4, 2, 5)  # (B, channels, height/size, size, width/size, size)
    return split.reshape(batch, channels, height, width)


def check_sides(images_shape: tuple[int, ...], size: int) -> None:
    """Raise `ValueError` unless patches of this size fill the images."""
    if images_shape[2] % size or images_shape[3] % size:
        raise ValueError(f"images has shape {images_shape}, expected a height and a width that size {size} divides")
