"""The refusals of the tables over tensors, by name: all that is not as `minitransformer.ops` declares it, and more."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from support.declared_ops import SIZES, Call, backwards, forwards
from support.kernels.op_cases import C, V
from support.kernels.prove_kernel import DEVICE
from support.kernels.tables import WITHOUT_TRITON, every_checking_table, table

import kernels
from kernels import eager
from minitransformer import ops as reference
from minitransformer.ops import Dropout, Pattern

OF_TORCH = {name for name in forwards() if hasattr(eager, name)}
OF_TRITON = {name for name in forwards() if name in kernels.__all__ and name != "linear_forward"}
OPS = [("torch", name, []) for name in sorted(OF_TORCH)] + [("triton", n, [WITHOUT_TRITON]) for n in sorted(OF_TRITON)]


def function(backend: str, name: str) -> Any:
    return getattr(eager if backend == "torch" else kernels, name)


def ops_of(names: Any) -> list:
    return [pytest.param(b, name, marks=marks, id=f"{b}, {name}") for b, name, marks in OPS if name in names]


every_op = pytest.mark.parametrize(("backend", "name"), ops_of(forwards()))

Refusal = tuple[dict[str, Any], type[Exception], str]
"""Arguments in the place of those that fit, and what is raised."""

OPTIONS: dict[str, list[tuple[Any, type[Exception]]]] = {
    "dropout": [(0.1, TypeError)],
    "window": [(-1, ValueError), (1.5, TypeError), (True, TypeError)],
    "softcap": [(0.0, ValueError), (-1.0, ValueError), ("1", TypeError)],
    "pattern": [("causal", TypeError)],
    "scale": [(float("inf"), ValueError), ("1", TypeError)],
    "eps": [(-1.0, ValueError), ("1", TypeError)],
    "beta1": [(-0.1, ValueError)],
    "beta2": [(-0.1, ValueError)],
    "causal": [(1, TypeError)],
    "with_grad": [(None, TypeError)],
    "label_smoothing": [(-0.1, ValueError), (1.5, ValueError), (float("nan"), ValueError), ("0", TypeError)],
    "ignore_index": [(0.5, TypeError)],
}
"""What no option may be."""


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arrays on the device, floats in float32."""
    return {
        name: torch.from_numpy(array).to(DEVICE, torch.float32 if array.dtype.kind == "f" else None)
        for name, array in arrays.items()
    }


def kinds(call: Call, given: dict[str, torch.Tensor]) -> Iterator[Refusal]:
    """Yield the refusals of what is no tensor, of another kind, or elsewhere."""
    assert call.declaration is not None
    or_probabilities = {argument.name for argument in call.declaration.arrays if argument.or_probabilities}
    floats = [name for name, x in given.items() if x.is_floating_point()]
    for name, x in given.items():
        yield {name: x.tolist()}, TypeError, f"{name} must be a torch.Tensor, got (list|float)"
        yield {name: x.cpu().numpy()}, TypeError, f"{name} must be a torch.Tensor, got ndarray"
        for other in {torch.int64: [torch.bool, torch.float32], torch.bool: [torch.float32]}.get(
            x.dtype, [torch.int64]
        ):
            if name in or_probabilities and other.is_floating_point:  # as probabilities they lack an axis
                yield {name: x.to(other)}, ValueError, rf"(?=.*\b{name}\b).*expected"
            else:
                yield {name: x.to(other)}, TypeError, f"{name} must be .*, got {other}"
        if len(given) > 1:
            yield {name: x.to("meta")}, ValueError, "expected one device"
    for name in floats[1:]:
        yield {name: given[name].half()}, TypeError, rf"is torch\.float32 and {name} is torch\.float16: types are never"


def shapes(call: Call, given: dict[str, torch.Tensor]) -> Iterator[Refusal]:
    """An axis too few; and each axis with another size than where its letter stands too, or empty where it may not."""
    assert call.declaration is not None
    letters = [axis for argument in call.declaration.arrays if not argument.broadcast for axis in argument.axes]
    for argument in call.declaration.arrays:
        others = {each.name: None for each in call.declaration.arrays if each.broadcast and each is not argument}
        x, says = given[argument.name], rf"(?=.*\b{argument.name}\b).*expected"
        if argument.axes not in [(), ("...",)] and not argument.broadcast:
            alone = torch.ones(() if "..." in argument.axes else (2,) * (len(argument.axes) - 1), device=DEVICE)
            yield {argument.name: alone.to(x.dtype)}, ValueError, says
        for place, letter in enumerate(argument.axes):
            wrong = {7} if argument.broadcast else {1, 7} if letters.count(letter) > 1 else set()
            for size in (wrong | ({0} if letter in call.declaration.not_empty else set())) - {SIZES[letter]}:
                shape = list(x.shape)
                shape[max(0, place + x.ndim - len(argument.axes))] = size
                yield others | {argument.name: torch.zeros(shape, dtype=x.dtype, device=DEVICE)}, ValueError, says


