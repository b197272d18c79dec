"""Every op of every backend against PyTorch's own function in float64: one test body."""

from typing import Any

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prove import autograd
from tables import TOLERANCES, every_table, table

from minitransformer.gradcheck import error
from minitransformer.ops import Dropout, Ops

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


def run(
    ops: Ops, dtype: str, op: str, arrays: dict[str, Any], options: dict[str, Any], dout: np.ndarray
) -> tuple[np.ndarray, list]:
    """The output and the gradients of an op of a table, in host memory."""

    def given_as(array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        return ops.asarray(array, dtype if array.dtype.kind == "f" else None)

    options = {name: given_as(value) for name, value in options.items()}
    out, cache = getattr(ops, f"{op}_forward")(*map(given_as, arrays.values()), **options)
    gradients = getattr(ops, f"{op}_backward")(given_as(dout), cache)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    return ops.to_numpy(out), [None if g is None else ops.to_numpy(g) for g in gradients]


@every_table
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=3)
@given(seed=st.integers(0, 2**32 - 1))
def test_an_op_means_the_same_on_every_backend(backend, dtype, case, seed):
    op, arrays_of, options = CASES[case]
    rng = np.random.default_rng(seed)
    arrays = arrays_of(rng)
    oracle = getattr(oracles, "dropped" if op == "dropout" else op)
    shape = () if "cross_entropy" in op else oracle(*map(_tensor, arrays.values()), **options).shape
    dout = np.asarray(rng.standard_normal(tuple(shape)))
    expected, expected_gradients = autograd(lambda *tensors: oracle(*tensors, **options), arrays, dout)
    out, gradients = run(table(backend, dtype), dtype, op, arrays, options, dout)
    assert out.dtype == dtype
    assert out.shape == expected.shape
    assert error(out, expected) <= TOLERANCES[dtype]
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        assert (gradient is None) == (wanted is None)
        if wanted is not None:
            assert gradient.shape == wanted.shape
            assert gradient.dtype == dtype
            assert error(gradient, wanted) <= TOLERANCES[dtype]


def _tensor(array: np.ndarray | None) -> Any:
    import torch

    return None if array is None else torch.from_numpy(array)


# --- Gradients added into what is there already ---------------------------------------------------------------


@every_table
def test_gradients_are_added_into_out(backend, dtype):
    ops, rng = table(backend, dtype), np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return ops.asarray(rng.standard_normal(shape), dtype)

    _, cache = ops.linear_forward(array(B, T, C), array(C, 4), array(4))
    dy, there = array(B, T, 4), (array(C, 4), array(4))
    before = [ops.to_numpy(a).copy() for a in there]
    _, *alone = ops.linear_backward(dy, cache)
    _, *added = ops.linear_backward(dy, cache, out=there)
    for place, total, old, gradient in zip(there, added, before, alone, strict=True):
        assert total is place
        assert error(ops.to_numpy(total), old + ops.to_numpy(gradient)) <= TOLERANCES[dtype]

    _, cache = ops.embedding_forward(ops.asarray(ids(rng, B, T)), array(V, C), 1.5)
    dy, there = array(B, T, C), array(V, C)
    before = ops.to_numpy(there).copy()
    alone = ops.to_numpy(ops.embedding_backward(dy, cache))
    assert ops.embedding_backward(dy, cache, out=there) is there
    assert error(ops.to_numpy(there), before + alone) <= TOLERANCES[dtype]

    targets = ops.asarray(ids(rng, 7))
    _, cache = ops.linear_cross_entropy_forward(array(7, C), array(V, C), targets, label_smoothing=0.1)
    there = array(V, C)
    before = ops.to_numpy(there).copy()
    alone = ops.to_numpy(ops.linear_cross_entropy_backward(0.5, cache)[1])
    assert ops.linear_cross_entropy_backward(0.5, cache, out=there)[1] is there
    assert error(ops.to_numpy(there), before + alone) <= TOLERANCES[dtype]


@every_table
def test_evaluation_keeps_no_gradient(backend, dtype):
    ops, rng = table(backend, dtype), np.random.default_rng(0)
    x, weights = (ops.asarray(rng.standard_normal((n, C)), dtype) for n in (7, V))
    targets = ops.asarray(ids(rng, 7))
    loss, _ = ops.linear_cross_entropy_forward(x, weights, targets, label_smoothing=0.1)
    again, cache = ops.linear_cross_entropy_forward(x, weights, targets, label_smoothing=0.1, with_grad=False)
    assert float(loss) == pytest.approx(float(again), rel=1e-6)
    with pytest.raises(ValueError, match="with_grad"):
        ops.linear_cross_entropy_backward(1.0, cache)


# --- The optimiser and decoding -------------------------------------------------------------------------------


