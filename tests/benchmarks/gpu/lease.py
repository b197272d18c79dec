"""The one script for a rented GPU: what is right there, what is fast, and which of two ways is faster.

    export PYTHONPATH=.
    python tests/benchmarks/gpu/lease.py first --out DIR      at most 300 s: attention, and what is open
    python tests/benchmarks/gpu/lease.py second --out DIR     at most 240 s: everything else
    python tests/benchmarks/gpu/lease.py keep DIR/*.json      at home: into kernels/results, with pictures
    python tests/benchmarks/gpu/lease.py report               at home: the tables of kernels/README.md
    python tests/benchmarks/gpu/lease.py compile --cache DIR --wheel TREE    at home, before: for TRITON_CACHE_DIR there

first    compile      30 s   what the part launches, on all cores; what lies in TRITON_CACHE_DIR is found there
         schedules    60 s   attention against float64 in three dtypes: as shipped, then with each schedule forced
         ab           90 s   one change at a time beside the kernels as shipped, in turns
         attention   110 s   twelve shapes beside FlashAttention-2, cuDNN and FlexAttention
second   compile      30 s
         checks       45 s   every other op against float64 in three dtypes
         lessons      15 s   the solutions of lessons 15 and 16: right, and how fast
         rows         70 s   decoding, the fused loss and all ops over rows, beside PyTorch, torch.compile and Liger
         swap         70 s   base's training step with one kernel more at a time, and with torch.compile

The time that a section leaves, the next has; `measured` says what each measures. DIR/<gpu>-lease.json has every result
as soon as it is there, in the ledger's format. It is added to: with the same DIR a second run measures what is missing,
what failed, and what has changed since. With `--smoke` a part is rehearsed at tiny sizes in Triton's interpreter,
without a GPU: on two cores `first` takes two to six minutes, `second` one to two.

This process touches no GPU. A section's units of work are done one after the other in copies of it. A unit that raises
is named with its reason. If one hangs, dies or breaks the GPU for its process, the process is ended, the unit is named,
and the next process goes on behind it.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from time import monotonic, strftime
from typing import TYPE_CHECKING, Any, NamedTuple

import tables
from supervisor import NO_TIME, Ended, Job, reason_of, supervise

from kernels import KERNELS
from kernels.availability import require_triton
from kernels.proof import ledger
from kernels.proof.ledger import DTYPES, FLEX, LATE, OURS, Entry, task_of
from minitransformer.cli.errors import message_of
from minitransformer.system.threads import available_cores

if TYPE_CHECKING:
    from timing import Found, Machine


class Section(NamedTuple):
    """The seconds of a section, and those that one of its processes may say nothing; how many processes work side by
    side; and how often each time is taken."""

    seconds: int
    patience: int
    lanes: int = 1
    turns: int = 1


SIDE_BY_SIDE = min(8, available_cores())
COMPILE = Section(30, 60, available_cores())
PARTS = {
    "first": {
        "schedules": Section(60, 60, SIDE_BY_SIDE),
        "ab": Section(90, 40, turns=3),
        "attention": Section(110, 45),
    },
    "second": {
        "checks": Section(45, 30, SIDE_BY_SIDE),
        "lessons": Section(15, 15),
        "rows": Section(70, 25),
        "swap": Section(70, 60),
    },
}
LIMITS, TO_END = {"first": 300, "second": 240}, 6
"""The seconds of a part, of which so many are kept for ending processes."""
LEISURE = 10
"""A rehearsal may take so many times as long: the interpreter is slow."""

Unit = tuple[str, str, int]
"""A task in words, a contestant, and the number of its turn."""


# --- What is known ---------------------------------------------------------------------------------------------


def joined(section: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Entry]:
    """Return a section's entries by task, with results that an earlier section has of the same code and versions."""
    entries = {task_of(entry): entry for entry in section["entries"]}
    hashes = section["hashes"]
    for entry in earlier.get("entries", []):
        ran = [entry["op"]] if entry["op"] in hashes else KERNELS  # a training step runs all
        same = all(earlier["hashes"].get(op) == hashes[op] for op in ran)
        if same and "date" in entry and earlier["versions"] == section["versions"]:
            mine = entries.get(task_of(entry), entry)
            here = {who: found for who, found in mine["contestants"].items() if "failed" not in found}
            entries[task_of(entry)] = entry | mine | {"contestants": mine["contestants"] | entry["contestants"] | here}
    return entries


