"""LayerNorm, RMSNorm, and Add & Norm with each: rows in one block, rows swept block by block, and the rungs below."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import (
    DEVICE,
    DTYPES,
    NARROW_LATER,
    check,
    few,
    on_device,
    prove_kernel,
    seeds,
    to_numpy,
)
from support.kernels.traffic import Traffic
from torch import Tensor

import kernels
from kernels.norms.layernorm import add_layernorm_unfused, layernorm_naive, layernorm_sweeps
from kernels.norms.rmsnorm import add_rmsnorm_unfused, rmsnorm_naive
from kernels.norms.whole import ONE_BLOCK
from kernels.rows import summed_partials
from minitransformer import ops
from minitransformer.ops import Dropout

shapes = st.sampled_from([(3,), (0, 5), (2, 0, 4), (6, 1), (2, 3, 33), (2, 3, 2, 7), (5, 512), (3, 2049)])
epsilons = st.sampled_from([1e-5, 1e-3, 0.5, 1])
MANY = 40 if DEVICE == "cuda" else 1
"""Times as many rows give each of a GPU's programs several tiles too."""

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
norms = pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])


def arrays(norm: str, shape: tuple[int, ...], seed: int, *names: str) -> dict[str, np.ndarray]:
    """Rows far from constant, where 1/√(var + eps) is steep, and gamma and LayerNorm's beta."""
    rng = np.random.default_rng(seed)
    rows = {name: 0.3 * rng.standard_normal(shape) + np.linspace(-1, 1, shape[-1]) for name in ("x", *names)}
    parameters = ("gamma", "beta") if norm == "layernorm" else ("gamma",)
    return rows | {name: rng.standard_normal(shape[-1]) for name in parameters}


@pytest.mark.parametrize("dtype", NARROW_LATER, ids=str)
@norms
@pytest.mark.parametrize("rows", [(6, 25), (6, 200)])
def test_programs_with_several_tiles_each(dtype, norm, rows, monkeypatch):
    """The last tile is not full. As if on one processor, a program has up to three tiles of 32 rows in the backward,
    and in the forward, of 16 rows and for 1200, up to five."""
    monkeypatch.setattr(kernels.rows, "PROCESSORS_INTERPRETED", 1)
    inputs = arrays(norm, (rows[0] * MANY, rows[1], 33), 0, "sublayer_out")
    prove_kernel(f"add_{norm}", inputs, dtype, dropout=Dropout(0.2, key=7, sentence=2, position=3))


@dtypes
@norms
@pytest.mark.parametrize("rows", [0, 3 * MANY])
@pytest.mark.parametrize("width", [ONE_BLOCK, ONE_BLOCK + 1, 2 * ONE_BLOCK + 300])
def test_wide_rows(dtype, norm, rows, width):
    prove_kernel(norm, arrays(norm, (rows, width), width), dtype)


@dtypes
@norms
@pytest.mark.parametrize("width", [ONE_BLOCK, ONE_BLOCK + 1])
@pytest.mark.parametrize("dropout", [pytest.param(None, marks=pytest.mark.slow), Dropout(0.3, key=1)])
def test_add_and_norm_of_wide_rows(dtype, norm, width, dropout):
    prove_kernel(f"add_{norm}", arrays(norm, (1, 2, width), width, "sublayer_out"), dtype, dropout=dropout)


@dtypes
@norms
@few
@given(shape=shapes, eps=epsilons, seed=seeds)
def test_a_norm(dtype, norm, shape, eps, seed):
    prove_kernel(norm, arrays(norm, shape, seed), dtype, eps=eps)


@dtypes
@norms
@few
@given(shape=shapes, eps=epsilons, rate=st.sampled_from([None, 0.0, 0.1, 0.7]), seed=seeds, packed=st.booleans())
def test_add_and_norm(dtype, norm, shape, eps, rate, seed, packed):
    dropout = None if rate is None else Dropout(rate, key=seed << 32 | ~seed & 0xFFFFFFFF, sentence=2, position=3)
    if rate and packed and len(shape) == 2:
        rng = np.random.default_rng(seed)
        dropout = Dropout(rate, seed, *(rng.integers(0, 9, shape[0]) for _ in range(2)))
    prove_kernel(f"add_{norm}", arrays(norm, shape, seed, "sublayer_out"), dtype, eps=eps, dropout=dropout)


@dtypes
@pytest.mark.parametrize(("norm", "unfused"), [("layernorm", add_layernorm_unfused), ("rmsnorm", add_rmsnorm_unfused)])
@pytest.mark.parametrize("dropout", [None, Dropout(0.4, key=9)])
def test_the_unfused_rung(dtype, norm, unfused, dropout):
    prove_kernel(f"add_{norm}", arrays(norm, (2, 30, 96), 1, "sublayer_out"), dtype, unfused, dropout=dropout)


RUNGS = {"naive": ("layernorm", layernorm_naive, 12), "sweeps": ("layernorm", layernorm_sweeps, None)} | {
    "RMSNorm, naive": ("rmsnorm", rmsnorm_naive, 7)
}


