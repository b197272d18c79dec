"""Every op with arguments of its own: what tests of the tables run."""

from typing import Any

import numpy as np

from kernels.proof.cases import SMOOTHED, draw
from minitransformer.ops import Dropout, Pattern, numpy_ops
from minitransformer.ops.elementwise import ACTIVATIONS

B, H, T, C, V = 2, 2, 5, 6, 11
SIZES = {
    "rows": (B, T), "B": B, "H": H, "Tq": T, "Tk": T, "T": T, "D": 3, "Dv": 4, "C": C, "C_in": C, "C_out": 4, "K": 3,
    "F": 4, "R/2": 2, "V": V, "N": B * T, "n": C, "channels": 3, "height": 4, "width": 6,
}  # fmt: skip
DROPOUT = Dropout(0.4, key=2**40 + 3, sentence=1, position=2)
MASK = np.array([[True] * 5, [True, False, True, True, False]])
BIAS = np.random.default_rng(7).standard_normal((B, H, T, T))

ANGLES: dict[str, Any] = dict(zip(("cos", "sin"), np.random.default_rng(8).standard_normal((2, T, 2)), strict=True))
WEIGHTS = {"weights": np.random.default_rng(10).standard_normal((B, T))}
PROBABILITIES = {"targets": np.random.default_rng(9).dirichlet(np.ones(V), size=(B, T))}

WITHOUT_BIAS, WITHOUT_BETA = {"bias": None}, {"beta": None}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {name: (name, {}, {}) for name, _ in numpy_ops.pairs()}
CASES |= {
    "linear without bias": ("linear", WITHOUT_BIAS, {}),
    "linear of nothing": ("linear", {"rows": (0, T)}, {}),
    "layernorm": ("layernorm", {}, {"eps": 1e-3}),
    "layernorm without beta": ("layernorm", WITHOUT_BETA, {}),
    "add_layernorm, dropout": ("add_layernorm", {}, {"dropout": DROPOUT, "eps": 1e-3}),
    "add_layernorm without beta": ("add_layernorm", WITHOUT_BETA, {"dropout": DROPOUT}),
    "rmsnorm": ("rmsnorm", {}, {"eps": 1e-3}),
    "add_rmsnorm, dropout": ("add_rmsnorm", {}, {"dropout": DROPOUT, "eps": 1e-3}),
    "gelu, tanh": ("gelu", {}, {"approximate": "tanh"}),
    **{f"gated, {each}": ("gated", {}, {"activation": each}) for each in ACTIVATIONS},
    "patches": ("patches", {}, {"size": 2}),
    "rope": ("rope", {"D": 5}, ANGLES),
    "rope, neighbours": ("rope", {"D": 5}, ANGLES | {"interleaved": True}),
    "dropout": ("dropout", {}, {"dropout": DROPOUT}),
    "embedding": ("embedding", {}, {"scale": 2.0}),
    "attention, causal": ("attention", {"Tq": 3}, {"causal": True}),
    "attention, padding": ("attention", {}, {"key_mask": MASK}),
    "attention, window": ("attention", {}, {"window": 1, "scale": 0.3}),
    "attention, dropout": ("attention", {}, {"dropout": DROPOUT, "causal": True}),
    "attention, all": ("attention", {}, {"dropout": DROPOUT, "causal": True, "window": 2, "key_mask": MASK}),
    "attention, causal window to the left": ("attention", {}, {"window": (2, None), "causal": True}),
    "attention, window, left and right": ("attention", {"Tq": 3}, {"window": (2, 1), "key_mask": MASK}),
    "attention, window to the right": ("attention", {}, {"window": (0, 3)}),
    "attention, grouped heads": ("attention", {"H": 4, "Hk": 2}, {"causal": True}),
    "attention, one key/value head": ("attention", {"Hk": 1}, {"dropout": DROPOUT}),
    "attention, bias": ("attention", {"bias": BIAS}, {"key_mask": MASK}),
    "attention, bias of keys": ("attention", {"bias": BIAS[0, 0, 0]}, {}),
    "attention, bias of heads": (
        "attention",
        {"H": 4, "Hk": 2, "bias": BIAS.reshape(4, T, T)[:, :1]},
        {"softcap": 2.0},
    ),
    "attention, softcap": ("attention", {}, {"softcap": 0.7, "causal": True, "dropout": DROPOUT}),
    "attention, pattern of masks": ("attention", {}, {"pattern": Pattern(causal=True, window=(2, 1))}),
    "attention, blocks": ("attention", {}, {"pattern": Pattern(causal=True, block=2, summary=1), "key_mask": MASK}),
    "attention, strided": ("attention", {}, {"pattern": Pattern(stride=2, window=(1, 0)), "dropout": DROPOUT}),
    "attention, global tokens": ("attention", {"Tq": 4}, {"pattern": Pattern(window=1, global_tokens=(0, 3))}),
    "attention to nothing": ("attention", {"Tk": 0}, {}),
    "linear_attention, causal": ("linear_attention", {"T": 37, "H": 2, "Hk": 1}, {"causal": True}),
    "linear_attention, padding": ("linear_attention", {"Hk": 1}, {"key_mask": MASK & [[True], [False]]}),
    "linear_attention, all": ("linear_attention", {}, {"key_mask": MASK, "causal": True, "eps": 0.1}),
    "conv1d, same": ("conv1d", {}, {"padding": "same"}),
    "conv1d, valid": ("conv1d", {"K": 2}, {"padding": "valid"}),
    "conv1d, no bias": ("conv1d", {"K": 2} | WITHOUT_BIAS, {}),
    "additive_attention": ("additive_attention", {"Tq": 3}, {}),
    "additive_attention, padding": ("additive_attention", {"Tq": 3}, {"key_mask": MASK}),
    "additive_attention, nothing": ("additive_attention", {"Tq": 3}, {"key_mask": MASK & [[False], [True]]}),
    "cross_entropy": ("cross_entropy", {}, SMOOTHED),
    "cross_entropy, plain": ("cross_entropy", {}, {}),
    "cross_entropy, weights": ("cross_entropy", {}, SMOOTHED | WEIGHTS),
    "cross_entropy, weights alone": ("cross_entropy", {}, WEIGHTS),
    "cross_entropy, probabilities, weights": ("cross_entropy", {}, PROBABILITIES | {"label_smoothing": 0.1} | WEIGHTS),
    "cross_entropy of nothing": ("cross_entropy", {"rows": (3,), "targets": np.zeros(3, np.int64)}, SMOOTHED),
    "cross_entropy, probabilities": ("cross_entropy", {}, PROBABILITIES | {"label_smoothing": 0.1}),
    "linear_cross_entropy": ("linear_cross_entropy", {}, SMOOTHED),
    "linear_cross_entropy, weights": ("linear_cross_entropy", {}, SMOOTHED | {"weights": WEIGHTS["weights"].ravel()}),
}
"""An op, what is not as in `SIZES` (an axis, or an array as it is), and options; each op has a case of its name.

Among the options are the arrays that have no gradient.
"""


def arrays_of(case: str, rng: np.random.Generator) -> dict[str, Any]:
    """The arrays of a case, in the op's order."""
    op, changes, options = CASES[case]
    sizes: Any = SIZES | {axis: size for axis, size in changes.items() if axis in SIZES or axis == "Hk"}
    drawn: dict[str, Any] = draw(op, rng, **sizes)
    drawn |= {name: array for name, array in changes.items() if name not in SIZES and name != "Hk"}
    return {name: array for name, array in drawn.items() if name not in options}


def ids(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Ids of a vocabulary of V."""
    return rng.integers(0, V, shape)
