"""How the tables of the lexicon are read: a line for each word, its columns parted by " | "."""


def rows(table: str, columns: int) -> list[list[str]]:
    """The cells of each line; raises ValueError for a line that has another number of columns."""
    # the bar of a separable verb, "auf|stehen", has no spaces round it
    lines = [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()]
    for cells in lines:
        if len(cells) != columns:
            raise ValueError(f"a line of this table must have {columns} columns, got {' | '.join(cells)!r}")
    return lines
