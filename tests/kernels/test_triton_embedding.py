"""Rows of a table by id, and sums of rows by id without atomic additions."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, DTYPES, check, few, prove_kernel, seeds, to_numpy

import kernels
import kernels.embedding as module


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(
    shape=st.sampled_from([(), (0,), (5,), (3, 7), (0, 3), (2, 3, 4)]),
    vocab_size=st.sampled_from([1, 3, 40]),
    width=st.sampled_from([1, 5, 33, 64, module.ELEMENTS + 1]),
    scale=st.sampled_from([1.0, 3.5]),
    seed=seeds,
)
def test_embedding(dtype, shape, vocab_size, width, scale, seed):
    rng = np.random.default_rng(seed)
    ids = np.asarray(rng.integers(vocab_size, size=shape))
    arrays = {"ids": ids, "table": rng.standard_normal((vocab_size, width))}
    prove_kernel("embedding", arrays, dtype, scale=scale)


# --- Segments: equal ids, cut into pieces and joined ------------------------------------------------------------


def backward_of(ids: torch.Tensor, dy: torch.Tensor, vocab_size: int, **options: Any) -> torch.Tensor:
    """dtable, through the pair."""
    table = torch.zeros(vocab_size, dy.shape[-1], dtype=dy.dtype, device=DEVICE)
    return kernels.embedding_backward(dy, kernels.embedding_forward(ids, table)[1], **options)


def scattered(ids: torch.Tensor, dy: torch.Tensor, vocab_size: int) -> np.ndarray:
    """Return the sums, one row after the other."""
    sums = np.zeros((vocab_size, dy.shape[-1]))
    np.add.at(sums, to_numpy(ids).reshape(-1), to_numpy(dy).reshape(-1, dy.shape[-1]))
    return sums


@few
@given(
    lengths=st.lists(st.integers(0, 11), min_size=1, max_size=6),
    piece=st.sampled_from([1, 2, 4]),
    rows=st.sampled_from([1, 2, 4]),
    seed=seeds,
)
def test_segments_of_any_length_at_any_place(lengths, piece, rows, seed):
    """Whole numbers, so that sums are exact: each row of dy must be in one sum, once."""
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.permutation(np.repeat(np.arange(len(lengths)), lengths))).to(DEVICE)
    dy = torch.from_numpy(rng.integers(-50, 50, (len(ids), 2))).float().to(DEVICE)
    with mock.patch.multiple(module, PIECE=piece, ROWS=min(rows, piece), COLUMNS=2, ELEMENTS=4):
        gradient = backward_of(ids, dy, len(lengths))
    assert np.array_equal(to_numpy(gradient), scattered(ids, dy, len(lengths)))


def test_a_piece_is_what_it_is_by_default():
    """Ids with one, several and exactly whole pieces of rows, one of them with many."""
    rng = np.random.default_rng(0)
    lengths = [1, module.PIECE - 1, module.PIECE, module.PIECE + 1, 2 * module.PIECE, 3, 400]
    ids = torch.from_numpy(rng.permutation(np.repeat(np.arange(7), lengths))).to(DEVICE)
    dy = torch.from_numpy(rng.integers(-9, 9, (len(ids), 3))).to(DEVICE, torch.float16)
    gradient = backward_of(ids, dy, 8, out=torch.zeros(8, 3, device=DEVICE))
    assert np.array_equal(to_numpy(gradient), scattered(ids, dy, 8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_are_taken_in_float32(dtype):
    """300 rows of 1 and 2048 of them in one number: float16 would stop counting."""
    ids, dy = torch.zeros(300, dtype=torch.int64, device=DEVICE), torch.ones(300, 1, dtype=dtype, device=DEVICE)
    dy[0] = 2048
    into = torch.ones(2, 1, device=DEVICE)
    assert backward_of(ids, dy, 2, out=into) is into
    assert into[:, 0].tolist() == [2048 + 299 + 1, 1]


def test_out_adds_into_an_existing_tensor_of_any_layout():
    rng = np.random.default_rng(0)
    ids = torch.tensor([[4, 1, 4]], device=DEVICE)
    dy = torch.from_numpy(rng.standard_normal((1, 3, 5))).float().to(DEVICE)
    fresh = backward_of(ids, dy, 6)
    start = torch.from_numpy(rng.standard_normal((6, 5))).float().to(DEVICE)
    for into in (start.clone(), start.T.contiguous().T):
        assert backward_of(ids, dy, 6, out=into) is into
        assert torch.equal(into, start + fresh)
    assert torch.equal(into[[0, 2, 3, 5]], start[[0, 2, 3, 5]])


def test_the_naive_rung():
    rng = np.random.default_rng(0)
    ids, table = torch.from_numpy(rng.integers(7, size=(3, 20))).to(DEVICE), torch.zeros(9, 5, device=DEVICE)
    y, cache = kernels.embedding_forward(ids, table, 2.0)
    dy = torch.from_numpy(rng.standard_normal(tuple(y.shape))).float().to(DEVICE)
    check("dtable", module.embedding_backward_naive(dy, cache), to_numpy(kernels.embedding_backward(dy, cache)), 1e-6)
