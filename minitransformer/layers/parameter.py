"""Parameters, as named views into one flat array, and the base class of the layers that own them."""

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..ops import Array, Ops, Quantized, dequantize, quantize
from ..ops.initialize import Initializer, constant, generator_for

ALIGN = 16
"""Parameters start on multiples of this many elements: of 64 bytes in float32, and so in float64."""


GROUP = 32
"""How many weights in few bits share a scale, as in GGUF's files."""


class Parameter:
    """A learned tensor: `data`, and `grad`, into which every backward adds.

    A layer declares its shape and its initial values; `FlatParameters` places it in the model's flat arrays. Ops
    receive `value`: `data` itself or, where activations are narrower (bfloat16), a copy in their dtype. An `exact`
    parameter is never copied. One that is not `trained` is frozen: it has no gradient, and `grad` is `None`.
    """

    name: str
    data: Array
    value: Array
    grad: Any

    def __init__(self, shape: tuple[int, ...], initializer: Initializer, exact: bool = False) -> None:
        self.shape = shape
        self.initializer = initializer
        self.exact = exact
        self.trained = True

    def add_grad(self, dvalue: Array) -> None:
        """Add into the gradient; a frozen parameter has none."""
        if self.trained:
            self.grad += dvalue


class QuantizedParameter(Parameter):
    """A matrix in eight or four bits: `value` is a `Quantized`, which `FlatParameters` keeps beside its arrays.

    `shape` is that of the parameter in whose place it stands: a weight `(C_in, C_out)` or, `transposed`, a table
    `(V, C)`, whose `value` is a weight `(C, V)`. It has no gradient: nothing trains it.
    """

    value: Quantized

    def __init__(self, shape: tuple[int, ...], bits: int, transposed: bool = False) -> None:
        super().__init__(shape, constant(0.0))
        self.bits, self.transposed, self.trained = bits, transposed, False

    @property
    def most_bytes(self) -> int:
        """The bytes that its value takes, or a little more where a file has it without minima."""
        return math.prod(self.shape) // GROUP * (4 * self.bits + (2 if self.bits == 8 else 4))

    def rounded(self, array: Array) -> Quantized:
        """Return the value for an array of this shape, in host memory, or for some of a weight's columns."""
        return quantize(array.T if self.transposed else array, self.bits)

    def floats(self, ops: Ops) -> Array:
        """Return the numbers that its value stands for, in host memory and float32."""
        weight = dequantize(self.value.mapped(ops.to_numpy))
        return weight.T if self.transposed else weight


class Layer:
    """The base class of layers: `forward(...) -> (out, cache)`, `backward(dout, cache) -> input gradients`.

    A layer owns parameters and computes with ops. A backward adds into each parameter's `grad`. A call changes nothing
    else, except that a table of positions that is too short gives way to a longer one (a new array: threads share the
    old one). Parameters have no arrays before `FlatParameters` places them, as a `Model` does for all its layers.

    `name` is a layer's place in its model, such as `encoder.layers.0.self_attention`. `site` is a number made from the
    name, by which the layer's dropout differs from that of other layers. A layer outside a model has no name.
    """

    def __init__(self, ops: Ops) -> None:
        self.ops = ops
        self.name, self.site = "", site_of("")

    def members(self) -> Iterator[tuple[str, "Parameter | Layer"]]:
        """Yield parameters and layers by attribute name, in order of declaration; layers in a list are numbered."""
        for name, value in vars(self).items():
            if isinstance(value, Parameter | Layer):
                yield name, value
            elif isinstance(value, list):
                yield from ((f"{name}.{i}", each) for i, each in enumerate(value) if isinstance(each, Layer))

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters with their dotted names, in the order in which the layer declared them."""
        for name, member in self.members():
            if isinstance(member, Parameter):
                yield prefix + name, member
            else:
                yield from member.named_parameters(f"{prefix}{name}.")

    def named_layers(self, prefix: str = "") -> Iterator[tuple[str, "Layer"]]:
        """Yield the layers inside with their dotted names."""
        for name, member in self.members():
            if isinstance(member, Layer):
                yield prefix + name, member
                yield from member.named_layers(f"{prefix}{name}.")

    def make_tables(self) -> None:
        """Make the tables of positions that the layer computes. A model calls it when it places its parameters."""

    def name_layers(self) -> None:
        """Give every layer inside its name and its site. A model calls it once it is built."""
        for name, layer in reversed(list(self.named_layers())):  # a shared layer keeps its first name
            layer.name, layer.site = name, site_of(name)


def site_of(name: str) -> int:
    """Return the dropout site of the layer with this name, the same number in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