def judged(entry: Entry) -> dict[str, Any] | None:
    """Return the errors of an op's check, and why it failed; None while parts are missing and none has failed."""
    ours = {who: found for who, found in entry["contestants"].items() if who.startswith(DTYPES)}
    failed = [found["failed"] for found in ours.values() if "failed" in found and found != LATE]
    if LATE in ours.values() and not failed:
        return None
    errors: dict[str, dict[str, float]] = {}
    for who, found in ours.items():
        if "failed" not in found:
            worst = errors.setdefault(who.split(",")[0], dict(found))
            worst.update({name: max(value, worst[name]) for name, value in found.items()})
    return {"errors": errors, **({"failed": failed} if failed else {})}


def opened(path: Path, gpu: str, smoke: bool) -> ledger.Ledger:
    """Return what the file says, to be added to, or a new one. Raises `ValueError` for what is no ledger."""
    if not path.exists():
        return {"gpu": gpu, "smoke": smoke, "ops": {}, "sections": {}, "failures": []}
    try:
        said = ledger.read(path)
        return said | {"ops": dict(said["ops"]), "sections": dict(said["sections"]), "failures": []}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no ledger ({error!r}): move it away") from None


def keep(files: Sequence[Path]) -> None:
    """Add these files' results to the ledgers of their GPUs, and draw their pictures."""
    import charts  # and so matplotlib, which no process on the GPU needs

    for file in files:
        new = ledger.read(file)
        if new["smoke"]:
            sys.exit(f"{file} is a rehearsal's, which measured nothing: it is not kept")
        path = ledger.path_of(ledger.RESULTS, new["gpu"])
        old = opened(path, new["gpu"], smoke=False)
        for name, section in new["sections"].items():
            entries = list(joined(section, old["sections"].get(name, {})).values())
            old["sections"][name] = section | {"entries": entries}
        ledger.write(path, old | {"ops": old["ops"] | new["ops"], "failures": new["failures"]})
        print(*[path, *charts.draw(path)], sep="\n")


def in_words(found: "Found") -> str:
    """Return "1.23 ms, 950 TFLOP/s, 1.05 × ours (expected: …)", of a check "0.0003 off", or why there is neither."""
    if "failed" in found:
        return found["failed"]
    measures = {"ms": "ms", "tflops": "TFLOP/s", "gbs": "GB/s", "ratio": "× ours", "error": "off"}
    said = ", ".join(f"{ledger.number(found[key])} {unit}" for key, unit in measures.items() if key in found)
    return said + (f" (expected: {found['expected']})" if found.get("expected") else "")


# --- The part --------------------------------------------------------------------------------------------------


