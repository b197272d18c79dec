"""Lesson 27: wrong answers by the clause that names the mistake, for `require_none_of`."""

from typing import Any

import numpy as np


def softmax(x: np.ndarray, axis: Any = -1) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def score(logits: np.ndarray, ids: np.ndarray, rewards: np.ndarray) -> dict[str, np.ndarray]:
    """Return wrong gradients of the score function, where all tokens count."""
    B, T, V = logits.shape
    p, onehot = softmax(logits), np.eye(V)[ids]
    score, own = onehot - p, (p * onehot).sum(axis=-1, keepdims=True)
    first, last = np.eye(T)[0][:, None], np.eye(T)[-1][:, None]
    togo = np.arange(T, 0, -1)[:, None]

    def with_rewards(values: np.ndarray) -> np.ndarray:
        return values[:, None, None] / B * score

    weight = rewards[:, None, None] / B
    centred = rewards - rewards.mean()
    others = {name: onehot - other for name, other in {
        "over the positions: it is over the tokens of the vocabulary, axis=-1": softmax(logits, 1),
        "over the texts: it is over the tokens of the vocabulary, axis=-1": softmax(logits, 0),
        "over all numbers at once: each position has its own, axis=-1": softmax(logits, (0, 1, 2)),
    }.items()}  # fmt: skip
    return {
        "has the wrong sign: it is the gradient of the reward, which is to grow, and not of a loss": -weight * score,
        "lacks the one-hot of the drawn tokens: the gradient of log softmax is one-hot − softmax": -weight * p,
        "lacks the softmax: the gradient of log softmax is one-hot − softmax": weight * onehot,
        "has the softmax added to the one-hot, and it is subtracted": weight * (onehot + p),
        "has 1/V in place of the softmax": weight * (onehot - 1 / V),
        "is that of each token's π, and must be that of log π: a factor π is too much": weight * score * own,
        "has each text's probability as a factor: the texts are drawn, so probable ones come more often already":
            weight * score * own.prod(axis=1, keepdims=True),
        "is divided by the probability of each token: the gradient of log π is one-hot − softmax": weight * score / own,
        "holds the log-probabilities themselves, and not their gradient": weight * np.log(p),
        "is 0 but at the drawn tokens: a token that becomes more probable makes all others less so":
            weight * onehot * score,
        "does not depend on the rewards: each text's gradient is multiplied by its own": score / B,
        "has the squares of the rewards": with_rewards(rewards**2),
        "has the rewards without their signs: a text with a reward below 0 is to become less probable":
            with_rewards(np.abs(rewards)),
        "has the signs of the rewards alone": with_rewards(np.sign(rewards)),
        "has exp(reward) for the reward": with_rewards(np.exp(rewards)),
        "leaves out the texts whose reward is below 0: they are to become less probable":
            with_rewards(np.maximum(rewards, 0)),
        "leaves out the texts whose reward is above 0": with_rewards(np.minimum(rewards, 0)),
        "has the mean of all rewards at every text: each text has its own": with_rewards(0 * rewards + rewards.mean()),
        "has the sum of all rewards at every text: each text has its own": with_rewards(0 * rewards + rewards.sum()),
        "has the mean reward subtracted: a baseline comes later in the lesson": with_rewards(centred),
        "has the rewards divided by their deviation: they count as they are": with_rewards(rewards / rewards.std()),
        "has advantages in place of the rewards: here they count as they are": with_rewards(centred / rewards.std()),
        "gives the reward of text t to position t: rewards[:, None] belongs to the texts": rewards[:, None] / B * score,
        "gives each text the reward of the text before it": with_rewards(np.roll(rewards, 1)),
        "has the reward at the last token alone: it counts for every token of its text": weight * last * score,
        "has the reward at the first token alone: it counts for every token of its text": weight * first * score,
        "counts the reward once for each token that is still to come": weight * togo * score,
        "counts the reward once for each token so far: log π is the plain sum over the tokens":
            weight * togo[::-1] * score,
        "has other factors at later tokens, powers of 0.9: nothing is discounted here":
            weight * 0.9 ** np.arange(T)[:, None] * score,
        "has a sigmoid for the softmax": weight * (onehot - 1 / (1 + np.exp(-logits))),
        "has the logits themselves in place of the softmax": weight * (onehot - logits),
        "has a softmax without exp": weight * (onehot - logits / logits.sum(axis=-1, keepdims=True)),
        "has the most probable token in place of the drawn one": weight * (np.eye(V)[logits.argmax(axis=-1)] - p),
        "has the one-hot one token too late: ids are columns as they are": weight * (np.roll(onehot, 1, axis=-1) - p),
        "has the one-hot one token too early: ids are columns as they are": weight * (np.roll(onehot, -1, axis=-1) - p),
        "has the one-hot of the position before: the logits at t are those of the token at t":
            weight * (np.roll(onehot, 1, axis=1) - p),
        "has the logits divided by 2, a temperature that nobody asked for": weight * (onehot - softmax(logits / 2)),
    } | {f"has a softmax {axis}": weight * other for axis, other in others.items()}  # fmt: skip


