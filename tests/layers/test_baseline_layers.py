"""Recurrent and convolutional layers: padding, one position at a time, dropout, and nothing at all."""

import itertools

import numpy as np
import pytest
from support.prove_layer import placed

from minitransformer.gradcheck import error
from minitransformer.layers import (
    AttendingConvolution,
    Cache,
    Context,
    DropoutStream,
    GatedConvolution,
    Recurrent,
    RecurrentStack,
)
from minitransformer.ops import numpy_ops

B, T, C_IN, C = 3, 4, 2, 3
STREAM = DropoutStream(seed=5, step=2, sentence=3)
MASK = np.array([[True] * 4, [True, True, False, False], [False] * 4])
PADDED = np.array([[True, True, True, False], [False] * 4])
STATES = {"tanh": 1, "lstm": 2}
every_cell = pytest.mark.parametrize("cell", STATES)


@every_cell
def test_padding_carries_the_state_unchanged(cell):
    """To the last bit; and nothing that stands in padding is seen or gets a gradient."""
    layer = Recurrent(numpy_ops, cell, C_IN, C)
    placed(layer)
    rng = np.random.default_rng(0)
    x, state = rng.standard_normal((B, T, C_IN)), tuple(rng.standard_normal((B, C)) for _ in range(STATES[cell]))
    (out, final), cache = layer.forward(x, state, Context(MASK))
    np.testing.assert_array_equal(out[1, 2], out[1, 1])
    np.testing.assert_array_equal(out[1, 3], out[1, 1])
    for part, before in zip(final, state, strict=True):
        np.testing.assert_array_equal(part[2], before[2])
    dx, dstate = layer.backward(np.zeros_like(out), final, cache)
    np.testing.assert_array_equal(dx[~MASK], 0)
    for gradient, part in zip(dstate, final, strict=True):
        np.testing.assert_array_equal(gradient[2], part[2])
    other = np.where(MASK[..., None], x, 1e3)
    (of_other, final_of_other), _ = layer.forward(other, state, Context(MASK))
    np.testing.assert_array_equal(of_other, out)
    for part, of_other in zip(final, final_of_other, strict=True):
        np.testing.assert_array_equal(of_other, part)


@every_cell
def test_one_position_at_a_time_equals_all_at_once(cell):
    stack = RecurrentStack(numpy_ops, cell, C, 2)
    placed(stack)
    x = np.random.default_rng(0).standard_normal((B, T, C))
    (whole, finals), _ = stack.forward(x)
    cache = Cache(numpy_ops, batch=B, num_beams=1)
    for t in range(T):
        (out, _), _ = stack.forward(x[:, t : t + 1], None, Context(cache=cache))
        assert error(out[:, 0], whole[:, t]) <= 1e-12
    states = [cache.rows[layer.name] for layer in stack.layers]
    for state, final in zip(itertools.chain(*states), itertools.chain(*finals), strict=True):
        assert error(state, final) <= 1e-12


@every_cell
@pytest.mark.parametrize(("batch", "time"), [(0, 3), (2, 0)])
def test_empty_arrays(cell, batch, time):
    layer = Recurrent(numpy_ops, cell, C_IN, C)
    parameters = placed(layer)
    (out, final), cache = layer.forward(np.ones((batch, time, C_IN)), None, Context(np.ones((batch, time), bool)))
    dx, _ = layer.backward(np.ones((batch, time, C)), final, cache)
    assert (out.shape, dx.shape) == ((batch, time, C), (batch, time, C_IN))
    np.testing.assert_array_equal(parameters.grad, 0)


def test_much_is_kept_at_first():
    """The forget gate's bias starts at 1, every other at 0."""
    layer = Recurrent(numpy_ops, "lstm", C_IN, C)
    parameters = placed(layer)
    parameters.initialize(0)
    np.testing.assert_array_equal(layer.cell.input.bias.data, [0] * C + [1] * C + [0] * 2 * C)


def test_dropout_is_never_on_what_goes_to_the_next_position():
    layer = Recurrent(numpy_ops, "tanh", C_IN, C, dropout=0.5)
    placed(layer)
    x = np.random.default_rng(0).standard_normal((B, T, C_IN))
    (dropped, final), _ = layer.forward(x, None, Context(dropout=STREAM))
    (plain, plain_final), _ = layer.forward(x)
    np.testing.assert_array_equal(final[0], plain_final[0])
    kept = dropped != 0
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(dropped[kept], 2 * plain[kept])


# --- Convolutional ---------------------------------------------------------------------------------------------


def test_nothing_in_padding_is_seen():
    layer, x = GatedConvolution(numpy_ops, C, 3, causal=False), np.random.default_rng(0).standard_normal((2, 4, C))
    placed(layer)
    out, cache = layer.forward(x, Context(PADDED))
    np.testing.assert_array_equal(layer.forward(np.where(PADDED[..., None], x, 1e6), Context(PADDED))[0], out)
    np.testing.assert_array_equal(layer.backward(np.ones_like(out), cache)[~PADDED], 0)
    alone, _ = layer.forward(x[:1, :3])
    assert error(out[:1, :3], alone) <= 1e-12


@pytest.mark.parametrize("taps", [1, 2, 3, 5])
def test_a_decoder_layer_in_steps_of_one_position(taps):
    layer, rng = AttendingConvolution(numpy_ops, C, taps), np.random.default_rng(0)
    placed(layer)
    x, embedded = rng.standard_normal((2, 6, C)), rng.standard_normal((2, 6, C))
    keys, values = rng.standard_normal((2, 4, C)), rng.standard_normal((2, 4, C))
    whole, _ = layer.forward(x, embedded, Context(None, (keys, values), PADDED))
    cache = Cache(numpy_ops, batch=2, num_beams=1)
    cache.shared["memory"] = keys, values
    for t in range(6):
        now = slice(t, t + 1)
        out, _ = layer.forward(x[:, now], embedded[:, now], Context(memory_mask=PADDED, cache=cache))
        assert error(out, whole[:, now]) <= 1e-12
        assert [past.shape for past in cache.rows[layer.convolution.name]] == [(2, taps - 1, C)]
        cache.position += 1
