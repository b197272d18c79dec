"""Lesson 27: the score function's gradient, advantages in groups, the clipped slope, and a preference's backward."""

from typing import Any

import numpy as np

from minitransformer.gradcheck import numerical_gradient
from minitransformer.ops import log_probs_backward, log_probs_forward
from minitransformer.training import objectives

from ..checks import in_case, require, require_array, require_close, require_none_of, require_precision
from ..exercise import Attempt, exercise
from . import mistakes

# --- The score function -----------------------------------------------------------------------------------------


def _score_function_gradient(logits: Any, ids: Any, counted: Any, rewards: Any) -> np.ndarray:
    """The package's: `log_probs_backward` of the rewards."""
    _, cache = log_probs_forward(logits, ids)
    return log_probs_backward(rewards[:, None] * counted / len(logits), cache)


def _expected(logits: Any, ids: Any, counted: Any, rewards: Any) -> float:
    """Return the objective: the mean over texts of reward · log π."""
    log_probs, _ = log_probs_forward(logits, ids)
    return float((rewards * (log_probs * counted).sum(axis=1)).mean())


@exercise(answer=_score_function_gradient)
def score_function_gradient(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    B, T, V = 4, 4, 6  # B = T: then an array of the texts broadcasts along positions too
    logits, ids = rng.standard_normal((B, T, V)), rng.integers(V, size=(B, T))
    ids[0] = logits[0].argmin(axis=-1)
    rewards, whole = np.array([1.0, -0.5, 2.0, 0.25]), np.ones((B, T), bool)
    found = require_array(attempt(logits, ids, whole, rewards))
    require(
        found.shape == logits.shape,
        f"it returns shape {found.shape}, and a gradient has its array's shape, {logits.shape}",
    )
    right = _score_function_gradient(logits, ids, whole, rewards)
    require_precision("dlogits", found, right)
    case = "where all tokens count dlogits"
    require_none_of(case, found, right, mistakes.score(logits, ids, rewards))
    factors = {
        "B: it is the mean over the texts": float(B),
        "1/T: the mean is over the texts alone, and a text's log π is the sum over its tokens": 1 / T,
        "1/V: the mean is over the texts alone, and not over the vocabulary": 1 / V,
    }
    require_close(case, found, right, factors=factors)
    _judge_ends(attempt, logits, ids, rewards)
    for shape in ((3, 5, 4), (2, 1, 7), (1, 3, 2)):
        B, T, V = shape
        z, y, r = rng.standard_normal(shape), rng.integers(V, size=(B, T)), rng.standard_normal(B)
        given = require_array(attempt(z, y, np.ones((B, T), bool), r))
        by_length = {"B/T: the mean is over the B texts, and it is divided by T": B / T}
        name = f"for {B} texts of {T} tokens from {V} dlogits"
        require_close(name, given, _score_function_gradient(z, y, np.ones((B, T), bool), r), factors=by_length)
    apart = logits + np.array([4000.0, 0, -4000, 1000])[:, None]
    given = attempt(apart, ids, whole, rewards)
    require(
        np.isfinite(given).all() or np.isfinite(attempt(logits + 4000, ids, whole, rewards)).all(),
        "with 4000 on all logits it holds NaN: take each row's maximum off before exp",
    )
    require(
        np.isfinite(given).all() and np.allclose(given, right),
        "with 4000 on the logits of some positions alone it changes, or is NaN: subtract each row's own maximum",
    )
    numbers = np.array([1, 0, 2, 0])
    require_close(
        "with rewards that are integers dlogits",
        require_array(attempt(logits, ids, whole, numbers)),
        _score_function_gradient(logits, ids, whole, numbers),
    )
    counted = rng.random((4, 4)) < 0.7
    slope = numerical_gradient(lambda z: _expected(z, ids, counted, rewards), logits)
    given = require_array(attempt(logits, ids, counted, rewards))
    require_close("against central differences of the mean of reward · log π, dlogits", given, slope, tolerance=1e-7)


def _judge_ends(attempt: Attempt, logits: np.ndarray, ids: np.ndarray, rewards: np.ndarray) -> None:
    """Raise `Wrong` unless tokens after a text's end have no part."""
    B, T, V = logits.shape
    lengths = np.array([4, 2, 3, 1])
    counted = np.arange(T) < lengths[:, None]
    found = require_array(attempt(logits, ids, counted, rewards))
    right = _score_function_gradient(logits, ids, counted, rewards)
    p, onehot = mistakes.softmax(logits), np.eye(V)[ids]
    weight, there = rewards[:, None, None] / B, counted[:, :, None]
    ends = (np.arange(T) == lengths[:, None] - 1)[:, :, None]
    case = f"with texts of {', '.join(map(str, lengths))} tokens dlogits"
    wrong = {
        "counts what stands after a text's end: `counted` is False there": weight * (onehot - p),
        "counts what stands after a text's end, and not the text: `counted` is True for a token":
            weight * ~there * (onehot - p),
        "has minus the softmax after a text's end: it is 0 there, one-hot and softmax": weight * (onehot * there - p),
        "has the one-hot after a text's end: it is 0 there, one-hot and softmax": weight * (onehot - p * there),
        "counts the last token of each text alone": weight * ends * (onehot - p),
        "leaves out the last token of each text: it was drawn too": weight * (there & ~ends) * (onehot - p),
        "counts as many tokens of every text as the shortest has": weight * (np.arange(T) < 1)[:, None] * (onehot - p),
    }  # fmt: skip
    require_none_of(case, found, right, wrong)
    require_close(case, found, right)


# --- Advantages -------------------------------------------------------------------------------------------------


@exercise(answer=objectives.group_advantages)
def group_advantages(attempt: Attempt) -> None:
    rng = np.random.default_rng(1)
    G = 4  # as many groups: then an array of the groups broadcasts along the texts too
    rewards = rng.standard_normal((G, G)) * np.array([[1.0], [3], [0.5], [2]]) + np.array([[0.0], [5], [-2], [1]])
    plain, scaled = (require_array(attempt(rewards, divided)) for divided in (False, True))
    for found in (plain, scaled):
        require(found.shape == (G, G), f"it returns shape {found.shape}: a number for each text, {rewards.shape}")
    right_plain, right_scaled = (objectives.group_advantages(rewards, divided) for divided in (False, True))
    require(
        not (np.allclose(plain, right_scaled) and np.allclose(scaled, right_plain)),
        "it divides where divided is False, and does not where it is True",
    )
    require(
        np.array_equal(attempt(rewards), scaled), "without `divided` it is not what divided=True gives, its default"
    )
    std = rewards.std(axis=1, keepdims=True)
    for more in (1e-8, 1e-6, 1e-4):  # usual ones
        require(
            not np.allclose(scaled, right_scaled * std / (std + more), rtol=1e-12, atol=0),
            f"with divided=True it adds {more:g} to the deviation, and nothing is to be added: look for equal rewards",
        )
    require_precision("with divided=False it", plain, right_plain)
    require_precision("with divided=True it", scaled, right_scaled)
    case = "with divided=False it"
    require_none_of(case, plain, right_plain, mistakes.plain(rewards, right_scaled))
    factors = {
        "(G − 1)/G: a text's own reward is in its baseline, which is the mean of the others": (G - 1) / G,
        "((G − 1)/G)²: r minus the mean of the others is r minus the mean, times G/(G − 1)": ((G - 1) / G) ** 2,
        "G − 1: the others are added, and their mean is wanted": G - 1.0,
    }
    require_close(case, plain, right_plain, factors=factors)
    case = "with divided=True it"
    require_none_of(case, scaled, right_scaled, mistakes.scaled(rewards, right_plain))
    factors = {
        "√((G − 1)/G): the deviation is divided by G, not by G − 1": ((G - 1) / G) ** 0.5,
        "G/(G − 1): with divided=True the mean of all of the group is subtracted": G / (G - 1),
        "1/√G: the squares are added, and their mean is wanted": G**-0.5,
    }
    require_close(case, scaled, right_scaled, factors=factors)
    _judge_groups(attempt)


def _judge_groups(attempt: Attempt) -> None:
    """Raise `Wrong` unless groups of other sizes, equal rewards and integers are right."""
    rng = np.random.default_rng(2)
    for groups, size in ((3, 5), (1, 2), (6, 3)):
        rewards = 4 + rng.standard_normal((groups, size))
        for divided in (False, True):
            given = require_array(attempt(rewards, divided))
            name = f"for {groups} groups of {size} and divided={divided} it"
            require_close(name, given, objectives.group_advantages(rewards, divided))
    equal = np.array([[3.0, 3, 3], [0, 0, 0], [1, 2, 6]])
    right = objectives.group_advantages(equal)
    given = require_array(attempt(equal, True))
    require(np.isfinite(given).all(), "a group of equal rewards gives NaN: 0/0? Its advantages are 0")
    require(not given[:2].any(), f"for three rewards of 3 the advantages are {given[0, 0]:.4g}, and must be 0")
    require(
        given[2].any(),
        "where one group's rewards are all equal the advantages of another one are 0 too: each by itself",
    )
    require_close("beside groups of equal rewards, it", given, right)
    tenths = np.full((2, 3), 0.1)  # their mean is not 0.1
    given = require_array(attempt(tenths, True))
    require(
        not given.any(),
        f"for three rewards of 0.1 the advantages are {np.abs(given).max():.3g}, and must be 0: their mean is rounded, "
        "so their deviation is no exact 0",
    )
    small = 1e-6 * np.array([[1.0, 2, 4]])
    given = require_array(attempt(small, True))
    require_precision("for rewards of some millionths it", given, objectives.group_advantages(small))
    require_close("for rewards of some millionths, which differ, it", given, objectives.group_advantages(small))
    numbers = np.array([[0, 1, 1, 0], [3, 1, 0, 0]])
    for divided in (False, True):
        given = require_array(
            attempt(numbers, divided), f"for rewards that are integers and divided={divided} what it returns"
        )
        require_close(
            f"for rewards that are integers and divided={divided} it",
            given,
            objectives.group_advantages(numbers, divided),
        )


# --- The clipped slope ------------------------------------------------------------------------------------------


def _clipped_slope(log_probs: Any, old: Any, advantages: Any, counted: Any, clip: float) -> np.ndarray:
    """The package's, whose loss is minus the objective."""
    _, cache = objectives.reward_loss_forward(log_probs, old, advantages, counted, clip=clip)
    return -objectives.reward_loss_backward(1.0, cache)


@exercise(answer=_clipped_slope)
def clipped_slope(attempt: Attempt) -> None:
    rng = np.random.default_rng(3)
    B, T, clip = 4, 4, 0.2  # B = T: then an array of the texts broadcasts along positions too
    old, whole = -1 - rng.random((B, T)), np.ones((B, T), bool)
    advantages = np.array([1.0, -1.5, 0.5, -0.75])
    A, N = advantages[:, None], B * T

    def slope(moved: Any, counted: Any = whole, clip: float = clip, a: Any = advantages) -> np.ndarray:
        found = require_array(attempt(old + moved, old, a, counted, clip))
        require(found.shape == (B, T), f"it returns shape {found.shape}: a slope for each token, {(B, T)}")
        return found

    still = slope(np.zeros((B, T)))
    require(
        still.any(),
        "where the policy has not moved the slope is 0 everywhere: with a ratio of 1 both parts of the minimum are "
        "equal, and nothing is held (≤, not <)",
    )
    case = "where the policy has not moved, which gives A / N, the slope"
    sums = {
        "N: it is the mean over the tokens": float(N),
        "T: the mean is over the N tokens, not over the B texts": float(T),
        "½, as if both parts of the minimum had half of it": 0.5,
        "clip": clip,
    }
    wrong = {
        "has the wrong sign: the objective grows where a good text becomes more probable": -A / N + 0 * old,
        "lacks the advantages": 1 / N + 0 * old,
        "has the advantages without their signs": np.abs(A) / N + 0 * old,
        "has the signs of the advantages alone": np.sign(A) / N + 0 * old,
        "gives the advantage of text t to position t: advantages[:, None] belongs to the texts": advantages / N + 0 * A,
        "leaves out texts with an advantage below 0: they are to become less probable": np.maximum(A, 0) / N + 0 * old,
        "leaves out texts with an advantage above 0": np.minimum(A, 0) / N + 0 * old,
        "has the squares of the advantages": A**2 / N + 0 * old,
        "cuts advantages off at 1 + clip": np.clip(A, -1 - clip, 1 + clip) / N + 0 * old,
        "has π itself as a factor: dρ = ρ dlog π, and ρ is 1 here": np.exp(old) * A / N,
        "is divided by π: it is by log π, and dρ = ρ dlog π": A / N / np.exp(old),
    }
    require_none_of(case, still, A / N + 0 * old, wrong)
    require_close(case, still, A / N + 0 * old, factors=sums)
    near = rng.uniform(-0.04, 0.04, (B, T))
    ratio, found = np.exp(near), slope(near)
    case = "where all ratios are within the clip, the slope"
    wrong = {
        "lacks the ratio: the slope of ρ A by log π is ρ A": A / N + 0 * ratio,
        "has the ratio upside down: it is π / π_old": A / ratio / N,
        "has the square of the ratio": ratio**2 * A / N,
        "has log π − log π_old for the ratio: exp is missing": near * A / N,
        "has 1 + log π − log π_old for the ratio, which is near it: exp is missing": (1 + near) * A / N,
        "has the ratio of the logarithms, and must be that of the probabilities": (old + near) / old * A / N,
        "has one ratio for a whole text: each token has its own": np.exp(near.sum(axis=1, keepdims=True)) * A / N
            + 0 * ratio,
        "has the mean ratio of each text: each token has its own": ratio.mean(axis=1, keepdims=True) * A / N
            + 0 * ratio,
        "has the ratio less 1": (ratio - 1) * A / N,
    }  # fmt: skip
    require_none_of(case, found, ratio * A / N, wrong)
    require_precision(case, found, ratio * A / N)
    require_close(case, found, ratio * A / N)
    _judge_corners(slope, A, N, clip)
    _judge_padding(slope, rng, advantages, clip)
    for shape, limit in (((3, 5), 0.1), ((2, 1), 0.5), ((1, 6), 0.3)):
        moved, a = rng.uniform(-0.8, 0.8, shape), rng.standard_normal(shape[0])
        before, there = -2 - rng.random(shape), rng.random(shape) < 0.8
        there[0, 0] = True
        given = require_array(attempt(before + moved, before, a, there, limit))
        name = f"for {shape[0]} texts of {shape[1]} tokens and clip {limit:g} the slope"
        require_close(name, given, _clipped_slope(before + moved, before, a, there, limit))


def _judge_corners(slope: Any, A: np.ndarray, N: int, clip: float) -> None:
    """Raise `Wrong` unless the slope is 0 where the clamp holds, and nowhere else: each text has all four ratios."""
    moved = np.log(np.array([[1.7, 0.5, 1.05, 0.96]])) + 0 * A
    ratio, found = np.exp(moved), slope(moved)
    free = np.where(A > 0, ratio < 1 + clip, ratio > 1 - clip)
    right = np.where(free, ratio * A, 0) / N
    inside = np.abs(ratio - 1) < clip
    clamped = np.clip(ratio, 1 - clip, 1 + clip)
    case = f"with ratios of 1.7, 0.5, 1.05 and 0.96 and clip {clip:g} the slope"
    upper, lower = ratio < 1 + clip, ratio > 1 - clip
    wrong = {
        "is never 0: nothing is clipped": ratio * A / N,
        "is 0 wherever the ratio is outside of the clip: where a token has moved the wrong way, the minimum is ρ A": (
            np.where(inside, ratio * A, 0) / N
        ),
        "is 0 at the wrong side of the clip: it is as if the larger of the two counted, and the smaller does": (
            np.where(np.where(A > 0, lower, upper), ratio * A, 0) / N
        ),
        "is 0 above 1 + clip, for every advantage: below 0 it is the other side": np.where(upper, ratio * A, 0) / N,
        "is 0 below 1 − clip, for every advantage: above 0 it is the other side": np.where(lower, ratio * A, 0) / N,
        "is the clamped ratio times A where the clamp holds: what is clamped does not move, and has no slope": (
            clamped * A / N
        ),
        "is the value of the minimum, and must be its slope: 0 where the clamp holds": (
            np.minimum(ratio * A, clamped * A) / N
        ),
        "is the value of the maximum": np.maximum(ratio * A, clamped * A) / N,
        "is A where the clamp holds: there it is 0": np.where(free, ratio * A, A) / N,
        "is 0 for all tokens of a text in which one is held: each by itself": (
            np.where(free.all(axis=1, keepdims=True), ratio * A, 0) / N
        ),
        "is a mean over the tokens that are not held: N counts all": np.where(free, ratio * A, 0) / free.sum(),
    }
    require_none_of(case, found, right, wrong)
    _judge_quadrants(found, right, ratio, A, clip)
    require_close(case, found, right)
    _judge_width(slope, A, N, clip)


def _judge_width(slope: Any, A: np.ndarray, N: int, clip: float) -> None:
    """Raise `Wrong` unless the clamp begins at 1 − clip and 1 + clip."""
    moved = np.log(np.array([[1 + 0.95 * clip, 1 + 1.05 * clip, 1 - 0.95 * clip, 1 - 1.05 * clip]])) + 0 * A
    ratio, found = np.exp(moved), slope(moved)
    right = np.where(np.where(A > 0, ratio < 1 + clip, ratio > 1 - clip), ratio * A, 0) / N

    def within(low: float, high: float) -> np.ndarray:
        return np.where(np.where(A > 0, ratio < high, ratio > low), ratio * A, 0) / N

    case = f"near the edges of the clip, 1 − {clip:g} and 1 + {clip:g}, the slope"
    wrong = {
        "has edges at ±clip of log ρ: the ratio is clamped, not its logarithm": within(np.exp(-clip), np.exp(clip)),
        "has the lower edge at 1/(1 + clip): it is 1 − clip": within(1 / (1 + clip), 1 + clip),
        "has the upper edge at 1/(1 − clip): it is 1 + clip": within(1 - clip, 1 / (1 - clip)),
        "is never 0 there: are the edges at 1 ± 2 clip, or farther out?": within(0.0, 9.0),
        "is 0 already before the edges: are they at 1 ± clip/2, or nearer to 1?": within(1.0, 1.0),
    }
    require_none_of(case, found, right, wrong)
    require_close(case, found, right)


def _judge_quadrants(found: np.ndarray, right: np.ndarray, ratio: np.ndarray, A: np.ndarray, clip: float) -> None:
    """Raise `Wrong` for the corner in which the slope is wrong, if it is right in the others."""
    places = {
        "A > 0 and ρ > 1 + clip: the text is good, and has gained enough; it is 0 there": (A > 0) & (ratio > 1 + clip),
        "A > 0 and ρ < 1 − clip: a good text has lost, and is pulled back; it is ρ A / N": (A > 0) & (ratio < 1 - clip),
        "A < 0 and ρ > 1 + clip: a bad text has gained, and is pushed back; it is ρ A / N": (
            (A < 0) & (ratio > 1 + clip)
        ),
        "A < 0 and ρ < 1 − clip: the text is bad, and has lost enough; it is 0 there": (A < 0) & (ratio < 1 - clip),
    }
    wrong = [place for place, where in places.items() if not np.allclose(found[where], right[where])]
    require(len(wrong) != 1, f"the slope is wrong where {wrong[0] if wrong else ''}")


def _judge_padding(slope: Any, rng: np.random.Generator, advantages: np.ndarray, clip: float) -> None:
    """Raise `Wrong` unless tokens after a text's end have no part, whatever stands there."""
    B = T = len(advantages)
    A, lengths = advantages[:, None], np.array([4, 2, 3, 1])
    counted, moved = np.arange(T) < lengths[:, None], rng.uniform(-0.1, 0.1, (B, T))
    ratio, N = np.exp(moved), counted.sum()
    right = np.where(counted, ratio * A, 0) / N
    case = f"with texts of {', '.join(map(str, lengths))} tokens the slope"
    wrong = {
        "counts what stands after a text's end: `counted` is False there": ratio * A / (B * T),
        "is not 0 after a text's end: `counted` is False there": ratio * A / N,
        "counts what stands after a text's end, and not the text": np.where(counted, 0, ratio * A) / N,
        "is a mean over all places: N is the number of tokens that count": right * N / (B * T),
        "is a mean over the tokens of each text, then over the texts: here each token counts the same": (
            right * N / lengths[:, None] / B
        ),
        "counts the last token of each text alone": right * (np.arange(T) == lengths[:, None] - 1),
    }
    found = slope(moved, counted)
    require_none_of(case, found, right, wrong)
    require_close(case, found, right)
    anything = np.where(counted, moved, np.nan)
    given = slope(anything, counted)
    require(
        np.isfinite(given).all(),
        "where NaN stands after a text's end the slope is NaN: anything may stand there, and NaN · 0 is NaN (np.where)",
    )
    require_close("where NaN stands after a text's end, the slope", given, right)
    far = np.where(counted, moved, 1e4)
    require_close("where large numbers stand after a text's end, the slope", slope(far, counted), right)


# --- Preferences ------------------------------------------------------------------------------------------------


def _preference_loss(log_probs: Any, reference: Any, counted: Any, beta: float) -> float:
    return float(objectives.preference_loss_forward(log_probs, reference, counted, beta)[0])


def _preference_backward(dloss: float, log_probs: Any, reference: Any, counted: Any, beta: float) -> np.ndarray:
    """The package's, forward and backward."""
    _, cache = objectives.preference_loss_forward(log_probs, reference, counted, beta)
    return objectives.preference_loss_backward(dloss, cache)


@exercise(answer=_preference_backward)
def preference_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(9)
    P, T, beta = 3, 6, 0.4  # 2P = T: then an array of the texts broadcasts along positions too
    log_probs, reference = -rng.exponential(1.0, (2, 2 * P, T))
    whole = np.ones((2 * P, T), bool)

    def found(log_probs: Any = log_probs, counted: Any = whole, beta: float = beta, dloss: float = 1.0) -> np.ndarray:
        result = require_array(attempt(dloss, log_probs, reference, counted, beta))
        require(result.shape == (2 * P, T), f"it returns shape {result.shape}: a slope for each token, {(2 * P, T)}")
        return result

    start = found(log_probs=reference)
    up = np.repeat([-1.0, 1.0], P)[:, None] + np.zeros(T)
    right = beta / 2 / P * up
    case = "where the policy is the reference, and σ(−margin) is ½, dlog_probs"
    wrong = {
        "has the wrong sign: the loss falls where a better text becomes more probable": -right,
        "pushes both texts of a pair up: the worse one goes down": -np.abs(right),
        "pushes both texts of a pair down: the better one goes up": np.abs(right),
        "is 0 for the worse texts: the margin falls with theirs": np.minimum(right, 0),
        "is 0 for the better texts: the margin grows with theirs": np.maximum(right, 0),
        "has better and worse texts in turn: the first half are better, the second worse": (
            beta / 2 / P * np.tile([-1.0, 1.0], P)[:, None] + np.zeros(T)
        ),
        "changes its sign along the positions: the halves are those of the texts": beta / 2 / P * up.T,
        "has its sign in the last texts alone": beta / 2 / P * np.where(np.arange(2 * P) == 2 * P - 1, 1, -1)[:, None]
            + np.zeros(T),
        "is that of the first token alone: each token of a text has the same": right * (np.arange(T) == 0),
        "is that of the last token alone: each token of a text has the same": right * (np.arange(T) == T - 1),
    }  # fmt: skip
    require_none_of(case, start, right, wrong)
    factors = {
        "1/β: the margin is β times a difference, and so is its slope": 1 / beta,
        "β: it stands there twice": beta,
        "1/β²: the margin is β times a difference": beta**-2,
        "P: it is the mean over the pairs": float(P),
        "½: the mean is over the P pairs, not over the 2P texts; or is it σ (1 − σ), the slope of σ?": 0.5,
        "2: σ(0) is ½": 2.0,
        "1/T: the mean is over the pairs alone": 1 / T,
        "1/P: it is divided by P twice": 1 / P,
    }
    require_close(case, start, right, factors=factors)
    _judge_margin(found, log_probs, reference, beta)
    _judge_texts(found, attempt, rng, log_probs, reference, beta)
    for pairs, length, b in ((1, 4, 0.1), (4, 2, 1.0), (2, 5, 2.0)):
        shape = (2 * pairs, length)
        mine, theirs, counted = -rng.exponential(1.0, shape), -rng.exponential(1.0, shape), rng.random(shape) < 0.8
        slope = numerical_gradient(lambda x, r=theirs, c=counted, b=b: _preference_loss(x, r, c, b), mine)
        name = f"against central differences, for {pairs} pairs of {length} tokens and β = {b:g}, dlog_probs"
        require_close(name, require_array(attempt(1.0, mine, theirs, counted, b)), slope, tolerance=1e-7)


def _judge_margin(found: Any, log_probs: np.ndarray, reference: np.ndarray, beta: float) -> None:
    """Raise `Wrong` unless the slope has the right margin and its sigmoid."""
    right = _preference_backward(1.0, log_probs, reference, np.ones(log_probs.shape, bool), beta)
    given, case = found(), "where policy and reference differ, dlog_probs"
    require_none_of(case, given, right, mistakes.preferences(log_probs, reference, beta))
    require_precision(case, given, right)
    require_close(case, given, right)


def _judge_texts(
    found: Any, attempt: Attempt, rng: np.random.Generator, log_probs: np.ndarray, reference: np.ndarray, beta: float
) -> None:
    """Raise `Wrong` unless padding, dloss and large margins are right."""
    size, T = log_probs.shape
    counted = np.arange(T) < np.array([6, 2, 3, 1, 4, 5])[:, None]
    right = _preference_backward(1.0, log_probs, reference, counted, beta)
    case = "with texts of 6, 2, 3, 1, 4 and 5 tokens dlog_probs"
    all_of_it = _preference_backward(1.0, log_probs, reference, counted | True, beta)
    wrong = {
        "counts what stands after a text's end, in the margin and in the slope": all_of_it,
        "counts what stands after a text's end in the margin: `counted` is False there": all_of_it * counted,
        "is not 0 after a text's end: `counted` is False there": right[:, :1] + 0 * right,
        "is not 0 after a text's end, and 0 before it": (right[:, :1] + 0 * right) * ~counted,
    }
    given = found(counted=counted)
    require_none_of(case, given, right, wrong)
    require_close(case, given, right)
    given = found(log_probs=np.where(counted, log_probs, np.nan), counted=counted)
    require(
        np.isfinite(given).all(),
        "where NaN stands after a text's end dlog_probs is NaN: anything may stand there, NaN · 0 is NaN (np.where)",
    )
    require_close("where NaN stands after a text's end, dlog_probs", given, right)
    scaled = found(counted=counted, dloss=-2.5)
    require(not np.allclose(scaled, right), "dloss has no effect: it multiplies the whole gradient")
    require(not np.allclose(scaled, 6.25 * right), "dloss is squared: it multiplies the gradient once")
    require(not np.allclose(scaled, 2.5 * right), "the sign of dloss is lost: it multiplies the gradient as it is")
    require_close("with dloss = −2.5 dlog_probs", scaled, -2.5 * right)
    with in_case("with margins of thousands"):
        far = log_probs + 1e4 * rng.choice([-1.0, 1.0], (size, 1))
        given = found(log_probs=far)
        require(np.isfinite(given).all(), "dlog_probs holds NaN: inf/inf? Write σ(−m) as exp(−log(1 + e^m)), logaddexp")
        require_close("dlog_probs", given, _preference_backward(1.0, far, reference, counted | True, beta))