@every_table
def test_adam_follows_pytorchs(backend, dtype):
    import torch

    ops, rng = table(backend, dtype), np.random.default_rng(0)
    start = rng.standard_normal(100)
    theirs = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.98), eps=1e-9)
    data, m, v = (ops.asarray(a, dtype) for a in (start, np.zeros(100), np.zeros(100)))
    for step in range(1, 11):
        grad = rng.standard_normal(100)
        theirs.grad = torch.tensor(grad)
        adam.step()
        ops.adam_step(data, ops.asarray(2 * grad, dtype), m, v, step=step, lr=0.1, grad_scale=0.5)
    assert error(ops.to_numpy(data), theirs.detach().numpy()) <= TOLERANCES[dtype]
    assert float(ops.global_norm(m)) == pytest.approx(np.linalg.norm(ops.to_numpy(m)), rel=1e-6)
    with pytest.raises(ValueError, match="step is 0"):
        ops.adam_step(data, data, m, v, step=0, lr=0.1)


@every_table
def test_the_best_tokens(backend, dtype):
    """Sorted, ties by the smaller id, −inf and NaN included."""
    ops = table(backend, dtype)
    x = np.array([[1.0, 3, 3, -np.inf, 2], [-np.inf, 0, -np.inf, -np.inf, 0], [1, np.nan, 5, 2, np.nan]])
    for k in (1, 2, 4):
        values, indices = map(ops.to_numpy, ops.topk(ops.asarray(x, dtype), k))
        np.testing.assert_array_equal(indices[:2], [[1, 2, 4, 0][:k], [1, 4, 0, 2][:k]])
        np.testing.assert_array_equal(values[:2], np.take_along_axis(x[:2], indices[:2], axis=-1))
        assert np.isnan(values[2, 0])
    large = np.tile(np.arange(10.0), 4)
    _, indices = ops.topk(ops.asarray(large, dtype), 30)
    np.testing.assert_array_equal(ops.to_numpy(indices), np.argsort(-large, kind="stable")[:30])
    with pytest.raises(ValueError, match="k is 6"):
        ops.topk(ops.asarray(x, dtype), 6)


@every_table
def test_log_softmax_and_plumbing(backend, dtype):
    ops = table(backend, dtype)
    x = np.array([[-np.inf, 0.0, 1.0], [-np.inf] * 3])
    np.testing.assert_allclose(
        ops.to_numpy(ops.log_softmax(ops.asarray(x, dtype))), [[-np.inf, -1.31326169, -0.31326169], [-np.inf] * 3], 1e-6
    )
    stack = ops.asarray(np.arange(12.0).reshape(2, 3, 2), dtype)
    taken = ops.take(stack, ops.asarray([2, 0]), axis=1)
    np.testing.assert_array_equal(ops.to_numpy(taken), ops.to_numpy(stack)[:, [2, 0]])
    joined = ops.concatenate([stack, ops.zeros((2, 3, 1), dtype)])
    assert tuple(joined.shape) == (2, 3, 3)
    assert ops.to_numpy(joined).dtype == dtype
    assert ops.to_numpy(ops.cast(ops.asarray([1, 2]), dtype)).dtype == dtype
    angles = ops.asarray([0.5, 1.0], dtype)
    for function, reference in ((ops.sin, np.sin), (ops.cos, np.cos)):
        assert error(ops.to_numpy(function(angles)), reference(np.array([0.5, 1.0]))) <= TOLERANCES[dtype]


# --- Bad input ------------------------------------------------------------------------------------------------

REFUSALS = {
    "linear: rows": ("linear_forward", [(2, 3), (4, 5), (5,)], {}, "x"),
    "linear: bias": ("linear_forward", [(2, 3), (3, 5), (4,)], {}, "bias"),
    "layernorm: gamma": ("layernorm_forward", [(2, 3), (4,), (3,)], {}, "gamma"),
    "layernorm: no width": ("layernorm_forward", [(2, 0), (0,), (0,)], {}, "x"),
    "add_layernorm: sublayer_out": ("add_layernorm_forward", [(2, 3), (3, 3), (3,), (3,)], {}, "sublayer_out"),
    "attention: key": ("attention_forward", [(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)], {}, "key"),
    "attention: value": ("attention_forward", [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 2, 4)], {}, "value"),
    "attention: axes": ("attention_forward", [(2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], {}, "query"),
    "attention: window": ("attention_forward", [(1, 2, 3, 4)] * 3, {"window": -1}, "window"),
    "conv1d: width": ("conv1d_forward", [(2, 5, 3), (3, 4, 6), (6,)], {}, "x"),
    "conv1d: axes": ("conv1d_forward", [(5, 3), (3, 3, 6), (6,)], {}, "x"),
    "conv1d: bias": ("conv1d_forward", [(2, 5, 3), (3, 3, 6), (3,)], {}, "bias"),
    "conv1d: no middle": ("conv1d_forward", [(2, 5, 3), (2, 3, 6), (6,)], {"padding": "same"}, "weight"),
    "conv1d: padding": ("conv1d_forward", [(2, 5, 3), (3, 3, 6), (6,)], {"padding": "full"}, "padding"),
    "additive_attention: key": ("additive_attention_forward", [(1, 2, 3), (1, 4, 2), (1, 4, 3), (3,)], {}, "key"),
    "additive_attention: value": ("additive_attention_forward", [(1, 2, 3), (1, 4, 3), (1, 5, 3), (3,)], {}, "value"),
    "additive_attention: v": ("additive_attention_forward", [(1, 2, 3), (1, 4, 3), (1, 4, 3), (4,)], {}, r"score_\w+"),
    "softmax: no axis": ("softmax_forward", [()], {}, "x"),
}


