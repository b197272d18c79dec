"""The initial values of parameters: NumPy arrays on every backend, so that the same seed gives the same model."""

import math
import zlib
from collections.abc import Callable

import numpy as np

Initializer = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Draws an array of the given shape."""


def xavier_uniform(fan_in: int, *fans_out: int, gain: float = 1.0) -> Initializer:
    """Draw from U(−a, a) with `a = gain · √(6 / (fan_in + fan_out))`, for a matrix `(fan_in, Σ fans_out)`.

    Several `fans_out` are several maps side by side, each with its own a. Source: Glorot & Bengio 2010, eq. 16.
    """

    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        limits = [gain * math.sqrt(6 / (fan_in + fan_out)) for fan_out in fans_out]
        return generator.uniform(-1, 1, shape) * np.repeat(limits, fans_out)

    return draw


def scaled(draw: Initializer, gain: float, columns: int) -> Initializer:
    """Draw as `draw`, and multiply the first columns by `gain`."""

    def scale(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        values = draw(generator, shape)
        values[:, :columns] *= gain
        return values

    return scale


def normal(std: float) -> Initializer:
    """Draw from N(0, std²)."""
    return lambda generator, shape: generator.normal(0.0, std, shape)


def constant(*values: float) -> Initializer:
    """Fill a vector with one value, or each of its parts of equal length with one of several."""
    return lambda generator, shape: np.repeat(values, math.prod(shape) // len(values)).reshape(shape)


def generator_for(seed: int, name: str) -> np.random.Generator:
    """Return a parameter's own generator: its values depend on the seed and its name, not on the rest of the model."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])
