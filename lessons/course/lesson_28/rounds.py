"""Lesson 28: what likely mistakes make of a round of drafted tokens."""

from collections.abc import Callable
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Round = tuple[list[int], Floats, Floats, Floats]
"""The arguments of `accept`: k drafted tokens, p `(k + 1, V)`, q `(k, V)`, `k + 1` numbers."""

Mistakes = dict[str, list[int]]
"""The tokens that a mistake returns, by a description for the learner."""


def likely(drafted: list[int], p: Floats, q: Floats, numbers: Floats) -> Mistakes:
    """Return what likely mistakes return; a mistake that this round leaves no room for is not among them."""
    each = drafted, p, q, numbers
    n = _kept(drafted, lambda i: numbers[i] * q[i, drafted[i]] < p[i, drafted[i]])
    of_the_end = _after_all(*each) if n == len(drafted) else _after_a_refusal(*each, n)
    return of_the_end | _in_what_comes_back(*each, n) | _in_the_tests(*each)


def _kept(drafted: list[int], test: Callable[[int], bool]) -> int:
    """Return how many tokens pass a test before the first that does not."""
    return len(list(takewhile(test, range(len(drafted)))))


def _drawn(chances: Floats, number: float) -> int:
    return int(np.searchsorted(np.cumsum(chances), number, side="right"))


def _normal(chances: Floats) -> Floats:
    return chances / chances.sum()  # of nothing: NaN, as a learner gets it


def _ended(drafted: list[int], p: Floats, q: Floats, numbers: Floats, n: int) -> list[int]:
    """The tokens of a round of which n drafted ones are accepted, with its right end."""
    left = np.maximum(p[n] - q[n], 0) if n < len(drafted) else p[n]
    return [*drafted[:n], _drawn(_normal(left), numbers[-1])]


def _after_a_refusal(drafted: list[int], p: Floats, q: Floats, numbers: Floats, n: int) -> Mistakes:
    kept, last, (*_, new) = drafted[:n], numbers[-1], _ended(drafted, p, q, numbers, n)
    target, draft, token = p[n], q[n], drafted[n]
    left = np.maximum(target - draft, 0)
    others = np.where(np.arange(len(target)) == token, 0, target)
    passed = [t for i, t in enumerate(drafted) if i > n and numbers[i] * q[i, t] < p[i, t]]
    draws = {
        "p itself: a part of each token's p is kept already, so it is drawn from what is left, max(p − q, 0)": target,
        "max(p − q, 0) as it is: what is left must sum to 1 again": left,
        "max(q − p, 0), and it is what p has more than q": _normal(np.maximum(draft - target, 0)),
        "|p − q|, and it is what p has more than q, max(p − q, 0)": _normal(abs(target - draft)),
        "p without the refused token: of other tokens, too, a part is kept already": _normal(others),
        "max(p − q, 0) without its sum, but with that of p + q": left / (target + draft).sum(),
        "the draft's q again": draft,
        "the next position's p": p[n + 1],
        "the next position's p less this one's q: both are of one position": _normal(np.maximum(p[n + 1] - draft, 0)),
        "max(p − q, 0) · p: what is left is enough": _normal(left * target),
        "the squares of what is left": _normal(left**2),
    }
    found = {f"after a refusal it is drawn from {what}": [*kept, _drawn(of, last)] for what, of in draws.items()}
    return found | {
        "after a refusal it is the likeliest token of what is left: it is drawn": [*kept, int(left.argmax())],
        "after a refusal it is the large model's likeliest token: it is drawn, from what is left": [
            *kept, int(target.argmax())
        ],
        "the number that has refused draws the token, too, and it is above p / q: the last number is for that": [
            *kept, _drawn(_normal(left), numbers[n])
        ],
        "the refused token is kept, too": [*kept, token, new],
        "the refused token is kept, and none is drawn in its place": [*kept, token],
        "none is drawn in the place of the refused one": kept,
        "the round goes on after a refusal: the drafted tokens behind it follow on one that is not there": [
            *kept, new, *drafted[n + 1 :]
        ],
        "tokens behind the refused one are tested, too, and they follow on one that is not there": [
            *kept, *passed, new
        ],
    }  # fmt: skip


