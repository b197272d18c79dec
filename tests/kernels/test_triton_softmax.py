"""Softmax: one pass where a row fits a block, two sweeps beyond."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, DTYPES, check, few, prove_kernel, seeds, to_numpy

import kernels
from kernels import rows
from kernels.softmax import ONE_PASS, ONE_PASS_BACKWARD, SEVERAL, softmax_naive, softmax_online
from minitransformer import ops

FLOAT32_MAX = torch.finfo(torch.float32).max
RUNGS = [lambda x: kernels.softmax_forward(x)[0], softmax_online, softmax_naive]
rungs = pytest.mark.parametrize("softmax", RUNGS, ids=["one pass", "online", "naive"])

batches = st.sampled_from([(), (0,), (1,), (3,), (2, 3), (2, 0), (1, 2, 3), (130,)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(batch=batches, n=st.one_of(st.integers(0, 70), st.sampled_from([255, 256, 1000, 2049])), seed=seeds)
def test_softmax(dtype, batch, n, seed):
    prove_kernel("softmax", {"x": 3 * np.random.default_rng(seed).standard_normal((*batch, n))}, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [ONE_PASS_BACKWARD, ONE_PASS_BACKWARD + 1, ONE_PASS, ONE_PASS + 1, 131072, 131073])
def test_long_rows(n, dtype):
    """Some large scores, early and late: equal weights would all be below the tolerance."""
    x = np.random.default_rng(n).standard_normal((2, n))
    x[:, :: n // 7] += 12
    prove_kernel("softmax", {"x": x}, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [SEVERAL + 1, ONE_PASS])
def test_a_program_takes_many_rows(n, dtype, monkeypatch):
    """The first takes three of five, the second two. Each has other maxima, and a sum of its own."""
    monkeypatch.setattr(rows, "PROCESSORS_INTERPRETED", 2)
    x = np.random.default_rng(n).standard_normal((5, n)) * [[1], [2], [4], [3], [0]]
    prove_kernel("softmax", {"x": x}, dtype)


@rungs
def test_small_weights_keep_their_digits(softmax):
    """e^x is off by |x| · 2⁻²⁴, since x · log₂e is rounded: by 4e-6 where it is as small as float32 can hold."""
    x = torch.linspace(-80, 0, 200, device=DEVICE)
    y = softmax(torch.stack([x, torch.zeros_like(x)], -1))
    expected, _ = ops.softmax_forward(np.stack([to_numpy(x), np.zeros(200)], -1))
    np.testing.assert_allclose(to_numpy(y), expected, rtol=6e-6)


@rungs
@pytest.mark.parametrize("n", [0, 1, 5, 300, 8192, 8193])
def test_every_rung_is_the_softmax(softmax, n):
    x = 4 * torch.from_numpy(np.random.default_rng(n).standard_normal((2, 2, n))).float().to(DEVICE)
    check("output", softmax(x), ops.softmax_forward(to_numpy(x))[0], 1e-6)


@rungs
@pytest.mark.parametrize("large", [1e4, FLOAT32_MAX])
def test_never_overflows(softmax, large):
    x = [[large, -large, 0], [-large, -large, -large], [large, large, -large]]
    y = softmax(torch.tensor(x, device=DEVICE))
    np.testing.assert_allclose(to_numpy(y), [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]], rtol=1e-6)


@rungs
@pytest.mark.parametrize("n", [3, 1000, ONE_PASS + 1])
def test_nothing_to_attend_to_gives_zeros(softmax, n):
    x = torch.full((3, n), -torch.inf, device=DEVICE)
    x[1, n - 1] = 0.5
    y = softmax(x)
    assert y[1, n - 1] == 1
    assert y.count_nonzero() == 1


@rungs
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_spoils_its_own_row(softmax, bad):
    """It does so in NumPy and PyTorch too, and no other row changes."""
    x = torch.zeros(3, 4, device=DEVICE)
    x[1, 2] = bad
    with np.errstate(invalid="ignore"):
        y = softmax(x)
    assert y[1].isnan().all()
    assert (y[[0, 2]] == 0.25).all()


@rungs
def test_equal_scores_are_weighed_equally_to_the_bit(softmax):
    """The exponentials are 1 and their sum is exact, so y is 1/n wherever that has a float."""
    for n in (1, 2, 64, 16384):
        assert (softmax(torch.full((2, n), -7.3, device=DEVICE)) == 1 / n).all()


@pytest.mark.parametrize("score", [0.5, -torch.inf], ids=["one", "none"])
@pytest.mark.parametrize("n", [1, 5, ONE_PASS_BACKWARD + 1])
def test_one_key_or_none_has_no_gradient(n, score):
    """The weight of a single key is 1 whatever its score is, and `dy − Σ dy·y` is 0, not nearly."""
    x = torch.full((3, n), -torch.inf, device=DEVICE)
    x[:, n // 2] = score + torch.randn(3, device=DEVICE)
    y, cache = kernels.softmax_forward(x)
    assert not kernels.softmax_backward(torch.randn_like(y), cache).any()
