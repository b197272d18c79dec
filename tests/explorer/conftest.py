"""The course's translator, on which most tests look."""

import pytest
from support.explorer_engine import Course, course_of


@pytest.fixture
def course() -> Course:
    """With a dozen sentences."""
    return course_of(12)
