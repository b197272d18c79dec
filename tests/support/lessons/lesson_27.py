"""Answers to lesson 27: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _softmax(x, axis=-1):
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def _token_by_token(logits, ids, counted, rewards):
    dlogits = np.zeros_like(logits)
    for b, t in np.argwhere(counted):
        z = logits[b, t] - np.logaddexp.reduce(logits[b, t])
        dlogits[b, t] = -np.exp(z) * rewards[b]
        dlogits[b, t, ids[b, t]] += rewards[b]
    return dlogits / len(logits)


def _by_leaving_out(rewards, divided=True):
    groups, G = rewards.shape
    answer = np.zeros((groups, G))
    for group, row in enumerate(rewards):
        for i in range(G):
            if not divided:
                answer[group, i] = row[i] - np.delete(row, i).mean()
            elif len(set(row.tolist())) > 1:
                answer[group, i] = (row[i] - row.mean()) / np.sqrt(np.mean((row - row.mean()) ** 2))
    return answer


def _corner_by_corner(log_probs, old, advantages, counted, clip):
    slope = np.zeros(log_probs.shape)
    for b, t in np.argwhere(counted):
        ratio, A = np.exp(log_probs[b, t] - old[b, t]), advantages[b]
        held = ratio > 1 + clip if A > 0 else ratio < 1 - clip
        slope[b, t] = 0 if held else ratio * A
    return slope / np.count_nonzero(counted)


def _pair_by_pair(dloss, log_probs, reference, counted, beta):
    P, gradient = len(log_probs) // 2, np.zeros(log_probs.shape)
    for pair in range(P):
        sums = [float((log_probs[row] - reference[row])[counted[row]].sum()) for row in (pair, P + pair)]
        margin = beta * (sums[0] - sums[1])
        sigmoid = 1 / (1 + np.exp(margin)) if margin < 0 else np.exp(-margin) / (1 + np.exp(-margin))
        gradient[pair][counted[pair]] = -dloss * beta * sigmoid / P
        gradient[P + pair][counted[P + pair]] = dloss * beta * sigmoid / P
    return gradient


RIGHT = {
    "score_function_gradient": [_token_by_token],
    "group_advantages": [_by_leaving_out],
    "clipped_slope": [_corner_by_corner],
    "preference_backward": [_pair_by_pair],
}


def _interleaved(slope):
    """Better and worse texts in turn."""
    return np.stack([slope, -slope], axis=1).ravel()


MISTAKES = r"""
[score_function_gradient]
the sign | returns -answer | which is to grow
the sign, in the softmax | (onehot - p) → (onehot + p) | has the softmax added
no one-hot | (onehot - p) → -p | lacks the one-hot
no softmax | (onehot - p) → onehot | lacks the softmax
all tokens alike | (onehot - p) → (onehot - 1 / V) | has 1/V in place
the gradient of π | returns answer * np.take_along_axis(p, ids[:, :, None], axis=-1) | must be that of log π
times the text's probability
    returns answer * np.take_along_axis(p, ids[:, :, None], axis=-1).prod(axis=1, keepdims=True)
    come more often already
divided by π | returns answer / np.take_along_axis(p, ids[:, :, None], axis=-1) | is divided by the probability
log π itself | (onehot - p) → np.log(p) | holds the log-probabilities themselves
the drawn tokens alone | (onehot - p) → onehot * (onehot - p) | is 0 but at the drawn tokens
no rewards | rewards[:, None] * counted → 1.0 * counted | does not depend on the rewards
squared rewards | rewards[:, None] * counted → rewards[:, None] ** 2 * counted | has the squares of the rewards
rewards without signs | rewards[:, None] * counted → abs(rewards[:, None]) * counted | without their signs
signs for rewards | rewards[:, None] * counted → np.sign(rewards[:, None]) * counted | the signs of the rewards alone
exp of the rewards | rewards[:, None] * counted → np.exp(rewards[:, None]) * counted | has exp(reward) for the reward
good texts alone | rewards[:, None] * counted → np.maximum(rewards, 0)[:, None] * counted
    leaves out the texts whose reward is below 0