class Lease:
    """A part on this machine, and the file that it adds to.

    Raises `RuntimeError` without a GPU, `OSError` where nothing can be written, `ValueError` for what is no ledger.
    """

    def __init__(self, part: str, smoke: bool, folder: Path) -> None:
        import measured
        import torch
        from timing import Machine

        self.part, self.smoke, self.measured = part, smoke, measured
        if smoke:
            torch.set_num_threads(1)  # tensors are tiny
        self.end = self.deadline = monotonic() + self.limit(LIMITS[part] - TO_END)
        folder.mkdir(parents=True, exist_ok=True)
        heard = list[Any]()
        supervise(deque([partial(look, smoke)]), lambda job, said: heard.append(said), self.end + 60, self.limit(60))
        if not isinstance(heard[0], Machine):
            raise RuntimeError(heard[0] if isinstance(heard[0], str) else f"no GPU was found: {heard[0].reason}")
        self.machine = heard[0]
        self.path = ledger.path_of(folder, ("smoke" if smoke else self.machine.name) + " lease")
        self.ledger = opened(self.path, self.machine.name, smoke)
        self.date, self.hashes = strftime("%Y-%m-%d"), {op: ledger.current(op) for op in KERNELS}
        self.hashes |= {lesson: sha256(path.read_bytes()).hexdigest() for lesson, path in measured.LESSONS.items()}
        ledger.write(self.path, self.ledger)

    def run(self, names: Sequence[str]) -> int:
        """Run sections one after the other. Returns the status: 1 if something failed."""
        say(f"{self.machine.name}, {self.date}, {self.part}: {', '.join(names)}; into {self.path}")
        if self.smoke:
            say("a rehearsal, which takes one to six minutes")
        self.deadline = min(monotonic() + self.limit(COMPILE.seconds), self.end)
        if self.machine.gpu is not None:  # else there is the interpreter, which compiles nothing
            # What fails here is compiled again where it is launched, and fails there.
            say(f"compiled ahead: {compiled(self.machine, names, self.deadline)} kernels")
        for name in names:
            began, rules = monotonic(), PARTS[self.part][name]
            self.deadline = min(self.deadline + self.limit(rules.seconds), self.end)
            try:
                Board(self, name, rules).run()
            except Exception as error:
                self.fail(f"{name}: {reason_of(error)}")
            say(f"{name}: {monotonic() - began:.0f} s, of {rules.seconds}")
        if not self.write():
            print(json.dumps(self.ledger))
        return 1 if self.ledger["failures"] else 0

    def fail(self, what: str) -> None:
        """Say and note what failed."""
        say(f"failed: {what}")
        self.ledger["failures"].append(what)

    def limit(self, seconds: float) -> float:
        """Return how long that may take."""
        return seconds * (LEISURE if self.smoke else 1)

    def write(self) -> bool:
        """Write the file, and return whether that was possible: what can't be written now may be later."""
        try:
            ledger.write(self.path, self.ledger)
        except OSError as error:
            print(message_of(error) or error, file=sys.stderr)
            return False
        return True


def look(smoke: bool) -> Iterator[Any]:
    """Yield the machine, or say in a sentence that it has no GPU."""
    from timing import Machine

    try:
        yield Machine.here(smoke)
    except RuntimeError as error:
        yield str(error)


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


