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
as soon as it is there, in the ledger's format, DIR/<gpu>-lease.log the same in lines. Both are added to: with the same
DIR a second run measures what is missing, what failed, and what has changed since.

This process touches no GPU. A section's units of work are done one after the other in processes of their own. A unit
that raises is named with its reason. If one hangs, dies or breaks the GPU for its process, the process is ended, the
unit is named, and the next process goes on behind it.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from time import monotonic, strftime
from typing import TYPE_CHECKING, Any, NamedTuple

import tables
from supervisor import FORK, NO_TIME, SPAWN, Ended, Job, nothing, supervise

from kernels import KERNELS
from kernels.proof import ledger
from kernels.proof.ledger import DTYPES, LATE, OURS, Entry, task_of
from minitransformer.cli.errors import message_of
from minitransformer.system.threads import available_cores

if TYPE_CHECKING:
    from timing import Machine

COURSE = Path(__file__).resolve().parents[3] / "lessons" / "course"
LESSONS = {f"lesson {n}": COURSE / f"lesson_{n}" / "solutions.py" for n in (15, 16)}


class Section(NamedTuple):
    """How long a section may take, and how long one of its processes may say nothing, in seconds; how many processes
    work side by side, 0 for as many as the machine can have; and how often each time is taken."""

    seconds: int
    patience: int
    lanes: int = 1
    turns: int = 1


COMPILE = Section(30, 60)
PARTS = {
    "first": {"schedules": Section(60, 60, lanes=0), "ab": Section(90, 40, turns=3), "attention": Section(110, 45)},
    "second": {
        "checks": Section(45, 30, lanes=0),
        "lessons": Section(15, 15),
        "rows": Section(70, 25),
        "swap": Section(70, 60),
    },
}
LIMITS, TO_END = {"first": 300, "second": 240}, 6
"""The seconds of a part, of which so many are kept for ending processes."""
LEISURE = 10
"""A rehearsal may take so many times as long: the interpreter is slow."""

SOLUTION = "solution"
NOT_THERE = "not there: "

Unit = tuple[str, str, int]
"""A task in words, a contestant, and the number of its turn."""


# --- What a process does ---------------------------------------------------------------------------------------


def machine_of(smoke: bool) -> "Machine":
    """Return what there is to run on. Triton asks whether to interpret when it is first imported: not before this."""
    import torch

    if smoke and not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)  # tensors are tiny
    from timing import Machine

    return Machine.here(smoke)


def look(smoke: bool) -> Iterator[dict[str, Any]]:
    """Yield what there is to run on, how many processes may check at once and what to compile for; or `refused`."""
    try:
        machine = machine_of(smoke)
    except (ModuleNotFoundError, RuntimeError) as error:
        yield {"refused": str(error)}
        return
    shapes = None
    if machine.device == "cuda":
        from ahead import shapes_of

        shapes = asdict(shapes_of(machine))
    found = {"device": machine.device, "name": machine.name, "versions": machine.versions()}
    yield found | {"at_once": machine.processes, "shapes": shapes}


def compute(smoke: bool) -> Iterator[bool]:
    """Yield whether the GPU computes in a process of this kind."""
    yield machine_of(smoke).works()


def work(smoke: bool, name: str, how: dict[str, Any], done: Collection[Unit], lane: int, lanes: int) -> Iterator[Any]:
    """Measure a lane's units. `measured` imports Triton, which must know before whether it interprets."""
    machine = machine_of(smoke)
    import measured

    yield from measured.units(machine, name, how, done, lane, lanes)


def compile(shapes: dict[str, Any], names: Sequence[str], claims: Path, wheel: Path | None = None) -> Iterator[int]:
    """Compile what the sections launch and no other process has claimed; yield the number of kernels."""
    from ahead import Shapes, compile_ahead

    yield compile_ahead(Shapes(**shapes), names, claims, wheel)


# --- What is known ---------------------------------------------------------------------------------------------


def measured_in(entry: Entry) -> list[str]:
    """Return the contestants that have a result."""
    return [who for who, found in entry["contestants"].items() if "failed" not in found]


def joined(section: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Entry]:
    """Return a section's entries by task, with results that an earlier section has of the same code and versions."""
    entries = {task_of(entry): entry for entry in section["entries"]}
    hashes = section["hashes"]
    for entry in earlier.get("entries", []):
        ran = [entry["op"]] if entry["op"] in hashes else KERNELS  # a training step runs all
        same = all(earlier["hashes"].get(op) == hashes[op] for op in ran)
        if same and "date" in entry and earlier["versions"] == section["versions"]:
            mine = entries.get(task_of(entry), entry)
            more = {who: found for who, found in entry["contestants"].items() if who not in measured_in(mine)}
            entries[task_of(entry)] = entry | mine | {"contestants": mine["contestants"] | more}
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


