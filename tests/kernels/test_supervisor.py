"""The lease's processes: whatever one does, its parent learns of it, the others go on, and none is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "gpu"))

from supervisor import NO_TIME, Ended, Job, supervise

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

HERE = Path(__file__).parent
FOREVER = 10_000.0


def counts(number: int) -> Iterator[int]:
    yield from range(number)


def fails(how: str) -> Iterator[str]:
    yield "begun"
    if how == "raises":
        raise ValueError("no\nsecond line")
    if how == "leaves":
        sys.exit(3)
    if how == "vanishes":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, how))
    yield "never"


def stays(folder: Path) -> Iterator[int]:
    """With a child of its own; for each a file named after it."""
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER})"])
    for pid in (os.getpid(), child.pid):
        (folder / str(pid)).touch()
        yield pid
    time.sleep(FOREVER)


def starts_and_fails(folder: Path) -> Iterator[int]:
    stay = stays(folder)
    yield from (next(stay), next(stay))
    raise ValueError("no")


@pytest.fixture
def said() -> list[tuple[Job, Any]]:
    """Return the list of jobs and of what they say."""
    return []


def run(said: list, jobs: list[Job], seconds: float = FOREVER, patience: float = FOREVER, at_once: int = 1) -> None:
    deadline = time.monotonic() + seconds
    supervise(deque(jobs), lambda job, message: said.append((job, message)), deadline, patience, at_once)


def is_alive(pid: int) -> bool:
    """Return True if it runs; who is dead and not yet buried does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: list[int]) -> bool:
    """Return True if all of them end, in a minute."""
    for _ in range(600):
        if not any(map(is_alive, pids)):
            return True
        time.sleep(0.1)
    return False


def test_jobs_side_by_side_say_all_that_they_have_to(said):
    jobs = [partial(counts, number) for number in (3, 0, 2)]
    run(said, jobs, at_once=2)
    for job in jobs:
        assert [message for who, message in said if who is job] == [*range(job.args[0]), Ended(None)]


def test_how_a_process_ends_is_told_and_stops_no_other(said):
    endings = {
        "raises": "ValueError: no",
        "leaves": "its process ended with status 3",
        "vanishes": "its process ended with status 7",
        "SIGKILL": "its process was ended by SIGKILL (out of memory?)",
        "SIGTERM": "its process was ended by SIGTERM",
    }
    run(said, [*(partial(fails, how) for how in endings), partial(counts, 1)])
    told = {job.args[0]: [message for who, message in said if who is job] for job, _ in said}
    assert told == {how: ["begun", Ended(reason)] for how, reason in endings.items()} | {1: [0, Ended(None)]}


@pytest.mark.parametrize(("limits", "reason"), [({"patience": 1.0}, "not a word for 1 s"), ({"seconds": 1.0}, NO_TIME)])
def test_one_that_hangs_is_ended(said, tmp_path, limits, reason):
    hangs = partial(stays, tmp_path)
    run(said, [hangs], **limits)
    assert said[-1] == (hangs, Ended(reason))
    assert gone([int(path.name) for path in tmp_path.iterdir()])


def test_after_the_deadline_nothing_begins(said):
    late = partial(counts, 1)
    run(said, [late], seconds=0)
    assert said == []


def test_more_jobs_may_be_added(said):
    jobs = deque([partial(counts, 1)])

    def hear(job: Any, message: Any) -> None:
        said.append(message)
        if message == 0 and len(said) == 1:
            jobs.append(job)

    supervise(jobs, hear, time.monotonic() + FOREVER, FOREVER)
    assert said == [0, Ended(None)] * 2


def test_a_process_takes_along_what_it_started(said, tmp_path):
    run(said, [partial(starts_and_fails, tmp_path)])
    *pids, ended = (message for _, message in said)
    assert ended == Ended("ValueError: no")
    assert len(pids) == 2
    assert gone(pids)


def test_what_is_raised_while_listening_ends_the_processes(tmp_path):
    heard = []

    def hear(job: Job, pid: int) -> None:
        heard.append(pid)
        if len(heard) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervise(deque([partial(stays, tmp_path)] * 2), hear, time.monotonic() + FOREVER, FOREVER, at_once=2)
    assert gone(heard)


def test_none_outlives_a_parent_that_is_killed(tmp_path):
    program = (
        "import sys; from pathlib import Path; import test_supervisor as t\n"
        "jobs = t.deque([t.partial(t.stays, Path(sys.argv[1]))] * 2)\n"
        f"t.supervise(jobs, print, {FOREVER} + t.time.monotonic(), {FOREVER}, at_once=2)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env=environment, cwd=HERE)
    while len(list(tmp_path.iterdir())) < 4:
        assert parent.poll() is None
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    assert gone([int(path.name) for path in tmp_path.iterdir()])
