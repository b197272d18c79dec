"""Adam over flat arrays, and the global norm."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, DTYPES, assert_same_bits, check, few, on_device, seeds, to_numpy
from support.kernels.traffic import Traffic
from torch import Tensor

import kernels
import kernels.adam as module
from kernels.proof.cases import draw
from minitransformer import ops

PAPER = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9}
TOLERANCE = 1e-5

sizes = st.sampled_from([0, 1, 5, 1024, 1025, 3001])


def state(size: int, seed: int = 0) -> list[Tensor]:
    """data, grad, m and v of a model that was trained for a while."""
    return on_device(draw("adam", np.random.default_rng(seed), P=size))


@few
@given(
    size=sizes,
    step=st.sampled_from([1, 2, 16, 1000, 100_000]),
    lr=st.floats(1e-4, 1.0),
    beta1=st.sampled_from([0.0, 0.9]),
    beta2=st.sampled_from([0.98, 0.999]),
    eps=st.sampled_from([1e-9, 1e-3]),
    grad_scale=st.sampled_from([1.0, 0.25]),
    seed=seeds,
)
def test_one_step_is_the_references(size, step, seed, **options):
    tensors = state(size, seed)
    arrays = [to_numpy(tensor).copy() for tensor in tensors]
    grad = tensors[1].clone()
    assert kernels.adam_step(*tensors, step=step, **options) is None
    ops.adam_step(*arrays, step=step, **options)
    assert torch.equal(tensors[1], grad), "grad was written into"
    for name, tensor, array in zip(("data", "grad", "m", "v"), tensors, arrays, strict=True):
        check(name, tensor, array, TOLERANCE)


def test_defaults_are_the_papers():
    default, papers = state(50), state(50)
    kernels.adam_step(*default, step=3, lr=0.1)
    kernels.adam_step(*papers, step=3, lr=0.1, grad_scale=1.0, **PAPER)
    assert torch.equal(default[0], papers[0])


@few
@given(beta=st.sampled_from([0.0, 0.5, 0.9, 0.98, 0.999, 0.99999]), step=st.integers(1, 200_000))
def test_bias_corrections_keep_float32s_accuracy(beta, step):
    """`1 − 0.99999` in float32 would be 1e-3 off. With grad = m = v = 1 the step is lr times the corrections."""
    data, (grad, m, v) = torch.zeros(1, device=DEVICE), torch.ones(3, 1, device=DEVICE)
    kernels.adam_step(data, grad, m, v, step=step, lr=1.0, beta1=beta, beta2=beta, eps=1e-30)
    correction = -np.expm1(step * np.log(beta)) if beta else 1.0
    assert data.item() == pytest.approx(-(correction**0.5) / correction, rel=2e-6)


# --- Numbers in device memory, and a copy in half precision -----------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,)])
def test_numbers_may_stand_in_tensors_and_give_the_same_bits(shape):
    """A captured graph repeats the address: a new number there makes a new step."""
    plain, boxed = state(50), state(50)
    step = torch.ones(shape, dtype=torch.int64, device=DEVICE)
    lr, grad_scale = torch.ones(2, *shape, device=DEVICE)
    for number in (1, 2, 7):
        kernels.adam_step(*plain, step=number, lr=0.1 / number, grad_scale=0.5 * number)
        step.fill_(number)
        lr.fill_(0.1 / number)
        grad_scale.fill_(0.5 * number)
        kernels.adam_step(*boxed, step=step, lr=lr, grad_scale=grad_scale)
        assert_same_bits(plain, boxed)


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU, and a PyTorch that was built for it")
def test_a_captured_step_is_repeated_with_new_numbers():
    step, lr = torch.ones((), dtype=torch.int64, device=DEVICE), torch.tensor(0.1, device=DEVICE)
    tensors, replayed = state(5000), state(5000)
    kernels.adam_step(*state(5000), step=step, lr=lr)  # compiled before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.adam_step(*replayed, step=step, lr=lr)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in (1, 2, 3):
            kernels.adam_step(*tensors, step=number, lr=0.1 / number)
            step.fill_(number)
            lr.fill_(0.1 / number)
            graph.replay()
            kernels.global_norm(tensors[1])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(tensors[0], replayed[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_shadow_is_the_new_data_in_its_own_dtype(dtype):
    alone, shadowed = state(1500), state(1500)
    shadow = torch.empty(1500, dtype=dtype, device=DEVICE)
    kernels.adam_step(*alone, step=2, lr=0.1)
    kernels.adam_step(*shadowed, step=2, lr=0.1, shadow=shadow)
    assert torch.equal(shadowed[0], alone[0])
    assert torch.equal(shadow, alone[0].to(dtype))


def test_views_are_updated_and_nothing_beside_them():
    """A model's parameters are views into arrays that may go on beyond them."""
    tensors = state(3000)
    whole = [tensor.clone() for tensor in tensors]
    kernels.adam_step(*(tensor[1000:1601] for tensor in whole), step=2, lr=0.1)
    parts = [tensor[1000:1601].clone() for tensor in tensors]
    kernels.adam_step(*parts, step=2, lr=0.1)
    for tensor, changed, part in zip(tensors, whole, parts, strict=True):
        assert torch.equal(changed, torch.cat([tensor[:1000], part, tensor[1601:]]))


def test_a_strided_gradient():
    plain, strided = state(50), state(50)
    strided[1] = torch.stack([strided[1], strided[1]], dim=-1)[:, 0]
    for tensors in (plain, strided):
        kernels.adam_step(*tensors, step=1, lr=0.1)
    assert torch.equal(plain[0], strided[0])


# --- The global norm ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(
    shape=st.sampled_from([(), (0,), (1,), (5,), (3, 7), (2, 0), (70_001,)]),
    programs=st.sampled_from([1, 4, module.NORM_PROGRAMS]),
    seed=seeds,
)
def test_global_norm(dtype, shape, programs, seed):
    grad = torch.from_numpy(np.asarray(np.random.default_rng(seed).standard_normal(shape))).to(DEVICE, dtype)
    with mock.patch.object(module, "NORM_PROGRAMS", programs):
        norm, again = kernels.global_norm(grad), kernels.global_norm(grad)
    assert (norm.shape, norm.dtype) == ((), torch.float32)
    assert torch.equal(norm, again)
    assert norm.item() == pytest.approx(ops.global_norm(to_numpy(grad)), rel=1e-6)


def test_the_global_norm_of_any_layout():
    grad = torch.arange(12.0, device=DEVICE).reshape(3, 4).T
    assert kernels.global_norm(grad).item() == pytest.approx(506**0.5)
    assert kernels.global_norm(torch.ones((), device=DEVICE).expand(9)).item() == 3.0


# --- The first rung -------------------------------------------------------------------------------------------


def test_the_naive_rung_takes_39_passes_and_17_launches():
    tensors = state(50)
    arrays = [to_numpy(tensor).copy() for tensor in tensors]
    for step in range(1, 11):
        with Traffic(50) as traffic:
            module.adam_step_naive(*tensors, step=step, lr=0.1)
        assert traffic.passes == 39
        assert len(traffic.operations) == 17
        ops.adam_step(*arrays, step=step, lr=0.1)
    check("data", tensors[0], arrays[0], TOLERANCE)
