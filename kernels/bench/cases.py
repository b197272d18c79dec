"""What every op is checked on: shapes that cross the borders of blocks, and all of its options.

Sizes come in two: those for a GPU, and tiny ones for the interpreter, which takes milliseconds for each block.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitransformer.ops import Dropout

DROPOUT = Dropout(0.3, key=2**40 + 3, sentence=1, position=2)
SMOOTHED = {"label_smoothing": 0.1, "ignore_index": 0}

PEAKED = 4.0
"""Times a normal number: a softmax of many such has some probabilities of order one, beside which errors count."""


@dataclass(frozen=True)
class Case:
    """The arrays of an op in its order, float64 or integer, and options that the reference takes too."""

    name: str
    arrays: dict[str, np.ndarray]
    options: dict[str, Any] = field(default_factory=dict)
    float32: bool = False
    """In float32 only."""
    tf32: bool = False
    """The same, with products of 10 bits of mantissa: an option of the kernels' own."""


def cases(op: str, full: bool) -> Iterator[Case]:
    """The cases of an op; `full` for a GPU's sizes."""
    return CASES[op](np.random.default_rng(0), full)


def _attention(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    def heads(B: int, H: int, Tq: int, Tk: int, D: int, Dv: int) -> dict[str, np.ndarray]:
        shapes = {"query": (B, H, Tq, D), "key": (B, H, Tk, D), "value": (B, H, Tk, Dv)}
        return {name: rng.standard_normal(shape) for name, shape in shapes.items()}

    H, T, D, window = (3, 200, 64, 37) if full else (1, 18, 8, 3)
    padding = np.arange(T) < np.array([[T - 3], [1]])  # (2, T)
    scattered = np.stack([rng.random(T) < 0.7, np.zeros(T, bool)])  # and a sentence with no key at all
    everything = {"causal": True, "window": window, "key_mask": scattered, "dropout": DROPOUT}
    every = {
        "full": {},
        "causal": {"causal": True},
        "padding": {"key_mask": padding},
        "scattered padding": {"key_mask": scattered},
        "window": {"window": window},
        "negative scale": {"scale": -0.3},
        "dropout": {"dropout": DROPOUT},
        "everything": everything,
    }
    for name in every if full else ("padding", "negative scale", "everything"):
        yield Case(name, heads(2, H, T, T, D, D), every[name])
    yield Case("tf32", heads(2, H, T, T, D, D), tf32=True)

    lengths = ((1, 300), (130, 257), (257, 130)) if full else ((18, 5),)
    for Tq, Tk in lengths:
        yield Case(f"causal, {Tq} × {Tk}", heads(1, H, Tq, Tk, D, D), {"causal": True})
    widths = ((1, 3), (40, 72), (128, 128), (256, 64)) if full else ((20, 5),)
    for D, Dv in widths:
        yield Case(f"everything, {D} and {Dv} wide", heads(2, H, T, T, D, Dv), everything)
    if full:
        yield Case("long", heads(1, H, 1100, 1100, D, D), {"causal": True})


def _softmax(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for shape in ((5, 3, 7), (1000, 128), (300, 4097), (2, 32_769), (3, 131_072)) if full else ((5, 3, 7), (3, 1100)):
        yield Case(f"{shape}", {"x": PEAKED * rng.standard_normal(shape)})
    x = PEAKED * rng.standard_normal((3, 100))
    x[0], x[1, 1:] = -np.inf, -np.inf
    yield Case("nothing but −inf", {"x": x})


def _layernorm(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for rows, width in ((3, 5), (1000, 512), (70, 4097), (9, 8200)) if full else ((3, 5), (40, 130)):
        arrays = {"x": 3 + rng.standard_normal((rows, width))} | _scale_and_shift(rng, width)
        yield Case(f"({rows}, {width})", arrays, {"eps": 1e-3})


def _add_layernorm(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for shape in ((2, 3, 5), (3, 300, 512), (2, 9, 8200)) if full else ((2, 3, 5), (2, 20, 130)):
        for name, options in (("", {}), (", dropout", {"dropout": DROPOUT})):
            arrays = {"x": rng.standard_normal(shape), "sublayer_out": rng.standard_normal(shape)}
            yield Case(f"{shape}{name}", arrays | _scale_and_shift(rng, shape[-1]), options)


def _cross_entropy(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for rows, vocab_size in ((7, 11), (300, 37_000), (5, 128_001)) if full else ((7, 11), (5, 1100)):
        for name, options in (("", {}), (", smoothed", SMOOTHED)):
            logits = PEAKED * rng.standard_normal((rows, vocab_size))
            arrays = {"logits": logits, "targets": _ids(rng, vocab_size, rows)}
            yield Case(f"({rows}, {vocab_size}){name}", arrays, options)


def _linear_cross_entropy(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    def arrays(rows: int, width: int, vocab_size: int) -> dict[str, np.ndarray]:
        table = PEAKED / np.sqrt(width) * rng.standard_normal((vocab_size, width))
        return {"x": rng.standard_normal((rows, width)), "table": table, "targets": _ids(rng, vocab_size, rows)}

    yield Case("(7, 4), 11", arrays(7, 4, 11))
    sizes = (300, 64, 37_000) if full else (20, 6, 1100)
    yield Case(f"{sizes[:2]}, {sizes[2]}, smoothed", arrays(*sizes), SMOOTHED)
    if full:  # more logits than are ever held at once; the reference takes seconds
        yield Case("(2000, 64), 37000, smoothed", arrays(2000, 64, 37_000), SMOOTHED, float32=True)


def _embedding(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for shape, vocab_size, width in (
        ((2, 5), 7, 6), *([((50, 100), 1000, 512), ((4, 500), 3, 5000)] if full else [((2, 35), 3, 40)])
    ):  # fmt: skip
        arrays = {"ids": rng.integers(0, vocab_size, shape), "table": rng.standard_normal((vocab_size, width))}
        yield Case(f"{shape} of {vocab_size}, {width} wide", arrays, {"scale": 1.5})


def _dropout(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for shape in ((100, 512), (2, 3, 70, 3001)) if full else ((2, 3, 7), (2, 2, 5, 9)):
        yield Case(f"{shape}", {"x": rng.standard_normal(shape)}, {"dropout": DROPOUT})


def _relu(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for shape in ((3, 5), (1000, 2049)) if full else ((3, 5), (3, 1000)):
        yield Case(f"{shape}", {"x": rng.standard_normal(shape)})


def _adam(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for size in (7, 1_000_003) if full else (7, 1100):
        data, grad, m = rng.standard_normal((3, size))
        yield Case(f"({size},)", {"data": data, "grad": grad, "m": m, "v": rng.random(size)})


def _ids(rng: np.random.Generator, vocab_size: int, *shape: int) -> np.ndarray:
    """Ids, two of which are 0: what `SMOOTHED` ignores."""
    ids = rng.integers(0, vocab_size, shape)
    ids[:2] = 0
    return ids


def _scale_and_shift(rng: np.random.Generator, width: int) -> dict[str, np.ndarray]:
    return {"gamma": rng.standard_normal(width), "beta": rng.standard_normal(width)}


CASES: dict[str, Callable[[np.random.Generator, bool], Iterator[Case]]] = {
    "attention": _attention,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "add_layernorm": _add_layernorm,
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": _linear_cross_entropy,
    "embedding": _embedding,
    "dropout": _dropout,
    "relu": _relu,
    "adam": _adam,
}
