"""Gated convolutions, and the attention between them."""

from typing import TypeVar

import numpy as np
import pytest
from support import torch_baselines
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.gradcheck import error
from minitransformer.layers import (
    AttendingConvolution,
    Cache,
    Context,
    DropoutStream,
    GatedConvolution,
    Layer,
    ResidualConvolution,
    StepAttention,
)
from minitransformer.ops import numpy_ops

C = 3
STREAM = DropoutStream(seed=5, step=2, sentence=3)
MASK = np.array([[True, True, True, False], [False] * 4])
LayerT = TypeVar("LayerT", bound=Layer)
every_mask = pytest.mark.parametrize("mask", [None, MASK], ids=["full", "padded"])
every_rate = pytest.mark.parametrize("rate", [0.0, 0.5])


@every_mask
@every_rate
@pytest.mark.parametrize(("taps", "causal"), [(1, True), (2, True), (3, True), (3, False), (5, False)])
def test_gated_convolution(proof: Proof, taps, causal, mask, rate):
    def make() -> GatedConvolution:
        return GatedConvolution(numpy_ops, C, taps, causal=causal, dropout=rate)

    prove_layer(
        "GatedConvolution",
        make,
        {"x": normal(np.random.default_rng(taps), 2, 4, C)},
        lambda w, x: torch_baselines.gated_convolution(w, x, make(), mask, STREAM),
        proof,
        call=lambda layer, x: layer.forward(x, Context(mask, dropout=STREAM)),
    )


def named(layer: LayerT) -> LayerT:
    layer.name_layers()
    return layer


@every_mask
@every_rate
def test_residual_convolution(proof: Proof, mask, rate):
    def make() -> ResidualConvolution:
        return named(ResidualConvolution(numpy_ops, C, 3, dropout=rate))

    prove_layer(
        "ResidualConvolution",
        make,
        {"x": normal(np.random.default_rng(0), 2, 4, C)},
        lambda w, x: torch_baselines.residual_convolution(w, x, make(), mask, STREAM),
        proof,
        call=lambda layer, x: layer.forward(x, Context(mask, dropout=STREAM)),
    )


def inputs_of_attention(first: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {first: (2, 3, C), "embedded": (2, 3, C), "keys": (2, 4, C), "values": (2, 4, C)}
    return {name: normal(rng, *shape) for name, shape in shapes.items()}


@every_mask
def test_step_attention(proof: Proof, mask):
    prove_layer(
        "StepAttention",
        lambda: StepAttention(numpy_ops, C),
        inputs_of_attention("hidden"),
        lambda w, *inputs: torch_baselines.step_attention(w, *inputs, key_mask=mask),
        proof,
        call=lambda layer, x, embedded, *memory: layer.forward(x, embedded, Context(None, memory, mask)),
    )


@every_mask
@every_rate
def test_attending_convolution(proof: Proof, mask, rate):
    def make() -> AttendingConvolution:
        return named(AttendingConvolution(numpy_ops, C, 3, dropout=rate))

    prove_layer(
        "AttendingConvolution",
        make,
        inputs_of_attention("x"),
        lambda w, *inputs: torch_baselines.attending_convolution(
            w, *inputs, layer=make(), key_mask=mask, stream=STREAM
        ),
        proof,
        call=lambda layer, x, embedded, *memory: layer.forward(x, embedded, Context(None, memory, mask, STREAM)),
    )


def test_nothing_in_padding_is_seen():
    layer, x = GatedConvolution(numpy_ops, C, 3, causal=False), np.random.default_rng(0).standard_normal((2, 4, C))
    placed(layer)
    out, cache = layer.forward(x, Context(MASK))
    np.testing.assert_array_equal(layer.forward(np.where(MASK[..., None], x, 1e6), Context(MASK))[0], out)
    np.testing.assert_array_equal(layer.backward(np.ones_like(out), cache)[~MASK], 0)
    alone, _ = layer.forward(x[:1, :3])
    assert error(out[:1, :3], alone) <= 1e-12


@pytest.mark.parametrize("taps", [1, 2, 3, 5])
def test_a_decoder_layer_in_steps_of_one_position(taps):
    layer, rng = AttendingConvolution(numpy_ops, C, taps), np.random.default_rng(0)
    placed(layer)
    x, embedded = rng.standard_normal((2, 6, C)), rng.standard_normal((2, 6, C))
    keys, values = rng.standard_normal((2, 4, C)), rng.standard_normal((2, 4, C))
    whole, _ = layer.forward(x, embedded, Context(None, (keys, values), MASK))
    cache = Cache(numpy_ops, batch=2, num_beams=1)
    cache.shared["memory"] = keys, values
    for t in range(6):
        now = slice(t, t + 1)
        out, _ = layer.forward(x[:, now], embedded[:, now], Context(memory_mask=MASK, cache=cache))
        assert error(out, whole[:, now]) <= 1e-12
        assert [past.shape for past in cache.rows[layer.convolution.name]] == [(2, taps - 1, C)]
        cache.position += 1
