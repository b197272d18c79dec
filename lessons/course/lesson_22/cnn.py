"""Lesson 22: a small convolutional network for the digits, forward and backward, to compare a ViT with."""

import numpy as np
from numpy.typing import NDArray

from minitransformer.ops import adam_step, cross_entropy_backward, cross_entropy_forward

Array = NDArray[np.floating]


class CNN:
    """Twice a convolution of 3 × 3, a ReLU and the mean of 2 × 2; then a linear map: images (B, 1, 8, 8) → logits.

    All weights are one flat array, `data`.
    """

    def __init__(self, seed: int = 0, widths: tuple[int, int] = (16, 32), dtype: type = np.float32) -> None:
        first, second = widths
        self.shapes = [(9, first), (first,), (9 * first, second), (second,), (4 * second, 10), (10,)]
        rng, parts = np.random.default_rng(seed), list[Array]()
        for shape in self.shapes:
            scale = (2 / shape[0]) ** 0.5 if len(shape) == 2 else 0.0  # He and others 2015, for a ReLU
            parts.append((scale * rng.standard_normal(shape)).ravel())
        self.data = np.concatenate(parts).astype(dtype)

    def views(self, flat: Array) -> list[Array]:
        """The arrays of the weights, as views into a flat one."""
        ends = np.cumsum([np.prod(shape) for shape in self.shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), self.shapes, strict=True)]

    def forward(self, images: Array) -> tuple[Array, tuple]:
        """images (B, 1, 8, 8) → logits (B, 10), and a cache."""
        weights = self.views(self.data)
        x, caches = images.transpose(0, 2, 3, 1), list[tuple]()  # (B, height, width, channels)
        for weight, bias in (weights[:2], weights[2:4]):
            windows = _windows(x)
            z = windows @ weight + bias
            caches.append((windows, z, x.shape[3]))
            batch, height, width, channels = z.shape
            x = np.maximum(z, 0).reshape(batch, height // 2, 2, width // 2, 2, channels).mean((2, 4))
        return x.reshape(len(x), -1) @ weights[4] + weights[5], (caches, x)

    def backward(self, dlogits: Array, cache: tuple) -> Array:
        """The gradient of `data`."""
        weights, grad = self.views(self.data), np.zeros_like(self.data)
        dweights = self.views(grad)
        caches, x = cache
        dweights[4][...], dweights[5][...] = x.reshape(len(x), -1).T @ dlogits, dlogits.sum(0)
        dx = (dlogits @ weights[4].T).reshape(x.shape)
        for number in (2, 0):
            windows, z, channels = caches[number // 2]
            dz = dx.repeat(2, axis=1).repeat(2, axis=2) / 4 * (z > 0)
            dweights[number][...] = windows.reshape(-1, windows.shape[3]).T @ dz.reshape(-1, dz.shape[3])
            dweights[number + 1][...] = dz.sum((0, 1, 2))
            if number:
                dx = _windows_backward(dz @ weights[number].T, channels)
        return grad

    def fit(self, images: Array, classes: Array, steps: int, rate: float, rng: np.random.Generator) -> None:
        """Train with Adam on batches of up to 64 images."""
        m, v = np.zeros_like(self.data), np.zeros_like(self.data)
        for step in range(1, steps + 1):
            rows = rng.integers(len(images), size=64)
            logits, cache = self.forward(images[rows])
            _, loss_cache = cross_entropy_forward(logits, classes[rows])
            grad = self.backward(cross_entropy_backward(1.0, loss_cache), cache)
            now = rate * min(step / 50, (50 / step) ** 0.5)
            adam_step(self.data, grad, m, v, step=step, lr=now, beta1=0.9, beta2=0.98, eps=1e-9)


def _windows(x: Array) -> Array:
    """Each pixel's window of 3 × 3, zeros beyond the border: (B, H, W, C) → (B, H, W, 9·C)."""
    _, height, width, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.concatenate([padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], axis=3)


def _windows_backward(dwindows: Array, channels: int) -> Array:
    batch, height, width, _ = dwindows.shape
    dpadded = np.zeros((batch, height + 2, width + 2, channels), dwindows.dtype)
    for place in range(9):
        i, j = divmod(place, 3)
        dpadded[:, i : i + height, j : j + width] += dwindows[..., place * channels : (place + 1) * channels]
    return dpadded[:, 1:-1, 1:-1]
