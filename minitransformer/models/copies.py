"""Copies of models: their weights are one flat array, which copies of single layers would no longer share."""

from typing import Any, Self

from ..ops import Array, Ops


class Copies:
    """The base of `Model` by which it can be copied and pickled."""

    config: Any
    ops: Any
    dtype: Any
    parameters: Any
    origin: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A model with weights and gradients of its own; copied one by one, they would lose their flat arrays."""
        twin = self._with_weights(self.config, self.ops, self.dtype, self.parameters.data)
        twin.parameters.grad[...] = self.parameters.grad
        twin.origin = self.origin
        return twin

    def __copy__(self) -> Self:
        """A second name for the same layers and weights."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled model has its weights, and gradients of 0. Raises `TypeError` for a backend other than NumPy."""
        if self.ops.has_threads:  # PyTorch's: its tables are made for a device
            raise TypeError("a model on PyTorch's ops can't be pickled: save a checkpoint, and open it over there")
        return self._with_weights, (self.config, self.ops, self.dtype, self.parameters.data), {"origin": self.origin}

    @classmethod
    def _with_weights(cls, config: Any, ops: Ops, dtype: str, data: Array) -> Self:
        """A model with a copy of these weights."""
        kind: Any = cls
        model = kind.blank(config, ops, dtype)
        model.parameters.data[...] = data
        model.parameters.refresh()
        return model
