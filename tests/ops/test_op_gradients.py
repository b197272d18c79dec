"""Every op of the table, one body for all: output and gradients in float64, float32 beside PyTorch's, empty arrays.

Arrays are drawn from the op's declaration, so a new op needs its oracle alone, and a line for options that it has.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles
from support.declared_ops import declaration_of, options_of
from support.prove import Proof, as_list, batches, beside, normal, prove, prove_float32_accuracy, read_only, seeds

from minitransformer.gradcheck import error
from minitransformer.ops import Dropout, Pattern, dropout_key, numpy_ops
from minitransformer.ops.arguments import Declaration

SIZES = {
    "...": batches,
    **{letter: st.integers(0, 5) for letter in ("n", "N", "F")},
    **{letter: st.integers(1, 6) for letter in ("V", "C")},
    "R/2": st.integers(0, 2),
    "Hk": st.integers(1, 2),
}
"""By the letters of declarations; any other is 1 to 4, few of each in attention, which has many of them. A letter that
another divides is this times the other."""

rates = st.sampled_from([None, 0.0, 0.1, 0.25, 0.5, 0.9])
epsilons = st.sampled_from([1e-5, 1e-3, 0.5])
losses = {"label_smoothing": st.sampled_from([0.0, 0.1, 0.9]), "ignore_index": st.sampled_from([None, 0, -100])}
patterns = st.builds(
    Pattern,
    causal=st.booleans(),
    window=st.sampled_from([None, 0, 1, (2, 0), (0, None)]),
    block=st.sampled_from([None, None, 2, 3]),
    stride=st.sampled_from([None, None, 2, 3]),
    global_tokens=st.sampled_from([(), (), (0,), (2, 0)]),
).flatmap(lambda pattern: st.integers(0, pattern.block or 0).map(lambda count: replace(pattern, summary=count)))
OPTIONS: dict[str, dict[str, st.SearchStrategy]] = {
    "gelu": {"approximate": st.sampled_from(["none", "tanh"])},
    "gated": {"activation": st.sampled_from(["silu", "gelu", "gelu_tanh", "relu", "sigmoid"])},
    "layernorm": {"eps": epsilons},
    "add_layernorm": {"eps": epsilons, "dropout": rates},
    "rmsnorm": {"eps": epsilons},
    "add_rmsnorm": {"eps": epsilons, "dropout": rates},
    "rope": {"interleaved": st.booleans()},
    "patches": {"size": st.integers(1, 3)},
    "dropout": {"dropout": rates},
    "embedding": {"scale": st.sampled_from([1.0, 3.5])},
    "attention": {
        "causal": st.booleans(),
        "window": st.sampled_from([None, 0, 1, 2, (0, 1), (None, 1), (2, None)]),
        "scale": st.sampled_from([None, 0.7, 0.0]),
        "softcap": st.sampled_from([None, 0.5, 3.0]),
        "dropout": rates,
    },
    "attention, causal": {"causal": st.just(True)},
    "attention, window": {"causal": st.booleans(), "window": st.integers(0, 3)},
    "attention, softcap": {"softcap": st.sampled_from([0.5, 1, 3.0])},
    "attention, pattern": {"pattern": patterns, "dropout": rates},
    "linear_attention": {"causal": st.booleans(), "eps": st.sampled_from([1e-6, 0.1])},
    "conv1d": {"padding": st.sampled_from(["causal", "same", "valid"])},
    "cross_entropy": losses,
    "cross_entropy, probabilities": {"label_smoothing": losses["label_smoothing"]},
    "linear_cross_entropy": losses,
}
"""An op, or a case of it, and what its options are drawn from; ops without options need no line."""

CASES = list(dict.fromkeys([*(name for name, _ in numpy_ops.pairs()), *OPTIONS]))


def op_of(case: str) -> str:
    return case.split(",")[0]


def dropout_of(rate: float | None, seed: int) -> Dropout | None:
    return None if rate is None else Dropout(rate, dropout_key(seed, 1, 2), sentence=2, position=1)


def arrays_of(declaration: Declaration, sizes: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw as `random_arguments` does, in any memory layout, integers of either width, and biases to broadcast."""
    arrays = {}
    for argument in declaration.arrays:
        shape = tuple(n for axis in argument.axes for n in (sizes[axis] if axis == "..." else (sizes[axis],)))
        if argument.broadcast:
            shape = tuple(n if rng.random() < 0.7 else 1 for n in shape)[rng.integers(len(shape) + 1) :]
        arrays[argument.name] = normal(rng, *shape)
        if argument.kind == "ids":
            width = (np.int32, np.int64)[rng.integers(2)]
            arrays[argument.name] = rng.integers(sizes[argument.limit], size=shape[::-1], dtype=width).T
        elif argument.kind == "mask":
            arrays[argument.name] = read_only(rng.random(shape) >= rng.choice([0.0, 0.3, 0.6, 1.0]))
    return arrays


