"""The order in which a section's contestants are measured, and what the ledger keeps of an earlier run.

First our kernels, each alone: that is what must not be lost. Then all contestants of a task side by side, ours once
more, so that their ratio is one of the same minute. Tasks that an earlier run has measured with the same code and the
same versions come last, and keep what they have until they have been measured anew.
"""

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

from .results import LATE, OURS, Entry

Unit = tuple[int, str]
"""The number of a task, and a contestant."""

Section = dict[str, Any]


class Rounds:
    """The entries of a section as they stand, and what is `waiting` to be measured."""

    def __init__(self, planned: Sequence[Entry], earlier: Section, today: Section, date: str) -> None:
        """`today` has the versions and the hashes of all ops; `earlier` is the section as it was, or empty."""
        held = {_task(entry): entry for entry in earlier.get("entries", []) if _holds(entry, earlier, today)}
        self.entries = [held.get(_task(entry), entry) for entry in planned]
        self.date = date
        self._found: dict[int, dict[str, Any]] = {number: {} for number in range(len(planned))}
        alone = [(n, OURS) for n, e in enumerate(self.entries) if "failed" in e["contestants"].get(OURS, {})]
        numbers = sorted(self._found, key=lambda number: complete(self.entries[number]))
        beside = [(number, name) for number in numbers for name in self.entries[number]["contestants"]]
        again = (unit for unit in beside if unit not in alone or len(self.entries[unit[0]]["contestants"]) > 1)
        self.waiting: deque[Unit] = deque([*alone, *again])

    def found(self, result: dict[str, Any]) -> Unit:
        """Takes what was found of the one whose turn it is."""
        number, name = unit = self.waiting.popleft()
        self._found[number][name] = result
        entry, found = self.entries[number], self._found[number]
        if found.keys() == entry["contestants"].keys() or not complete(entry):
            contestants = {name: found.get(name, LATE) for name in entry["contestants"]}
            self.entries[number] = entry | {"date": self.date, "contestants": contestants}
        return unit

    def gone(self, reason: str) -> Unit:
        """Its process ended instead: it gets no other turn."""
        unit = self.found({"failed": reason})
        self.waiting = deque(other for other in self.waiting if other != unit)
        return unit

    def settled(self, number: int) -> bool:
        """Whether it is another's turn now."""
        return not self.waiting or self.waiting[0][0] != number


def complete(entry: Entry) -> bool:
    """Whether ours has a time and every other contestant was tried."""
    return LATE not in entry["contestants"].values() and "failed" not in entry["contestants"].get(OURS, {})


def _task(entry: Entry) -> str:
    """What is the same when it is measured again."""
    task = {name: value for name, value in entry.items() if name not in ("contestants", "date")}
    return json.dumps([task, sorted(entry["contestants"])], sort_keys=True)


def _holds(entry: Entry, earlier: Section, today: Section) -> bool:
    """Whether it is measured, and nothing that it ran has changed."""
    ran = [entry["op"]] if entry["op"] in today["hashes"] else today["hashes"]
    unchanged = all(earlier["hashes"].get(op) == today["hashes"][op] for op in ran)
    return "date" in entry and unchanged and earlier["versions"] == today["versions"]
