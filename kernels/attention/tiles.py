"""The tiles of the attention kernels, for each kind of GPU that a learner may have.

A tile's rows are what a program owns and keeps in registers (queries; for dkey and dvalue keys), its columns what it
visits block by block. The first of a table's tiles is the default; tuning tries them all. They were found by compiling:
they fit the device's shared memory, and the compiler makes them without spilling registers, except where a comment
says that none does; `tests/kernels/test_compilation.py` lists what is left. What needs more registers has a second list
where that shows: "with masks" is for dropout and for heads that don't fill their block, "of unequal widths" for heads
whose values fill another block than their queries.
"""

from functools import cache

import torch
import triton

from ..tuning import KIBIBYTE, Capability, Tile

WIDEST = 256
"""Head widths: beyond, not even the smallest tile would do."""

SMALLEST = 16
"""The fewest rows and columns that `tl.dot` takes."""

BEFORE_3_7 = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7)
"""Whether this Triton is one whose code for Hopper needs tiles of its own."""

TABLES: dict[str, dict[tuple[str, int], list[tuple[int, int, int, int]]]] = {
    # Products of warp groups (wgmma, tcgen05) and 227 KiB: operands stay in shared memory, registers hold results.
    "hopper": {
        ("forward", 64): [(128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 3), (64, 128, 4, 2)],
        ("forward", 128): [(128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3), (64, 64, 4, 2)],
        ("forward", 256): [(128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 8, 2), (64, 32, 4, 2)],
        ("dquery", 64): [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3)],
        ("dquery", 128): [(128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3)],
        ("dquery", 256): [(128, 32, 8, 2), (64, 64, 8, 2), (32, 64, 4, 2)],
        ("dkey_dvalue", 64): [(128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (64, 64, 8, 3), (128, 32, 8, 3)],
        ("dkey_dvalue", 128): [(128, 64, 8, 2), (128, 32, 8, 3), (128, 32, 8, 2), (64, 64, 8, 2)],
        ("dkey_dvalue", 256): [(64, 16, 8, 2), (32, 64, 8, 2), (32, 32, 8, 2)],
        ("forward with masks", 64): [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (64, 128, 4, 2)],
        ("forward with masks", 128): [(128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3)],
        ("dquery with masks", 256): [(128, 32, 8, 2)],
        ("dkey_dvalue with masks", 128): [(128, 32, 8, 3), (128, 32, 8, 2), (64, 64, 8, 2)],
        ("dkey_dvalue with masks", 256): [(32, 64, 8, 2), (32, 32, 8, 2)],
    },
    # Triton 3.6 where it differs: with two stages of dkey and dvalue each product waits for the one before.
    "hopper before Triton 3.7": {
        ("dquery with masks", 128): [(128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 4, 2)],
        ("dkey_dvalue", 64): [(128, 64, 8, 3), (64, 64, 8, 3), (128, 32, 8, 3), (64, 32, 4, 3)],
        ("dkey_dvalue", 128): [(128, 32, 8, 3), (64, 64, 8, 3), (64, 32, 4, 3), (64, 32, 8, 3)],
        ("dkey_dvalue", 256): [(64, 16, 8, 3), (32, 64, 8, 2), (32, 32, 8, 2)],
        ("dkey_dvalue with masks", 128): [(128, 32, 8, 3), (64, 32, 8, 3), (128, 16, 8, 3)],
    },
    "hopper in tf32": {
        ("forward", 64): [(128, 64, 8, 2), (64, 32, 4, 3), (64, 64, 8, 2)],
        ("forward", 128): [(128, 64, 8, 2), (128, 32, 8, 2), (64, 64, 8, 2)],
        ("forward", 256): [(64, 32, 8, 2), (64, 16, 8, 2), (32, 32, 8, 2)],
        ("dquery", 64): [(64, 32, 8, 3), (64, 64, 8, 2), (64, 32, 4, 2)],
        ("dquery", 128): [(64, 32, 8, 2), (64, 16, 8, 3), (32, 32, 8, 2), (64, 16, 4, 2)],
        ("dquery", 256): [(32, 32, 8, 2), (32, 16, 8, 2), (16, 16, 4, 2)],
        ("dkey_dvalue", 64): [(64, 32, 8, 2), (64, 32, 8, 3), (32, 32, 4, 2)],
        ("dkey_dvalue", 128): [(32, 64, 8, 2), (32, 32, 8, 2), (32, 32, 4, 2)],
        ("dkey_dvalue", 256): [(32, 32, 8, 2), (32, 16, 8, 2), (16, 16, 4, 2)],
    },
    # A B200 where it differs.
    "blackwell": {
        ("forward", 64): [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (64, 128, 4, 2)],
        ("forward", 128): [(128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3)],
        ("dquery with masks", 64): [(128, 64, 8, 3), (64, 64, 4, 3)],
        ("dkey_dvalue with masks", 64): [(128, 64, 8, 2), (64, 64, 4, 2), (64, 64, 8, 3), (128, 32, 8, 3)],
    },
    # Products of warps (mma.sync). An A100 has 163 KiB, …
    "ampere": {
        ("forward", 64): [(128, 64, 8, 3), (128, 32, 4, 4), (64, 64, 4, 3)],
        ("forward", 128): [(128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 8, 3)],
        ("forward", 256): [(32, 128, 8, 2), (16, 64, 4, 2)],
        ("dquery", 64): [(128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3)],
        ("dquery", 128): [(64, 64, 8, 2), (64, 32, 4, 3)],
        ("dquery", 256): [(64, 64, 8, 2)],
        ("dkey_dvalue", 64): [(128, 32, 8, 3), (64, 32, 4, 3), (32, 64, 4, 3)],
        ("dkey_dvalue", 128): [(64, 64, 8, 2), (64, 64, 8, 3), (32, 128, 8, 2), (32, 32, 4, 3)],
        ("dkey_dvalue", 256): [(32, 64, 8, 2), (32, 32, 8, 2)],
        ("forward with masks", 128): [(128, 32, 8, 3), (64, 64, 8, 3)],
        ("dquery with masks", 64): [(128, 64, 8, 3), (64, 64, 4, 3)],
        ("dquery with masks", 256): [(32, 32, 8, 2), (16, 32, 4, 2)],
        ("dkey_dvalue with masks", 256): [(32, 32, 8, 2)],
        ("dquery of unequal widths", 128): [(64, 64, 8, 2)],
        ("dkey_dvalue of unequal widths", 128): [(32, 64, 8, 2), (32, 32, 4, 3)],
    },
    # … an RTX 30, 40 or 50 has 99.
    "consumer": {
        ("forward", 64): [(128, 64, 4, 3), (128, 64, 8, 3), (128, 32, 4, 4), (64, 64, 4, 3)],
        ("forward", 128): [(128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 8, 2), (64, 32, 4, 3)],
        ("forward", 256): [(32, 64, 4, 2), (16, 64, 4, 2)],
        ("dquery", 64): [(128, 64, 8, 2), (64, 64, 4, 3), (128, 32, 4, 3)],
        ("dquery", 128): [(64, 64, 8, 2), (128, 32, 8, 2), (64, 32, 4, 2)],
        ("dquery", 256): [(32, 32, 8, 2)],
        ("dkey_dvalue", 64): [(128, 32, 8, 2), (64, 32, 4, 3), (32, 64, 4, 3)],
        ("dkey_dvalue", 128): [(64, 64, 8, 2), (32, 32, 4, 2)],
        ("dkey_dvalue", 256): [(32, 32, 8, 2)],
        ("dquery with masks", 64): [(128, 64, 8, 2), (64, 64, 4, 3)],
        ("dkey_dvalue with masks", 64): [(128, 32, 8, 2), (64, 32, 4, 3)],
        ("forward with masks", 64): [(128, 64, 8, 3), (64, 64, 4, 3)],
        ("forward with masks", 128): [(128, 32, 8, 3), (64, 64, 8, 2)],
        ("forward with masks", 256): [(16, 64, 4, 2)],
        ("dkey_dvalue of unequal widths", 128): [(32, 64, 8, 2), (32, 32, 4, 3)],
    },
    # float32 in full precision: no tensor cores. A thread holds whole rows and columns of its part of a product.
    "full": {
        ("forward", 64): [(32, 32, 8, 2), (32, 16, 8, 2), (16, 32, 8, 2)],
        ("forward", 128): [(32, 16, 8, 2), (64, 16, 8, 2), (16, 32, 8, 2)],
        ("forward", 256): [(16, 32, 8, 2), (16, 16, 8, 2)],
        ("dquery", 64): [(32, 32, 8, 2), (64, 16, 8, 2), (32, 16, 8, 2)],
        ("dquery", 128): [(32, 16, 8, 2)],
        ("dquery", 256): [(16, 16, 8, 2), (16, 16, 4, 2)],
        ("dkey_dvalue", 64): [(32, 16, 8, 2), (16, 32, 8, 2)],
        ("dkey_dvalue", 128): [(32, 16, 8, 2), (16, 32, 8, 2)],
        ("dkey_dvalue", 256): [(16, 16, 8, 2), (16, 32, 8, 2)],
        ("forward with masks", 64): [(32, 32, 8, 2), (16, 32, 8, 2)],
        ("forward with masks", 128): [(32, 16, 8, 2), (16, 32, 8, 2)],
        ("dquery with masks", 64): [(32, 16, 8, 2)],
        ("dkey_dvalue with masks", 64): [(16, 16, 4, 2), (16, 32, 4, 2)],
        ("dkey_dvalue with masks", 128): [(16, 16, 4, 2)],
    },
    # A T4 has 64 KiB, and no tensor cores that Triton uses in any dtype. Backward, heads wider than 128 spill in every
    # tile, in two warps the most: but with more, dkey and dvalue in float32 want 1 KiB more than there is.
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
        ("forward with masks", 128): [(16, 16, 8, 1)],
    },
    "turing in float32": {
        ("forward", 64): [(32, 16, 4, 1), (32, 32, 8, 1), (32, 16, 8, 1)],
        ("forward", 128): [(16, 16, 8, 1)],
        ("forward", 256): [(16, 16, 8, 1)],
        ("dquery", 64): [(32, 32, 8, 1), (32, 16, 4, 1), (16, 16, 8, 1)],
        ("dquery", 128): [(16, 16, 8, 1)],
        ("dquery", 256): [(16, 16, 8, 1)],
        ("dkey_dvalue", 64): [(32, 16, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1)],
        ("dkey_dvalue", 128): [(16, 16, 16, 1), (16, 16, 8, 1)],
        ("dkey_dvalue", 256): [(16, 16, 2, 1)],
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
        ("dquery with masks", 256): [(32, 32, 4, 1)],
        ("dkey_dvalue with masks", 128): [(64, 32, 4, 1), (32, 32, 4, 1)],
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
    # In float32, which WMMA has not, as a T4 but for this.
    "rdna in float32": {
        ("dkey_dvalue", 256): [(16, 16, 8, 1)],
    },
}

