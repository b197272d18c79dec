"""The checks of the site's pages see what they must refuse; the site itself is built in `test_site.py`."""

from pathlib import Path
from types import ModuleType

import pytest
from support.site_pages import Page, dead, foreign, pages, raw_formulas, site_module

ROOT = Path(__file__).parents[2]


def test_dead_links_are_found(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text('<h1 id="top">x</h1><a href="a/b.html#here"></a><a href="#top"></a>')
    (tmp_path / "a/b.html").write_text(
        '<p id="here"><a href="../index.html#gone"></a><a href="c.html"></a><img src="d.png">'
        '<a href="../../outside.html"></a><a href="https://example.com/"></a>'
    )
    assert pages(tmp_path) == ["a/b.html", "index.html"]
    assert dead(tmp_path, "index.html") == []
    assert dead(tmp_path, "a/b.html") == ["../index.html#gone", "c.html", "../../outside.html", "d.png"]


def test_what_is_loaded_from_elsewhere_is_found():
    page = Page('<script src="https://cdn.example.com/x.js"></script><img src="a.png"><link href="//b.com/c.css">')
    assert foreign(page) == ["https://cdn.example.com/x.js", "//b.com/c.css"]


def test_formulas_that_were_not_set_are_found():
    assert raw_formulas(Page("<p>the width $d_k$ costs 5 $</p>")) == ["$d_k$"]
    assert raw_formulas(Page(r"<p>so \frac{1}{2}</p><pre>$x$ \frac</pre><annotation>\frac</annotation>")) == ["\\frac"]


@pytest.fixture
def stage() -> ModuleType:
    return site_module("stage")


def test_the_staged_folder_mirrors_the_documents(stage: ModuleType, tmp_path: Path):
    stage.stage(tmp_path)
    assert (tmp_path / "index.md").exists()
    assert {path.name for path in tmp_path.glob("lessons/*.ipynb")} == {
        path.name for path in (ROOT / "lessons").glob("*.ipynb")
    }
    assert (tmp_path / "github/CONTRIBUTING.md").exists()
    for name in ("lessons/00_gradients.ipynb", "README.md"):
        assert ".github/" not in (tmp_path / name).read_text("utf-8")
    assert "../explorer.html" in (tmp_path / "lessons/00_gradients.ipynb").read_text("utf-8")


def test_staging_again_writes_what_has_changed_and_removes_what_is_gone(stage: ModuleType, tmp_path: Path):
    stage.stage(tmp_path)
    kept, changed, gone = (tmp_path / name for name in ("README.md", "index.md", "lessons/99_gone.ipynb"))
    before = kept.stat().st_mtime_ns
    changed.write_text("changed")
    gone.write_text("{}")
    stage.stage(tmp_path)
    assert kept.stat().st_mtime_ns == before
    assert changed.read_text("utf-8") != "changed"
    assert not gone.exists()


def test_words_of_the_glossary_have_their_anchors():
    pytest.importorskip("sphinx")
    text = "# G\n### adam\n.\n### BOS, EOS\n### vector–Jacobian product\n### memory\n"
    assert dict(site_module("glossary").words(text)) == {
        "adam": "adam",
        "BOS": "bos-eos",
        "EOS": "bos-eos",
        "vector–Jacobian product": "vectorjacobian-product",
    }
