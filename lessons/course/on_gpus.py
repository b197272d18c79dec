"""The times of a lesson's solutions on GPUs, which `tests/benchmarks/gpu/lease.py` measures and the ledgers keep."""

from hashlib import sha256

from kernels.proof.ledger import entries, ledgers, number, timed

from .sources import room


def on_gpus(lesson: str) -> str:
    """Return a line for each solution of lesson "15" that was timed as it is now, or say that there are none."""
    solutions, lines = sha256((room(lesson) / "solutions.py").read_bytes()).hexdigest(), []
    for gpu, ledger in ledgers().items():
        section = ledger["sections"].get("lessons", {"hashes": {}})
        if section["hashes"].get(f"lesson {lesson}") == solutions:
            lines += [
                f"{gpu}: {line_of(entry)}" for entry in entries(ledger, "lessons") if entry["op"] == f"lesson {lesson}"
            ]
    return "\n".join(lines) or "None of this lesson's kernels has run on a GPU yet (the package's have: lesson 17)."


def line_of(entry: dict) -> str:
    """Return "add of 16,777,216 (float32): solution 85 µs (2,370 GB/s), PyTorch 84 µs (2,390 GB/s)"."""
    said = []
    for who, found in timed(entry).items():
        rate, unit = (found["gbs"], "GB/s") if "gbs" in found else (found["tflops"], "TFLOP/s")
        said.append(f"{who} {number(1000 * found['ms'])} µs ({number(rate)} {unit})")
    return f"{entry['what']} of {entry['size']['shape']} ({entry['size']['dtype']}): {', '.join(said) or 'wrong'}"
