"""Targets, arguments and clothes that the tests of both losses share: cross_entropy and linear_cross_entropy."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE

import kernels
from kernels.cross_entropy import ELEMENTS

vocab_sizes = st.sampled_from([1, 2, 5, 16, 37, 100, 1500, ELEMENTS, ELEMENTS + 1, 2 * ELEMENTS + 800])
"""Rows that share a program, two to a program, rows of a whole block, of a block and one more, and of three blocks."""
smoothings = st.sampled_from([0.0, 0.1, 1.0])
ignored = st.sampled_from([None, 0, -100])


def draw_targets(rng: np.random.Generator, shape: tuple, vocab_size: int, ignore_index: int | None) -> np.ndarray:
    """Targets of which about a third are ignored, where that is asked for."""
    targets = rng.integers(vocab_size, size=shape)
    return targets if ignore_index is None else np.where(rng.random(shape) < 0.3, ignore_index, targets)


def on_device(*arrays: np.ndarray, dtype: torch.dtype = torch.float32) -> list[Any]:
    """The arrays as tensors, floats as `dtype`."""
    tensors = (torch.from_numpy(np.asarray(array)).to(DEVICE) for array in arrays)
    return [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]


def fused_arguments(dtype: torch.dtype = torch.float32, rows: int = 40, vocab_size: int = 203) -> list[Any]:
    """x, table and targets, some of which are 0, to be ignored."""
    rng = np.random.default_rng(0)
    targets = draw_targets(rng, (rows,), vocab_size, 0)
    return on_device(rng.standard_normal((rows, 3)), rng.standard_normal((vocab_size, 3)), targets, dtype=dtype)


def bare(x, table, targets, *args, **options):
    """`cross_entropy` over logits computed outside, in the fused op's clothes."""
    loss, cache = kernels.cross_entropy_forward(x @ table.T, targets, *args, **options)
    return loss, (cache, x, table)


def bare_backward(dloss, cache):
    entropy_cache, x, table = cache
    dlogits = kernels.cross_entropy_backward(dloss, entropy_cache)
    return dlogits @ table, dlogits.T @ x


both = pytest.mark.parametrize(
    ("forward", "backward"),
    [(bare, bare_backward), (kernels.linear_cross_entropy_forward, kernels.linear_cross_entropy_backward)],
    ids=["cross_entropy", "linear_cross_entropy"],
)
