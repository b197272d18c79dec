"""The keys that a query attends to, in dot-product and additive attention; windows in blocks; dropout on weights."""

import math
import tracemalloc
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles
from support.kernels.tables import TOLERANCES, every_table, table
from support.patterns import PATTERNS
from support.prove import Proof, normal, prove, prove_float32_accuracy, read_only, seeds

from kernels.eager import sparse_attention as eager_sparse_attention
from minitransformer.gradcheck import error
from minitransformer.ops import (
    Dropout,
    Pattern,
    additive_attention_backward,
    additive_attention_forward,
    attention,
    attention_backward,
    attention_forward,
    attention_mask,
    attention_weights,
    numpy_ops,
    pattern,
)


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


def in_pieces(cache: tuple) -> bool:
    """Return True if a forward was computed in pieces: its cache then holds a list of them."""
    return any(isinstance(part, list) for part in cache)


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=10)
@given(
    block=st.integers(1, 3),
    tq=st.integers(1, 9),
    tk=st.integers(1, 9),
    kv_heads=st.integers(1, 2),
    bias=st.sampled_from([None, (2, 2, -2, -1), (2, 1, -1), (-2, 1), (1,)]),
    padding=st.sampled_from([None, 0.3]),
    softcap=st.sampled_from([None, 1.5]),
    rate=st.sampled_from([None, 0.4]),
    seed=seeds,
)
def test_a_pattern_in_pieces(proof: Proof, name, block, tq, tk, kv_heads, bias, padding, softcap, rate, seed):
    """A long sequence is attended to piece by piece; here blocks are small, so that short ones are long."""
    rng = np.random.default_rng(seed)
    key_mask = None if padding is None else read_only(rng.random((2, tk)) >= padding)
    dropout = None if rate is None else Dropout(rate, seed, sentence=3, position=2)
    whole = replace(PATTERNS[name], key_mask=key_mask)
    options = {"pattern": whole, "scale": 0.3, "softcap": softcap, "dropout": dropout}
    arrays = qkv(rng, 2, 2, tq=tq, tk=tk)
    arrays |= {kind: arrays[kind][:, :kv_heads] for kind in ("key", "value")}
    if bias is not None:
        arrays["bias"] = normal(rng, *({-2: tq, -1: tk}.get(size, size) for size in bias))
    forward, oracle = partial(attention_forward, **options), partial(oracles.attention, **options)
    with patch.object(pattern, "SMALLEST_BLOCK", block):
        left, right = whole.reach if whole.window is not None else (0, 0)
        widest = max(block, whole.block or 0, left, 0 if whole.causal else right)
        assert in_pieces(forward(*arrays.values())[1]) == (tk > 2 * widest)
        prove(f"attention in pieces, {name}", forward, attention_backward, oracle, arrays, proof, samples=6)


