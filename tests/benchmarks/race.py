"""Races: contestants in processes of their own that take turns, so that all of them meet the same weather.

A job is a generator function decorated as a context manager: it yields an answer, by which contestants are held to
agree before anything is timed, and a function that does the work once. Each process imports what it needs, notes its
memory, warms up, and then waits for its turns; the turns of a round come one after another, in an order that reverses
from round to round, and ratios are taken within a round.
"""

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Work = Callable[[], Any]


@dataclass(frozen=True)
class Job:
    """`function` of `module` with its `options`.

    With a `rehearsal`, options of a tiny job of the same kind, that is done first: what a library loads and sets up at
    its first use then is not counted as the memory of the work.
    """

    module: str
    function: str
    options: Mapping[str, Any] = field(default_factory=dict)
    warm_up: int = 3
    rehearsal: Mapping[str, Any] | None = None
    turn_seconds: float = 1.0
    """A turn repeats the work for at least so long and gives the median."""


@dataclass
class Result:
    """One contestant's answer, how far its memory grew at most, and the seconds of each turn.

    The growth is counted from after the imports; with a rehearsal also from after that.
    """

    answer: Any
    memory_mb: float
    memory_rehearsed_mb: float | None = None
    seconds: list[float] = field(default_factory=list)


class Contestant:
    """A process that has set up its job and waits for its turns."""

    def __init__(self, job: Job, threads: int) -> None:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, str(threads))
        environment["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(vars(job) | {"threads": threads})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            self.result = Result(**self._reply())
        except BaseException:
            self.close()
            raise

    def take_turn(self) -> None:
        """Times the work and notes the seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        self.result.seconds.append(self._reply())

    def _reply(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contestant ended with status {self._process.wait()}: its error stands above")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


def race(
    jobs: Mapping[str, Job], rounds: int, threads: int, agree: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Result]:
    """Sets up every contestant, holds their answers to `agree`, which raises where they don't, and lets them run."""
    with ExitStack() as stack:
        contestants: dict[str, Contestant] = {}
        for name, job in jobs.items():
            contestants[name] = Contestant(job, threads)
            stack.callback(contestants[name].close)
        if agree is not None:
            agree({name: contestant.result.answer for name, contestant in contestants.items()})
        order = list(contestants.values())
        for _ in range(rounds):
            for contestant in order:
                contestant.take_turn()
            order.reverse()
        return {name: contestant.result for name, contestant in contestants.items()}


@dataclass(frozen=True)
class Ratio:
    """Median and range of ratios taken pair by pair."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, numerators: list[float], denominators: list[float]) -> "Ratio":
        ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


def resident_mb(peak: bool = False) -> float:
    """Megabytes of memory that this process holds, or has held at most. Linux only."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {name}")


def _serve(
    module: str,
    function: str,
    options: Mapping[str, Any],
    warm_up: int,
    rehearsal: Mapping[str, Any] | None,
    turn_seconds: float,
    threads: int,
) -> None:
    """A contestant's side: set up, tell the answer, and time the work at every line that comes in."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no reply
    job = getattr(importlib.import_module(module), function)
    imported = resident_mb()
    if rehearsal is not None:
        with job(threads=threads, **rehearsal) as (_, work):
            work()
    rehearsed = resident_mb()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    with job(threads=threads, **options) as (answer, work):
        for _ in range(warm_up):
            work()
        peak = resident_mb(peak=True)
        reply = {
            "answer": answer,
            "memory_mb": peak - imported,
            "memory_rehearsed_mb": peak - rehearsed if rehearsal else None,
        }
        print(json.dumps(reply), file=replies, flush=True)
        for _ in sys.stdin:
            print(json.dumps(_median_seconds(work, turn_seconds)), file=replies, flush=True)


def _median_seconds(work: Work, turn_seconds: float) -> float:
    times, deadline = [], time.perf_counter() + turn_seconds
    while not times or time.perf_counter() < deadline:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    _serve(**json.loads(sys.argv[1]))
