"""The counts of labelled bracket F1 in the linearised trees that a model writes (see `minitransformer.data.trees`).

Source: Vaswani 2017, §6.3; Black et al. 1991, "PARSEVAL".
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from minitransformer.data.trees import WORD

Span = tuple[str, int, int]
"""A constituent's label, the number of its first word, and that of the word after its last."""


@dataclass(frozen=True)
class Brackets:
    """The constituents of a linearised tree, its number of words, and if it was well formed without repair."""

    spans: Counter[Span]
    num_words: int
    well_formed: bool


def read_brackets(linearised: str) -> Brackets:
    """The constituents of a model's output, repaired if it is not a tree.

    A closing token closes the nearest open constituent with its label, and those inside it; without one it is left out.
    Tokens that do not belong to a tree and constituents without words are left out too. Constituents that are open at
    the end are closed there.
    """
    open_: list[tuple[str, int]] = []
    spans: Counter[Span] = Counter()
    num_words, well_formed, roots = 0, True, 0

    def close() -> None:
        nonlocal well_formed
        label, start = open_.pop()
        if start == num_words:
            well_formed = False
        else:
            spans[label, start, num_words] += 1

    for token in linearised.split():
        roots += not open_ and token.startswith("(")
        if token == WORD:
            well_formed &= bool(open_)
            num_words += 1
        elif token.startswith("(") and len(token) > 1:
            open_.append((token[1:], num_words))
        elif token.startswith(")") and any(label == token[1:] for label, _ in open_):
            well_formed &= open_[-1][0] == token[1:]
            while open_[-1][0] != token[1:]:
                close()
            close()
        else:
            well_formed = False
    well_formed &= not open_ and roots == 1
    while open_:
        close()
    return Brackets(spans, num_words, well_formed)


class BracketCounts(NamedTuple):
    """The constituents of one parse: those shared with its reference, its own, and the reference's.

    `malformed`: the parse is not a tree, or has another number of words than the sentence.
    """

    matched: int
    written: int
    wanted: int
    malformed: bool


def bracket_counts(output: str, reference: str) -> BracketCounts:
    """Count a parse's constituents; one matches another with the same label and words, each at most once.

    Parts of speech do not count as constituents. Raises `ValueError` if the reference is not a tree.
    """
    ours, theirs = read_brackets(output), read_brackets(reference)
    if not theirs.well_formed:
        raise ValueError(f"the reference {reference!r} is not a tree")
    sound = ours.well_formed and ours.num_words == theirs.num_words
    shared = ours.spans & theirs.spans
    return BracketCounts(shared.total(), ours.spans.total(), theirs.spans.total(), not sound)
