"""A Sphinx extension: KaTeX sets the formulas while the site is built, in one process of Node."""

import json
import subprocess
from functools import lru_cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

SCRIPT = Path(__file__).with_name("katex.mjs")


class KaTeX:
    """The process, which starts with the first formula."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.set = lru_cache(maxsize=None)(self._set)

    def _set(self, tex: str, display: bool) -> dict[str, str]:
        """Return the formula's HTML, or what is wrong with it."""
        if self.process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
            self.process = subprocess.Popen(["node", SCRIPT], **pipes)
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps({"tex": tex, "displayMode": display}), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def stop(self, *_: object) -> None:
        if self.process:
            self.process.communicate()

    def inline(self, translator: HTML5Translator, node: nodes.math) -> None:
        self._write(translator, node, "span", display=False)

    def block(self, translator: HTML5Translator, node: nodes.math_block) -> None:
        self._write(translator, node, "div", display=True)

    def _write(self, translator: HTML5Translator, node: nodes.Element, tag: str, display: bool) -> None:
        answer = self.set(node.astext(), display)
        if "error" in answer:
            logging.getLogger(__name__).warning("%s", answer["error"], location=node)
        translator.body.append(translator.starttag(node, tag, "", CLASS="math") + answer["html"] + f"</{tag}>")
        raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    katex = KaTeX()
    app.add_html_math_renderer("katex", (katex.inline, None), (katex.block, None))
    app.connect("build-finished", katex.stop)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
