"""The lessons as visitors run them: their first cell, and the course that it gets."""

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from support.serving import served
from support.site_pages import site_module

from course.sources import LESSONS, sources, tags_of

LINK = r"(?<=\]\()[^)\s]+"
AS_A_CELL = """\
import ast, asyncio
code = compile(open("cells.py").read(), "cells.py", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
asyncio.run(eval(code))
"""
TRAINING = {"03": 1, "09": 1, "10": 1, "18": 1, "19": 1, "21": 3, "22": 3, "27": 3, "29": 1, "30": 1}
"""The cells that train for long, by lesson."""
URL, WHEEL = "https://example.com/transformer/", "minitransformer-9-py3-none-any.whl"


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return site_module("runnable")


def notebooks(module: ModuleType, name: str, url: str) -> tuple[list[Any], list[Any]]:
    """The cells of a lesson, and of the one that visitors run."""
    path = LESSONS / f"{name}.ipynb"
    made = module.runnable(path, url, WHEEL)
    nbformat.validate(made)
    return nbformat.read(path, 4).cells, made.cells


@pytest.mark.parametrize("url", ["", URL])
@pytest.mark.parametrize("name", [source.stem for source in sources()])
def test_a_lesson_has_one_cell_more_and_remarks(module: ModuleType, name: str, url: str):
    before, after = notebooks(module, name, url)
    first = after.pop(1)
    compile(first.source, "first", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert (f"{url}run/pypi/{WHEEL}" in first.source) == bool(url)
    remarks = [after[place - 1] for place, cell in enumerate(after) if "long" in tags_of(cell)]
    assert len(remarks) == TRAINING.get(name[:2], 0)
    assert all(f"({url or '../../'}lessons/{name}.html)" in remark.source for remark in remarks)
    kept = [cell.source for cell in after if cell not in remarks]
    assert len(kept) == len(before)
    for new, cell in zip(kept, before, strict=True):
        old = cell.source.replace('runs/explorer.html" title', f'{url or "../../"}explorer.html" title')
        assert re.sub(LINK, "", new) == re.sub(LINK, "", old)


@pytest.mark.parametrize(
    ("link", "place"),
    {
        "09_training.ipynb#adam": "09_training.ipynb#adam",
        "#here": "#here",
        "https://example.com/a.md": "https://example.com/a.md",
        "glossary.md#mask": "../../lessons/glossary.html#mask",
        "../kernels/README.md": "../../kernels/README.html",
        "../minitransformer/training": "../../source/minitransformer/training.html",
        "../minitransformer/textbook/paper.py#L153": "../../source/minitransformer/textbook/paper.py.html#L-153",
        "../.github/CONTRIBUTING.md": "../../github/CONTRIBUTING.html",
        "cheat-sheet.html": "../../lessons/cheat-sheet.html",
    }.items(),
)
def test_a_link_leads_to_the_site(module: ModuleType, link: str, place: str):
    assert module.on_site(link, "") == place


def test_the_archive_has_what_lessons_read(module: ModuleType):
    names = {path.relative_to(LESSONS).as_posix() for path in module.course()}
    tracked = subprocess.check_output(["git", "ls-files"], text=True, cwd=LESSONS).split()
    unread = {name for name in tracked if name not in names}
    assert {Path(name).suffix for name in unread if not name.startswith("site/")} <= {".ipynb", ".pdf", ".png"}
    assert "weights/en-de.safetensors" in names


@pytest.mark.slow
def test_the_first_cell_gets_the_course_on_another_host(module: ModuleType, tmp_path: Path):
    """It installs the wheel from the site's address, also after the kernel was started again."""
    wheels, site, empty = tmp_path / "site/run/pypi", tmp_path / "packages", tmp_path / "empty"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", wheels]
    subprocess.run(build, cwd=LESSONS.parent, check=True, capture_output=True)
    empty.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"PIP_TARGET": str(site), "PIP_NO_DEPS": "1", "PYTHONPATH": str(site)}
    with served(tmp_path / "site") as url:
        module.write(wheels, tmp_path / "lite", url)
        (tmp_path / "lite/lessons").rename(tmp_path / "site/run/files")
        first = nbformat.read(tmp_path / "site/run/files/04_attention.ipynb", 4).cells[1].source
        use = "import minitransformer\nfrom course import progress\nprogress('04')\nprint(minitransformer.__file__)"
        (empty / "cells.py").write_text(f"{first.replace('/tmp/course', str(tmp_path / 'course'))}\n{use}\n")
        for _ in ("a fresh machine", "the kernel was started again"):
            done = subprocess.run([sys.executable, "-c", AS_A_CELL], cwd=empty, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert "· causal_mask" in done.stdout
            assert done.stdout.splitlines()[-1] == str(site / "minitransformer/__init__.py")
    assert "lessons/04_attention.ipynb" not in zipfile.ZipFile(tmp_path / "site/run/files/course.zip").namelist()
