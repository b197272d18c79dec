"""Pieces of Markdown. A report is a list of blocks, such as paragraphs and tables, separated by empty lines."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table, with the first `left` columns left-aligned and the others right-aligned."""
    lines = [head, [*["---"] * left, *["---:"] * (len(head) - left)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def bullets(items: Iterable[str]) -> str:
    """A list with a bullet for each item."""
    return "\n".join(f"- {item}" for item in items)


def listed(items: Sequence[str]) -> str:
    """Join words for a sentence, as `one, two and three`."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def verbatim(lines: Iterable[str]) -> str:
    """Return lines as a code block."""
    return "\n".join(["```text", *lines, "```"])


def picture(name: str, text: str) -> str:
    """A picture of the report, with a text for readers who cannot see it."""
    return f"![{text}](pictures/{name}.png)"


def scientific(value: float) -> str:
    """Return a number as text in scientific notation: `3.3 · 10¹⁸` for 3.3e18."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} · 10{str(int(exponent)).translate(str.maketrans('0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻'))}"


def paragraph(text: str) -> str:
    """Return a text of several lines as one line."""
    return " ".join(text.split())
