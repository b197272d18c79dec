"""The meeting of processes that a launcher, such as `torchrun`, has started, and the facts they must agree on.

A launcher tells a process by environment variables: its number RANK, from 0; how many there are, WORLD_SIZE; where the
first one is, MASTER_ADDR and MASTER_PORT; and LOCAL_RANK, its number on its machine.
"""

import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from reprlib import repr as shortened
from typing import Any
from uuid import uuid4

import numpy as np

from ... import __version__
from ...models import Model

ADDRESS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class LostError(ConnectionError):
    """Another process, or the launcher, has ended or does not answer."""


@dataclass(frozen=True)
class Place:
    """A process's number, that on its machine, and how many processes there are."""

    rank: int
    local_rank: int
    size: int


def launched_place() -> Place | None:
    """Return this process's place; None if no launcher has started it.

    Raises ValueError, naming it, for a variable that is wrong, or that is missing although there are several processes.
    """
    size = world_size()
    missing = [name for name in ADDRESS if not os.environ.get(name)]
    if missing and size > 1:
        raise ValueError(f"WORLD_SIZE is {size}, but {missing[0]} is not set: start it with torchrun")
    if missing:
        return None
    _number("MASTER_PORT", 1, 65535)
    return Place(_number("RANK", 0, size - 1), _number("LOCAL_RANK", 0, size - 1, default="0"), size)


def world_size() -> int:
    """Return the number of processes, 1 without a launcher. Raises ValueError if the variable is not a number."""
    return _number("WORLD_SIZE", 1, 10**6, default="1")


def local_size() -> int:
    """Return how many processes share this machine: all, if the launcher doesn't say."""
    return _number("LOCAL_WORLD_SIZE", 1, 10**6, default=str(world_size()))


def _number(name: str, least: int, most: int, default: str = "") -> int:
    text = os.environ.get(name, default)
    if not (text.isascii() and text.isdigit() and least <= int(text[:20]) <= most):
        raise ValueError(f"the launcher's variable {name} is {text[:50]!r}, expected a number from {least} to {most}")
    return int(text)


def is_torchrun() -> bool:
    """Return True if the launcher is torchrun, which stays until its processes have ended."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def torchrun_command() -> str:
    """Return the command that starts this module again with torchrun: on one machine in full."""
    if os.environ.get("GROUP_WORLD_SIZE") != "1":
        return "torchrun OPTIONS -m minitransformer"
    return f"torchrun --standalone --nproc-per-node {os.environ.get('LOCAL_WORLD_SIZE')} -m minitransformer"


def meet(dist: Any, place: Place, backend: str, timeout: float) -> Any:
    """Return the store that all processes see, once all have come; `dist` is `torch.distributed`, which then can send.

    Raises LostError if they do not come within `timeout` seconds.
    """
    limit = timedelta(seconds=timeout)
    try:
        store = next(dist.rendezvous("env://", timeout=limit))[0]
        store = dist.PrefixStore(_session(store, place.rank, place.size, timeout), store)
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise LostError(f"the processes did not find each other: {error}") from None
    return store


def _session(store: Any, rank: int, size: int, timeout: float) -> str:
    """Return a name for this start of the processes, the same in all of them.

    When torchrun starts them again, its store still holds the addresses of those before. So each says hello by a new
    name, and the first one tells everybody its own until all have come in. Raises RuntimeError after `timeout` seconds.
    """
    name, deadline = uuid4().hex, time.monotonic() + timeout
    store.set(f"hello/{rank}", name)
    if rank:
        store.wait([f"welcome/{name}"], timedelta(seconds=timeout))
        found = store.get(f"welcome/{name}").decode()
        store.set(f"in/{found}/{rank}", "")
        return found
    missing = set(range(1, size))
    while missing:
        for other in sorted(missing):
            if store.check([f"hello/{other}"]):
                store.set(f"welcome/{store.get(f'hello/{other}').decode()}", name)
            if store.check([f"in/{name}/{other}"]):
                missing.remove(other)
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {timeout:g} s for {named(missing)}")
        time.sleep(0.02)
    return name


def named(ranks: Iterable[int]) -> str:
    """Return a text such as `process 3` or `processes 1, 3`."""
    names = sorted(ranks)
    return f"process{'es' if len(names) > 1 else ''} {', '.join(map(str, names))}"


def facts_of(model: Model[Any]) -> dict[str, Any]:
    """Return the facts that make a model's results: backend, versions of libraries, configuration, parameters."""
    data, ops = model.parameters.data, model.ops
    library = sys.modules[type(data).__module__.partition(".")[0]]  # NumPy or PyTorch
    versions = {"minitransformer": __version__, "numpy": np.__version__, library.__name__: library.__version__}
    activations = str(ops.activations(data[:1]).dtype).removeprefix("torch.")
    device = getattr(getattr(data, "device", None), "type", "cpu")  # without a GPU's number, which may differ
    return {
        "backend": f"{ops.layernorm.forward.__module__.rpartition('.')[0]} on {device}, {activations}",
        "version": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "configuration": model.config.to_dict(),
        "checksum of the parameters": zlib.crc32(ops.to_numpy(data).tobytes()),
    }


def disagreement(facts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a sentence that names the first fact in which two processes differ, or None; facts are by rank.

    A fact that is a mapping, such as the settings, is compared field by field.
    """
    first, *others = (dict(_flat(each)) for each in facts)
    for rank, theirs in enumerate(others, 1):
        for path in {**first, **theirs}:
            if theirs.get(path) != first.get(path):
                said = f"{_shown(theirs.get(path))}, not {_shown(first.get(path))}"
                return f"process {rank} has another {path[-1]} than process 0: {said}"
    return None


def _flat(facts: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, fact in facts.items():
        if isinstance(fact, Mapping):
            yield from _flat(fact, (*path, name))
        else:
            yield (*path, name), fact


def _shown(fact: Any) -> str:
    return fact if isinstance(fact, str) else shortened(fact)
