"""Check every kernel on this GPU, time it beside its peers, and write the ledger and its pictures.

    checks       every op against the float64 reference; the first that fails stops the run
    attention    against PyTorch's backends, forward and backward
    rows         the ops whose time is the memory's, against PyTorch, torch.compile and Liger
    swap         a training step of the paper's base, with one kernel more at a time

All of it takes less than eight minutes. Sections that are left out stay in the ledger as they are.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..availability import require_triton
from ..ledger import OPS, RESULTS, current
from . import results

if TYPE_CHECKING:
    from .machine import Machine

SECONDS = {"checks": 50, "attention": 190, "rows": 110, "swap": 125}
"""That each section is given, in this order; what one leaves, the next may use. What is late is left out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the status: 1 where an op is wrong or could not be timed, 2 where there is no GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="rehearse at tiny sizes, without a GPU too; no ledger")
    parser.add_argument("--only", nargs="+", choices=SECONDS, metavar="SECTION", help="these sections (default: all)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: kernels/results)")
    chosen = parser.parse_args(arguments)
    if chosen.smoke and chosen.out is not None and chosen.out.resolve() == RESULTS.resolve():
        parser.error("a smoke run measures nothing that belongs into the ledger: name another --out")
    try:
        machine = _machine(chosen.smoke)
    except (ModuleNotFoundError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    folder = chosen.out or (Path(tempfile.mkdtemp(prefix="bench-")) if chosen.smoke else RESULTS)
    return Run(machine, folder).sections(chosen.only or SECONDS)


def _machine(smoke: bool) -> "Machine":
    """What there is to run on. Triton asks once whether to interpret, when it is first imported: it is not, before."""
    require_triton()
    import torch

    if not smoke:
        os.environ.pop("TRITON_INTERPRET", None)
    elif not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)  # tensors are tiny
    from .machine import Machine

    return Machine.here(smoke)


class Run:
    """A machine, and the ledger that is added to."""

    def __init__(self, machine: "Machine", folder: Path) -> None:
        self.machine = machine
        self.path = results.path_of(folder, "smoke" if machine.smoke else machine.name)
        self.ledger = results.opened(self.path, machine.name, machine.smoke)
        self.stamp = {"date": datetime.now(UTC).date().isoformat(), "versions": machine.versions()}
        self.failures: list[str] = []

    def sections(self, names: Iterable[str]) -> int:
        """Run them, then draw what all of the ledger says; the status."""
        names = [name for name in SECONDS if name in names]
        seconds = sum(SECONDS[name] for name in names)
        print(f"{self.machine.name}: {', '.join(names)}, {seconds} s at the most; into {self.path}", flush=True)
        deadline = time.monotonic()
        for name in names:
            began, deadline = time.monotonic(), deadline + SECONDS[name]
            if name == "checks":
                self._check()
            else:
                self._time(name, deadline)
            print(f"{name}: {time.monotonic() - began:.0f} s, of {SECONDS[name]}", flush=True)
            if name == "checks" and self.failures:
                break
        return self._finish()

    def _check(self) -> None:
        """What is said of an op is written once it holds, and withdrawn where it doesn't."""
        from .checks import CheckFailed, check_all

        try:
            for op, errors in check_all(OPS, self.machine, self.machine.processes):
                self.ledger["ops"][op] = {"hash": current(op), **self.stamp, "errors": errors}
                words = ", ".join(f"{dtype} {worst['error']:.1e}" for dtype, worst in errors.items())
                print(f"{op}: {words}", flush=True)
        except CheckFailed as failed:
            self.ledger["ops"].pop(failed.op, None)
            self.failures.append(str(failed))
        finally:
            results.write(self.path, self.ledger)

    def _time(self, name: str, deadline: float) -> None:
        from .machine import Ceilings
        from .race import NO_TIME, OURS, Bench

        ceilings = Ceilings.of(self.machine)
        print(f"matmul {ceilings.matmul_tflops:.3g} TFLOP/s, copy {ceilings.copy_gbs:.4g} GB/s", flush=True)
        began, entries, late = time.monotonic(), [], 0
        hashes = {op: current(op) for op in OPS}
        self.ledger["sections"][name] = {**self.stamp, "ceilings": vars(ceilings), "hashes": hashes, "entries": entries}
        try:
            for entry in getattr(import_module(f".{name}", __package__), name)(Bench(self.machine, ceilings, deadline)):
                entries.append(entry)
                print(_line(entry), flush=True)
                late += sum(found.get("failed") == NO_TIME for found in entry["contestants"].values())
                failed = entry["contestants"].get(OURS, {}).get("failed")
                if failed not in (None, NO_TIME):
                    self.failures.append(f"{_task(entry)}: {failed}")
        finally:  # a broken device may end it
            self.ledger["sections"][name]["seconds"] = round(time.monotonic() - began, 1)
            results.write(self.path, self.ledger)
        if late:
            print(f"{name}: {late} times were left out for lack of time", flush=True)

    def _finish(self) -> int:
        from . import charts, report

        for picture in charts.draw(self.path):
            print(picture)
        print(self.path)
        if not self.machine.smoke:
            print("\n".join(report.targets_met(self.ledger)))
        for failure in self.failures:
            print(f"failed: {failure}", file=sys.stderr)
        return 1 if self.failures else 0


def _task(entry: results.Entry) -> str:
    return f"{entry['op']}, {entry['what']}: {results.size_of(entry)}"


def _line(entry: results.Entry) -> str:
    """An entry for those who wait."""
    times = (
        f"{name} {results.number(found['ms'])} ms" if "ms" in found else f"{name} –"
        for name, found in entry["contestants"].items()
    )
    return f"{_task(entry)}: {'; '.join(times)}"


if __name__ == "__main__":
    sys.exit(main())
