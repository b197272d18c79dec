"""Images as sequences of patches."""

from torch import Tensor

from minitransformer.ops.patches import check_sides

from ..checks import check_gradient, declared


@declared
def patches_forward(images: Tensor, size: int) -> tuple[Tensor, tuple]:
    """Squares of size × size pixels as rows: `(B, channels, height, width)` → `(B, T, channels·size²)`."""
    check_sides(tuple(images.shape), size)
    batch, channels, height, width = images.shape
    split = images.reshape(batch, channels, height // size, size, width // size, size)
    rows = split.permute(0, 2, 4, 1, 3, 5)  # (B, height/size, width/size, channels, size, size)
    y = rows.reshape(batch, (height // size) * (width // size), channels * size * size)
    return y, (images.shape, y.shape, y.dtype, y.device, size)


def patches_backward(dy: Tensor, cache: tuple) -> Tensor:
    """Return the gradient dimages: each entry goes back to the pixel that it came from."""
    (batch, channels, height, width), shape, dtype, device, size = cache
    check_gradient("dy", dy, shape, dtype, device)
    rows = dy.reshape(batch, height // size, width // size, channels, size, size)
    return rows.permute(0, 3, 1, 4, 2, 5).reshape(batch, channels, height, width)
