"""A learner's function as judges call it: what it raises, what it writes into, and that it is stopped."""

import contextlib
import dataclasses
import signal
import sys
import threading

import numpy as np
import pytest
import torch

from course import limits
from course.exercise import NOT_YET, WRONG, exercise, exercises


def verdict_of(function, *args, seconds=60.0, **options):
    """Return the verdict of a judge that calls `function` once."""

    @exercise(answer=function, seconds=seconds)
    def once(attempt):
        attempt(*args, **options)

    return once.verdict(function)


def hint_of(function, *args, **options):
    return verdict_of(function, *args, **options).hint


# --- Exceptions -----------------------------------------------------------------------------------------------


def test_an_exception_shows_the_learners_line_and_the_shapes_there():
    def product(dy, weight, scale):
        wide = np.concatenate([dy, dy], axis=1)
        return scale * wide @ weight

    line = product.__code__.co_firstlineno + 2
    hint = hint_of(product, np.ones((5, 4)), np.ones((3, 4)), 2)
    assert hint.startswith("it raises ValueError: matmul: Input operand 1 has a mismatch")
    assert hint.endswith(
        f"; line {line}: `return scale * wide @ weight`, where scale is 2, wide is (5, 8), weight is (3, 4)"
    )


def test_the_line_is_the_learners_and_neither_a_librarys_nor_the_judges():
    def through_numpy(x):
        return np.linalg.inv(x)

    def through_the_judge(call):
        return call([1, 2])

    assert "`return np.linalg.inv(x)`, where x is (2, 3)" in hint_of(through_numpy, np.ones((2, 3)))
    fails = exercise.__globals__["import_module"]  # any function of another module
    assert "`return call([1, 2])`" in hint_of(through_the_judge, fails)


def _wrapped(kernel):
    """A function that launches `kernel` as Triton's interpreter does."""

    def launch(x):
        try:
            return kernel(x)
        except Exception as problem:
            raise RuntimeError(repr(problem)) from problem

    return launch


def test_a_kernels_exception_is_seen_through_what_wrapped_it():
    def kernel(x):
        return x + None

    hint = hint_of(_wrapped(kernel), (1, 2))
    assert hint.startswith("it raises TypeError: ")
    assert hint.endswith("`return x + None`, where x is a tuple of 2")

    def unwritten(x):
        raise NotImplementedError

    assert verdict_of(_wrapped(unwritten), 1) == (NOT_YET, "")


class UnsupportedLanguageConstruct(Exception):
    """Triton's, for what it cannot compile."""


@pytest.mark.parametrize(("line", "state"), [("raise NotImplementedError", NOT_YET), ("raise ValueError", WRONG)])
def test_a_kernel_that_is_a_stub_is_one_for_the_compiler_too(line, state):
    def launch(x):
        raise UnsupportedLanguageConstruct(f"at 3:4:\n    {line}\n    ^\nunsupported AST node type: Raise")

    assert verdict_of(launch, 1).state == state


@pytest.mark.parametrize("leave", [sys.exit, lambda: sys.exit("done"), lambda: exit(1)])
def test_a_function_that_ends_the_session_is_wrong_and_ends_nothing(leave):
    def function(x):
        return leave()

    hint = hint_of(function, np.ones(3))
    said = "it raises SystemExit: that ends the whole session, not the function alone: a function ends with `return`"
    assert hint.startswith(f"{said}; line ")


def test_a_result_that_ends_the_session_when_it_is_looked_at_is_wrong_too():
    @exercise(answer=np.sqrt)
    def root(attempt):
        next(attempt(4.0))

    def later(x):
        yield sys.exit("\x1b[31mred")

    state, hint = root.verdict(later)
    assert state == WRONG
    assert hint == r"what it returns does not fit its contract (SystemExit: \x1b[31mred)"


def test_an_exceptions_escape_sequences_are_shown_and_not_obeyed():
    def function(x):
        raise ValueError("\x1b[31mred\x07 and\u202e turned")

    assert hint_of(function, 1).startswith(r"it raises ValueError: \x1b[31mred\x07 and\u202e turned; line ")


def test_a_librarys_not_implemented_error_is_no_stub():
    def function(x):
        return torch.nn.Module()(x)

    assert hint_of(function, 1).startswith("it raises NotImplementedError: Module [Module] is missing")


def test_a_long_exception_is_cut():
    def verbose(several_arrays):
        raise ValueError("no" * 1000)

    assert len(hint_of(verbose, [1, 2])) <= 400
    assert "\n" not in hint_of(verbose, [1, 2])


