"""Round a model's matrices in groups of any size, and find the inputs from which the error of their products comes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.ops import dequantize, quantize
from minitransformer.probe import Call, probe
from study.trials.likelihood import question

Array = NDArray[Any]

Spared = Mapping[str, NDArray[np.integer]]
"""By the name of a map the channels of its input whose weights are not rounded."""


@dataclass(frozen=True)
class Way:
    """A way to round the weights of a column.

    group      weights that share a scale, neighbours along C_in; `None`: the whole column
    symmetric  whether the levels lie about 0, without a minimum
    """

    bits: int
    group: int | None
    symmetric: bool

    def rounded(self, weight: Array) -> tuple[Array, float]:
        """Return what a weight `(C_in, C_out)` is after rounding, in float32, and the bytes that it takes in few bits.

        8 and 4 bits are those of the package. Others are simulated: their levels are those of 4 bits with a minimum, at
        2^bits − 1 equal steps, and their bytes are counted.
        """
        group = self.group or len(weight)
        if self.bits in (4, 8):
            few = quantize(np.ascontiguousarray(weight), self.bits, group, self.symmetric)
            return dequantize(few), few.nbytes
        return simulated(weight, self.bits, group), weight.size * (self.bits / 8 + 4 / group)


def simulated(weight: Array, bits: int, group: int) -> Array:
    """Return a weight `(C_in, C_out)` in 2^bits levels for each group, from its minimum to its maximum, in float32."""
    groups = weight.T.reshape(weight.shape[1], -1, group)
    low = groups.min(-1, keepdims=True)
    steps = (groups.max(-1, keepdims=True) - low) / np.float32(2**bits - 1)
    q = np.floor((groups - low) / np.maximum(steps, np.finfo(np.float32).tiny) + np.float32(0.5))
    d, m = (each.astype(np.float16).astype(np.float32) for each in (steps, low))
    return (d * np.minimum(q, 2**bits - 1) + m).reshape(weight.T.shape).T


@dataclass(frozen=True)
class Matrices:
    """The matrices of a model that the package keeps in few bits, as `(C_in, C_out)`: `maps`, and tables of tokens."""

    model: Any
    maps: Mapping[str, Array]
    tables: Mapping[str, Array]

    @classmethod
    def of(cls, model: Any) -> "Matrices":
        """Return views into a model's parameters."""
        found: tuple[dict[str, Array], dict[str, Array]] = {}, {}
        for name, few in model.blank(model.config, model.ops, model.dtype, None, 8).parameters.quantized.items():
            data = model.parameters.named[name].data
            found[few.transposed][name] = data.T if few.transposed else data
        return cls(model, *found)

    @contextmanager
    def rounded(self, way: Way, spared: Spared | None = None) -> Iterator[float]:
        """Round all matrices inside this context, tables to eight bits; yield the bytes that the model takes."""
        parameters, before = self.model.parameters, self.model.parameters.data.copy()
        size = 4.0 * parameters.count
        try:
            for name, matrix in {**self.maps, **self.tables}.items():
                by = way if name in self.maps else Way(8, way.group, True)
                new, taken = by.rounded(matrix)
                size += taken - 4 * matrix.size
                kept = list((spared or {}).get(name, ()))
                new[kept] = matrix[kept]
                matrix[...] = new
            yield size
        finally:
            parameters.data[...] = before


@dataclass(frozen=True)
class Channels:
    """The channels of a map's input x `(N, C_in)` in a text, where its weight W is rounded to W'.

    size   √(mean x²) of each channel, `(C_in,)`
    share  of the squared error of the outputs E = x (W' − W), `(C_in,)`: Σ_no x_ni (W' − W)_io E_no for channel i. All
           together are Σ E², the whole; a negative share is an error that takes away a part of others'
    """

    size: Array
    share: Array


def channels(matrices: Matrices, batches: Sequence[Any], way: Way) -> dict[str, Channels]:
    """Return by name what the batches show of each map's input channels."""
    names = {matrix.ctypes.data: name for name, matrix in matrices.maps.items()}
    wrong = {name: way.rounded(matrix)[0] - matrix for name, matrix in matrices.maps.items()}
    squares, shares = ({name: np.zeros(len(matrix)) for name, matrix in wrong.items()} for _ in range(2))

    def watch(call: Call) -> None:
        if (call.op, call.way) != ("linear", "forward") or call.arguments[1].ctypes.data not in names:
            return
        name = names[call.arguments[1].ctypes.data]
        x = call.arguments[0].reshape(-1, len(wrong[name]))  # (N, C_in)
        squares[name] += np.square(x, dtype=np.float64).sum(0)
        shares[name] += (wrong[name] * (x.T @ (x @ wrong[name]))).sum(1, dtype=np.float64)

    model, rows = matrices.model.replica(probe(matrices.model.ops, watch)), 0
    for batch in batches:
        arguments, options, targets = question(model, batch)
        model.forward(*arguments, **options)
        rows += targets.size
    return {name: Channels(np.sqrt(squares[name] / rows), shares[name] / shares[name].sum()) for name in wrong}