HOPPER = {"device": "meta", "smoke": False, "target": "cuda:90", "warp_size": 32, "shared_memory": 227 * 1024}
HOPPER |= {"processors": 132, "names": DTYPES}


def compile_at_home(cache: Path, wheel: Path) -> int:
    """Fill a cache for an H100 or H200; `wheel` is the Triton there, unpacked, of the same version as here."""
    os.environ |= {"TRITON_CACHE_DIR": str(cache.resolve()), "TRITON_STORE_BINARY_ONLY": "1"}
    heard, day = list[Any](), 24 * 3600
    with tempfile.TemporaryDirectory() as claims:
        job = Job(compile, (HOPPER, [name for part in PARTS.values() for name in part], Path(claims), wheel))
        cores = available_cores()
        jobs = [job] * cores
        supervise(jobs, lambda job, said: heard.append(said), monotonic() + day, day, at_once=cores, how=SPAWN)
    print(f"{sum(said for said in heard if isinstance(said, int))} kernels in {cache}")
    return int(any(isinstance(said, Ended) and said.reason is not None for said in heard))


def in_words(found: dict[str, Any]) -> str:
    """Return "1.23 ms, 1.05 × ours (expected: …)", "right, off by 3e-4", or why there is neither."""
    if "failed" in found:
        return found["failed"]
    if "ms" not in found:
        return f"right, off by {found['error']:.2g}"
    said = f"{ledger.number(found['ms'])} ms"
    for measure, unit in {"tflops": "TFLOP/s", "gbs": "GB/s"}.items():
        said += f", {ledger.number(found[measure])} {unit}" if measure in found else ""
    said += f", {found['ratio']:.3f} × ours" if "ratio" in found else ""
    said += f" (expected: {found['expected']})" if found.get("expected") else ""
    return said + (f" BUT WRONG: {found['wrong']}" if "wrong" in found else "")


# --- The part --------------------------------------------------------------------------------------------------