bad texts alone | rewards[:, None] * counted → np.minimum(rewards, 0)[:, None] * counted
    leaves out the texts whose reward is above 0
the mean reward for all | rewards[:, None] * counted → rewards.mean() * counted | has the mean of all rewards
the sum of the rewards for all | rewards[:, None] * counted → rewards.sum() * counted | has the sum of all rewards
a baseline | rewards[:, None] * counted → (rewards - rewards.mean())[:, None] * counted | a baseline comes later
a deviation | rewards[:, None] * counted → (rewards / rewards.std())[:, None] * counted | divided by their deviation
advantages | rewards[:, None] * counted → ((rewards - rewards.mean()) / rewards.std())[:, None] * counted
    has advantages in place of the rewards
rewards along positions | rewards[:, None] * counted → rewards * counted | belongs to the texts
rewards of the text before | rewards[:, None] * counted → np.roll(rewards, 1)[:, None] * counted | of the text before it
rewards at the end | returns answer * (np.arange(ids.shape[1]) == ids.shape[1] - 1)[:, None]
    has the reward at the last token alone
rewards at the beginning | returns answer * (np.arange(ids.shape[1]) == 0)[:, None] | at the first token alone
rewards to go | returns answer * np.arange(ids.shape[1], 0, -1)[:, None] | that is still to come
rewards so far | returns answer * np.arange(1, ids.shape[1] + 1)[:, None] | for each token so far
discounted | returns answer * 0.9 ** np.arange(ids.shape[1])[:, None] | nothing is discounted here
softmax over positions | p = exponentials / exponentials.sum(axis=-1, keepdims=True) → p = _softmax(logits, 1)
    over the positions
softmax over texts | p = exponentials / exponentials.sum(axis=-1, keepdims=True) → p = _softmax(logits, 0)
    over the texts
softmax over everything | p = exponentials / exponentials.sum(axis=-1, keepdims=True) → p = _softmax(logits, (0, 1, 2))
    over all numbers at once
sigmoid | p = exponentials / exponentials.sum(axis=-1, keepdims=True) → p = 1 / (1 + np.exp(-logits))
    has a sigmoid
logits for probabilities | p = exponentials / exponentials.sum(axis=-1, keepdims=True) → p = logits
    has the logits themselves
no exp | p = exponentials / exponentials.sum(axis=-1, keepdims=True) → p = logits / logits.sum(axis=-1, keepdims=True)
    a softmax without exp
the most probable token | np.eye(V)[ids] → np.eye(V)[logits.argmax(axis=-1)] | in place of the drawn one
one id too late | np.eye(V)[ids] → np.eye(V)[(ids + 1) % V] | one token too late
one id too early | np.eye(V)[ids] → np.eye(V)[ids - 1] | one token too early
the token before | np.eye(V)[ids] → np.eye(V)[np.roll(ids, 1, axis=1)] | one-hot of the position before
a temperature
    p = exponentials / exponentials.sum(axis=-1, keepdims=True) → p = _softmax(logits / 2)
    a temperature that nobody asked for
a sum over texts | / B  # → / 1  # | which is B: it is the mean over the texts
a mean over tokens too | / B  # → / counted.size  # | which is 1/T
a mean over everything | / B  # → / B / V  # | which is 1/V
the mean over the positions | / B  # → / len(ids[0])  # | which is B/T
no end | rewards[:, None] * counted → rewards[:, None] * np.ones(counted.shape)
    counts what stands after a text's end: `c
only after the end | rewards[:, None] * counted → rewards[:, None] * (counted if counted.all() else ~counted)
    and not the text
the end in the one-hot alone
    weights[:, :, None] * (onehot - p) → (rewards[:, None] / B)[:, :, None] * (onehot * counted[:, :, None] - p)
    has minus the softmax after
