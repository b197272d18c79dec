"""Spaces of derivations, which can be counted exactly, drawn from by weight, and listed.

A space is built from two operations: a choice among options, and a record with independent fields. `size` counts
derivations: a choice adds, a record multiplies. To draw, a space takes a large random integer as digits in mixed radix:
each choice uses the remainder and passes on the quotient, so that a derivation is a function of this one integer.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import Any


class Choice:
    """A choice among words, all equally likely."""

    def __init__(self, words: Sequence[Any]):
        self.words = tuple(words)
        self.size = len(self.words)

    def draw(self, digits: int) -> tuple[Any, int]:
        """Return the word that `digits` selects, and the rest of `digits`."""
        digits, i = divmod(digits, self.size)
        return self.words[i], digits

    def __iter__(self) -> Iterator[Any]:
        return iter(self.words)


class Union:
    """A choice among disjoint spaces, with whole-number weights.

    Empty options and options of weight 0 are left out: a smaller lexicon gives a smaller language, not an error.
    """

    def __init__(self, *options: tuple[int, Space]):
        kept = [(weight, space) for weight, space in options if weight and space.size]
        self.spaces = [space for _, space in kept]
        self.size: int = sum(space.size for space in self.spaces)
        self._bounds = list(itertools.accumulate(weight for weight, _ in kept))

    def draw(self, digits: int) -> tuple[Any, int]:
        """Return a derivation from the option that `digits` selects, and the rest of `digits`."""
        digits, point = divmod(digits, self._bounds[-1])
        return self.spaces[bisect(self._bounds, point)].draw(digits)

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.spaces)


class Record:
    """A record in which each field is a constant or is drawn from a space of its own."""

    def __init__(self, make: type, **fields: Any):
        self.make: Any = make  # a NamedTuple
        self.fields = {name: value for name, value in fields.items() if isinstance(value, (Choice, Union, Record))}
        self.size: int = math.prod(space.size for space in self.fields.values())
        self._template = self.make(**fields)
        self._places = [self._template._fields.index(name) for name in self.fields]

    def draw(self, digits: int) -> tuple[Any, int]:
        """Return a record with the fields that `digits` selects, and the rest of `digits`."""
        values = list(self._template)
        for place in self._places:
            values[place], digits = values[place].draw(digits)
        return self.make._make(values), digits

    def __iter__(self) -> Iterator[Any]:
        for values in itertools.product(*self.fields.values()):
            yield self._template._replace(**dict(zip(self.fields, values, strict=True)))


Space = Choice | Union | Record
