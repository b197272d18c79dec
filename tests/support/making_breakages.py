"""Mistakes made in a copy of the code, on which tests run that must refuse them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.breakages import Breakage

ROOT = Path(__file__).parents[2]


def assert_it_fits_the_code(breakage: Breakage) -> None:
    code = (ROOT / breakage.package / breakage.file).read_text(encoding="utf-8")
    assert code.count(breakage.before) == 1, f"{breakage.file} has changed: bring this breakage up to date"


def assert_it_is_refused(breakage: Breakage, folder: Path) -> None:
    """Copies everything into the folder, makes the mistake there, and runs the test that must fail."""
    copy_into(folder)
    file = folder / breakage.package / breakage.file
    code = file.read_text(encoding="utf-8")
    file.write_text(code.replace(breakage.before, breakage.after), encoding="utf-8")
    result = run_proof(folder, breakage.refused_by)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr


def assert_right_code_is_accepted(breakages: list[Breakage], folder: Path) -> None:
    """The same tests pass in a copy without any mistake."""
    copy_into(folder)
    result = run_proof(folder, *sorted({breakage.refused_by for breakage in breakages}))
    assert result.returncode == pytest.ExitCode.OK, result.stdout + result.stderr


def copy_into(folder: Path) -> None:
    """A copy of the packages and their tests."""
    skip = shutil.ignore_patterns("__pycache__", ".*", "node_modules")
    for name in ("minitransformer", "kernels", "tests", "lessons/course", "lessons/paper"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", folder)


def run_proof(folder: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    """The quick tests under `targets`, on the folder's own code."""
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--hypothesis-profile=breakages"]
    command = [sys.executable, "-m", "pytest", *options, *targets]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
