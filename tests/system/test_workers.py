"""Forked processes: what they give back, and that none is left behind."""

import io
import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import wait_for
from threadpoolctl import threadpool_info
from tqdm.std import tqdm

from minitransformer.system.threads import available_cores
from minitransformer.system.workers import Workers

pytestmark = pytest.mark.skipif(not Workers.supported(), reason="needs Linux, where processes are forked")


def is_there(process: int) -> bool:
    """Return True if a process computes or waits: one that has ended may still be known to the system."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_results_come_in_the_order_of_the_items_from_several_processes() -> None:
    big = np.arange(10.0)

    def work(item: int) -> tuple[float, int]:
        time.sleep(0.02 * (item == 0))
        return big[item], os.getpid()

    with Workers(work, 2) as workers:
        results = list(workers.map(range(10))) + list(workers.map(range(10)))
    assert [value for value, _ in results] == [*range(10)] * 2
    processes = {process for _, process in results}
    assert os.getpid() not in processes
    assert len(processes) <= 2
    assert not any(map(is_there, processes))


def test_the_threads_of_progress_bars_are_no_obstacle() -> None:
    class Another(tqdm):
        """A library's own kind of bar, which has a thread of its own."""

        monitor = None

    with tqdm(total=1, file=io.StringIO()), Another(total=1, file=io.StringIO()):
        assert tqdm.monitor is not None
        assert Another.monitor is not tqdm.monitor
        assert tqdm.monitor.is_alive()
        assert Workers.supported()


def test_each_has_one_blas_thread() -> None:
    def work(_: Any) -> set[int]:
        np.matmul(np.ones((300, 300)), np.ones((300, 300)))
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with Workers(work, 2) as workers:
        assert set().union(*workers.map(range(4))) == {1}


def test_the_first_error_is_raised_and_the_others_end_at_once(tmp_path: Path) -> None:
    def work(item: int) -> None:
        if item == 0:
            raise ValueError("no")
        time.sleep(60)
        (tmp_path / "slept well").touch()

    others = set(active_children())
    with pytest.raises(ValueError, match="no"), Workers(work, 2) as workers:
        list(workers.map(range(4)))
    assert set(active_children()) == others
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_killed_is_named() -> None:
    others = set(active_children())
    with (
        pytest.raises(ChildProcessError, match="a process that shared the work was killed: perhaps memory ran out"),
        Workers(lambda _: os.kill(os.getpid(), signal.SIGKILL), 2) as workers,
    ):
        list(workers.map(range(4)))
    assert set(active_children()) == others


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_none_outlives_its_parent(sent: signal.Signals) -> None:
    program = (
        "import os, time\nfrom minitransformer.system.workers import Workers\n"
        "def work(_):\n    os.write(1, b'%d\\n' % os.getpid())\n    time.sleep(600)\n"
        "with Workers(work, 2) as workers:\n    list(workers.map(range(2)))\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        processes = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(is_there, processes))
        parent.send_signal(sent)
    wait_for(lambda: not any(map(is_there, processes)))


def test_one_that_is_killed_between_two_calls_is_named() -> None:
    with Workers(lambda _: os.getpid(), 1) as workers:
        (process,) = workers.map([0])
        os.kill(process, signal.SIGKILL)
        while is_there(process):
            time.sleep(0.01)
        with pytest.raises(ChildProcessError, match="was killed"):
            list(workers.map(range(1000)))


def test_those_of_others_go_on() -> None:
    def ours() -> None:
        with Workers(abs, 1) as workers:
            assert list(workers.map([-2])) == [2]
            raise ValueError("mine")

    with Workers(abs, 1) as theirs:
        assert list(theirs.map([-1])) == [1]
        with pytest.raises(ValueError, match="mine"):
            ours()
        assert list(theirs.map([-3])) == [3]


def test_no_more_than_the_cores() -> None:
    assert Workers(abs, 1000).count == available_cores()


def test_an_interrupt_while_processes_start_is_not_lost() -> None:
    program = (
        "import os, time\nfrom minitransformer.system.workers import Workers\n"
        "with Workers(time.sleep, 2) as workers:\n    os.write(1, b'x')\n    list(workers.map([20] * 4))\n"
    )
    for delay in (0.0, 0.002, 0.004, 0.006, 0.008, 0.012, 0.016):
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as parent:
            assert parent.stdout is not None
            parent.stdout.read(1)
            time.sleep(delay)
            os.killpg(parent.pid, signal.SIGINT)
            _, said = parent.communicate(timeout=60)
        assert said.count(b"Traceback") == 1
        assert said.endswith(b"KeyboardInterrupt\n")


def test_a_count_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="threads is 0, expected 1 to 1024"):
        Workers(abs, 0)
