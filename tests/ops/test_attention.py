"""Who attends to whom, in dot-product and in additive attention; windows in blocks; dropout on the weights."""

import sys
import tracemalloc
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles
from support.prove import Proof, normal, prove, prove_float32_accuracy, read_only, seeds

from minitransformer.gradcheck import error
from minitransformer.ops import (
    additive_attention_backward,
    additive_attention_forward,
    attention_backward,
    attention_forward,
    attention_mask,
    attention_weights,
    numpy_ops,
)

attention = sys.modules[attention_forward.__module__]


def qkv(rng: np.random.Generator, *lead: int, tq=2, tk=3, d=2, dv=2) -> dict[str, np.ndarray]:
    """Queries, keys and values `(*lead, T, D)`: `lead` is batch and heads, or the batch alone."""
    shapes = {"query": (tq, d), "key": (tk, d), "value": (tk, dv)}
    return {name: normal(rng, *lead, *shape) for name, shape in shapes.items()}


def either(op: str, rng: np.random.Generator, batch=2, tq=3, tk=4) -> dict[str, np.ndarray]:
    """The arrays of either op."""
    if op == "attention":
        return qkv(rng, batch, 2, tq=tq, tk=tk)
    return qkv(rng, batch, tq=tq, tk=tk) | {"score_weight": normal(rng, 2)}


either_op = pytest.mark.parametrize("op", ["attention", "additive_attention"])


@settings(max_examples=40)
@given(
    block=st.integers(1, 3),
    causal=st.booleans(),
    radius=st.integers(0, 3),
    tq=st.integers(1, 9),
    tk=st.integers(1, 9),
    padding=st.sampled_from([None, 0.3]),
    seed=seeds,
)
def test_attention_window_in_blocks(proof: Proof, block, causal, radius, tq, tk, padding, seed):
    """A long sequence is attended to block by block; here blocks are small, so that short ones are long."""
    rng = np.random.default_rng(seed)
    key_mask = None if padding is None else read_only(rng.random((2, tk)) >= padding)
    options = {"window": radius, "causal": causal, "key_mask": key_mask, "scale": 0.3}
    forward, oracle = partial(attention_forward, **options), partial(oracles.attention, **options)
    with patch.object(attention, "SMALLEST_BLOCK", block):
        arrays = qkv(rng, 2, 1, tq=tq, tk=tk)
        prove("attention, window in blocks", forward, attention_backward, oracle, arrays, proof)


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_costs_no_weights_outside_its_reach(causal):
    """What is kept for the backward grows as Tq, not as Tq · Tk."""
    arrays = qkv(np.random.default_rng(0), 1, 1, tq=2048, tk=2048)
    tracemalloc.start()
    try:
        out, cache = attention_forward(*arrays.values(), window=8, causal=causal)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del cache
    assert peak < 0.25 * 2048 * 2048 * 8, kept
    masked = attention_weights(arrays["query"], arrays["key"], window=8, causal=causal) @ arrays["value"]
    assert error(out, masked) <= 1e-12


# --- Who attends to whom --------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 1, 2, 9])
@pytest.mark.parametrize(("tq", "tk"), [(5, 5), (1, 4), (2, 6), (5, 3)])
def test_weights_are_zero_exactly_where_a_query_may_not_look(causal, window, tq, tk):
    rng = np.random.default_rng(0)
    options = {"causal": causal, "window": window, "key_mask": rng.random((3, tk)) < 0.8, "scale": 0.3}
    query, key, value = qkv(rng, 3, 2, tq=tq, tk=tk).values()
    weights = attention_weights(query, key, **options)
    allowed = np.broadcast_to(oracles.may_attend(tq, tk, causal, window, options["key_mask"]), weights.shape)
    np.testing.assert_array_equal(weights > 0, allowed)
    np.testing.assert_allclose(weights.sum(-1), allowed.any(-1), atol=1e-12)
    assert error(weights @ value, attention_forward(query, key, value, **options)[0]) <= 1e-12
    mask = attention_mask(tq, tk, causal, None, window)
    assert (mask is None) == (not causal and window is None)
    if mask is not None:
        np.testing.assert_array_equal(mask, oracles.may_attend(tq, tk, causal, window)[0, 0])


@either_op
def test_nothing_to_attend_to_gives_zeros_and_no_gradient(op):
    pair, arrays = getattr(numpy_ops, op), either(op, np.random.default_rng(0))
    out, cache = pair.forward(*arrays.values(), key_mask=np.array([[False] * 4, [True] * 4]))
    np.testing.assert_array_equal(out[0], 0)
    for gradient in pair.backward(np.ones_like(out), cache)[:3]:
        np.testing.assert_array_equal(gradient[0], 0)
        assert gradient[1].any()


@either_op
@pytest.mark.parametrize("large", [1e30, -1e30])
def test_padding_never_leaks(op, large):
    """Whatever finite numbers stand in padded keys and values, nothing moves and nothing is sent to them."""
    rng, pair = np.random.default_rng(0), getattr(numpy_ops, op)
    arrays, key_mask = either(op, rng), np.array([[True, True, True, False]] * 2)
    out, cache = pair.forward(*arrays.values(), key_mask=key_mask)
    dout = normal(rng, *out.shape)
    for name in ("key", "value"):
        arrays[name] = arrays[name].copy()
        arrays[name][..., 3, :] = large
    out_of_large, cache_of_large = pair.forward(*arrays.values(), key_mask=key_mask)

    np.testing.assert_array_equal(out_of_large, out)
    gradients, gradients_of_large = pair.backward(dout, cache), pair.backward(dout, cache_of_large)
    for gradient, of_large in zip(gradients, gradients_of_large, strict=True):
        assert error(of_large, gradient) <= 1e-10
    for of_large in gradients_of_large[1:3]:
        np.testing.assert_array_equal(of_large[..., 3, :], 0)


def test_large_scores_do_not_overflow():
    arrays = {name: 1e4 * array for name, array in qkv(np.random.default_rng(0), 1, 1, tq=4, tk=4).items()}
    out, cache = attention_forward(*arrays.values())
    assert np.isfinite(out).all()
    assert all(np.isfinite(gradient).all() for gradient in attention_backward(np.ones_like(out), cache))


def test_additive_attention_over_many_keys_is_as_accurate_in_float32():
    prove_float32_accuracy(
        lambda query, key, value: additive_attention_forward(query, key, value, np.ones(16, query.dtype)),
        lambda dout, cache: additive_attention_backward(dout, cache)[:3],
        lambda query, key, value: oracles.additive_attention(query, key, value, query.new_ones(16)),
        lambda rng: qkv(rng, 4, tq=20, tk=20, d=16, dv=16),
    )
