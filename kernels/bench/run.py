"""A run of the bench: sections one after the other, each result in the ledger as soon as it is there.

In a section that is timed, first our kernels are measured, each alone: that is what must not be lost. Then all
contestants of a task side by side, ours once more, so that their ratio is one of the same minute; but FlexAttention,
which compiles for seconds, after all others. Tasks that an earlier run has measured with the same code and the same
versions come last, and keep what they have until then.
"""

import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from minitransformer.cli.errors import message_of
from minitransformer.threads import available_cores

from .. import KERNELS
from . import ledger, report, work
from .ledger import FLEX, LATE, OURS, RESULTS, Entry, current
from .predictions import predicted, table_for
from .supervisor import FORK, NO_TIME, SPAWN, Ended, Job, nothing, reason_of, supervise

SECTIONS = ("checks", "attention", "rows", "swap")

SECONDS = {"compile": 75, "checks": 60, "attention": 220, "rows": 120, "swap": 100}
"""How long each section may take. What one leaves, the next may use; what is not done then is left out."""

PATIENCE = {"compile": 60, "checks": 90, "attention": 40, "rows": 40, "swap": 90}
"""Seconds after which one of its processes that says nothing is given up."""

PARTS = {"attention": 4}
"""Into how many parts the cases of an op are divided, if not one: so many processes check them."""

LEISURE = 10
"""A rehearsal may take so many times as long: the interpreter is slow."""


Unit = tuple[int, str]
"""The number of a task, and a contestant."""

Section = dict[str, Any]


class Rounds:
    """The entries of a section as they stand, and what is `waiting` to be measured."""

    def __init__(self, planned: Sequence[Entry], earlier: Section, today: Section, date: str) -> None:
        """`today` has the versions and the hashes of all ops; `earlier` is the section as it was, or empty."""
        held = {_task(entry): entry for entry in earlier.get("entries", []) if _holds(entry, earlier, today)}
        self.entries = [held.get(_task(entry), entry) for entry in planned]
        self.date = date
        self._found: dict[int, dict[str, Any]] = {number: {} for number in range(len(planned))}
        alone = [(n, OURS) for n, e in enumerate(self.entries) if "failed" in e["contestants"].get(OURS, {})]
        numbers = sorted(self._found, key=lambda number: complete(self.entries[number]))
        beside = [(number, name) for number in numbers for name in self.entries[number]["contestants"]]
        beside.sort(key=lambda unit: unit[1] == FLEX)
        again = (unit for unit in beside if unit not in alone or len(self.entries[unit[0]]["contestants"]) > 1)
        self.waiting: deque[Unit] = deque([*alone, *again])

    def found(self, result: dict[str, Any]) -> Unit:
        """Takes what was found of the one whose turn it is."""
        number, name = unit = self.waiting.popleft()
        self._found[number][name] = result
        entry, found = self.entries[number], self._found[number]
        if found.keys() == entry["contestants"].keys() or not complete(entry):
            contestants = {name: found.get(name, LATE) for name in entry["contestants"]}
            self.entries[number] = entry | {"date": self.date, "contestants": contestants}
        return unit

    def gone(self, reason: str) -> Unit:
        """Its process ended instead: it gets no other turn."""
        unit = self.found({"failed": reason})
        self.waiting = deque(other for other in self.waiting if other != unit)
        return unit

    def settled(self, number: int) -> bool:
        """Whether it is another's turn now."""
        return not self.waiting or self.waiting[0][0] != number


def complete(entry: Entry) -> bool:
    """Whether ours has a time and every other contestant was tried."""
    return LATE not in entry["contestants"].values() and "failed" not in entry["contestants"].get(OURS, {})


def _task(entry: Entry) -> str:
    """What is the same when it is measured again."""
    task = {name: value for name, value in entry.items() if name not in ("contestants", "date")}
    return json.dumps([task, sorted(entry["contestants"])], sort_keys=True)


def _holds(entry: Entry, earlier: Section, today: Section) -> bool:
    """Whether it is measured, and nothing that it ran has changed."""
    ran = [entry["op"]] if entry["op"] in today["hashes"] else today["hashes"]
    unchanged = all(earlier["hashes"].get(op) == today["hashes"][op] for op in ran)
    return "date" in entry and unchanged and earlier["versions"] == today["versions"]


