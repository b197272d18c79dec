"""Dependencies between words, and the measures of heads."""

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from minitransformer.decoding import AttentionMaps
from minitransformer.grammar import sample, translate
from paper.experiments.figures.dependencies import (
    ANTECEDENT,
    ARTICLE,
    BRACKET,
    NEGATION,
    SUBJECT,
    VERB,
    Dependency,
    pieces,
    place,
)
from paper.experiments.figures.heads import (
    JOBS,
    SPREAD,
    Observation,
    Panel,
    axes_of,
    draw_lines,
    even,
    job_of,
    observe,
    resolve,
    shares,
    visible,
)

PAINTERS = "Many painters kissed a friend last year."  # Viele Maler haben letztes Jahr einen Freund geküsst.
NURSE = "Today, the nurse who cried without the sick policemen washes the egg in the modern hotel."
# Die seltsame Schauspielerin ist nicht in die leeren Theater gegangen, weil der Vater …
ACTRESS = "The strange actress did not go into the empty theaters because the father looked at the quiet boy."
REPORT = "Because he forgave them, the waiter did not show the friendly woman a room."


@pytest.mark.parametrize(
    ("dependency", "english", "expected"),
    [
        (BRACKET, PAINTERS, ("geküsst", "haben")),
        (BRACKET, ACTRESS, ("gegangen", "ist")),
        (BRACKET, NURSE, None),  # "wäscht" has nothing that closes the clause
        (SUBJECT, NURSE, ("washes", "nurse")),
        (SUBJECT, PAINTERS, None),
        (VERB, PAINTERS, ("geküsst", "kissed")),
        (VERB, ACTRESS, ("gegangen", "go")),
        (ARTICLE, ACTRESS, ("Die", "actress")),
        (ARTICLE, PAINTERS, None),
        (ANTECEDENT, NURSE, ("die", "Krankenschwester")),
        (NEGATION, REPORT, ("kein", "not")),
        (NEGATION, ACTRESS, None),  # "nicht"
    ],
)
def test_dependencies_are_found(dependency: Dependency, english: str, expected: tuple[str, str] | None) -> None:
    example = translate(english)
    queries = example.english if dependency.kind == "encoder" else example.german
    keys = example.german if dependency.kind == "decoder" else example.english
    found = dependency.find(example)
    assert (found and (queries[slice(*found[0])], keys[slice(*found[1])])) == expected


def test_the_relative_pronoun_is_not_another_article() -> None:
    example = translate(NURSE)
    found = ANTECEDENT.find(example)
    assert found is not None
    assert example.german[: found[0][0]].endswith("Krankenschwester, ")


def test_a_word_that_stands_twice_has_no_place() -> None:
    assert place("Die Frau, die schläft.", "die") is None
    assert place("Die Frau, die schläft.", "frau") == (4, 8)
    assert place("Die Frau, die schläft.", "schlä") is None  # part of a word


def test_pieces_of_a_word() -> None:
    tokens = ["The", "hedgeho", "·gs", "slee", "·p", "."]
    assert pieces("The hedgehogs sleep.", tokens, (4, 13)) == [1, 2]
    assert pieces("The hedgehogs sleep.", tokens, (14, 19)) == [3, 4]
    assert pieces("The hedgehogs slept.", tokens, (0, 3)) is None


class _Model:
    """Two heads, the second of which resolves what closes the clause of PAINTERS."""

    def attention(self, source: str, target: str) -> AttentionMaps:
        sources, targets = ([*re.findall(r"\w+|[^\w\s]", text), "</s>"] for text in (source, target))
        inputs = ["<s>", *targets[:-1]]
        decoder = np.zeros((1, 2, len(targets), len(inputs)))
        decoder[0, :, 7, 0] = 1.0, 0.25
        decoder[0, 1, 7, 3] = 0.75  # where "haben" was read
        cross = np.full((1, 2, len(targets), len(sources)), 0.1)
        return AttentionMaps(sources, targets, inputs, np.zeros((1, 2, len(sources), len(sources))), decoder, cross)


def test_what_is_observed() -> None:
    """The row that writes the dependent, the column where its governor was read."""
    (seen,) = observe(_Model(), BRACKET, [translate(PAINTERS), translate(NURSE)])  # pyright: ignore[reportArgumentType]
    assert (seen.dependent, seen.governor) == ("geküsst", "haben")
    assert (seen.query, seen.keys, seen.apart) == (7, [3], 5)
    np.testing.assert_array_equal(seen.weights, [[0.0, 0.75]])
    assert seen.even == 1 / 8  # <s> and seven words


