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

EXCEPT = (nodes.reference, nodes.literal, nodes.math, nodes.emphasis, nodes.strong, nodes.raw, pending_xref)
"""Where no word becomes a link."""


def words(text: str) -> Iterator[tuple[str, str]]:
    """Yield each word of the glossary, and its anchor."""
    for heading in re.findall(r"^### (.+)$", text, re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        yield from ((word, anchor) for word in heading.split(", ") if word not in TWO_MEANINGS)


def prose(node: nodes.Node) -> Iterator[nodes.Text]:
    """Yield the texts in which a word may be a link."""
    for child in node.children:
        if isinstance(child, nodes.Text):
            yield child
        elif not isinstance(child, EXCEPT):
            yield from prose(child)


class LinkWords(SphinxTransform):
    """Link the first use of each word that the lesson does not link itself."""

    default_priority = 400  # after the document is parsed

    def apply(self, **kwargs: Any) -> None:
        if not re.match(r"lessons/\d\d_", self.env.docname):
            return
        self.env.note_dependency(f"{GLOSSARY}.md")
        glossary = (self.env.srcdir / f"{GLOSSARY}.md").read_text("utf-8")
        linked = {node.get("reftargetid") for node in self.document.findall(pending_xref)}
        texts = [text for paragraph in self.document.findall(nodes.paragraph) for text in prose(paragraph)]
        for word, anchor in words(glossary):
            pattern = re.compile(rf"\b{re.escape(word)}s?\b", 0 if word.isupper() else re.IGNORECASE)
            place = next((place for place, text in enumerate(texts) if pattern.search(text)), None)
            if place is not None and anchor not in linked:
                linked.add(anchor)
                texts[place : place + 1] = self.link(texts[place], pattern, anchor)

    def link(self, text: nodes.Text, pattern: re.Pattern[str], anchor: str) -> tuple[nodes.Text, nodes.Text]:
        """Return the texts before and after the word."""
        before, word, after = re.split(f"({pattern.pattern})", text, maxsplit=1, flags=pattern.flags)
        target = {"reftarget": GLOSSARY, "reftargetid": anchor, "refdoc": self.env.docname, "refexplicit": True}
        link = pending_xref("", nodes.inline("", word), refdomain="doc", reftype="myst", **target)
        around = nodes.Text(before), nodes.Text(after)
        text.parent.replace(text, [around[0], link, around[1]])
        return around


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_transform(LinkWords)
    return {"parallel_read_safe": True}
