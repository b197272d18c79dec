"""Tensors that PyTorch's autograd follows: no op loses their gradients in silence."""

from typing import Any

import numpy as np
import pytest
import torch
from support.kernels.op_cases import CASES, C, V, arrays_of
from support.kernels.prove_kernel import DEVICE
from support.kernels.tables import WITHOUT_TRITON, table

import kernels
from minitransformer.gradcheck import error

OPS = sorted({op for op, _, _ in CASES.values()})
KERNELS = [op for op in OPS if f"{op}_forward" in kernels.__all__ and op != "linear"]
MESSAGE = (
    r"requires a gradient, which autograd would lose here: call kernels\.functional, pass it with \.detach\(\), "
    r"or call under torch\.no_grad"
)


def arguments(op: str, dtype: str = "float32") -> tuple[dict[str, Any], dict[str, Any]]:
    """An op's arrays on the device, and its options."""
    _, _, options = CASES[op]
    drawn = arrays_of(op, np.random.default_rng(0))
    arrays = {name: torch.from_numpy(array).to(DEVICE) for name, array in drawn.items()}
    floats = {name: x.to(getattr(torch, dtype)) for name, x in arrays.items() if x.is_floating_point()}
    tensors = {
        name: torch.from_numpy(value).to(DEVICE, getattr(torch, dtype)) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }
    return arrays | floats, tensors


@WITHOUT_TRITON
@pytest.mark.parametrize("op", KERNELS)
def test_a_kernel_refuses_what_autograd_would_lose(op):
    """Each argument by its name, given by place or by keyword; with autograd off nothing is lost, and all is taken."""
    forward, backward = getattr(kernels, f"{op}_forward"), getattr(kernels, f"{op}_backward")
    arrays, options = arguments(op)
    out, cache = forward(**arrays, **options)
    for name in (name for name, array in arrays.items() if array.is_floating_point()):
        followed = arrays | {name: arrays[name].clone().requires_grad_()}
        for places, names in ((), followed), (followed.values(), {}):
            with pytest.raises(ValueError, match=f"^{name} {MESSAGE}"):
                forward(*places, **names, **options)
        for off in (torch.no_grad, torch.inference_mode):
            with off():
                assert torch.equal(forward(**followed, **options)[0], out)
    received = torch.ones_like(out)
    with pytest.raises(ValueError, match=f"^d(y|out|loss) {MESSAGE}"):
        backward(received.clone().requires_grad_(), cache)
    backward(received, cache)


@WITHOUT_TRITON
@pytest.mark.parametrize("name", ["data", "grad", "m", "v", "lr", "grad_scale", "shadow"])
def test_adam_refuses_parameters_of_a_module(name):
    """An `nn.Parameter` as it is; its `.detach()` is the same memory."""
    numbers: Any = {name: torch.ones(4, device=DEVICE) for name in ("data", "grad", "m", "v", "shadow")}
    numbers |= {name: torch.ones((), device=DEVICE) for name in ("lr", "grad_scale")}
    numbers[name] = torch.nn.Parameter(numbers[name])
    for adam_step in (kernels.adam_step, table("torch").adam_step):
        with pytest.raises(ValueError, match=f"^{name} {MESSAGE}"):
            adam_step(**numbers, step=1)
        adam_step(**{name: number.detach() for name, number in numbers.items()}, step=1)
        with torch.no_grad():
            adam_step(**numbers, step=2)


@WITHOUT_TRITON
def test_what_else_may_be_followed():
    weights = torch.ones(V, C, device=DEVICE)
    with pytest.raises(ValueError, match=f"^grad {MESSAGE}"):
        kernels.global_norm(weights.clone().requires_grad_())
    y, cache = kernels.embedding_forward(torch.tensor([[1, 2]], device=DEVICE), weights)
    with pytest.raises(ValueError, match=f"^out {MESSAGE}"):
        kernels.embedding_backward(y, cache, out=torch.nn.Parameter(weights))
    y, cache = kernels.linear_forward(weights, weights.T, None)
    with pytest.raises(ValueError, match=f"^out's dweight {MESSAGE}"):
        kernels.linear_backward(y, cache, out=(torch.nn.Parameter(weights.T), None))


@pytest.mark.parametrize("op", OPS)
def test_autograd_follows_pytorchs_arithmetic(op):
    """Nothing is lost there, and so nothing is refused: what autograd finds is what the backward says."""
    ops = table("torch", "float64")
    arrays, options = arguments(op, "float64")
    leaves = {name: x.clone().requires_grad_() if x.is_floating_point() else x for name, x in arrays.items()}
    out, _ = getattr(ops, op).forward(**leaves, **options)
    dout = torch.from_numpy(np.asarray(np.random.default_rng(1).standard_normal(tuple(out.shape)))).to(DEVICE)
    found = torch.autograd.grad(out, [leaf for leaf in leaves.values() if leaf.requires_grad], dout)
    _, cache = getattr(ops, op).forward(**arrays, **options)
    expected = getattr(ops, op).backward(dout, cache)
    for gradient, wanted in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert error(ops.to_numpy(gradient), ops.to_numpy(wanted)) <= 1e-12
