"""Scaled dot-product attention."""

import sys
import tracemalloc
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.prove import Proof, evaluate, normal, prove, prove_float32_accuracy, read_only, seeds, sizes

from minitransformer.gradcheck import error
from minitransformer.ops import Dropout, attention_backward, attention_forward, attention_weights

small = st.integers(1, 3)
attention = sys.modules[attention_forward.__module__]


def qkv(rng: np.random.Generator, batch=1, heads=1, tq=2, tk=3, d=2, dv=2) -> dict[str, np.ndarray]:
    return {
        "query": normal(rng, batch, heads, tq, d),
        "key": normal(rng, batch, heads, tk, d),
        "value": normal(rng, batch, heads, tk, dv),
    }


def prove_attention(proof: Proof, component: str, arrays: dict[str, np.ndarray], **options) -> None:
    prove(
        component,
        partial(attention_forward, **options),
        attention_backward,
        partial(oracles.attention, **options),
        arrays,
        proof,
    )


@given(
    batch=small,
    heads=small,
    tq=sizes,
    tk=sizes,
    d=small,
    dv=small,
    causal=st.booleans(),
    window=st.sampled_from([None, 0, 1, 2]),
    scale=st.sampled_from([None, 0.7, 0.0]),
    padding=st.sampled_from([None, 0.3, 0.6, 1.0]),
    rate=st.sampled_from([None, 0.5]),
    seed=seeds,
)
def test_attention(proof: Proof, batch, heads, tq, tk, d, dv, causal, window, scale, padding, rate, seed):
    rng = np.random.default_rng(seed)
    prove_attention(
        proof,
        "attention",
        qkv(rng, batch, heads, tq, tk, d, dv),
        causal=causal,
        window=window,
        scale=scale,
        key_mask=None if padding is None else read_only(rng.random((batch, tk)) >= padding),
        dropout=None if rate is None else Dropout(rate, key=seed, sentence=2, position=1),
    )


@given(batch=st.integers(1, 2), tq=st.integers(1, 5), tk=st.integers(1, 5), seed=seeds)
def test_attention_causal(proof: Proof, batch, tq, tk, seed):
    prove_attention(proof, "attention, causal", qkv(np.random.default_rng(seed), batch, 2, tq, tk), causal=True)


@given(causal=st.booleans(), radius=st.integers(0, 3), tq=st.integers(1, 5), tk=st.integers(1, 5), seed=seeds)
def test_attention_window(proof: Proof, causal, radius, tq, tk, seed):
    arrays = qkv(np.random.default_rng(seed), 1, 2, tq, tk)
    prove_attention(proof, "attention, window", arrays, window=radius, causal=causal)


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
    with patch.object(attention, "SMALLEST_BLOCK", block):
        prove_attention(
            proof,
            "attention, window in blocks",
            qkv(rng, 2, 1, tq, tk),
            window=radius,
            causal=causal,
            key_mask=key_mask,
        )


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_costs_no_weights_outside_its_reach(causal):
    """What is kept for the backward grows as Tq, not as Tq · Tk."""
    arrays = qkv(np.random.default_rng(0), tq=2048, tk=2048)
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


@pytest.mark.parametrize("empty", ["batch", "tq", "tk"])
@pytest.mark.parametrize("options", [{}, {"causal": True, "window": 1}, {"dropout": Dropout(0.5, key=3)}], ids=str)
def test_empty_arrays(proof: Proof, empty, options):
    prove_attention(proof, "attention", qkv(np.random.default_rng(0), **{empty: 0}), **options)


# --- Who attends to whom --------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 1, 2, 9])
@pytest.mark.parametrize(("tq", "tk"), [(5, 5), (1, 4), (2, 6), (5, 3)])
def test_weights_are_zero_exactly_where_a_query_may_not_look(causal, window, tq, tk):
    rng = np.random.default_rng(0)
    key_mask = rng.random((3, tk)) < 0.8
    arrays = qkv(rng, 3, 2, tq, tk)
    weights = attention_weights(arrays["query"], arrays["key"], causal=causal, window=window, key_mask=key_mask)
    allowed = np.broadcast_to(oracles.may_attend(tq, tk, causal, window, key_mask), weights.shape)
    np.testing.assert_array_equal(weights > 0, allowed)
    np.testing.assert_allclose(weights.sum(-1), allowed.any(-1), atol=1e-12)


def test_weights_are_those_of_the_op():
    rng = np.random.default_rng(0)
    arrays = qkv(rng, 2, 2, 3, 4)
    options = {"causal": True, "scale": 0.3, "key_mask": np.array([[True] * 4, [True, True, False, False]])}
    weights = attention_weights(arrays["query"], arrays["key"], **options)
    assert error(weights @ arrays["value"], attention_forward(*arrays.values(), **options)[0]) <= 1e-12