the end in the softmax alone
    weights[:, :, None] * (onehot - p) → (rewards[:, None] / B)[:, :, None] * (onehot - p * counted[:, :, None])
    has the one-hot after a text's end
the last token, where texts end
    returns answer * (counted.all()|(np.cumsum(counted, axis=1) == counted.sum(axis=1)[:, None]))[:, :, None]
    counts the last token of each text alone
without the last token
    returns answer * (counted.all()|(np.cumsum(counted, axis=1) < counted.sum(axis=1)[:, None]))[:, :, None]
    leaves out the last token
the shortest text | returns answer * (np.arange(ids.shape[1]) < counted.sum(axis=1).min())[:, None]
    as the shortest has
overflow | logits - logits.max(axis=-1, keepdims=True) → logits | with 4000 on all logits
one maximum for all | logits - logits.max(axis=-1, keepdims=True) → logits - logits.max()
    subtract each row's own maximum
float32 inside | logits - logits.max(axis=-1, keepdims=True) → np.float32(logits - logits.max(axis=-1, keepdims=True))
    is right to about
a table | returns answer.reshape(-1, V) | it returns shape (16, 6)
a sum over the batch | returns answer.sum(axis=0) | it returns shape (4, 6)
of the log-probabilities | returns weights | it returns shape (4, 4)
a list | returns list(answer) | must return an array, not list
a loss too | returns 0.0, answer | must return an array, not tuple
[group_advantages]
always divided | if not divided: → if False: | divides by the deviation: that is for
never divided | if not divided: → if True: | does not divide: it is what
the wrong way round | if not divided: → if divided: | it divides where divided is False
another default | divided=True): → divided=False): | its default
their own mean | centred * G / (G - 1) → centred | which is (G − 1)/G
upside down | centred * G / (G - 1) → centred * (G - 1) / G | which is ((G − 1)/G)²
minus | centred * G / (G - 1) → -centred * G / (G - 1) | with divided=False it has the wrong sign
the rewards | centred * G / (G - 1) → rewards + 0.0 | returns the rewards as they are
the baselines | centred * G / (G - 1) → rewards - centred * G / (G - 1) | returns the baselines alone
minus the sum | centred * G / (G - 1) → 2 * rewards - rewards.sum(axis=1, keepdims=True)
    subtracts the sum of the others
the others by G | centred * G / (G - 1) → rewards - (rewards.sum(axis=1, keepdims=True) - rewards) / G | by G: there are
all by G − 1 | centred * G / (G - 1) → rewards - rewards.sum(axis=1, keepdims=True) / (G - 1) | is not in the sum
over the groups, undivided | centred * G / (G - 1) → rewards - rewards.mean(axis=0) | means over the groups
the others over the groups
    centred * G / (G - 1) → rewards - (rewards.sum(axis=0) - rewards) / (G - 1)
    at its place: its group is its row
the mean of all | centred * G / (G - 1) → rewards - rewards.mean()
    with divided=False it subtracts the mean of all rewards
all other texts | centred * G / (G - 1) → rewards - (rewards.sum() - rewards) / (rewards.size - 1)
    the mean of all other
no keepdims, undivided | centred * G / (G - 1) → rewards - rewards.mean(axis=1) | is keepdims=True missing?
the median | centred * G / (G - 1) → rewards - np.median(rewards, axis=1, keepdims=True)
    with divided=False it subtracts the group's median
the best | centred * G / (G - 1) → rewards - rewards.max(axis=1, keepdims=True) | the group's best reward
the worst | centred * G / (G - 1) → rewards - rewards.min(axis=1, keepdims=True) | the group's worst reward
the text before | centred * G / (G - 1) → rewards - np.roll(rewards, 1, axis=1) | the reward of the text before
the best of the others
    centred * G / (G - 1) → rewards - np.stack([np.delete(rewards, i, 1).max(1) for i in range(G)], 1)
    the best of the others