class FlatParameters:
    """A model's parameters in one flat array, and their gradients in another.

    So Adam, clipping, the global norm, averaging and a sum over replicas are one operation over one array. Each
    parameter begins on a 64-byte boundary; the padding between parameters is zero and not part of `count`. Frozen ones
    stand after all others in `data`, and `grad` ends before them: what is as long as `grad` knows nothing of them.

    `quantized` are the parameters in few bits, which are no part of `data`; the caller who makes the model sets them.

    Where activations are narrower than parameters, `shadow` is a copy of `data` in the dtype of activations; a function
    that changes `data` changes it too, or calls `refresh`. Elsewhere it is `data` itself.
    """

    def __init__(
        self, named: Mapping[str, Parameter], ops: Ops, dtype: Any, original: "FlatParameters | None" = None
    ) -> None:
        """Place the parameters in new arrays or, for a replica, in those of `original`, with a `grad` of its own."""
        names: dict[Parameter, str] = {}  # a shared parameter is placed once, under its first name
        for name, parameter in named.items():
            names.setdefault(parameter, name)
        self.quantized = {name: each for each, name in names.items() if isinstance(each, QuantizedParameter)}
        self.named = {name: parameter for parameter, name in names.items() if name not in self.quantized}
        self.ops = ops
        self.dtype = dtype
        self.count = sum(math.prod(parameter.shape) for parameter in names)
        self._starts, size = {}, 0
        num_trained = 0
        for name, parameter in sorted(self.named.items(), key=lambda item: not item[1].trained):
            self._starts[name] = size
            size += -(-math.prod(parameter.shape) // ALIGN) * ALIGN
            num_trained = size if parameter.trained else num_trained
        self.data = ops.zeros(size, dtype) if original is None else original.data  # (P,)
        self.shadow = ops.activations(self.data) if original is None else original.shadow  # (P,)
        self.grad = ops.zeros(num_trained, dtype)  # (P,), less the frozen
        data_views, grad_views, shadow_views = map(self.views, (self.data, self.grad, self.shadow))
        for name, parameter in self.named.items():
            parameter.name, parameter.data, parameter.grad = name, data_views[name], grad_views.get(name)
            narrow = self.shadow is not self.data and not parameter.exact
            parameter.value = shadow_views[name] if narrow else parameter.data
        if original is not None:
            self.set_quantized({name: parameter.value for name, parameter in original.quantized.items()})

    @property
    def nbytes(self) -> int:
        """The bytes of all weights: of the flat array, and of those in few bits."""
        return self.data.nbytes + sum(parameter.value.nbytes for parameter in self.quantized.values())

    def set_quantized(self, values: Mapping[str, Quantized]) -> None:
        """Give the parameters in few bits their values, on the backend: models may share them, since none changes."""
        for name, value in values.items():
            self.quantized[name].name, self.quantized[name].value = name, value.mapped(self.ops.asarray)

    def views(self, flat: Array) -> dict[str, Array]:
        """Return views by name into a flat array of this layout: data or, of the trained alone, gradients, moments."""
        return {
            name: flat[self._starts[name] : self._starts[name] + math.prod(parameter.shape)].reshape(parameter.shape)
            for name, parameter in self.named.items()
            if self._starts[name] < len(flat)
        }

    def initialize(self, seed: int, names: Collection[str] | None = None) -> None:
        """Draw every parameter, or those named, from its own generator: by the seed and the parameter's name alone."""
        for name in self.named if names is None else names:
            parameter = self.named[name]
            drawn = parameter.initializer(generator_for(seed, name), parameter.shape)
            parameter.data[...] = self.ops.asarray(drawn, self.dtype)
        self.refresh()

    def refresh(self) -> None:
        """Copy the data into the shadow."""
        if self.shadow is not self.data:
            self.shadow[...] = self.data

    def zero_grad(self) -> None:
        """Set every gradient to 0."""
        self.grad[...] = 0

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the named tensors in host memory, without padding; a tied parameter is there once."""
        return {name: self.ops.to_numpy(parameter.data).copy() for name, parameter in self.named.items()}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Copy named tensors in. Raises `ValueError`, and changes nothing, if names or shapes are not the model's."""
        missing, unexpected = self.named.keys() - state.keys(), state.keys() - self.named.keys()
        if missing or unexpected:
            raise ValueError(f"state is not this model's: missing {sorted(missing)}, unexpected {sorted(unexpected)}")
        for name, parameter in self.named.items():
            if tuple(state[name].shape) != parameter.shape:
                raise ValueError(f"{name} has shape {tuple(state[name].shape)}, expected {parameter.shape}")
        for name, parameter in self.named.items():
            parameter.data[...] = self.ops.asarray(state[name], self.dtype)
        self.refresh()