def test_one_query_at_a_time_equals_all_at_once():
    """What a key/value cache does: query t meets the first t + 1 keys."""
    arrays = qkv(np.random.default_rng(0), 2, 2, 5, 5)
    whole, _ = attention_forward(*arrays.values(), causal=True)
    for t in range(5):
        query, (key, value) = arrays["query"][:, :, t : t + 1], (arrays[k][:, :, : t + 1] for k in ("key", "value"))
        assert error(attention_forward(query, key, value, causal=True)[0], whole[:, :, t : t + 1]) <= 1e-12


def test_nothing_to_attend_to_gives_zeros_and_no_gradient():
    arrays = qkv(np.random.default_rng(0), 2, 1, 3, 2)
    key_mask = np.array([[False, False], [True, True]])
    out, cache = attention_forward(*arrays.values(), key_mask=key_mask)
    np.testing.assert_array_equal(out[0], 0)
    for gradient in attention_backward(np.ones_like(out), cache):
        np.testing.assert_array_equal(gradient[0], 0)
        assert gradient[1].any()


@pytest.mark.parametrize("large", [1e30, -1e30])
def test_padding_never_leaks(large):
    """Whatever finite numbers stand in padded keys and values, nothing moves and nothing is sent to them."""
    rng = np.random.default_rng(0)
    arrays = qkv(rng, 1, 2, 3, 4)
    key_mask = np.array([[True, True, True, False]])
    out, cache = attention_forward(*arrays.values(), key_mask=key_mask)
    dout = normal(rng, *out.shape)
    for name in ("key", "value"):
        arrays[name] = arrays[name].copy()
        arrays[name][:, :, 3] = large
    out_of_large, cache_of_large = attention_forward(*arrays.values(), key_mask=key_mask)

    np.testing.assert_array_equal(out_of_large, out)
    gradients, gradients_of_large = attention_backward(dout, cache), attention_backward(dout, cache_of_large)
    for gradient, of_large in zip(gradients, gradients_of_large, strict=True):
        assert error(of_large, gradient) <= 1e-10
    np.testing.assert_array_equal(gradients_of_large[1][:, :, 3], 0)
    np.testing.assert_array_equal(gradients_of_large[2][:, :, 3], 0)


def test_future_never_leaks():
    arrays = qkv(np.random.default_rng(0), 1, 2, 5, 5)
    out, _ = attention_forward(*arrays.values(), causal=True)
    for name in ("key", "value"):
        arrays[name] = arrays[name].copy()
        arrays[name][:, :, 3:] += 1.0
    moved, _ = attention_forward(*arrays.values(), causal=True)
    np.testing.assert_array_equal(moved[:, :, :3], out[:, :, :3])
    assert (moved[:, :, 3:] != out[:, :, 3:]).all()


def test_large_scores_do_not_overflow():
    arrays = {name: 1e4 * array for name, array in qkv(np.random.default_rng(0), tq=4, tk=4).items()}
    out, cache = attention_forward(*arrays.values())
    assert np.isfinite(out).all()
    assert all(np.isfinite(gradient).all() for gradient in attention_backward(np.ones_like(out), cache))


# --- Dropout on the weights -----------------------------------------------------------------------------------


def test_dropout_does_not_depend_on_how_a_batch_is_split_or_padded():
    arrays = qkv(np.random.default_rng(0), 4, 2, 5, 6)
    key_mask = np.ones((4, 6), bool)
    key_mask[:, 4:] = False

    def attend(rows: slice, keys: int) -> np.ndarray:
        query, key, value = (array[rows] for array in arrays.values())
        dropout = Dropout(0.5, key=7, sentence=rows.start)
        mask = key_mask[rows, :keys]
        return attention_forward(query, key[:, :, :keys], value[:, :, :keys], key_mask=mask, dropout=dropout)[0]

    whole = attend(slice(0, 4), 6)
    assert error(np.concatenate([attend(slice(0, 1), 6), attend(slice(1, 4), 4)]), whole) <= 1e-12


# --- Types and bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"dropout": Dropout(0.1, key=3)}], ids=str)
def test_float32_accuracy(options):
    prove_float32_accuracy(
        partial(attention_forward, **options),
        attention_backward,
        partial(oracles.attention, **options),
        lambda rng: qkv(rng, 4, 4, 32, 32, 16, 16),
    )


def test_scale_defaults_to_one_over_root_d():
    arrays = qkv(np.random.default_rng(0), d=9)
    expected = evaluate(partial(oracles.attention, scale=1 / 3), *arrays.values())
    assert error(attention_forward(*arrays.values())[0], expected) <= 1e-12


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"key_mask": np.ones((2, 3), bool)}, ValueError, "key_mask"),
        ({"key_mask": np.ones((1, 3))}, TypeError, "key_mask"),
        ({"window": -1}, ValueError, "window"),
        ({"window": 1.5}, TypeError, "window"),
    ],
)
def test_wrong_options(options, kind, named):
    with pytest.raises(kind, match=named):
        attention_forward(*qkv(np.random.default_rng(0)).values(), **options)
