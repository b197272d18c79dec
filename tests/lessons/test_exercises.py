"""Every exercise: its solution is accepted, its stub is "not yet", and wrong answers are told what is wrong."""

import ast
import copy
import functools
import inspect
import pickle
import re
from typing import NamedTuple

import matplotlib
import numpy as np
import pytest
from support.lessons.answers import right, solution, wrong
from torch import Tensor

from course.exercise import CORRECT, NOT_YET, WRONG, exercises, start
from course.exercise import exercise as exercise_of
from course.sources import is_exercise, number_of, read_source, sources


class Case(NamedTuple):
    """An exercise, by its lesson's number and its own name."""

    number: str
    name: str

    def __str__(self) -> str:
        return f"{self.number}.{self.name}"


CASES = [Case(number, name) for number in map(number_of, sources()) for name in exercises(number)]
each_exercise = pytest.mark.parametrize("case", CASES, ids=str)
first_of_each_lesson = pytest.mark.parametrize(
    "case",
    [
        case if case.name == next(iter(exercises(case.number))) else pytest.param(case, marks=pytest.mark.slow)
        for case in CASES
    ],
    ids=str,
)
each_lesson = pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)

SAID_TWICE = re.compile(r"(?<![\w.])(-?\d[\d.e+-]*)(?: [a-z]+)? and (?:must|should) [a-z ]+ \1(?![\w.+/-])")


def exercise(case: Case):
    return exercises(case.number)[case.name]


@pytest.fixture(autouse=True)
def _style_of_the_lessons_stays_in_the_test():
    with matplotlib.rc_context():
        yield


@each_exercise
def test_right_answers_are_correct_however_they_are_written(case):
    """The package's and others; the solutions are judged as they are kept (`test_learner`)."""
    for answer in (exercise(case).answer, *right(*case)):
        assert exercise(case).verdict(answer) == (CORRECT, "")


def test_every_exercise_in_numpy_is_answered_in_another_way():
    assert not [str(case) for case in CASES if case.number <= "12" and not right(*case)]


@each_exercise
def test_wrong_answers_are_refused_each_with_its_own_hint(case):
    mistakes = wrong(*case)
    assert len(mistakes) >= 2
    hints = set()
    for mistake, (answer, words) in mistakes.items():
        state, hint = exercise(case).verdict(answer)
        assert state == WRONG, mistake
        assert words in hint, mistake
        assert "\n" not in hint, mistake
        assert len(hint) <= 400, mistake
        assert not SAID_TWICE.search(hint), mistake
        hints.add(hint)
    assert len(hints) == len(mistakes), "two different mistakes must not get the same hint"


def in_float32(result, arguments):
    parts = result if isinstance(result, tuple | list) else [result]
    narrow = [np.float32(part) if isinstance(part, np.ndarray | np.float64) else part for part in parts]
    if not any(isinstance(part, np.ndarray | np.float64) and part.dtype == np.float64 for part in parts):
        raise NotImplementedError
    return type(result)(narrow) if isinstance(result, tuple | list) else narrow[0]


def the_first_alone(result, arguments):
    if not isinstance(result, tuple | list) or not all(isinstance(x, float | np.ndarray | Tensor) for x in result):
        raise NotImplementedError
    return result[0]


def in_place(result, arguments):
    if not any(map(written, arguments)):
        raise NotImplementedError
    return result


def written(value):
    """Write into an array, or into what a list, tuple or dict holds, or else empty that; return True if it could."""
    if isinstance(value, np.ndarray | Tensor):
        value[...] = value == 0
        return value.nbytes > 0
    if not isinstance(value, list | tuple | dict) or not value:
        return False
    if not any(map(written, value.values() if isinstance(value, dict) else value)):
        if isinstance(value, tuple):
            return False
        value.clear()
    return True


SINGLE = (
    "09.schedule",
    "10.spread",
    "10.word_map",
    "11.beam_search",
    "12.looks_at",
    "12.without_head",
    "16.backward_block",
)
"""What may be float32, or is told from it by its digits."""


@pytest.mark.parametrize(
    ("mistake", "words"),
    [(in_float32, "float32"), (the_first_alone, "must return"), (in_place, "it writes into its argument ")],
)
@each_exercise
def test_mistakes_that_any_answer_may_have_are_refused(case, mistake, words):
    """A mistake that an exercise leaves no room for is its stub."""

    def mistaken(*args, **options):
        return mistake(solution(*case)(*args, **options), (*args, *options.values()))

    state, hint = exercise(case).verdict(functools.wraps(solution(*case))(mistaken))
    if not (exercise(case).in_place or (mistake is in_float32 and str(case) in SINGLE)):
        assert (state, words in hint) in {(WRONG, True), (NOT_YET, False)}, hint