def _observations(chosen: list[list[float]], measured: list[list[float]]) -> list[Observation]:
    """Return the observations of the heads of one layer, for each half of the sentences in turn."""
    maps = AttentionMaps(["a"] * 9, ["b"] * 5, ["c"] * 5, *[np.zeros((1, 2, 1, 1))] * 3)
    rows = [row for pair in zip(chosen, measured, strict=True) for row in pair]
    return [Observation("x", "y", maps, np.array([row]), 0.25, 0, [0], apart) for apart, row in enumerate(rows)]


def test_the_head_is_chosen_on_one_half_and_measured_on_the_other() -> None:
    found = resolve(_observations([[0.1, 0.9]] * 10, [[0.8, 0.3]] * 9 + [[0.8, 0.4]]), longest=10)
    assert found is not None
    assert (found.layer, found.head, found.sentences) == (0, 1, 10)
    assert found.weight.value == pytest.approx(0.31)
    assert found.beyond.value == pytest.approx(0.06)
    assert found.beyond.low > 0
    assert found.others == pytest.approx((0.8 + 0.31) / 2)
    assert found.typical.weights[0, 1] == 0.3
    assert found.apart == pytest.approx(np.mean(range(1, 20, 2)))  # of the half that is measured


def test_too_few_sentences_are_not_judged() -> None:
    assert resolve(_observations([[0.1, 0.9]] * 7, [[0.1, 0.9]] * 7), longest=10) is None
    assert resolve([], longest=10) is None


@pytest.mark.parametrize(("job", "offset"), [("same place", 0), ("one before", -1), ("one after", 1)])
def test_jobs_by_position(job: str, offset: int) -> None:
    weights = np.roll(np.eye(6), offset, axis=1)
    measured = shares(weights, ["a", "b", "c", "d", "e", "f"], visible("cross", 6, 6))
    assert measured[JOBS.index(job)] == pytest.approx(1.0 if offset == 0 else 5 / 6)  # the first or last goes around
    assert measured[: len(JOBS)].sum() == pytest.approx(1.0)
    assert measured[-1] == pytest.approx(0.0)


def test_jobs_by_token() -> None:
    weights = np.zeros((2, 5, 5))
    weights[0, :, 0] = weights[1, :, 3] = 1.0
    first, marks = shares(weights, ["a", "b", "c", ".", "</s>"], visible("encoder", 5, 5))
    assert first[JOBS.index("first")] == pytest.approx(3 / 5)  # for the first two queries it is near
    assert marks[JOBS.index("marks")] == pytest.approx(2 / 5)


def test_even_attention_is_even() -> None:
    seen = visible("decoder", 4, 4)
    evenly = even(seen)
    np.testing.assert_allclose(evenly[2], [1 / 3, 1 / 3, 1 / 3, 0])
    measured = shares(evenly, list("abcd"), seen)
    assert measured[-1] == pytest.approx(1.0)
    assert measured[JOBS.index("one after")] == 0
    assert job_of(measured.tolist(), measured.tolist()) == SPREAD


def test_a_job_is_what_even_attention_does_not_do() -> None:
    evenly = [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]
    assert job_of([0.05, 0.3, 0.05, 0.05, 0.05, 0.5], evenly) == "one before"
    assert job_of([0.1, 0.15, 0.1, 0.1, 0.1, 0.45], evenly) == SPREAD


def test_queries_and_keys_have_their_labels() -> None:
    maps = AttentionMaps(["s"], ["t"], ["<s>"], *[np.zeros((1, 1, 1, 1))] * 3)
    assert [axes_of(maps, kind) for kind in ("encoder", "decoder", "cross")] == [
        (["s"], ["s"]),
        (["t"], ["<s>"]),
        (["t"], ["s"]),
    ]


def test_the_lines_are_a_png(tmp_path: Path) -> None:
    panel = Panel("one", ["a", "b"], ["c", "d", "e"], [[0.1, 0.9, 0.0], [0.3, 0.3, 0.4]], ["from", "to"], "#2166ac")
    draw_lines([panel, panel], tmp_path / "lines.png")
    assert (tmp_path / "lines.png").read_bytes().startswith(b"\x89PNG")
    wrong = Panel("one", ["a"], ["c"], [[0.1, 0.9]], ["from", "to"], "#2166ac")
    with pytest.raises(ValueError, match="not 1 rows of 1"):
        draw_lines([wrong], tmp_path / "lines.png")


def test_every_example_of_the_test_set_can_be_asked() -> None:
    """No dependency fails on any construction, and each is found in some sentences."""
    examples = list(islice(sample("test", 0), 300))
    for dependency in (BRACKET, SUBJECT, VERB, ARTICLE, ANTECEDENT, NEGATION):
        assert sum(dependency.find(example) is not None for example in examples) >= 5, dependency.name
