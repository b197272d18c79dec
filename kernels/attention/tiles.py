"""The tiles of the attention kernels, for each kind of GPU that a learner may have.

The rows of a tile are those that a program owns and keeps in registers (queries; for dkey and dvalue keys); its columns
are those that it visits block by block. The first tile of a list is the default; tuning tries them all. They were found
by compiling: they fit the device's shared memory, and the compiler does not spill registers, unless a comment says that
it spills with every tile; `tests/kernels/test_compilation.py` lists the exceptions. Some kernels have a second list for
cases that need more registers: "with masks" is for dropout and for heads that don't fill their block, "of unequal
widths" for heads whose values need another block than their queries.
"""

from functools import cache

import torch

from ..tuning import KIBIBYTE, Capability, Tile

WIDEST = 256
"""The widest head; wider heads do not fit even with the smallest tile."""

SMALLEST = 16
"""The fewest rows and columns that `tl.dot` takes."""

TILES: dict[str, dict[tuple[str, int], list[tuple[int, ...]]]] = {
    # Warp groups compute products (wgmma, tcgen05) with 227 KiB: operands stay in shared memory, results in registers.
    "hopper": {
        ("forward", 64): [
            (128, 64, 8, 3),
            (128, 64, 8, 3, True),
            (128, 128, 8, 2),
            (128, 128, 8, 2, True),
            (64, 64, 4, 3),
        ],
        ("forward", 128): [
            (128, 64, 8, 3),
            (128, 64, 8, 3, True),
            (128, 128, 8, 2, True),
            (128, 64, 8, 2),
            (64, 64, 4, 3),
        ],
        ("forward", 256): [(128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 8, 2), (64, 32, 4, 2)],
        ("dquery", 64): [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3)],
        ("dquery", 128): [(128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3)],
        ("dquery", 256): [(128, 32, 8, 2), (64, 64, 8, 2), (32, 64, 4, 2)],
        ("dkey_dvalue", 64): [(128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 8, 3), (128, 32, 8, 3), (64, 64, 4, 2)],
        ("dkey_dvalue", 128): [(128, 32, 8, 3), (128, 64, 8, 2), (64, 64, 8, 3), (64, 32, 4, 3)],
        ("dkey_dvalue", 256): [(64, 16, 8, 3), (64, 16, 8, 2), (32, 64, 8, 2), (32, 32, 8, 2)],
        ("forward with masks", 64): [(128, 64, 8, 3), (128, 64, 8, 3, True), (128, 128, 8, 2), (64, 64, 4, 3)],
        ("forward with masks", 128): [(128, 64, 8, 3), (128, 64, 8, 3, True), (128, 64, 8, 2), (64, 64, 4, 3)],
        ("dquery with masks", 128): [(128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 4, 2)],
        ("dquery with masks", 256): [(128, 32, 8, 2)],
        ("dkey_dvalue with masks", 128): [(128, 32, 8, 3), (64, 32, 8, 3), (64, 64, 8, 2), (128, 16, 8, 3)],
        ("dkey_dvalue with masks", 256): [(32, 64, 8, 2), (32, 32, 8, 2)],
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
    # Lists that differ on a B200.
    "blackwell": {
        ("forward", 64): [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (64, 128, 4, 2)],
        ("forward", 128): [(128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3)],
        ("forward with masks", 64): [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (64, 128, 4, 2)],
        ("forward with masks", 128): [(128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3)],
        ("dquery with masks", 64): [(128, 64, 8, 3), (64, 64, 4, 3)],
        ("dkey_dvalue with masks", 64): [(128, 64, 8, 2), (64, 64, 4, 2), (64, 64, 8, 3), (128, 32, 8, 3)],
    },
    # Warps compute products (mma.sync). An A100 has 163 KiB, …
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
        ("forward", 128): [(32, 16, 8, 2), (16, 32, 8, 2)],
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
    # A T4 has 64 KiB, and no tensor cores that Triton can use. In the backward, heads wider than 128 spill with every
    # tile, and most with two warps; but with more warps dkey and dvalue in float32 need 1 KiB more than there is.
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
    # Tiles for float32 that differ from these.
    "turing in float32": {
        ("forward", 128): [(16, 16, 8, 1)],
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
    # AMD's Radeons: 64 KiB. In the backward, dkey and dvalue spill with every tile for heads wider than 64, and dquery
    # for heads of 256.
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
    # WMMA has no float32: its tiles are those of a T4, except for these.
    "rdna in float32": {
        ("dkey_dvalue", 256): [(16, 16, 8, 1)],
    },
}

DIFFERS_FROM = {
    "blackwell": "hopper",
    "turing in float32": "turing",
    "rdna in float32": "turing in float32",
}
"""The family whose tiles a family shares, except those that `TILES` lists for it."""


def whole_table(family: str) -> dict[tuple[str, int], list[Tile]]:
    """Return all tiles of a family."""
    own = {key: [Tile(*tile) for tile in listed] for key, listed in TILES[family].items()}
    return own if family not in DIFFERS_FROM else whole_table(DIFFERS_FROM[family]) | own


TABLES = {family: whole_table(family) for family in TILES}

WITHOUT_TENSOR_CORES = ("full", "turing", "turing in float32", "rdna in float32")
FOR_FLOAT32 = (*WITHOUT_TENSOR_CORES, "hopper in tf32")

INTERPRETER = Tile(16, 16, 4, 1)
"""A small tile, so that even short sequences have several blocks."""


def block_of(length: int) -> int:
    """Return the smallest power of 2 that holds this many rows or columns, and that `tl.dot` accepts."""
    return max(1 << (length - 1).bit_length(), SMALLEST)


@cache
def whole(width: int) -> int:
    """Return a head's width rounded up to a multiple of 16."""
    return -(-width // SMALLEST) * SMALLEST


@cache
def blocks_of(D: int, DV: int) -> tuple[int, int]:
    """Return the powers of 2 that hold the two widths; neither is less than half the other, or registers spill."""
    block_d, block_dv = block_of(D), block_of(DV)
    return max(block_d, block_dv // 2), max(block_dv, block_d // 2)


def usable(precision: str, device: Capability, dtype: torch.dtype) -> str:
    """Return the precision of products: "tf32" is only a permission, which NVIDIA's GPUs use since the A100."""
    nvidia = device.kind == "cuda" and int(device.arch) >= 80
    return precision if dtype == torch.float32 and (nvidia or device.kind == "interpreter") else "ieee"


def family(device: Capability, dtype: torch.dtype, precision: str) -> str:
    """Return the key of `TABLES` with the tiles for a device. The precision is one that `usable` returned."""
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
        return "blackwell" if int(device.arch) >= 100 else "hopper"
    return "ampere" if device.shared_memory >= 160 * KIBIBYTE else "consumer"


@cache
def candidates(
    name: str, family: str, D: int, DV: int, itemsize: int, masks: bool, room: int,
    bias: bool = False, slopes: bool = False,
) -> list[Tile]:  # fmt: skip
    """Return the tiles of a kernel for these head widths and numbers of `itemsize` bytes, the default first.

    `masks`: more is done with a score, by dropout, a bias, slopes, a softcap or a sparse pattern. With a `bias` tiles
    are half as large, except on Hopper; with `slopes` beside it a quarter on RTX cards. dbias has dquery's tiles, but
    loads nothing ahead and takes half the rows for the widest heads, because four operands change with each block.
    `room` is the GPU's shared memory for a program, in bytes. Raises `ValueError` if no tile fits into it.
    """
    if family == "interpreter":
        return [INTERPRETER]
    blocks = blocks_of(D, DV)
    table, width = TABLES[family], max(*blocks, 64)
    if name == "dbias":
        half, narrower = 2 if width > 128 else 1, 2 if family == "hopper" and width == 128 else 1
        found = (
            tile._replace(
                rows=max(tile.rows // half, SMALLEST), columns=max(tile.columns // narrower, SMALLEST), num_stages=1
            )
            for tile in candidates("dquery", family, D, DV, itemsize, masks, room, bias, slopes)
        )
        return list(dict.fromkeys(found))
    variants = [name]
    if masks or blocks != (whole(D), whole(DV)):
        variants.insert(0, f"{name} with masks")
    if blocks[0] != blocks[1]:
        variants.insert(0, f"{name} of unequal widths")
    tiles = next(table[key, width] for key in variants if (key, width) in table)
    if itemsize == 4 and family not in FOR_FLOAT32:  # the tables are for numbers half as long
        tiles = [
            tile._replace(rows=max(tile.rows // 2, SMALLEST), columns=max(tile.columns // 2, SMALLEST))
            for tile in tiles
        ]
    roomy = family == "hopper" and name != "dkey_dvalue"
    halvings = 0 if not bias or roomy else 2 if slopes and family == "consumer" else 1
    for _ in range(halvings):  # a block of the bias takes registers too
        tiles = [
            tile._replace(columns=tile.columns // 2)
            if tile.columns > 32
            else tile._replace(rows=max(tile.rows // 2, SMALLEST))
            for tile in tiles
        ]
    fitting = [tile for tile in tiles if loaded_ahead(tile, blocks, itemsize) <= room]
    if not fitting:
        raise ValueError(f"heads {max(D, DV)} wide need more than this GPU's {room // KIBIBYTE} KiB of shared memory")
    return fitting


def schedule(
    name: str, family: str, tile: Tile, D: int, DV: int, padding: bool = False, bias: bool = False
) -> dict[str, int | bool]:
    """Return options that use the registers that a tile leaves free on Hopper: found by compiling, as the tiles were.

    LEAD     the blocks that the forward's product of queries and keys is ahead of the softmax, with which each thread
             holds the scores of two blocks. 0 with a bias, which gains nothing, and with padding unless descriptors
             load without masks: the loop with masks would no longer load ahead
    HOISTED  True if the addresses of the blocks that a loop loads are computed before it
    """
    width = max(blocks_of(D, DV))
    threads, scores = 32 * tile.num_warps, tile.rows * tile.columns
    roomy = family == "interpreter" or (family == "hopper" and width <= 128)
    addresses = 16 if name == "dkey_dvalue" else 32
    found: dict[str, int | bool] = {"HOISTED": roomy and tile.columns * width <= addresses * threads}
    if name != "forward":
        return found
    held = 64 if tile.descriptors and width <= 64 else 32  # scores of a block in each thread
    ahead = roomy and not bias and (tile.descriptors or not padding) and scores <= held * threads
    return found | {"LEAD": int(ahead)}


def loaded_ahead(tile: Tile, blocks: tuple[int, int], itemsize: int) -> int:
    """Return the bytes of blocks loaded while another is in use: the least shared memory that a program needs."""
    return (tile.num_stages - 1) * tile.columns * sum(blocks) * itemsize


def fitted(tile: Tile, family: str, num_rows: int, num_columns: int) -> Tile:
    """Return the tile cut down to short sequences: 20 queries need no block of 128."""
    rows, columns = min(tile.rows, block_of(num_rows)), min(tile.columns, block_of(num_columns))
    # On tensor cores a warp needs at least 16 rows; without them more warps mean fewer registers for each thread.
    cut_down = rows < min(tile.rows, 64) and family not in WITHOUT_TENSOR_CORES
    return tile._replace(rows=rows, columns=columns, num_warps=min(tile.num_warps, 4) if cut_down else tile.num_warps)
