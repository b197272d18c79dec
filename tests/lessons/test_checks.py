"""Numbers in hints: true sentences, in which two numbers differ as printed."""

import numpy as np
import pytest

from course.checks import (
    count_lines,
    distinct,
    largest_error,
    require_close,
    require_gradients,
    require_none_of,
    unpack,
)
from course.exercise import Wrong


def hint_of(actual, expected, **options):
    with pytest.raises(Wrong) as wrong:
        require_close("y", np.asarray(actual), np.asarray(expected), **options)
    return str(wrong.value)


def test_two_numbers_are_printed_with_as_many_digits_as_tell_them_apart():
    assert distinct(1.0, 2.0) == ("1", "2")
    assert distinct(1.7255, 1.72551) == ("1.7255", "1.72551")
    assert distinct(np.nextafter(1, 2), 1)[0] != "1"
    assert distinct(100_001, 100_002) == ("100001", "100002")
    assert distinct(np.nan, np.nan) == ("nan", "nan")


def test_the_farthest_place_is_named_and_nan_is_the_farthest():
    assert largest_error(np.array([[0.0, 2.0], [0.5, 0.0]]), 0.0) == ((0, 1), "2", "0")
    assert largest_error(np.array([9.0, np.nan]), np.zeros(2)) == ((1,), "nan", "0")


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_everywhere_is_said_of_several_numbers_only(shape):
    ones = np.ones(shape)
    for actual in (0 * ones, -ones, 3 * ones):
        hint = hint_of(actual, ones, factors={"3: why three?": 3.0})
        assert ("everywhere" in hint) == (ones.size > 1), hint
    assert hint_of(3 * ones, ones, factors={"3: why three?": 3.0}).endswith(", which is 3: why three?")
    with pytest.raises(Wrong) as wrong:
        require_gradients(lambda x: (x * x, x), lambda dy, x: -2 * x * dy, {"x": ones})
    assert ("everywhere" in str(wrong.value)) == (ones.size > 1)


def test_a_number_alone_is_not_explained_by_a_factor_that_nobody_named():
    assert hint_of(1.5, 1.0) == "y is 1.5 and should be 1"
    assert hint_of([1.5, 3], [1.0, 2]) == "y is 1.5 times what it should be everywhere"


@pytest.mark.parametrize("shape", [(), (3,)])
def test_what_is_almost_right_is_not_said_to_be_wrong_by_a_number_that_prints_the_same(shape):
    right = np.full(shape, 1.7255)
    assert "is off by up to 2e-08, which is little" in hint_of(right + 2e-8, right)
    assert "is off by up to 2e-08, which is little" not in hint_of(np.zeros(shape) + 2e-8, np.zeros(shape))


def test_one_wrong_place_of_many_is_counted():
    actual = np.zeros(1000)
    actual[7] = 1
    assert hint_of(actual, np.zeros(1000)) == "y is wrong in 1 of its 1000 places: at (7,) it is 1 and should be 0"


def test_numbers_in_the_wrong_order_are_said_to_be():
    right = np.random.default_rng(0).standard_normal((4, 3))
    assert hint_of(right[::-1], right) == "y is in the reverse order along axis 0"
    assert hint_of(right[:, ::-1], right) == "y is in the reverse order along axis 1"
    assert hint_of(right[::-1, 0], right[:, 0]) == "y is in the reverse order"
    assert hint_of(np.roll(right, 1, axis=0), right) == "y stands one place too late along axis 0"
    assert hint_of([2.0, 3, 4, 0], [1.0, 2, 3, 4]) == "y stands one place too early"


def test_a_likely_mistake_is_named_where_it_is_none():
    right, mistakes = np.ones(2), {"is all ones": np.ones(2), "is twos": 2 * np.ones(2), "has three": np.ones(3)}
    for found in (right, 3 * right, np.ones(3)):
        require_none_of("y", found, right, mistakes)
    with pytest.raises(Wrong, match="y is twos"):
        require_none_of("y", 2 * right, right, mistakes)


def test_lines_are_counted_up_to_a_limit():
    def loop(rounds):
        while rounds:
            rounds -= 1

    assert count_lines(lambda: loop(10)) < count_lines(lambda: loop(1000), 3000) < 2100
    with pytest.raises(Wrong, match=r"has run 3,000 lines and goes on: is there a loop that never ends\?"):
        count_lines(lambda: loop(-1), 3000)


def test_what_is_missing_among_several_is_named():
    with pytest.raises(Wrong, match="dbias is None"):
        unpack((np.ones(1), None), "dx", "dbias")
    with pytest.raises(Wrong, match=r"3 arrays \(dx, dweight, dbias\), not 2"):
        unpack((np.ones(1), np.ones(1)), "dx", "dweight", "dbias")
