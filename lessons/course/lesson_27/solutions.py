"""Solutions of lesson 27."""

import numpy as np


def score_function_gradient(logits, ids, counted, rewards):
    B, V = len(logits), logits.shape[-1]
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)  # (B, T, V)
    onehot = np.eye(V)[ids]  # (B, T, V)
    weights = rewards[:, None] * counted / B  # (B, T): a reward counts for every token of its text
    return weights[:, :, None] * (onehot - p)


def group_advantages(rewards, divided=True):
    G = rewards.shape[1]
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    if not divided:
        return centred * G / (G - 1)  # r − (Σ r − r) / (G − 1)
    equal = rewards.max(axis=1, keepdims=True) == rewards.min(axis=1, keepdims=True)
    std = rewards.std(axis=1, keepdims=True)
    return np.where(equal, 0, centred / np.where(equal, 1, std))


def clipped_slope(log_probs, old, advantages, counted, clip):
    ratio = np.exp(np.where(counted, log_probs - old, 0))  # (B, T)
    gain = ratio * advantages[:, None]
    clamped = np.clip(ratio, 1 - clip, 1 + clip) * advantages[:, None]
    free = counted & (gain <= clamped)  # else the smaller one is the clamped one, which does not move
    return np.where(free, gain, 0) / counted.sum()  # dρ = ρ dlog π


def preference_backward(dloss, log_probs, reference, counted, beta):
    implicit = beta * np.where(counted, log_probs - reference, 0).sum(axis=1)  # (2P,)
    better, worse = np.split(implicit, 2)  # (P,)
    margin = better - worse
    sigmoid = np.exp(-np.logaddexp(0, margin))  # σ(−margin)
    slope = -dloss * beta * sigmoid / len(margin)
    return np.concatenate([slope, -slope])[:, None] * counted
