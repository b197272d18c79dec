"""The package and the course with NumPy as the only package, and without threads and processes, as in a browser."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.lessons.verdicts import everything

from course.gpu import ON_KERNELS
from course.sources import LESSONS, number_of, sources

SUPPORT = LESSONS.parent / "tests" / "support" / "lessons"
NAMES = ["package", *map(number_of, sources())]
PICTURES = "--with=matplotlib.pyplot,mpl_toolkits,contourpy,PIL.Image,IPython.display"

DRAWS = "13"
"""The lesson whose judges compare with formulas of the report on the paper, which draws."""


def with_numpy_alone(*arguments: str | Path, folder: Path) -> str:
    """What a file prints."""
    paths = ":".join(map(str, (LESSONS, LESSONS.parent, LESSONS.parent / "tests")))
    own = {"PYTHONPATH": paths, "COURSE_ANSWERS": str(folder), "MPLBACKEND": "agg", "HOME": str(folder)}
    environment = os.environ | own  # with what chooses the kernels of BLAS, and so the last bits
    command = [sys.executable, "-W", "ignore", SUPPORT / "numpy_alone.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=LESSONS)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


ONE_OF_EACH = pytest.param("--first", id="one of each lesson")
ALL = pytest.param(None, id="all", marks=pytest.mark.slow)


@pytest.mark.parametrize("first", [ONE_OF_EACH, ALL])
def test_the_package_and_the_judges_need_numpy_alone(first, tmp_path):
    found = {}
    for more, names in ((None, [name for name in NAMES if name != DRAWS]), (PICTURES, [DRAWS])):
        arguments = filter(None, (more, SUPPORT / "verdicts.py", first, *names))
        found |= json.loads(with_numpy_alone(*arguments, folder=tmp_path))
    assert found == everything(*NAMES, first=first is not None)


KERNELS = """
import json, sys
from course.exercise import CORRECT, exercises
from support.lessons.answers import solution
judged = {n: {name: each.verdict(solution(n, name)).state for name, each in exercises(n).items()} for n in sys.argv[1:]}
print(json.dumps({n: [name for name, state in found.items() if state != CORRECT] for n, found in judged.items()}))
"""


def test_the_exercises_on_kernels_are_those_that_a_browser_cannot_judge(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    unjudged = json.loads(with_numpy_alone(tmp_path / "kernels.py", *ON_KERNELS, folder=tmp_path))
    assert unjudged == {number: list(names) for number, names in ON_KERNELS.items()}
