"""The instruments of lessons 14 and 17."""

from types import SimpleNamespace

import numpy as np

from course import measuring
from course.measuring import BENCHMARKS, Passes, Stopwatch, caches, page_faults, quietest, race
from minitransformer.ops import linear_forward, numpy_ops


def test_passes_count_every_array_read_and_written():
    def in_place(a):
        a *= 2  # 1 read, 1 written
        a[2:] += 1  # as many, of half of it

    def chain(a, b):
        c = a * 2 + b  # 1 + 1, 2 + 1
        b[...] = c  # 1 + 1

    a, b = np.ones((2, 4))
    assert Passes.count(in_place, a) == 3
    assert a.tolist() == [2, 2, 3, 3]
    assert Passes.count(chain, a, b) == 7
    assert b.tolist() == [5, 5, 7, 7]


def test_a_stopwatch_changes_nothing_and_adds_up():
    watch = Stopwatch(numpy_ops)
    arrays = np.ones((2, 3)), np.ones((3, 4)), np.ones(4)

    def step():
        y, cache = watch.ops.linear.forward(*arrays)
        watch.ops.linear.backward(y, cache)
        return y

    assert np.array_equal(step(), linear_forward(*arrays)[0])
    profile = watch.profile(step, steps=3)
    assert set(profile) == {"total", "linear"}
    assert 0 < profile["linear"] <= profile["total"]


def test_the_quietest_of_profiles_and_races_that_take_turns(monkeypatch):
    now = 0.0

    def takes(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr(measuring, "time", SimpleNamespace(perf_counter=lambda: now))
    totals = iter([3.0, 5.0, 2.0, 4.0, 6.0, 1.0])
    found = quietest({"a": lambda: {"total": next(totals)}, "b": lambda: {"total": next(totals)}}, rounds=3)
    assert found == {"a": {"total": 2.0}, "b": {"total": 1.0}}
    times = iter([8.0, 2.0, 4.0, 3.0, 5.0])  # it warms up, is tried, and meets three rounds
    found = race({"long": lambda: takes(next(times)), "short": lambda: takes(0.5)}, rounds=3, turn=1.0)
    assert found == {"long": 3.0, "short": 0.5}


def test_the_machine_and_the_benchmark_are_found():
    assert (BENCHMARKS / "results" / "steps.json").is_file()
    assert all(size >= 1024 for size in caches().values())
    faults = page_faults()
    assert faults is None or faults > 0
