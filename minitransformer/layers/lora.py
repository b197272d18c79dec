"""Low-rank adaptation: a linear map keeps its weight, and a product of two thin matrices beside it is trained."""

from collections.abc import Iterator
from itertools import accumulate, pairwise

from ..ops import Array, Ops
from ..ops.initialize import constant, normal
from .linear import Linear
from .parameter import Layer, Parameter


class LoRA(Layer):
    """An adapter: `(α/r) · x A B`, which a linear map adds to its output; A is `(C_in, r)`, B `(r, C_out)`.

    A starts as N(0, 1/C_in) and B at 0, so training starts at the map as it was. `scale` is α/r.
    Source: Hu et al. 2021, §4.1.
    """

    def __init__(self, ops: Ops, width_in: int, width_out: int, rank: int, scale: float) -> None:
        super().__init__(ops)
        self.scale = scale
        self.a = Parameter((width_in, rank), normal(width_in**-0.5))
        self.b = Parameter((rank, width_out), constant(0.0))

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C_in)` → `(..., C_out)`."""
        low, a_cache = self.ops.linear.forward(x, self.a.value, None)  # (..., r)
        out, b_cache = self.ops.linear.forward(low * self.scale, self.b.value, None)
        return out, (a_cache, b_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dx; add into the gradients of A and B. No array has the shape of A B."""
        a_cache, b_cache = cache
        dlow, _, _ = self.ops.linear.backward(dout, b_cache, out=(self.b.grad, None))  # (..., r)
        dx, _, _ = self.ops.linear.backward(dlow * self.scale, a_cache, out=(self.a.grad, None))
        return dx

    def product(self) -> Array:
        """Return `(α/r) · A B`, `(C_in, C_out)`: what the adapter adds to the map's weight."""
        return self.scale * (self.a.data @ self.b.data)


class AdaptedLinear(Linear):
    """A linear map in the place of another, with its weight and bias, and an adapter for some of its outputs.

    It computes as the map of this `kind` does, whose weight may be in few bits.
    """

    kind: type[Linear]

    def __init__(self, linear: Linear, adapters: list[LoRA | None]) -> None:
        vars(self).update(vars(linear))
        self.kind, self.adapters = type(linear), adapters

    def adapted(self) -> Iterator[tuple[LoRA, slice]]:
        """Yield the adapters, each with the columns of the output that it is added to."""
        for adapter, edges in zip(self.adapters, pairwise(accumulate(self.widths, initial=0)), strict=True):
            if adapter is not None:
                yield adapter, slice(*edges)

    def forward(self, x: Array) -> tuple[Array, tuple]:
        """x `(..., C_in)` → `(..., C_out)`."""
        y, cache = self.kind.forward(self, x)
        adapter_caches = []
        for adapter, columns in self.adapted():
            change, adapter_cache = adapter.forward(x)
            y[..., columns] += change
            adapter_caches.append(adapter_cache)
        return y, (cache, adapter_caches)

    def backward(self, dy: Array, cache: tuple) -> Array:
        """Return dx; add into the gradients of the adapters and, if they are trained, of weight and bias."""
        cache, adapter_caches = cache
        dx = self.kind.backward(self, dy, cache)
        for (adapter, columns), adapter_cache in zip(self.adapted(), adapter_caches, strict=True):
            dx = dx + adapter.backward(dy[..., columns], adapter_cache)
        return dx
