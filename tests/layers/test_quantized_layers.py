"""Layers in few bits: what layers with the weights that these stand for compute, on every backend."""

from typing import Any

import numpy as np
import pytest

import kernels
from minitransformer.layers import (
    FlatParameters,
    Layer,
    Linear,
    OutputLayer,
    Parameter,
    QuantizedLinear,
    TokenEmbedding,
    quantized_layers,
)
from minitransformer.ops import numpy_ops
from minitransformer.ops.initialize import constant
from minitransformer.textbook import textbook_ops

C, V = 64, 7
TABLES = {"numpy": numpy_ops, "textbook": textbook_ops, "torch": kernels.torch_ops("cpu", "float64")}


class Toy(Layer):
    """One layer of each kind: tokens and the output layer share a table, and one map's C_in is no multiple of 32."""

    def __init__(self, ops: Any) -> None:
        super().__init__(ops)
        self.tokens = TokenEmbedding(ops, V, C)
        self.map = Linear(ops, C, 5, 3)
        self.narrow = Linear(ops, 8, 4, bias=False)
        self.output = OutputLayer(ops, self.tokens.table, Parameter((V,), constant(0.0)), softcap=3.0)


def pair(backend: str, bits: int) -> tuple[Toy, Toy, FlatParameters, FlatParameters]:
    """A toy in few bits, and one in float with the weights that these stand for; biases are drawn and trained."""
    ops, rng = TABLES[backend].unchecked(), np.random.default_rng(bits)
    few, plain = Toy(ops), Toy(ops)
    quantized_layers(few, bits, "float64")
    for _, parameter in few.named_parameters():
        parameter.trained = parameter.trained or len(parameter.shape) == 1
    ours, theirs = (FlatParameters(dict(each.named_parameters()), ops, "float64") for each in (few, plain))
    for name, parameter in theirs.named.items():
        drawn = rng.standard_normal(parameter.shape) / 8
        if name in ours.quantized:
            ours.set_quantized({name: ours.quantized[name].rounded(drawn)})
            drawn = ours.quantized[name].floats(ops)
        else:
            ours.named[name].data[...] = ops.asarray(drawn, "float64")
        parameter.data[...] = ops.asarray(drawn, "float64")
    return few, plain, ours, theirs


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("backend", TABLES)
def test_a_layer_is_that_with_the_weights_it_stands_for(backend: str, bits: int) -> None:
    few, plain, ours, theirs = pair(backend, bits)
    assert (type(few.map), type(few.narrow)) == (QuantizedLinear, Linear)
    assert ours.quantized["tokens.table"].value.bits == 8
    assert ours.quantized["map.weight"].value.bits == bits
    assert ours.count == theirs.count
    assert ours.nbytes < theirs.nbytes / 4
    rng, asarray = np.random.default_rng(0), TABLES[backend].asarray
    ids = asarray(rng.integers(V, size=(2, 3)))
    x, dy, dlogits = (asarray(rng.standard_normal((2, 3, n))) for n in (C, 8, V))
    close(few.tokens.forward(ids)[0], plain.tokens.forward(ids)[0])
    for ours_pair, theirs_pair, gradient in (
        ((few.map.forward, few.map.backward), (plain.map.forward, plain.map.backward), dy),
        ((few.output.logits, few.output.logits_backward), (plain.output.logits, plain.output.logits_backward), dlogits),
    ):
        (y, cache), (wanted, their_cache) = ours_pair[0](x), theirs_pair[0](x)
        close(y, wanted)
        close(ours_pair[1](gradient, cache), theirs_pair[1](gradient, their_cache))
    targets = asarray(rng.integers(V, size=(2, 3)))
    (loss, cache), (wanted, their_cache) = few.output.loss(x, targets), plain.output.loss(x, targets)
    close(loss, wanted)
    close(few.output.loss_backward(1.0, cache), plain.output.loss_backward(1.0, their_cache))
    close(few.output.loss(x, targets, with_grad=False)[0], loss)
    for name in ("map.bias", "output.bias"):
        assert np.any(np.asarray(ours.named[name].grad))
        close(ours.named[name].grad, theirs.named[name].grad)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_ids_outside_the_table_are_refused(backend: str) -> None:
    few, *_ = pair(backend, 8)
    for wrong in (-1, V):
        with pytest.raises(ValueError, match=f"ids holds {wrong}, expected ids from 0 to {V - 1}"):
            few.tokens.forward(TABLES[backend].asarray([[0, wrong]], "int64"))


def test_a_gradient_through_few_bits_is_a_slope() -> None:
    few, *_ = pair("numpy", 4)
    rng = np.random.default_rng(1)
    x, dy, step = rng.standard_normal((2, C)), rng.standard_normal((2, 8)), rng.standard_normal((2, C))
    _, cache = few.map.forward(x)
    slope = ((few.map.forward(x + 1e-3 * step)[0] - few.map.forward(x - 1e-3 * step)[0]) / 2e-3 * dy).sum()
    np.testing.assert_allclose((few.map.backward(dy, cache) * step).sum(), slope, rtol=1e-10)  # the map is affine
