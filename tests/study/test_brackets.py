"""Trees as tokens, and their F1."""

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.data.trees import linearise
from minitransformer.grammar import sample
from study.trials.brackets import bracket_counts, read_brackets

TREE = "(S (NP (D the) (N dog)) (VP (V does not sleep)) (Punct .))"
LINEAR = "(S (NP XX XX )NP (VP XX XX XX )VP XX )S"
SPANS = {("S", 0, 6), ("NP", 0, 2), ("VP", 2, 5)}

labels = st.sampled_from("ABC")
trees = st.recursive(
    st.tuples(labels, st.integers(1, 3)), lambda node: st.tuples(labels, st.lists(node, min_size=1, max_size=3))
).filter(lambda tree: isinstance(tree[1], list))


def written(tree) -> str:
    label, inside = tree
    if isinstance(inside, int):
        return f"({label} {' '.join(['word'] * inside)})"
    return f"({label} {' '.join(map(written, inside))})"


def spans_of(tree, start: int = 0) -> tuple[int, Counter]:
    """Return the end of a tree and its constituents, without the parts of speech, straight from its definition."""
    label, inside = tree
    if isinstance(inside, int):
        return start + inside, Counter()
    stop, found = start, Counter()
    for child in inside:
        stop, below = spans_of(child, stop)
        found += below
    return stop, found + Counter([(label, start, stop)])


def test_an_example_by_hand() -> None:
    assert linearise(TREE) == LINEAR
    brackets = read_brackets(LINEAR)
    assert (set(brackets.spans), brackets.num_words, brackets.well_formed) == (SPANS, 6, True)


@given(trees)
def test_constituents_survive(tree) -> None:
    stop, spans = spans_of(tree)
    brackets = read_brackets(linearise(written(tree)))
    assert (brackets.spans, brackets.num_words, brackets.well_formed) == (spans, stop, True)
    count = spans.total()
    assert bracket_counts(linearise(written(tree)), linearise(written(tree))) == (count, count, count, False)


def test_every_tree_of_the_grammar() -> None:
    for example in itertools.islice(sample("valid", 0), 100):
        tokens = linearise(example.tree).split()
        assert tokens.count("XX") == len(re.findall(r"[^\s()]+(?=[\s)])", re.sub(r"\(\S+", "", example.tree)))
        assert read_brackets(" ".join(tokens)).well_formed


@pytest.mark.parametrize(
    "tree", ["", "the", "(S", "(S)", "(S (NP (D the)) dog)", "(S (D the)) (S (D a))", "((D the))", "(S (D the) ("]
)
def test_what_is_no_tree_is_refused(tree: str) -> None:
    with pytest.raises(ValueError, match="tree"):
        linearise(tree)


def test_what_precision_and_recall_are_made_of() -> None:
    """NP one word too long, VP missing, a PP too many: 1 of 3 written, 1 of 3 wanted; then one constituent alone."""
    assert bracket_counts("(S (NP XX XX XX )NP (PP XX XX )PP XX )S", LINEAR) == (1, 3, 3, False)
    assert bracket_counts(LINEAR, LINEAR) == (3, 3, 3, False)
    assert bracket_counts("(S XX XX XX XX XX XX )S", LINEAR) == (1, 1, 3, False)


def test_a_constituent_matches_once() -> None:
    assert bracket_counts("(S (S (S XX )S )S )S", "(S (NP XX )NP )S") == (1, 3, 2, False)


@pytest.mark.parametrize(
    ("output", "spans"),
    [
        ("(S (NP XX XX )NP (VP XX XX XX )VP XX", SPANS),  # not closed
        ("(S (NP XX XX )NP (VP XX XX XX XX )S", {("S", 0, 6), ("NP", 0, 2), ("VP", 2, 6)}),  # closed from outside
        ("(S (NP XX XX )NP )PP (VP XX XX XX )VP XX )S", SPANS),  # a closing too many
        ("(S (NP XX XX )NP (PP )PP (VP XX XX XX )VP XX )S", SPANS),  # a constituent without words
        ("(S (NP XX dog XX )NP (VP XX XX XX )VP XX )S", SPANS),  # not a token of a tree
        ("(S (NP XX XX )NP (VP XX XX XX )VP XX )S (NP XX )NP", SPANS | {("NP", 6, 7)}),  # two trees
        ("(S (NP XX XX )NP (VP XX XX XX )VP )S XX", (SPANS - {("S", 0, 6)}) | {("S", 0, 5)}),  # a word outside
        ("(S (NP XX XX )NP ( (VP XX XX XX )VP XX )S )", SPANS),
        ("", set()),
    ],
)
def test_malformed_output_is_repaired_and_counted(output: str, spans: set) -> None:
    brackets = read_brackets(output)
    assert set(brackets.spans) == spans
    assert not brackets.well_formed
    assert bracket_counts(output, LINEAR).malformed


def test_another_number_of_words_is_malformed() -> None:
    assert bracket_counts("(S XX )S", "(S XX XX )S").malformed


def test_a_reference_must_be_a_tree() -> None:
    with pytest.raises(ValueError, match="not a tree"):
        bracket_counts(LINEAR, "(S XX")
