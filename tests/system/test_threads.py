"""Threads: what they give back, and what they leave as it was."""

import threading
import time

import numpy as np
import pytest
from support.blas import blas_threads
from threadpoolctl import threadpool_limits

from minitransformer.system.threads import Threads, available_cores


def test_results_come_in_the_order_of_the_arguments():
    with Threads(3) as threads:
        assert list(threads.map(np.add, range(20), range(20))) == list(range(0, 40, 2))


def test_as_many_run_side_by_side_as_were_asked_for():
    meeting = threading.Barrier(3, timeout=30)  # opens when three are there
    with Threads(3) as threads:
        assert sorted(threads.map(lambda _: meeting.wait(), range(3))) == [0, 1, 2]


def test_blas_has_one_thread_within_and_its_own_after():
    with threadpool_limits(2):
        with Threads(1) as threads:
            assert list(threads.map(lambda _: blas_threads(), [0])) == [{1}]
        assert blas_threads() == {2}


def test_the_first_error_is_raised():
    def work(number: int) -> None:
        if number == 1:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"), Threads(2) as threads:
        list(threads.map(work, range(10)))


def test_what_has_not_begun_at_the_end_is_left():
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)

    with Threads(1) as threads:
        results = threads.map(work, range(10_000))
    assert len(begun) < 10_000
    del results


def test_the_default_is_one_a_core_and_none_is_refused():
    assert Threads().count == available_cores() >= 1
    for count in (0, 1025):
        with pytest.raises(ValueError, match=f"threads is {count}, expected 1 to 1024"):
            Threads(count)