# --- Arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "value", "path"),
    [
        ("x[0][1] += 1", (np.zeros(2), np.zeros(2)), "x[0]"),
        ("x[0][1] += 1", [(np.zeros(2), 3)], None),
        ("x[0][1] += 1", [[1, 2], [3, 4]], "x[0][1]"),
        ("x[1].append(3)", (1, [2]), "x[1]"),
        ("x['b'].pop()", {"a": 1, "b": [2]}, "x['b']"),
        ("x['a'] = x['a'] + 1", {"a": 1}, "x['a']"),
        ("x[0].mul_(2)", (torch.ones(2), 1), "x[0]"),
        ("x[0].mul_(2)", torch.ones(2, 2, dtype=torch.bfloat16), "x"),
        ("x += 1", np.array([np.nan, 1.0]), "x"),
        ("x += 1", np.array([1, 2]), "x"),
    ],
)
def test_what_is_written_into_is_named(statement, value, path):
    def function(dy, x):
        exec(statement, {"x": x})
        return dy

    if path is None:
        assert "it raises TypeError" in hint_of(function, 1, value)
        return
    expected = f"it writes into its argument {path}: whoever called still needs those values"
    assert hint_of(function, 1, value) == expected
    before = np.array([np.nan, 1.0]), {"a": [torch.ones(2)]}
    assert hint_of(lambda dy, x: x, before[0], x=before[1]) == ""


def test_an_argument_given_by_name_is_seen_too():
    def function(dy, *, cache):
        cache.clear()
        return dy

    assert "its argument cache: " in hint_of(function, 1, cache=[1])


def test_what_is_moved_and_moved_back_leaves_rounding_behind():
    def function(x):
        x += 1e-5
        x -= 2e-5
        x += 1e-5
        return x.sum()

    hint = hint_of(function, np.linspace(0, 1, 50))
    assert hint.startswith("it moves its argument x and moves it back, which leaves rounding behind, up to ")


def test_an_array_that_is_kept_and_returned_again_is_noticed():
    kept = np.zeros(2)

    def function(x):
        kept[:] = x
        return kept

    @exercise(answer=function)
    def twice(attempt):
        attempt(1.0)
        attempt(2.0)

    assert "a second call changes what the first one returned" in twice.verdict(function).hint


# --- Limits ---------------------------------------------------------------------------------------------------


def _loop():
    while True:
        pass


def _loop_that_catches():
    while True:
        with contextlib.suppress(Exception):
            _loop()


def _caught_by_a_bare_except():
    try:
        _loop()
    except:  # noqa: E722
        return 1


@pytest.mark.parametrize("function", [_loop, _loop_that_catches, _caught_by_a_bare_except])
def test_what_never_comes_back_is_stopped_and_nothing_stays_armed(function):
    handler = signal.getsignal(signal.SIGALRM)
    assert hint_of(function, seconds=0.2) == "it has not come back after 0.2 s: is there a loop that never ends?"
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("function", [_loop, _loop_that_catches, _caught_by_a_bare_except])
def test_without_a_timers_signal_it_is_stopped_too(function, monkeypatch):
    """As on Windows."""
    monkeypatch.delattr(signal, "SIGALRM")
    monkeypatch.setattr(limits, "resource", None)
    handler, threads = signal.getsignal(signal.SIGTERM), threading.active_count()
    assert hint_of(function, seconds=0.2) == "it has not come back after 0.2 s: is there a loop that never ends?"
    assert limits.run_limited(60.0, lambda: 1) == 1
    assert signal.getsignal(signal.SIGTERM) is handler
    assert threading.active_count() == threads


def test_a_merge_that_does_not_go_on_is_stopped():
    def merge(symbols, pair, new):
        merged, i = [], 0
        while i < len(symbols):
            merged.append(symbols[i])
        return merged

    state, hint = dataclasses.replace(exercises("02")["merge"], seconds=0.2).verdict(merge)
    assert state == WRONG
    assert "is there a loop that never ends?" in hint


def test_what_grows_without_end_is_stopped(monkeypatch):
    def function():
        grown = []
        while True:
            grown.append(np.ones(1 << 17))

    monkeypatch.setattr(limits, "GIGABYTES", 0.1)
    assert "it takes more than 0.1 GB of memory" in hint_of(function)


def test_recursion_without_end_is_told():
    def function(x):
        return function(x)

    hint = hint_of(function, np.ones(3))
    assert hint.startswith("it raises RecursionError: it calls itself without end; line ")


def test_outside_the_main_thread_a_function_runs_without_limits():
    found = []
    thread = threading.Thread(target=lambda: found.append(limits.run_limited(0.0, lambda: sys.maxsize)))
    thread.start()
    thread.join()
    assert found == [sys.maxsize]
