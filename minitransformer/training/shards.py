"""Shards of a batch and slices of the parameters: a step's bits do not depend on who computes which of them.

Floating-point addition is not associative: (a + b) + c and a + (b + c) differ in the last digits. Therefore gradients
of shards are always added along one binary tree, and squares of gradients piece by piece.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

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
    """Adds values, which come in the order of their numbers 0, 1, 2, …, along one binary tree.

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
        """The sum of all values, once no more come."""
        *others, (_, _, total) = self._subtrees
        for *_, left in reversed(others):
            self._add(left, total)
            total = left
        self._subtrees = []
        return total


def subtrees(numbers: range) -> list[tuple[int, int]]:
    """The first number and the size of each of the largest whole subtrees that make up consecutive numbers."""
    tree = TreeSum[None](lambda left, right: None)
    for number in numbers:
        tree.push(number, None)
    return [(first, size) for first, size, _ in tree._subtrees]


def share(count: int, rank: int, size: int) -> range:
    """The consecutive numbers of `count` that process `rank` of `size` takes; shares differ by one at most."""
    return range(count * rank // size, count * (rank + 1) // size)


def pieces(size: int) -> list[slice]:
    """The pieces of a flat array of `size` elements, the same for every number of processes."""
    step = GRAIN * -(-size // (PIECES * GRAIN))
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def slices(size: int, processes: int) -> list[slice]:
    """The slice of a flat array of `size` elements that each process takes: consecutive whole pieces."""
    edges = [*(piece.start for piece in pieces(size)), size]
    shares = (share(len(edges) - 1, rank, processes) for rank in range(processes))
    return [slice(edges[numbers.start], edges[numbers.stop]) for numbers in shares]
