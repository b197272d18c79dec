"""Additive attention with its parameters: with it a recurrent decoder looks back at the source."""

from ..ops import Array, Ops
from ..ops.initialize import xavier_uniform
from .context import PLAIN, Context
from .linear import Linear
from .parameter import Layer, Parameter


class AdditiveAttention(Layer):
    """`context_i = Σ_j softmax_j(v · tanh(x_i W + b + memory_j U)) memory_j`.

    The keys are a linear map of the memory; the values are the memory itself.
    Source: Bahdanau, Cho, Bengio 2015, §3.1 and appendix A.1.2.
    """

    def __init__(self, ops: Ops, width: int, gain: float = 1.0) -> None:
        super().__init__(ops)
        self.query = Linear(ops, width, width, gain=gain)
        self.key = Parameter((width, width), xavier_uniform(width, width, gain=gain))
        self.score = Parameter((width,), xavier_uniform(width, 1, gain=gain))

    def forward(self, x: Array, memory: Array | None, context: Context = PLAIN) -> tuple[Array, tuple]:
        """x `(B, Tq, C)`, memory `(B, Tk, C)` → `(B, Tq, C)`; the mask is `context.memory_mask`.

        With a cache the rows of x are beams, `(B·K, Tq, C)`, and all beams of a sentence are queries of one attention.
        Its keys and values are in the cache from the first position on; after it `memory` may be `None`.
        """
        kept, key_cache = None if context.cache is None else context.cache.shared.get(self.name), None
        if kept is None:
            key, key_cache = self.ops.linear.forward(memory, self.key.value, None)  # (B, Tk, C)
            kept = key, memory
            if context.cache is not None:
                context.cache.shared[self.name] = kept
        key, value = kept
        beams = x.reshape(len(key), context.num_beams * x.shape[1], x.shape[2])
        query, query_cache = self.query.forward(beams)  # (B, K·Tq, C)
        mixed, attention_cache = self.ops.additive_attention.forward(
            query, key, value, self.score.value, key_mask=context.memory_mask
        )
        return mixed.reshape(x.shape), (key_cache, query_cache, attention_cache)

    def backward(self, dout: Array, cache: tuple) -> tuple[Array, Array]:
        """Return (dx `(B, Tq, C)`, dmemory `(B, Tk, C)`); add into the parameters' gradients."""
        key_cache, query_cache, attention_cache = cache
        dquery, dkey, dvalue, dscore = self.ops.additive_attention.backward(dout, attention_cache)
        self.score.add_grad(dscore)
        dx = self.query.backward(dquery, query_cache)
        dmemory, dweight, _ = self.ops.linear.backward(dkey, key_cache)
        self.key.add_grad(dweight)
        return dx, dmemory + dvalue  # the memory gave both the keys and the values
