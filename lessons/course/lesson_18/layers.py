"""The sub-layers of the capstone, forward and backward, around the parts that the learner wrote."""

import numpy as np

from ..lesson_00.solutions import linear_backward
from ..lesson_04.solutions import attention, masked_softmax
from ..lesson_05.solutions import merge_heads, split_heads
from ..lesson_07.solutions import dropout_forward, feed_forward_forward, layernorm_backward, layernorm_forward
from .solutions import multi_head_backward


class Layers:
    """Weights by name, their gradients, and what every layer does with them.

    A forward returns (out, cache); its backward takes (dout, cache), adds to `gradients`, and returns the gradient of
    the forward's input. In training `rate` is dropout's, and `rng` draws its numbers.
    """

    def __init__(self, weights, num_heads):
        self.weights, self.num_heads = weights, num_heads
        self.gradients = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.rate, self.rng = 0.0, np.random.default_rng(0)

    def linear(self, name, x):
        """x W + b, over the last axis."""
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"], (name, x)

    def linear_backward(self, dy, cache):
        name, x = cache
        rows, drows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        dx, dweight, dbias = linear_backward(drows, rows, self.weights[f"{name}.weight"])
        self.gradients[f"{name}.weight"] += dweight
        self.gradients[f"{name}.bias"] += dbias
        return dx.reshape(x.shape)

    def multi_head(self, query, key, value, mask):
        """Attention of all heads, (B, Tq, C); the cache is query, key and value split into heads, and the weights."""
        query, key, value = (split_heads(x, self.num_heads) for x in (query, key, value))  # (B, H, T, D)
        if mask.all():  # nothing is hidden: equation 1 as it stands
            mixed, weights = attention(query, key, value)
        else:
            weights = masked_softmax(query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5, mask)  # (B, H, Tq, Tk)
            mixed = weights @ value
        return merge_heads(mixed), (query, key, value, weights)

    def self_attention(self, name, x, mask):
        """Queries, keys and values are all made of x."""
        projected, projection = self.linear(f"{name}.query_key_value", x)
        query, key, value = np.split(projected, 3, axis=-1)
        mixed, heads = self.multi_head(query, key, value, mask)
        out, output = self.linear(f"{name}.output", mixed)
        return out, (projection, heads, output)

    def self_attention_backward(self, dout, cache):
        projection, heads, output = cache
        dmixed = self.linear_backward(dout, output)
        dprojected = np.concatenate(multi_head_backward(dmixed, heads), axis=-1)
        return self.linear_backward(dprojected, projection)

    def cross_attention(self, name, x, memory, mask):
        """Queries are made of x, keys and values of the memory. The backward returns dx and dmemory."""
        query, query_projection = self.linear(f"{name}.query", x)
        key_value, projection = self.linear(f"{name}.key_value", memory)
        key, value = np.split(key_value, 2, axis=-1)
        mixed, heads = self.multi_head(query, key, value, mask)
        out, output = self.linear(f"{name}.output", mixed)
        return out, (query_projection, projection, heads, output)

    def cross_attention_backward(self, dout, cache):
        query_projection, projection, heads, output = cache
        dquery, dkey, dvalue = multi_head_backward(self.linear_backward(dout, output), heads)
        dmemory = self.linear_backward(np.concatenate([dkey, dvalue], axis=-1), projection)
        return self.linear_backward(dquery, query_projection), dmemory

    def feed_forward(self, name, x):
        """Two linear maps with a rectifier between them, for every position alone."""
        names = [f"{name}.{each}" for each in ("expand.weight", "expand.bias", "contract.weight", "contract.bias")]
        y, cache = feed_forward_forward(x.reshape(-1, x.shape[-1]), *(self.weights[each] for each in names))
        return y.reshape(x.shape), (names, cache)

    def feed_forward_backward(self, dy, cache):
        names, (x, active, weight1, weight2) = cache
        dactive, dweight2, dbias2 = linear_backward(dy.reshape(-1, dy.shape[-1]), active, weight2)
        dx, dweight1, dbias1 = linear_backward(dactive * (active > 0), x, weight1)
        for each, gradient in zip(names, (dweight1, dbias1, dweight2, dbias2), strict=True):
            self.gradients[each] += gradient
        return dx.reshape(dy.shape)

    def dropout(self, x):
        """Without a rate it does nothing, and its cache is None."""
        if not self.rate:
            return x, None
        return dropout_forward(x, self.rate, self.rng.random(x.shape, dtype=np.float32))

    def dropout_backward(self, dout, kept):
        return dout if kept is None else dout * kept / (1 - self.rate)

    def norm(self, name, x):
        """LayerNorm, for every position alone."""
        rows = x.reshape(-1, x.shape[-1])
        y, cache = layernorm_forward(rows, self.weights[f"{name}.gamma"], self.weights[f"{name}.beta"])
        return y.reshape(x.shape), (name, cache)

    def norm_backward(self, dy, cache):
        name, norm_cache = cache
        dx, dgamma, dbeta = layernorm_backward(dy.reshape(-1, dy.shape[-1]), *norm_cache)
        self.gradients[f"{name}.gamma"] += dgamma
        self.gradients[f"{name}.beta"] += dbeta
        return dx.reshape(dy.shape)

    def add_norm_backward(self, dy, cache):
        """Back through LayerNorm(x + Dropout(sublayer_out)) → dx, past the sub-layer, and dsublayer_out."""
        kept, norm_cache = cache
        dx = self.norm_backward(dy, norm_cache)
        return dx, self.dropout_backward(dx, kept)
