"""The cells of recurrent networks: at every position a cell computes the next state.

`layers/recurrent.py` applies a cell's `input` map to all positions in one product. Inside the loop over time only the
product of the state with `recurrent` is left; the gradient of `recurrent` is again one product over all positions.
"""

from ..ops import Array, Ops
from ..ops.initialize import xavier_uniform
from .linear import Linear
from .parameter import Layer, Parameter

State = tuple[Array, ...]
"""Arrays `(N, C)` that go from position to position. The first is the hidden state, which other layers see."""


class TanhCell(Layer):
    """`h_t = tanh(x_t W + b + h_{t−1} U)`.

    Source: Elman 1990; Sutskever, Vinyals, Le 2014, §2; both write σ instead of tanh.
    """

    num_states = 1

    def __init__(self, ops: Ops, width_in: int, width: int, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.input = Linear(ops, width_in, width, gain=gain)
        self.recurrent = Parameter((width, width), xavier_uniform(width, width, gain=gain))

    def forward(self, projected: Array, state: State) -> tuple[State, Array]:
        """projected `(N, C)`, the value of `x_t W + b`, and the state before → the state after."""
        (hidden,) = state
        carried, _ = self.ops.linear.forward(hidden, self.recurrent.value, None)
        hidden, cache = self.ops.tanh.forward(projected + carried)
        return (hidden,), cache

    def backward(self, dstate: State, cache: Array) -> tuple[Array, State]:
        """Return (dprojected, the gradient of the state before); that of `recurrent` is the caller's to add."""
        (dhidden,) = dstate
        dprojected = self.ops.tanh.backward(dhidden, cache)
        return dprojected, (dprojected @ self.recurrent.value.swapaxes(0, 1),)


class LSTMCell(Layer):
    """`c_t = f ⊗ c_{t−1} + i ⊗ g` and `h_t = o ⊗ tanh(c_t)`: a memory that is written, kept and read through gates.

    `i, f, o = σ(…)` and `g = tanh(…)` of `x_t W + b + h_{t−1} U`, whose columns stand in this order. Where f is 1, the
    memory's gradient goes back through time unchanged; in a tanh network it does not. f's bias starts at 1, so that
    much is kept at first.
    Source: Hochreiter & Schmidhuber 1997; f: Gers et al. 2000; its bias: Jozefowicz, Zaremba, Sutskever 2015.
    """

    num_states = 2

    def __init__(self, ops: Ops, width_in: int, width: int, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.width = width
        self.input = Linear(ops, width_in, *(width,) * 4, gain=gain, biases=(0.0, 1.0, 0.0, 0.0))
        self.recurrent = Parameter((width, 4 * width), xavier_uniform(width, *(width,) * 4, gain=gain))

    def forward(self, projected: Array, state: State) -> tuple[State, tuple]:
        """projected `(N, 4·C)`, the value of `x_t W + b`, and the state before, (h, c) → the state after."""
        hidden, memory = state
        width = self.width
        carried, _ = self.ops.linear.forward(hidden, self.recurrent.value, None)
        gates = projected + carried  # (N, 4·C)
        opened, opened_cache = self.ops.sigmoid.forward(gates[:, : 3 * width])
        candidate, candidate_cache = self.ops.tanh.forward(gates[:, 3 * width :])
        write, keep, read = opened[:, :width], opened[:, width : 2 * width], opened[:, 2 * width :]
        new_memory = keep * memory + write * candidate
        squashed, squashed_cache = self.ops.tanh.forward(new_memory)
        cache = (write, keep, read, candidate, memory, squashed, opened_cache, candidate_cache, squashed_cache)
        return (read * squashed, new_memory), cache

    def backward(self, dstate: State, cache: tuple) -> tuple[Array, State]:
        """Return (dprojected, the gradient of the state before); that of `recurrent` is the caller's to add."""
        write, keep, read, candidate, memory, squashed, opened_cache, candidate_cache, squashed_cache = cache
        dhidden, dmemory = dstate
        dread = dhidden * squashed  # hidden = read · squashed
        dmemory = dmemory + self.ops.tanh.backward(dhidden * read, squashed_cache)
        dkeep = dmemory * memory  # new_memory = keep · memory + write · candidate
        dwrite = dmemory * candidate
        dopened = self.ops.sigmoid.backward(self.ops.concatenate([dwrite, dkeep, dread]), opened_cache)  # (N, 3·C)
        dcandidate = self.ops.tanh.backward(dmemory * write, candidate_cache)
        dgates = self.ops.concatenate([dopened, dcandidate])  # (N, 4·C)
        return dgates, (dgates @ self.recurrent.value.swapaxes(0, 1), dmemory * keep)


CELLS = {"tanh": TanhCell, "lstm": LSTMCell}
"""The cells by their names in a configuration."""
