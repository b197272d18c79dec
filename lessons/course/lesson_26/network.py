"""Lesson 26: a network between simulated processes, which records the messages."""

from typing import Any

import numpy as np

from ..exercise import Wrong


class Network:
    """A network in which processes call `send`; `messages` has the sender, receiver and array of each message."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.messages = list[tuple[int, int, np.ndarray]]()
        self.fault = ""

    def send(self, sender: Any, receiver: Any, array: Any) -> Any:
        """A copy of `array`, as `receiver` gets it from `sender`."""
        arrived = np.array(array)
        if not self.fault:
            self.fault = self._fault(sender, receiver, array)
        if not self.fault:
            self.messages.append((int(sender), int(receiver), arrived.copy()))
        return arrived

    def numbers_sent(self) -> list[int]:
        """Return how many numbers each process has sent."""
        sent = [0] * self.size
        for sender, _, message in self.messages:
            sent[sender] += message.size
        return sent

    def _fault(self, sender: Any, receiver: Any, array: Any) -> str:
        for rank in (sender, receiver):
            if not isinstance(rank, int | np.integer) or not 0 <= rank < self.size:
                return f"`send` is called for process {rank!r}: they have the numbers 0 to {self.size - 1}"
        if sender == receiver:
            return f"process {sender} sends something to itself: what it has need not go through the network"
        if not isinstance(array, np.ndarray):
            return f"what is sent must be an array, not {type(array).__name__}"
        return ""

    def complain(self, place: str) -> None:
        """Raise `Wrong` if an invalid message was sent."""
        if self.fault:
            raise Wrong(f"{place} {self.fault}")
