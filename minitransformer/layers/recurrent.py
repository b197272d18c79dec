"""Recurrent networks: one position after the other, each from the state after the position before it."""

from collections.abc import Sequence

from ..ops import Array, Ops
from .cells import CELLS, State
from .context import PLAIN, Context
from .parameter import Layer


class Recurrent(Layer):
    """A recurrent layer: `h_t = cell(x_t, h_{t−1})` for every t; its output is `Dropout(h)`.

    Padding stands on the right and leaves the state unchanged, so that the final state is that of the last real token.
    Dropout is only on what goes to other layers, never on what goes to the next position.
    Source: Elman 1990; the dropout: Zaremba, Sutskever, Vinyals 2014, §3.2.
    """

    def __init__(
        self,
        ops: Ops,
        cell: str,
        width_in: int,
        width: int,
        *,
        dropout: float = 0.0,
        gain: float = 1.0,
    ) -> None:
        super().__init__(ops)
        self.width, self.rate = width, dropout
        self.cell = CELLS[cell](ops, width_in, width, gain)

    def forward(
        self, x: Array, state: State | None = None, context: Context = PLAIN
    ) -> tuple[tuple[Array, State], tuple]:
        """x `(B, T, C_in)` and the state before it (`None`: zeros) → (out `(B, T, C)`, the final state).

        `context.mask` `(B, T)` is false where x is padding. With a cache, the state before x is the one in the cache.
        """
        projected, input_cache = self.cell.input.forward(x)  # (B, T, G·C): the cell's G gates side by side
        batch, time, _ = projected.shape
        if context.cache is not None:
            state = context.cache.rows.get(self.name, state)
        current: State = self._zeros(batch, x.dtype) if state is None else state
        carried = None
        if context.mask is not None:
            real = self.ops.cast(context.mask, x.dtype)[..., None]  # (B, T, 1)
            carried = real, 1 - real
        hidden = self.ops.zeros((batch, time + 1, self.width), x.dtype)  # before each position, and after the last
        hidden[:, 0] = current[0]
        caches = []
        for t in range(time):
            after, cache = self.cell.forward(projected[:, t], current)
            if carried is not None:
                real, padding = carried[0][:, t], carried[1][:, t]
                after = tuple(real * new + padding * old for new, old in zip(after, current, strict=True))
            current = after
            hidden[:, t + 1] = current[0]
            caches.append(cache)
        if context.cache is not None:
            context.cache.rows[self.name] = current
        out, dropout_cache = self.ops.dropout.forward(hidden[:, 1:], context.dropout_at(self.site, self.rate))
        return (out, current), (input_cache, carried, hidden, caches, projected.shape, dropout_cache)

    def backward(self, dout: Array, dstate: State | None, cache: tuple) -> tuple[Array, State]:
        """dout `(B, T, C)` and dstate, that of the final state → (dx, the gradient of the state before x).

        It goes back through time. A state's gradient has two parts: from its output, and from the state after it.
        """
        input_cache, carried, hidden, caches, shape, dropout_cache = cache
        dhidden = self.ops.dropout.backward(dout, dropout_cache)
        dbefore: State = self._zeros(shape[0], hidden.dtype) if dstate is None else dstate
        dprojected = self.ops.zeros(shape, hidden.dtype)  # (B, T, G·C)
        for t in reversed(range(shape[1])):
            dafter = (dbefore[0] + dhidden[:, t], *dbefore[1:])  # hidden[:, t + 1] = current[0]
            if carried is None:
                dprojected[:, t], dbefore = self.cell.backward(dafter, caches[t])
            else:  # after = real · new + padding · old
                real, padding = carried[0][:, t], carried[1][:, t]
                dprojected[:, t], dold = self.cell.backward(tuple(real * d for d in dafter), caches[t])
                dbefore = tuple(old + padding * d for old, d in zip(dold, dafter, strict=True))
        before, dgates = hidden[:, :-1].reshape(-1, self.width), dprojected.reshape(-1, shape[2])  # (B·T, …)
        self.cell.recurrent.add_grad(before.swapaxes(0, 1) @ dgates)  # every position's part in one product
        return self.cell.input.backward(dprojected, input_cache), dbefore

    def _zeros(self, batch: int, dtype: object) -> State:
        return tuple(self.ops.zeros((batch, self.width), dtype) for _ in range(self.cell.num_states))


class RecurrentStack(Layer):
    """Recurrent layers, each reading the output of the one below. Source: Sutskever, Vinyals, Le 2014, §2."""

    def __init__(
        self,
        ops: Ops,
        cell: str,
        width: int,
        num_layers: int,
        *,
        dropout: float = 0.0,
        gain: float = 1.0,
    ) -> None:
        super().__init__(ops)
        self.layers = [Recurrent(ops, cell, width, width, dropout=dropout, gain=gain) for _ in range(num_layers)]

    def forward(
        self, x: Array, states: Sequence[State] | None = None, context: Context = PLAIN
    ) -> tuple[tuple[Array, list[State]], list[tuple]]:
        """x `(B, T, C)`, each layer's state before it (`None`: zeros) → (out `(B, T, C)`, each layer's final state)."""
        finals, caches = [], []
        for index, layer in enumerate(self.layers):
            (x, final), cache = layer.forward(x, None if states is None else states[index], context)
            finals.append(final)
            caches.append(cache)
        return (x, finals), caches

    def backward(self, dx: Array, dfinals: Sequence[State] | None, caches: list[tuple]) -> tuple[Array, list[State]]:
        """Return (dx, the gradient of each layer's state before the first position)."""
        dstates = []
        for index in reversed(range(len(self.layers))):
            dfinal = None if dfinals is None else dfinals[index]
            dx, dstate = self.layers[index].backward(dx, dfinal, caches[index])
            dstates.append(dstate)
        return dx, dstates[::-1]
