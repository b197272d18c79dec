"""Pieces of Markdown. A report is a list of blocks, such as a paragraph or a table; an empty line is between them."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table: the first column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def bullets(items: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {item}" for item in items)


def verbatim(lines: Iterable[str]) -> str:
    """Lines as they stand."""
    return "\n".join(["```text", *lines, "```"])


def picture(name: str, text: str) -> str:
    """A picture beside the report, and what it says to who cannot see it."""
    return f"![{text}](pictures/{name}.png)"


def scientific(value: float) -> str:
    """`3.3e18` as `3.3 · 10¹⁸`."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} · 10{str(int(exponent)).translate(str.maketrans('0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻'))}"


def paragraph(text: str) -> str:
    """One line of what the source wrote in several."""
    return " ".join(text.split())
