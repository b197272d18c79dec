"""Every kernel compiled for every GPU that a learner may have, without any: what the interpreter cannot show."""

import ast
import json
import os
from functools import cache
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.kernels.compilation import compile_in_a_process, loops_of_products

if find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install -e '.[kernels]'", allow_module_level=True)

import kernels
from kernels.proof.pretending import TARGETS

ONCE = "a few bytes, saved once a program outside its loop"
AGAIN = "a few bytes, loaded again in the loop"
RADEON = "256 registers a thread, and no smaller tile: WMMA wants 16 rows for each operand (float32 has none of it)"
T4 = "no tensor cores: of heads wider than 128, 16 rows and all that meets them are more than 64 KiB and the registers"
AT_ONCE = "dropout, a softcap and ALiBi's slopes at once: 32 bytes, and 40 more with the lengths of packed sentences"
TO_READ = "the minimal attention is for reading: its blocks are as large for every GPU"

SPILLS = {
    ("cuda:75", "attention_forward_kernel"): (16, T4),
    ("cuda:75", "attention_dquery_kernel"): (344, T4),
    ("cuda:75", "attention_dkey_dvalue_kernel"): (912, T4),
    ("cuda:75", "minimal_kernel"): (3968, TO_READ),
    ("cuda:80", "quantized_forward_kernel"): (8, AGAIN),
    ("cuda:86", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:89", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:90", "norm_forward_kernel"): (8, AGAIN),
    ("cuda:90", "norm_backward_kernel"): (24, AGAIN),
    ("cuda:90", "attention_dkey_dvalue_kernel"): (8, AGAIN),
    ("cuda:100", "attention_forward_kernel"): (24, AGAIN),
    ("cuda:100", "attention_dkey_dvalue_kernel"): (72, AT_ONCE),
    ("cuda:100", "wide_dx_kernel"): (8, ONCE),
    ("cuda:120", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:120", "attention_dkey_dvalue_kernel"): (24, AGAIN),
    ("cuda:120", "scale_kernel"): (16, ONCE),
    ("cuda:120", "softmax_online_kernel"): (8, ONCE),
    ("hip:gfx942", "attention_dquery_kernel"): (1, ONCE),
    ("hip:gfx942", "attention_dkey_dvalue_kernel"): (1, AGAIN),
    ("hip:gfx1100", "attention_forward_kernel"): (344, RADEON),
    ("hip:gfx1100", "attention_dquery_kernel"): (611, RADEON),
    ("hip:gfx1100", "attention_dkey_dvalue_kernel"): (552, RADEON),
    ("hip:gfx1100", "minimal_kernel"): (303, TO_READ),
    ("hip:gfx1100", "linear_attention_forward_kernel"): (15, RADEON),
    ("hip:gfx1100", "linear_attention_dkey_dvalue_kernel"): (81, RADEON),
}
"""What is let spill: so many bytes of stack (CUDA) or registers (AMD), and why."""

INSTRUCTIONS = {
    "cuda:75": None,  # Triton 3.7 has no tensor cores for it
    "cuda:80": ("mma.sync",),
    "cuda:86": ("mma.sync",),
    "cuda:89": ("mma.sync",),
    "cuda:90": ("wgmma", "mma.sync"),
    "cuda:100": ("tcgen05.mma", "mma.sync"),
    "cuda:120": ("mma.sync",),
    "hip:gfx942": ("v_mfma",),
    "hip:gfx1100": ("v_wmma",),
}


Rows = list[dict[str, Any]]

compiled = cache(compile_in_a_process)
"""What the compiler makes of every example for a target. It takes minutes: a process of tests does it once."""

SAMPLE = "attention with grouped heads, bf", "softmax, 32768 wide, bf"
"""Examples that are compiled for Hopper in every run of the tests."""


@pytest.mark.slow(minutes=6)
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_suits_every_gpu(target):
    rows = compiled(target)
    check_everything_is_there(target, rows)
    check_every_row(rows)
    most: dict[str, int] = {}
    for row in rows:
        most[row["kernel"]] = max(row["spilled"], most.get(row["kernel"], 0))
    listed = {kernel: allowed for (where, kernel), (allowed, _) in SPILLS.items() if where == target}
    assert {kernel: spilled for kernel, spilled in most.items() if spilled} == listed  # the list follows what is better


def test_a_sample_suits_hopper():
    rows = compiled("cuda:90", *SAMPLE)
    assert {row["op"].split(",")[0] for row in rows} >= {part.split(",")[0] for part in SAMPLE}
    check_every_row(rows)
    check_hopper(rows)
    assert {label(row): row["spilled"] for row in rows if row["spilled"]} == {}


def label(row: dict[str, Any]) -> str:
    return f"{row['target']}: {row['kernel']} ({row['op']})"


def check_everything_is_there(target: str, rows: Rows) -> None:
    """Every kernel in every dtype that the GPU has."""
    sources = Path(kernels.__file__).parent.rglob("*.py")
    nodes = (node for source in sources for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"))
    written = {each.name for each in functions if any("triton.jit" in ast.unparse(d) for d in each.decorator_list)}
    assert len(written) >= 27
    assert {row["kernel"] for row in rows} == written
    assert {"fp16", "fp32", *(["bf16"] if target != "cuda:75" else [])} <= {row["dtype"] for row in rows}
    has_tf32 = target.startswith("cuda") and target != "cuda:75"
    assert has_tf32 == any(row["constants"].get("PRECISION") == "tf32" for row in rows)


def check_every_row(rows: Rows) -> None:
    """Shared memory fits, and every product uses the tensor cores, but of float32 to the last bit."""
    for row in rows:
        assert row["shared"] <= 1024 * TARGETS[row["target"]], label(row)
        check_room(row)
        wanted = INSTRUCTIONS[row["target"]]
        widened = row["dtype"] == "fp32" or row["op"].startswith("linear_attention")  # its sums are float32
        exact = widened and row["constants"].get("PRECISION") != "tf32"
        if row["dots"] and wanted is not None and not exact:
            assert row["tensor_cores"] in wanted, label(row)


def check_room(row: dict[str, Any]) -> None:
    """Assert that the room by which attention's tuning leaves tiles out is no more than the compiler then takes."""
    from kernels.attention.tiles import loaded_ahead
    from kernels.tuning import Tile

    if row["kernel"].startswith("attention") and "KEYS" in row["constants"]:
        held, tile = row["constants"], Tile(*tile_of(row))
        itemsize = 4 if row["dtype"] == "fp32" else 2
        assert loaded_ahead(tile, (held["BLOCK_D"], held["BLOCK_DV"]), itemsize) <= row["shared"], label(row)


# --- Hopper ---------------------------------------------------------------------------------------------------


def check_hopper(rows: Rows) -> None:
    """Assert what holds of Hopper's machine code of any examples."""
    check_its_own_instructions(rows)
    check_no_product_waits(rows)
    check_exponentials_in_flight(rows)
    check_a_score(rows)


def check_its_own_instructions(rows: Rows) -> None:
    """But in tiles of 32 rows, which are too few for a group of warps."""
    for row in rows:
        if row["dots"] and row["dtype"] != "fp32" and "QUERIES" in row["constants"]:
            few = min(row["constants"]["QUERIES"], row["constants"]["KEYS"]) < 64
            assert row["tensor_cores"] == "wgmma" or few, label(row)


@pytest.mark.slow(minutes=15)
def test_hopper_has_every_tile_and_every_kind_of_head():
    """The choice is by the GPU, the widths, the numbers' type and precision, padding and dropout."""
    from kernels.attention.tiles import blocks_of

    rows = compiled("cuda:90")
    check_every_tile(rows)
    check_hopper(rows)
    check_dropout_moves_nothing(rows)
    assert all("loops" in row for row in rows if row["tensor_cores"] == "wgmma")
    kinds = set()
    for row in hopper_tiles(rows):
        held = row["constants"]
        kinds.add((precision(row), held["D"], held["DV"]))
        assert (held["BLOCK_D"], held["BLOCK_DV"]) == blocks_of(held["D"], held["DV"])
    widths = {("bf16", D, DV) for D, DV in ((16, 16), (48, 48), (48, 80), (80, 80), (16, 256), (256, 256))}
    assert widths | {("tf32", 256, 256), ("ieee", 128, 128)} <= kinds


def hopper_attention(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["target"] == "cuda:90" and row["kernel"].startswith("attention")]


def hopper_tiles(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in hopper_attention(rows) if row["kernel"] != "attention_merge_kernel"]


def precision(row: dict[str, Any]) -> str:
    return row["constants"]["PRECISION"] if row["dtype"] == "fp32" else row["dtype"]


def tile_of(row: dict[str, Any]) -> tuple[int, int, int, int, bool]:
    """The tile of one of attention's kernels."""
    sizes = row["constants"]["QUERIES"], row["constants"]["KEYS"]
    rows, columns = sizes[::-1] if row["kernel"] == "attention_dkey_dvalue_kernel" else sizes
    return rows, columns, row["num_warps"], row["num_stages"], row.get("descriptors", False)


def check_every_tile(rows: list[dict[str, Any]]) -> None:
    """Each that tuning may try on Hopper was compiled."""
    from kernels.attention.tiles import TABLES

    tried = {(precision(row), row["kernel"], tile_of(row)) for row in hopper_tiles(rows)}
    for precise, name in (("bf16", "hopper"), ("tf32", "hopper in tf32")):
        for (variant, _), tiles in TABLES[name].items():
            for tile in tiles:
                assert (precise, f"attention_{variant.split()[0]}_kernel", tile) in tried, (name, variant)


def hopper_loops(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Attention's kernels whose loops were read."""
    return [row for row in hopper_attention(rows) if "loops" in row]


def check_no_product_waits(rows: list[dict[str, Any]]) -> None:
    """ptxas may make each product of a group of warps wait for the one before (it says C7515): `WARPGROUP.DEPBAR` is as
    frequent as `HGMMA` then, and the tensor cores idle. Only machine code shows it."""
    looped = hopper_loops(rows)
    assert {row["kernel"] for row in looped} >= {f"attention_{name}_kernel" for name in KERNELS_OF_ATTENTION}
    for row in looped:
        assert row["tensor_cores"] == "wgmma"
        assert len(row["loops"]) == (1 if row["kernel"] == "attention_dbias_kernel" else 2), label(row)
        for loop in row["loops"]:
            assert loop["WARPGROUP.DEPBAR"] < loop["HGMMA"], label(row)


KERNELS_OF_ATTENTION = ("forward", "dquery", "dkey_dvalue")


def with_more(row: dict[str, Any]) -> bool:
    """Return True if attention has options that add instructions to a score."""
    return row["op"].startswith("attention with") and "grouped heads" not in row["op"]


def check_exponentials_in_flight(rows: list[dict[str, Any]]) -> None:
    """Assert exponentials behind a product that is a block ahead; dropout's hash may take their place."""
    ahead = [row for row in rows if row["constants"].get("LEAD") and "loops" in row and "dropout" not in row["op"]]
    assert ahead
    for row in ahead:
        if not with_more(row):
            inner, _ = row["loops"]
            assert inner["in flight"] >= 8, label(row)


def check_a_score(rows: Rows) -> None:
    """A fused multiply-add and an exp2, in blocks without a mask, whose loop comes first and is the shorter one.

    A product gives each warp 16 rows at least: 8 warps on 64 rows hold, and compute, every score twice.
    """
    for row in hopper_loops(rows):
        if not with_more(row):
            inner, masked = row["loops"]
            held, warps = row["constants"], row["num_warps"]
            height, width = held["QUERIES"], held["KEYS"]
            if row["kernel"] == "attention_dkey_dvalue_kernel":
                height, width = width, height
            height = max(height, 16 * warps)
            scores = height * width // (32 * warps)  # of a thread
            rescaled = (
                2 * height // (16 * warps) if row["kernel"] == "attention_forward_kernel" else 0
            )  # that it rescales
            assert inner["FFMA"] == inner["MUFU.EX2"] == scores + rescaled, label(row)
            assert inner["instructions"] < masked["instructions"], label(row)


def check_dropout_moves_nothing(rows: Rows) -> None:
    """From thread to thread."""
    shuffles: dict[Any, dict[bool, list[int]]] = {}
    for row in hopper_loops(rows):
        if not with_more(row):
            tile = json.dumps(row["constants"]), row["num_warps"], row["num_stages"], row["dtype"], row["kernel"]
            found = [loop["SHFL"] for loop in row["loops"]]
            shuffles.setdefault(tile, {})["dropout" in row["op"]] = found
    pairs = [found for found in shuffles.values() if len(found) == 2]
    assert len(pairs) > 20
    assert all(found[False] == found[True] for found in pairs)


def test_loops_are_found_in_machine_code():
    sass = """
        /*0100*/                   MOV R1, c[0x0][0x28] ;                   /* 0x00 */
        /*0110*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], RZ ;  /* 0x00 */
        /*0120*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;          /* 0x00 */
        /*0130*/                   MUFU.EX2 R4, R5 ;                        /* 0x00 */
        /*0140*/              @!P0 BRA 0x110 ;                              /* 0x00 */
        /*0150*/                   FFMA R4, R5, R6, R7 ;                    /* 0x00 */
        /*0160*/               @P0 BRA 0x150 ;                              /* 0x00 */
        /*0170*/                   BRA 0x170 ;                              /* 0x00 */
    """
    found = {"instructions": 4, "HGMMA": 1, "WARPGROUP.DEPBAR": 1, "MUFU.EX2": 1, "FFMA": 0, "SHFL": 0, "in flight": 0}
    assert loops_of_products(sass) == [found]
    waiting = """
        /*0180*/                   BRA 0x100 ;                              /* 0x00 */
        /*0190*/               @P1 BRA 0x120 ;                              /* 0x00 */
    """
    assert loops_of_products(sass + waiting) == [found]


OTHER_TRITON = "MINITRANSFORMER_OTHER_TRITON"
EVERYTHING = "attention with a pattern and everything", "attention with slopes and more"
"""With all these options the products of dkey and dvalue wait in Triton 3.6, whatever the tile: nine were tried."""


@pytest.mark.slow(minutes=5)
def test_hoppers_default_tiles_suit_an_older_triton_too():
    """It makes other machine code of the same tiles: tuning leaves out those whose products wait."""
    from kernels.attention.tiles import TABLES

    if OTHER_TRITON not in os.environ:
        pytest.skip(f"no other Triton: pip install --no-deps --target DIR triton==3.6.0, and {OTHER_TRITON}=DIR")
    folder = Path(os.environ[OTHER_TRITON]).resolve()
    (found,) = distributions(name="triton", path=[str(folder)])
    assert found.version.startswith("3.6.")
    rows = compiled("cuda:90", "attention", packages=str(folder))
    check_every_tile(rows)
    check_exponentials_in_flight(rows)
    defaults = {(f"attention_{name.split()[0]}_kernel", tiles[0]) for (name, _), tiles in TABLES["hopper"].items()}
    looped = [row for row in hopper_loops(rows) if (row["kernel"], tile_of(row)) in defaults]
    everything = [row for row in looped if row["op"].startswith(EVERYTHING)]
    check_no_product_waits(
        [row for row in looped if row not in everything or row["kernel"] != "attention_dkey_dvalue_kernel"]
    )
    plain = [row for row in hopper_attention(rows) if not with_more(row)]
    assert {label(row): row["spilled"] for row in plain if row["spilled"] > 16} == {}
