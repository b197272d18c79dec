"""Cells, one recurrent layer over time, and a stack of them."""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from support import torch_baselines
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.gradcheck import error
from minitransformer.layers import Cache, Context, DropoutStream, Recurrent, RecurrentStack
from minitransformer.ops import numpy_ops

B, T, C_IN, C = 3, 4, 2, 3
STREAM = DropoutStream(seed=5, step=2, sentence=3)
MASK = np.array([[True] * 4, [True, True, False, False], [False] * 4])
STATES = {"tanh": 1, "lstm": 2}
every_cell = pytest.mark.parametrize("cell", STATES)
every_mask = pytest.mark.parametrize("mask", [None, MASK], ids=["full", "padded"])


def joined(out: Any, final: Iterable[Any]) -> Any:
    """The output and the final states as one array, over time: `(B, T + states, C)`."""
    parts = [out, *(state[:, None] for state in final)]
    return torch.cat(parts, dim=1) if isinstance(out, torch.Tensor) else np.concatenate(parts, axis=1)


def split(dout: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    return dout[:, :T], [dout[:, t] for t in range(T, dout.shape[1])]


@every_cell
@every_mask
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_recurrent(proof: Proof, cell, mask, rate):
    rng = np.random.default_rng(0)
    layer = Recurrent(numpy_ops, cell, C_IN, C, dropout=rate)

    def call(layer, x, *state):
        (out, final), cache = layer.forward(x, state, Context(mask, dropout=STREAM))
        return joined(out, final), cache

    def back(layer, dout, cache):
        dout, dfinal = split(dout)
        dx, dstate = layer.backward(dout, tuple(dfinal), cache)
        return dx, *dstate

    def oracle(w, x, *state):
        return joined(*torch_of_one(w, x, state))

    def torch_of_one(w, x, state):
        nested = {f"layers.0.{name}": weight for name, weight in w.items()}
        out, finals = torch_baselines.recurrent_stack(nested, x, [layer], cell, [state], mask, STREAM)
        return out, finals[0]

    prove_layer(
        f"Recurrent, {cell}",
        lambda: Recurrent(numpy_ops, cell, C_IN, C, dropout=rate),
        {"x": normal(rng, B, T, C_IN)} | {f"state {i}": normal(rng, B, C) for i in range(STATES[cell])},
        oracle,
        proof,
        call=call,
        back=back,
    )


@every_cell
@every_mask
def test_a_stack(proof: Proof, cell, mask):
    def make() -> RecurrentStack:
        stack = RecurrentStack(numpy_ops, cell, C, 2, dropout=0.4)
        stack.name_layers()
        return stack

    def call(layer, x):
        (out, finals), cache = layer.forward(x, None, Context(mask, dropout=STREAM))
        return joined(out, itertools.chain(*finals)), cache

    def back(layer, dout, cache):
        dout, dfinals = split(dout)
        count = STATES[cell]
        return layer.backward(dout, [tuple(dfinals[:count]), tuple(dfinals[count:])], cache)[0]

    def oracle(w, x):
        out, finals = torch_baselines.recurrent_stack(w, x, make().layers, cell, None, mask, STREAM)
        return joined(out, itertools.chain(*finals))

    x = normal(np.random.default_rng(1), B, T, C)
    prove_layer(f"RecurrentStack, {cell}", make, {"x": x}, oracle, proof, call=call, back=back)


@every_cell
def test_a_stack_equals_torch_s_own_module(cell):
    """`torch.nn.RNN` and `torch.nn.LSTM` of two layers, their parameters' gradients among what is compared."""
    stack = RecurrentStack(numpy_ops, cell, C, 2)
    parameters = placed(stack)
    module = {"tanh": torch.nn.RNN, "lstm": torch.nn.LSTM}[cell](C, C, 2, batch_first=True, dtype=torch.float64)
    ours = {name: torch.tensor(value) for name, value in parameters.state_dict().items()}
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")

    def as_torch(arrays: dict) -> dict:
        return {
            f"{kind}_l{index}": weight
            for index in range(2)
            for kind, weight in zip(
                kinds,
                torch_baselines.torch_weights(torch_baselines.inside(arrays, f"layers.{index}"), cell),
                strict=True,
            )
        }

    module.load_state_dict(as_torch(ours))
    x = np.random.default_rng(1).standard_normal((B, T, C))
    (out, finals), cache = stack.forward(x)
    tensor = torch.tensor(x, requires_grad=True)
    expected, states = module(tensor)
    assert error(out, expected.detach()) <= 1e-12
    for index, state in enumerate(states if cell == "lstm" else [states]):
        assert error(np.stack([final[index] for final in finals]), state.detach()) <= 1e-12

    dout = np.random.default_rng(2).standard_normal(out.shape)
    dx, _ = stack.backward(dout, None, cache)
    expected.backward(torch.tensor(dout))
    assert tensor.grad is not None
    assert error(dx, tensor.grad) <= 1e-9
    gradients = as_torch({name: torch.tensor(p.grad) for name, p in parameters.named.items()})
    for name, parameter in module.named_parameters():
        if not name.startswith("bias_hh"):
            assert parameter.grad is not None
            assert error(gradients[name], parameter.grad) <= 1e-9, name


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
