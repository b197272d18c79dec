"""Check every kernel on this GPU, time it beside its peers, and write the ledger and its pictures.

    compile      what the sections will launch, on all cores, ahead of them
    checks       every op against the float64 reference
    attention    against PyTorch's backends, forward and backward
    rows         the ops whose time is the memory's, against PyTorch, torch.compile and Liger
    swap         a training step of the paper's base, with one kernel more at a time

All of it takes less than ten minutes: a section that is not done when its time is up is stopped. Each op's checks and
each section have processes of their own. What fails, hangs or dies is written down with its reason, and the rest goes
on. A section times our kernels first and all contestants side by side after that.

DIR/<gpu>.json has every result as soon as it is there, whatever ends the run. It begins as the ledger of this checkout,
and sections that are left out stay as they are. On a machine whose checkout is thrown away, choose a DIR that is kept,
bring the file back into kernels/results, and run python -m kernels.bench.report.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minitransformer.cli.errors import message_of

from ..availability import require_triton
from .ledger import RESULTS
from .run import SECTIONS, Run
from .supervisor import nothing


def main(arguments: Sequence[str] | None = None, before: Callable[[], None] = nothing) -> int:
    """Returns the status: 1 where something failed, 2 where there is no GPU or nowhere to write.

    Each process calls `before` first: tests break things with it. Raises `SystemExit` when told to stop.
    """
    parser = argparse.ArgumentParser(
        prog="python -m kernels.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="rehearse at tiny sizes, without a GPU too; no ledger")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", help="these sections (default: all)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: kernels/results)")
    chosen = parser.parse_args(arguments)
    if chosen.smoke and chosen.out is not None and chosen.out.resolve() == RESULTS.resolve():
        parser.error("a smoke run measures nothing that belongs into the ledger: name another --out")
    folder = chosen.out or (Path(tempfile.mkdtemp(prefix="bench-")) if chosen.smoke else RESULTS)
    with _told_to_stop():
        try:
            require_triton()
            run = Run(chosen.smoke, folder, before)
        except (ModuleNotFoundError, RuntimeError, OSError, ValueError) as error:
            print(message_of(error) or error, file=sys.stderr)
            return 2
        try:
            return run.sections([name for name in SECTIONS if name in (chosen.only or SECTIONS)])
        except SystemExit:
            print(f"stopped; what was found until then is in {run.path}", file=sys.stderr)
            raise


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a lost terminal end it with `SystemExit`, which takes its processes along."""

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] != signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
