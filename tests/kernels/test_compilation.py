"""Every kernel compiled for every GPU that a learner may have, without any: what the interpreter cannot show."""

import json
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from kernels.compilation import TABLE, TARGETS, compile_everything

SPILLS: dict[str, str] = {}
"""Kernels that are let spill, and why."""

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
    kernels = {target: {row["kernel"] for row in table if row["target"] == target} for target in TARGETS}
    assert len(kernels["cuda:90"]) >= 20
    for target in TARGETS:
        assert kernels[target] == kernels["cuda:90"], target
    for dtype, missing in (("bf16", {"cuda:75"}), ("fp16", set()), ("fp32", set())):
        assert {row["target"] for row in table if row["dtype"] == dtype} == set(TARGETS) - missing


def test_nothing_spills(table):
    allowed = 8  # bytes that the compiler's own frame takes on cuda:120, in kernels without any spill
    spilling = {
        label(row): row["spilled"]
        for row in table
        if row["spilled"] > (allowed if row["target"] == "cuda:120" else 0) and row["kernel"] not in SPILLS
    }
    assert not spilling


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


def test_hopper_has_its_own_instructions(table):
    """But in tiles of 32 rows, which are too few for a group of warps."""
    for row in table:
        if row["target"] == "cuda:90" and row["dots"] and row["dtype"] != "fp32":
            few = min(row["constants"]["QUERIES"], row["constants"]["KEYS"]) < 64
            assert row["tensor_cores"] == "wgmma" or few, label(row)


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
