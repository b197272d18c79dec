"""A learner's kernels as machine code, compiled by a worker process, since Triton interprets in this one."""

import math
import sys
import time

import numpy as np
import pytest
import torch
from support.lessons.answers import wrong

from course import worker
from course.compiled import compiled, dissected
from course.lesson_15 import solutions
from course.limits import LimitExceeded


def test_a_race_is_named_with_its_line_and_what_is_right_is_returned():
    (racy, _) = wrong("17", "running_sums")["no barrier"]
    numbers = np.random.default_rng(0).standard_normal((1, 100))
    assert compiled(racy, numbers)["fault"].startswith(
        "running_sums_kernel, `total += tl.load(place - distance, mask & (i >= distance), other=0.0)`, 'buffer_load"
    )
    found = compiled(solutions.row_sums, numbers, order="in reverse")
    assert (found["fault"], found["raises"]) == ("", "")
    assert np.allclose(found["returned"], numbers.sum(axis=1), atol=1e-5)


def fresh(x):
    return torch.empty_like(x)


def test_new_memory_holds_nothing_that_a_store_could_leave_as_it_is():
    """A new tensor often has the memory of the last one of its size; what is stored there again is no race."""
    assert np.isnan(compiled(fresh, np.ones((2, 128)))["returned"]).all()


def test_what_is_listed_is_what_is_executed():
    found = dissected(solutions.softmax_rows, np.zeros((1, 200)))
    listed = [text for kind, text, *_ in found["code"] if kind != "wait"]
    assert listed == [" ".join(text.split()) for _, text in found["executed"][:-1]]  # the last one is s_endpgm
    lines = {line for *_, line in found["code"]}
    assert "e = tl.exp(x - tl.maximum(tl.max(x, axis=0), LOWEST))" in lines
    for wave in range(4):
        turns = [number for number, waves in found["turns"] if wave in waves]
        assert turns == sorted(set(turns)), "this kernel has no loop: each wave goes on and on"
    assert found["lanes"][-1][1] == 200, "of 200 equal numbers each exponential is 1"


def test_a_call_that_does_not_come_back_is_ended_and_the_next_one_is_answered(monkeypatch):
    assert worker.call_in_worker(math.sqrt, 4) == 2
    with monkeypatch.context() as short:
        short.setattr(worker, "SECONDS", 0.2)
        with pytest.raises(LimitExceeded, match=r"after 0\.2 s"):
            worker.call_in_worker(time.sleep, 60)
    assert worker.call_in_worker(math.sqrt, 9) == 3
    with pytest.raises(RuntimeError, match=r"ValueError: .*domain"):
        worker.call_in_worker(math.sqrt, -1)
    assert worker.call_in_worker(math.sqrt, 16) == 4


def test_it_starts_where_tritons_interpreter_has_left_its_file_name_in_the_main_module(monkeypatch):
    """The interpreter adds what its module has to the globals of a kernel, and in a notebook these are `__main__`'s."""
    monkeypatch.setattr(worker, "_process", None)
    monkeypatch.setattr(worker, "_pipe", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", torch.__file__, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None, raising=False)
    assert worker.call_in_worker(math.sqrt, 4) == 2
    assert sys.modules["__main__"].__file__ == torch.__file__
    assert worker._process is not None
    worker._process.kill()
