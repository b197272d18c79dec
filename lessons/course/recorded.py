"""Results that a learner's machine may not be able to measure, recorded on a machine that could."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from .sources import LESSONS, lesson_folder

RECORD = "COURSE_RECORD"  # set by `make notebooks`
READS = "COURSE_READS"  # set by it too: the file in which the names of the recorded files that are opened are noted
FOLDERS = "results", "recordings"  # whose JSON files were recorded


def recorded(name: str, measure: Callable[[], Any]) -> Any:
    """Return `measure()`, or, where it raises `ImportError`, the result that was recorded by `make notebooks`.

    The result is plain JSON; "04_pytorch" is kept as `recordings/pytorch.json` in the folder of lesson 04. `measure`
    imports the packages it needs; where one is missing, a printed line says so.
    """
    path = lesson_folder(name[:2]) / "recordings" / f"{name[3:]}.json"
    try:
        result = measure()
    except ImportError as missing:
        print(f"{missing}: what follows was recorded where it is installed (see lessons/README.md)")
        return json.loads(path.read_text(encoding="utf-8"))
    if os.environ.get(RECORD):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    """Note a recorded file that is opened: a hook of `sys.addaudithook`."""
    if event == "open" and isinstance(arguments[0], str) and arguments[0].endswith(".json"):
        path = Path(arguments[0]).resolve()
        if path.parent.name in FOLDERS and path.is_relative_to(LESSONS.parent):
            with open(os.environ[READS], "a", encoding="utf-8") as file:
                file.write(f"{path.relative_to(LESSONS.parent).as_posix()}\n")


if os.environ.get(READS):
    sys.addaudithook(_note)


def fingerprints(names: Iterable[str]) -> dict[str, str]:
    """Return a hash of each of these files of the repository, by name."""
    return {name: sha256((LESSONS.parent / name).read_bytes()).hexdigest()[:16] for name in sorted(set(names))}


def gpu_times(lesson: str) -> str:
    """Return a line for each solution of lesson "15" that was timed on a GPU, or a sentence that none was.

    `tests/benchmarks/gpu/lease.py` measures them, and the ledgers of `kernels/results` keep them with a hash of
    `solutions.py`: times of other code are not shown.
    """
    from kernels.proof import ledger  # here: only the lessons about kernels need it

    solutions, lines = sha256((lesson_folder(lesson) / "solutions.py").read_bytes()).hexdigest(), list[str]()
    for gpu, found in ledger.ledgers().items():
        section = found["sections"].get("lessons", {"hashes": {}})
        if section["hashes"].get(f"lesson {lesson}") == solutions:
            entries = ledger.entries(found, "lessons")
            lines += [f"{gpu}: {_times_line(entry)}" for entry in entries if entry["op"] == f"lesson {lesson}"]
    return "\n".join(lines) or "None of this lesson's kernels has run on a GPU yet (the package's have: lesson 17)."


def _times_line(entry: dict[str, Any]) -> str:
    """Return "add of 16,777,216 (float32): solution 85 µs (2,370 GB/s), PyTorch 84 µs (2,390 GB/s)"."""
    from kernels.proof.ledger import number, timed

    times = []
    for who, found in timed(entry).items():
        rate, unit = (found["gbs"], "GB/s") if "gbs" in found else (found["tflops"], "TFLOP/s")
        times.append(f"{who} {number(1000 * found['ms'])} µs ({number(rate)} {unit})")
    return f"{entry['what']} of {entry['size']['shape']} ({entry['size']['dtype']}): {', '.join(times) or 'wrong'}"
