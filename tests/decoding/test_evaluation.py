"""BLEU against its formula written out, exact matches against counts by hand."""

import math
from collections import Counter

import pytest

from minitransformer.evaluation import Accuracy, evaluate, exact_match_by

HYPOTHESES = ["the cat sat on the mat today", "A dog runs", "it is snowing again in the old town"]
REFERENCES = ["the cat sat on a mat today", "a dog runs", "it is snowing again in our old town"]


def bleu(hypotheses: list[str], references: list[str]) -> float:
    """Papineni 2002: the geometric mean of the 1- to 4-gram precisions, times the brevity penalty."""
    matches, totals = [0] * 4, [0] * 4
    pairs = [(ours.split(), theirs.split()) for ours, theirs in zip(hypotheses, references, strict=True)]
    for hypothesis, reference in pairs:
        for n in range(4):
            ours, theirs = (
                Counter(zip(*(words[i:] for i in range(n + 1)), strict=False)) for words in (hypothesis, reference)
            )
            matches[n] += (ours & theirs).total()
            totals[n] += ours.total()
    length, reference_length = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    brevity = math.exp(min(0.0, 1 - reference_length / length))
    return 100 * brevity * math.exp(sum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / 4)


def test_bleu_is_papineni_s():
    result = evaluate(HYPOTHESES, REFERENCES)
    lower = [hypothesis.lower() for hypothesis in HYPOTHESES]
    assert result.bleu == pytest.approx(bleu(HYPOTHESES, REFERENCES), abs=1e-9)
    assert result.bleu_lowercase == pytest.approx(bleu(lower, REFERENCES), abs=1e-9)
    assert result.bleu < result.bleu_lowercase
    shorter = [REFERENCES[0], REFERENCES[1], "it is snowing again"]
    assert evaluate(shorter, REFERENCES).bleu == pytest.approx(bleu(shorter, REFERENCES), abs=1e-9)


def test_the_signature_names_sacrebleu_s_defaults():
    result = evaluate(HYPOTHESES, REFERENCES)
    assert result.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert result.signature_lowercase.startswith("nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:")


def test_perfect_and_hopeless_translations():
    perfect = evaluate(REFERENCES, REFERENCES)
    assert perfect.bleu == pytest.approx(100)
    assert perfect.bleu_lowercase == pytest.approx(100)
    assert (perfect.exact_match, perfect.num_sentences) == (100, 3)
    hopeless = evaluate(["", "", ""], REFERENCES)
    assert (hopeless.bleu, hopeless.exact_match) == (0, 0)


def test_exact_means_to_the_last_character():
    references = ["Ein Hund.", "Ein Hund.", "Ein Hund.", "Ein Hund."]
    assert evaluate(["Ein Hund.", "ein Hund.", "Ein Hund", "Ein Hund. "], references).exact_match == 25


def test_accuracy_by_construction_is_counted_in_a_table():
    constructions = [{"negation", "plural"}, {"negation"}, set(), frozenset({"modal", "negation"}), ("plural",)]
    hypotheses, references = ["a", "b", "c", "d", "e"], ["a", "x", "c", "d", "x"]
    assert exact_match_by(constructions, hypotheses, references) == [
        Accuracy("negation", 3, 100 * 2 / 3),
        Accuracy("plural", 2, 50.0),
        Accuracy("modal", 1, 100.0),
    ]


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="there are 1 hypotheses but 2 references"):
        evaluate(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="there are no sentences to evaluate"):
        evaluate([], [])
    with pytest.raises(TypeError, match="not one str"):
        evaluate("ab", "ab")
    with pytest.raises(ValueError, match="there are 2 sentences but constructions for 1"):
        exact_match_by([{"negation"}], ["a", "b"], ["a", "b"])