class Board:
    """A section's entries as they stand, and the units that are left."""

    def __init__(self, lease: Lease, name: str, rules: Section) -> None:
        self.lease, self.name, self.rules = lease, name, rules
        self.tasks = {task_of(task.entry()): task for task in lease.measured.TASKS[name](lease.machine)}
        planned = [task.entry() for task in self.tasks.values()]
        about, sections = {"versions": lease.machine.versions, "hashes": lease.hashes}, lease.ledger["sections"]
        self.section = about | {"ceilings": lease.machine.ceilings, "entries": planned}
        self.entries = joined(self.section, sections.get(name, {}))
        self.failed, self.jobs = set[tuple[str, str]](), deque[Job]()
        sections[name] = self.section | {"entries": list(self.entries.values())}

    def run(self) -> None:
        """Do what has no result yet; say what came out."""
        self._skip_refused()
        left = [unit for unit in self._in_turns() if "failed" in self._found(unit)]
        for lane in range(self.rules.lanes):
            for _, units in groupby(
                left[lane :: self.rules.lanes], lambda unit: self.lease.measured.process_of(unit[1])
            ):
                self.jobs.append(partial(self._work, list(units)))
        supervise(self.jobs, self._hear, self.lease.deadline, self.lease.limit(self.rules.patience), self.rules.lanes)
        results = [(key, *item) for key, entry in self.entries.items() for item in entry["contestants"].items()]
        for key, who, found in results if self.rules.turns > 1 else []:
            say(f"{key}; {who}: {in_words(found)}")
        if late := sum(found == LATE for _, _, found in results):
            say(f"{self.name}: {late} times were left out for lack of time")

    def _in_turns(self) -> list[Unit]:
        """Return all units, every second turn backwards. Contestants that compile long come last, and those alone."""
        late = [FLEX, "torch.compile", *self.lease.measured.ALONE]
        once = [(key, who) for key, task in self.tasks.items() for who in task.contestants]
        once.sort(key=lambda unit: late.index(unit[1]) if unit[1] in late else -1)
        turns = (reversed(once) if turn % 2 else once for turn in range(self.rules.turns))
        return [(*unit, turn) for turn, units in enumerate(turns) for unit in units]

    def _found(self, unit: Unit) -> "Found":
        return self.entries[unit[0]]["contestants"][unit[1]]

    def _skip_refused(self) -> None:
        """Give up the schedules of attention that failed their check in some dtype: they are compared with nothing."""
        checks = self.lease.ledger["sections"].get("schedules", {"entries": []})["entries"]
        checked = [item for entry in checks for item in entry["contestants"].items()]
        refused = [(who, found["failed"]) for who, found in checked if "failed" in found and found != LATE]
        why = {who.rpartition(" in ")[0]: failed for who, failed in refused}
        for key, task in self.tasks.items() if self.name == "ab" else ():
            for who in why.keys() & task.contestants.keys():
                self._take((key, who, 0), {"failed": f"its check: {why[who]}"})

    def _work(self, units: list[Unit]) -> Iterator["Found | None"]:
        """Yield the result of each unit, in a process of its own; `None` where a turn before has failed."""
        machine, before = self.lease.machine, ""
        for key, who, _ in units:
            if (key, who) in self.failed:
                yield None
                continue
            if key != before:
                machine.tidy()
                before = key
            found = outcome(partial(self.tasks[key].contestants[who], machine), machine)
            if "failed" in found:
                self.failed.add((key, who))
            yield found

    def _hear(self, job: Any, said: Any) -> None:
        """Take what a process says of the first of its units; if it ends before the last, another goes on behind."""
        (units,) = job.args
        if not isinstance(said, Ended):
            unit = units.pop(0)
            if said is not None:
                self._take(unit, said)
        elif units and said.reason not in (None, NO_TIME):
            self._take(units.pop(0), {"failed": said.reason, "died": True})
            self.jobs.appendleft(job)

    def _take(self, unit: Unit, found: "Found") -> None:
        """Enter a result, of several turns the median and its ratio to ours; say it and write the file."""
        key, who, _ = unit
        lease, entry = self.lease, self.entries[key]
        each = dict(entry["contestants"])
        if self.rules.turns > 1 and "ms" in found:
            times = [*each[who].get("turns", []), found["ms"]]
            median = statistics.median(times)
            rates = {rate: found[rate] * found["ms"] / median for rate in ("tflops", "gbs", "share") if rate in found}
            found = found | rates | {"ms": median, "turns": times}
        each[who] = found
        if self.rules.turns > 1 and "ms" in each[OURS]:
            for one in each.values():
                if "ms" in one:
                    one["ratio"] = one["ms"] / each[OURS]["ms"]
        self.entries[key] = entry = entry | {"date": lease.date, "contestants": each}
        lease.ledger["sections"][self.name]["entries"] = list(self.entries.values())
        checks = self.name in ("schedules", "checks")
        if checks and (state := judged(entry)):
            stamp = {"hash": lease.hashes[entry["op"]], "date": lease.date, "versions": lease.machine.versions}
            lease.ledger["ops"][entry["op"]] = stamp | state
        if self.rules.turns == 1:
            say(f"{key}; {who}: {in_words(found)}")
        if "failed" in found:
            self.failed.add((key, who))
            ours = checks or self.name == "ab" or who in (OURS, lease.measured.SOLUTION)
            if ours or "died" in found:  # that others cannot do a task is no failure
                lease.fail(f"{self.name}: {key}; {who}: {found['failed']}")
        lease.write()