@each_lesson
def test_every_exercise_has_a_stub_with_a_contract_and_is_checked(source):
    cells = [ast.parse(cell.source).body for cell in read_source(source).cells if is_exercise(cell)]
    functions = [node for cell in cells for node in cell if isinstance(node, ast.FunctionDef)]
    stubs = [function for function in functions if function.name in exercises(number_of(source))]
    assert [stub.name for stub in stubs] == list(exercises(number_of(source))), "in the lesson's order, and all of them"
    code = "\n".join(cell.source for cell in read_source(source).cells if cell.cell_type == "code")
    for stub in stubs:
        assert ast.get_docstring(stub), f"{stub.name} has no contract"
        assert f"{stub.name} = check({stub.name})" in code
    for cell in cells:  # a kernel's launch may be given
        assert "raise NotImplementedError" in [ast.unparse(node.body[-1]) for node in cell if node in functions]


def stub(*args, **options):
    raise NotImplementedError


@each_exercise
def test_a_stub_is_not_yet(case):
    assert exercise(case).verdict(stub) == (NOT_YET, "")


def unwrapped(function):
    """A function and all that it wraps."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


@first_of_each_lesson
def test_a_check_judges_the_learners_own_answer_however_often_it_runs(case, capsys):
    check = start(case.number)

    def said(function):
        bound = check(function)
        return bound, capsys.readouterr().out

    def named(function):
        """As the learner has written it: a function of the exercise's name."""
        mine = functools.wraps(function)(lambda *args, **options: function(*args, **options))
        mine.__name__ = case.name
        return mine

    mistaken, solved = named(next(iter(wrong(*case).values()))[0]), named(solution(*case))
    for answer, verdict in ((mistaken, "wrong: "), (named(stub), "not yet. The lesson goes on")):
        bound, line = said(answer)
        assert line.startswith(f"{case.name}: {verdict}")
        assert line.count("\n") == 1
        assert exercise(case).answer in unwrapped(bound), "the lesson goes on"
        assert said(bound) == (bound, line), "the same cell, run again, says the same"
    assert said(solved) == (solved, f"{case.name}: correct\n")
    assert said(mistaken)[1].startswith(f"{case.name}: wrong: ")


def test_a_function_that_calls_itself_is_judged_as_it_is_each_time(capsys):
    cell = {}
    exec(
        """
def merge(symbols, pair, new):
    if len(symbols) < 2:
        return list(symbols)
    if tuple(symbols[:2]) == pair:
        return [new, *symbols[2:]]
    return [symbols[0], *merge(symbols[1:], pair, new)]
""",
        cell,
    )
    check = start("02")
    for _ in range(3):
        cell["merge"] = check(cell["merge"])
        assert "merge: wrong: b a n a n a with (a, n) must give" in capsys.readouterr().out


def linear_backward(dy, x, weight):
    """The contract."""
    return dy


def test_what_the_lesson_goes_on_with_is_what_the_learners_function_was(monkeypatch):
    answer = exercises("00")["linear_backward"].answer
    bound = start("00")(linear_backward)
    monkeypatch.setattr(f"{__name__}.linear_backward", bound)
    assert (bound.__name__, bound.__doc__) == ("linear_backward", "The contract.")
    assert inspect.signature(bound) == inspect.signature(answer)
    assert inspect.getsource(bound) == inspect.getsource(answer)
    assert pickle.loads(pickle.dumps(bound)) is bound is copy.deepcopy(bound)


def test_what_no_judge_foresaw_is_one_line_too():
    @exercise_of(answer=np.sqrt)
    def root(attempt):
        float(attempt(4.0))

    state, hint = root.verdict(lambda x: [x, x])
    assert state == WRONG
    assert hint.startswith("what it returns does not fit its contract (TypeError: ")


def test_an_unknown_exercise_or_lesson_is_named():
    def softmax_backward():
        pass

    with pytest.raises(ValueError, match=r"lesson 00 has no exercise 'softmax_backward'; it has .*linear_backward"):
        start("00")(softmax_backward)
    with pytest.raises(ValueError, match="there is no lesson '99'"):
        start("99")
