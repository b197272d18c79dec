"""Every op of every backend against PyTorch's own function in float64: one test body."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles
from support.declared_ops import options_of
from support.kernels.op_cases import CASES, B, C, T, V, arrays_of, ids
from support.kernels.tables import TOLERANCES, every_table, table
from support.kernels.traffic import Traffic
from support.prove import autograd

import kernels
import kernels.linear_cross_entropy as fused
from kernels import eager
from kernels.eager.arrays import concatenate
from minitransformer.gradcheck import error
from minitransformer.ops import Ops, numpy_ops
from minitransformer.textbook import textbook_ops


def run(
    ops: Ops, dtype: str, op: str, arrays: dict[str, Any], options: dict[str, Any], dout: np.ndarray
) -> tuple[np.ndarray, list]:
    """The output and the gradients of an op of a table, in host memory."""

    def given_as(array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        return ops.asarray(array, dtype if array.dtype.kind == "f" else None)

    options = {name: given_as(value) for name, value in options.items()}
    out, cache = getattr(ops, op).forward(*map(given_as, arrays.values()), **options)
    gradients = getattr(ops, op).backward(given_as(dout), cache)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    return ops.to_numpy(out), [None if g is None else ops.to_numpy(g) for g in gradients]


@every_table
@pytest.mark.parametrize("case", CASES)
def test_an_op_means_the_same_on_every_backend(backend, dtype, case):
    op, _, options = CASES[case]
    rng = np.random.default_rng(0)
    arrays = arrays_of(case, rng)
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


def test_every_option_has_a_case():
    for op, _ in numpy_ops.pairs():
        given = {name for of, changes, options in CASES.values() if of == op for name in (*changes, *options)}
        assert options_of(op) <= given, f"a line for {op} in CASES of op_cases.py gives its options"


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_fast_op_is_the_textbooks(case, seed):
    op, _, options = CASES[case]
    rng = np.random.default_rng(seed)
    arrays = arrays_of(case, rng)
    shape = getattr(textbook_ops, op).forward(*arrays.values(), **options)[0].shape
    dout = np.asarray(rng.standard_normal(shape))
    (expected, wanted), (out, gradients) = (
        run(ops, "float64", op, arrays, options, dout) for ops in (textbook_ops, numpy_ops)
    )
    assert error(out, expected) <= 1e-12
    for gradient, one in zip(gradients, wanted, strict=True):
        assert (gradient is None) == (one is None)
        assert gradient is None or error(gradient, one) <= 1e-12


def _tensor(array: np.ndarray | None) -> Any:
    import torch

    return None if array is None else torch.from_numpy(array)


# --- Gradients added into what is there already ---------------------------------------------------------------


@every_table
def test_gradients_are_added_into_out(backend, dtype):
    ops, rng = table(backend, dtype), np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return ops.asarray(rng.standard_normal(shape), dtype)

    tokens, targets = (ops.asarray(ids(rng, *shape)) for shape in ((B, T), (7,)))
    calls = [
        (ops.linear, (array(B, T, C), array(C, 4), array(4)), array(B, T, 4), (array(C, 4), array(4))),
        (ops.embedding, (tokens, array(V, C), 1.5), array(B, T, C), array(V, C)),
        (ops.linear_cross_entropy, (array(7, C), array(V, C), targets, 0.1), 0.5, array(V, C)),
    ]
    for op, arguments, received, out in calls:
        _, cache = op.forward(*arguments)
        places = out if isinstance(out, tuple) else (out,)
        before = [ops.to_numpy(place).copy() for place in places]
        alone, added = op.backward(received, cache), op.backward(received, cache, out=out)
        alone, added = (each[-len(places) :] if isinstance(each, tuple) else (each,) for each in (alone, added))
        for place, total, old, gradient in zip(places, added, before, alone, strict=True):
            assert total is place
            assert error(ops.to_numpy(total), old + ops.to_numpy(gradient)) <= TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_of_narrow_numbers_are_added_unrounded(dtype):
    """2048 and 299 times 1: neither type can hold their sum, which float32 gradients of weights must get."""
    ops = table("torch", dtype)
    column = np.ones((300, 1))
    column[0] = 2048
    x, ones = ops.asarray(column, dtype), ops.asarray(np.ones((300, 1)), dtype)
    weight, bias = ops.asarray([[1.0]], dtype), ops.asarray([0.0], dtype)
    into = ops.asarray([[0.25]], "float32"), ops.asarray([0.25], "float32")
    _, cache = ops.linear.forward(x, weight, bias)
    ops.linear.backward(ones, cache, out=into)
    assert float(into[0]) == 2347.25
    assert float(into[1]) == 300.25
    targets = ops.asarray(np.zeros(300, np.int64))
    _, cache = ops.linear_cross_entropy.forward(x, ops.asarray(np.zeros((2, 1)), dtype), targets)
    _, dtable = ops.linear_cross_entropy.backward(300.0, cache, out=ops.zeros((2, 1), "float32"))
    assert ops.to_numpy(dtable)[:, 0] == pytest.approx([-2347 / 2, 2347 / 2], rel=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", ["cross_entropy", "linear_cross_entropy"])
def test_a_scaled_loss_has_the_gradients_of_wide_numbers(op, dtype):
    """A scaler's 65,536, which float16 does not hold, meets a gradient that underflows there without it."""
    rng, ops = np.random.default_rng(0), table("torch", dtype)
    targets = rng.integers(0, 40, 3000)
    shapes = [(3000, 40)] if op == "cross_entropy" else [(3000, 2), (40, 2)]
    narrow = [ops.asarray(1e-3 * rng.standard_normal(shape), dtype) for shape in shapes]

    def gradients(arrays: list[Any]) -> list[Any]:
        found = getattr(ops, op)
        received = torch.tensor(65536.0)
        backward = found.backward(received, found.forward(*arrays, ops.asarray(targets))[1])
        return list(backward) if isinstance(backward, tuple) else [backward]

    for gradient, wanted in zip(gradients(narrow), gradients([x.float() for x in narrow]), strict=True):
        assert gradient.dtype == narrow[0].dtype
        difference = (gradient.float() - wanted).abs().max() / wanted.abs().max()
        assert difference <= 4 * torch.finfo(gradient.dtype).eps


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["tanh", "sigmoid", "relu", "silu", "gelu"])
def test_a_slope_is_not_rounded_before_the_gradient_meets_it(op, dtype):
    x = torch.linspace(-6, 6, 4001).to(dtype)
    dy = torch.randn(len(x), generator=torch.Generator().manual_seed(0)).to(dtype)
    forward, backward = getattr(eager, f"{op}_forward"), getattr(eager, f"{op}_backward")
    cache = forward(x)[1]
    wide = (cache[0].double(), *cache[1:]) if isinstance(cache, tuple) else cache.double()
    expected = backward(dy.double(), wide).to(dtype)
    torch.testing.assert_close(backward(dy, cache), expected, rtol=torch.finfo(dtype).eps, atol=1e-7)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("into", [None, "the same", "float32"])
