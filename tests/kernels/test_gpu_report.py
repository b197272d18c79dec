"""The section of `kernels/README.md` made of a ledger, and the targets that are met. No GPU, PyTorch or Triton."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernels import KERNELS
from kernels.proof import ledger

sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "gpu"))

import tables

ROOT = Path(ledger.__file__).parents[2]


def timed(op: str, what: str, size: dict[str, Any], **contestants: dict[str, float]) -> ledger.Entry:
    contestants = {name: {"share": 0.5} | found for name, found in contestants.items()}
    return {"op": op, "what": what, "size": size, "moved": 1, "contestants": contestants}


def invented(gpu: str = "Imaginary H200") -> ledger.Ledger:
    """A ledger of no GPU, in round numbers that nobody measured."""
    stamp = {"date": "2030-01-02", "versions": {"torch": "9.0"}}
    attention = [
        timed("attention", what, {"kind": kind, "B": 1, "H": 1, "Tq": T, "Tk": T, "D": D},
              ours={"ms": 1.0, "tflops": 500.0 if kind == "full" else 400.0}, cuDNN={"ms": 0.5, "tflops": 1000.0})
        for what in ("forward", "forward + backward")
        for kind in ("full", "causal", "dropout")
        for D in (64, 128)
        for T in (4096, 8192, 16_384)
    ]  # fmt: skip
    rows = [
        timed("softmax", "forward", {"rows": 8, "columns": columns}, ours={"ms": 1.0, "gbs": 1.0, "share": share})
        for columns, share in ((512, 0.93), (8192, 0.91), (131_072, 0.7))
    ]
    step = {"sentences": 784, "length": 32}
    swap = [
        timed("training step", "+ CUDA graph", step, ours={"ms": 2.0, "hours": 0.25}),
        timed("training step", "PyTorch, torch.compile", step, PyTorch={"ms": 3.0, "hours": 0.5}),
    ]
    hashes = {op: ledger.current(op) for op in KERNELS}
    sections = {
        name: stamp | {"hashes": hashes, "entries": entries, "ceilings": {"matmul_tflops": 1000.0, "copy_gbs": 1000.0}}
        for name, entries in (("attention", attention), ("rows", rows), ("swap", swap))
    }
    errors = {"float32": {"error": 1e-6, "of_allowed": 0.1}}
    ops = {
        "relu": stamp | {"hash": ledger.current("relu"), "errors": errors},
        "adam": stamp | {"hash": "0", "errors": errors},
    }
    return {"gpu": gpu, "smoke": False, "ops": ops, "sections": sections}


def test_which_targets_are_met():
    lines = {line.split(":")[0]: line for line in tables.targets_met(invented())}
    for what, said in {
        "attention forward, D 128, full, 4k–16k": "500 TFLOP/s (goal: at least 520, not met)",
        "attention forward, D 64, full, 4k–16k": "500 TFLOP/s (goal: at least 420, met)",
        "attention forward, D 128, causal, 16k": "400 TFLOP/s (goal: at least 460, not met)",
        "attention forward, D 64, causal, 16k": "400 TFLOP/s (goal: at least 375, met)",
        "attention, both ways, against cuDNN": "0.5 times as fast (goal: at least 0.7, not met)",
        "dropout costs": "25 % (goal: at most 25, met)",
        "softmax, up to 64k columns": "91 % of a copy (goal: at least 92, not met)",
        "softmax, beyond 64k columns": "70 % of a copy (goal: at least 62, met)",
        "base training step, against torch.compile with SDPA": "1.5 times as fast (goal: at least 1, met)",
    }.items():
        assert lines.pop(what) == f"{what}: {said}"
    assert not lines  # what was not measured is neither met nor missed
    assert len(tables.targets(invented())) == 17
    elsewhere = tables.targets_met(invented("Another"))
    assert all("(an H200's goal: at " in line and line.endswith(", for scale)") for line in elsewhere)


def test_readme_without_a_ledger(tmp_path):
    (tmp_path / "compiled.json").write_text("{}", encoding="utf-8")  # no ledger
    ledger.write(tmp_path / "smoke.json", invented() | {"smoke": True})  # a rehearsal verifies nothing
    text = tables.section(tmp_path)
    assert [line.split("`")[1] for line in text.splitlines() if "`" in line] == list(KERNELS)
    assert text.count("not yet executed as machine code") == len(KERNELS)
    assert "Not yet verified on a GPU" in text


def test_readme_with_a_ledger(tmp_path):
    found = invented()
    found["sections"]["rows"]["hashes"] = found["sections"]["rows"]["hashes"] | {"softmax": "0"}
    ledger.write(ledger.path_of(tmp_path, found["gpu"]), found)
    assert [path.name for path in tmp_path.iterdir()] == ["imaginary-h200.json"]
    text, (times,) = tables.section(tmp_path), tables.times(tmp_path).values()
    for line in (
        "**Imaginary H200** (2030-01-02: torch 9.0); changed since they were timed: softmax",
        "| `relu` | verified on 2030-01-02 | 1.0e-06 | – | – |",
        "| `adam` | changed since it was verified on 2030-01-02 | 1.0e-06 | – | – |",
        "| + CUDA graph | 2 | 0.25 |",
        "- dropout costs: 25 % (goal: at most 25, met)",
    ):
        assert line in text.splitlines(), line
    for line in (
        "**Imaginary H200** (2030-01-02: torch 9.0); changed since they were timed: softmax",
        "| attention: TFLOP/s, and how much of a product's | ours | cuDNN |",
        "| attention, forward: full, B 1, H 1, Tq 4,096, Tk 4,096, D 128 | 500 (50%) | 1,000 (50%) |",
        "| softmax, forward: rows 8, columns 131,072 | 1 (70%) |",
    ):
        assert line in times.splitlines(), line
    assert "(results/imaginary-h200.md)" in text
    assert "imaginary-h200-rows.png" not in times
    (tmp_path / "imaginary-h200-rows.png").touch()
    (times,) = tables.times(tmp_path).values()
    assert times.endswith("](imaginary-h200-rows.png)\n")
    assert text.count("not yet verified |") == len(KERNELS) - 2


def test_readme_says_what_the_ledgers_say():
    text = tables.README.read_text(encoding="utf-8")
    assert tables.BEGIN + tables.section() + tables.END in text, "run python tests/benchmarks/gpu/lease.py report"
    for path, said in tables.times().items():
        assert path.read_text(encoding="utf-8") == said, "run python tests/benchmarks/gpu/lease.py report"


def test_pictures_and_tables_need_no_pytorch():
    program = "import sys; sys.modules['torch'] = sys.modules['triton'] = None; import charts, tables; tables.section()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(tables.__file__).parent)])}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
