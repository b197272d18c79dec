"""Images as sequences of patches, as ViT reads them."""

from functools import partial

from .arguments import Array, arguments, check_integer, gradient_of


@arguments("images B channels height width", size=partial(check_integer, at_least=1))
def patches_forward(images: Array, size: int) -> tuple[Array, tuple]:
    """Cuts images into squares of size × size pixels: `(B, channels, height, width)` → `(B, T, channels·size²)`.

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
    """Raises `ValueError` unless patches of this size fill the images."""
    if images_shape[2] % size or images_shape[3] % size:
        raise ValueError(f"images has shape {images_shape}, expected a height and a width that size {size} divides")