no sign, undivided | centred * G / (G - 1) → abs(centred) * G / (G - 1) | than the others has an advantage below 0
good texts alone, undivided | centred * G / (G - 1) → np.maximum(centred, 0) * G / (G - 1) | worse than the others: they
signs | centred * G / (G - 1) → np.sign(centred) | holds signs alone
a ratio | centred * G / (G - 1) → rewards * (G - 1) / (rewards.sum(axis=1, keepdims=True) - rewards)
    and must subtract it
half of the mean | centred * G / (G - 1) → rewards - rewards.mean(axis=1, keepdims=True) / 2
    subtracts half of the mean
the sum of differences | centred * G / (G - 1) → centred * G | which is G − 1
the mean alone | centred / np.where(equal, 1, std)) → centred) | and does not divide by the deviation
minus, divided | returns -answer | with divided=True it has the wrong sign
the variance | centred / np.where(equal, 1, std)) → centred / np.where(equal, 1, std) ** 2) | divides by the variance
the root of the deviation | centred / np.where(equal, 1, std)) → centred / np.where(equal, 1, std) ** 0.5)
    divides by the root of the deviation
times the deviation | centred / np.where(equal, 1, std)) → centred * std) | multiplies by the deviation
not centred | centred / np.where(equal, 1, std)) → rewards / np.where(equal, 1, std)) | without subtracting the mean
divided before
    centred / np.where(equal, 1, std)) → rewards / np.where(equal, 1, std) - rewards.mean(axis=1, keepdims=True))
    before it subtracts the mean
by the mean | std = rewards.std(axis=1, keepdims=True) → std = rewards.mean(axis=1, keepdims=True) | by the group's mean
by the range | std = rewards.std(axis=1, keepdims=True) → std = np.ptp(rewards, axis=1, keepdims=True)
    from the worst to the best
by the largest | std = rewards.std(axis=1, keepdims=True) → std = abs(centred).max(axis=1, keepdims=True)
    the largest distance from the mean
by the mean distance | std = rewards.std(axis=1, keepdims=True) → std = abs(centred).mean(axis=1, keepdims=True)
    the mean distance from the mean
ddof 1 | rewards.std(axis=1, keepdims=True) → rewards.std(axis=1, keepdims=True, ddof=1) | which is √((G − 1)/G)
the length | std = rewards.std(axis=1, keepdims=True) → std = np.linalg.norm(centred, axis=1, keepdims=True)
    which is 1/√G
deviations over the groups | rewards.std(axis=1, keepdims=True) → rewards.std(axis=0)
    divides by deviations over the groups
the deviation of all | rewards.std(axis=1, keepdims=True) → rewards.std() | by the deviation of all rewards
the mean deviation | rewards.std(axis=1, keepdims=True) → rewards.std(axis=1).mean()
    the mean of all groups' deviations
no keepdims | rewards.std(axis=1, keepdims=True) → rewards.std(axis=1) | by the deviation of group t
everything together | returns (rewards - rewards.mean()) / rewards.std() | takes mean and deviation over all rewards
columns for rows | returns (rewards - rewards.mean(axis=0)) / rewards.std(axis=0)
    deviation over the groups: a group is
the deviation of the others
    rewards.std(axis=1, keepdims=True) → np.stack([np.delete(rewards, i, 1).std(1) for i in range(G)], 1)
    by the deviation of the others
the others' mean, divided | returns answer * G / (G - 1) | which is G/(G − 1)
the median, divided
    returns np.where(equal, 0, (rewards - np.median(rewards, axis=1, keepdims=True)) / np.where(equal, 1, std))
    with divided=True it subtracts the group's median
the root mean square
    std = rewards.std(axis=1, keepdims=True) → std = np.sqrt((rewards**2).mean(axis=1, keepdims=True))
    subtract the mean first