def options(call: Call) -> Iterator[Refusal]:
    """Every option that the op has, with each value that it may not have."""
    for name in OPTIONS.keys() & set(call.function.__wrapped__.__annotations__):  # pyright: ignore
        for value, kind in OPTIONS[name]:
            yield {name: value}, kind, name


@every_op
def test_what_is_not_as_declared_is_refused_by_name(backend, name):
    call = forwards()[name]
    op, given = partial(function(backend, name), **call.options), tensors(call.arrays)
    op(**given)
    for replaced, kind, message in (*kinds(call, given), *shapes(call, given), *options(call)):
        with pytest.raises(kind, match=message):
            op(**given | replaced)
    for missing in call.optional:
        op(**given | {missing: None})
    with pytest.raises(TypeError, match="missing"):
        op()
    wide = {key: x.double() if x.is_floating_point() else x for key, x in given.items()}
    if backend == "triton":
        with pytest.raises(TypeError, match=r"is torch.float64, and the kernels compute in float32"):
            op(**wide)
    else:
        op(**wide)


@pytest.mark.skipif(DEVICE != "cpu", reason="hide the GPU, CUDA_VISIBLE_DEVICES='': on one nobody looks")
@every_op
def test_ids_out_of_range_are_refused_by_name(backend, name):
    call = forwards()[name]
    given = tensors(call.arrays)
    for key, ids in given.items():
        for bad in (-1, SIZES["V"]) if ids.dtype == torch.int64 else ():
            with pytest.raises(ValueError, match=f"{key} holds {bad}, expected ids from 0 to {SIZES['V'] - 1}"):
                function(backend, name)(**given | {key: torch.full_like(ids, bad)})


@pytest.mark.parametrize(("backend", "name"), ops_of(backwards()))
def test_a_gradient_is_like_the_output_and_where_it_is(backend, name):
    call, backward = forwards()[name], function(backend, name.replace("_forward", "_backward"))
    out, cache = function(backend, name)(**tensors(call.arrays), **call.options)
    if out.ndim:  # a loss takes any number
        for wrong in (out[..., :1], out[None]):
            with pytest.raises(ValueError, match=r"d\w+ has shape .*expected"):
                backward(wrong, cache)
        with pytest.raises(TypeError, match=r"d\w+ is torch.float64 and its output is torch.float32"):
            backward(out.double(), cache)
        with pytest.raises(ValueError, match="is on meta and its output on"):
            backward(out.to("meta"), cache)


@every_checking_table
@pytest.mark.parametrize(("padding", "taps", "named"), [("same", 2, "weight"), ("full", 3, "padding")])
def test_what_is_no_convolution(backend, dtype, padding, taps, named):
    ops = table(backend, dtype)
    x, weight, bias = (ops.asarray(np.ones(shape), dtype) for shape in ((2, 5, 3), (taps, 3, 6), (6,)))
    with pytest.raises(ValueError, match=rf"\b{named}\b"):
        ops.conv1d.forward(x, weight, bias, padding=padding)


@every_checking_table
def test_a_gradient_is_never_narrowed_nor_broadcast(backend, dtype):
    ops = table(backend, dtype)
    narrow = "float32" if dtype == "float64" else "float16"
    y, embedded = ops.embedding.forward(ops.asarray([[1, 2]]), ops.asarray(np.ones((V, C)), dtype))
    x, weights = (ops.asarray(np.ones((n, C)), dtype) for n in (2, V))
    _, projected = ops.linear_cross_entropy.forward(x, weights, ops.asarray([1, 2]))
    for kind, out in (
        (TypeError, np.zeros((V, C), narrow) if backend == "numpy" else ops.asarray(np.zeros((V, C)), narrow)),
        (ValueError, ops.asarray(np.zeros((V + 1, C)), dtype)),
        (ValueError, ops.asarray(np.zeros((2, V, C)), dtype)),
    ):
        with pytest.raises(kind, match=r"out (is|has)"):
            ops.embedding.backward(y, embedded, out=out)
        with pytest.raises(kind, match=r"out (is|has)"):
            ops.linear_cross_entropy.backward(1.0, projected, out=out)


ONES, HALF = torch.ones(3, 4, device=DEVICE), torch.ones(3, 4, dtype=torch.float16, device=DEVICE)
HEADS, WIDE = torch.ones(1, 1, 2, 3, device=DEVICE), torch.ones(1, 1, 2, 300, device=DEVICE)
ROWS_NUMBERED = Dropout(0.1, 0, np.arange(3), np.arange(3))
ADAM = {"data": ONES[0], "grad": ONES[1], "m": ONES[2].clone(), "v": ONES[2].clone(), "step": 1, "lr": 0.1}


