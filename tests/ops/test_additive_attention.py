"""Additive attention."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.prove import Proof, normal, prove, prove_float32_accuracy, read_only, seeds, sizes

from minitransformer.gradcheck import error
from minitransformer.ops import additive_attention_backward, additive_attention_forward

small = st.integers(1, 3)


def arrays_of(rng, batch=2, tq=3, tk=4, width=3, dv=2) -> dict[str, np.ndarray]:
    return {
        "query": normal(rng, batch, tq, width),
        "key": normal(rng, batch, tk, width),
        "value": normal(rng, batch, tk, dv),
        "score_weight": normal(rng, width),
    }


def prove_additive_attention(proof: Proof, arrays: dict[str, np.ndarray], **options) -> None:
    forward, oracle = partial(additive_attention_forward, **options), partial(oracles.additive_attention, **options)
    prove("additive_attention", forward, additive_attention_backward, oracle, arrays, proof)


@given(
    batch=small,
    tq=sizes,
    tk=sizes,
    width=small,
    dv=small,
    padding=st.sampled_from([None, 0.3, 0.6, 1.0]),
    seed=seeds,
)
def test_additive_attention(proof: Proof, batch, tq, tk, width, dv, padding, seed):
    rng = np.random.default_rng(seed)
    key_mask = None if padding is None else read_only(rng.random((batch, tk)) >= padding)
    prove_additive_attention(proof, arrays_of(rng, batch, tq, tk, width, dv), key_mask=key_mask)


@pytest.mark.parametrize("empty", ["batch", "tq", "tk"])
def test_empty_arrays(proof: Proof, empty):
    prove_additive_attention(proof, arrays_of(np.random.default_rng(0), **{empty: 0}))


def test_nothing_to_attend_to_gives_zeros_and_no_gradient():
    arrays = arrays_of(np.random.default_rng(0))
    key_mask = np.array([[False] * 4, [True] * 4])
    out, cache = additive_attention_forward(*arrays.values(), key_mask=key_mask)
    np.testing.assert_array_equal(out[0], 0)
    for gradient in additive_attention_backward(np.ones_like(out), cache)[:3]:
        np.testing.assert_array_equal(gradient[0], 0)
        assert gradient[1].any()


@pytest.mark.parametrize("large", [1e30, -1e30])
def test_padding_never_leaks(large):
    rng = np.random.default_rng(0)
    arrays, key_mask = arrays_of(rng), np.array([[True, True, True, False]] * 2)
    out, cache = additive_attention_forward(*arrays.values(), key_mask=key_mask)
    dout = normal(rng, *out.shape)
    for name in ("key", "value"):
        arrays[name] = arrays[name].copy()
        arrays[name][:, 3] = large
    out_of_large, cache_of_large = additive_attention_forward(*arrays.values(), key_mask=key_mask)
    np.testing.assert_array_equal(out_of_large, out)
    gradients, of_large = (additive_attention_backward(dout, c) for c in (cache, cache_of_large))
    for gradient, other in zip(gradients, of_large, strict=True):
        assert error(other, gradient) <= 1e-10
    np.testing.assert_array_equal(of_large[1][:, 3], 0)
    np.testing.assert_array_equal(of_large[2][:, 3], 0)


def test_queries_do_not_see_each_other():
    query, *others = arrays_of(np.random.default_rng(0)).values()
    whole, _ = additive_attention_forward(query, *others)
    for i in range(query.shape[1]):
        assert error(additive_attention_forward(query[:, i : i + 1], *others)[0], whole[:, i : i + 1]) <= 1e-12


def test_float32_accuracy():
    prove_float32_accuracy(
        lambda query, key, value: additive_attention_forward(query, key, value, np.ones(16, query.dtype)),
        lambda dout, cache: additive_attention_backward(dout, cache)[:3],
        lambda query, key, value: oracles.additive_attention(query, key, value, query.new_ones(16)),
        lambda rng: {name: a for name, a in arrays_of(rng, 4, 20, 20, 16, 16).items() if name != "score_weight"},
    )
