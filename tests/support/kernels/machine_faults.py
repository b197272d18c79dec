"""Kernels with faults, executed as machine code: `python machine_faults.py` prints what was said of each, as JSON.

It runs in a process of its own, since in the tests' Triton interprets.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def doubles(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Nothing is wrong."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + place, 2 * tl.load(x_ptr + place, place < n), place < n)


@triton.jit
def doubles_without_a_mask(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """The last program reads and writes beyond the tensors."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + place, 2 * tl.load(x_ptr + place))


@triton.jit
def reverses_in_memory(x_ptr, y_ptr, n, BLOCK: tl.constexpr, BARRIER: tl.constexpr):
    """A thread reads what a thread of another wave wrote; only with a barrier it has been written."""
    place = tl.arange(0, BLOCK)
    tl.store(y_ptr + place, tl.load(x_ptr + place))
    if BARRIER:
        tl.debug_barrier()
    reverse = tl.load(y_ptr + BLOCK - 1 - place)
    if BARRIER:
        tl.debug_barrier()
    tl.store(y_ptr + place, reverse)


@triton.jit
def adds_to_one_place(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """All programs add to the same number, without an atomic addition."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + place, place < n, other=0.0))
    tl.store(y_ptr, tl.load(y_ptr) + total)


@triton.jit
def reads_a_neighbour(x_ptr, y_ptr, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Each program writes a block, and reads the one that another program writes."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + place, tl.load(x_ptr + place, place < n), place < n)
    other = place + STEP * BLOCK
    tl.store(x_ptr + place, tl.load(y_ptr + other, (other >= 0) & (other < n)), place < n)


@triton.jit
def writes_to_one_place(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """The threads of one wave write different numbers to the same place."""
    place = tl.arange(0, BLOCK)
    tl.store(y_ptr + place * 0, tl.load(x_ptr + place))


@triton.jit
def adds_atomically(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """An instruction that the executor does not know."""
    place = tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + place, tl.load(x_ptr + place))


FAULTS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "none": (doubles, 3, {}),
    "no mask": (doubles_without_a_mask, 3, {}),
    "no barrier": (reverses_in_memory, 1, {"BARRIER": False}),
    "a barrier": (reverses_in_memory, 1, {"BARRIER": True}),
    "a sum of programs": (adds_to_one_place, 3, {}),
    "reads an earlier program": (reads_a_neighbour, 3, {"STEP": -1}),
    "reads a later program": (reads_a_neighbour, 3, {"STEP": 1}),
    "lanes disagree": (writes_to_one_place, 1, {}),
    "unknown": (adds_atomically, 1, {}),
}


def main() -> None:
    """Execute each kernel on 300 numbers, and say what came of it."""
    from kernels.machine import Fault, Unknown, emulating

    said: dict[str, str] = {}
    for name, (kernel, programs, options) in FAULTS.items():
        x, y = torch.arange(300.0), torch.zeros(300)
        expected = 2 * x if programs > 1 else torch.cat([x[:128].flip(0), y[128:]])
        try:
            with emulating():
                kernel[(programs,)](x, y, 300, BLOCK=128, num_warps=4, **options)
        except (Fault, Unknown) as error:
            said[name] = str(error)
        else:
            said[name] = "right" if torch.equal(y, expected) else "wrong"
    try:
        alone: Any = doubles
        alone[(3,)](torch.zeros(300), torch.zeros(300), 300, BLOCK=128)
    except (RuntimeError, ValueError) as error:
        said["afterwards"] = f"{error}, {len(doubles.device_caches)} compiled"
    print(json.dumps(said))


@cache
def said() -> dict[str, str]:
    """By fault, what the executor said, or whether the result was right."""
    return in_a_process(__file__)


def in_a_process(*command: str) -> Any:
    """Return the JSON that a script prints in a process without Triton's interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
