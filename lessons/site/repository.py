"""A Sphinx extension: links into the repository lead to pages that show its files."""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).resolve().parents[2]
PAGES = "source/"
UNTRACKED = {"__pycache__", "node_modules"}
LANGUAGES = {".py": "python", ".js": "javascript", ".json": "json", ".md": "markdown"}


def shown(env: BuildEnvironment) -> set[str]:
    """Return the paths that have a page, which Sphinx keeps from build to build: what has not changed is not read."""
    return vars(env).setdefault("repository_files", set())


def in_repository(path: str) -> Path:
    """Return the file or folder of a path as the site has it, which `stage.py` may have moved."""
    return ROOT / re.sub(r"^github/", ".github/", path)


class RepositoryLinks(SphinxTransform):
    """Resolve a link to what is no document of the site."""

    default_priority = 400  # after the document is parsed

    def apply(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(pending_xref)):
            if node["reftype"] != "myst" or node.get("refdomain"):
                continue
            name, _, anchor = node["reftarget"].partition("#")
            path = normpath(join(dirname(self.env.docname), name))
            if name and (self.env.srcdir / "files" / path).is_file():
                place = path
            elif f"{path}/README" in self.env.found_docs:
                place = f"{path}/README.html"
            elif name and in_repository(path).exists():
                shown(self.env).add(path)
                place = f"{PAGES}{path}.html"
            else:
                continue
            line = anchor.replace("L", "L-")
            uri = relative_uri(f"{self.env.docname}.html", place) + (f"#{line}" if line else "")
            node.replace_self(nodes.reference("", "", *node[0].children, internal=True, refuri=uri))


def add_linked(app: Sphinx) -> None:
    """Add what pages link that Sphinx does not read."""
    for page in (app.srcdir / "files").rglob("*.html"):
        linked = re.findall(rf'href="(?:\.\./)*{PAGES}([^"]+)\.html"', page.read_text("utf-8"))
        shown(app.env).update(linked)


def link(folder: str, name: str, has_page: bool) -> str:
    """Return an item of a folder's page."""
    text = f"<code>{escape(name.removeprefix(f'{folder}/'))}</code>"
    return f'<a href="{relative_uri(f"{folder}.html", f"{name}.html")}">{text}</a>' if has_page else text


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield a page for each file and folder to which a link leads."""
    assert isinstance(app.builder, StandaloneHTMLBuilder)
    highlight = app.builder.highlighter.highlight_block
    for name in sorted(shown(app.env)):
        path = in_repository(name)
        if path.is_dir():
            names = sorted(each.relative_to(ROOT).as_posix() for each in path.iterdir() if each.name not in UNTRACKED)
            body = "".join(f"<li>{link(name, each, each in shown(app.env))}</li>" for each in names)
            body = f"<ul>{body}</ul>"
        else:
            language = LANGUAGES.get(path.suffix, "text")
            body = highlight(path.read_text("utf-8"), language, linespans="L")
        yield f"{PAGES}{name}", {"title": name, "body": f"<h1><code>{escape(name)}</code></h1>{body}"}, "page.html"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the links and the pages."""
    app.connect("builder-inited", add_linked)
    app.add_transform(RepositoryLinks)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
