"""A check that can't fail proves nothing: each known mistake is made in a copy of the code, and must be refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.breakages import BASELINE_BREAKAGES, BREAKAGES, Breakage
from support.kernel_breakages import KERNEL_BREAKAGES

ALL_BREAKAGES = BREAKAGES + BASELINE_BREAKAGES + KERNEL_BREAKAGES
ROOT = Path(__file__).parents[1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages and their tests."""
    skip = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("minitransformer", "kernels", "tests", "lessons/course", "lessons/paper"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run_proof(copy: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    """The quick tests under `targets`, on the copy's own code."""
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--hypothesis-profile=breakages"]
    command = [sys.executable, "-m", "pytest", *options, *targets]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("breakage", ALL_BREAKAGES, ids=lambda breakage: breakage.name)
def test_breakages_fit_the_code(breakage: Breakage) -> None:
    code = (ROOT / breakage.package / breakage.file).read_text(encoding="utf-8")
    assert code.count(breakage.before) == 1, f"{breakage.file} has changed: bring this breakage up to date"


@pytest.mark.slow
@pytest.mark.parametrize("breakage", ALL_BREAKAGES, ids=lambda breakage: breakage.name)
def test_breakage_is_refused(breakage: Breakage, copy: Path) -> None:
    file = copy / breakage.package / breakage.file
    code = file.read_text(encoding="utf-8")
    file.write_text(code.replace(breakage.before, breakage.after), encoding="utf-8")
    result = run_proof(copy, breakage.refused_by)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr


@pytest.mark.slow
def test_the_same_tests_accept_the_code_as_it_is(copy: Path) -> None:
    result = run_proof(copy, *sorted({breakage.refused_by for breakage in ALL_BREAKAGES}))
    assert result.returncode == pytest.ExitCode.OK, result.stdout + result.stderr


@pytest.mark.parametrize(("breakages", "least"), [(BREAKAGES, 80), (BASELINE_BREAKAGES, 12), (KERNEL_BREAKAGES, 12)])
def test_there_are_enough(breakages: list[Breakage], least: int) -> None:
    assert len({(breakage.file, breakage.after) for breakage in breakages}) >= least
