"""The array plumbing: choosing, joining and converting."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.prove import batches, normal, read_only, seeds

from minitransformer.ops import asarray, cast, concatenate, cos, sin, take, to_numpy, topk, zeros


@given(batch=batches, n=st.integers(1, 9), levels=st.sampled_from([2, 3, 1000]), seed=seeds, data=st.data())
def test_topk_is_sorted_and_ties_go_to_the_smaller_id(batch, n, levels, seed, data):
    x = read_only(np.random.default_rng(seed).integers(levels, size=(*batch, n)).astype(np.float64))
    k = data.draw(st.integers(1, n))
    values, indices = topk(x, k)
    expected = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=-1))


def test_topk_with_minus_infinity():
    """In a beam search what may not follow has the score −inf, and may be most of a row."""
    values, indices = topk(np.array([[-np.inf, 2.0, -np.inf, -np.inf, 3.0]], np.float32), 4)
    np.testing.assert_array_equal(values, np.array([[3, 2, -np.inf, -np.inf]], np.float32), strict=True)
    np.testing.assert_array_equal(indices, [[4, 1, 0, 2]])
    assert indices.dtype.kind == "i"


@pytest.mark.parametrize("k", [0, 4, -1])
def test_topk_of_too_many(k):
    with pytest.raises(ValueError, match=rf"\bk\b.*{k}.*expected"):
        topk(np.ones((2, 3)), k)


@given(seed=seeds, axis=st.sampled_from([0, 1, 2]))
def test_take(seed, axis):
    rng = np.random.default_rng(seed)
    x = normal(rng, 4, 5, 6)
    indices = rng.integers(x.shape[axis], size=3)
    taken = take(x, indices, axis=axis)
    expected = np.stack([x[(slice(None),) * axis + (int(i),)] for i in indices], axis=axis)
    np.testing.assert_array_equal(taken, expected)
    assert not np.shares_memory(taken, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [7, (3, 5), ()])
def test_zeros_are_aligned_to_64_bytes(shape, dtype):
    array = zeros(shape, dtype)
    assert array.shape == ((shape,) if isinstance(shape, int) else shape)
    assert array.dtype == dtype
    assert array.ctypes.data % 64 == 0
    assert array.flags.writeable
    assert array.flags.c_contiguous
    np.testing.assert_array_equal(array, np.zeros(shape))


def test_conversions():
    for data in ([1, 2], 3, np.float32(3), range(4)):
        np.testing.assert_array_equal(asarray(data), np.array(data))
        np.testing.assert_array_equal(to_numpy(data), np.array(data))
    x = np.array([1.0, 2.0])
    assert asarray([1, 2], "float32").dtype == np.float32
    assert asarray(x) is x
    assert to_numpy(x) is x
    assert cast(x, "float64") is x
    assert cast(x, "float32").dtype == np.float32


def test_concatenate():
    a, b = np.ones((2, 1)), np.zeros((2, 2))
    np.testing.assert_array_equal(concatenate([a, b]), [[1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(concatenate([a, b[:, :1]], axis=0), [[1], [1], [0], [0]])


def test_sine_and_cosine():
    x = np.array([0.0, 1.0, -2.5])
    np.testing.assert_allclose(sin(x), [math.sin(v) for v in x], rtol=1e-15)
    np.testing.assert_allclose(cos(x), [math.cos(v) for v in x], rtol=1e-15)
