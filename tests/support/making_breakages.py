"""Mistakes made in a copy of the code, on which tests run that must refuse them."""

import ast
import faulthandler
import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.breakages import Breakage

ROOT = Path(__file__).parents[2]
PACKAGES = ("minitransformer", "kernels", "tests", "lessons/after", "lessons/course", "lessons/paper", "lessons/study")
LIBRARIES = ["numpy", "torch", "triton.language", "pytest", "safetensors"]
"""What most proofs import, and what takes longer to import than a proof takes."""
HANGS = 900.0
"""After so many seconds a proof hangs; most take ten."""


class Workshop:
    """A copy of the packages and their tests: mistakes are made there one after the other, and mended again.

    Each proof runs in a process of its own, forked from one that has the libraries but nothing of ours.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder / "copy", folder / "output"
        skip = shutil.ignore_patterns("__pycache__", ".*", "node_modules")
        for name in PACKAGES:
            shutil.copytree(ROOT / name, self.folder / name, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", self.folder)
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(LIBRARIES)

    def assert_it_is_refused(self, breakage: Breakage) -> None:
        """With the mistake the test that is meant to refuse it fails."""
        with self._made(breakage):
            code = self._proof(breakage.refused_by)
            said = self.output.read_text(encoding="utf-8")
            assert code == pytest.ExitCode.TESTS_FAILED, said
            assert "1 failed" in said, said  # a process that dies of an exception has the same code

    @contextmanager
    def _made(self, breakage: Breakage) -> Iterator[None]:
        file = self.folder / breakage.package / breakage.file
        code = file.read_text(encoding="utf-8")
        try:
            _write(file, broken(code, breakage))
            yield
        finally:
            _write(file, code)

    def _proof(self, *targets: str) -> int | None:
        """Runs the quick tests under `targets` on the copy; returns pytest's exit code."""
        process = self._processes.Process(target=_run_proof, args=(self.folder, self.output, targets))
        process.start()
        process.join(HANGS)
        if process.pid and process.is_alive():
            os.kill(process.pid, signal.SIGABRT)  # the stack of what hangs comes into the output
            process.join()
        return process.exitcode


class MadeOnPurpose:
    """The tests of a list of breakages: a test class inherits them and names its list."""

    breakages: list[Breakage]
    least: int

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "breakage" in metafunc.fixturenames:
            metafunc.parametrize("breakage", self.breakages, ids=lambda breakage: breakage.name)

    def test_breakages_fit_the_code(self, breakage: Breakage) -> None:
        code = (ROOT / breakage.package / breakage.file).read_text(encoding="utf-8")
        mistaken = broken(code, breakage)
        assert mistaken != code
        if breakage.file.endswith(".py"):
            ast.parse(mistaken)  # else any test would refuse it

    @pytest.mark.slow
    def test_breakage_is_refused(self, breakage: Breakage, workshop: Workshop) -> None:
        workshop.assert_it_is_refused(breakage)

    def test_there_are_enough(self) -> None:
        assert len({breakage._replace(name="") for breakage in self.breakages}) >= self.least


def broken(code: str, breakage: Breakage) -> str:
    """Return the code with the mistake: `after` in place of the one `before` in its function, however it is spaced."""
    start, end = _span(code, breakage)
    pattern = r"\s*".join(map(_anyhow, re.findall(r"^\n|\w+|[^\w\s]", breakage.before)))
    found = list(re.compile(pattern).finditer(code, start, end))
    where = f"`{breakage.before}` must stand in {breakage.function} of {breakage.file} once"
    assert len(found) == 1, f"{where}, and stands there {len(found)} times"
    return code[: found[0].start()] + breakage.after + code[found[0].end() :]


def _anyhow(token: str) -> str:
    """Return the pattern of a whole word or a sign; a formatter that breaks a line adds a comma before the bracket."""
    return rf"\b{token}\b" if re.match(r"\w", token) else rf",?\s*\{token}" if token in ")]}" else re.escape(token)


def _span(code: str, breakage: Breakage) -> tuple[int, int]:
    """Return where the breakage's function begins and ends; what stands outside of functions is found like one."""
    missing = f"{breakage.file} has no {breakage.function}"
    if breakage.file.endswith(".js"):
        function = rf"^(export )?(function\*? |const ){breakage.function}\b.*?^}}"
        found = re.search(function, code, re.DOTALL | re.MULTILINE)
        assert found, missing
        return found.span()
    lines, node = code.splitlines(keepends=True), ast.parse(code)
    start, end = 0, len(lines)
    for part in breakage.function.split("."):
        begins = re.compile(rf"\s*((async )?def |class )?{part}\b")
        statements = (each for each in ast.walk(node) if isinstance(each, ast.stmt))  # the outer ones come first
        node = next((each for each in statements if begins.match(lines[each.lineno - 1])), None)
        assert node, missing
        start, end = node.lineno - 1, node.end_lineno
    return len("".join(lines[:start])), len("".join(lines[:end]))


def _write(file: Path, code: str) -> None:
    """Write the code and remove what was compiled: its time in whole seconds and the file's size may be the same."""
    file.write_text(code, encoding="utf-8")
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()


def _run_proof(folder: Path, output: Path, targets: tuple[str, ...]) -> None:
    """In a new process: what is imported from here on comes from the folder."""
    with output.open("wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    faulthandler.enable()  # pytest does so for its own time
    sys.path[:] = [str(folder), *(path for path in sys.path if not _is_ours(path))]
    for name in [name for name, module in sys.modules.items() if _is_ours(getattr(module, "__file__", None) or "/")]:
        del sys.modules[name]
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--hypothesis-profile=breakages"]
    own = f"--basetemp={folder.parent / 'temporary'}"  # else those that run at once clear away each other's
    sys.exit(pytest.main([*options, own, *targets]))


def _is_ours(path: str) -> bool:
    return Path(path).is_relative_to(ROOT) and not Path(path).is_relative_to(sys.prefix)