def plain(r: np.ndarray, scaled: np.ndarray) -> dict[str, np.ndarray]:
    """Return wrong advantages that are not divided; scaled: those that are."""
    G = r.shape[1]
    total, mean = r.sum(axis=1, keepdims=True), r.mean(axis=1, keepdims=True)
    right = r - (total - r) / (G - 1)
    return {
        "divides by the deviation: that is for divided=True": scaled,
        "has the wrong sign: a text that is better than the others has an advantage above 0": -right,
        "returns the rewards as they are": r,
        "returns the baselines alone, the means of the others": (total - r) / (G - 1),
        "subtracts the sum of the others, and must subtract their mean": r - (total - r),
        "divides the sum of the others by G: there are G − 1 others": r - (total - r) / G,
        "divides the sum of all by G − 1: a text's own reward is not in the sum": r - total / (G - 1),
        "subtracts means over the groups: a text is compared with the others of its own group, a row": (
            r - r.mean(axis=0, keepdims=True)
        ),
        "leaves a text out of the mean over all groups' texts at its place: its group is its row": (
            r - (r.sum(axis=0, keepdims=True) - r) / (G - 1)
        ),
        "subtracts the mean of all rewards: each group has its own": r - r.mean(),
        "subtracts the mean of all other texts: only those of its own group": r - (r.sum() - r) / (r.size - 1),
        "subtracts the mean of group t from place t of every group: is keepdims=True missing?": r - r.mean(axis=1),
        "subtracts the group's median": r - np.median(r, axis=1, keepdims=True),
        "subtracts the group's best reward": r - r.max(axis=1, keepdims=True),
        "subtracts the group's worst reward": r - r.min(axis=1, keepdims=True),
        "subtracts the reward of the text before": r - np.roll(r, 1, axis=1),
        "subtracts the best of the others, and must subtract their mean": r - _best_of_others(r),
        "has no sign: a text that is worse than the others has an advantage below 0": np.abs(right),
        "is 0 for texts that are worse than the others: they are to become less probable": np.maximum(right, 0),
        "holds signs alone: how much better a text is counts": np.sign(right),
        "divides by the mean of the others, and must subtract it": r / ((total - r) / (G - 1)),
        "subtracts half of the mean": r - mean / 2,
    }


def _best_of_others(r: np.ndarray) -> np.ndarray:
    G = r.shape[1]
    return np.stack([np.delete(r, i, axis=1).max(axis=1) for i in range(G)], axis=1)


def scaled(r: np.ndarray, plain: np.ndarray) -> dict[str, np.ndarray]:
    """Return wrong advantages that are divided; plain: those that are not."""
    mean, std = r.mean(axis=1, keepdims=True), r.std(axis=1, keepdims=True)
    centred = r - mean
    others = np.stack([np.delete(r, i, axis=1).std(axis=1) for i in range(r.shape[1])], axis=1)
    ranks = r.argsort(axis=1).argsort(axis=1).astype(float)
    return {
        "does not divide: it is what divided=False gives": plain,
        "subtracts the mean, and does not divide by the deviation": centred,
        "has the wrong sign: a text that is better than the others has an advantage above 0": -centred / std,
        "divides by the variance, and must by its root": centred / std**2,
        "divides by the root of the deviation": centred / np.sqrt(std),
        "multiplies by the deviation, and must divide": centred * std,
        "divides without subtracting the mean": r / std,
        "divides before it subtracts the mean": r / std - mean,
        "divides by the group's mean": centred / mean,
        "divides by the distance from the worst to the best": centred / np.ptp(r, axis=1, keepdims=True),
        "divides by the largest distance from the mean": centred / np.abs(centred).max(axis=1, keepdims=True),
        "divides by the mean distance from the mean: it is the root of the mean square": (
            centred / np.abs(centred).mean(axis=1, keepdims=True)
        ),
        "divides by deviations over the groups, and must by each group's own": centred / r.std(axis=0, keepdims=True),
        "divides by the deviation of all rewards, and must by each group's own": centred / r.std(),
        "divides by the mean of all groups' deviations": centred / std.mean(),
        "divides place t of every group by the deviation of group t: is keepdims=True missing?": centred / std[:, 0],
        "takes mean and deviation over all rewards: each group has its own": (r - r.mean()) / r.std(),
        "takes mean and deviation over the groups: a group is a row": (r - r.mean(axis=0)) / r.std(axis=0),
        "divides by the deviation of the others, and must by that of all of the group": centred / others,
        "subtracts the group's median, and must subtract the mean": (r - np.median(r, axis=1, keepdims=True)) / std,
        "divides by the root mean square of the rewards: subtract the mean first": (
            centred / np.sqrt((r**2).mean(axis=1, keepdims=True))
        ),
        "squares the advantages": centred * np.abs(centred) / std**2,
        "cuts advantages off at 1": np.clip(centred / std, -1, 1),
        "is 0 for texts that are worse than the mean: they are to become less probable": np.maximum(centred / std, 0),
        "has no sign: a text that is worse than the mean has an advantage below 0": np.abs(centred / std),
        "holds ranks: how much better a text is counts": (ranks - ranks.mean()) / ranks[0].std(),
        "is a softmax of the rewards": softmax(r),
        "stands in the order of the rewards, and must stand in that of the texts": np.sort(centred / std, axis=1),
    }


