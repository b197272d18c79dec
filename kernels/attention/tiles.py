"""The tiles of the attention kernels, for each kind of GPU that a learner may have.

A tile's rows are what a program owns and keeps in registers (queries; for dkey and dvalue keys), its columns what it
visits block by block. The first of a table's tiles is the default; tuning tries them all. They were found by compiling:
they fit the device's shared memory, and the compiler makes them without spilling registers, except where a comment
says that none does. The hashes of dropout need registers too: where that shows, a kernel has a second list for it.
"""

from functools import cache

import torch

from ..tuning import KIBIBYTE, Capability, Tile

WIDEST = 256
"""Head widths: beyond, not even the smallest tile would do."""

SMALLEST = 16
"""The fewest rows and columns that `tl.dot` takes."""

TABLES: dict[str, dict[tuple[str, int], list[tuple[int, int, int, int]]]] = {
    # Products of warp groups (wgmma, tcgen05) and 227 KiB: operands stay in shared memory, registers hold results.
    "hopper": {
        ("forward", 64): [(128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 3), (64, 128, 4, 2)],
        ("forward", 128): [(128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3), (64, 64, 4, 2)],
        ("forward", 256): [(128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 8, 2), (64, 32, 4, 2)],
        ("dquery", 64): [(128, 64, 8, 3), (128, 64, 4, 2), (128, 128, 8, 2), (64, 64, 4, 3)],
        ("dquery", 128): [(128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3)],
        ("dquery", 256): [(128, 32, 8, 2), (64, 64, 8, 2), (32, 64, 4, 2)],
        ("dkey_dvalue", 64): [(128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (64, 64, 8, 3), (128, 32, 8, 3)],
        ("dkey_dvalue", 128): [(128, 64, 8, 2), (128, 32, 8, 3), (128, 32, 8, 2), (64, 64, 8, 2)],
        ("dkey_dvalue", 256): [(64, 16, 8, 2), (32, 64, 8, 2), (32, 32, 8, 2)],
        ("forward with dropout", 128): [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3)],
        ("dquery with dropout", 64): [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3)],
        ("dquery with dropout", 256): [(128, 32, 8, 2)],
        ("dkey_dvalue with dropout", 128): [(128, 32, 8, 3), (128, 32, 8, 2), (64, 64, 8, 2)],
        ("dkey_dvalue with dropout", 256): [(32, 64, 8, 2), (32, 32, 8, 2)],
    },
    # Products of warps (mma.sync). An A100 has 163 KiB, …
    "ampere": {
        ("forward", 64): [(128, 64, 8, 3), (128, 64, 4, 3), (128, 32, 4, 4), (64, 64, 4, 3)],
        ("forward", 128): [(128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 8, 3)],
        ("forward", 256): [(32, 128, 8, 2), (32, 64, 4, 2), (16, 64, 4, 2)],
        ("dquery", 64): [(128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3)],
        ("dquery", 128): [(64, 64, 8, 2), (128, 64, 8, 2), (64, 32, 4, 3)],
        ("dquery", 256): [(64, 64, 8, 2), (16, 64, 4, 2)],
        ("dkey_dvalue", 64): [(128, 32, 8, 3), (128, 64, 8, 2), (64, 32, 4, 3), (32, 64, 4, 3)],
        ("dkey_dvalue", 128): [(64, 64, 8, 2), (64, 64, 8, 3), (32, 128, 8, 2), (32, 32, 4, 3)],
        ("dkey_dvalue", 256): [(32, 64, 8, 2), (64, 64, 8, 2), (32, 32, 8, 2)],
        ("forward with dropout", 128): [(128, 32, 8, 3), (64, 64, 8, 3)],
        ("dquery with dropout", 256): [(16, 64, 4, 2)],
        ("dkey_dvalue with dropout", 256): [(32, 32, 8, 2)],
    },
    # … an RTX 30, 40 or 50 has 99.
    "consumer": {
        ("forward", 64): [(128, 64, 4, 3), (128, 64, 8, 3), (128, 32, 4, 4), (64, 64, 4, 3)],
        ("forward", 128): [(128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 8, 2), (64, 32, 4, 3)],
        ("forward", 256): [(32, 64, 4, 2), (16, 64, 4, 2)],
        ("dquery", 64): [(128, 64, 8, 2), (64, 64, 4, 3), (128, 32, 4, 3)],
        ("dquery", 128): [(64, 64, 8, 2), (128, 32, 8, 2), (64, 32, 4, 2)],
        ("dquery", 256): [(32, 32, 8, 2), (16, 64, 4, 2)],
        ("dkey_dvalue", 64): [(128, 32, 8, 2), (64, 32, 4, 3), (32, 64, 4, 3)],
        ("dkey_dvalue", 128): [(64, 64, 8, 2), (32, 32, 4, 3), (32, 32, 4, 2)],
        ("dkey_dvalue", 256): [(32, 32, 8, 2)],
        ("forward with dropout", 64): [(128, 64, 8, 3), (64, 64, 4, 3)],
        ("forward with dropout", 128): [(128, 32, 8, 3), (64, 64, 8, 2)],
        ("forward with dropout", 256): [(16, 64, 4, 2)],
    },
    # float32 in full precision: no tensor cores. A thread holds whole rows and columns of its part of a product.
    "full": {
        ("forward", 64): [(32, 32, 8, 2), (32, 16, 8, 2), (16, 32, 8, 2)],
        ("forward", 128): [(32, 16, 8, 2), (64, 16, 8, 2), (16, 32, 8, 2)],
        ("forward", 256): [(16, 32, 8, 2), (16, 16, 8, 2)],
        ("dquery", 64): [(32, 32, 8, 2), (64, 16, 8, 2), (32, 16, 8, 2)],
        ("dquery", 128): [(32, 32, 8, 2), (32, 16, 8, 2), (16, 32, 8, 2)],
        ("dquery", 256): [(16, 16, 8, 2), (16, 16, 4, 2)],
        ("dkey_dvalue", 64): [(32, 16, 8, 2), (16, 32, 8, 2)],
        ("dkey_dvalue", 128): [(32, 16, 8, 2), (16, 32, 8, 2)],
        ("dkey_dvalue", 256): [(16, 16, 8, 2), (16, 32, 8, 2)],
        ("forward with dropout", 64): [(32, 32, 8, 2), (16, 32, 8, 2)],
        ("forward with dropout", 128): [(32, 16, 8, 2), (16, 32, 8, 2)],
        ("dkey_dvalue with dropout", 64): [(16, 32, 8, 2)],
    },
    # The same on a T4, in every dtype, and with 64 KiB. Backward, heads of 256 numbers spill in every tile, and in
    # float32 their dkey and dvalue want 1 KiB more than there is.
    "turing": {
        ("forward", 64): [(32, 16, 4, 1), (32, 32, 8, 1), (32, 16, 8, 1)],
        ("forward", 128): [(32, 16, 8, 1), (16, 16, 8, 1)],
        ("forward", 256): [(16, 16, 8, 1)],
        ("dquery", 64): [(32, 32, 8, 1), (32, 16, 4, 1), (16, 16, 8, 1)],
        ("dquery", 128): [(16, 16, 8, 1)],
        ("dquery", 256): [(16, 16, 8, 1)],
        ("dkey_dvalue", 64): [(32, 16, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1)],
        ("dkey_dvalue", 128): [(16, 16, 8, 1)],
        ("dkey_dvalue", 256): [(16, 16, 8, 1)],
        ("forward with dropout", 128): [(16, 16, 8, 1)],
    },
    # AMD's MI200 and MI300: 64 KiB, and 512 registers for a thread of a block of 4 warps.
    "cdna": {
        ("forward", 64): [(128, 64, 4, 1), (64, 64, 4, 1), (128, 64, 8, 1)],
        ("forward", 128): [(128, 64, 4, 1), (64, 64, 4, 1), (128, 64, 8, 1)],
        ("forward", 256): [(64, 64, 4, 1), (64, 32, 4, 1)],
        ("dquery", 64): [(128, 64, 4, 1), (64, 64, 4, 1)],
        ("dquery", 128): [(128, 64, 4, 1), (64, 64, 4, 1), (64, 32, 4, 1)],
        ("dquery", 256): [(64, 32, 4, 1), (32, 32, 4, 1)],
        ("dkey_dvalue", 64): [(64, 64, 4, 1), (64, 32, 4, 1)],
        ("dkey_dvalue", 128): [(64, 64, 4, 1), (64, 32, 4, 1), (32, 32, 4, 1)],
        ("dkey_dvalue", 256): [(64, 16, 4, 1), (32, 16, 4, 1)],
        ("dquery with dropout", 256): [(32, 32, 4, 1)],
        ("dkey_dvalue with dropout", 128): [(64, 32, 4, 1), (32, 32, 4, 1)],
    },
    # AMD's Radeons: 64 KiB. Backward, heads of more than 64 numbers spill in every tile of dkey and dvalue, and of
    # dquery heads of 256.
    "rdna": {
        ("forward", 64): [(64, 64, 4, 1), (128, 64, 8, 1), (64, 32, 4, 1)],
        ("forward", 128): [(64, 32, 8, 1), (32, 32, 4, 1), (32, 32, 8, 1)],
        ("forward", 256): [(16, 16, 4, 1)],
        ("dquery", 64): [(64, 32, 8, 1), (64, 32, 4, 1)],
        ("dquery", 128): [(32, 16, 4, 1)],
        ("dquery", 256): [(16, 16, 4, 1)],
        ("dkey_dvalue", 64): [(64, 16, 8, 1), (32, 16, 4, 1), (32, 32, 8, 1)],
        ("dkey_dvalue", 128): [(16, 16, 4, 1)],
        ("dkey_dvalue", 256): [(16, 16, 8, 1)],
    },
}

