"""The labelled bracket F1 of the linearised trees that a model writes (see `minitransformer.data.trees`).

Source: Vaswani 2017, §6.3.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from minitransformer.data.trees import WORD

Span = tuple[str, int, int]
"""A constituent's label, its first word and the one after its last."""


@dataclass(frozen=True)
class Brackets:
    """The constituents of a linearised tree, how many words it has, and whether it needed no repair."""

    spans: Counter[Span]
    num_words: int
    well_formed: bool


def read_brackets(linearised: str) -> Brackets:
    """The constituents of what a model wrote, repaired where it is no tree.

    A closing closes the nearest constituent of its label that is open, and those inside it; one without is left out, as
    is what is no token of a tree and a constituent without words; what is open in the end is closed there.
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


@dataclass(frozen=True)
class BracketScore:
    """The score of a set of parses, in percent; `malformed` counts those that are no tree or lack or add words."""

    precision: float
    recall: float
    exact_match: float
    malformed: int
    num_sentences: int

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


@dataclass(frozen=True)
class BracketCounts:
    """Constituents of one parse: those it shares with its reference, its own, the reference's; and how sound it is.

    `malformed`: it is no tree, or has not as many words as the sentence. `exact`: it is the reference.
    """

    matched: int
    written: int
    wanted: int
    malformed: bool
    exact: bool


def bracket_counts(output: str, reference: str) -> BracketCounts:
    """Count a parse's constituents; one matches another of the same label and words, each at most once.

    Parts of speech are no constituents. Raises `ValueError` where the reference is no tree.
    """
    ours, theirs = read_brackets(output), read_brackets(reference)
    if not theirs.well_formed:
        raise ValueError(f"the reference {reference!r} is no tree")
    sound = ours.well_formed and ours.num_words == theirs.num_words
    return BracketCounts(
        matched=(ours.spans & theirs.spans).total(),
        written=ours.spans.total(),
        wanted=theirs.spans.total(),
        malformed=not sound,
        exact=sound and ours.spans == theirs.spans,
    )


def bracket_score(outputs: Sequence[str], references: Sequence[str]) -> BracketScore:
    """Labelled precision and recall over all constituents of a corpus (Black et al. 1991, "PARSEVAL").

    precision = matched / in the outputs, recall = matched / in the references. Raises as `bracket_counts`, and where
    there are not as many outputs as references or none at all.
    """
    if len(outputs) != len(references) or not references:
        raise ValueError(f"there are {len(outputs)} outputs and {len(references)} references, expected as many of each")
    counts = [bracket_counts(*pair) for pair in zip(outputs, references, strict=True)]
    matched = sum(each.matched for each in counts)
    return BracketScore(
        precision=100 * matched / max(sum(each.written for each in counts), 1),
        recall=100 * matched / max(sum(each.wanted for each in counts), 1),
        exact_match=100 * sum(each.exact for each in counts) / len(counts),
        malformed=sum(each.malformed for each in counts),
        num_sentences=len(counts),
    )
