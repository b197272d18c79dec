"""Objectives of rewards and preferences, as losses of the log-probabilities of drawn tokens.

A language model is a policy π: it draws a text y token by token, and log π(y) is the sum of its tokens' log π. A reward
says how good a text is, and nobody can differentiate it. But the gradient of its expectation needs no more than that of
log π (the score function; Williams 1992):

    J = Σ_y π(y) r(y)        ∇J = Σ_y ∇π(y) r(y) = Σ_y π(y) ∇log π(y) r(y) = E[r(y) ∇log π(y)]

So drawn texts give an estimate of ∇J. A baseline b that does not depend on y changes nothing in it, since
E[b ∇log π(y)] = b ∇Σ_y π(y) = 0, and makes its variance smaller: r − b is the advantage A of a text.

Each backward returns the gradient of the log-probabilities. With weights `w = −N · dlog_probs` the ordinary loss of a
model, `Σ_i w_i (−log π_i) / N`, has the objective's gradient (`target_weights`): training steps need nothing new.

Shapes: B drawn texts, T their tokens, padding included; G texts in a group, of one prompt.
"""

from typing import Any

import numpy as np

Array = np.ndarray

# --- Advantages -----------------------------------------------------------------------------------------------


def group_advantages(rewards: Array, divided: bool = True) -> Array:
    """Return the advantages of texts in groups, `(groups, G)`, from their rewards `(groups, G)`.

    divided: `(r − mean) / std` in each group, GRPO's (Shao et al. 2024, §4.1.2), 0 where all rewards are equal. Else
    `r − the mean of the others` (Kool et al. 2019), with which the estimate of ∇J is unbiased: a baseline that holds a
    text's own reward depends on the text. Raises `ValueError` for groups of one text, which have nobody to compare it
    with.
    """
    size = rewards.shape[-1]
    if rewards.ndim != 2 or size < 2:
        raise ValueError(f"rewards have shape {rewards.shape}, expected (groups, G) with a G of 2 or more")
    centred = rewards - rewards.mean(-1, keepdims=True)
    if not divided:
        return centred * (size / (size - 1))  # r − (Σ r − r) / (G − 1)
    std = rewards.std(-1, keepdims=True)
    return np.divide(centred, std, out=np.zeros_like(centred), where=std > 1e-12 * np.abs(rewards).max(initial=1))


# --- Rewards: Schulman et al. 2017, eq. 7; Shao et al. 2024, eq. 3 and 4 --------------------------------------


def reward_loss_forward(
    log_probs: Array,
    old: Array,
    advantages: Array,
    counted: Array,
    reference: Array | None = None,
    clip: float | None = 0.2,
    kl: float = 0.0,
) -> tuple[Any, tuple]:
    """`Σ (−min(ρ A, clamp(ρ, 1 − ε, 1 + ε) A) + β (e^δ − δ − 1)) / N` over the N tokens that count.

    `ρ = π / π_old` is the ratio to the policy that drew the text, and `δ = log π_ref − log π`: on average over tokens
    of π, `e^δ − δ − 1` is the divergence KL(π ‖ π_ref), and it is never negative. (Its slope, `1 − e^δ` for each token,
    is on average that of KL(π_ref ‖ π) of the next token, which is smallest at the same place.) Arrays `(B, T)` hold
    the tokens' log π, log π_old and log π_ref, and `True` where a token counts; advantages `(B,)`. ε is `clip`, `None`
    for none; β is `kl`, and without a reference there is no such term. With ρ = 1 it is the policy gradient of Williams
    1992, divided by the mean length of a text. Paper: GRPO first averages over the tokens of each text, which makes a
    token of a long wrong text cheap; here each token counts the same (Yu et al. 2025, §3.3).
    """
    count = max(1, np.count_nonzero(counted))
    ratio = np.exp(_differences(log_probs, old, counted))  # (B, T)
    gain = ratio * advantages[:, None]
    clamped = gain if clip is None else np.clip(ratio, 1 - clip, 1 + clip) * advantages[:, None]
    losses = -np.minimum(gain, clamped)
    delta = np.zeros_like(losses) if reference is None else _differences(reference, log_probs, counted)
    losses = losses + kl * (np.expm1(delta) - delta)
    return (losses * counted).sum() / count, (gain, clamped, delta, counted, kl, count)


def reward_loss_backward(dloss: float, cache: tuple) -> Array:
    """`dlog_probs = dloss (−ρ A [not clipped] + β (1 − e^δ)) / N`, `(B, T)`; 0 for a token that does not count."""
    gain, clamped, delta, counted, kl, count = cache
    # min(ρ A, clamp(ρ) A): where the second is smaller, the clamp holds it, and it has no slope. dρ = ρ dlog π
    dlog_probs = -np.where(gain <= clamped, gain, 0)
    dlog_probs -= kl * np.expm1(delta)  # e^δ − δ, with dδ = −dlog π
    return dloss * dlog_probs * counted / count


# --- Preferences: Rafailov et al. 2023, eq. 7 -----------------------------------------------------------------


def preference_loss_forward(
    log_probs: Array, reference: Array, counted: Array, beta: float = 0.1
) -> tuple[Any, tuple[Array, Array, float]]:
    """`−log σ(β Σ_t δ(better) − β Σ_t δ(worse))`, `δ = log π − log π_ref`: the mean over pairs of texts (DPO).

    Arrays `(2P, T)`: the P texts that are preferred, then those that they are preferred to, in the same order;
    `counted` is `True` where a token counts. `implicit_rewards` says what the model has then learned.
    """
    better, worse = np.split(implicit_rewards(log_probs, reference, counted, beta), 2)  # (P,)
    margin = better - worse
    return np.logaddexp(0, -margin).mean(), (margin, counted, beta)


def preference_loss_backward(dloss: float, cache: tuple[Array, Array, float]) -> Array:
    """`dlog_probs = ∓dloss β σ(−margin) / P`, `(2P, T)`: up for tokens of a better text, down for those of a worse."""
    margin, counted, beta = cache
    slope = -dloss * beta / len(margin) * np.exp(-np.logaddexp(0, margin))  # −log σ(m) has the slope −σ(−m)
    return np.concatenate([slope, -slope])[:, None] * counted


def implicit_rewards(log_probs: Array, reference: Array, counted: Array, beta: float) -> Array:
    """Return `β log(π(y) / π_ref(y))` of texts, `(B,)`: the reward for which π is the best policy near π_ref."""
    return beta * _differences(log_probs, reference, counted).sum(-1)


# --- Steps ----------------------------------------------------------------------------------------------------


def target_weights(dlog_probs: Array, counted: Array) -> Array:
    """Return `w (B, T)` with which `Σ_i w_i (−log π_i) / N`, N the targets that count, has this gradient."""
    return -max(1, np.count_nonzero(counted)) * dlog_probs


def _differences(a: Array, b: Array, counted: Array) -> Array:
    """`a − b` in float64 where a token counts, else 0: what stands in padding may be anything."""
    return np.subtract(a, b, out=np.zeros(a.shape), where=counted)
