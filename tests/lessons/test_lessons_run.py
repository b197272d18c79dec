"""Every lesson executes, with its stubs and with its solutions, and every check says what it must."""

import pytest

from course.exercise import exercises
from course.notebooks import execute
from course.sources import number_of, read_source, solved, sources


@pytest.mark.slow
@pytest.mark.parametrize("state", ["not yet", "correct"])
@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_lesson_executes(source, state):
    notebook = solved(source) if state == "correct" else read_source(source)
    execute(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    for name in exercises(number_of(source)):
        assert f"{name}: {state}" in printed
