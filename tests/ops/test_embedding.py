"""Looking up rows of a table."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.prove import Proof, normal, prove, prove_float32_accuracy, seeds, sizes

from minitransformer.ops import embedding_backward, embedding_forward


@given(
    shape=st.tuples(st.integers(0, 3), st.integers(0, 4)),
    vocab_size=sizes,
    width=sizes,
    scale=st.sampled_from([1.0, 3.5]),
    id_type=st.sampled_from([np.int32, np.int64]),
    seed=seeds,
)
def test_embedding(proof: Proof, shape, vocab_size, width, scale, id_type, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(vocab_size, size=shape[::-1], dtype=id_type).T
    prove(
        "embedding",
        partial(embedding_forward, scale=scale),
        embedding_backward,
        partial(oracles.embedding, scale=scale),
        {"ids": ids, "table": normal(rng, vocab_size, width)},
        proof,
    )


def test_repeated_ids_sum():
    ids = np.array([[1, 1, 3, 1]])
    _, cache = embedding_forward(ids, np.zeros((4, 1)))
    dtable = embedding_backward(np.array([[[1.0], [10.0], [5.0], [100.0]]]), cache)
    np.testing.assert_array_equal(dtable, [[0], [111], [0], [5]])


def test_out_adds_into_an_existing_array():
    rng = np.random.default_rng(0)
    y, cache = embedding_forward(np.array([[2, 0, 2]]), normal(rng, 3, 4), scale=2.0)
    dy = normal(rng, *y.shape)
    into = np.ones((3, 4))
    assert embedding_backward(dy, cache, out=into) is into
    np.testing.assert_allclose(into, 1 + embedding_backward(dy, cache), rtol=1e-12)


def test_float32_accuracy():
    prove_float32_accuracy(
        partial(embedding_forward, scale=8.0),
        embedding_backward,
        partial(oracles.embedding, scale=8.0),
        lambda rng: {"ids": rng.integers(50, size=(16, 64)), "table": normal(rng, 50, 64)},
    )


@pytest.mark.parametrize("bad", [-1, 5])
def test_ids_out_of_range(bad):
    with pytest.raises(ValueError, match=rf"ids.*{bad}"):
        embedding_forward(np.array([[0, bad]]), np.ones((5, 2)))
