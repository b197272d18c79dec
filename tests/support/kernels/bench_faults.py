"""What can go wrong on a rented machine: each function breaks the process of the bench that calls it first."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import kernels
from kernels.bench import rows
from kernels.bench.machine import Machine

ILLEGAL = "CUDA error: an illegal memory access was encountered"
FOREVER = 10_000.0


def wrong(x: Any) -> tuple:
    """Something that is no forward of relu."""
    return x, x


def raises(*inputs: Any, **options: Any) -> Any:
    """What an op does that a GPU has no room for."""
    raise RuntimeError("no room for this")


def is_killed(*inputs: Any, **options: Any) -> Any:
    """What the system does where memory has run out."""
    os.kill(os.getpid(), signal.SIGKILL)


def breaks_the_gpu(*inputs: Any, **options: Any) -> Any:
    """After an illegal access nothing on the GPU works in this process any more."""

    def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError(ILLEGAL)

    Machine.randn = broken
    broken()


def hangs(*inputs: Any, **options: Any) -> Any:
    """Never return."""
    time.sleep(FOREVER)


def in_checks() -> None:
    """One op is wrong, one is killed."""
    kernels.relu_forward = wrong
    kernels.softmax_forward = is_killed


def in_races() -> None:
    """One of our ops raises, one is killed and one breaks the GPU; so does a peer of another."""
    _first_of("relu", "dropout", "softmax", "embedding", "adam")
    kernels.relu_forward = raises
    kernels.dropout_forward = is_killed
    kernels.embedding_forward = breaks_the_gpu
    torch.optim.Adam.step = breaks_the_gpu


def at_the_start() -> None:
    """The tasks of a section can't even be listed."""
    rows.tasks = is_killed


def few() -> None:
    """Nothing goes wrong, in two races."""
    _first_of("relu", "adam")


def a_peer_hangs() -> None:
    """In the second of two races a peer never returns."""
    few()
    torch.optim.Adam.step = hangs


def hangs_visibly(folder: Path) -> None:
    """A file for each process; and a peer hangs."""
    (folder / str(os.getpid())).touch()
    a_peer_hangs()


def _first_of(*ops: str) -> None:
    """One task of each of these ops is all there is."""
    tasks: Callable = rows.tasks

    def few(machine: Machine) -> Any:
        found = {task.op: task for task in reversed(list(tasks(machine))) if task.op in ops}
        return [found[op] for op in ops]

    rows.tasks = few
