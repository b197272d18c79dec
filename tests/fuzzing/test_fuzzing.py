"""Attacks on the command line and on checkpoints: no traceback, nothing taken in silence, nothing without end."""

import subprocess
import sys
from pathlib import Path

import pytest

FUZZING = Path(__file__).parent


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param(("commands:12", "checkpoints:6"), id="some"),
        pytest.param(("commands:3000",), id="commands", marks=pytest.mark.slow),
        pytest.param(("checkpoints:1500",), id="checkpoints", marks=pytest.mark.slow),
    ],
)
def test_attacks_get_one_line_each(counts):
    attacked = subprocess.run([sys.executable, FUZZING, *counts], capture_output=True, text=True, check=False)
    assert attacked.returncode == 0, attacked.stdout + attacked.stderr
    for kind, count in (each.split(":") for each in counts):
        assert f"{count} {kind}, 0 wrong" in attacked.stdout
