"""Watches accesses to memory, and finds races: bytes whose value depends on the order of waves or programs.

Two waves of a program may touch a byte in either order unless a barrier lies between; two programs always may. It is a
race if one of them writes, and so changes the byte: a write that leaves the value as it is does no harm.
"""

from copy import copy
from typing import Any

import numpy as np

NONE = -1


class Fault(RuntimeError):
    """A fault of a kernel; the message names it, its place in the source, and the program."""


class Ledger:
    """The last waves and programs that touched each granule: a bit for each wave, and the first and last program."""

    def __init__(self, size: int) -> None:
        self.phase = np.full(size, NONE, np.int32)
        self.waves = np.zeros(size, np.uint32)
        self.first, self.last = np.full(size, np.iinfo(np.int32).max, np.int32), np.full(size, NONE, np.int32)

    def add(self, place: Any, who: "Who") -> None:
        """Note that these waves touch these granules now."""
        stale = self.phase[place] != who.phase
        self.waves[place[stale]] = 0
        self.phase[place] = who.phase
        np.bitwise_or.at(self.waves, place, who.bit)
        np.minimum.at(self.first, place, who.program)
        np.maximum.at(self.last, place, who.program)

    def foreign(self, place: Any, who: "Who") -> Any:
        """Return True for each granule that another program has touched."""
        return (self.first[place] < who.program) | (self.last[place] > who.program)

    def others(self, place: Any, who: "Who") -> Any:
        """Return True where another program has been, or another wave of this program since its last barrier."""
        return self.foreign(place, who) | ((self.phase[place] == who.phase) & (self.waves[place] & ~who.bit != 0))

    def only_others(self, place: Any, who: "Who") -> Any:
        """Return True as `others` does, but not where this wave has been too: all wrote the same in this phase."""
        waves = self.waves[place]
        alone = (self.phase[place] == who.phase) & (waves != 0) & (waves & who.bit == 0)
        return self.foreign(place, who) | alone


class Who:
    """For each granule that an instruction touches: the program, the bit of its wave, and the barriers passed."""

    def __init__(self, program: Any, wave: Any, phase: Any) -> None:
        self.program, self.phase = program, phase
        self.bit = np.uint32(1) << wave.astype(np.uint32)

    def only(self, chosen: Any) -> "Who":
        """Return the chosen ones."""
        some = copy(self)
        some.program, some.phase, some.bit = self.program[chosen], self.phase[chosen], self.bit[chosen]
        return some


class Watch:
    """The readers and writers of one memory."""

    def __init__(self, num_bytes: int, granule: int) -> None:
        self.granule = granule
        self.read, self.written = Ledger(num_bytes // granule + 1), Ledger(num_bytes // granule + 1)

    def loaded(self, place: Any, who: Who) -> Any:
        """Note a load; return True where it races with an earlier store."""
        found = self.written.only_others(place, who)
        self.read.add(place, who)
        return found

    def stored(self, place: Any, who: Who) -> Any:
        """Note a store that changes these granules; return True where it races with an earlier access."""
        found = self.written.others(place, who) | self.read.others(place, who)
        self.written.add(place, who)
        return found
