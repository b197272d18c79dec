"""Right answers that look unlike the solutions are correct too."""

import pytest
from support.lessons.other_ways_05_to_12 import RIGHT

from course.exercise import CORRECT, exercises

CASES = [(number, name) for number, lesson in RIGHT.items() for name in lesson]


@pytest.mark.parametrize(("number", "name"), CASES, ids=".".join)
def test_a_right_answer_is_correct_however_it_is_written(number, name):
    for answer in RIGHT[number][name]:
        assert exercises(number)[name].verdict(answer) == (CORRECT, "")


def test_every_exercise_of_these_lessons_is_answered_in_another_way():
    assert {number: set(lesson) for number, lesson in RIGHT.items()} == {
        number: set(exercises(number)) for number in RIGHT
    }
