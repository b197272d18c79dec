"""The processes that `torchrun` starts for one training: who they are, and how they agree.

What happens below (rendezvous, transport, restarts) is `torch.distributed`'s: gloo between CPUs, NCCL between GPUs.
Without torchrun there is one process, `ALONE`, and PyTorch is not needed.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Self, TypeVar

import numpy as np

from ...ops import Array
from ..distributed import pytorch, take_gpu, torch_distributed
from .launch import LostError, disagreement, is_torchrun, launched_place, meet, named

T = TypeVar("T")
R = TypeVar("R")

TIMEOUT = 600.0
"""Seconds that a process waits for the others in the middle of a step."""

PATIENCE = 24 * 3600.0
"""Seconds that the others wait while one process prepares the data."""

GRACE = 3.0
"""Seconds in which a process that waits says so, once a collective has failed: the others are to blame."""


class PeerError(ValueError):
    """An error of another process, in its words."""


class Processes:
    """The processes of one training, which take the same steps; this one alone unless `join` found others.

    rank, size  this process's number, counted from 0, and how many there are
    first       whether this is the process that writes files and speaks
    launched    whether a launcher started this process
    where       what the training is doing, for error messages

    Its methods must be called by all processes, in the same order. They raise `LostError`, saying where
    and which processes are missing, if one has ended or does not answer within the time limit.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None) -> None:
        self.rank, self.size, self.first, self.where = rank, size, rank == 0, "before the first step"
        self.bytes_sent = 0  # of large arrays, by this process
        self.launched, self._store = store is not None, store
        self._num_meetings, self._was_orphaned = 0, False
        self._parent = os.getppid() if self.launched else 0

    @classmethod
    def join(cls, device: str = "cpu", timeout: float = TIMEOUT) -> "Processes":
        """Return the processes that torchrun, or another launcher that sets the same variables, has started.

        device: where the training's arrays are; of GPUs each process takes that of its number on its machine. Without
        such a launcher this process is alone. Raises ValueError if PyTorch or a GPU is missing, if `device` is one GPU
        for all, or if the launcher's variables are wrong; LostError if the others do not come within `timeout` seconds.
        """
        place = launched_place()
        if place is None:
            return ALONE
        if device.startswith("cuda:") and place.size > 1:
            raise ValueError(f"{place.size} processes cannot share {device}: with --device cuda each takes its own GPU")
        try:
            dist = torch_distributed()
        except ImportError:
            raise ValueError("several processes need PyTorch, which is not installed: install torch") from None
        if device == "cuda":
            take_gpu(place.local_rank)
        backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
        return cls(place.rank, place.size, meet(dist, place, backend, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.launched and torch_distributed().is_initialized():
            torch_distributed().destroy_process_group()

    @property
    def orphaned(self) -> bool:
        """True if torchrun has ended without ending this process; other launchers need not stay."""
        return self.launched and is_torchrun() and os.getppid() != self._parent

    def sum(self, numbers: np.ndarray) -> np.ndarray:
        """Return the sum of everybody's float64 `numbers`; exact where all but one process give 0."""
        if self.size > 1:
            numbers = np.array(numbers, np.float64)
            self.collective(torch_distributed().all_reduce, pytorch().from_numpy(numbers))
        return numbers

    def any(self, condition: bool) -> bool:
        """Return True if the condition holds in any process."""
        return bool(self.sum(np.array([float(condition)]))[0])

    def reason_to_stop(self, requested: bool) -> Literal["interrupted", "its launcher ended"] | None:
        """Return why all should stop after this step: one is `requested` to, or all are orphaned.

        If the launcher of some has ended, as on one of several machines, they raise LostError, and torchrun starts the
        others again. One launcher's processes may notice its end in two steps, so an orphan waits for the next one.
        """
        orphaned = self.orphaned
        requests, orphans = self.sum(np.array([requested, orphaned], np.float64))
        if orphans < self.size and orphaned and self._was_orphaned:
            raise self._left()
        self._was_orphaned = orphaned
        return "interrupted" if requests else "its launcher ended" if orphans == self.size else None

    def gathered(self, value: Any) -> list[Any]:
        """Return everybody's value, by rank."""
        values = [value] * self.size
        if self.size > 1:
            self.collective(torch_distributed().all_gather_object, values, value)
        return values

    def map(self, function: Callable[[T], R], items: Iterable[T], while_launched: bool = False) -> list[R]:
        """Return `function(item)` for each item, in order; each is computed by one process.

        Raises ValueError if the numbers of items differ. while_launched: raise LostError once the launcher has ended.
        """
        mine, number = [], -1
        for number, item in enumerate(items):
            if number % self.size == self.rank:
                if while_launched and self.orphaned:
                    raise self._left()
                mine.append(function(item))
        self.agree(**{"number of items": number + 1})
        shares = self.gathered(mine)
        return [shares[i % self.size][i // self.size] for i in range(number + 1)]

    def agree(self, **facts: Any) -> None:
        """Raise ValueError, in all processes, if a fact differs between two; the error names both."""
        if sentence := disagreement(self.gathered(facts)):
            raise ValueError(sentence)

    @contextmanager
    def together(self, patient: bool = False) -> Iterator[None]:
        """A block that all processes leave together: an exception in one is raised in all, as PeerError in the others.

        patient: whether one may take much longer than the others, as for preparing the data.
        """
        if self.size == 1:
            yield
            return
        error = None
        try:
            yield
        except Exception as caught:
            if isinstance(caught, LostError | PeerError) or hasattr(caught, "told"):
                raise
            error = caught
        if patient:
            self._wait_for_all()
        if not self.any(error is not None):
            return
        messages = self.gathered(error and _message(error))
        if error is not None:
            error.told = True  # type: ignore[attr-defined]
            raise error
        rank, message = next((rank, message) for rank, message in enumerate(messages) if message)
        raise PeerError(f"process {rank}: {message}")

    def all_to_all(self, parts: Sequence[Sequence[Array]], widths: list[int], like: Array) -> Array:
        """Send the flat arrays `parts[r]` to each process r; returns what all have sent, `widths[r]` numbers from r.

        like: an array of the kind and type that is sent.
        """
        torch = pytorch()
        like, sent_to = torch.as_tensor(like), [sum(map(len, of_one)) for of_one in parts]
        sent = torch.cat([like[:0], *(torch.as_tensor(each) for of_one in parts for each in of_one)])
        received = like.new_empty(sum(widths))
        self.collective(torch_distributed().all_to_all_single, received, sent, widths, sent_to)
        self.bytes_sent += sent.element_size() * (len(sent) - sent_to[self.rank])
        return received

    def collective(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of `torch.distributed`, and say what happened if it fails."""
        try:
            return function(*arguments)
        except RuntimeError as error:
            message = str(error)  # and no more: its traceback would keep the connections open
        raise LostError(self._who_is_missing(message))

    def _who_is_missing(self, message: str) -> str:
        """Return a sentence about a collective that failed. Each that waits says so in the launcher's store."""
        reason = "waited in vain" if "imed out" in message else "lost the connection"
        try:
            self._store.set(f"waits/{self.rank}", "")
            torch_distributed().destroy_process_group()  # who waits for this process in another collective learns of it
            time.sleep(GRACE)
            waits = [self._store.check([f"waits/{rank}"]) for rank in range(self.size)]
        except RuntimeError:
            return f"process {self.rank} {reason} {self.where}: the launcher of process 0 does not answer either"
        missing = [rank for rank, is_waiting in enumerate(waits) if not is_waiting]
        who = f"no answer from {named(missing)}" if missing else "all are there, but not the network between them"
        return f"process {self.rank} {reason} {self.where}: {who}"

    def _wait_for_all(self) -> None:
        """Wait without the time limit of collectives; again and again for a moment, so that Ctrl-C is heard."""
        self._num_meetings += 1
        names = [f"ready/{self._num_meetings}/{rank}" for rank in range(self.size)]
        deadline = time.monotonic() + PATIENCE
        try:
            self._store.set(names[self.rank], "")
            while not self._store.check(names):
                if self.orphaned:
                    raise self._left()
                if time.monotonic() > deadline:
                    raise LostError(f"process {self.rank} waited in vain {self.where}")
                time.sleep(0.1)
        except RuntimeError:
            raise LostError(f"process {self.rank} lost the launcher {self.where}") from None

    def _left(self) -> LostError:
        return LostError(f"the launcher of process {self.rank} has ended")


ALONE = Processes()


def _message(error: Exception) -> str:
    """Return an exception's message for the user of another process."""
    text, name = getattr(error, "strerror", None) or str(error), getattr(error, "filename", None)
    return f"{name}: {text}" if name else text or type(error).__name__
