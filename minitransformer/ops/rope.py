"""Positions inside attention: rotary ones, which turn queries and keys, and T5's buckets of distances."""

import math

import numpy as np

from .arguments import Array, arguments, check_flag, gradient_of


@arguments("x B H T D, cos:fixed T R/2, sin:fixed T R/2", interleaved=check_flag)
def rope_forward(x: Array, cos: Array, sin: Array, interleaved: bool = False) -> tuple[Array, tuple]:
    """Turns each pair of the first R channels, `(a, b) → (a·cos − b·sin, b·cos + a·sin)`; the others stay.

    x `(B, H, T, D)`, cos and sin `(T, R/2)` with R ≤ D: row t holds the angles of position t, one for each pair. Pairs
    are channels i and i + R/2 (halves, as in Llama) or, `interleaved`, 2i and 2i + 1 (neighbours, as in the paper). So
    a query's product with a key depends on the distance between them alone. Raises `ValueError` where R > D.
    Source: Su et al. 2021, eq. 34.
    """
    check_angles(cos.shape, x.shape)
    return turned(x, cos, sin, interleaved), (cos, sin, interleaved, x.shape)


@gradient_of(lambda cos, sin, interleaved, shape: (shape, cos.dtype))
def rope_backward(dy: Array, cache: tuple) -> Array:
    """The gradient dx: dy turned back. A rotation's transpose is the rotation by the opposite angle."""
    cos, sin, interleaved, _ = cache
    return turned(dy, cos, -sin, interleaved)


def turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Return a copy of x with its first channels turned."""
    first, second = pairs_of(cos.shape[1], interleaved)
    a, b = x[..., first], x[..., second]  # (B, H, T, R/2)
    y = x.copy()
    y[..., first] = a * cos - b * sin
    y[..., second] = b * cos + a * sin
    return y


def pairs_of(count: int, interleaved: bool) -> tuple[slice, slice]:
    """Return the channels of the pairs: the first of each, and the second of each."""
    if interleaved:
        return slice(0, 2 * count, 2), slice(1, 2 * count, 2)
    return slice(count), slice(count, 2 * count)


def check_angles(cos_shape: tuple[int, ...], x_shape: tuple[int, ...]) -> None:
    """Raise `ValueError` where there are more angles than pairs of channels."""
    if 2 * cos_shape[1] > x_shape[3]:
        most = x_shape[3] // 2
        raise ValueError(f"cos has shape {cos_shape}, expected at most {most} angles a position beside x {x_shape}")


def bucket_of(distance: int, buckets: int, max_distance: int, causal: bool) -> int:
    """Return the bucket of a key at this distance after its query; before it the distance is negative.

    In an encoder half of the buckets are for later keys; in a decoder (`causal`) none is. The first half of one side's
    buckets holds one distance each; in the second they grow with the logarithm, up to `max_distance`, and the last
    holds all beyond. Source: Raffel et al. 2020, §2.1.
    """
    first = 0
    if causal:
        away = max(-distance, 0)
    else:
        buckets //= 2
        first, away = (buckets if distance > 0 else 0), abs(distance)
    exact = buckets // 2
    if away < exact:
        return first + away
    # In float32, as where T5 was trained: at some edges of buckets float64 rounds to the other side.
    share = np.log(np.float32(away) / np.float32(exact)) / np.float32(math.log(max_distance / exact))
    return first + min(exact + int(share * np.float32(buckets - exact)), buckets - 1)
