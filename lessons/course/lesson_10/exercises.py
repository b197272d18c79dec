"""Lesson 10: a trained translator, its maps and its mistakes."""

import numpy as np

from ..checks import in_case, require, require_array, require_close, require_none_of, type_name
from ..exercise import Attempt, exercise
from . import solutions


@exercise(answer=solutions.spread)
def spread(attempt: Attempt) -> None:
    even = np.full((2, 3, 8), 1 / 8)
    result = attempt(even)
    require(
        np.shape(result) == (2, 3),
        f"for weights of shape (2, 3, 8) it returns {np.shape(result)} and must return (2, 3): one number for each row",
    )
    result = require_array(result, single=True)
    require(
        not (np.allclose(result, np.exp(3)) or np.allclose(result, 2 ** np.log(8))),
        f"eight keys that share the weight evenly count as {result[0, 0]:.3g} and must count as 8: if the logarithm is "
        "of base 2, so is the exponential; here both are of base e",
    )
    require(
        not (np.allclose(result, np.log(8)) or np.allclose(result, 3)),
        f"eight keys that share the weight evenly count as {result[0, 0]:.3g} and must count as 8: that is the entropy "
        "itself, and the spread is its exponential",
    )
    off = float(np.abs(result - 8).max())
    require(
        not 1e-6 < off < 0.1,
        f"eight keys that share the weight evenly count as 8 only to {off:.0e}: a number added inside the logarithm "
        "moves every weight; leave out those that are 0 instead",
    )
    require_close(
        "for eight keys that share the weight evenly, the spread",
        result,
        np.full((2, 3), 8.0),
        tolerance=1e-6,
        factors={
            "1/64: the entropy is −Σ p log p, with its minus": 1 / 64,
            "8: the exponential is taken of the entropy once, and nothing is squared": 8.0,
            "1/√8: the exponential is taken of all of the entropy": 8**-0.5,
            "e^(log 8 / 8) / 8: the entropy is a sum over the keys, not their mean": 8 ** (1 / 8) / 8,
            "7/64: that is 1 − the largest weight": 7 / 64,
            "8⁷: each log p has the weight p": 8.0**7,
        },
    )
    sharp = np.zeros((2, 1, 1, 4, 5))
    sharp[..., 2] = 1
    with in_case(f"for weights of shape {sharp.shape},"):
        result = require_array(attempt(sharp), single=True)
    require(np.isfinite(result).all(), "where a weight is 0 it gives NaN: 0 · log 0 counts as 0")
    require_close("for one key with all the weight, the spread", result, np.ones(sharp.shape[:-1]), tolerance=1e-6)
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(6), size=4)
    weights[0] = [0.9, 0.095, 0.005, 0, 0, 0]
    result = require_array(attempt(weights), single=True)
    for others, hint in (
        ((weights > 0).sum(axis=-1), "the number of keys with any weight, however small"),
        (1 / (weights**2).sum(axis=-1), "1 / Σ p², another measure: the exponential of −Σ p log p is wanted"),
    ):
        require(not np.allclose(result, others), f"for random weights it is {hint}")
    require_close("for random weights, the spread", result, solutions.spread(weights), tolerance=1e-6)
    single = attempt(weights[1])
    require(
        np.shape(single) == (),
        f"for a row alone, of shape (6,), it returns {type_name(single)} and must return one number",
    )
    padded = np.concatenate([weights, np.zeros((4, 3))], axis=1)
    more = require_array(attempt(padded), single=True)
    require_close(
        "with three keys more that get no weight, the spread", more, solutions.spread(weights), tolerance=1e-6
    )


def _word_map(weights, target_words, source_words):
    columns = np.eye(source_words.max() + 1)[source_words]  # (Tk, Wk), 1 if the token belongs to the word
    rows = np.eye(target_words.max() + 1)[target_words]  # (Tq, Wq)
    return (rows / rows.sum(axis=0)).T @ weights @ columns


