"""Searches for the most probable target sentence, one token at a time.

Greedy search takes the best token at each step. Beam search keeps the best `num_beams` prefixes:

- Every step extends each prefix by every token and keeps the extensions with the highest log-probabilities, one for
  each slot. A prefix that takes the end-of-sentence token leaves the beam, and its slot closes (Sutskever 2014, §3.2).
  So a beam of one is exactly greedy search, and a beam wide enough for every prefix is an exhaustive search.
- A complete hypothesis scores `log P(Y) / lp(Y)`, `lp(Y) = ((5 + |Y|) / 6)^α` (Wu 2016, §7, eq. 14), where |Y| counts
  the end-of-sentence token.
- A sentence is done when no slot is left, or when no prefix can win any more: as a prefix grows, log P only falls and
  lp only rises, so its score can't exceed `log P / lp(longest output)`. Stopping by this bound never changes the
  result.
- The longest output is input length + 50 tokens (Vaswani 2017, §6.1), both with their end-of-sentence token, and never
  more than the model's `max_length`. A hypothesis cut off there ranks behind every hypothesis that ended.
- Of equal log-probabilities the one whose prefix ranked higher wins, then the one with the smaller token id; of equal
  scores the hypothesis that was complete first. Padding and beginning-of-sentence tokens are never produced.

Each sentence of a batch is searched as if it were alone, and leaves the batch as soon as it is done. The model keeps
its own state of the prefixes (`Decoding`); the search keeps small arrays on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..models import most_tokens
from ..ops import Array, Ops

MOST_LENGTH_PENALTY = 10
"""The largest α. Wu 2016 tries 0 to 1; at 10 length alone decides, and the penalty still fits into a float."""


class Decodable(Protocol):
    """A model that can be searched; every `EncoderDecoder` is one."""

    ops: Ops

    @property
    def config(self) -> Any:
        """The special ids, and the longest sequence."""
        ...

    def start_decoding(self, source: Array, num_beams: int = 1) -> Any:
        """Encode `source` (B, Ts) and return a state with `select(sentences)` and `reorder(beams)`."""
        ...

    def decode_step(self, ids: Array, state: Any) -> Array:
        """Append ids (B, K) to the prefixes; return the logits (B, K, V) of the tokens after them."""
        ...


@dataclass(frozen=True)
class Hypothesis:
    """A translation: token ids without special tokens, its score `log_prob / lp`, and its log-probability.

    `ended` is False if it was cut off as the longest output; else `log_prob` includes the end-of-sentence token.
    """

    ids: list[int]
    score: float
    log_prob: float
    ended: bool = True


@dataclass(frozen=True)
class Start:
    """The start of a search in a model that continues texts, or describes pictures.

    first      the last token of each prompt, `(B,)`
    limits     the most tokens that each text may get, `(B,)`
    forbidden  the tokens that no text may get
    state      what has read all other tokens of the prompts, for `num_beams` beams; `None`: the search reads them
    """

    first: np.ndarray
    limits: np.ndarray
    forbidden: Sequence[int] = ()
    state: Any = None


def is_end(ids: Any, config: Any) -> Any:
    """Return True for each id that ends a text; `ids` is an integer or an array."""
    found = ids == config.eos_id
    for other in getattr(config, "other_eos_ids", ()):
        found = found | (ids == other)
    return found


def penalty(length: Any, alpha: float) -> Any:
    """Return the length penalty `((5 + length) / 6)^alpha` (Wu 2016, eq. 14); `length` is a number or an array."""
    return ((5 + length) / 6) ** alpha


def greedy_search(
    model: Decodable, source: np.ndarray, max_extra: int = 50, length_penalty: float = 0.0
) -> list[Hypothesis]:
    """Take the best token at every step; return one hypothesis for each sentence of source.

    source is `(B, Ts)` integers, padded on the right with the model's `pad_id`. `length_penalty` changes only the
    reported score. Raises as `beam_search` does.
    """
    limits = _longest_outputs(model, source, max_extra)
    _check_length_penalty(length_penalty)
    if not len(source):
        return []
    rows = np.arange(len(source))  # the sentences still running, as rows of `source`
    hypotheses: dict[int, Hypothesis] = {}
    outputs = np.zeros((len(source), limits.max()), dtype=np.int64)
    log_probs = np.zeros(len(source))
    ids = np.full((len(source), 1), model.config.bos_id)
    state = model.start_decoding(source, num_beams=1)

    for length in range(1, outputs.shape[1] + 1):
        token_log_probs, tokens = _best_tokens(model, ids, state, 1, (model.config.pad_id, model.config.bos_id))
        ids = tokens[:, :, 0]  # (B, 1)
        outputs[:, length - 1] = ids[:, 0]
        log_probs += token_log_probs[:, 0, 0]

        done = is_end(ids[:, 0], model.config) | (limits == length)
        if np.count_nonzero(done):  # `done.any()`, several times faster on an array of this size
            for b in np.flatnonzero(done):
                hypotheses[rows[b]] = _hypothesis(model, outputs[b, :length], log_probs[b], length_penalty)
            if done.all():
                break
            keep = _close_up(~done)
            rows, limits, outputs, log_probs, ids = (a[keep] for a in (rows, limits, outputs, log_probs, ids))
            state.select(keep)
    return [hypotheses[row] for row in range(len(source))]


def beam_search(
    model: Decodable,
    source: np.ndarray,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    n_best: int = 1,
    max_extra: int = 50,
    start: Start | None = None,
) -> list[list[Hypothesis]]:
    """Return the `n_best` best hypotheses of each sentence, best first.

    source is `(B, Ts)` integers, padded on the right with the model's `pad_id`. The docstring of this file describes
    the search; the defaults are those of Vaswani 2017, §6.1. Raises `TypeError` if source is not of integers;
    `ValueError` if it is not `(B, Ts)`, n_best is outside 1..num_beams, length_penalty outside 0..10 or max_extra below
    1; `FloatingPointError` if the model gives NaN.

    With `start` a language model continues the prompts in source, which lack their last token: `start` holds it. A
    captioner, whose source is pictures, begins with it.
    """
    limits = _longest_outputs(model, source, max_extra) if start is None else start.limits
    forbidden = start.forbidden if start else (model.config.pad_id, model.config.bos_id)
    _check_length_penalty(length_penalty)
    if num_beams < 1:
        raise ValueError(f"num_beams is {num_beams}, expected 1 or more")
    if not 1 <= n_best <= num_beams:
        raise ValueError(f"n_best is {n_best}, expected 1 to num_beams, which is {num_beams}")
    if not len(source):
        return []
    rows = np.arange(len(source))  # the sentences still running, as rows of `source`
    complete: list[list[Hypothesis]] = [[] for _ in source]
    slots = np.full(len(source), num_beams)  # open slots of each sentence
    log_probs = np.full((len(source), num_beams), -np.inf)  # -inf: nothing in this slot
    log_probs[:, 0] = 0.0
    to_beat = np.full(len(source), -np.inf)  # the n-th best score so far
    prefixes = np.zeros((len(source), num_beams, limits.max()), dtype=np.int64)
    first = start.first if start else np.full(len(source), model.config.bos_id)
    ids = np.repeat(first[:, None], num_beams, axis=1)
    state = None if start is None else start.state
    state = model.start_decoding(source, num_beams=num_beams) if state is None else state

    for length in range(1, prefixes.shape[2] + 1):
        beams, ids, log_probs = _best_extensions(log_probs, *_best_tokens(model, ids, state, num_beams, forbidden))
        log_probs[np.arange(num_beams) >= slots[:, None]] = -np.inf
        prefixes[:, :, : length - 1] = prefixes[np.arange(len(beams))[:, None], beams, : length - 1]
        prefixes[:, :, length - 1] = ids

        leaves = (is_end(ids, model.config) | (limits == length)[:, None]) & (log_probs > -np.inf)  # (B, K)
        for b, k in np.argwhere(leaves):
            found = complete[rows[b]]
            found.append(_hypothesis(model, prefixes[b, k, :length], log_probs[b, k], length_penalty))
            to_beat[b] = _nth_best(found, n_best)
        slots = slots - leaves.sum(axis=1)
        log_probs[leaves] = -np.inf

        running = log_probs.max(axis=1) / penalty(limits, length_penalty) > to_beat  # False for an empty beam's -inf
        if not running.any():
            break
        if not running.all():
            keep = _close_up(running)
            rows, limits, slots, to_beat = (a[keep] for a in (rows, limits, slots, to_beat))
            log_probs, prefixes, beams, ids = (a[keep] for a in (log_probs, prefixes, beams, ids))
            state.select(keep)
        if num_beams > 1:
            state.reorder(beams)
    return [sorted(found, key=_rank)[:n_best] for found in complete]


def _best_tokens(
    model: Decodable, ids: np.ndarray, state: Any, k: int, forbidden: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return log-probabilities and ids of the k best tokens after each prefix, `(B, K, min(k, V))` in host memory.

    A beam of k can't hold more than k extensions of a prefix, so the other tokens never leave the device.
    """
    ops = model.ops
    log_probs = ops.log_softmax(model.decode_step(ids, state))  # (B, K, V)
    if forbidden:
        log_probs[..., list(forbidden)] = -float("inf")
    values, tokens = (ops.to_numpy(best) for best in ops.topk(log_probs, min(k, log_probs.shape[-1])))
    if np.isnan(values).any():  # softmax spreads a NaN over its row, and topk takes NaN for the largest number
        raise FloatingPointError("the model's logits are NaN: its parameters are not finite or far too large")
    return values.astype(np.float64), tokens