class Lease:
    """A part on this machine, and the file that it adds to. Each of its processes calls `before` first.

    Raises `RuntimeError` without a GPU, `OSError` where nothing can be written, `ValueError` for what is no ledger.
    """

    def __init__(self, part: str, smoke: bool, folder: Path, before: Callable[[], None] = nothing) -> None:
        self.part, self.smoke, self.before, self.failures = part, smoke, before, list[str]()
        self.end = monotonic() + self._limit(LIMITS[part] - TO_END)
        folder.mkdir(parents=True, exist_ok=True)
        self.deadline = self.end
        self.machine = self._look()
        name = self.machine["name"]
        self.path = ledger.path_of(folder, ("smoke" if smoke else name) + " lease")
        self.ledger = opened(self.path, name, smoke)
        self.date, self.hashes = strftime("%Y-%m-%d"), {op: ledger.current(op) for op in KERNELS}
        self.hashes |= {lesson: sha256(path.read_bytes()).hexdigest() for lesson, path in LESSONS.items()}
        ledger.write(self.path, self.ledger)

    def run(self, names: Sequence[str]) -> int:
        """Run sections one after the other. Returns the status: 1 if something failed."""
        self.say(f"{self.machine['name']}, {self.date}, {self.part}: {', '.join(names)}; into {self.path}")
        self.deadline = min(monotonic() + self._limit(COMPILE.seconds), self.end)
        if self.machine["shapes"] is not None:  # else there is the interpreter, which compiles nothing
            self._compile(names)
        for name in names:
            began, rules = monotonic(), PARTS[self.part][name]
            self.deadline = min(self.deadline + self._limit(rules.seconds), self.end)
            self._section(name, rules)
            self.say(f"{name}: {monotonic() - began:.0f} s, of {rules.seconds}")
        self.ledger["failures"] = self.failures
        if not self._write():
            print(json.dumps(self.ledger))
        for failure in self.failures:
            self.say(f"failed: {failure}")
        return 1 if self.failures else 0

    def say(self, line: str) -> None:
        """Write a line to the screen and into the log."""
        print(line, flush=True)
        try:
            with self.path.with_suffix(".log").open("a", encoding="utf-8") as log:
                log.write(line + "\n")
        except OSError as error:
            print(message_of(error) or error, file=sys.stderr)

    def _look(self) -> dict[str, Any]:
        """Return what there is to run on, and find out how processes may begin."""
        if not self.smoke:
            os.environ.pop("TRITON_INTERPRET", None)
        found = self._asked(look, SPAWN)
        if isinstance(found, Ended):
            raise RuntimeError(f"no GPU was found: {found.reason}")
        if "refused" in found:
            raise RuntimeError(found["refused"])
        if found["device"] == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
        self.how = FORK if self._asked(compute, FORK) is True else SPAWN
        return found

    def _asked(self, question: Callable, how: str) -> Any:
        """Return the answer of a process, or how it `Ended` without one."""
        self.how, heard = how, list[Any]()
        self._supervise(COMPILE, [Job(question, (self.smoke,))], lambda job, said: heard.append(said))
        return heard[0]

    def _compile(self, names: Sequence[str]) -> None:
        """Compile ahead, on all cores. What fails here is compiled again where it is launched, and fails there."""
        counts, cores, began = list[int](), available_cores(), monotonic()

        def hear(job: Job, said: Any) -> None:
            if not isinstance(said, Ended):
                counts.append(said)
            elif said.reason is not None:
                self.say(f"compiling ahead: {said.reason}")

        with tempfile.TemporaryDirectory() as claims:
            self._supervise(COMPILE, [Job(compile, (self.machine["shapes"], names, Path(claims)))] * cores, hear)
        self.say(f"compiled ahead: {sum(counts)} kernels in {monotonic() - began:.0f} s, of {COMPILE.seconds}")

    def _section(self, name: str, rules: Section) -> None:
        """Start processes until each unit is done, time is up, or they come no further."""
        board, lanes, before = Board(self, name, rules.turns), rules.lanes or self.machine["at_once"], -1
        while board.left() and len(board.done) > before:
            before, ceilings = len(board.done), board.section["ceilings"]
            how = {"turns": rules.turns, "ceilings": ceilings, "verdicts": self.verdicts()}
            jobs = [Job(work, (self.smoke, name, how, frozenset(board.done), lane, lanes)) for lane in range(lanes)]
            self._supervise(rules, jobs, board.hear)
        results = [(key, *item) for key, entry in board.entries.items() for item in entry["contestants"].items()]
        for key, who, found in results if rules.turns > 1 else []:
            self.say(f"{key}; {who}: {in_words(found)}")
        late = sum(found == LATE for _, _, found in results)
        if late:
            self.say(f"{name}: {late} times were left out for lack of time")

    def verdicts(self) -> dict[str, dict[str, Any]]:
        """Return the schedules of attention that failed their check in some dtype, each with its result."""
        entries = self.ledger["sections"].get("schedules", {"entries": []})["entries"]
        each = [item for entry in entries for item in entry["contestants"].items()]
        failed = [(who, found) for who, found in each if found != LATE and "failed" in found]
        return {who.rpartition(" in ")[0]: found for who, found in failed if NOT_THERE not in found["failed"]}

    def found(self, name: str, unit: Unit, entries: dict[str, Entry], died: bool) -> None:
        """Say and write a unit's result."""
        key, who, _ = unit
        entry = entries[key]
        found = entry["contestants"][who]
        if name in ("schedules", "checks") and (state := judged(entry)):
            stamp = {"hash": self.hashes[entry["op"]], "date": self.date, "versions": self.machine["versions"]}
            self.ledger["ops"][entry["op"]] = stamp | state
        ours = who.startswith((OURS, SOLUTION)) or name in ("schedules", "checks", "ab")
        if "failed" in found and (died or ours) and NOT_THERE not in found["failed"]:
            self.failures.append(f"{name}: {key}; {who}: {found['failed']}")
        self.ledger["sections"][name]["entries"] = list(entries.values())
        if PARTS[self.part][name].turns == 1:
            wrong = who == OURS and "failed" in self.ledger["ops"].get(entry["op"], {})
            self.say(f"{key}; {who}: {in_words(found | ({'wrong': 'see its check'} if wrong else {}))}")
        self._write()

    def _limit(self, seconds: float) -> float:
        return seconds * (LEISURE if self.smoke else 1)

    def _supervise(self, rules: Section, jobs: Sequence[Job], hear: Callable[[Job, Any], None]) -> None:
        patience = self._limit(rules.patience)
        supervise(jobs, hear, self.deadline, patience, at_once=len(jobs), before=self.before, how=self.how)

    def _write(self) -> bool:
        """Write the file, and return whether that was possible: what can't be written now may be later."""
        try:
            ledger.write(self.path, self.ledger)
        except OSError as error:
            print(message_of(error) or error, file=sys.stderr)
            return False
        return True