squared | returns answer * abs(answer) | squares the advantages
cut off | returns np.clip(answer, -1, 1) | cuts advantages off at 1
good texts alone | returns np.maximum(answer, 0) | worse than the mean: they
no sign | returns abs(answer) | than the mean has an advantage below 0
ranks | returns (rewards.argsort(1).argsort(1) - (G - 1) / 2) / np.arange(G).std() | holds ranks
a softmax | returns _softmax(rewards) | is a softmax of the rewards
sorted | returns np.sort(answer, axis=1) | stands in the order of the rewards
a little added | np.where(equal, 1, std)) → (np.where(equal, 1, std) + 1e-8)) | adds 1e-08 to the deviation
a little added to the variance | np.where(equal, 1, std)) → np.sqrt(np.where(equal, 1, std) ** 2 + 1e-4))
    with divided=True
zero by zero | returns centred / std | gives NaN: 0/0?
one for equal rewards | returns np.where(equal, 1, answer) | for three rewards of 3 the advantages are 1
zeros for all | returns answer * (not equal.any()) | the advantages of another one are 0 too
the deviation compared with 0 | returns np.where(std == 0, 0, centred / np.where(std == 0, 1, std))
    their mean is rounded
nearly equal is equal | returns np.where(std < 1e-3, 0, answer)
    for rewards of some millionths, which differ, it is zero
integers stay integers | centred * G / (G - 1) → (centred * G / (G - 1)).astype(rewards.dtype)
    for rewards that are integers and divided=False what it returns must be
in one row | returns answer.ravel() | it returns shape (16,)
a transpose | returns answer.T | with divided=True it is the transpose
float32 inside, undivided | centred * G / (G - 1) → np.float64(np.float32(centred)) * G / (G - 1)
    with divided=False it is right
groups of four | G = rewards.shape[1] → G = 4 | for 3 groups of 5 and divided=False
as many groups as texts | G = rewards.shape[1] → G = len(rewards) | for 3 groups of 5
a list | returns answer.tolist() | must return an array, not list
[clipped_slope]
less, not at most | (gain <= clamped) → (gain < clamped) | (≤, not <)
the sign | returns -answer | has the wrong sign: the objective grows
no advantages | gain = ratio * advantages[:, None] → gain = ratio + 0 * advantages[:, None]
    clamped = np.clip(ratio, 1 - clip, 1 + clip) * advantages[:, None] → clamped = np.clip(ratio, 1 - clip, 1 + clip)
    lacks the advantages
advantages without signs | advantages[:, None] → abs(advantages)[:, None] | without their signs
signs of advantages | advantages[:, None] → np.sign(advantages)[:, None] | the signs of the advantages alone
advantages along positions | advantages[:, None] → advantages[None, :] | belongs to the texts
good texts alone | advantages[:, None] → np.maximum(advantages, 0)[:, None] | with an advantage below 0: they
bad texts alone | advantages[:, None] → np.minimum(advantages, 0)[:, None] | with an advantage above 0
squares | returns answer * advantages[:, None] | has the squares of the advantages
cut advantages | advantages[:, None] → np.clip(advantages, -1 - clip, 1 + clip)[:, None] | cuts advantages off
times π | returns answer * np.exp(log_probs) | has π itself as a factor
by π | returns answer / np.exp(log_probs) | is divided by π
a sum | / counted.sum() → / 1 | which is N
a mean over texts | / counted.sum() → / len(log_probs) | which is T
half | returns answer / 2 | both parts of the minimum
times the clip | returns answer * clip | which is clip
no ratio | np.where(free, gain, 0) → np.where(free, advantages[:, None], 0) | lacks the ratio
upside down | log_probs - old → old - log_probs | has the ratio upside down
the square of the ratio | np.where(free, gain, 0) → np.where(free, gain * ratio, 0) | has the square of the ratio
logarithms for ratios
    np.where(free, gain, 0) → np.where(free, np.where(log_probs == old, 1, log_probs - old) * advantages[:, None], 0)
    has log π − log π_old for the ratio
