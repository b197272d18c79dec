"""The site: `make site` builds it, no link is dead, and a visitor can use it; Chromium, without a network."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from support.browser import NEEDS, absent, marks, run_in_a_browser
from support.public_names import public_names
from support.serving import served
from support.site_pages import dead, foreign, pages, raw_formulas, read, site_module

import kernels
import kernels.functional
from minitransformer import layers, models, ops, pretrained

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LESSONS = sorted(path.stem for path in (ROOT / "lessons").glob("[0-9][0-9]_*.ipynb"))
LINK = re.compile(r"(?<=\]\()[^)\s]+")
ALSO = {
    "make": shutil.which("make"),
    "what `make site` installs": find_spec("sphinx") and (ROOT / "lessons/site/node_modules/katex").exists(),
}

pytestmark = marks(NEEDS | ALSO)


@pytest.fixture(scope="module")
def site() -> Path:
    assert not absent(NEEDS | ALSO)
    environment = {name: value for name, value in os.environ.items() if name != "URL"}
    make = ["make", "site", f"PYTHON={sys.executable}"]
    result = subprocess.run(make, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return ROOT / "build/site"


def test_every_link_leads_somewhere(site: Path):
    assert {name: found for name in pages(site) if (found := dead(site, name))} == {}


def test_every_link_of_a_lesson_that_runs_leads_somewhere(site: Path):
    for path in (site / "run/files").glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        links = [link for cell in cells if cell["cell_type"] == "markdown" for link in LINK.findall(cell["source"])]
        places = {link: site / "run/notebooks" / link.partition("#")[0] for link in links if link.startswith("../")}
        assert {link for link, place in places.items() if not place.is_file()} == set(), path.name


def test_nothing_is_loaded_from_elsewhere(site: Path):
    assert {name: found for name in pages(site) if (found := foreign(read(site / name)))} == {}


def test_every_formula_is_set(site: Path):
    for name in pages(site):
        page = read(site / name)
        assert not raw_formulas(page), name
        assert "katex-error" not in page.classes, name


def test_a_wrong_formula_is_named(site: Path):
    katex = site_module("katex").KaTeX()
    try:
        assert "katex-mathml" in katex.set(r"\sqrt{d_k}", False)["html"]
        assert "KaTeX parse error" in katex.set(r"\sqrt{d_k", True)["error"]
    finally:
        katex.stop()


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_is_a_chapter(site: Path, lesson: str):
    """Its minutes and stars, where it can be run, the chapters before and after it."""
    page = read(site / f"lessons/{lesson}.html")
    assert "minutes" in page.prose
    assert "★" in page.prose
    assert {"run-lesson", "prev-page", "next-page"} <= page.classes
    assert f"../_sources/lessons/{lesson}.ipynb" in page.links
    assert any("glossary.html#" in link for link in page.links)


@pytest.mark.parametrize("package", [ops, layers, models, pretrained, kernels, kernels.functional])
def test_search_finds_every_public_name(site: Path, package: ModuleType):
    """It leads to the entry on a page of the reference."""
    script = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(script[script.index("(") + 1 : script.rindex(")")])
    found = {}
    for document, _, _, anchor, name in index["objects"][package.__name__]:
        found[name] = index["docnames"][document], anchor or f"{package.__name__}.{name}"
    assert public_names(package) <= set(found)
    for page, anchor in found.values():
        assert page.startswith("reference/")
        assert anchor in read(site / f"{page}.html").anchors


def test_an_op_has_its_formulas_and_its_worst_errors(site: Path):
    text = (site / "reference/attention.html").read_text("utf-8")
    assert {"op-formulas", "katex-display"} <= read(site / "reference/attention.html").classes
    assert "last run of the proof" in text
    assert "without a run of the proof" not in text


def test_a_visitor(site: Path):
    with served(site) as url:
        run_in_a_browser(HERE / "browser/site.test.mjs", SITE=url)


def test_a_lesson_runs_in_the_browser(site: Path):
    """As far as Python itself, which is served in place of Pyodide's host."""
    subprocess.run(["make", "build/pyodide", f"PYTHON={sys.executable}"], cwd=ROOT, check=True, capture_output=True)
    with served(site) as url:
        run_in_a_browser(HERE / "browser/run.test.mjs", SITE=url, PYODIDE=str(ROOT / "build/pyodide"))