def preferences(log_probs: np.ndarray, reference: np.ndarray, beta: float) -> dict[str, np.ndarray]:
    """Return wrong gradients of a preference by log_probs, where all tokens count."""
    P, delta = len(log_probs) // 2, log_probs - reference
    sums, plain, theirs = delta.sum(axis=1), log_probs.sum(axis=1), reference.sum(axis=1)
    margin = beta * (sums[:P] - sums[P:])
    sigmoid = 1 / (1 + np.exp(margin))

    def whole(slopes: np.ndarray) -> np.ndarray:
        """The slopes of pairs at all tokens of their better texts, and minus these at those of the worse."""
        slopes = slopes / P if slopes.ndim == 2 else slopes[:, None] / P + np.zeros((P, delta.shape[1]))
        return np.concatenate([slopes, -slopes])

    def slopes(margins: np.ndarray) -> np.ndarray:
        """The gradient with other margins."""
        return whole(-beta / (1 + np.exp(margins)))

    return {
        "has σ(margin), and must have σ(−margin): a pair that is told apart already has a small slope": slopes(-margin),
        "lacks σ(−margin): it is as if all pairs had a margin of 0": slopes(0 * margin),
        "has −margin·σ in place of σ": whole(-beta * margin * sigmoid),
        "has σ (1 − σ), the slope of σ: that of −log σ(m) is −σ(−m)": whole(-beta * sigmoid * (1 - sigmoid) * 2),
        "does not have the reference: the margin is of log π − log π_ref": slopes(beta * (plain[:P] - plain[P:])),
        "has the reference added: the margin is of log π − log π_ref": slopes(
            beta * ((plain + theirs)[:P] - (plain + theirs)[P:])
        ),
        "has the margin of the reference alone": slopes(beta * (theirs[:P] - theirs[P:])),
        "has a margin without β": slopes(sums[:P] - sums[P:]),
        "has β² in the margin": slopes(beta * margin),
        "has a margin that is divided by β": slopes((sums[:P] - sums[P:]) / beta),
        "has the implicit rewards of a pair added, and must have their difference": slopes(
            beta * (sums[:P] + sums[P:])
        ),
        "has the margin's size, without its sign": slopes(np.abs(margin)),
        "has the implicit reward of the better text alone in its margin": slopes(beta * sums[:P]),
        "has the implicit reward of the worse text alone in its margin": slopes(-beta * sums[P:]),
        "has one margin for all pairs, their sum: each pair has its own": slopes(0 * margin + margin.sum()),
        "has one margin for all pairs, their mean: each pair has its own": slopes(0 * margin + margin.mean()),
        "compares each better text with the worse one of another pair": slopes(
            beta * (sums[:P] - np.roll(sums[P:], 1))
        ),
        "compares each better text with the worse ones in the reverse order": slopes(
            beta * (sums[:P] - sums[:P - 1:-1])
        ),
        "compares neighbours: the first half are the better texts, the second the worse, in the same order": slopes(
            beta * (sums[::2] - sums[1::2])
        ),
        "has a margin for each token: it is that of the whole texts, the sum": slopes(beta * (delta[:P] - delta[P:])),
        "has the means over the tokens in its margin: log π of a text is the sum": slopes(margin / delta.shape[1]),
        "has the first tokens alone in its margin": slopes(beta * (delta[:P, 0] - delta[P:, 0])),
        "has the last tokens alone in its margin": slopes(beta * (delta[:P, -1] - delta[P:, -1])),
        "has probabilities in its margin, and must have their logarithms": slopes(
            beta * (np.exp(plain - theirs)[:P] - np.exp(plain - theirs)[P:])
        ),
        "is 1 where the margin is below 0 and else 0: σ is smooth": whole(-beta * (margin < 0)),
        "is that of a square, (margin − 1)²: the loss is −log σ(margin)": whole(2 * beta * (margin - 1)),
        "has e^−margin for σ(−margin)": whole(-beta * np.exp(-margin)),
    }  # fmt: skip