def fixed_of(case: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Takes arrays without a gradient out of the others; in float32 they are what they are in float64."""
    fixed = {a.name: arrays.pop(a.name) for a in declaration_of(op_of(case)).arrays if a.kind == "fixed"}
    fixed = {name: array for name, array in fixed.items() if array is not None}
    if case == "cross_entropy, probabilities":
        del arrays["targets"]
        masses = np.random.default_rng(0).exponential(size=arrays["logits"].shape)
        fixed["targets"] = masses / masses.sum(axis=-1, keepdims=True)
    return {name: array.astype(np.float32).astype(np.float64) for name, array in fixed.items()}


def fitted(op: str, arrays: dict[str, Any], options: dict[str, Any], rng: np.random.Generator) -> None:
    """Moves numbers off what is no derivative or bends too sharply for differences, and leaves out some targets."""
    bent = {"relu": ["x"], "gated": ["gate"]}.get(op, [])
    for name in bent:
        arrays[name] = np.asarray(arrays[name] + 0.1 * np.sign(arrays[name]))
    if op == "linear_attention":  # φ bends at 0
        for name in ("query", "key"):
            arrays[name] = np.asarray(arrays[name] + 0.01 * np.sign(arrays[name]))
    if op.endswith("norm"):  # rows far from constant: near it, 1/√(var + eps) bends
        arrays["x"] = 0.3 * arrays["x"] + np.linspace(-1, 1, arrays["x"].shape[-1])
    if op in ("add_layernorm", "add_rmsnorm"):
        arrays["sublayer_out"] = 0.1 * arrays["sublayer_out"]
    if options.get("ignore_index") is not None:
        targets = arrays["targets"]
        arrays["targets"] = np.where(rng.random(targets.shape) < 0.3, options["ignore_index"], targets)


def prove_op(
    case: str, arrays: dict[str, Any], options: dict[str, Any], proof: Proof, samples: int | None = None
) -> None:
    pair, masks = getattr(numpy_ops, op_of(case)), {"key_mask": arrays.pop("key_mask", None)}
    if op_of(case) == "attention" and arrays.get("bias", 0) is None:  # it has no gradient then, not even None
        del arrays["bias"]
    options = options | {name: mask for name, mask in masks.items() if mask is not None}
    fixed = fixed_of(case, arrays)
    forward, oracle = (partial(f, **options) for f in (pair.forward, getattr(oracles, op_of(case))))
    prove(case, beside(forward, fixed), pair.backward, beside(oracle, fixed), arrays, proof, samples)


@pytest.mark.parametrize("samples", [4, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=40)
@given(data=st.data(), seed=seeds)
def test_an_op_and_its_gradients(proof: Proof, case, samples, data, seed):
    """Central differences at some coordinates of each array, or all; autograd at all."""
    op, rng = op_of(case), np.random.default_rng(seed)
    declaration = declaration_of(op)
    letters = {letter for argument in declaration.arrays for letter in argument.axes}
    few = st.integers(1, 3 if "H" in letters else 4)
    sizes = {letter: data.draw(SIZES.get(letter, few), letter) for letter in sorted(letters)}
    for part, whole in declaration.multiples.items():
        sizes[whole] *= sizes[part]
    options = {name: data.draw(values, name) for name, values in OPTIONS.get(case, {}).items()}
    if "dropout" in options:
        options["dropout"] = dropout_of(options["dropout"], seed)
    if options.get("padding") == "same":
        sizes["K"] = sizes["K"] // 2 * 2 + 1
    if options.get("padding") == "valid":
        sizes["K"] = min(sizes["K"], sizes["T"])
    if "R/2" in sizes:  # the turning channels, and at most two more
        sizes["D"] += 2 * sizes["R/2"] - 1
    for side in sizes.keys() & {"height", "width"}:
        sizes[side] *= options["size"]
    arrays = arrays_of(declaration, sizes, rng)
    for argument in declaration.arrays:
        if argument.optional and data.draw(st.booleans(), f"without {argument.name}"):
            arrays[argument.name] = None
    fitted(op, arrays, options, rng)
    prove_op(case, arrays, options, proof, samples)


DROPPING = {"dropout": Dropout(0.1, key=3)}
THE_SAME: dict[str, list[dict[str, Any]]] = {
    "attention": [{}, {"causal": True, "window": 1}, DROPPING],
    "dropout": [DROPPING],
    "linear_attention": [{}, {"causal": True}],
    "conv1d": [{"padding": "causal"}, {"padding": "same"}],
    "patches": [{"size": 3}],
}


@pytest.mark.parametrize(
    ("op", "letter"),
    [
        (op, letter)
        for op, _ in numpy_ops.pairs()
        for letter in sorted({axis for array in declaration_of(op).arrays for axis in array.axes})
        if letter not in {"V", "C_in", "C_out"} | declaration_of(op).not_empty
    ],
)
def test_an_axis_may_be_empty(proof: Proof, op, letter):
    """Any but the widths of tables, and what the declaration forbids."""
    rng = np.random.default_rng(0)
    letters = "B H Hk T Tq Tk D Dv C C_in C_out F K N V n channels height width".split()
    sizes: dict[str, Any] = dict.fromkeys(letters, 3) | {"...": (2,), "R/2": 1}
    sizes[letter] = (2, 0) if letter == "..." else 0
    sizes["R/2"] = min(sizes["R/2"], sizes["D"])
    sizes |= {whole: 0 for part, whole in declaration_of(op).multiples.items() if part == letter}
    for options in THE_SAME.get(op, [{}]):
        arrays = arrays_of(declaration_of(op), sizes, rng)
        fitted(op, arrays, options, rng)
        prove_op(op, dict(arrays), options, proof)
        if arrays.pop("key_mask", None) is not None:
            prove_op(op, arrays, options, proof)


WEIGHTED: list[dict[str, Any]] = [
    {"label_smoothing": smoothing} | weights for smoothing in (0.0, 0.1) for weights in ({}, {"weights": None})
]
LARGE: dict[str, Any] = {
    "B": 4, "H": 4, "Hk": 4, "T": 20, "Tq": 32, "Tk": 32, "D": 16, "Dv": 16, "K": 5, "N": 64, "V": 200
}  # fmt: skip
FLOAT32: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("linear", {"...": (4, 32), "C_in": 16, "C_out": 1024}, {}),
    *((op, {"...": (64, 64)}, {}) for op in ("relu", "tanh", "sigmoid", "gelu", "silu")),
    ("gelu", {"...": (64, 64)}, {"approximate": "tanh"}),
    *(
        ("gated", {"...": (64,), "F": 64}, {"activation": activation})
        for activation in ("silu", "gelu", "gelu_tanh", "relu", "sigmoid")
    ),
    ("softmax", {"...": (64,), "n": 64}, {}),
    ("layernorm", {"...": (4, 16), "C": 1200}, {}),
    ("add_layernorm", {"...": (4, 16), "C": 1200}, DROPPING),
    ("rmsnorm", {"...": (4, 16), "C": 1200}, {}),
    ("add_rmsnorm", {"...": (4, 16), "C": 1200}, DROPPING),
    ("dropout", {"...": (4, 16), "C": 32}, DROPPING),
    *(("rope", {"R/2": 6}, {"interleaved": interleaved}) for interleaved in (False, True)),
    ("patches", {"channels": 3, "height": 16, "width": 16}, {"size": 4}),
    ("embedding", {"...": (16, 64), "V": 50, "C": 64}, {"scale": 8.0}),
    *(("attention", {}, options) for options in ({}, {"causal": True}, DROPPING, {"softcap": 2.0})),
    ("attention", {"Hk": 2, "B": 8}, {"window": (5, 2)}),
    *(("linear_attention", {"T": 32, "Hk": heads}, {"causal": heads == 2}) for heads in (2, 4)),
    ("additive_attention", {"B": 2, "Tq": 4, "Tk": 4, "C": 1000, "Dv": 200}, {}),
    *(("conv1d", {"C_in": 16, "C_out": 1000}, {"padding": padding}) for padding in ("causal", "same", "valid")),
    *(("cross_entropy", {"...": (64,)}, options) for options in WEIGHTED),
    *(("cross_entropy, probabilities", {"...": (64,)}, options) for options in WEIGHTED),
    *(("linear_cross_entropy", {"C": 32}, options) for options in WEIGHTED),
    ("log_probs", {"...": (4, 300)}, {}),
    ("entropy", {"...": (4, 300)}, {}),
]
"""An op or a case of it, the sizes of axes beside those of `LARGE`, and options: 1,000 numbers or more a gradient."""


def test_every_option_is_drawn():
    for op, _ in numpy_ops.pairs():
        drawn = {option for case, options in OPTIONS.items() if op_of(case) == op for option in options}
        assert options_of(op) <= drawn, f"a line for {op} in OPTIONS draws its options"


def test_every_op_has_its_accuracy_measured():
    assert {op_of(case) for case, _, _ in FLOAT32} == {op for op, _ in numpy_ops.pairs()}


@pytest.mark.parametrize(
    ("case", "sizes", "options"), FLOAT32, ids=lambda value: value if isinstance(value, str) else ""
)
def test_float32_is_as_accurate_as_pytorchs(case, sizes, options):
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        declaration, sizes_here = declaration_of(op_of(case)), LARGE | sizes
        arrays = arrays_of(declaration, sizes_here, rng)
        for argument in declaration.arrays:  # what is broadcast, along the batch alone
            if argument.broadcast:
                arrays[argument.name] = normal(rng, *(sizes_here[axis] for axis in argument.axes[1:]))
        return {name: array for name, array in arrays.items() if name not in {"key_mask", *fixed, *options}}

    fixed: dict[str, Any] = {}
    fixed |= fixed_of(case, arrays_of(declaration_of(op_of(case)), LARGE | sizes, np.random.default_rng(0)) | options)
    pair = getattr(numpy_ops, op_of(case))
    forward, oracle = (partial(f, **options) for f in (pair.forward, getattr(oracles, op_of(case))))
    prove_float32_accuracy(beside(forward, fixed), pair.backward, beside(oracle, fixed), draw)


@pytest.mark.parametrize(
    ("op", "inputs", "changes"),
    [("linear", 1, {}), ("linear", 1, {"bias": None}), ("embedding", 0, {}), ("linear_cross_entropy", 1, {})],
)
def test_out_adds_into_existing_arrays(op, inputs, changes):
    """The gradients of parameters; those of `inputs`, which come first, are as without `out`."""
    rng, pair = np.random.default_rng(0), getattr(numpy_ops, op)
    sizes = {"...": (2, 3), "N": 700, "C_in": 3, "C_out": 4, "C": 3, "V": 2003}  # logits in more than one block
    out, cache = pair.forward(**arrays_of(declaration_of(op), sizes, rng) | changes)
    dout = np.asarray(rng.standard_normal(out.shape))
    gradients = as_list(pair.backward(dout, cache))
    into = [None if gradient is None else np.ones_like(gradient) for gradient in gradients[inputs:]]
    again = as_list(pair.backward(dout, cache, out=tuple(into) if op == "linear" else into[0]))
    np.testing.assert_equal(again[:inputs], gradients[:inputs])
    for place, total, gradient in zip(into, again[inputs:], gradients[inputs:], strict=True):
        assert total is place
        assert gradient is None or error(total, 1 + gradient) <= 1e-12