@every_table
@pytest.mark.parametrize("case", REFUSALS)
def test_shapes_that_do_not_fit_are_refused_by_name(backend, dtype, case):
    op, shapes, options, named = REFUSALS[case]
    ops = table(backend, dtype)
    arrays = [ops.asarray(np.ones(shape), dtype) for shape in shapes]
    with pytest.raises(ValueError, match=rf"\b{named}\b"):
        getattr(ops, op)(*arrays, **options)


@every_table
def test_ids_and_kinds_are_refused_by_name(backend, dtype):
    ops = table(backend, dtype)
    weights = ops.asarray(np.ones((V, C)), dtype)
    if ops.to_numpy(weights) is weights or not getattr(weights, "is_cuda", False):
        with pytest.raises(ValueError, match=r"ids.*11"):
            ops.embedding_forward(ops.asarray([[V]]), weights)
        with pytest.raises(ValueError, match=r"targets.*-1"):
            ops.cross_entropy_forward(weights, ops.asarray([-1] * V), ignore_index=0)
    with pytest.raises(TypeError, match="ids"):
        ops.embedding_forward(ops.asarray([[1.0]]), weights)
    with pytest.raises(TypeError, match="x must be"):
        ops.relu_forward([1.0, 2.0])
    with pytest.raises(TypeError, match="key_mask"):
        ops.attention_forward(*[ops.asarray(np.ones((1, 1, 2, 2)), dtype)] * 3, key_mask=weights)
    keys = ops.asarray(np.ones((1, 2, 2)), dtype)
    with pytest.raises(TypeError, match="key_mask"):
        ops.additive_attention_forward(keys, keys, keys, keys[0, 0], key_mask=keys[0])
    with pytest.raises(TypeError, match="dropout"):
        ops.dropout_forward(weights, 0.1)
    with pytest.raises(ValueError, match="label_smoothing"):
        ops.cross_entropy_forward(weights, ops.asarray([0] * V), label_smoothing=1.5)


@every_table
@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "int64"])
def test_ids_of_every_kind_of_integer(backend, dtype, kind):
    """PyTorch takes uint8 for a mask and refuses others: its arithmetic here does not."""
    ops = table(backend, dtype)
    weights = ops.asarray(np.arange(4.0)[:, None] + np.zeros((4, 2)), dtype)
    numbers = ops.asarray(np.array([[1, 0], [3, 2], [2, 2]]), kind)
    y, cache = ops.embedding_forward(numbers, weights)
    np.testing.assert_array_equal(ops.to_numpy(y)[..., 0], [[1, 0], [3, 2], [2, 2]])
    dtable = ops.embedding_backward(y, cache)
    np.testing.assert_array_equal(ops.to_numpy(dtable)[:, 0], [0, 1, 6, 3])


GRADIENTS = ["relu", "softmax", "layernorm", "dropout", "embedding", "attention", "linear"]


@every_table
@pytest.mark.parametrize("op", GRADIENTS)
def test_a_gradient_from_elsewhere_is_refused_by_name(backend, dtype, op):
    if backend == "numpy":
        pytest.skip("has one device")
    ops = table(backend, dtype)
    _, make, options = CASES[op]
    inputs = {
        name: ops.asarray(array, dtype if array.dtype.kind == "f" else "int64")
        for name, array in make(np.random.default_rng(0)).items()
    }
    y, cache = getattr(ops, f"{op}_forward")(**inputs, **options)
    with pytest.raises(ValueError, match="is on meta and its output on"):
        getattr(ops, f"{op}_backward")(y.to("meta"), cache)


@every_table
def test_a_gradient_is_never_narrowed(backend, dtype):
    ops = table(backend, dtype)
    narrow = "float32" if dtype == "float64" else "float16"
    out = np.zeros((V, C), narrow) if backend == "numpy" else ops.asarray(np.zeros((V, C)), narrow)
    y, cache = ops.embedding_forward(ops.asarray([[1, 2]]), ops.asarray(np.ones((V, C)), dtype))
    with pytest.raises(TypeError, match=r"out.*float(16|32)"):
        ops.embedding_backward(y, cache, out=out)
    x, weights = (ops.asarray(np.ones((n, C)), dtype) for n in (2, V))
    _, cache = ops.linear_cross_entropy_forward(x, weights, ops.asarray([1, 2]))
    with pytest.raises(TypeError, match=r"out.*float(16|32)"):
        ops.linear_cross_entropy_backward(1.0, cache, out=out)
