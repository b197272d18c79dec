"""Every instruction that the executor knows, one by one, against values worked out by hand from AMD's manual."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[kernels]'")  # kernels.machine needs it

from kernels.machine import Unknown, lanes, matrix, scalar, vector
from kernels.machine.assembly import instruction, parse
from kernels.machine.execute import blocks_of, step_of
from kernels.machine.numbers import fma
from kernels.machine.registers import LANES, NAMED, Group, Registers
from kernels.machine.vector import base_of

TABLE = Path(__file__).with_name("opcodes.txt")
ROWS = [line for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]


def bits(text: str) -> Any:
    """`1.5`, `h1.5`, `0x7`, `-1` or `lanes` as 32 bits."""
    if text == "lanes":
        return np.arange(LANES, dtype=np.uint32)
    if text.startswith("h"):
        return np.uint32(np.float16(text[1:]).view(np.uint16))
    if text in ("nan", "inf") or (("." in text or "e" in text) and not text.startswith("0x")):
        return np.float32(text).view(np.uint32)
    return np.uint32(int(text, 0) & 0xFFFFFFFF)


def assigned(text: str) -> list[tuple[str, Any]]:
    """`v0@3=1.5 s0=7` as names and bits."""
    return [(name, bits(value)) for name, _, value in (each.partition("=") for each in text.split())]


def executed(text: str, before: str) -> Registers:
    """The registers of one wave after an instruction."""
    registers = Registers(8, 1)
    for name, value in assigned(before):
        if name == "scc":
            registers.scc[0] = bool(value)
        elif name.startswith("v") and name not in NAMED:
            registers.vector[int(name[1:]), 0] = value
        else:
            registers.scalar[NAMED.get(name) or int(name[1:]), 0] = value
    with np.errstate(all="ignore"):
        step_of(instruction(text))(Group(registers, slice(None)))
    return registers


@pytest.mark.parametrize("row", ROWS)
def test_an_instruction_computes_what_the_manual_says(row):
    text, before, after = row.rsplit("|", 2)
    registers = executed(text.strip(), before)
    for name, value in assigned(after):
        register, _, lane = name.partition("@")
        if name == "scc":
            assert registers.scc[0] == value
        elif register.startswith("v") and register not in NAMED:
            found = registers.vector[int(register[1:]), 0]
            assert (found[int(lane)] if lane else found).tolist() == (
                value if lane else np.broadcast_to(value, LANES)
            ).tolist(), name
        else:
            number = NAMED[register] if register in NAMED else int(register[1:])
            assert registers.scalar[number, 0] == value, name


def test_no_instruction_is_without_a_row():
    tested = {base_of(half.split()[0]) for row in ROWS for half in row.split("::")}
    known = {*scalar.PLAIN, *scalar.NONZERO, *scalar.FLAGGED, *scalar.COMPARED, *scalar.SAVING}
    known |= {*vector.ARITHMETIC, *vector.ACCUMULATING}
    assert known - tested == set()
    assert set(vector.COMPARISONS) <= {row.split("_")[2] for row in ROWS if row.startswith("v_cmp")}
    assert set(lanes.PERMUTATIONS) <= {name for row in ROWS for name in lanes.PERMUTATIONS if name in row}


@pytest.mark.parametrize(
    "text",
    ["v_cos_f32_e32 v0, v1", "global_atomic_add_u32 v0, v1, s[0:1]", "v_mad_u64_u32 v[0:1], s2, v2, v3, v[4:5]"],
)
def test_an_unknown_instruction_is_named(text):
    with pytest.raises(Unknown, match=text.split()[0]):
        step_of(instruction(text))


FLOATS = st.floats(width=32, allow_nan=False)


@given(st.tuples(FLOATS, FLOATS, FLOATS))
def test_a_fused_product_is_rounded_once(numbers):
    a, b, c = map(np.float32, numbers)
    if not np.isfinite([a, b, c]).all():
        return
    with np.errstate(all="ignore"):
        found = fma(np.array([a]), np.array([b]), np.array([c]))[0]
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if not np.isfinite(found):
        assert abs(exact) >= Fraction(float(np.finfo(np.float32).max))
        return
    for neighbour in (np.nextafter(found, np.float32(np.inf)), np.nextafter(found, np.float32(-np.inf))):
        if np.isfinite(neighbour):
            assert abs(exact - Fraction(float(found))) <= abs(exact - Fraction(float(neighbour)))


@pytest.mark.parametrize("c", [2.0**-80, -(2.0**-80)])
def test_a_sum_that_lies_between_two_floats_is_not_rounded_twice(c):
    """The product lies between two float32; the rest, which float64 cuts off, says which of them is nearer."""
    a = b = 1 + 2.0**-12

    found = fma(*(np.array([x], np.float32) for x in (a, b, c)))[0]
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    lower, upper = np.nextafter(found, np.float32(0)), np.nextafter(found, np.float32(2))
    assert all(abs(exact - Fraction(float(found))) < abs(exact - Fraction(float(x))) for x in (lower, upper))


@pytest.mark.parametrize("name", matrix.HALVES)
def test_a_matrix_product_has_its_rows_where_the_manual_puts_them(name):
    import torch

    half = torch.bfloat16 if "bf16" in name else torch.float16
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(16, 16, generator=generator).to(half) for _ in range(2))
    c = torch.randn(16, 16, generator=generator)
    registers = Registers(32, 1)
    for lane in range(LANES):
        packed = [x.contiguous().view(torch.int16).numpy().view(np.uint32) for x in (a[lane % 16], b[:, lane % 16])]
        registers.vector[0:8, 0, lane], registers.vector[8:16, 0, lane] = packed
        column = c[lane // 16 :: 2, lane % 16].contiguous().numpy()
        registers.vector[16:24, 0, lane] = column.view(np.uint32)
    step_of(instruction(f"{name} v[24:31], v[0:7], v[8:15], v[16:23]"))(Group(registers, slice(None)))
    found = np.empty((16, 16), np.float32)
    for lane in range(LANES):
        found[lane // 16 :: 2, lane % 16] = registers.vector[24:32, 0, lane].view(np.float32)
    exact = a.double() @ b.double() + c.double()
    assert np.array_equal(found, exact.numpy().astype(np.float32))


KERNEL = """
nothing:
{code}
	s_endpgm
	.amdhsa_kernel nothing
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_next_free_vgpr 8
	.end_amdhsa_kernel
"""


def test_the_text_is_taken_apart():
    code = "\t.loc\t1 5 2 ; file.py:5:2\n\ts_waitcnt lgkmcnt(0)\n.LBB0_1:\n\ts_branch .LBB0_1"
    program = parse(KERNEL.format(code=code))
    assert program.name == "nothing"
    assert [each.text for each in program.instructions] == ["s_branch .LBB0_1", "s_endpgm"]
    assert program.instructions[0].source == "file.py:5"
    assert program.labels[".LBB0_1"] == 0
    assert blocks_of(program)[0].target == 0
    taken = instruction("v_add_f32_dpp v1, -|v2|, v[3:4] row_shr:1 bound_ctrl:1")
    assert taken.operands == ("v1", "-|v2|", "v[3:4]")
    assert taken.modifiers == {"row_shr": "1", "bound_ctrl": "1"}
    with pytest.raises(ValueError, match="it has no "):
        parse("ptx")