def outcome(measure: Any, machine: "Machine") -> "Found":
    """Return a unit's result, or why it failed. Raises what it raised if the GPU computes no more."""
    from kernels.proof.checks import Refused

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers say at length why they don't take an option
            return measure()
    except Exception as problem:
        if not machine.works():
            raise
        return {"failed": str(problem) if isinstance(problem, Refused) else reason_of(problem)}


# --- Compiling -------------------------------------------------------------------------------------------------


def compiled(machine: "Machine", names: Sequence[str], deadline: float, wheel: Path | None = None) -> int:
    """Compile what these sections launch, on all cores; return the number of kernels."""
    from ahead import compile_ahead

    counts, lanes = list[int](), COMPILE.lanes

    def hear(job: Job, said: Any) -> None:
        if isinstance(said, int):
            counts.append(said)
        elif said.reason is not None:
            say(f"compiling ahead: {said.reason}")

    with tempfile.TemporaryDirectory() as claims:
        each = (partial(compile_ahead, machine, names, Path(claims), lane, lanes, wheel) for lane in range(lanes))
        supervise(deque(each), hear, deadline, deadline - monotonic(), lanes)
    return sum(counts)


def compile_at_home(cache: Path, wheel: Path) -> None:
    """Fill a cache for an H100 or H200; `wheel` is the Triton there, unpacked, of the same version as here."""
    os.environ |= {"TRITON_CACHE_DIR": str(cache.resolve()), "TRITON_STORE_BINARY_ONLY": "1"}
    from ahead import HOPPER, key_of

    key_of(wheel)  # raises for another version
    names = [name for part in PARTS.values() for name in part]
    print(f"{compiled(HOPPER, names, monotonic() + 24 * 3600, wheel)} kernels in {cache}")


# --- The command -----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the status: 1 where something failed, 2 where nothing could begin."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for part, sections in PARTS.items():
        command = commands.add_parser(part)
        command.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder that is added to")
        command.add_argument("--only", nargs="+", choices=sections, default=sections, metavar="SECTION")
        command.add_argument("--smoke", action="store_true", help="rehearse for minutes, without a GPU")
    commands.add_parser("keep").add_argument("files", nargs="+", type=Path)
    commands.add_parser("report")
    command = commands.add_parser("compile")
    command.add_argument("--cache", type=Path, required=True, metavar="DIR")
    command.add_argument("--wheel", type=Path, required=True, metavar="TREE", help="the GPU's Triton, unpacked")
    chosen = parser.parse_args(arguments)
    if chosen.command == "report":
        tables.main()
        return 0
    if chosen.command == "keep":
        keep(chosen.files)
        return 0
    # Triton asks whether to interpret when it is first imported. PyTorch's other way to ask for a GPU would break it
    # for copies of this process.
    interpret = "1" if getattr(chosen, "smoke", False) else "0"
    os.environ |= {"TRITON_INTERPRET": interpret, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    if chosen.command == "compile":
        compile_at_home(chosen.cache, chosen.wheel)
        return 0
    with stopped_after(LIMITS[chosen.command] * (LEISURE if chosen.smoke else 1)):
        try:
            require_triton()
            lease = Lease(chosen.command, chosen.smoke, chosen.out)
        except (ModuleNotFoundError, RuntimeError, OSError, ValueError) as error:
            print(message_of(error) or error, file=sys.stderr)
            return 2
        return lease.run([name for name in PARTS[chosen.command] if name in chosen.only])


@contextlib.contextmanager
def stopped_after(seconds: int) -> Iterator[None]:
    """End this process, and so its own, when it is told to, or after so many seconds."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM
    before = {number: signal.signal(number, lambda number, frame: os._exit(128 + number)) for number in numbers}
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
