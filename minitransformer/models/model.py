"""The base of all models: a configuration, the layers built from it, and their parameters in one flat array."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from ..config import require
from ..layers import AdaptedLinear, FlatParameters, Layer, quantized_layers
from ..ops import Array, Ops, Quantized, numpy_ops
from ..ops.quantized import check_bits
from .config import ModelConfig, TextConfig, most_tokens
from .tuning import Tuning, is_adapter

ConfigT = TypeVar("ConfigT", bound=ModelConfig)


class Model(Layer, ABC, Generic[ConfigT]):
    """Layers over token ids `(B, T)`, padded on the right with `config.pad_id`.

    `ops` and `dtype` choose the backend, `seed` the initial weights. All weights are one flat array,
    `parameters.data`, and every backward adds into `parameters.grad`; a tied weight is one parameter. `origin`: what
    the folder of a loaded model held beside its weights, which `pretrained.save` writes back. `tuning` says what of the
    model is trained, if not all of it. With `bits` the matrices are in eight or four bits (`layers.quantized`), which
    nothing trains; the rest of such a model is frozen too, unless `tuning` says otherwise. `compares_rows`: the loss
    compares the rows of a batch with each other, so that it is no mean of the losses of its parts.
    """

    origin: Any = None
    tuning: Tuning | None = None
    bits: int | None = None
    compares_rows: ClassVar[bool] = False

    def __init__(self, config: ConfigT, ops: Ops = numpy_ops, dtype: Any = "float32", seed: int = 0) -> None:
        self._declare(config, ops, dtype)._place()
        self.parameters.initialize(seed)

    def _declare(
        self, config: ConfigT, ops: Ops, dtype: Any, tuning: Tuning | None = None, bits: int | None = None
    ) -> Self:
        """Make and name the layers; return the model, whose parameters have no arrays yet."""
        super().__init__(ops)
        self.config, self.dtype = config, _dtype_name(dtype)
        self.most_tokens = most_tokens(config) if isinstance(config, TextConfig) else 0
        self._build(ops.unchecked())  # arguments are checked where they come in; inside nothing can be wrong
        if bits is not None:
            check_bits("bits", bits)
            self.bits = bits
            some = quantized_layers(self, bits, self.dtype) > 0
            require(some, "no matrix of the model has rows of a multiple of 32 weights, which few bits need")
        if tuning is not None:
            self.tuning = tuning
            tuning.apply(self)
        self.name_layers()
        return self

    def _place(self, shared: FlatParameters | None = None) -> Self:
        """Give the parameters their arrays, new ones of zeros or for a replica the original's, and make tables."""
        ops = shared.ops if shared else self.ops
        self.parameters = FlatParameters(dict(self.named_parameters()), ops, self.dtype, shared)
        for _, layer in self.named_layers():
            layer.make_tables()
        return self

    @classmethod
    def declared(
        cls,
        config: ConfigT,
        ops: Ops = numpy_ops,
        dtype: Any = "float32",
        tuning: Tuning | None = None,
        bits: int | None = None,
    ) -> Self:
        """Return a model's layers with the shapes of their parameters, for which no memory is taken."""
        return cls.__new__(cls)._declare(config, ops, dtype, tuning, bits)

    @classmethod
    def blank(
        cls,
        config: ConfigT,
        ops: Ops = numpy_ops,
        dtype: Any = "float32",
        tuning: Tuning | None = None,
        bits: int | None = None,
    ) -> Self:
        """Return a model whose weights are zeros: for a caller that copies its own into them.

        With `bits` the matrices have no values before the caller gives `parameters.set_quantized` its own.
        """
        return cls.declared(config, ops, dtype, tuning, bits)._place()

    def tuned(self, tuning: Tuning | None, seed: int = 0) -> Self:
        """Return a model with a copy of these weights that is trained as `tuning` says; `seed` draws new adapters.

        Where this model has adapters, they are merged into its weights. Raises `ValueError` as `Tuning.apply` does, and
        for adapters beside weights in few bits: these would round them away, so `merged` comes first.
        """
        if self.bits is not None and self.tuning is not None and self.tuning.rank:
            raise ValueError(f"adapters can't be merged into weights in {self.bits} bits: tune what merged() returns")
        model = self._copied(tuning, self.bits)
        model.parameters.initialize(seed, [name for name in model.parameters.named if is_adapter(name)])
        return model

    def quantized(self, bits: int) -> Self:
        """Return a model whose matrices are in `bits` bits, 8 or 4: `layers.quantized` says which; adapters are merged.

        Raises `TypeError` for what is no integer, and `ValueError` for other numbers, for a model that has few bits
        already, and for one without such a matrix.
        """
        check_bits("bits", bits)
        if self.bits is not None:
            raise ValueError(f"the model is in {self.bits} bits already: round what merged() returns")
        model = self.merged() if self.tuning is not None and self.tuning.rank else self
        return model._copied(None, bits)

    def merged(self) -> Self:
        """Return a model of floats without adapters: each is added to its map's weight, `W + (α/r) · A B`.

        A weight in few bits becomes the numbers that it stands for.
        """
        return self._copied(None, None)

    def _copied(self, tuning: Tuning | None, bits: int | None) -> Self:
        """Return a model with a copy of these weights, and of the adapters' products in them."""
        model = self.blank(self.config, self.ops, self.dtype, tuning, bits)
        ours, theirs = self.parameters, model.parameters.named
        for name in ours.named.keys() & theirs.keys():
            if not is_adapter(name):
                theirs[name].data[...] = ours.named[name].data
        for name in ours.quantized.keys() & theirs.keys():
            theirs[name].data[...] = self.ops.asarray(ours.quantized[name].floats(self.ops), self.dtype)
        for name, parameter in model.parameters.quantized.items():
            kept = name in ours.quantized
            value = ours.quantized[name].value if kept else parameter.rounded(self.ops.to_numpy(ours.named[name].data))
            model.parameters.set_quantized({name: value})
        for name, layer in self.named_layers():
            for adapter, columns in layer.adapted() if isinstance(layer, AdaptedLinear) else ():
                theirs[f"{name}.weight"].data[:, columns] += adapter.product()
        model.parameters.refresh()
        model.origin = self.origin
        return model

    def replica(self, ops: Ops | None = None) -> Self:
        """Return a model that shares these weights and has its own gradients: for another thread and part of a batch.

        `ops` is the replica's table, if it should be another on the same backend, such as one that a probe watches.
        """
        model = type(self).declared(self.config, ops or self.ops, self.dtype, self.tuning, self.bits)
        return model._place(self.parameters)

    @abstractmethod
    def _build(self, ops: Ops) -> None:
        """Make the layers, as attributes, from `self.config`; `ops` are what they compute with."""

    @abstractmethod
    def loss(self, *inputs: Any, **options: Any) -> tuple[Array, tuple]:
        """Return the loss of a batch, the default objective's, and its cache: each model says what a batch is."""

    @abstractmethod
    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Add `dloss` times the loss's gradient into the gradient of every parameter."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a model with its own weights and gradients; copied one by one, they would lose their flat arrays."""
        twin = self._with_weights(*self._arguments())
        twin.parameters.grad[...] = self.parameters.grad
        twin.origin = self.origin
        return twin

    def __copy__(self) -> Self:
        """Return a second name for the same layers and weights."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the weights; gradients are 0 afterwards. Raises `TypeError` for a backend other than NumPy."""
        if self.ops.has_threads:  # PyTorch's: its tables are made for a device
            raise TypeError("a model on PyTorch's ops can't be pickled: save a checkpoint, and open it over there")
        return self._with_weights, self._arguments(), {"origin": self.origin}

    def with_config(self, config: ConfigT) -> Self:
        """Return a model with a copy of these weights and another configuration of the same shapes."""
        twin = self._with_weights(config, *self._arguments()[1:])
        twin.origin = self.origin
        return twin

    def _arguments(self) -> tuple[Any, ...]:
        """Return what `_with_weights` makes a copy of this model from."""
        quantized = {name: each.value for name, each in self.parameters.quantized.items()}
        return self.config, self.ops, self.dtype, self.parameters.data, self.tuning, self.bits, quantized

    @classmethod
    def _with_weights(
        cls,
        config: ConfigT,
        ops: Ops,
        dtype: str,
        data: Array,
        tuning: Tuning | None,
        bits: int | None,
        quantized: Mapping[str, Quantized],
    ) -> Self:
        """Return a model with a copy of these weights; those in few bits are shared."""
        model = cls.blank(config, ops, dtype, tuning, bits)
        model.parameters.data[...] = data
        model.parameters.set_quantized(quantized)
        model.parameters.refresh()
        return model

    @property
    def dropout_sites(self) -> list[int]:
        """The sites of all layers with dropout."""
        return [layer.site for _, layer in self.named_layers() if getattr(layer, "rate", 0)]

    def _ids(self, name: str, ids: Any) -> Array:
        """Return token ids `(B, T)` as an array of the backend. Raises `ValueError` for another shape, and too many."""
        ids, longest = self.ops.asarray(ids), self.most_tokens
        if ids.ndim != 2:
            raise ValueError(f"{name} has shape {tuple(ids.shape)}, expected (B, T)")
        if ids.shape[1] > longest:
            raise ValueError(f"{name} has {ids.shape[1]} tokens, more than the model's max_length of {longest}")
        return ids

    def _images(self, images: Any) -> Array:
        """Return images `(B, channels, height, width)` as activations. Raises `ValueError` for another shape."""
        config: Any = self.config
        images, expected = self.ops.asarray(images), (config.channels, config.image_size, config.image_size)
        if tuple(images.shape[1:]) != expected:
            raise ValueError(f"images have shape {tuple(images.shape)}, expected (B, {', '.join(map(str, expected))})")
        return self.ops.activations(self.ops.cast(images, self.dtype))

    def _received(self, dy: Any, shape: Sequence[int]) -> Array:
        """Return the gradient of an output of this shape, in the dtype of activations."""
        dy = self.ops.asarray(dy)
        if tuple(dy.shape) != tuple(shape):
            raise ValueError(f"dy has shape {tuple(dy.shape)}, expected its output's {tuple(shape)}")
        return self.ops.activations(self.ops.cast(dy, self.dtype))

    def _shaped(self, name: str, array: Any, like: Array) -> Array:
        """Return an array of the backend. Raises `ValueError` unless it has the shape of `like`."""
        array = self.ops.asarray(array)
        if tuple(array.shape) != tuple(like.shape):
            raise ValueError(f"{name} has shape {tuple(array.shape)}, expected {tuple(like.shape)}")
        return array

    def _weights(self, weights: Any, targets: Array) -> Array:
        """Return the weights of targets as an array of the backend, in the dtype of parameters."""
        return self.ops.cast(self._shaped("weights", weights, targets), self.dtype)

    def _mask(self, name: str, mask: Any, ids: Array) -> Array | None:
        """Return a mask of ids, `True` where a token is real, as an array of the backend; numbers are true unless 0."""
        return None if mask is None else self._shaped(name, mask, ids) != 0


def _dtype_name(dtype: Any) -> str:
    """Return the name of `np.float32`, `np.dtype("float32")`, `torch.float32`; raise `TypeError` for other types."""
    name = (getattr(dtype, "__name__", None) or str(dtype)).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise TypeError(f"dtype is {name}, expected float32 or float64: that of activations is the table's of ops")
    return name
