"""The pages of a site, as a reader of their HTML sees them: links, anchors, what is loaded, text. What made them."""

import importlib.util
import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from posixpath import dirname, join, normpath
from types import ModuleType
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src"), ("video", "src")}
UNREAD = {"script", "style", "pre", "code", "annotation", "title"}
"""Elements whose text is no prose."""


@dataclass
class Page(HTMLParser):
    """What a page links to, loads, and says outside code."""

    html: str
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    prose: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= set(values.get("class", "").split())
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.loaded += [values[name] for element, name in LOADED if element == tag and name in values]
        if tag in UNREAD:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.prose += data


@cache
def read(path: Path) -> Page:
    return Page(path.read_text("utf-8"))


def pages(site: Path) -> list[str]:
    """Return the names of all pages but JupyterLite's own."""
    names = (path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    return sorted(name for name in names if not name.startswith("run/"))


def dead(site: Path, name: str) -> list[str]:
    """Return a page's links, and what it loads, that lead nowhere on the site."""
    page, found = read(site / name), []
    for target in [*page.links, *page.loaded]:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        path = site / normpath(join(dirname(name), unquote(parts.path))) if parts.path else site / name
        there = path.is_file() and path.resolve().is_relative_to(site.resolve())
        anchors = read(path).anchors if there and path.suffix == ".html" else set()
        if not there or (parts.fragment and unquote(parts.fragment) not in anchors):
            found.append(target)
    return found


def foreign(page: Page) -> list[str]:
    """Return what a page loads from elsewhere."""
    return [each for each in page.loaded if urlsplit(each).netloc or each.startswith("//")]


def raw_formulas(page: Page) -> list[str]:
    """Return formulas that a reader would see as TeX."""
    return re.findall(r"\$[^$\n]{1,200}\$|\\(?:frac|sqrt|mathrm|begin)\b", page.prose)


def site_module(name: str) -> ModuleType:
    """Return a module of `lessons/site`, which is no package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / f"lessons/site/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