def test_gradients_of_equal_ids_are_not_added_up_in_narrow_numbers(dtype, into):
    """3000 times 1: a sum of bfloat16 stays at 256, one of float16 at 2048."""
    ops = table("torch", dtype)
    _, cache = ops.embedding.forward(ops.asarray(np.zeros((1, 3000), np.int64)), ops.asarray(np.ones((2, 1)), dtype))
    out = None if into is None else ops.zeros((2, 1), dtype if into == "the same" else into)
    dtable = ops.embedding.backward(ops.asarray(np.ones((1, 3000, 1)), dtype), cache, out)
    assert out is None or dtable is out
    assert ops.to_numpy(dtable)[:, 0].tolist() == [float(torch.tensor(3000.0).to(dtable.dtype)), 0]


def test_gradients_of_a_convolutions_windows_are_not_added_up_in_narrow_numbers():
    """300 times 1: a sum of bfloat16 stays at 256."""
    ops = table("torch", "bfloat16")
    x, weight, dy = (ops.asarray(np.ones(shape), "bfloat16") for shape in ((1, 300, 1), (300, 1, 1), (1, 300, 1)))
    dx, *_ = ops.conv1d.backward(dy, ops.conv1d.forward(x, weight, None)[1])
    assert float(dx[0, 0, 0]) == 300