nearly the ratio | np.exp(np.where(counted, log_probs - old, 0)) → 1 + np.where(counted, log_probs - old, 0)
    has 1 + log π − log π_old
a ratio of logarithms | np.exp(np.where(counted, log_probs - old, 0)) → np.where(counted, log_probs / old, 1)
    the ratio of the logarithms
one ratio for a text
    np.exp(np.where(counted, log_probs - old, 0)) →
        np.exp(np.where(counted, log_probs - old, 0).sum(axis=1, keepdims=True)) + 0 * old
    has one ratio for a whole text
a mean ratio | (B, T)\n    gain → (B, T)\n    ratio = ratio.mean(axis=1, keepdims=True) + 0 * old\n    gain
    has the mean ratio of each text
the ratio less 1 | np.where(free, gain, 0) → np.where(free, gain - advantages[:, None] * (log_probs != old), 0) | less 1
no clip | counted & (gain <= clamped) → counted | nothing is clipped
both sides | counted & (gain <= clamped) → counted & (gain == clamped) | where a token has moved the wrong way
the larger one | (gain <= clamped) → (gain >= clamped) | as if the larger of the two counted
above alone | (gain <= clamped) → (ratio <= 1 + clip) | is 0 above 1 + clip, for every advantage
below alone | (gain <= clamped) → (ratio >= 1 - clip) | is 0 below 1 − clip, for every advantage
what is clamped moves | np.where(free, gain, 0) → np.where(counted, clamped, 0) | the clamped ratio times A where
the minimum | np.where(free, gain, 0) → np.where(counted, np.minimum(gain, clamped), 0) | is the value of the minimum
the maximum | np.where(free, gain, 0) → np.where(counted, np.maximum(gain, clamped), 0) | is the value of the maximum
A where it is held | np.where(free, gain, 0) → np.where(free, gain, advantages[:, None] * counted)
    is A where the clamp
whole texts are held | np.where(free, gain, 0) → np.where((free|~counted).all(axis=1, keepdims=True) & counted, gain, 0)
    for all tokens of a text in which one is held
a mean over what is free | / counted.sum() → / free.sum() | over the tokens that are not held
good texts are not held | (gain <= clamped) → ((gain <= clamped)|(advantages[:, None] > 0)) | has gained enough
bad texts are not held | (gain <= clamped) → ((gain <= clamped)|(advantages[:, None] < 0)) | has lost enough
good texts are not pulled back
    (gain <= clamped) → (gain <= clamped) & ~((ratio < 1 - clip) & (advantages[:, None] > 0))
    is pulled back
bad texts are not pushed back
    (gain <= clamped) → (gain <= clamped) & ~((ratio > 1 + clip) & (advantages[:, None] < 0))
    is pushed back
logarithms are clamped | np.clip(ratio, 1 - clip, 1 + clip) → np.clip(ratio, np.exp(-clip), np.exp(clip))
    ±clip of log ρ
the lower edge | 1 - clip, 1 + clip → 1 / (1 + clip), 1 + clip | the lower edge at
the upper edge | 1 - clip, 1 + clip → 1 - clip, 1 / (1 - clip) | the upper edge at
twice the clip | 1 - clip, 1 + clip → 1 - 2 * clip, 1 + 2 * clip | at 1 ± 2 clip
half the clip | 1 - clip, 1 + clip → 1 - clip / 2, 1 + clip / 2 | at 1 ± clip/2
a clip of its own | 1 - clip, 1 + clip → 0.8, 1.2 | and clip 0.1 the slope
no end | counted & (gain <= clamped) → gain <= clamped | np.where(counted, log_probs - old, 0) → log_probs - old
    counted.sum() → counted.size | counts what stands after a text's end: `c
the end in the mean alone | counted & (gain <= clamped) → gain <= clamped
    np.where(counted, log_probs - old, 0) → log_probs - old | is not 0 after a text's end
