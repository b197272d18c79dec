"""Every kernel compiled for every GPU that a learner may have, without any: what the interpreter cannot show."""

import ast
import json
import os
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install -e '.[kernels]'", allow_module_level=True)

import kernels
from kernels.bench.compilation import TABLE, TARGETS, compile_everything, compile_in_a_process, loops_of_products

ONCE = "a few bytes, saved once a program outside its loop"
AGAIN = "a few bytes, loaded again in the loop"
RADEON = "256 registers a thread, and no smaller tile: WMMA wants 16 rows for each operand (float32 has none of it)"
T4 = "no tensor cores: of heads wider than 128, 16 rows and all that meets them are more than 64 KiB and the registers"

SPILLS = {
    ("cuda:75", "attention_forward_kernel"): (16, T4),
    ("cuda:75", "attention_dquery_kernel"): (344, T4),
    ("cuda:75", "attention_dkey_dvalue_kernel"): (912, T4),
    ("cuda:86", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:89", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:90", "norm_forward_kernel"): (8, AGAIN),
    ("cuda:90", "norm_backward_kernel"): (24, AGAIN),
    ("cuda:90", "attention_dkey_dvalue_kernel"): (40, AGAIN),
    ("cuda:100", "softmax_forward_kernel"): (8, ONCE),
    ("cuda:100", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:100", "wide_dx_kernel"): (8, ONCE),
    ("cuda:120", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:120", "attention_dkey_dvalue_kernel"): (24, AGAIN),
    ("cuda:120", "scale_kernel"): (16, ONCE),
    ("hip:gfx942", "attention_dquery_kernel"): (1, ONCE),
    ("hip:gfx942", "attention_dkey_dvalue_kernel"): (1, AGAIN),
    ("hip:gfx1100", "attention_forward_kernel"): (344, RADEON),
    ("hip:gfx1100", "attention_dquery_kernel"): (611, RADEON),
    ("hip:gfx1100", "attention_dkey_dvalue_kernel"): (552, RADEON),
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


@pytest.fixture(scope="module")
def table() -> list[dict[str, Any]]:
    """The committed one."""
    return json.loads(TABLE.read_text(encoding="utf-8"))["kernels"]


def label(row: dict[str, Any]) -> str:
    return f"{row['target']}: {row['kernel']} ({row['op']})"


def test_every_target_and_every_kernel_is_in_the_table(table):
    assert {row["target"] for row in table} == set(TARGETS)
    sources = Path(kernels.__file__).parent.rglob("*.py")
    nodes = (node for source in sources for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
    written = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel")}
    assert len(written) >= 27
    for target in TARGETS:
        assert {row["kernel"] for row in table if row["target"] == target} == written, target
    for dtype, missing in (("bf16", {"cuda:75"}), ("fp16", set()), ("fp32", set())):
        assert {row["target"] for row in table if row["dtype"] == dtype} == set(TARGETS) - missing


def test_what_spills_is_listed_and_nothing_else(table):
    """The most that was seen of each: where a kernel has become better, the list must too."""
    most: dict[tuple[str, str], int] = {}
    for row in table:
        place = row["target"], row["kernel"]
        most[place] = max(row["spilled"], most.get(place, 0))
    listed = {place: allowed for place, (allowed, _) in SPILLS.items()}
    assert {place: spilled for place, spilled in most.items() if spilled} == listed


def test_shared_memory_fits(table):
    too_much = {label(row): row["shared"] for row in table if row["shared"] > 1024 * TARGETS[row["target"]]}
    assert not too_much


def test_every_product_uses_the_tensor_cores(table):
    """But for float32 to the last bit, which they cannot do."""
    checked = 0
    for row in table:
        wanted = INSTRUCTIONS[row["target"]]
        widened = row["dtype"] == "fp32" or row["op"].startswith("linear_attention")  # its sums are float32
        exact = widened and row["constants"].get("PRECISION") != "tf32"
        if row["dots"] and wanted is not None and not exact:
            checked += 1
            assert row["tensor_cores"] in wanted, label(row)
    assert checked > 50


def test_tf32_is_asked_for_where_there_is_any(table):
    asked = {row["target"] for row in table if row["constants"].get("PRECISION") == "tf32"}
    assert asked == {target for target in TARGETS if target.startswith("cuda")} - {"cuda:75"}


def test_hopper_has_its_own_instructions(table):
    """But in tiles of 32 rows, which are too few for a group of warps."""
    for row in table:
        if row["target"] == "cuda:90" and row["dots"] and row["dtype"] != "fp32" and "QUERIES" in row["constants"]:
            few = min(row["constants"]["QUERIES"], row["constants"]["KEYS"]) < 64
            assert row["tensor_cores"] == "wgmma" or few, label(row)


def test_hopper_has_every_tile_and_every_kind_of_head(table):
    """What is chosen by, beside the GPU: the widths, the numbers' type and precision, padding and dropout."""
    from kernels.attention.tiles import blocks_of

    check_every_tile(table, "hopper")
    kinds = set()
    for row in hopper_attention(table):
        held = row["constants"]
        kinds.add((precision(row), held["D"], held["DV"]))
        assert (held["BLOCK_D"], held["BLOCK_DV"]) == blocks_of(held["D"], held["DV"])
    widths = {("bf16", D, DV) for D, DV in ((16, 16), (48, 48), (48, 80), (80, 80), (16, 256), (256, 256))}
    assert widths | {("tf32", 256, 256), ("ieee", 128, 128)} <= kinds


def hopper_attention(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["target"] == "cuda:90" and row["kernel"].startswith("attention")]


def precision(row: dict[str, Any]) -> str:
    return row["constants"]["PRECISION"] if row["dtype"] == "fp32" else row["dtype"]


def check_every_tile(rows: list[dict[str, Any]], family: str) -> None:
    """Each that tuning may try on Hopper was compiled."""
    from kernels.attention.tiles import TABLES

    tried = set()
    for row in hopper_attention(rows):
        tile = row["constants"]["QUERIES"], row["constants"]["KEYS"]
        if row["kernel"] == "attention_dkey_dvalue_kernel":
            tile = tile[::-1]
        tried.add((precision(row), row["kernel"], (*tile, row["num_warps"], row["num_stages"])))
    for precise, name in (("bf16", family), ("tf32", "hopper in tf32")):
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


def test_no_product_of_hopper_waits_for_the_one_before(table):
    check_no_product_waits(table)
    assert all("loops" in row for row in table if row["tensor_cores"] == "wgmma")


def with_more(row: dict[str, Any]) -> bool:
    """Whether attention has options that add instructions to a score."""
    return row["op"].startswith("attention with")


def test_exponentials_are_computed_while_a_product_is_in_flight(table):
    """Where the forward's product of queries and keys is a block ahead; dropout's hash may take their place."""
    ahead = [row for row in table if row["constants"].get("LEAD") and "loops" in row and "dropout" not in row["op"]]
    assert ahead
    for row in ahead:
        if not with_more(row):
            inner, _ = row["loops"]
            assert inner["in flight"] >= 8, label(row)


def test_a_score_takes_a_fused_multiply_add_and_an_exp2(table):
    """In blocks without a mask, whose loop comes first and is the shorter one.

    A product gives each warp 16 rows at least: 8 warps on 64 rows hold, and compute, every score twice.
    """
    for row in hopper_loops(table):
        if not with_more(row):
            inner, masked = row["loops"]
            held, warps = row["constants"], row["num_warps"]
            height, width = held["QUERIES"], held["KEYS"]
            if row["kernel"] == "attention_dkey_dvalue_kernel":
                height, width = width, height
            height = max(height, 16 * warps)
            scores = height * width // (32 * warps)  # of a thread
            rows = 2 * height // (16 * warps) if row["kernel"] == "attention_forward_kernel" else 0  # that it rescales
            assert inner["FFMA"] == inner["MUFU.EX2"] == scores + rows, label(row)
            assert inner["instructions"] < masked["instructions"], label(row)


def test_dropout_moves_nothing_between_threads(table):
    shuffles: dict[Any, dict[bool, list[int]]] = {}
    for row in hopper_loops(table):
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


def test_no_tile_is_left_out_that_has_room(table):
    """What tuning prunes by is less than what the compiler then takes."""
    from kernels.attention.tiles import loaded_ahead
    from kernels.tuning import Tile

    for row in table:
        if row["kernel"].startswith("attention"):
            held = row["constants"]
            columns = held["QUERIES" if row["kernel"] == "attention_dkey_dvalue_kernel" else "KEYS"]
            tile = Tile(16, columns, row["num_warps"], row["num_stages"])
            itemsize = 4 if row["dtype"] == "fp32" else 2
            assert loaded_ahead(tile, (held["BLOCK_D"], held["BLOCK_DV"]), itemsize) <= row["shared"], label(row)


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """The table made anew."""
    return compile_everything()


@pytest.mark.slow
def test_the_table_is_what_the_compiler_says(table, compiled):
    """So that a change of registers or shared memory shows in review: `python -m kernels.compilation` brings it up."""
    recorded = json.loads(TABLE.read_text(encoding="utf-8"))["triton"]
    if version("triton") != recorded:
        pytest.skip(f"the table was made with Triton {recorded}, here is {version('triton')}: install that one")
    assert [label(row) for row in compiled] == [label(row) for row in table]
    for now, before in zip(compiled, table, strict=True):
        assert now == before, label(now)


OTHER_TRITON = "MINITRANSFORMER_OTHER_TRITON"
EVERYTHING = "attention with a pattern and everything", "attention with slopes and more"
"""With all these options the products of dkey and dvalue wait in Triton 3.6, whatever the tile: nine were tried."""


@pytest.mark.slow
@pytest.mark.parametrize("packages", ["", OTHER_TRITON], ids=["installed", "beside"])
def test_hoppers_tiles_suit_this_triton(packages, request):
    """Its versions make other machine code of the same tiles, and 3.6 has tiles of its own for that."""
    if not packages:
        rows, made_by = request.getfixturevalue("compiled"), version("triton")
    elif packages in os.environ:
        folder = Path(os.environ[packages]).resolve()
        (found,) = distributions(name="triton", path=[str(folder)])
        rows, made_by = compile_in_a_process("cuda:90", str(folder)), found.version
    else:
        pytest.skip(f"no other Triton: pip install --no-deps --target DIR triton==3.6.0, and {packages}=DIR")
    before = tuple(map(int, made_by.split(".")[:2])) < (3, 7)
    check_every_tile(rows, "hopper before Triton 3.7" if before else "hopper")
    waiting = [r for r in rows if r["op"].startswith(EVERYTHING) and r["kernel"] == "attention_dkey_dvalue_kernel"]
    check_no_product_waits([row for row in rows if row not in waiting] if before else rows)
    plain = [row for row in hopper_attention(rows) if not with_more(row)]
    assert {label(row): row["spilled"] for row in plain if row["spilled"] > 16} == {}