LONG = 1024
COSTS = {
    "window": (Pattern(window=8), 3 * pattern.SMALLEST_BLOCK),
    "causal window": (Pattern(window=(8, None), causal=True), 2 * pattern.SMALLEST_BLOCK),
    "blocks": (Pattern(block=32, summary=2), 2 * pattern.SMALLEST_BLOCK + LONG // 32 * 2),
    "strided": (Pattern(window=32, stride=32), 3 * pattern.SMALLEST_BLOCK + LONG // 32),
    "global tokens": (Pattern(window=8, global_tokens=(0, 1, 500)), 3 * pattern.SMALLEST_BLOCK + 2 * 3),
}
"""A pattern, and how many keys a query meets at most, on average."""


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("dropout", [None, Dropout(0.1, key=3)], ids=["", "dropout"])
def test_a_sparse_pattern_costs_what_it_keeps(name, dropout):
    """The pairs that are computed, and the memory of forward and backward, grow as Tq, not as Tq · Tk."""
    whole, keys = COSTS[name]
    pairs = sum(mask.shape[-2] * mask.shape[-1] for _, _, mask in whole.pieces(LONG, LONG) or [])
    assert 0 < pairs <= keys * LONG
    arrays = qkv(np.random.default_rng(0), 1, 1, tq=LONG, tk=LONG)
    tracemalloc.start()
    try:
        out, cache = attention_forward(*arrays.values(), pattern=whole, dropout=dropout)
        attention_backward(out, cache)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # In float64 the weights and, with dropout, what is left of them; and numbers of the largest piece.
    assert peak < (2 if dropout is None else 4) * 8 * keys * LONG
    with patch.object(Pattern, "pieces", lambda *_: None):
        masked, masked_cache = attention_forward(*arrays.values(), pattern=whole, dropout=dropout)
    assert error(out, masked) <= 1e-12
    both = (attention_backward(out, each) for each in (cache, masked_cache))
    for gradient, wanted in zip(*both, strict=True):
        assert error(gradient, wanted) <= 1e-12


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize(("backend", "module"), [("numpy", attention), ("torch", eager_sparse_attention)])
def test_no_score_is_computed_that_no_piece_holds(name, backend, module):
    """Counted where they are computed, forward and backward; twice the length has twice as many."""
    ops, counts = table(backend), []
    scores_forward, scores_backward = module.scores_forward, module.scores_backward
    for time in (LONG, 2 * LONG):
        computed, gradients = [], []

        def forward(*given, computed=computed):
            computed.append(scores_forward(*given))
            return computed[-1]

        def backward(dscores, *given, gradients=gradients):
            gradients.append(dscores)
            return scores_backward(dscores, *given)

        with (
            patch.object(module, "scores_forward", forward),
            patch.object(module, "scores_backward", backward),
        ):
            arrays = qkv(np.random.default_rng(0), 1, 1, tq=time, tk=time).values()
            tensors = (ops.asarray(array, "float32") for array in arrays)
            ops.attention.backward(*ops.attention.forward(*tensors, pattern=COSTS[name][0]))
        held = sum(mask.shape[-2] * mask.shape[-1] for _, _, mask in COSTS[name][0].pieces(time, time) or [])
        for found in ([scores for scores, _ in computed], gradients):
            assert sum(math.prod(scores.shape) for scores in found) == held
        counts.append(held)
    if name not in ("blocks", "strided"):  # where every query meets a part of all keys
        assert counts[1] <= 2.1 * counts[0]


@pytest.mark.parametrize("name", ["attention", *PATTERNS])
def test_grouped_heads_copy_no_keys_and_values(name):
    """Eight heads that share one head of keys cost less than eight heads of keys take."""
    rng, T, D = np.random.default_rng(0), 512, 64
    query, key, value = rng.standard_normal((1, 8, 8, D)), *rng.standard_normal((2, 1, 1, T, D))
    tracemalloc.start()
    try:
        attention_forward(query, key, value, pattern=PATTERNS.get(name))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.75 * 8 * key.nbytes
    one = attention_forward(query, key.repeat(8, axis=1), value.repeat(8, axis=1), pattern=PATTERNS.get(name))[0]
    assert error(attention_forward(query, key, value, pattern=PATTERNS.get(name))[0], one) <= 1e-12


@pytest.mark.parametrize(("heads", "kv_heads", "tq"), [(8, 2, 1), (4, 1, 4), (3, 3, 5), (16, 1, 2)])
def test_few_queries_of_many_keys(heads, kv_heads, tq):
    """With 256 keys the keys come first in the product, for up to 16 queries of a key head: as for one query alone."""
    rng, B, tk = np.random.default_rng(0), 2, 256
    query, key, value = normal(rng, B, heads, tq, 6), *normal(rng, 2, B, kv_heads, tk, 6)
    bias, key_mask, dout = normal(rng, heads, tq, tk), rng.random((B, tk)) < 0.8, normal(rng, B, heads, tq, 6)
    out, cache = attention_forward(query, key, value, bias, key_mask=key_mask)
    dquery = attention_backward(dout, cache)[0]
    for h, i in np.ndindex(heads, tq):
        one, shared = np.s_[:, h : h + 1, i : i + 1], np.s_[:, h * kv_heads // heads, None]
        alone, kept = attention_forward(query[one], key[shared], value[shared], bias[one[1:]], key_mask=key_mask)
        assert error(out[one], alone) <= 1e-14
        assert error(dquery[one], attention_backward(dout[one], kept)[0]) <= 1e-13


# --- Who attends to whom --------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 1, 2, 9, (2, 0), (0, 1), (None, 1), (1, None)])
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


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(("tq", "tk"), [(5, 5), (2, 7), (8, 6)])
def test_a_pattern_is_its_mask(name, tq, tk):
    whole, key_mask = PATTERNS[name], np.random.default_rng(0).random((2, tk)) < 0.7
    allowed = oracles.may_attend(tq, tk, key_mask=key_mask, pattern=whole)
    np.testing.assert_array_equal(attention_mask(tq, tk, False, key_mask, None, pattern=whole), allowed)
    query, key, _ = qkv(np.random.default_rng(0), 2, 1, tq=tq, tk=tk).values()
    weights = attention_weights(query, key, key_mask=key_mask, pattern=whole)
    np.testing.assert_array_equal(weights > 0, allowed)


def test_keywords_are_shorthand_for_a_pattern():
    arrays, key_mask = (
        qkv(np.random.default_rng(0), 2, 1, tq=4, tk=5),
        np.array([[True] * 5, [False, True] * 2 + [True]]),
    )
    whole = Pattern(causal=True, window=(1, 0), key_mask=key_mask)
    out, _ = attention_forward(*arrays.values(), pattern=whole)
    for options in (
        {"causal": True, "window": (1, 0), "key_mask": key_mask},
        {"causal": True, "key_mask": key_mask, "pattern": Pattern(window=(1, 0))},
        {"window": (1, 0), "pattern": Pattern(causal=True, key_mask=key_mask)},
    ):
        np.testing.assert_array_equal(attention_forward(*arrays.values(), **options)[0], out)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"causal": 1}, "causal must be True or False, got int"),
        ({"window": -1}, "window is -1"),
        ({"window": (1,)}, "window has 1 numbers"),
        ({"block": 0}, "block is 0, expected an integer of 1 or more"),
        ({"stride": 0.5}, "stride must be an integer, got float"),
        ({"summary": 1}, "summary is 1, expected at most block, which is None"),
        ({"block": 2, "summary": 3}, "summary is 3, expected at most block, which is 2"),
        ({"global_tokens": 3}, "global_tokens must be a tuple of positions, got int"),
        ({"global_tokens": (-1,)}, "global_tokens is -1"),
        ({"key_mask": np.ones((1, 2))}, "key_mask must be a boolean array, got float64"),
        ({"key_mask": np.ones(2, bool)}, r"key_mask has shape \(2,\), expected 2 axes \(B, Tk\)"),
        ({"key_mask": [[True]]}, "key_mask must be a boolean array, got list"),
    ],
)
def test_what_is_no_pattern_is_refused(fields, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Pattern(**fields)


def test_a_pattern_takes_narrow_integers():
    one: Any = np.int8(1)
    hundred: Any = np.uint8(100)
    narrow = Pattern(window=one, block=hundred, stride=hundred, global_tokens=(one,))
    assert narrow == Pattern(window=1, block=100, stride=100, global_tokens=(1,))
    allowed = oracles.may_attend(260, 260, pattern=narrow)
    np.testing.assert_array_equal(attention_mask(260, 260, False, None, None, pattern=narrow), allowed[0, 0])


@either_op
def test_nothing_to_attend_to_gives_zeros_and_no_gradient(op):
    pair, arrays = getattr(numpy_ops, op), either(op, np.random.default_rng(0))
    out, cache = pair.forward(*arrays.values(), key_mask=np.array([[False] * 4, [True] * 4]))
    np.testing.assert_array_equal(out[0], 0)
    for gradient in pair.backward(np.ones_like(out), cache)[:3]:
        np.testing.assert_array_equal(gradient[0], 0)
        assert gradient[1].any()


@pytest.mark.parametrize("name", PATTERNS)
def test_nothing_to_attend_to_in_a_pattern(name):
    """A sentence of padding alone: zeros, and no gradient to anything, the bias included."""
    rng, mask = np.random.default_rng(0), np.array([[False] * 9, [True] * 9])
    arrays = qkv(rng, 2, 2, tq=9, tk=9) | {"bias": normal(rng, 2, 1, 9, 9)}
    with patch.object(pattern, "SMALLEST_BLOCK", 1):
        out, cache = attention_forward(*arrays.values(), pattern=PATTERNS[name], key_mask=mask)
        np.testing.assert_array_equal(out[0], 0)
        for gradient in attention_backward(np.ones_like(out), cache):
            np.testing.assert_array_equal(gradient[0], 0)
            assert np.isfinite(gradient).all()


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


def test_options_may_be_numbers_of_numpy():
    """A number of NumPy's that meets a float32 array in an operation makes it float64."""
    query = np.ones((1, 1, 3, 2), np.float32)
    options: dict[str, Any] = {"scale": np.float64(0.5), "softcap": np.float64(3.0)}
    out, cache = numpy_ops.attention.forward(query, query, query, **options)
    assert out.dtype == np.float32
    assert {each.dtype for each in numpy_ops.attention.backward(out, cache)} == {np.dtype(np.float32)}


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


# --- Linear attention -----------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    chunk=st.integers(1, 4),
    time=st.integers(1, 9),
    heads=st.sampled_from([(1, 1), (2, 1), (4, 2)]),
    padding=st.sampled_from([None, 0.3]),
    seed=seeds,
)
def test_linear_attention_in_chunks(proof: Proof, chunk, time, heads, padding, seed):
    """A long sequence passes its state from chunk to chunk; here chunks are small, so that short ones are long."""
    rng, (num_heads, kv_heads) = np.random.default_rng(seed), heads
    arrays = {"query": normal(rng, 2, num_heads, time, 3)}
    arrays |= {name: normal(rng, 2, kv_heads, time, width) for name, width in (("key", 3), ("value", 2))}
    for name in ("query", "key"):  # the feature map bends at 0
        arrays[name] = np.asarray(arrays[name] + 0.01 * np.sign(arrays[name]))
    key_mask = None if padding is None else read_only(rng.random((2, time)) >= padding)
    options = {"causal": True, "key_mask": key_mask}
    pair = numpy_ops.linear_attention
    with patch("minitransformer.ops.linear_attention.CHUNK", chunk):
        forward, oracle = partial(pair.forward, **options), partial(oracles.linear_attention, **options)
        prove("linear_attention in chunks", forward, pair.backward, oracle, arrays, proof, samples=6)


