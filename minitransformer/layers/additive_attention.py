"""Additive attention with its parameters: what a recurrent decoder looks back with."""

from ..ops import Array, Ops
from ..ops.initialize import xavier_uniform
from .linear import Linear
from .parameter import Layer, Parameter


class AdditiveAttention(Layer):
    """`context_i = Σ_j softmax_j(v · tanh(x_i W + b + memory_j U)) memory_j`: the keys are a map of the memory, the
    values the memory itself. Source: Bahdanau, Cho, Bengio 2015, §3.1 and appendix A.1.2.
    """

    def __init__(self, ops: Ops, width: int, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.query = Linear(ops, width, width, gain=gain)
        self.key = Parameter((width, width), xavier_uniform(width, width, gain=gain))
        self.score = Parameter((width,), xavier_uniform(width, 1, gain=gain))

    def forward(self, x: Array, memory: Array, key_mask: Array | None = None) -> tuple[Array, tuple]:
        """x `(B, Tq, C)`, memory `(B, Tk, C)`, key_mask `(B, Tk)` → context `(B, Tq, C)`."""
        key, key_cache = self.ops.linear.forward(memory, self.key.value, None)  # (B, Tk, C)
        query, query_cache = self.query.forward(x)  # (B, Tq, C)
        context, attention_cache = self.ops.additive_attention.forward(
            query, key, memory, self.score.value, key_mask=key_mask
        )
        return context, (key_cache, query_cache, attention_cache)

    def backward(self, dcontext: Array, cache: tuple) -> tuple[Array, Array]:
        """Returns (dx `(B, Tq, C)`, dmemory `(B, Tk, C)`); adds into the parameters' gradients."""
        key_cache, query_cache, attention_cache = cache
        dquery, dkey, dvalue, dscore = self.ops.additive_attention.backward(dcontext, attention_cache)
        self.score.grad += dscore
        dx = self.query.backward(dquery, query_cache)
        dmemory, _, _ = self.ops.linear.backward(dkey, key_cache, out=(self.key.grad, None))
        return dx, dmemory + dvalue  # the memory is keys and values at once

    def keys_and_values(self, memory: Array) -> tuple[Array, Array]:
        """The memory's keys and values, `(B, Tk, C)` each, the same at every step of a translation."""
        return self.ops.linear.forward(memory, self.key.value, None)[0], memory

    def step(self, x: Array, keys: Array, values: Array, key_mask: Array | None) -> Array:
        """One new position of each of K beams: x `(B, K, C)` → `(B, K, C)`. The beams are the queries of one call."""
        query, _ = self.query.forward(x)
        return self.ops.additive_attention.forward(query, keys, values, self.score.value, key_mask=key_mask)[0]
