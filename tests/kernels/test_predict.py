"""Predictions: machine code made by hand whose time is known, and what the table says. No GPU, and nothing compiled."""

import math
from typing import Any

import pytest

from kernels import KERNELS
from kernels.bench import ledger, predictions, report
from kernels.predict import gpus, sass, trips


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
    """Ten times around; 128 bits are four times as many bytes as the pipe to memory moves in a turn."""
    assert sass.busy(sass.instructions(LOOP), [10]) == {
        "issue": 3 + 10 * 5, "fma": 10, "transcendental": 80, "integer": 2 + 20, "memory": 160 + 16
    }  # fmt: skip


def test_loops_within_loops():
    code = sass.instructions(machine_code("NOP", "FADD R1, R1, R1", "FMUL R1, R1, R1", "BRA 0x20", "BRA 0x10", "EXIT"))
    assert sass.loops(code) == [(1, 4), (2, 3)]
    assert sass.busy(code, [3, 5])["fma"] == 3 + 15
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
    assert sass.Warp(slower={"tensor": 2}).run(both, []) == 256 + 3


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


TTIR = """
module {
  tt.func public @a_kernel(%x: !tt.ptr<bf16> {tt.divisibility = 16 : i32} loc("x"(#loc)), %out: !tt.ptr<f32> loc("out"(#loc)), %n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %c0_i32 = arith.constant 0 : i32
    %c64_i32 = arith.constant 64 : i32
    %row = tt.get_program_id x : i32 loc(#loc2)
    %end = arith.minsi %n, %n : i32
    %span = arith.muli %row, %c64_i32 : i32
    %0 = arith.cmpi slt, %span, %end : i32
    %stop = arith.select %0, %span, %end : i32
    %sum = scf.for %i = %c0_i32 to %stop step %c64_i32 iter_args(%p = %x) -> (!tt.ptr<bf16>)  : i32 {
      %ptrs = tt.splat %p : !tt.ptr<bf16> -> tensor<4x32x!tt.ptr<bf16>> loc(#loc3)
      %y = tt.load %ptrs : tensor<4x32x!tt.ptr<bf16>> loc(#loc4)
      %found = tt.load %x : !tt.ptr<i32>
      %most = "tt.reduce"(%y) <{axis = 0 : i32}> ({
      ^bb0(%a: f32 loc(#loc), %b: f32 loc(#loc)):
        tt.reduce.return %a : f32
      }) : (tensor<4x32xf32>) -> tensor<32xf32>
      scf.for %j = %c0_i32 to %found step %c64_i32  : i32 {
      }
      scf.yield %p : !tt.ptr<bf16>
    }
    tt.store %out, %c0_i32 : !tt.ptr<f32>
    tt.return
  }
}
"""  # noqa: E501 - as Triton writes it


def test_how_often_loops_run_and_what_they_move():
    """Program number p goes min(p · 64, 160) / 64 times around, in each of which it loads 4 · 32 bf16 and an i32."""
    found = trips.read(TTIR, [object(), object(), 160], (5,))
    outer, inner = found.trips
    assert outer is not None
    assert outer.tolist() == [0, 1, 2, 3, 3]
    assert inner is None  # its end is in memory
    assert found.loaded == {0: 9 * (4 * 32 * 2 + 4)}
    assert found.stored == {1: 5 * 4}


def test_an_access_that_is_not_understood_is_said():
    with pytest.raises(ValueError, match="access to memory"):
        trips.read("  tt.func public @f(%n: i32) {\n    %x = tt.load %other : !tt.ptr<f32>\n", [1], (1,))


def copy_of(megabytes: float, **other: Any) -> gpus.Work:
    """A kernel of many programs that reads and writes as many bytes, and computes nothing."""
    code = sass.instructions(machine_code("EXIT"))
    usual: dict[str, Any] = {
        "programs": 2**16,
        "warps": 4,
        "registers": 32,
        "shared": 0,
        "code": code,
        "trips": [],
        "even": True,
    }
    usual |= {"moved": megabytes * 1e6, "passed": megabytes * 1e6}
    return gpus.Work(**(usual | other))


@pytest.mark.parametrize(("gpu", "terabytes"), [(gpus.H200, 4.32), (gpus.H100, 3.015)])
def test_a_copy_takes_its_bytes(gpu, terabytes):
    time = gpus.time_of(copy_of(1000), gpu)
    assert time.bound == "memory"
    assert time.ms == pytest.approx(1e9 / (terabytes * 1e12) * 1e3 + gpu.launch_us / 1000, rel=0.01)


def test_a_product_takes_its_operations():
    """PyTorch's of 8192³, which the targets say runs at 788 TFLOP/s."""
    time = gpus.time_of_torch("mm", 3 * 2 * 8192**2, 2 * 8192**3, gpus.H200)
    assert time.bound == "tensor"
    assert 2 * 8192**3 / time.ms / 1e9 == pytest.approx(788, rel=0.01)


def test_what_does_not_fit_the_cache_is_read_again():
    """The second of two sweeps finds what the first left, if all programs at once leave little enough."""
    near = gpus.time_of(copy_of(40, passed=80e6, programs=132), gpus.H200)
    far = gpus.time_of(copy_of(4000, passed=8000e6, programs=132), gpus.H200)
    assert near.bound == "cache"
    assert far.ms == pytest.approx(8e9 / gpus.H200.copy_gbs / 1e6, rel=0.05)


