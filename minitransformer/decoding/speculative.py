"""Speculative decoding: a draft proposes tokens, and the model, which reads them all at once, takes or refuses each.

The model's weights come from memory once for all of them, where one by one they come once for each. A proposed token x,
drawn from the draft's q, is taken with the probability min(1, p(x) / q(x)). The first one that is refused gives way to
a token drawn from max(0, p − q), normalised, and the proposals after it are dropped. After k that are taken comes one
from p. The sum of max(0, p − q) is also the probability of a refusal, 1 − Σ min(p, q), so

    P(x) = q(x) · min(1, p(x) / q(x)) + max(0, p(x) − q(x)) = min(p(x), q(x)) + max(0, p(x) − q(x)) = p(x)

and texts have the model's own distribution, whatever the draft is.

Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import takewhile

import numpy as np

from ..models import GPT, Decoding, most_tokens
from .sampling import Sampling, drawn

LONGEST_MATCH = 8
"""The most tokens that `PromptDraft` compares."""


def take(p: np.ndarray, q: np.ndarray, proposals: Sequence[int], uniforms: np.ndarray) -> tuple[int, int]:
    """Return how many proposals are taken, and the token that comes after them.

    p `(k + 1, V)` and q `(k, V)` are the probabilities of the model and of the draft at each place, `proposals` the k
    tokens drawn from q, and uniforms `(k + 1,)` numbers from 0 to below 1: one for each proposal, and one to draw with.
    """
    for i, token in enumerate(proposals):
        if uniforms[i] * q[i, token] >= p[i, token]:
            return i, drawn(np.maximum(p[i] - q[i], 0), uniforms[-1])
    return len(proposals), drawn(p[-1], uniforms[-1])


class Draft(ABC):
    """The base of drafts, which propose up to `num_tokens` tokens at a time, of a vocabulary of `vocab_size`.

    `proposed` and `accepted` count tokens, and `calls` how often the model has read some, since the draft was made.
    """

    def __init__(self, vocab_size: int, num_tokens: int = 4) -> None:
        if num_tokens < 1:
            raise ValueError(f"num_tokens is {num_tokens}, expected 1 or more")
        self.vocab_size, self.num_tokens = vocab_size, num_tokens
        self.proposed = self.accepted = self.calls = 0

    @abstractmethod
    def propose(
        self, ids: list[int], count: int, sampling: Sampling, rng: np.random.Generator
    ) -> tuple[list[int], np.ndarray]:
        """Return at most `count` tokens to follow `ids`, and the distributions `(k, V)` they were drawn from."""


class ModelDraft(Draft):
    """Proposes what another language model of the same vocabulary draws, by the same rules of sampling."""

    def __init__(self, model: GPT, num_tokens: int = 4) -> None:
        super().__init__(model.config.vocab_size, num_tokens)
        self.model, self.state, self.known = model, model.start_decoding(np.empty((1, 0), np.int64)), list[int]()

    def propose(
        self, ids: list[int], count: int, sampling: Sampling, rng: np.random.Generator
    ) -> tuple[list[int], np.ndarray]:
        """Draw token by token; the state goes back to where the text has changed, or else reads it all again."""
        model, text, q = self.model, list(ids), list[np.ndarray]()
        self.known = ids[: common_length(self.known, ids[:-1])]
        if not self.state.cache.go_back(len(self.known)):
            self.known, self.state = [], model.start_decoding(np.empty((1, 0), np.int64))
        for _ in range(min(count, most_tokens(model.config) + 1 - len(ids))):
            (logits,) = read(model, text[len(self.known) :], self.state, 1)
            self.known = list(text)
            q.append(sampling.probabilities(logits, np.array(text)))
            text.append(drawn(q[-1], rng.random()))
        return text[len(ids) :], np.array(q)


class LayersDraft(ModelDraft):
    """Proposes what the model's own first `num_layers` layers would say, read by its last norm and output layer."""

    def __init__(self, model: GPT, num_layers: int, num_tokens: int = 4) -> None:
        count = len(model.decoder.layers)
        if not 1 <= num_layers < count:
            raise ValueError(f"num_layers is {num_layers}, expected at least 1 and fewer than the model's {count}")
        early = copy(model)
        early.decoder = copy(model.decoder)
        early.decoder.layers = model.decoder.layers[:num_layers]
        super().__init__(early, num_tokens)


class PromptDraft(Draft):
    """Proposes what followed the text's last tokens where they stood before: for texts that repeat themselves.

    It takes the place where the most tokens before are the same, two or more, and the last of several such places. What
    it proposes is sure: each distribution is 1 for one token. Source: Saxena 2023, prompt lookup decoding.
    """

    def propose(
        self, ids: list[int], count: int, sampling: Sampling, rng: np.random.Generator
    ) -> tuple[list[int], np.ndarray]:
        """Look the last tokens up; where the text ends too soon, what followed is repeated."""
        text, places = np.array(ids), np.arange(len(ids) - 1)
        best = places[:0]
        for back in range(min(LONGEST_MATCH, len(places))):  # the n-gram has one token more
            places = places[places >= back]
            places = places[text[places - back] == text[-1 - back]]
            best = places if back and len(places) else best  # one token alone is not enough
        proposals = np.resize(text[best[-1] + 1 :], count) if len(best) else text[:0]
        q = np.zeros((len(proposals), self.vocab_size))
        q[np.arange(len(proposals)), proposals] = 1
        return proposals.tolist(), q


def check_draft(draft: Draft, model: GPT) -> None:
    """Raise ValueError for a draft with another number of tokens, and for a model that can't take back what it read."""
    if draft.vocab_size != model.config.vocab_size:
        raise ValueError(f"the draft has {draft.vocab_size} tokens, and the model has {model.config.vocab_size}")
    if model.config.attention == "linear":
        raise ValueError("linear attention keeps sums of what it reads, so no token of a draft can be taken back")


def speculate(
    model: GPT,
    draft: Draft,
    ids: Sequence[int],
    limit: int,
    sampling: Sampling,
    text: int,
    forbidden: Sequence[int],
    state: Decoding,
) -> Iterator[int]:
    """Yield `limit` tokens that follow `ids`, of text number `text`; `state` has read all of them but the last.

    As without a draft, random numbers depend only on seed, number and length of the text. The state has read every
    token that is yielded but the last one, and may be one step ahead of a caller who stops.
    """
    ids, stop = list(ids), len(ids) + limit
    while len(ids) < stop:
        rng = np.random.default_rng([sampling.seed, text, len(ids)])
        proposals, q = draft.propose(ids, min(draft.num_tokens, stop - len(ids) - 1), sampling, rng)
        logits = read(model, [ids[-1], *proposals], state, len(proposals) + 1)  # (k + 1, V)
        logits[:, forbidden] = -np.inf
        p = np.stack([sampling.probabilities(row, np.array(ids + proposals[:i])) for i, row in enumerate(logits)])
        taken, last = take(p, q, proposals, rng.random(len(proposals) + 1))
        state.cache.go_back(len(ids) + taken)
        draft.proposed, draft.accepted = draft.proposed + len(proposals), draft.accepted + taken
        draft.calls += 1
        new = [*proposals[:taken], last]
        ids += new
        yield from new


def read(model: GPT, ids: Sequence[int], state: Decoding, count: int) -> np.ndarray:
    """Read the next tokens of a text; return the logits `(count, V)` after each of the last, on the host."""
    hidden = model.read(model.ops.asarray([ids], "int64"), state)  # (1, T, C)
    return model.ops.to_numpy(model.output.logits(hidden[:, -count:])[0])[0]


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many ids two texts have in common at their start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