WITHOUT_TENSOR_CORES = ("full", "turing")

INTERPRETER = Tile(16, 16, 4, 1)
"""Small: so that short sequences have several blocks."""


def block_of(length: int) -> int:
    """The power of 2 that holds so many rows or columns, at least what `tl.dot` takes."""
    return max(1 << (length - 1).bit_length(), SMALLEST)


def family(device: Capability, dtype: torch.dtype, precision: str) -> str:
    """Whose tiles a kernel takes: a key of `TABLES`."""
    full = dtype == torch.float32 and precision == "ieee"
    if device.kind == "interpreter":
        return "interpreter"
    if device.kind == "hip":
        return "cdna" if str(device.arch).startswith("gfx9") else "turing" if full else "rdna"
    if int(device.arch) < 80:
        return "turing"
    if full:
        return "full"
    if 90 <= int(device.arch) < 120:
        return "hopper"
    return "ampere" if device.shared_memory >= 160 * KIBIBYTE else "consumer"


@cache
def candidates(name: str, family: str, width: int, itemsize: int, dropout: bool) -> tuple[Tile, ...]:
    """The tiles of a kernel for heads of `width` numbers, a power of 2; the default first."""
    if family == "interpreter":
        return (INTERPRETER,)
    table, width = TABLES[family], max(width, 64)
    tiles = (table.get((f"{name} with dropout", width)) if dropout else None) or table[name, width]
    if itemsize == 2 or family in WITHOUT_TENSOR_CORES:
        return tuple(Tile(*tile) for tile in tiles)
    # float32 on tensor cores: the tables are for numbers half as long.
    halves = ((max(rows // 2, SMALLEST), max(columns // 2, SMALLEST), *rest) for rows, columns, *rest in tiles)
    return tuple(Tile(*tile) for tile in halves)


def fitted(tile: Tile, family: str, num_rows: int, num_columns: int) -> Tile:
    """The tile cut down to short sequences: 20 queries need no block of 128."""
    rows, columns = min(tile.rows, block_of(num_rows)), min(tile.columns, block_of(num_columns))
    # A warp of a product on tensor cores takes 16 rows at least; without them more warps are fewer registers.
    cut_down = rows < min(tile.rows, 64) and family not in WITHOUT_TENSOR_CORES
    return Tile(rows, columns, min(tile.num_warps, 4) if cut_down else tile.num_warps, tile.num_stages)
