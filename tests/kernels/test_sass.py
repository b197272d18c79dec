"""Machine code made by hand whose cycles are known. No GPU, and nothing compiled."""

import pytest
from support.kernels import sass


def machine_code(*lines: str | tuple[str, int, int | None, tuple[int, ...]]) -> str:
    """Lines as `cuobjdump` prints them: a text alone, or with its stall, a scoreboard held, and those waited for."""
    said = []
    for number, line in enumerate(lines):
        text, stall, holds, waits = (line, 1, None, ()) if isinstance(line, str) else line
        control = stall | (7 if holds is None else holds) << 5 | 7 << 8 | sum(1 << board for board in waits) << 11
        said.append(f"        /*{16 * number:04x}*/    {text} ;    /* 0x{0:016x} */\n    /* 0x{control << 41:016x} */")
    return "\n".join([*said, ""])


LOOP = machine_code(
    "MOV R1, c[0x0][0x28]",
    ("LDG.E.128 R4, desc[UR4][R2.64]", 2, 0, ()),
    ("FFMA R8, R4, R5, R6", 4, None, (0,)),
    "@P1 MUFU.EX2 R9, R8",
    "IADD3 R2, R2, 0x10, RZ",
    "@!P0 BRA 0x10",
    "STG.E.128 desc[UR4][R2.64], R8",
    "EXIT",
    "MUFU.RCP R0, R1",  # a routine for rare numbers
)


def test_machine_code_is_read():
    code = sass.instructions(LOOP)
    assert [each.name for each in code] == ["MOV", "LDG.E.128", "FFMA", "MUFU.EX2", "IADD3", "BRA", "STG.E.128", "EXIT"]
    assert (code[1].stall, code[1].holds, code[2].waits) == (2, (0,), (0,))
    assert sass.loops(code) == [(1, 5)]


def test_what_each_pipe_is_asked():
    """128 bits are four times as many bytes as the pipe to memory moves in a turn."""
    asked = [sass.pipe_of(each) for each in sass.instructions(LOOP)]
    assert asked == [
        ("integer", 2), ("memory", 16), ("fma", 1), ("transcendental", 8), ("integer", 2), ("", 0), ("memory", 16),
        ("", 0),
    ]  # fmt: skip


def test_loops_within_loops():
    code = sass.instructions(machine_code("NOP", "FADD R1, R1, R1", "FMUL R1, R1, R1", "BRA 0x20", "BRA 0x10", "EXIT"))
    assert sass.loops(code) == [(1, 4), (2, 3)]
    assert sass.Warp().run(code, [3, 5]) == 1 + 3 * (1 + 5 * 2 + 1) + 1


@pytest.mark.parametrize(("trips", "beside"), [(1, 1), (2, 1), (50, 1), (50, 2)])
def test_a_warp_alone_waits_for_its_results(trips, beside):
    """Each time around it waits for what it loads, then 4 cycles of stall and 3 instructions of a cycle each."""
    around = sass.LATENCY["LDG"] + max(4, beside) + 3 * beside
    assert sass.Warp(beside).run(sass.instructions(LOOP), [trips]) == beside + trips * around + 2 * beside


def test_products_run_beside_the_warp_until_it_waits_for_them():
    """64·128·16 products take 64 cycles of four tensor cores; two of them are under way when the warp waits for one."""
    product = "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0"
    code = sass.instructions(machine_code(product, product, "WARPGROUP.DEPBAR.LE gsb0, 0x1", "NOP", "EXIT"))
    assert sass.pipe_of(code[0]) == ("tensor", 64)
    assert sass.Warp().run(code, []) == 64 + 3
    both = [*code[:2], code[2]._replace(text="WARPGROUP.DEPBAR.LE gsb0, 0x0"), *code[3:]]
    assert sass.Warp().run(both, []) == 128 + 3


def test_a_copy_into_shared_memory_is_waited_for_a_trip_later():
    """Long enough trips hide memory, as when blocks are loaded ahead."""
    loop = ["LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64]", "LDGDEPBAR", "DEPBAR.LE SB0, 0x1"]
    short = sass.instructions(machine_code(*loop, "BRA 0x0", "EXIT"))
    long = sass.instructions(machine_code(*loop, *[("NOP", 15, None, ())] * 40, "BRA 0x0", "EXIT"))
    assert sass.Warp().run(short, [2]) == pytest.approx(sass.LATENCY["LDGSTS"], abs=20)
    assert sass.Warp().run(long, [2]) == pytest.approx(2 * (600 + 4), abs=20)


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("HGMMA.64x64x16.F32.BF16", 2 * 64 * 64 * 16 / 4),
        ("HMMA.16816.F32.BF16", 2 * 16 * 8 * 16),
        ("HMMA.1688.F32.TF32", 2 * 16 * 8 * 8),
    ],
)
def test_operations_of_a_product(name, flops):
    assert sass.product_flops(name) == flops


def test_loops_are_described():
    (said,) = sass.described(LOOP)
    around = sass.LATENCY["LDG"] + 4 + 3 * 2
    assert said == f"0x10–0x50: 5 instructions, {around} cycles a trip of two warps"
