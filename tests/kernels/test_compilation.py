"""Every kernel compiled for every GPU that a learner may have, without any: what the interpreter cannot show."""

import json
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from kernels.compilation import TABLE, TARGETS, compile_everything

ONCE = "a few bytes, saved once a program outside its loop"
FULL_PRECISION = "float32 to the last bit has no tensor cores: a thread holds whole rows of both operands"
RADEON = "256 registers a thread, and no smaller tile: WMMA wants 16 rows for each operand (float32 has none of it)"

SPILLS = {
    ("cuda:80", "attention_dquery_kernel"): (8, FULL_PRECISION),
    ("cuda:80", "attention_dkey_dvalue_kernel"): (8, FULL_PRECISION),
    ("cuda:86", "attention_dquery_kernel"): (8, FULL_PRECISION),
    ("cuda:86", "attention_dkey_dvalue_kernel"): (24, FULL_PRECISION),
    ("cuda:89", "attention_dquery_kernel"): (8, FULL_PRECISION),
    ("cuda:89", "attention_dkey_dvalue_kernel"): (24, FULL_PRECISION),
    ("cuda:100", "attention_forward_kernel"): (8, ONCE),
    ("cuda:100", "layernorm_backward_kernel"): (8, ONCE),
    ("cuda:120", "layernorm_backward_kernel"): (8, ONCE),
    ("cuda:120", "scale_kernel"): (16, ONCE),
    ("hip:gfx942", "attention_dquery_kernel"): (1, ONCE),
    ("hip:gfx1100", "attention_forward_kernel"): (164, RADEON),
    ("hip:gfx1100", "attention_dquery_kernel"): (248, RADEON),
    ("hip:gfx1100", "attention_dkey_dvalue_kernel"): (319, RADEON),
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
    kernels = {target: {row["kernel"] for row in table if row["target"] == target} for target in TARGETS}
    assert len(kernels["cuda:90"]) >= 20
    for target in TARGETS:
        assert kernels[target] == kernels["cuda:90"], target
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
