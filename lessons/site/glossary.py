"""A Sphinx extension: the first time that a lesson uses a word of the glossary, the word is a link to it."""

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

GLOSSARY = "lessons/glossary"
TWO_MEANINGS = {"alignment", "barrier", "cache", "kernel", "memory", "projection", "race", "segment", "state", "wave"}
"""Lessons also use them in another sense than the glossary's: they link them where they mean it."""

INSIDE = (nodes.title, nodes.reference, nodes.literal, nodes.thead, pending_xref)
"""Where no word becomes a link."""


def words(text: str) -> Iterator[tuple[str, str]]:
    """Yield each word of the glossary, and its anchor."""
    for heading in re.findall(r"^### (.+)$", text, re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        yield from ((word, anchor) for word in heading.split(", ") if word not in TWO_MEANINGS)


class LinkWords(SphinxTransform):
    """Link the first use of each word that the lesson does not link itself."""

    default_priority = 400  # after the document is parsed

    def apply(self, **kwargs: Any) -> None:
        if not re.match(r"lessons/\d\d_", self.env.docname):
            return
        self.env.note_dependency(f"{GLOSSARY}.md")
        glossary = (self.env.srcdir / f"{GLOSSARY}.md").read_text("utf-8")
        linked = {node.get("reftargetid") for node in self.document.findall(pending_xref)}
        for word, anchor in words(glossary):
            pattern = re.compile(rf"\b{re.escape(word)}s?\b", 0 if word.isupper() else re.IGNORECASE)
            if anchor not in linked and (use := self.first_use(pattern)):
                linked.add(anchor)
                self.link(*use, anchor)

    def first_use(self, pattern: re.Pattern[str]) -> tuple[nodes.Text, re.Match[str]] | None:
        for paragraph in self.document.findall(nodes.paragraph):
            for text in paragraph.findall(nodes.Text):
                inside = isinstance(text.parent, INSIDE) or isinstance(paragraph.parent.parent.parent, INSIDE)
                if not inside and (found := pattern.search(text)):
                    return text, found
        return None

    def link(self, text: nodes.Text, found: re.Match[str], anchor: str) -> None:
        target = {"reftarget": GLOSSARY, "reftargetid": anchor, "refdoc": self.env.docname, "refexplicit": True}
        word = pending_xref("", nodes.inline("", found[0]), refdomain="doc", reftype="myst", **target)
        before, after = nodes.Text(text[: found.start()]), nodes.Text(text[found.end() :])
        text.parent.replace(text, [before, word, after])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_transform(LinkWords)
    return {"parallel_read_safe": True}