@exercise(answer=_word_map)
def word_map(attempt: Attempt) -> None:
    def mapped(*arguments: np.ndarray) -> np.ndarray:
        return require_array(attempt(*arguments), single=True)

    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(4), size=3)  # (Tq, Tk) = (3, 4)
    targets, sources = np.array([0, 1, 1]), np.array([0, 0, 1, 2])
    result = mapped(weights, targets, sources)
    require(
        result.shape == (2, 3),
        f"two target words and three source words must give shape (2, 3), not {result.shape}",
    )
    sums = result.sum(axis=1)
    require(
        not np.allclose(sums, [1, 2]),
        "the row of a word of two tokens sums to 2: each token of a target word looks once, so their rows are averaged",
    )
    for counted, name, index in (
        (weights * [0, 1, 1, 1], "source", "[:, words]"),
        (weights * [[1], [0], [1]], "target", "[words]"),
    ):
        require(
            not np.allclose(result, _word_map(counted, targets, sources)),
            f"only the last token of a {name} word counts: `merged{index} += …` adds only once where words repeats a "
            "number (np.add.at adds every time)",
        )
    alone = mapped(weights, targets, np.arange(4))
    require(
        alone.shape != (2, 4) or np.allclose(alone.sum(axis=1), 1),
        f"even where every source token is a word of its own the rows sum to {np.round(alone.sum(axis=-1), 2)} and "
        "must sum to 1: the row of a target word is the mean of its tokens' rows",
    )
    require(
        np.allclose(sums, 1),
        f"the rows sum to {np.round(sums, 2)} and must sum to 1: a source word gets the sum of what its tokens get",
    )
    split = np.concatenate([weights[:, :3], weights[:, 3:] / 4, weights[:, 3:] * 3 / 4], axis=1)
    again = mapped(split, targets, np.array([0, 0, 1, 2, 2]))
    require(
        np.allclose(again, result),
        "a source token cut in two, with its weight divided between the halves, changes the map: a word gets the sum "
        "over its tokens",
    )
    require(
        np.allclose(mapped(np.repeat(weights, 2, axis=0), np.repeat(targets, 2), sources), result),
        "with every target token written twice the map changes: a word's row is the mean over all of its tokens",
    )
    require_close("the map of words", result, _word_map(weights, targets, sources), tolerance=1e-6)
    more, targets = np.concatenate([weights, weights[::-1] ** 2]), np.array([0, 1, 1, 1, 2, 2])
    more /= more.sum(axis=1, keepdims=True)
    require_close(
        "where a target word has three tokens, the map of words",
        mapped(more, targets, sources),
        _word_map(more, targets, sources),
        tolerance=1e-6,
    )
    sources = np.array([0, 1, 1, 1])
    require_close(
        "where a source word has three tokens, the map of words",
        mapped(more, targets, sources),
        _word_map(more, targets, sources),
        tolerance=1e-6,
    )


@exercise(answer=solutions.excess_errors)
def excess_errors(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 7, 400)
    by_length = lengths >= 5  # all long sentences are wrong, whatever constructions they have
    has = np.stack([rng.random(400) < 0.2 + 0.15 * (lengths - 3), np.ones(400, dtype=bool)], axis=1)
    result = require_array(attempt(by_length, has, lengths))
    require(result.shape == (2,), f"it returns shape {result.shape} and must return one number for each construction")
    require(
        np.isfinite(result).all(),
        "for a construction that every sentence has it gives NaN: a sentence is compared with all of its length, and "
        "those that have the construction are among them",
    )
    rates = np.array([by_length[column].mean() for column in has.T])
    require(
        not np.allclose(result, 1 / has.sum(axis=0)),
        "`wrong @ has` of two arrays of bool is no sum: True + True is True there. Make one of them numbers first",
    )
    require(
        not np.allclose(result, rates),
        "this is the plain error rate: where only the length decides who fails, it blames what long sentences contain",
    )
    require(
        abs(result[0]) < 1e-9,
        f"errors follow from the length alone, and yet the first construction is blamed with {result[0]:+.2g}: it is "
        "to be compared with sentences of the same length",
    )
    require(
        abs(result[1]) < 1e-9,
        f"what every sentence has is blamed with {result[1]:+.2g} and must get 0: it tells nobody apart",
    )
    wrong = rng.random(400) < 0.1 + 0.5 * has[:, 0]
    result, expected = attempt(wrong, has, lengths), solutions.excess_errors(wrong, has, lengths)
    few = np.concatenate([has, (np.arange(400) < 20)[:, None]], axis=1)
    more = attempt(wrong, few, lengths)
    require(
        np.allclose(more[:2], result),
        "a further construction changes what the others are blamed with: each is judged by itself",
    )
    twice = attempt(np.tile(wrong, 2), np.tile(has, (2, 1)), np.tile(lengths, 2))
    require(
        not np.allclose(twice, 2 * result),
        "with every sentence given twice the blame doubles: it is a mean over the sentences that have the construction",
    )
    surprise = wrong - np.array([wrong[lengths == length].mean() for length in lengths])
    each_length = [
        np.mean([surprise[column & (lengths == length)].mean() for length in np.unique(lengths[column])])
        for column in has.T
    ]
    mistakes = {
        "is the mean size of wrong − expected: the sign counts": [np.abs(surprise[column]).mean() for column in has.T],
        "is the median over the sentences, and must be the mean": [np.median(surprise[column]) for column in has.T],
        "counts each length once, and must count each sentence": each_length,
    }
    require_none_of("where a construction itself causes errors, the excess", result, expected, mistakes)
    require_close("where a construction itself causes errors, the excess", result, expected)
    easy = rng.random(400) < 0.6 - 0.5 * has[:, 0]
    require_close(
        "where a construction has fewer errors than its length leads to expect, the excess",
        attempt(easy, has, lengths),
        solutions.excess_errors(easy, has, lengths),
    )
    require_close(
        "for a construction of few sentences too, the excess", more, solutions.excess_errors(wrong, few, lengths)
    )
    gaps = np.where(lengths == 6, 60, lengths)  # no sentence has 6 to 59 words
    with in_case("where some lengths have no sentence,"):
        require_close("the excess", attempt(wrong, has, gaps), solutions.excess_errors(wrong, has, gaps))
