"""Proves every op as machine code, and records each proof.

The cases are those of the interpreter and of the GPU (`kernels.proof.cases`), in float32, float16 and bfloat16, within
the same bounds. `kernels/results/machine.json` keeps for each op and dtype the hash of the instructions that were
executed. Instructions that have not changed need not be executed again.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .. import KERNELS
from ..proof import checks, ledger
from ..proof.ledger import DTYPES, MANIFEST, RESULTS, current
from ..proof.pretending import pretending
from .assembly import parse
from .launch import TARGET, emulating

Entry = dict[str, Any]


class Pair(NamedTuple):
    """An op in one dtype."""

    op: str
    dtype: str


PAIRS = tuple(Pair(op, dtype) for op in KERNELS for dtype in DTYPES)


def prove(pair: Pair, order: str = "together", seed: int = 0) -> Entry:
    """Execute all cases of an op in a dtype. Raises `Refused` if a bound does not hold or the machine faults."""
    with emulating(order, seed) as emulation, one_thread():
        worst = checks.check(pair.op, getattr(torch, pair.dtype))
    return worst | {
        "assembly": _hash(launch.program.hash for launch in emulation.launches),
        "launches": len(emulation.launches),
        "instructions": sum(launch.instructions for launch in emulation.launches),
    }


def assembly_of(pair: Pair) -> str:
    """Return the hash of the instructions that `prove` would execute; the kernels are only compiled."""
    hashes: list[str] = []
    with pretending(TARGET, then=lambda _, kernel, *__: hashes.append(parse(kernel.asm["amdgcn"]).hash)), one_thread():
        for case in checks.chosen(pair.op, getattr(torch, pair.dtype)):
            checks.launched(pair.op, case, getattr(torch, pair.dtype), "cpu")
    return _hash(hashes)


def _hash(hashes: Iterable[str]) -> str:
    """Return one hash of all kernels that are launched, each counted once."""
    return hashlib.sha256(repr(sorted(set(hashes))).encode()).hexdigest()[:16]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute with one thread inside the block, so that other proofs can run beside it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- The manifest -----------------------------------------------------------------------------------------------


def write(ops: dict[str, Any], folder: Path = RESULTS) -> None:
    """Write the proofs to the manifest."""
    import triton

    ledger.write(folder / MANIFEST, {"triton": triton.__version__, "target": TARGET, "ops": ops})


def entry_of(op: str, found: dict[str, Entry]) -> Entry:
    """Return an op's entry in the manifest: the hash of its source, the day, and the result in each dtype."""
    return {"hash": current(op), "date": date.today().isoformat(), "dtypes": found}


def stale(known: dict[str, Any], pairs: Iterable[Pair] = PAIRS) -> Iterator[Pair]:
    """Yield the pairs whose instructions are not those that were proved.

    If an op's source has changed but none of its instructions have, `known` gets the hash of the new source.
    """
    for op, same in groupby(pairs, key=lambda pair: pair.op):
        entry = known.get(op, {"dtypes": {}})
        changed = [pair for pair in same if entry["dtypes"].get(pair.dtype, {}).get("assembly") != assembly_of(pair)]
        if not changed and set(entry["dtypes"]) == set(DTYPES):
            entry["hash"] = current(op)
        yield from changed


def sample(count: int) -> list[Pair]:
    """Choose some pairs, others whenever a kernel changes, to be executed although their instructions are proved."""
    code = [current(op) for op in KERNELS]
    return sorted(PAIRS, key=lambda pair: hashlib.sha256(f"{pair} {code}".encode()).digest())[:count]