class Run:
    """A machine, and the ledger that is added to.

    Raises `RuntimeError` without a GPU, `OSError` where nothing can be written, `ValueError` where what is there is no
    ledger. Each of its processes calls `before` first.
    """

    def __init__(self, smoke: bool, folder: Path, before: Callable[[], None] = nothing) -> None:
        self.smoke, self.before, self.how = smoke, before, SPAWN
        self.began, self.deadline = monotonic(), monotonic() + self._limit(SECONDS["compile"])
        self.machine = self._look()
        name = self.machine["name"]
        self.path, kept = ledger.path_of(folder, "smoke" if smoke else name), ledger.path_of(RESULTS, name)
        self.ledger = ledger.opened(self.path if smoke or self.path.exists() else kept, name, smoke)
        self.predictions = table_for(name)
        self.failures: list[str] = self.ledger["failures"]
        self.stamp = {"date": datetime.now(UTC).date().isoformat(), "versions": self.machine["versions"]}
        self.hashes = {op: current(op) for op in KERNELS}
        ledger.write(self.path, self.ledger)

    def sections(self, names: Sequence[str]) -> int:
        """Run them, then draw what all of the ledger says. Returns the status: 1 where something failed."""
        seconds = sum(SECONDS[name] for name in ("compile", *names))
        print(f"{self.machine['name']}: {', '.join(names)}, {seconds} s at the most; into {self.path}", flush=True)
        self._compile(names)
        self._ends("compile")
        for name in names:
            self.deadline += self._limit(SECONDS[name])
            if name == "checks":
                self._check()
            else:
                self._time(name)
            self._ends(name)
        return self._finish()

    def _look(self) -> dict[str, Any]:
        """What there is to run on, and how processes may begin there.

        Triton asks whether to interpret when it is first imported: nobody has done that yet.
        """
        if not self.smoke:
            os.environ.pop("TRITON_INTERPRET", None)
        found, *_ = self._said_by("compile", Job(work.look, (self.smoke,)))
        if isinstance(found, Ended):
            raise RuntimeError(f"no GPU was found: {found.reason}")
        if "refused" in found:
            raise RuntimeError(found["refused"])
        if found["device"] == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
        self.how = FORK
        computes, *_ = self._said_by("compile", Job(work.compute, (self.smoke,)))
        self.how = FORK if computes is True else SPAWN
        return found

    # --- Compiling ahead ------------------------------------------------------------------------------------------

    def _compile(self, names: Sequence[str]) -> None:
        """On all cores. What fails here is compiled where it is launched, and fails there."""
        if self.machine["shapes"] is None:
            return  # the interpreter compiles nothing
        counts, cores = [], available_cores()

        def hear(job: Job, message: Any) -> None:
            if not isinstance(message, Ended):
                counts.append(message)
            elif message.reason is not None:
                print(f"compiling ahead: {message.reason}", file=sys.stderr)

        try:
            with tempfile.TemporaryDirectory() as claims:
                job = Job(work.compile, (self.machine["shapes"], names, Path(claims)))
                self._supervise("compile", [job] * cores, hear, at_once=cores)
        except OSError as error:
            print(f"compiling ahead: {message_of(error)}", file=sys.stderr)
        print(f"compiled ahead: {sum(counts)} kernels", flush=True)

    # --- Checks ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Each op in each dtype in a process of its own, or in several."""
        jobs = [
            Job(work.check, (self.smoke, op, dtype, part, PARTS.get(op, 1)))
            for op in KERNELS
            for dtype in self.machine["dtypes"]
            for part in range(PARTS.get(op, 1))
        ]
        found: dict[str, dict[tuple, dict[str, Any]]] = {op: {} for op in KERNELS}

        def hear(job: Job, message: Any) -> None:
            _, op, dtype, part, parts = job.arguments
            if not isinstance(message, Ended):
                found[op][dtype, part] = message
                return
            if message.reason is not None:
                found[op][dtype, part] = {"failed": f"{dtype}: {message.reason}", "late": message.reason == NO_TIME}
            if len(found[op]) == parts * len(self.machine["dtypes"]):
                self._checked(op, found[op])

        self._supervise("checks", jobs, hear, at_once=self.machine["at_once"])

    def _checked(self, op: str, found: dict[tuple, dict[str, Any]]) -> None:
        """What all parts of all dtypes came to."""
        errors: dict[str, dict[str, float]] = {}
        for dtype in self.machine["dtypes"]:
            parts = [worst for (name, _), worst in found.items() if name == dtype]
            if all("failed" not in worst for worst in parts):
                errors[dtype] = {name: max(worst[name] for worst in parts) for name in parts[0]}
        failures = [worst for worst in found.values() if "failed" in worst]
        for each in failures:
            self._fail(f"{op}, {each['failed']}")
        wrong = [each["failed"] for each in failures if not each.get("late")]
        if wrong or not failures:  # an op that there was no time for is what it was
            failed = {"failed": wrong} if wrong else {}
            self.ledger["ops"][op] = {"hash": self.hashes[op], **self.stamp, "errors": errors, **failed}
        if not failures:
            words = ", ".join(f"{dtype} {worst['error']:.1e}" for dtype, worst in errors.items())
            print(f"{op}: {words}", flush=True)
        self._write()

    # --- Times ----------------------------------------------------------------------------------------------------

    def _time(self, name: str) -> None:
        """Our kernels, then all that they are compared with."""
        began = monotonic()
        *heard, ended = self._said_by(name, Job(work.plan, (self.smoke, name)))
        if ended.reason is not None:
            self._fail(f"{name}: {ended.reason}")
            return
        ceilings, planned = heard
        print(f"matmul {ceilings['matmul_tflops']:.3g} TFLOP/s, copy {ceilings['copy_gbs']:.4g} GB/s", flush=True)
        section = {"versions": self.machine["versions"], "hashes": self.hashes, "ceilings": ceilings}
        rounds = Rounds(planned, self.ledger["sections"].get(name, {}), section, self.stamp["date"])
        section["entries"] = rounds.entries
        self.ledger["sections"][name] = section
        while rounds.waiting and self._measure(name, ceilings, rounds):
            pass
        section["seconds"] = round(monotonic() - began, 1)
        self._write()
        late = sum(found == LATE for entry in rounds.entries for found in entry["contestants"].values())
        if late:
            print(f"{name}: {late} times were left out for lack of time", flush=True)

    def _measure(self, name: str, ceilings: dict[str, float], rounds: Rounds) -> bool:
        """Measure in one process, as far as it comes; returns whether another should go on after it."""
        before, someone_is_up, reason = len(rounds.waiting), False, None

        def hear(job: Job, message: Any) -> None:
            nonlocal someone_is_up, reason
            if isinstance(message, Ended):
                reason = message.reason
                if someone_is_up and reason != NO_TIME:
                    self._found(rounds, rounds.gone(reason), reason, died=True)
            elif someone_is_up:
                self._found(rounds, rounds.found(message), message.get("failed"))
            someone_is_up = not someone_is_up

        units = list(rounds.waiting)
        self._supervise(name, [Job(work.measure, (self.smoke, name, ceilings, units))], hear)
        if reason not in (None, NO_TIME) and len(rounds.waiting) == before:
            self._fail(f"{name}: {reason}")
        return reason not in (None, NO_TIME) and len(rounds.waiting) < before

    def _found(self, rounds: Rounds, unit: Unit, failed: str | None, died: bool = False) -> None:
        """Say and write what there is, at the end of a race."""
        number, name = unit
        entry = rounds.entries[number]
        if failed is not None and (died or name == OURS):
            self._fail(f"{ledger.task_of(entry)}; {name}: {failed}")
        if died or rounds.settled(number):
            tried = {name: found for name, found in entry["contestants"].items() if found != LATE}
            times = (f"{name} {ledger.number(f['ms'])} ms" if "ms" in f else f"{name} –" for name, f in tried.items())
            expected = (predicted(entry, self.predictions) or {}).get("ms")
            beside = f" (ours was predicted: {ledger.number(expected)} ms)" if expected else ""
            print(f"{ledger.task_of(entry)}: {'; '.join(times)}{beside}", flush=True)
            self._write()

    # --- What all share -------------------------------------------------------------------------------------------

    def _limit(self, seconds: float) -> float:
        return seconds * (LEISURE if self.smoke else 1)

    def _ends(self, name: str) -> None:
        """Say how long it took."""
        began, self.began = self.began, monotonic()
        print(f"{name}: {self.began - began:.0f} s, of {SECONDS[name]}", flush=True)

    def _said_by(self, name: str, job: Job) -> list[Any]:
        """All that one job says."""
        heard: list[Any] = []
        self._supervise(name, [job], lambda job, message: heard.append(message))
        return heard

    def _supervise(self, name: str, jobs: Sequence[Job], hear: Callable[[Job, Any], None], at_once: int = 1) -> None:
        patience = self._limit(PATIENCE[name])
        supervise(jobs, hear, self.deadline, patience, at_once=at_once, before=self.before, how=self.how)

    def _fail(self, what: str) -> None:
        if what not in self.failures:
            self.failures.append(what)

    def _write(self) -> None:
        """What can't be written now may be later."""
        try:
            ledger.write(self.path, self.ledger)
        except OSError as error:
            print(message_of(error), file=sys.stderr)

    def _finish(self) -> int:
        """Write all of it once more, elsewhere if need be; draw; and say what came of it."""
        for path in (self.path, Path(tempfile.gettempdir()) / self.path.name):
            try:
                ledger.write(path, self.ledger)
                self._draw(path)
                break
            except OSError as error:
                self._fail(str(message_of(error)))
        else:
            print(json.dumps(self.ledger, ensure_ascii=False))
        if not self.smoke:
            print("\n".join(report.targets_met(self.ledger)))
        for failure in self.failures:
            print(f"failed: {failure}", file=sys.stderr)
        return 1 if self.failures else 0

    def _draw(self, path: Path) -> None:
        """What fails here can be drawn from the file at any time."""
        try:
            from . import charts

            print("\n".join(map(str, [*charts.draw(path), path])))
        except Exception as error:
            self._fail(f"the pictures of {path}: {reason_of(error)}")
        if not self.smoke and path.parent.resolve() != RESULTS:
            print(f"to keep it, bring it into {RESULTS} and run python -m kernels.bench.report")
