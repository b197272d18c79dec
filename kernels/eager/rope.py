"""Rotary positions."""

from torch import Tensor

from minitransformer.ops.rope import check_angles, pairs_of

from ..checks import check_gradient, declared


@declared
def rope_forward(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> tuple[Tensor, tuple]:
    """Turn each pair of the first R channels, `(a, b) → (a·cos − b·sin, b·cos + a·sin)`; cos and sin `(T, R/2)`."""
    check_angles(tuple(cos.shape), tuple(x.shape))
    return _turned(x, cos, sin, interleaved), (cos, sin, interleaved, x.shape, x.dtype)


def rope_backward(dy: Tensor, cache: tuple) -> Tensor:
    """Return the gradient dx: dy turned back."""
    cos, sin, interleaved, shape, dtype = cache
    check_gradient("dy", dy, shape, dtype, cos.device)
    return _turned(dy, cos, -sin, interleaved)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    first, second = pairs_of(cos.shape[1], interleaved)
    a, b = x[..., first], x[..., second]  # (B, H, T, R/2)
    y = x.clone()
    y[..., first] = (a * cos - b * sin).to(x.dtype)
    y[..., second] = (b * cos + a * sin).to(x.dtype)
    return y