def _best_extensions(
    log_probs: np.ndarray, token_log_probs: np.ndarray, tokens: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best K extensions of prefixes (B, K) by their best tokens (B, K, k): beam, token, log-probability."""
    num_sentences, num_beams, k = tokens.shape
    totals = (log_probs[:, :, None] + token_log_probs).reshape(num_sentences, num_beams * k)
    best = np.argsort(-totals, axis=1, kind="stable")[:, :num_beams]  # ties: the better prefix, then the smaller id
    places = best + num_beams * k * np.arange(num_sentences)[:, None]
    return best // k, tokens.take(places), totals.take(places)


def _close_up(running: np.ndarray) -> np.ndarray:
    """Return the running sentences, with the last ones in the places of those that ended: so few of them move."""
    count = np.count_nonzero(running)
    kept = np.arange(count)
    kept[~running[:count]] = count + np.flatnonzero(running[count:])
    return kept


def _hypothesis(model: Decodable, output: np.ndarray, log_prob: Any, alpha: float) -> Hypothesis:
    """Return the hypothesis of a finished `output`, which ends with the end-of-sentence token or was cut off."""
    ended = bool(is_end(output[-1], model.config))
    score = float(log_prob / penalty(len(output), alpha))
    return Hypothesis(output[: len(output) - ended].tolist(), score, float(log_prob), ended)


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    """Return a sort key: hypotheses that ended come first, and among them those with better scores."""
    return not hypothesis.ended, -hypothesis.score


def _nth_best(found: list[Hypothesis], n: int) -> float:
    """Return the n-th best score; −inf while there are fewer."""
    # Cut-off hypotheses may count here: they come at the last step, after which there is nothing to stop.
    scores = sorted((hypothesis.score for hypothesis in found), reverse=True)
    return scores[n - 1] if len(scores) >= n else -np.inf


def _longest_outputs(model: Decodable, source: np.ndarray, max_extra: int) -> np.ndarray:
    """Return the most output tokens of each sentence, `(B,)`: its length + max_extra, at most the max_length."""
    if not isinstance(source, np.ndarray) or source.dtype.kind not in "iu":
        given = source.dtype if isinstance(source, np.ndarray) else type(source).__name__
        raise TypeError(f"source must be an integer NumPy array, got {given}")
    if source.ndim != 2:
        raise ValueError(f"source has shape {source.shape}, expected 2 axes (B, Ts)")
    if max_extra < 1:
        raise ValueError(f"max_extra is {max_extra}, expected at least 1")
    return np.minimum((source != model.config.pad_id).sum(axis=1) + max_extra, most_tokens(model.config))


def _check_length_penalty(length_penalty: float) -> None:
    if not 0 <= length_penalty <= MOST_LENGTH_PENALTY:
        raise ValueError(f"length_penalty is {length_penalty}, expected a number from 0 to {MOST_LENGTH_PENALTY:g}")
