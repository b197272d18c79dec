"""Parse trees as sequences of tokens, and the labelled bracket F1 of what a model writes. Source: Vaswani 2017, §6.3.

A tree `(S (NP (D the) (N dog)) (VP (V sleeps)) (Punct .))` is written as Vinyals et al. 2015 do it: a token opens a
constituent, one closes it, and each word is XX, so that nothing but the structure is to be learned:
`(S (NP XX XX )NP (VP XX )VP XX )S`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WORD = "XX"

Span = tuple[str, int, int]
"""A constituent's label, its first word and the one after its last."""


def linearise(tree: str) -> str:
    """The tree as tokens; the part of speech directly above the words is left out, each of its words is one XX.

    Raises `ValueError` where brackets do not match, or a word is not below a part of speech.
    """
    tokens, rest = _constituent(re.findall(r"[()]|[^\s()]+", tree), tree)
    if rest:
        raise ValueError(f"{tree!r} goes on after its tree: {' '.join(rest)}")
    return " ".join(tokens)


def _constituent(tokens: list[str], tree: str) -> tuple[list[str], list[str]]:
    """The tree that `tokens` begin with, linearised, and what is left."""
    if len(tokens) < 3 or tokens[0] != "(" or tokens[1] in "()":
        raise ValueError(f"{tree!r} is no tree: expected '(' and a label where {' '.join(tokens[:2])!r} stands")
    label, rest = tokens[1], tokens[2:]
    children: list[list[str]] = []
    while rest and rest[0] == "(":
        child, rest = _constituent(rest, tree)
        children.append(child)
    if not rest or (children and rest[0] != ")"):
        raise ValueError(f"{tree!r} is no tree: {label} is not closed, or has words beside constituents")
    if children:
        return [f"({label}", *(token for child in children for token in child), f"){label}"], rest[1:]
    end = rest.index(")") if ")" in rest else 0
    if not end or "(" in rest[:end]:
        raise ValueError(f"{tree!r} is no tree: {label} has no words, or is not closed")
    return [WORD] * end, rest[end + 1 :]


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
    """Of a set of parses, in percent; `malformed` counts those that are no tree or have not as many words as theirs."""

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


def bracket_score(outputs: Sequence[str], references: Sequence[str]) -> BracketScore:
    """Labelled precision and recall over all constituents of a corpus (Black et al. 1991, "PARSEVAL").

    precision = matched / in the outputs, recall = matched / in the references; a constituent matches one of the same
    label and words, each at most once. Parts of speech are no constituents. Raises `ValueError` where there are not as
    many of one as of the other, none at all, or a reference is no tree.
    """
    if len(outputs) != len(references) or not references:
        raise ValueError(f"there are {len(outputs)} outputs and {len(references)} references, expected as many of each")
    matched, written, wanted, exact, malformed = 0, 0, 0, 0, 0
    for ours, theirs in _read(outputs, references):
        matched += (ours.spans & theirs.spans).total()
        written += ours.spans.total()
        wanted += theirs.spans.total()
        sound = ours.well_formed and ours.num_words == theirs.num_words
        malformed += not sound
        exact += sound and ours.spans == theirs.spans
    return BracketScore(
        precision=100 * matched / max(written, 1),
        recall=100 * matched / max(wanted, 1),
        exact_match=100 * exact / len(references),
        malformed=malformed,
        num_sentences=len(references),
    )


def _read(outputs: Sequence[str], references: Sequence[str]) -> Iterator[tuple[Brackets, Brackets]]:
    for output, reference in zip(outputs, references, strict=True):
        theirs = read_brackets(reference)
        if not theirs.well_formed:
            raise ValueError(f"the reference {reference!r} is no tree")
        yield read_brackets(output), theirs
