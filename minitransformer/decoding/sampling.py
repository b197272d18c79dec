"""Choosing the next token of a text: the best one, or one drawn from the model's distribution."""

from dataclasses import dataclass

import numpy as np

from ..config import Config, not_negative, positive, whole


@dataclass(frozen=True)
class Sampling(Config):
    """The rules by which the next token is chosen, applied one after the other in this order.

    repetition_penalty  divides the logits above 0, and multiplies those below, of tokens that the text has already
                        (Keskar et al. 2019, §4.1); above 1 it makes them rarer
    temperature         divides all logits: below 1 the best tokens gain, above 1 they lose; 0 takes the best token
    top_k               keeps the k best tokens (Fan et al. 2018)
    top_p               keeps the fewest best tokens whose probabilities sum to p or more (Holtzman et al. 2020, §3.1)
    min_p               keeps the tokens with at least this share of the best one's probability (Nguyen et al. 2024)
    seed                the same seed gives the same texts, whichever others are in the batch
    """

    temperature: float = not_negative(1.0, "divides the logits; 0 takes the best token")
    top_k: int | None = whole(None, "draw from the k best tokens")
    top_p: float | None = positive(None, "draw from the best tokens that have this probability together", most=1)
    min_p: float | None = positive(None, "draw from tokens with this share of the best one's probability", most=1)
    repetition_penalty: float = positive(1.0, "above 1, tokens that were there already become rarer")
    seed: int = whole(0, "the same seed gives the same text", least=0)

    def probabilities(self, logits: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """Return the probability of each token, `(V,)`, from logits `(V,)` and `earlier`, the ids of the text so far.

        Raises `FloatingPointError` for logits that are NaN or without a finite maximum.
        """
        logits = logits.astype(np.float64)
        _largest(logits)
        with np.errstate(over="ignore"):  # a tiny temperature, or an extreme penalty: the best token gets everything
            if self.repetition_penalty != 1:
                seen = np.unique(earlier)
                penalty = self.repetition_penalty
                logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
                logits = np.minimum(logits, np.finfo(np.float64).max)
            logits = (logits - _largest(logits)) / (self.temperature or 1)
        if self.temperature == 0:
            chosen = np.zeros_like(logits)
            chosen[logits.argmax()] = 1.0
            return chosen
        if self.top_k is not None and self.top_k < len(logits):
            logits[logits < np.partition(logits, -self.top_k)[-self.top_k]] = -np.inf
        probabilities = softmax_of(logits)
        if self.top_p is not None:
            kept = nucleus(probabilities, self.top_p)
            rest, probabilities = probabilities, np.zeros_like(probabilities)
            probabilities[kept] = rest[kept]
        if self.min_p is not None:
            probabilities[probabilities < self.min_p * probabilities.max()] = 0.0
        return probabilities / probabilities.sum()

    def choose(self, logits: np.ndarray, earlier: np.ndarray, text: int) -> int:
        """Draw the next token of text number `text`; the draw depends only on seed, number and length of the text."""
        probabilities = self.probabilities(logits, earlier)
        if self.temperature == 0:
            return int(probabilities.argmax())
        return drawn(probabilities, np.random.default_rng([self.seed, text, len(earlier)]).random())


def drawn(weights: np.ndarray, uniform: float) -> int:
    """Return the token that a number from 0 to below 1 draws from weights `(V,)`, whatever their sum is."""
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))


def nucleus(probabilities: np.ndarray, p: float) -> np.ndarray:
    """Return the ids of the fewest best tokens of `(V,)` whose probabilities sum to p or more, the best first.

    Only some of the best are sorted, and more of them until they have p together.
    """
    count = 64
    while True:
        count *= 8
        least = np.partition(probabilities, -count)[-count] if count < len(probabilities) else 0.0
        best = np.flatnonzero(probabilities >= least)
        order = best[np.argsort(-probabilities[best], kind="stable")]
        sums = np.cumsum(probabilities[order])
        if count >= len(probabilities) or sums[-1] >= p:
            return order[sums - probabilities[order] < p]  # what all better tokens have together


def softmax_of(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of logits `(..., V)` in float64.

    Raises `FloatingPointError` for logits that are NaN or without a finite maximum.
    """
    logits = logits.astype(np.float64)
    exponentials = np.exp(logits - _largest(logits))
    return exponentials / exponentials.sum(-1, keepdims=True)


def _largest(logits: np.ndarray) -> np.ndarray:
    """Return the maximum over the last axis, `(..., 1)`. Raises `FloatingPointError` where it is not finite."""
    largest = logits.max(-1, keepdims=True)
    if not np.isfinite(largest).all():  # the maximum is NaN if any logit is
        raise FloatingPointError("the model's logits are NaN: its parameters are not finite or far too large")
    return largest
