"""Lesson 24: plausible misreadings of a GPT-2's file; none changes a shape."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .stranger import narrowed

Weights = Mapping[str, np.ndarray]
Misreading = tuple[Callable[[Weights], Weights], dict[str, Any]]
"""A change of the weights, and options of the forward."""


def misreadings(heads: int) -> dict[str, Misreading]:
    """Return the misreadings of a file whose model has so many heads, by name."""

    def by_head(w: np.ndarray) -> np.ndarray:
        """[Q|K|V] for a reader who expects query, key and value of head 0, then of head 1 (as in GPT-NeoX)."""
        return w.reshape(*w.shape[:-1], heads, 3, -1).swapaxes(-3, -2).reshape(w.shape)

    fused = "c_attn.weight", "c_attn.bias"
    return {
        "attn.c_proj transposed": (lambda w: changed(w, "attn.c_proj.weight", np.transpose), {}),
        "queries and keys exchanged": (lambda w: changed(w, fused, _thirds((1, 0, 2))), {}),
        "keys and values exchanged": (lambda w: changed(w, fused, _thirds((0, 2, 1))), {}),
        "c_attn head by head": (lambda w: changed(w, fused, by_head), {}),
        "half as many heads": (lambda w: w, {"heads": heads // 2}),
        "c_attn's bias left out": (lambda w: changed(w, "c_attn.bias", np.zeros_like), {}),
        "all biases of the norms left out": (
            lambda w: changed(w, ("ln_1.bias", "ln_2.bias", "ln_f.bias"), np.zeros_like),
            {},
        ),
        "ln_1 and ln_2 exchanged": (lambda w: _exchanged(w, "ln_1", "ln_2"), {}),
        "gains taken as 1 + gain": (lambda w: changed(w, ("ln_1.weight", "ln_2.weight"), lambda gain: 1 + gain), {}),
        "layers 0 and 1 exchanged": (lambda w: _exchanged(w, "h.0.", "h.1."), {}),
        "positions from 1 on": (lambda w: changed(w, "wpe.weight", lambda table: np.roll(table, -1, axis=0)), {}),
        "GELU with erf": (lambda w: w, {"gelu": "none"}),
        "epsilon 1e-12 (BERT's)": (lambda w: w, {"eps": 1e-12}),
        "bfloat16 taken for float16": (_as_float16, {}),
    }


def changed(w: Weights, ending: str | tuple[str, ...], change: Callable[[np.ndarray], np.ndarray]) -> Weights:
    """Return the weights, those with this ending of their names changed."""
    return {name: np.ascontiguousarray(change(each)) if name.endswith(ending) else each for name, each in w.items()}


def _thirds(order: Sequence[int]) -> Callable[[np.ndarray], np.ndarray]:
    """Exchange the thirds of the last axis."""
    return lambda w: np.concatenate([np.split(w, 3, axis=-1)[n] for n in order], axis=-1)


def _exchanged(w: Weights, one: str, other: str) -> Weights:
    """Exchange two parts of the weights' names."""
    return {name.replace(one, "·").replace(other, one).replace("·", other): each for name, each in w.items()}


def _as_float16(w: Weights) -> Weights:
    """Take bfloat16 for float16, as it is read from a file."""
    return {name: narrowed(each).view(np.float16).astype(np.float64) for name, each in w.items()}