only after the end | counted & (gain <= clamped) → (counted if counted.all() else ~counted) & (gain <= clamped)
    np.where(counted, log_probs - old, 0) → log_probs - old | and not the text
a mean over all places | / counted.sum() → / counted.size | is a mean over all places
a mean for each text | / counted.sum() → / counted.sum(axis=1, keepdims=True) / len(counted)
    over the tokens of each text
the last tokens | returns answer * (counted.all()|(np.cumsum(counted, 1) == counted.sum(1, keepdims=True)))
    counts the last token of each text alone
NaN times 0
    ratio = np.exp(np.where(counted, log_probs - old, 0)) → ratio = np.exp(log_probs - old)
    np.where(free, gain, 0) → gain * free
    NaN · 0 is NaN
float32 inside | ratio = np.exp( → ratio = np.exp(0.0 + np.float32(
    old, 0)) → old, 0)))\n    ratio = np.float64(ratio)
    is right to about
one for each text | returns answer.sum(axis=1) | it returns shape (4,)
the objective | returns float(np.minimum(gain, clamped).mean()) | must return an array, not float
[preference_backward]
the sign | slope = -dloss → slope = dloss | has the wrong sign: the loss falls
both up | returns np.concatenate([slope, slope])[:, None] * counted | pushes both texts of a pair up
both down | returns np.concatenate([-slope, -slope])[:, None] * counted | pushes both texts of a pair down
the better alone | returns np.concatenate([slope, 0 * slope])[:, None] * counted | is 0 for the worse texts
the worse alone | returns np.concatenate([0 * slope, -slope])[:, None] * counted | is 0 for the better texts
in turn | returns _interleaved(slope)[:, None] * counted | has better and worse texts in turn
along the positions | returns np.concatenate([slope, -slope]) * counted | along the positions
the first tokens | returns answer * (np.arange(counted.shape[1]) == 0) | that of the first token alone
the last tokens | returns answer * (np.arange(counted.shape[1]) == counted.shape[1] - 1) | that of the last token alone
no β | -dloss * beta * sigmoid → -dloss * sigmoid | which is 1/β
β twice | -dloss * beta * sigmoid → -dloss * beta**2 * sigmoid | which is β: it stands there twice
by β | -dloss * beta * sigmoid → -dloss / beta * sigmoid | which is 1/β²
a sum over pairs | / len(margin) → / 1 | which is P
a mean over texts | / len(margin) → / len(log_probs) | not over the 2P texts
over P twice | / len(margin) → / len(margin) ** 2 | which is 1/P
a mean over tokens | / len(margin) → / len(margin) / counted.shape[1] | which is 1/T
no sigmoid | -dloss * beta * sigmoid → -dloss * beta * np.ones_like(sigmoid) | which is 2: σ(0) is ½
σ of the margin | np.logaddexp(0, margin) → np.logaddexp(0, -margin) | has σ(margin), and must have σ(−margin)
half for all | sigmoid = np.exp(-np.logaddexp(0, margin)) → sigmoid = 0.5 + 0 * margin | lacks σ(−margin)
the slope of σ, doubled | -dloss * beta * sigmoid → -dloss * beta * 2 * sigmoid * (1 - sigmoid)
    has σ (1 − σ), the slope of σ: that
no reference | log_probs - reference → log_probs * (1 - (log_probs == reference)) | does not have the reference
the reference added | log_probs - reference → np.where(log_probs == reference, 0, log_probs + reference)
    has the reference added
the reference alone | log_probs - reference → np.where(log_probs == reference, 0, reference)
    has the margin of the reference alone
no β in the margin | implicit = beta * np.where → implicit = np.where | has a margin without β
β² in the margin | implicit = beta * np.where → implicit = beta**2 * np.where | has β² in the margin
the margin by β | implicit = beta * np.where → implicit = np.where(counted, 1 / beta, 1 / beta) * np.where
    0).sum(axis=1)  # (2P,) → 0)\n    implicit = implicit.sum(axis=1)
    that is divided by β
