"""What every table refuses, by name, and what none may."""

import numpy as np
import pytest
from support.kernels.op_cases import CASES, C, V, arrays_of
from support.kernels.tables import every_checking_table, table

REFUSALS = {
    "linear: rows": ("linear", [(2, 3), (4, 5), (5,)], {}, "x"),
    "linear: bias": ("linear", [(2, 3), (3, 5), (4,)], {}, "bias"),
    "layernorm: gamma": ("layernorm", [(2, 3), (4,), (3,)], {}, "gamma"),
    "layernorm: no width": ("layernorm", [(2, 0), (0,), (0,)], {}, "x"),
    "add_layernorm: sublayer_out": ("add_layernorm", [(2, 3), (3, 3), (3,), (3,)], {}, "sublayer_out"),
    "attention: key": ("attention", [(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)], {}, "key"),
    "attention: value": ("attention", [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 2, 4)], {}, "value"),
    "attention: axes": ("attention", [(2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], {}, "query"),
    "attention: window": ("attention", [(1, 2, 3, 4)] * 3, {"window": -1}, "window"),
    "conv1d: width": ("conv1d", [(2, 5, 3), (3, 4, 6), (6,)], {}, "x"),
    "conv1d: axes": ("conv1d", [(5, 3), (3, 3, 6), (6,)], {}, "x"),
    "conv1d: bias": ("conv1d", [(2, 5, 3), (3, 3, 6), (3,)], {}, "bias"),
    "conv1d: no middle": ("conv1d", [(2, 5, 3), (2, 3, 6), (6,)], {"padding": "same"}, "weight"),
    "conv1d: padding": ("conv1d", [(2, 5, 3), (3, 3, 6), (6,)], {"padding": "full"}, "padding"),
    "additive_attention: key": ("additive_attention", [(1, 2, 3), (1, 4, 2), (1, 4, 3), (3,)], {}, "key"),
    "additive_attention: value": ("additive_attention", [(1, 2, 3), (1, 4, 3), (1, 5, 3), (3,)], {}, "value"),
    "additive_attention: v": ("additive_attention", [(1, 2, 3), (1, 4, 3), (1, 4, 3), (4,)], {}, r"score_\w+"),
    "softmax: no axis": ("softmax", [()], {}, "x"),
}


@every_checking_table
@pytest.mark.parametrize("case", REFUSALS)
def test_shapes_that_do_not_fit_are_refused_by_name(backend, dtype, case):
    op, shapes, options, named = REFUSALS[case]
    ops = table(backend, dtype)
    arrays = [ops.asarray(np.ones(shape), dtype) for shape in shapes]
    with pytest.raises(ValueError, match=rf"\b{named}\b"):
        getattr(ops, op).forward(*arrays, **options)


@every_checking_table
def test_ids_and_kinds_are_refused_by_name(backend, dtype):
    ops = table(backend, dtype)
    weights = ops.asarray(np.ones((V, C)), dtype)
    if ops.to_numpy(weights) is weights or not getattr(weights, "is_cuda", False):
        with pytest.raises(ValueError, match=r"ids.*11"):
            ops.embedding.forward(ops.asarray([[V]]), weights)
        with pytest.raises(ValueError, match=r"targets.*-1"):
            ops.cross_entropy.forward(weights, ops.asarray([-1] * V), ignore_index=0)
    with pytest.raises(TypeError, match="ids"):
        ops.embedding.forward(ops.asarray([[1.0]]), weights)
    with pytest.raises(TypeError, match="x must be"):
        ops.relu.forward([1.0, 2.0])
    with pytest.raises(TypeError, match="key_mask"):
        ops.attention.forward(*[ops.asarray(np.ones((1, 1, 2, 2)), dtype)] * 3, key_mask=weights)
    keys = ops.asarray(np.ones((1, 2, 2)), dtype)
    with pytest.raises(TypeError, match="key_mask"):
        ops.additive_attention.forward(keys, keys, keys, keys[0, 0], key_mask=keys[0])
    with pytest.raises(TypeError, match="dropout"):
        ops.dropout.forward(weights, 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label_smoothing"):
        ops.cross_entropy.forward(weights, ops.asarray([0] * V), label_smoothing=1.5)


GRADIENTS = ["relu", "softmax", "layernorm", "dropout", "embedding", "attention", "linear"]


@every_checking_table
@pytest.mark.parametrize("op", GRADIENTS)
def test_a_gradient_from_elsewhere_is_refused_by_name(backend, dtype, op):
    if backend == "numpy":
        pytest.skip("has one device")
    ops = table(backend, dtype)
    _, _, options = CASES[op]
    inputs = {
        name: ops.asarray(array, dtype if array.dtype.kind == "f" else "int64")
        for name, array in arrays_of(op, np.random.default_rng(0)).items()
    }
    y, cache = getattr(ops, op).forward(**inputs, **options)
    with pytest.raises(ValueError, match="is on meta and its output on"):
        getattr(ops, op).backward(y.to("meta"), cache)


@every_checking_table
def test_a_gradient_is_never_narrowed(backend, dtype):
    ops = table(backend, dtype)
    narrow = "float32" if dtype == "float64" else "float16"
    out = np.zeros((V, C), narrow) if backend == "numpy" else ops.asarray(np.zeros((V, C)), narrow)
    y, cache = ops.embedding.forward(ops.asarray([[1, 2]]), ops.asarray(np.ones((V, C)), dtype))
    with pytest.raises(TypeError, match=r"out.*float(16|32)"):
        ops.embedding.backward(y, cache, out=out)
    x, weights = (ops.asarray(np.ones((n, C)), dtype) for n in (2, V))
    _, cache = ops.linear_cross_entropy.forward(x, weights, ops.asarray([1, 2]))
    with pytest.raises(TypeError, match=r"out.*float(16|32)"):
        ops.linear_cross_entropy.backward(1.0, cache, out=out)