@every_table
@pytest.mark.parametrize("padding", [None, 0.4])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("parts", [[1] * 9, [4, 0, 1, 4], [70, 1, 2]], ids=str)
def test_linear_attention_is_a_recurrence(backend, dtype, parts, kv_heads, padding):
    """Some positions after the others, with the sums over those before: what all give at once, and the same sums."""
    ops, rng, time = table(backend, dtype), np.random.default_rng(0), sum(parts)
    arrays = [normal(rng, 2, heads, time, width) for heads, width in ((4, 3), (kv_heads, 3), (kv_heads, 2))]
    real = None if padding is None else rng.random((2, time)) >= padding
    whole, _ = numpy_ops.linear_attention.forward(*arrays, causal=True, key_mask=real)
    sums, outs, start = (), [], 0
    for count in parts:
        here = slice(start, start + count)
        mask = None if real is None else ops.asarray(real[:, here])
        given = (ops.asarray(array[:, :, here], dtype) for array in arrays)
        out, sums = ops.linear_attention_step(*given, *sums, key_mask=mask)
        outs.append(ops.to_numpy(out))
        start += count
    assert error(np.concatenate(outs, axis=2), whole) <= TOLERANCES[dtype]
    features = np.where(arrays[1] > 0, arrays[1] + 1, np.exp(arrays[1])) * (
        1 if real is None else real[:, None, :, None]
    )
    for found, expected in zip(sums, (features.swapaxes(2, 3) @ arrays[2], features.sum(axis=2)), strict=True):
        assert error(ops.to_numpy(found), expected) <= TOLERANCES[dtype]


@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_holds_no_weights_and_no_state_of_every_position(causal):
    """Its memory is a few times that of its input: far from (T, T) and from (T, D, Dv)."""
    T, D = 2048, 32
    arrays = qkv(np.random.default_rng(0), 1, 1, tq=T, tk=T, d=D, dv=D)
    tracemalloc.start()
    try:
        out, cache = numpy_ops.linear_attention.forward(*arrays.values(), causal=causal)
        numpy_ops.linear_attention.backward(out, cache)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * T * D * 8 < min(T * T, T * D * D) * 8