def _after_all(drafted: list[int], p: Floats, q: Floats, numbers: Floats) -> Mistakes:
    k, last = len(drafted), numbers[-1]
    new = _drawn(p[k], last)
    return {
        "all are accepted, and none is added: the large model has said what follows them, p[k]": drafted,
        "all are accepted, and the token after them is the likeliest: it is drawn": [*drafted, int(p[k].argmax())],
        "all are accepted, and one is drawn from the row before: after k tokens it is p[k]": [
            *drafted, _drawn(p[k - 1], last)
        ],
        "all are accepted, and one is drawn from the draft's q: the large model has p[k]": [
            *drafted, _drawn(q[k - 1], last) if k else new
        ],
        "all are accepted, and one is drawn from the first row of p": [*drafted, _drawn(p[0], last)],
        "all are accepted, and one is drawn with the first number, which is used already": [
            *drafted, _drawn(p[k], numbers[0])
        ],
        "all are accepted, and the last of them is replaced by the new one": [*drafted[:-1], new],
        "all are accepted, and two are added": [*drafted, new, new],
    }  # fmt: skip


def _in_what_comes_back(drafted: list[int], p: Floats, q: Floats, numbers: Floats, n: int) -> Mistakes:
    right = _ended(drafted, p, q, numbers, n)
    return {
        "only the number of accepted tokens comes back": [n],
        "only the token that was drawn comes back, without those that are kept": right[-1:],
        "only the first token comes back": right[:1],
        "the tokens are in the reverse order": right[::-1],
        "the drawn token is in front": [right[-1], *right[:-1]],
        "accepted tokens are drawn again, from the large model's p": [
            *(_drawn(row, numbers[-1]) for row in p[:n]), right[-1]
        ],
        "all drafted tokens come back, and the drawn one behind them": [*drafted, right[-1]],
    }  # fmt: skip


def _in_the_tests(drafted: list[int], p: Floats, q: Floats, numbers: Floats) -> Mistakes:
    target = np.array([p[i, token] for i, token in enumerate(drafted)])
    draft = np.array([q[i, token] for i, token in enumerate(drafted)])
    ratio = np.divide(target, draft)
    overlap = np.array([np.minimum(p[i], row).sum() for i, row in enumerate(q)])
    first = np.array([p[0, token] / q[0, token] for token in drafted])
    u, k = numbers[:-1], len(drafted)
    tests = {
        "p / q is upside down: the draft's favourites are refused more often": u * target < draft,
        "a token is accepted where its number is above p / q, and it is below": u > ratio,
        "a token is accepted where its number is below p: the draft has chosen it with q already, so it is p / q": (
            u < target
        ),
        "a token is accepted where its number is below q, whatever the large model says": u < draft,
        "a token is accepted only where p ≥ q: where p is less, with the chance p / q": ratio >= 1,
        "a token is accepted only if it is the large model's likeliest: that is greedy decoding": (
            p[:k].argmax(axis=-1) == drafted
        ),
        "a token is accepted with the chance 1/2, whatever p and q are": u < 0.5,
        "every token is refused": u < 0,
        "every token is accepted": u < 1,
        "all are tested with the first number: each has its own": numbers[0] < ratio,
        "all are tested with the last number, which is for the draw": numbers[-1] < ratio,
        "each is tested with the next one's number": numbers[1:] < ratio,
        "p is that of the next position: p[i] is what the large model gives to drafted[i]": (
            u * draft < [p[i + 1, token] for i, token in enumerate(drafted)]
        ),
        "all are tested with the first rows of p and q: each has its own": u < first,
        "p / q is multiplied along the draft: each token is tested by itself": u < np.cumprod(ratio),
        "p and q are compared at their largest, and not at the drafted token": (
            u * q.max(axis=-1) < p[:k].max(axis=-1)
        ),
        "the chance is the overlap of p and q, that is the mean over all tokens: for one it is p / q": u < overlap,
        "the chance is p / (p + q), and it is p / q": u < target / (target + draft),
        "the chance is 1 − |p − q|, and it is p / q": u < 1 - abs(target - draft),
        "the chance is the root of p / q, and it is p / q": u < np.sqrt(ratio),
        "the chance is the square of p / q, and it is p / q": u < ratio**2,
        "a token with p = 0 is accepted where its number is 0: that must be below p / q": u * draft <= target,
        "a token with p above q is refused: p / q above 1 is always accepted": (ratio <= 1) & (u < ratio),
    }
    return {
        mistake: _ended(drafted, p, q, numbers, _kept(drafted, lambda i, passed=passed: bool(passed[i])))
        for mistake, passed in tests.items()
    }
