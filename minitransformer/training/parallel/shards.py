"""Shards of a batch and slices of the parameters: a step's bits do not depend on who computes which of them.

Floating-point addition is not associative: (a + b) + c and a + (b + c) differ in the last digits. Therefore gradients
of shards are always added along one binary tree, and squares of gradients piece by piece.

A step's batches are cut into a fixed number of shards (`TrainingSettings.shards`), and each process computes the
gradients of some of them. The flat array of the P parameters is cut into a slice for each of the n processes:

    exchange  each process sends, for each slice, the sums of the largest subtrees that its shards make up, and adds
              what it receives for its own slice along the rest of the tree
    Adam      each process updates its slice, with its slice of the moments: 1/n of them in each process's memory
              (Rajbhandari et al. 2020, ZeRO, stage 1)
    gather    each process sends its slice of the parameters to all others

If every process has one whole subtree, it sends (n - 1)/n · P numbers twice, as in a ring all-reduce (Patarasuk & Yuan
2009).
"""

import math
import operator
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from ...layers import FlatParameters
from ...ops import Array, Ops
from ..optimizer import Adam
from .processes import Processes

T = TypeVar("T")

SHARDS = 8
"""The default number of shards under torchrun."""

MOST_SHARDS = 4096
"""The most shards of a batch: one needs a sentence at least."""

PIECES = 64
"""A flat array is cut into at most this many pieces: the most processes that can share Adam's work."""

GRAIN = 1024
"""A piece has a multiple of this many elements, so that loops over several elements at a time are cut alike."""


class TreeSum(Generic[T]):
    """The sum of values, which come in the order of their numbers 0, 1, 2, …, along one binary tree.

        ((0 + 1) + (2 + 3)) + ((4 + 5) + 6)

    A subtree of 2ᵏ values begins at a multiple of 2ᵏ; the last ones may be smaller. `push` adds a value, or a whole
    subtree's sum, to what stands before it as soon as two siblings are complete, so few sums are alive at any time.
    `add(left, right)` adds in place to `left`, and `right` is free afterwards.
    """

    def __init__(self, add: Callable[[T, T], Any]) -> None:
        self._add = add
        self._subtrees: list[tuple[int, int, T]] = []  # first number, size, sum

    def push(self, first: int, value: T, size: int = 1) -> None:
        """Add the sum of the subtree of `size` values that begins with number `first`."""
        while self._subtrees and self._subtrees[-1][1] == size and first % (2 * size):
            first, _, left = self._subtrees.pop()
            self._add(left, value)
            value, size = left, 2 * size
        self._subtrees.append((first, size, value))

    @property
    def sums(self) -> list[T]:
        """The sums of the largest subtrees that are complete, in order."""
        return [value for *_, value in self._subtrees]

    def total(self) -> T:
        """Return the sum of all values, once no more come."""
        *others, (_, _, total) = self._subtrees
        for *_, left in reversed(others):
            self._add(left, total)
            total = left
        self._subtrees = []
        return total


def subtrees(numbers: range) -> list[tuple[int, int]]:
    """Return the first number and the size of each of the largest whole subtrees that make up consecutive numbers."""
    tree = TreeSum[None](lambda left, right: None)
    for number in numbers:
        tree.push(number, None)
    return [(first, size) for first, size, _ in tree._subtrees]


def share(count: int, rank: int, size: int) -> range:
    """Return the consecutive numbers of `count` that process `rank` of `size` takes; shares differ by one at most."""
    return range(count * rank // size, count * (rank + 1) // size)


def pieces(size: int) -> list[slice]:
    """Return the pieces of a flat array of `size` elements, the same for every number of processes."""
    step = GRAIN * -(-size // (PIECES * GRAIN))
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def slices(size: int, processes: int) -> list[slice]:
    """Return the slice of a flat array of `size` elements that each process takes: consecutive whole pieces."""
    edges = [*(piece.start for piece in pieces(size)), size]
    shares = (share(len(edges) - 1, rank, processes) for rank in range(processes))
    return [slice(edges[numbers.start], edges[numbers.stop]) for numbers in shares]


def exchange(processes: Processes, sums: Sequence[Array], shards: int, grad: Array) -> None:
    """Write the sum of all shards' gradients into this process's slice of `grad`, a flat array.

    sums: the flat gradients of the largest subtrees that this process's shards make up, in order.
    """
    parts = slices(len(grad), processes.size)
    mine = parts[processes.rank]
    made = [subtrees(share(shards, rank, processes.size)) for rank in range(processes.size)]
    widths = [len(of_one) * _width(mine) for of_one in made]
    received = processes.all_to_all([[each[part] for each in sums] for part in parts], widths, like=grad)
    tree = TreeSum[Array](operator.iadd)
    rows = received.reshape(sum(map(len, made)), _width(mine))
    for (first, size), row in zip(chain.from_iterable(made), rows, strict=True):
        tree.push(first, row, size)
    grad[mine] = tree.total()


def gather(processes: Processes, flat: Array) -> None:
    """Bring every process's slice of a flat array to all others."""
    if processes.size > 1:
        parts = slices(len(flat), processes.size)
        mine = flat[parts[processes.rank]]
        flat[...] = processes.all_to_all([[mine]] * processes.size, list(map(_width, parts)), like=flat)


def _width(part: slice) -> int:
    return part.stop - part.start


class ShardedAdam(Adam):
    """Adam, of which this process holds the moments of its slice of the parameters (Rajbhandari 2020, ZeRO, stage 1).

    `step`, `grad_norm`, `state_dict` are collective: all processes call them. The results have the same bits for every
    number of processes.
    """

    def __init__(
        self, parameters: FlatParameters, ops: Ops, betas: tuple[float, float], eps: float, processes: Processes
    ) -> None:
        self.processes = processes
        super().__init__(parameters, ops, betas, eps, slices(len(parameters.grad), processes.size)[processes.rank])

    def step(self, learning_rate: float, grad_scale: float = 1.0) -> None:
        """Update this process's slice from `grad_scale` times its gradient, and gather those of the others."""
        super().step(learning_rate, grad_scale)
        gather(self.processes, self.parameters.data[: len(self.parameters.grad)])
        self.parameters.refresh()

    def grad_norm(self) -> float:
        """Return the norm of the whole gradient: the squares of its pieces are added in order, in float64."""
        grad, squares = self.parameters.grad, np.zeros(PIECES)
        for number, piece in enumerate(pieces(len(grad))):
            if self.part.start <= piece.start < self.part.stop:
                squares[number] = float(self.ops.global_norm(grad[piece])) ** 2
        return math.sqrt(sum(self.processes.sum(squares).tolist()))

    def _whole(self, moment: Array) -> Array:
        flat = super()._whole(moment)
        gather(self.processes, flat)
        return flat