def test_on_a_gpu_narrow_numbers_are_added_into_float32_by_one_product():
    """Tensors without memory take its way: no operand is copied, and no product rounded."""
    shapes = ((5, 4), (4, 3), (5, 3), (3, 4))
    x, weight, dy, vocabulary = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)
    with Traffic() as traffic:
        _, cache = eager.linear_forward(x, weight, None)
        eager.linear_backward(dy, cache, out=(torch.empty(4, 3, device="meta"), None))
    assert [name for name in traffic.operations if "mm" in name or "copy" in name] == ["mm", "mm", "addmm"]
    targets = torch.empty(5, dtype=torch.int64, device="meta")
    mean = torch.empty(2, device="meta")
    with mock.patch.multiple(fused, _losses=mock.DEFAULT, mean_loss=lambda *_: mean), Traffic() as traffic:
        kernels.linear_cross_entropy_forward(x, vocabulary, targets)
    assert [name for name in traffic.operations if "mm" in name or "copy" in name] == ["mm", "mm", "addmm"]


@every_table
def test_evaluation_keeps_no_gradient(backend, dtype):
    ops, rng = table(backend, dtype), np.random.default_rng(0)
    x, weights = (ops.asarray(rng.standard_normal((n, C)), dtype) for n in (7, V))
    targets = ops.asarray(ids(rng, 7))
    loss, _ = ops.linear_cross_entropy.forward(x, weights, targets, label_smoothing=0.1)
    again, cache = ops.linear_cross_entropy.forward(x, weights, targets, label_smoothing=0.1, with_grad=False)
    assert float(loss) == pytest.approx(float(again), rel=1e-6)
    if backend != "textbook":
        with pytest.raises(ValueError, match="with_grad"):
            ops.linear_cross_entropy.backward(1.0, cache)


# --- The optimiser and decoding -------------------------------------------------------------------------------


@every_table
@pytest.mark.parametrize("options", [{}, {"beta2": 0.999, "eps": 1e-8}], ids=["the paper's", "PyTorch's"])
def test_adam_follows_pytorchs(backend, dtype, options):
    import torch

    ops, rng = table(backend, dtype), np.random.default_rng(0)
    start, rates = rng.standard_normal(700), rng.uniform(1e-4, 1e-1, 10)
    theirs = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([theirs], betas=(0.9, options.get("beta2", 0.98)), eps=options.get("eps", 1e-9))
    data, m, v = (ops.asarray(a, dtype) for a in (start, np.zeros(700), np.zeros(700)))
    for step, lr in enumerate(rates, start=1):
        grad = rng.standard_normal(700)
        grad[::3] = 0.0  # rows of the table that no token used
        theirs.grad, adam.param_groups[0]["lr"] = torch.tensor(grad), lr
        adam.step()
        ops.adam_step(data, ops.asarray(2 * grad, dtype), m, v, step=step, lr=lr, grad_scale=0.5, **options)
    assert error(ops.to_numpy(data), theirs.detach().numpy()) <= TOLERANCES[dtype]
    assert float(ops.global_norm(m)) == pytest.approx(np.linalg.norm(ops.to_numpy(m)), rel=1e-6)
    if backend != "textbook":  # which refuses nothing
        with pytest.raises(ValueError, match="step is 0"):
            ops.adam_step(data, ops.asarray(2 * start, dtype), m, v, step=0, lr=0.1)


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


def test_what_lies_side_by_side_is_joined_without_a_copy():
    x = torch.randn(2, 4, 6, 8)
    for axis in (0, 1, 2, -1, -3):
        parts = x.split([1, x.shape[axis] - 1], axis)
        assert torch.equal(concatenate(parts, axis), x)
        assert concatenate(parts, axis).data_ptr() == x.data_ptr()
    before, after = x[..., 2:4], x[..., 4:7]
    assert torch.equal(concatenate([before.swapaxes(0, 1), after.swapaxes(0, 1)]), x[..., 2:7].swapaxes(0, 1))
    for apart in (
        [after, before],
        [before, before],
        [before, x[..., 5:7]],
        [before, after.clone()],
        [before, x.clone()[..., 4:7]],
        [x.as_strided((2, 3), (8, 1)), x.as_strided((2, 3), (16, 1), 3)],
    ):
        joined = concatenate(apart)
        assert torch.equal(joined, torch.cat(apart, -1))
        assert joined.is_contiguous()
        assert joined.data_ptr() != apart[0].data_ptr()
    with pytest.raises(RuntimeError, match="must match"):
        concatenate([before, after[:1]])


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