@pytest.mark.parametrize("width", [1, 5, 100])
@pytest.mark.parametrize("rung", RUNGS)
def test_the_earlier_rungs(rung, width):
    """They compute the same, PyTorch's operations in as many passes as the files say."""
    norm, function, passes = RUNGS[rung]
    inputs = arrays(norm, (2, 3, width), width)
    expected, _ = getattr(ops, f"{norm}_forward")(*inputs.values(), eps=0.1)
    tensors = on_device(inputs)
    with Traffic(2 * 3 * width) as traffic:
        y = function(*tensors, eps=0.1)
    check("output", y, expected, 1e-5)
    if passes is not None and width > 1:
        assert traffic.passes == passes


@pytest.mark.parametrize(("programs", "width"), [(1, 5000), (3, 70), (600, 33)])
def test_partial_sums_add_up(programs, width):
    partials = torch.randn(2, programs, width, device=DEVICE)
    check("sums", summed_partials(partials, torch.float32), to_numpy(partials).sum(1), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("width", [64, ONE_BLOCK + 1])
def test_gamma_and_beta_may_be_float32_beside_narrower_activations(dtype, width):
    rng = np.random.default_rng(width)
    x, dy = (torch.from_numpy(rng.standard_normal((9, width))).to(DEVICE, dtype) for _ in range(2))
    gamma, beta = (torch.from_numpy(rng.standard_normal(width)).float().to(DEVICE) for _ in range(2))
    expected, reference_cache = ops.layernorm_forward(to_numpy(x), to_numpy(gamma), to_numpy(beta))
    y, cache = kernels.layernorm_forward(x, gamma, beta)
    gradients = [gradient for gradient in kernels.layernorm_backward(dy, cache) if gradient is not None]
    assert [t.dtype for t in (y, *gradients)] == [dtype, dtype, torch.float32, torch.float32]
    check("output", y, expected, torch.finfo(dtype).eps)
    bounds = torch.finfo(dtype).eps, 1e-5, 1e-5  # the parameters' gradients are sums in float32 of what is exact
    for gradient, wanted, bound in zip(
        gradients, ops.layernorm_backward(to_numpy(dy), reference_cache), bounds, strict=True
    ):
        check("gradient", gradient, wanted, bound)


@pytest.mark.parametrize("width", [1, 3, 100, 768, 1000, ONE_BLOCK + 5])
def test_constant_rows_in_float32_give_beta_exactly(width):
    """1/C is rounded unless C is a power of two: a mean must divide by C, not multiply by it."""
    beta = torch.linspace(-1, 1, width, device=DEVICE)
    x = torch.tensor([[110.0], [1100.0], [-1000.0]], device=DEVICE).expand(3, width)
    y, cache = kernels.layernorm_forward(x, torch.ones_like(beta), beta)
    assert torch.equal(y, beta.expand(3, width))
    assert kernels.layernorm_backward(torch.ones_like(y), cache)[0].isfinite().all()


@pytest.mark.parametrize("width", [1000, ONE_BLOCK + 5])
def test_a_large_mean_does_not_cancel_the_variance(width):
    """mean(x²) − mean(x)² would be noise: x² is 10⁸, in float32 known to ±4."""
    x = torch.from_numpy(1e4 + np.random.default_rng(0).standard_normal((2, width))).float().to(DEVICE)
    gamma, beta = torch.ones(width, device=DEVICE), torch.zeros(width, device=DEVICE)
    expected, _ = ops.layernorm_forward(to_numpy(x), to_numpy(gamma), to_numpy(beta))
    check("output", kernels.layernorm_forward(x, gamma, beta)[0], expected, 1e-3)


@dtypes
@pytest.mark.parametrize("dropout", [None, Dropout(0.3, key=1)])
def test_one_channel_has_no_gradient(dtype, dropout):
    """It is its own mean, whatever it is: y is beta. `dy · gamma` and its mean must be rounded alike."""
    x, sublayer_out, dy = torch.randn(3, 3000, 1, dtype=dtype, device=DEVICE)
    gamma, beta = torch.tensor([0.3], device=DEVICE), torch.tensor([-1.5], device=DEVICE)
    y, cache = kernels.add_layernorm_forward(x, sublayer_out, gamma, beta, dropout=dropout)
    assert (y == beta).all()
    dx, dsublayer_out, dgamma, _ = kernels.add_layernorm_backward(dy, cache)
    for gradient in (dx, dsublayer_out, dgamma):
        assert not gradient.any()


def test_a_row_does_not_depend_on_its_neighbours():
    """A batch may be split: the halves give the rows of the whole to the bit, dropout included."""
    x, sublayer_out, dy = torch.randn(3, 6, 50, 40, device=DEVICE)
    gamma, beta = torch.randn(2, 40, device=DEVICE)

    def both(sentences: slice) -> tuple[Tensor, ...]:
        dropout = Dropout(0.2, key=4, sentence=sentences.start)
        y, cache = kernels.add_layernorm_forward(x[sentences], sublayer_out[sentences], gamma, beta, dropout=dropout)
        return y, *kernels.add_layernorm_backward(dy[sentences], cache)[:2]

    for whole, first, second in zip(both(slice(0, 6)), both(slice(0, 2)), both(slice(2, 6)), strict=True):
        assert torch.equal(whole, torch.cat([first, second]))