class Board:
    """A section's entries as they stand, the units that are done, and those that processes are at, by lane."""

    def __init__(self, lease: Lease, name: str, turns: int) -> None:
        self.lease, self.name, self.turns = lease, name, turns
        self.units: list[Unit] | None = None
        self.up: dict[int, Unit] = {}
        self.section = {"versions": lease.machine["versions"], "hashes": lease.hashes, "ceilings": None, "entries": []}
        self.earlier = lease.ledger["sections"].get(name, {})
        self.entries = joined(self.section, self.earlier)
        self.done = {
            unit for key, entry in self.entries.items() for who in measured_in(entry) for unit in self._turns(key, who)
        }

    def left(self) -> bool:
        """Return whether there are units to do. The first process says what the units are."""
        return self.units is None or bool(set(self.units) - self.done)

    def hear(self, job: Job, said: Any) -> None:
        """Take a process's message."""
        lane = job.arguments[-2]
        if isinstance(said, Ended):
            unit = self.up.pop(lane, None)
            if said.reason not in (None, NO_TIME):
                if unit is None:
                    self.lease.failures.append(f"{self.name}: {said.reason}")
                else:
                    self._take(unit, {"failed": said.reason, "died": True})
        elif said[0] == "plan":
            if self.units is None:
                self._plan(*said[1:])
        elif said[0] == "begins":
            self.up[lane] = said[1]
        else:
            self._take(self.up.pop(lane), said[1])

    def _plan(self, ceilings: dict[str, float], units: list[Unit], planned: list[Entry]) -> None:
        """Take the tasks, and results of an earlier run that still hold."""
        self.units, self.section["ceilings"] = units, ceilings
        self.entries = joined(self.section | {"entries": planned}, self.earlier)
        self.section["entries"] = list(self.entries.values())
        self.lease.ledger["sections"][self.name] = self.section

    def _turns(self, key: str, who: str) -> set[Unit]:
        return {(key, who, turn) for turn in range(self.turns)}

    def _take(self, unit: Unit, found: dict[str, Any]) -> None:
        """Enter a result: of several turns the median, and its ratio to ours."""
        key, who, _ = unit
        entry = self.entries[key]
        each = dict(entry["contestants"])
        if self.turns > 1 and "ms" in found:
            times = [*each[who].get("turns", []), found["ms"]]
            median = statistics.median(times)
            rates = {rate: found[rate] * found["ms"] / median for rate in ("tflops", "gbs", "share") if rate in found}
            found = found | rates | {"ms": median, "turns": times}
        each[who] = found
        if self.turns > 1 and "ms" in each[OURS]:
            each = {
                who: one | ({"ratio": one["ms"] / each[OURS]["ms"]} if "ms" in one else {}) for who, one in each.items()
            }
        self.entries[key] = entry | {"date": self.lease.date, "contestants": each}
        self.done |= {unit} if "failed" not in found else self._turns(key, who)
        self.lease.found(self.name, unit, self.entries, "died" in found)


# --- The command -----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None, before: Callable[[], None] = nothing) -> int:
    """Returns the status: 1 where something failed, 2 where nothing could begin. Tests break things with `before`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for part, sections in PARTS.items():
        command = commands.add_parser(part)
        command.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder that is added to")
        command.add_argument("--only", nargs="+", choices=sections, default=sections, metavar="SECTION")
        command.add_argument("--smoke", action="store_true", help="rehearse at tiny sizes, without a GPU too")
    commands.add_parser("keep").add_argument("files", nargs="+", type=Path)
    commands.add_parser("report")
    command = commands.add_parser("compile")
    command.add_argument("--cache", type=Path, required=True, metavar="DIR")
    command.add_argument("--wheel", type=Path, required=True, metavar="TREE", help="the GPU's Triton, unpacked")
    chosen = parser.parse_args(arguments)
    if chosen.command == "compile":
        return compile_at_home(chosen.cache, chosen.wheel)
    if chosen.command == "keep":
        keep(chosen.files)
        return 0
    if chosen.command == "report":
        tables.main()
        return 0
    with stopped_after(LIMITS[chosen.command] * (LEISURE if chosen.smoke else 1)):
        try:
            lease = Lease(chosen.command, chosen.smoke, chosen.out, before)
        except (RuntimeError, OSError, ValueError) as error:
            print(message_of(error) or error, file=sys.stderr)
            return 2
        return lease.run([name for name in PARTS[chosen.command] if name in chosen.only])


@contextlib.contextmanager
def stopped_after(seconds: int) -> Iterator[None]:
    """End this process and its own when it is told to, or after so many seconds: then at once, whatever they do."""

    def stop(number: int, frame: Any) -> None:
        if number == signal.SIGALRM:
            os._exit(128 + number)
        sys.exit(128 + number)

    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM
    before = {number: signal.signal(number, stop) for number in numbers}
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