TABLES["hopper before Triton 3.7"] = TABLES["hopper"] | TABLES["hopper before Triton 3.7"]
TABLES["blackwell"] = TABLES["hopper"] | TABLES["blackwell"]
TABLES["rdna in float32"] = TABLES["turing in float32"] | TABLES["rdna in float32"]

WITHOUT_TENSOR_CORES = ("full", "turing", "turing in float32", "rdna in float32")
FOR_FLOAT32 = (*WITHOUT_TENSOR_CORES, "hopper in tf32")

INTERPRETER = Tile(16, 16, 4, 1)
"""Small: so that short sequences have several blocks."""


def block_of(length: int) -> int:
    """The power of 2 that holds so many rows or columns, at least what `tl.dot` takes."""
    return max(1 << (length - 1).bit_length(), SMALLEST)


def whole(width: int) -> int:
    """A head's width rounded up to a multiple of 16."""
    return -(-width // SMALLEST) * SMALLEST


def blocks_of(D: int, DV: int) -> tuple[int, int]:
    """The powers of 2 that hold the two widths, neither less than half the other: with such the compiler spills."""
    block_d, block_dv = block_of(D), block_of(DV)
    return max(block_d, block_dv // 2), max(block_dv, block_d // 2)


def usable(precision: str, device: Capability, dtype: torch.dtype) -> str:
    """The precision of float32 products: "tf32" is a permission, of use only to NVIDIA's GPUs since the A100."""
    nvidia = device.kind == "cuda" and int(device.arch) >= 80
    return precision if dtype == torch.float32 and (nvidia or device.kind == "interpreter") else "ieee"


def family(device: Capability, dtype: torch.dtype, precision: str) -> str:
    """Whose tiles a kernel takes: a key of `TABLES`. The precision is a usable one."""
    full = dtype == torch.float32 and precision == "ieee"
    if device.kind == "interpreter":
        return "interpreter"
    if device.kind == "hip":
        return "cdna" if str(device.arch).startswith("gfx9") else f"rdna{' in float32' if full else ''}"
    if int(device.arch) < 80:
        return "turing in float32" if full else "turing"
    if full:
        return "full"
    if 90 <= int(device.arch) < 120:
        if dtype == torch.float32:
            return "hopper in tf32"
        return "blackwell" if int(device.arch) >= 100 else f"hopper{' before Triton 3.7' if BEFORE_3_7 else ''}"
    return "ampere" if device.shared_memory >= 160 * KIBIBYTE else "consumer"


@cache
def candidates(name: str, family: str, D: int, DV: int, itemsize: int, dropout: bool, room: int) -> list[Tile]:
    """The tiles of a kernel for these widths and numbers of so many bytes, the default first.

    `room` is the GPU's shared memory for a program. Raises `ValueError` where it does for none of the tiles.
    """
    if family == "interpreter":
        return [INTERPRETER]
    blocks = blocks_of(D, DV)
    table, width = TABLES[family], max(*blocks, 64)
    variants = [name]
    if dropout or blocks != (whole(D), whole(DV)):
        variants.insert(0, f"{name} with masks")
    if blocks[0] != blocks[1]:
        variants.insert(0, f"{name} of unequal widths")
    tiles = [Tile(*tile) for tile in next(table[key, width] for key in variants if (key, width) in table)]
    if itemsize == 4 and family not in FOR_FLOAT32:  # the tables are for numbers half as long
        tiles = [Tile(max(rows // 2, SMALLEST), max(columns // 2, SMALLEST), *rest) for rows, columns, *rest in tiles]
    fitting = [tile for tile in tiles if loaded_ahead(tile, blocks, itemsize) <= room]
    if not fitting:
        raise ValueError(f"heads {max(D, DV)} wide need more than this GPU's {room // KIBIBYTE} KiB of shared memory")
    return fitting


def loaded_ahead(tile: Tile, blocks: tuple[int, int], itemsize: int) -> int:
    """Bytes of the blocks that are on their way while another is worked at: the least that a program needs."""
    return (tile.num_stages - 1) * tile.columns * sum(blocks) * itemsize


def fitted(tile: Tile, family: str, num_rows: int, num_columns: int) -> Tile:
    """The tile cut down to short sequences: 20 queries need no block of 128."""
    rows, columns = min(tile.rows, block_of(num_rows)), min(tile.columns, block_of(num_columns))
    # A warp of a product on tensor cores takes 16 rows at least; without them more warps are fewer registers.
    cut_down = rows < min(tile.rows, 64) and family not in WITHOUT_TENSOR_CORES
    return Tile(rows, columns, min(tile.num_warps, 4) if cut_down else tile.num_warps, tile.num_stages)