@WITHOUT_TRITON
@pytest.mark.parametrize(
    ("op", "arguments", "kind", "message"),
    [
        ("attention_forward", ([HEADS] * 3, {"precision": "half"}), ValueError, "precision is 'half'"),
        ("attention_forward", ([HEADS] * 3, {"dropout": ROWS_NUMBERED}), ValueError, "dropout numbers each row"),
        ("attention_forward", ([WIDE] * 3, {}), ValueError, "query has .*, expected a last axis from 1 to 256"),
        ("attention_forward", ([HEADS, HEADS, WIDE], {}), ValueError, "value has .*, expected a last axis from 1 to"),
        ("layernorm_forward", ([HALF, ONES[0], HALF[0]], {}), TypeError, r"gamma is .*32 and beta is .*16"),
        ("dropout_forward", ([ONES[None, None, None], Dropout(0.1, 0)], {}), ValueError, "x has 5 axes"),
        ("add_layernorm_forward", ([ONES[None, None, None]] * 2 + [ONES[0]] * 2, {"dropout": Dropout(0.1, 0)}),
         ValueError, "x has 5 axes"),
        ("adam_step", ([], ADAM | {"step": torch.tensor([1, 2])}), ValueError, "step has shape"),
        ("adam_step", ([], ADAM | {"lr": "0.1"}), TypeError, "lr must be a number"),
        ("adam_step", ([], ADAM | {"m": torch.ones(4, 2, device=DEVICE)[:, 0]}), ValueError, "m has stride 2"),
        ("adam_step", ([], ADAM | {"shadow": ONES[0, :3]}), ValueError, "shadow has shape"),
        ("adam_step", ([], ADAM | {"shadow": torch.ones(4, dtype=torch.int64)}), TypeError, "shadow must be"),
        ("adam_step", ([], ADAM | dict.fromkeys(("data", "grad", "m", "v"), HALF[0])), TypeError,
         "data is torch.float16, expected torch.float32"),
    ],
)  # fmt: skip
def test_what_a_kernel_refuses_beyond_that(op, arguments, kind, message):
    """The widest heads, the dtypes that stand beside each other, and how arrays that are written into must lie."""
    places, names = arguments
    with pytest.raises(kind, match=message):
        getattr(kernels, op)(*places, **names)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"step": 0}, "step is 0, expected 1, 2"),
        ({"step": 2.5}, "step is 2.5, expected 1, 2"),
        ({"lr": float("nan")}, "lr is nan, expected a finite number"),
        ({"grad_scale": -1.0}, "grad_scale is -1.0, expected a finite number"),
        ({"beta1": 1.0}, "expected betas below 1 and eps above 0"),
        ({"beta2": 1}, "expected betas below 1 and eps above 0"),
        ({"eps": 0.0}, "expected betas below 1 and eps above 0"),
    ],
)
def test_adam_refuses_what_the_reference_refuses_and_changes_nothing(wrong, message):
    arrays = {name: ADAM[name].clone() for name in ("data", "grad", "m", "v")}
    with pytest.raises(ValueError, match=message):
        eager.adam_step(**arrays, **{"step": 1, "lr": 0.1, **wrong})
    in_numpy = {name: array.cpu().numpy() for name, array in arrays.items()}
    with pytest.raises(ValueError, match=message.split(",")[0]):
        reference.adam_step(**in_numpy, **{"step": 1, "lr": 0.1, **wrong})
    assert all(torch.equal(array, ADAM[name]) for name, array in arrays.items())


def test_a_key_mask_in_a_pattern_is_checked_as_one_beside_it():
    for mask, kind, message in (
        (np.ones((1, 2), bool), TypeError, "key_mask must be a torch.Tensor, got ndarray"),
        (torch.ones(1, 2, device=DEVICE), TypeError, "key_mask must be a boolean"),
        (torch.ones(1, 2, dtype=torch.bool, device="meta"), ValueError, "query is on .* and key_mask on meta"),
    ):
        with pytest.raises(kind, match=message):
            eager.attention_forward(HEADS, HEADS, HEADS, pattern=Pattern(key_mask=mask))


@WITHOUT_TRITON
def test_the_unfused_rung_broadcasts_nothing():
    from kernels.norms.layernorm import add_layernorm_unfused

    with pytest.raises(ValueError, match=r"sublayer_out has shape \(1, 4\), expected \(3, 4\)"):
        add_layernorm_unfused(ONES, ONES[:1], ONES[0], ONES[0])