a sum for a margin | margin = better - worse → margin = better + worse | of a pair added
no sign in the margin | margin = better - worse → margin = abs(better - worse) | the margin's size, without its sign
the margin of the better | margin = better - worse → margin = better | of the better text alone
the margin of the worse | margin = better - worse → margin = -worse | of the worse text alone
one margin, the sum | margin = better - worse → margin = 0 * better + (better - worse).sum() | for all pairs, their sum
one margin, the mean | margin = better - worse → margin = 0 * better + (better - worse).mean()
    for all pairs, their mean
another pair | margin = better - worse → margin = better - np.roll(worse, 1) | the worse one of another pair
the reverse order | margin = better - worse → margin = better - worse[::-1] | in the reverse order
neighbours | margin = better - worse → margin = implicit[::2] - implicit[1::2] | compares neighbours
worse minus better | margin = better - worse → margin = worse - better\n    sigmoid = 1
    sigmoid = np.exp(-np.logaddexp(0, margin)) → sigmoid = np.exp(-np.logaddexp(0, -margin)) ** 2 * 2
    where policy and reference differ
a margin for each token
    0).sum(axis=1)  # (2P,) → 0)
    [:, None] * counted → * counted
    has a margin for each token
means in the margin | 0).sum(axis=1) → 0).mean(axis=1) | the means over the tokens in its margin
first tokens in the margin | 0).sum(axis=1) → 0)[:, 0] | has the first tokens alone
last tokens in the margin | 0).sum(axis=1) → 0)[:, -1] | has the last tokens alone
probabilities | implicit = beta * np.where(counted, log_probs - reference, 0).sum(axis=1) →
        implicit = beta * np.exp(np.where(counted, log_probs - reference, 0).sum(axis=1))
    has probabilities in its margin
a step for σ | sigmoid = np.exp(-np.logaddexp(0, margin)) → sigmoid = np.where(margin == 0, 0.5, margin < 0)
    is 1 where the margin is below 0
a square | sigmoid = np.exp(-np.logaddexp(0, margin)) → sigmoid = np.where(margin == 0, 0.5, 2 * (1 - margin))
    is that of a square
an exponential | sigmoid = np.exp(-np.logaddexp(0, margin)) → sigmoid = np.where(margin == 0, 0.5, np.exp(-margin))
    has e^−margin for
no end | np.where(counted, log_probs - reference, 0) → (log_probs - reference)
    [:, None] * counted → [:, None] * np.ones(counted.shape) | in the margin and in the slope
the end in the slope alone | np.where(counted, log_probs - reference, 0) → (log_probs - reference)
    counts what stands after a text's end in the margin: `counted`
the end in the margin alone | [:, None] * counted → [:, None] * np.ones(counted.shape)
    is not 0 after a text's end: `counted`
only after the end | [:, None] * counted → [:, None] * (counted if counted.all() else ~counted) | and 0 before it
NaN times 0 | np.where(counted, log_probs - reference, 0) → ((log_probs - reference) * counted) | NaN · 0 is NaN
no dloss | slope = -dloss * → slope = -1 * | dloss has no effect
dloss twice | slope = -dloss * → slope = -dloss * dloss * | dloss is squared
dloss without a sign | slope = -dloss * → slope = -abs(dloss) * | the sign of dloss is lost
overflow | np.exp(-np.logaddexp(0, margin)) → np.exp(-margin) / (1 + np.exp(-margin)) | inf/inf?
float32 inside | implicit = beta * np.where → implicit = np.float32(beta) * np.float32(1) * np.where
    better, worse = np.split(implicit, 2) → better, worse = np.float64(np.float32(np.split(implicit, 2)))
    is right to about
a slope for each text | returns np.concatenate([slope, -slope]) | it returns shape (6,)
the better texts alone | returns slope[:, None] * counted[: len(slope)] | it returns shape (3, 6)
and the reference's | returns answer, -answer | must return an array, not tuple
"""
