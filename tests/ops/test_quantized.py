"""Weights in eight and four bits: GGUF's to the last bit, wrong by half a step at most, and never whole in memory."""

import math
import tracemalloc
from dataclasses import replace
from functools import partial
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.prove import Proof, batches, normal, prove, seeds

from minitransformer.gradcheck import error
from minitransformer.ops import (
    Quantized,
    dequantize,
    quantize,
    quantized,
    quantized_linear_backward,
    quantized_linear_forward,
)
from minitransformer.textbook import family as textbook

GGUF = {"Q8_0": (8, True), "Q4_0": (4, True), "Q4_1": (4, False)}
"""A type of llama.cpp's files, and the bits and the symmetry that it is."""
KINDS = [*GGUF.values(), (8, False)]
every_kind = pytest.mark.parametrize(("bits", "symmetric"), KINDS)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers; each group of 8 has a size and, half of them, a middle of its own."""
    rng = np.random.default_rng(seed)
    groups = rng.standard_normal((shape[0] // 8, 8, shape[1]))
    sizes = 4.0 ** rng.integers(-3, 4, (len(groups), 1, shape[1]))
    middles = rng.integers(0, 2, sizes.shape) * rng.standard_normal(sizes.shape)
    return (sizes * (groups + middles)).reshape(shape)


# --- The bits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GGUF)
def test_bits_and_weights_are_those_of_the_package_gguf(kind: str):
    bits, symmetric = GGUF[kind]
    weight = weights(96, 700, seed=bits).astype(np.float32)
    weight[:32, 0], weight[32:64, 0], weight[64:, 0] = (
        0,
        0.3,
        np.linspace(-1, 1, 32),
    )  # all alike; as large as it is small
    blocks = gguf.quants.quantize(np.ascontiguousarray(weight.T), gguf.GGMLQuantizationType[kind])
    found = quantize(weight, bits, 32, symmetric)
    numbers = [found.scales, found.zeros, found.packed] if found.zeros is not None else [found.scales, found.packed]
    parts = [part.reshape(700, 3, -1).view(np.uint8) for part in numbers]
    np.testing.assert_array_equal(np.concatenate(parts, axis=2).reshape(700, -1), blocks)
    wanted = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind]).T
    assert dequantize(found).dtype == np.float32
    assert dequantize(found).tobytes() == wanted.tobytes()
    assert found.nbytes == blocks.nbytes


@every_kind
@pytest.mark.parametrize("group", [8, 16, 48])
def test_a_weight_is_wrong_by_at_most_half_a_step_and_what_float16_rounds(bits, symmetric, group):
    weight = weights(96, 50)
    found = quantize(weight, bits, group, symmetric)
    groups = weight.T.reshape(50, -1, group)
    if symmetric:
        steps, low = abs(groups).max(axis=-1, keepdims=True) / (127 if bits == 8 else 8), 0
    else:
        steps, low = np.ptp(groups, axis=-1, keepdims=True) / (2**bits - 1), groups.min(axis=-1, keepdims=True)
    rounded = 1.001 * 2.0**-11 * (abs(groups - low) + steps + abs(low))
    wrong = abs(dequantize(found).T.reshape(groups.shape) - groups)
    opposite = (bits == 4 and symmetric) & (abs(groups) > 7.5 * steps)  # 8 steps from 0, where the levels end at 7
    assert (wrong <= (0.5 + 0.5 * opposite) * steps + rounded).all()
    assert (wrong > 0.4 * steps).any()
    assert (found.bits, found.group, found.shape) == (bits, group, (96, 50))


def test_four_bits_have_a_minimum_unless_asked_and_eight_have_none():
    weight = weights(32, 3)
    assert quantize(weight).zeros is None
    assert quantize(weight).packed.dtype == np.int8
    assert quantize(weight, 4).zeros is not None
    assert quantize(weight, 4).nbytes == 3 * 20  # 5 bits for a weight, with d and m
    assert quantize(weight, 4, symmetric=True).nbytes == 3 * 18


@every_kind
def test_weights_that_are_levels_stay_as_they_are(bits, symmetric):
    """Also in bits that lie in memory in another order."""
    highest = 127 if (bits, symmetric) == (8, True) else 2**bits - 1
    q = np.random.default_rng(0).integers(-highest if bits == 8 and symmetric else 0, highest + 1, (32, 5))
    q[0], q[1] = highest, 0
    weight = np.asfortranarray(0.5 * (q - 8 if bits == 4 and symmetric else q) + (0 if symmetric else -3))
    np.testing.assert_array_equal(dequantize(quantize(weight, bits, 16, symmetric))[:16], weight[:16])


# --- The op ---------------------------------------------------------------------------------------------------


def oracle(x: torch.Tensor, bias: torch.Tensor | None, weight: np.ndarray) -> torch.Tensor:
    product = x @ torch.from_numpy(weight).to(x.dtype)
    return product if bias is None else product + bias


@pytest.mark.parametrize("at_once", [1, 50, 1 << 18])
@every_kind
@settings(max_examples=8)
@given(rows=batches, groups=st.integers(0, 2), width_out=st.integers(1, 5), has_bias=st.booleans(), seed=seeds)
def test_the_op_and_its_gradients(proof: Proof, at_once, bits, symmetric, rows, groups, width_out, has_bias, seed):
    """A column at a time, a few, and all of them."""
    rng = np.random.default_rng(seed)
    packed = quantize(normal(rng, 8 * groups, width_out), bits, 8, symmetric)
    arrays = {"x": normal(rng, *rows, 8 * groups), "bias": normal(rng, width_out) if has_bias else None}

    def forward(x: Any, bias: Any) -> Any:
        return quantized_linear_forward(x, packed, bias)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(quantized, "AT_ONCE", at_once)
        whole = partial(oracle, weight=dequantize(packed))
        prove("quantized_linear", forward, quantized_linear_backward, whole, arrays, proof)


@every_kind
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_fast_op_is_the_textbooks(bits, symmetric, dtype):
    rng, bound = np.random.default_rng(bits), 1e-12 if dtype == "float64" else 1e-5
    packed = quantize(rng.standard_normal((64, 9)), bits, symmetric=symmetric)
    x, bias, dy = (rng.standard_normal(shape).astype(dtype) for shape in ((2, 3, 64), 9, (2, 3, 9)))
    np.testing.assert_array_equal(textbook.dequantized(packed, "float32"), dequantize(packed))
    for b in (bias, None):
        y, cache = quantized_linear_forward(x, packed, b)
        expected, their_cache = textbook.quantized_linear_forward(x, packed, b)
        assert y.dtype == expected.dtype == dtype
        assert error(y, expected) <= bound
        gradients = quantized_linear_backward(dy, cache), textbook.quantized_linear_backward(dy, their_cache)
        for ours, theirs in zip(*gradients, strict=True):
            assert (ours is None) == (theirs is None)
            assert ours is None or theirs is None or error(ours, theirs) <= bound


@every_kind
def test_the_whole_matrix_is_never_in_memory(bits, symmetric):
    """32 MB in float32, of which forward and backward have less than a fourth at once."""
    shape, kind = (4096, 2048), np.int8 if bits == 8 and symmetric else np.uint8
    numbers = np.random.default_rng(0).integers(0, 127, (shape[1], shape[0] // 32, 4 * bits)).astype(kind)
    scales = np.ones(numbers.shape[:2], np.float16)
    packed = Quantized(numbers, scales, None if symmetric else scales, bits)
    assert packed.shape == shape
    _, cache = quantized_linear_forward(np.ones((1, shape[0]), np.float32), packed, None)
    for run in (
        lambda: quantized_linear_forward(np.ones((1, shape[0]), np.float32), packed, None),
        lambda: quantized_linear_backward(np.ones((1, shape[1]), np.float32), cache),
    ):
        tracemalloc.start()
        run()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 4 * math.prod(shape) / 4


# --- Refusals -------------------------------------------------------------------------------------------------

PACKED = quantize(np.ones((32, 5)))
X = np.ones((2, 32))
NOTHING: Any = None


@pytest.mark.parametrize(
    ("weight", "options", "says"),
    [
        ((33, 4), {}, r"weight has shape \(33, 4\), expected a multiple of group, 32, as C_in"),
        ((32,), {}, r"weight has shape \(32,\), expected 2 axes \(C_in, C_out\)"),
        ((32, 4), {"bits": 5}, "bits is 5, expected 4 or 8"),
        ((32, 4), {"group": 0}, "group is 0, expected an integer of 1 or more"),
        ((33, 4), {"bits": 4, "group": 3}, "group is 3, expected an even number: two weights of 4 bits share a byte"),
    ],
)
def test_a_weight_that_does_not_fit_is_refused(weight, options, says):
    with pytest.raises(ValueError, match=f"^{says}$"):
        quantize(np.ones(weight), **options)


@every_kind
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e8, -1e300])
def test_numbers_that_no_scale_reaches_are_refused(bits, symmetric, wrong):
    weight = np.zeros((32, 3))
    weight[3, 1] = wrong
    with pytest.raises(ValueError, match=r"^weight holds numbers up to \S+, expected finite ones with scales within"):
        quantize(weight, bits, symmetric=symmetric)
    with pytest.raises(ValueError, match="weight holds"):
        quantize(np.full((32, 3), wrong), bits, symmetric=symmetric)


@pytest.mark.parametrize(
    ("x", "weight", "bias", "kind", "says"),
    [
        (X, np.ones((32, 5)), None, TypeError, "weight must be a Quantized, which quantize makes, got ndarray"),
        (X, NOTHING, None, TypeError, "weight must be a Quantized, which quantize makes, got NoneType"),
        (X.tolist(), PACKED, None, TypeError, "x must be a NumPy array, got list"),
        (X.astype(int), PACKED, None, TypeError, "x must be float32 or float64, got int64"),
        (X[:, 1:], PACKED, None, ValueError, r"weight has shape \(32, 5\), expected \(31, C_out\) beside x \(2, 31\)"),
        (X, PACKED, np.ones(4), ValueError, r"bias has shape \(4,\), expected \(5,\) beside weight \(32, 5\)"),
        (X, PACKED, np.ones(5, "f"), TypeError, "x is float64 and bias is float32: types are never mixed"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(x, weight, bias, kind, says):
    with pytest.raises(kind, match=f"^{says}$"):
        quantized_linear_forward(x, weight, bias)


def test_what_is_not_the_forward_s_is_refused():
    _, cache = quantized_linear_forward(X, PACKED, None)
    with pytest.raises(ValueError, match=r"^dy has shape \(2, 4\), expected its output's \(2, 5\)$"):
        quantized_linear_backward(np.ones((2, 4)), cache)
    with pytest.raises(TypeError, match=r"^cache is not what quantized_linear_forward returned$"):
        quantized_linear_backward(np.ones((2, 5)), (X, X))
    with pytest.raises(TypeError, match=r"^quantized must be a Quantized, which quantize makes, got ndarray$"):
        dequantize(X)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"^weight's packed must be a NumPy array, got Tensor$"):
        quantized_linear_forward(X, replace(PACKED, packed=torch.ones(5, 1, 32, dtype=torch.int8)), None)


def test_a_packed_weight_is_not_written():
    assert isinstance(PACKED, Quantized)
    with pytest.raises(AttributeError):
        PACKED.bits = 4  # pyright: ignore[reportAttributeAccessIssue]
