"""The base of all models: a configuration, the layers built from it, and their parameters in one flat array."""

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

from ..layers import FlatParameters, Layer
from ..ops import Array, Ops, numpy_ops
from .config import ModelConfig, TextConfig, most_tokens
from .copies import Copies

ConfigT = TypeVar("ConfigT", bound=ModelConfig)


class Model(Copies, Layer, ABC, Generic[ConfigT]):
    """Layers over token ids `(B, T)`, padded on the right with `config.pad_id`.

    `ops` and `dtype` choose the backend, `seed` the initial weights. All weights are one flat array,
    `parameters.data`, and every backward adds into `parameters.grad`; a tied weight is one parameter. `origin`: what
    the folder of a loaded model held beside its weights, which `pretrained.save` writes back.
    """

    def __init__(self, config: ConfigT, ops: Ops = numpy_ops, dtype: Any = "float32", seed: int = 0) -> None:
        self._assemble(config, ops, _dtype_name(dtype))
        self.parameters.initialize(seed)

    @abstractmethod
    def _build(self) -> None:
        """Makes the layers, as attributes, from `self.config`."""

    @abstractmethod
    def loss(self, *inputs: Any, **options: Any) -> tuple[Array, tuple]:
        """The loss of a batch, the default objective's, and its cache: each model says what a batch is."""

    @abstractmethod
    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Adds `dloss` times the loss's gradient into the gradient of every parameter."""

    def _assemble(self, config: ConfigT, ops: Ops, dtype: str, shared: FlatParameters | None = None) -> Self:
        super().__init__(ops)
        self.config, self.dtype = config, dtype
        self.most_tokens = most_tokens(config) if isinstance(config, TextConfig) else 0
        self._build()
        self.name_layers()
        self.parameters = FlatParameters(dict(self.named_parameters()), shared.ops if shared else ops, dtype, shared)
        return self

    @classmethod
    def blank(cls, config: ConfigT, ops: Ops = numpy_ops, dtype: Any = "float32") -> Self:
        """A model whose weights are zeros: for a caller that copies its own into them."""
        return cls.__new__(cls)._assemble(config, ops, _dtype_name(dtype))

    def replica(self, ops: Ops | None = None) -> Self:
        """A model that shares these weights and has gradients of its own: for another thread and part of a batch.

        `ops` is the replica's table, if it should be another on the same backend, such as one that a probe watches.
        """
        return type(self).__new__(type(self))._assemble(self.config, ops or self.ops, self.dtype, self.parameters)

    @property
    def dropout_sites(self) -> list[int]:
        """The sites of all layers with dropout."""
        return [layer.site for _, layer in self.named_layers() if getattr(layer, "rate", 0)]

    def _ids(self, name: str, ids: Any) -> Array:
        """Token ids `(B, T)` as an array of the backend. Raises `ValueError` for another shape and for too many."""
        ids, longest = self.ops.asarray(ids), self.most_tokens
        if ids.ndim != 2:
            raise ValueError(f"{name} has shape {tuple(ids.shape)}, expected (B, T)")
        if ids.shape[1] > longest:
            raise ValueError(f"{name} has {ids.shape[1]} tokens, more than the model's max_length of {longest}")
        return ids

    def _received(self, gradient: Any) -> Array:
        """The gradient of an output, in the dtype of activations."""
        return self.ops.activations(self.ops.cast(self.ops.asarray(gradient), self.dtype))

    def _shaped(self, name: str, array: Any, like: Array) -> Array:
        """An array of the backend. Raises `ValueError` unless it has the shape of `like`."""
        array = self.ops.asarray(array)
        if tuple(array.shape) != tuple(like.shape):
            raise ValueError(f"{name} has shape {tuple(array.shape)}, expected {tuple(like.shape)}")
        return array

    def _mask(self, name: str, mask: Any, ids: Array) -> Array | None:
        """A mask of ids, `True` where a token is real, as an array of the backend; numbers are true unless 0."""
        return None if mask is None else self._shaped(name, mask, ids) != 0


def _dtype_name(dtype: Any) -> str:
    """The name of `np.float32`, `np.dtype("float32")`, `torch.float32` or their like; `TypeError` for other types."""
    name = (getattr(dtype, "__name__", None) or str(dtype)).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise TypeError(f"dtype is {name}, expected float32 or float64: that of activations is the table's of ops")
    return name