@pytest.mark.parametrize(
    ("needs", "count"),
    [({}, 16), ({"registers": 168}, 3), ({"registers": 255, "warps": 8}, 1), ({"shared": 100 * 1024}, 2),
     ({"warps": 1}, 32)],
)  # fmt: skip
def test_how_many_programs_have_room(needs, count):
    assert gpus.at_once(copy_of(1, **needs)) == count


def test_few_programs_wait_and_many_hide_it():
    """One program takes its waiting; many at once at least that or the busiest pipe's time, and at most both."""
    code = sass.instructions(LOOP)
    alone = sass.Warp().run(code, [100]) / gpus.H200.clock_ghz / 1e6
    one = gpus.time_of(copy_of(0, code=code, trips=[100], programs=132), gpus.H200)
    assert one.bound == "latency"
    assert one.ms == pytest.approx(alone + 0.0025)
    crowd = gpus.time_of(copy_of(0, code=code, trips=[100], programs=132 * 16), gpus.H200)
    busiest = 16 * max(sass.busy(code, [100]).values()) / gpus.H200.clock_ghz / 1e6
    assert max(alone, busiest) <= crowd.ms - 0.0025 <= alone + busiest
    assert crowd.bound == "latency"  # 16 warps of a scheduler do not hide a load in each of so short trips


def test_a_part_of_a_turn_takes_as_long_as_a_whole_one():
    def ms(programs: int) -> float:
        work = copy_of(0, code=sass.instructions(LOOP), trips=[100], registers=255, warps=8, programs=programs)
        return gpus.time_of(work, gpus.H200).ms - gpus.H200.launch_us / 1000

    assert ms(133) == pytest.approx(2 * ms(132), rel=0.01)


# --- The table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", gpus.GPUS, ids=lambda gpu: gpu.name)
def test_the_committed_table_is_whole(gpu):
    """Its numbers may be of an earlier code: then `python -m kernels.ledger` says so."""
    found = predictions.table_for(f"{gpu.name} 80GB HBM3")
    assert found is not None
    assert found["predicted"] == gpu.name
    assert "gpu" not in found  # no ledger
    assert found["assumed"] == vars(gpu)
    assert len(found["entries"]) > 80
    for entry in found["entries"]:
        assert entry.get("unknown") or 0 < entry["ms"] < math.inf
        cached = entry["op"] == "embedding"  # half of what it moves: only its output must go to memory
        assert entry.get("share", 0) < (2 if cached else 1.3)
    assert {entry["op"] for entry in found["entries"]} >= {"attention", "softmax", "adam", "training step"}


def test_predictions_are_no_ledger():
    assert not [gpu for gpu, found in ledger.ledgers().items() if "predicted" in found]
    assert predictions.table_for("NVIDIA GeForce") is None


def test_old_predictions_are_named(tmp_path):
    hashes = {op: ledger.current(op) for op in KERNELS} | {"relu": "0"}
    predictions.save(tmp_path, "NVIDIA X1", {"hashes": hashes, "entries": []})
    said = "predicted for an NVIDIA X1: 0 tasks; changed since: relu (python -m kernels.predict)"
    assert predictions.described(tmp_path) == [said]


def test_a_prediction_stands_beside_what_was_measured(tmp_path):
    size = {"rows": 8, "columns": 512}
    task = {"op": "softmax", "what": "forward", "size": size, "moved": 1}
    step = {"op": "training step", "what": "+ CUDA graph", "size": {"sentences": 784, "length": 32}}
    ours, theirs = {"ms": 2.0, "gbs": 3000.0, "share": 0.7}, {"ms": 4.0, "gbs": 1500.0, "share": 0.35}
    entries = [task | {"contestants": {"ours": ours, "PyTorch": theirs}}]
    steps = [step | {"contestants": {"ours": {"ms": 30.0, "hours": 0.8}}}]
    hashes = {op: ledger.current(op) for op in KERNELS}
    part = {"versions": {}, "hashes": hashes}
    sections = {"rows": part | {"entries": entries}, "swap": part | {"entries": steps}}
    ledger.write(tmp_path / "x1.json", {"gpu": "NVIDIA X1 40GB", "smoke": False, "ops": {}, "sections": sections})
    expected = [task | {"ms": 1.5, "gbs": 4000.0, "share": 0.93}, step | {"ms": 26.0}]
    predictions.save(tmp_path, "NVIDIA X1", {"hashes": hashes | {"adam": "0"}, "entries": expected})
    (times,) = report.times(tmp_path).values()
    lines = [*report.section(tmp_path).splitlines(), *times.splitlines()]
    assert "| GB/s, and how much of a copy's | predicted of ours | ours | PyTorch |" in lines
    assert "| softmax, forward: rows 8, columns 512 | 4,000 (93%) | 3,000 (70%) | 1,500 (35%) |" in lines
    assert "| + CUDA graph, predicted 26 ms | 30 | 0.8 |" in lines
    assert any(line.endswith("changed since they were predicted: adam") for line in lines)
