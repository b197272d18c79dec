"""Functions of both losses: blocks of rows of logits, and the groups of logits that a thread has."""

from math import gcd
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from .launch import row_block

ELEMENTS, WARPS = 4096, 8
"""Elements and warps of a program, which has a few rows or a block of one. A thread loads twice 8 elements, 16 bytes in
half precision, and keeps the maxima and sums of both: on an H200 81 to 91 % of a copy's speed, with 16 warps 73 to 83.
"""


@triton.jit
def multiple(n, of: tl.constexpr):
    """Return n, written so that the compiler knows `of` divides it; of an argument it knows at most that 16 does."""
    return n // of * of


@triton.jit
def load_logits(row_ptr, column, counted, V, PADDING: tl.constexpr, ALIGNED: tl.constexpr):
    """Load a block `(R, C)` of the rows at `row_ptr (R,)`, in float32; −∞ beyond V, and in rows that do not count.

    PADDING elements beyond V may be read too; their values are ignored.
    """
    readable = column < multiple(V + PADDING, ALIGNED)
    z = tl.load(row_ptr[:, None] + column[None, :], counted[:, None] & readable[None, :], other=-float("inf"))
    if PADDING:
        z = tl.where((column < V)[None, :], z, -float("inf"))
    return z.to(tl.float32)


@triton.jit
def in_groups(z, GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return a block `(R, C)` as `(R, K, |GROUP|)`: groups of neighbours, or if GROUP is negative, of elements K apart.

    A thread that loads 16 bytes at once has neighbours; one that loads number by number has numbers K apart.
    """
    if GROUP > 0:
        groups = tl.reshape(z, (ROWS, BLOCK // GROUP, GROUP))
    else:
        groups = tl.permute(tl.reshape(z, (ROWS, -GROUP, BLOCK // -GROUP)), (0, 2, 1))
    return groups


def row_arguments(
    rows: Tensor, ids: Tensor, label_smoothing: float, ignore_index: int | None, padding: int = 0
) -> dict[str, Any]:
    """Return the arguments of every kernel over rows of logits `(N, V)`, each row followed by `padding` elements.

    ALIGNED divides the starts and the ends of rows: 8 in half precision is 16 bytes, the largest load of a thread.
    """
    num_rows, vocab_size = rows.shape
    block = row_block(vocab_size + padding, ELEMENTS)
    return {
        "targets_ptr": ids, "num_rows": num_rows, "V": vocab_size, "stride": rows.stride(0),
        "label_smoothing": float(label_smoothing), "ignore_index": ignore_index,
        "ALIGNED": gcd(rows.stride(0), vocab_size + padding, 16),
        "ROWS": ELEMENTS // block, "BLOCK": block, "num_warps": WARPS,
    }  # fmt: skip


def group_of(rows: Tensor, arguments: dict[str, Any]) -> int:
    """Return GROUP: the logits that a thread loads at once; for long rows of odd width, minus those that it has."""
    at_once = min(gcd(arguments["ALIGNED"], 16 // rows.element_size()), arguments["BLOCK"])
    return -ELEMENTS // (32 * WARPS) if at_once == 1 and arguments["BLOCK"] == ELEMENTS else at_once
