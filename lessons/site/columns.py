"""A Sphinx extension: the directive `columns` of the tour, which shows code beside its backward."""

import os
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.directives.code import LiteralInclude
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]


class Code(LiteralInclude):
    """A `literalinclude` of a file by its path in the repository, wherever the sources of the site lie."""

    def run(self) -> list[nodes.Node]:
        self.arguments[0] = f"/{os.path.relpath(ROOT / self.arguments[0], self.env.srcdir)}"
        return super().run()


class Columns(SphinxDirective):
    """```{columns} FILE``` and, a line each, functions of the file: side by side where there is room."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(self.lines()))

    def lines(self) -> Iterator[str]:
        """Yield the columns as Markdown. Every line is emphasized, so that it is an element, which wraps by itself."""
        path = self.arguments[0]
        yield ":::::{div} code-columns"
        for line in self.content:
            yield "::::{div}"
            for name in line.split():
                yield from (f"```{{source}} {path}", f":pyobject: {name}", ":language: python", ":dedent:")
                caption = [f":caption: {name}"] if "." in name else []
                yield from (*caption, ":emphasize-lines: 1-", "```")
            yield "::::"
        yield ":::::"
        yield f"[`{path}`]({os.path.relpath(path, os.path.dirname(self.env.docname))})"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("source", Code)
    app.add_directive("columns", Columns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
