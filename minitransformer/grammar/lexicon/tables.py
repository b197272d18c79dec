"""The tables of the lexicon: a line for each word, with columns separated by " | "."""


def rows(table: str, columns: int) -> list[list[str]]:
    """Return the cells of each line. Raises ValueError for a line with another number of columns."""
    # The bar of a separable verb, "auf|stehen", has no spaces around it.
    lines = [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()]
    for cells in lines:
        if len(cells) != columns:
            raise ValueError(f"a line of this table must have {columns} columns, got {' | '.join(cells)!r}")
    return lines
