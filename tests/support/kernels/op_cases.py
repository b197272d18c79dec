"""Every op with arguments of its own: what tests of the tables run."""

from typing import Any

import numpy as np

from minitransformer.ops import Dropout

B, H, T, C, V = 2, 2, 5, 6, 11
DROPOUT = Dropout(0.4, key=2**40 + 3, sentence=1, position=2)
SMOOTHED = {"label_smoothing": 0.1, "ignore_index": 0}


def draw(rng: np.random.Generator, **shapes: tuple[int, ...]) -> dict[str, Any]:
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def ids(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, V, shape)


def qkv(rng: np.random.Generator, tq: int = T, tk: int = T) -> dict[str, Any]:
    return draw(rng, query=(B, H, tq, 3), key=(B, H, tk, 3), value=(B, H, tk, 4))


def additive(rng: np.random.Generator) -> dict[str, Any]:
    return draw(rng, query=(B, 3, C), key=(B, T, C), value=(B, T, 4), score_weight=(C,))


NORM = {"x": (B, T, C), "gamma": (C,), "beta": (C,)}
ADD_NORM = {"x": (B, T, C), "sublayer_out": (B, T, C), "gamma": (C,), "beta": (C,)}
MASK = np.array([[True] * 5, [True, False, True, True, False]])
CASES = {
    "linear": ("linear", lambda r: draw(r, x=(B, T, C), weight=(C, 4), bias=(4,)), {}),
    "linear without bias": ("linear", lambda r: draw(r, x=(B, T, C), weight=(C, 4)) | {"bias": None}, {}),
    "linear of nothing": ("linear", lambda r: draw(r, x=(0, T, C), weight=(C, 4), bias=(4,)), {}),
    "relu": ("relu", lambda r: draw(r, x=(B, T, C)), {}),
    "softmax": ("softmax", lambda r: draw(r, x=(B, T, C)), {}),
    "layernorm": ("layernorm", lambda r: draw(r, **NORM), {"eps": 1e-3}),
    "add_layernorm": ("add_layernorm", lambda r: draw(r, **ADD_NORM), {}),
    "add_layernorm, dropout": ("add_layernorm", lambda r: draw(r, **ADD_NORM), {"dropout": DROPOUT}),
    "dropout": ("dropout", lambda r: draw(r, x=(B, T, C)), {"dropout": DROPOUT}),
    "embedding": ("embedding", lambda r: {"ids": ids(r, B, T)} | draw(r, table=(V, C)), {"scale": 2.0}),
    "attention": ("attention", qkv, {}),
    "attention, causal": ("attention", lambda r: qkv(r, 3), {"causal": True}),
    "attention, padding": ("attention", qkv, {"key_mask": MASK}),
    "attention, window": ("attention", qkv, {"window": 1, "scale": 0.3}),
    "attention, dropout": ("attention", qkv, {"dropout": DROPOUT, "causal": True}),
    "attention, all": ("attention", qkv, {"dropout": DROPOUT, "causal": True, "window": 2, "key_mask": MASK}),
    "attention to nothing": ("attention", lambda r: qkv(r, tk=0), {}),
    "tanh": ("tanh", lambda r: draw(r, x=(B, T, C)), {}),
    "sigmoid": ("sigmoid", lambda r: draw(r, x=(B, T, C)), {}),
    "conv1d": ("conv1d", lambda r: draw(r, x=(B, T, C), weight=(3, C, 4), bias=(4,)), {}),
    "conv1d, same": ("conv1d", lambda r: draw(r, x=(B, T, C), weight=(3, C, 4), bias=(4,)), {"padding": "same"}),
    "conv1d, valid": ("conv1d", lambda r: draw(r, x=(B, T, C), weight=(2, C, 4), bias=(4,)), {"padding": "valid"}),
    "conv1d, no bias": ("conv1d", lambda r: draw(r, x=(B, T, C), weight=(2, C, 4)) | {"bias": None}, {}),
    "additive_attention": ("additive_attention", additive, {}),
    "additive_attention, padding": ("additive_attention", additive, {"key_mask": MASK}),
    "additive_attention, nothing": ("additive_attention", additive, {"key_mask": MASK & [[False], [True]]}),
    "cross_entropy": ("cross_entropy", lambda r: draw(r, logits=(B, T, V)) | {"targets": ids(r, B, T)}, SMOOTHED),
    "cross_entropy, plain": ("cross_entropy", lambda r: draw(r, logits=(B, T, V)) | {"targets": ids(r, B, T)}, {}),
    "cross_entropy of nothing": (
        "cross_entropy",
        lambda r: draw(r, logits=(3, V)) | {"targets": np.zeros(3, np.int64)},
        SMOOTHED,
    ),
    "linear_cross_entropy": (
        "linear_cross_entropy",
        lambda r: draw(r, x=(B * T, C), table=(V, C)) | {"targets": ids(r, B * T)},
        SMOOTHED,
    ),
}
