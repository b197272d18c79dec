"""Every kernel compiled for every GPU that a learner may have, without any: what the interpreter cannot show."""

import ast
import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

import kernels
from kernels.compilation import TABLE, TARGETS, compile_everything

ONCE = "a few bytes, saved once a program outside its loop"
RADEON = "256 registers a thread, and no smaller tile: WMMA wants 16 rows for each operand (float32 has none of it)"
T4 = "no tensor cores: of heads wider than 128, 16 rows and all that meets them are more than 64 KiB and the registers"

SPILLS = {
    ("cuda:75", "attention_forward_kernel"): (208, T4),
    ("cuda:75", "attention_dquery_kernel"): (344, T4),
    ("cuda:75", "attention_dkey_dvalue_kernel"): (912, T4),
    ("cuda:100", "attention_forward_kernel"): (8, ONCE),
    ("cuda:100", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:100", "layernorm_backward_kernel"): (8, ONCE),
    ("cuda:100", "wide_dx_kernel"): (8, ONCE),
    ("cuda:120", "attention_dquery_kernel"): (8, ONCE),
    ("cuda:120", "layernorm_backward_kernel"): (8, ONCE),
    ("cuda:120", "scale_kernel"): (16, ONCE),
    ("hip:gfx942", "attention_dquery_kernel"): (1, ONCE),
    ("hip:gfx1100", "attention_forward_kernel"): (343, RADEON),
    ("hip:gfx1100", "attention_dquery_kernel"): (604, RADEON),
    ("hip:gfx1100", "attention_dkey_dvalue_kernel"): (547, RADEON),
}
"""What is let spill: at most so many bytes of stack (CUDA) or registers (AMD), and why."""

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


def test_nothing_spills(table):
    nothing = (0, "")
    spilling = {
        label(row): row["spilled"]
        for row in table
        if row["spilled"] > SPILLS.get((row["target"], row["kernel"]), nothing)[0]
    }
    assert not spilling


def test_no_exemption_is_out_of_date(table):
    """Each is the most that was seen: where a kernel has become better, the list must too."""
    most = {}
    for row in table:
        place = row["target"], row["kernel"]
        most[place] = max(row["spilled"], most.get(place, 0))
    assert {place: allowed for place, (allowed, _) in SPILLS.items()} == {
        place: spilled for place, spilled in most.items() if spilled
    }


def test_shared_memory_fits(table):
    too_much = {label(row): row["shared"] for row in table if row["shared"] > 1024 * TARGETS[row["target"]]}
    assert not too_much


def test_every_product_uses_the_tensor_cores(table):
    """But for float32 to the last bit, which they cannot do."""
    checked = 0
    for row in table:
        wanted = INSTRUCTIONS[row["target"]]
        exact = row["dtype"] == "fp32" and row["constants"].get("PRECISION") != "tf32"
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
        if row["target"] == "cuda:90" and row["dots"] and row["dtype"] != "fp32":
            few = min(row["constants"]["QUERIES"], row["constants"]["KEYS"]) < 64
            assert row["tensor_cores"] == "wgmma" or few, label(row)


def test_hopper_has_every_tile_and_every_kind_of_head(table):
    """What is chosen by, beside the GPU: the widths, the numbers' type and precision, padding and dropout."""
    from kernels.attention.tiles import TABLES, blocks_of

    tried, kinds = set(), set()
    for row in table:
        if row["target"] == "cuda:90" and row["kernel"].startswith("attention") and row["dtype"] != "fp16":
            held = row["constants"]
            precise = held["PRECISION"] if row["dtype"] == "fp32" else row["dtype"]
            rows, columns = held["QUERIES"], held["KEYS"]
            if row["kernel"] == "attention_dkey_dvalue_kernel":
                rows, columns = columns, rows
            tried.add((precise, row["kernel"], (rows, columns, row["num_warps"], row["num_stages"])))
            kinds.add((precise, held["D"], held["DV"]))
            assert (held["BLOCK_D"], held["BLOCK_DV"]) == blocks_of(held["D"], held["DV"])
    for precise, family in (("bf16", "hopper"), ("tf32", "hopper in tf32")):
        for (variant, _), tiles in TABLES[family].items():
            name = variant.split()[0]
            for tile in tiles:
                assert (precise, f"attention_{name}_kernel", tile) in tried, (family, variant)
    widths = {("bf16", D, DV) for D, DV in ((16, 16), (48, 48), (48, 80), (80, 80), (16, 256), (256, 256))}
    assert widths | {("tf32", 256, 256), ("ieee", 128, 128)} <= kinds


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


@pytest.mark.slow
def test_the_table_is_what_the_compiler_says(table):
    """So that a change of registers or shared memory shows in review: `python -m kernels.compilation` brings it up."""
    recorded = json.loads(TABLE.read_text(encoding="utf-8"))["triton"]
    if version("triton") != recorded:
        pytest.skip(f"the table was made with Triton {recorded}, here is {version('triton')}")
    compiled = compile_everything()
    assert [label(row) for row in compiled] == [label(row) for row in table]
    for now, before in zip(compiled, table, strict=True):
        assert now == before, label(now)
