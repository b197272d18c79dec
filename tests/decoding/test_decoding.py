"""Beam search against exhaustive search and against a search in plain loops, on a language model that is a table."""

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitransformer.decoding import Hypothesis, beam_search, greedy_search, penalty
from minitransformer.decoding.sampling import nucleus, softmax_of
from minitransformer.ops import numpy_ops

PAD, BOS, EOS = 0, 1, 2


class TableModel:
    """A language model whose next-token distribution is any function of the source and the whole prefix."""

    def __init__(self, vocab_size: int, max_length: int, seed: int = 0, eos_bonus: float = 0.0):
        special = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS}
        self.config: Any = SimpleNamespace(vocab_size=vocab_size, max_length=max_length, **special)
        self.ops = numpy_ops
        self.seed, self.eos_bonus = seed, eos_bonus
        self.known: dict[tuple[bytes, bytes], np.ndarray] = {}
        self.positions_computed = 0

    def logits(self, source: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        source = source[source != PAD]
        asked = source.tobytes(), prefix.tobytes()
        if asked not in self.known:
            logits = np.random.default_rng([self.seed, *source, 0, *prefix]).standard_normal(self.config.vocab_size)
            logits[EOS] += self.eos_bonus
            logits[[PAD, BOS]] += 2.0  # tempting, and forbidden
            self.known[asked] = logits
        return self.known[asked]

    def log_probs(self, source: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        logits = self.logits(source, prefix)
        log_probs = logits - np.log(np.exp(logits).sum())
        log_probs[[PAD, BOS]] = -np.inf
        return log_probs

    def start_decoding(self, source: np.ndarray, num_beams: int = 1) -> "TableState":
        return TableState(source, np.zeros((len(source), num_beams, 0), dtype=np.int64))

    def decode_step(self, ids: np.ndarray, state: "TableState") -> np.ndarray:
        state.prefixes = np.concatenate([state.prefixes, ids[:, :, None]], axis=2)
        self.positions_computed += ids.size
        pairs = zip(state.source, state.prefixes, strict=True)
        return np.array([[self.logits(source, prefix[1:]) for prefix in beams] for source, beams in pairs])


class TableState:
    """The prefixes themselves, `<s>` first: a reorder or a select gone wrong changes every later distribution."""

    def __init__(self, source: np.ndarray, prefixes: np.ndarray):
        self.source, self.prefixes = source, prefixes

    def reorder(self, beams: np.ndarray) -> None:
        self.prefixes = np.take_along_axis(self.prefixes, beams[:, :, None], axis=1)

    def select(self, sentences: np.ndarray) -> None:
        self.source, self.prefixes = self.source[sentences], self.prefixes[sentences]


def sources(*lengths: int) -> np.ndarray:
    """Different sentences of these lengths, padded on the right."""
    rows = np.zeros((len(lengths), max(lengths)), dtype=np.int64)
    for i, length in enumerate(lengths):
        rows[i, :length] = 3 + (np.arange(length) * (i + 2) + i) % 50
    return rows


def exhaustive(model: TableModel, source: np.ndarray, limit: int, alpha: float) -> list[Hypothesis]:
    """Every output there is, best first."""
    words = [token for token in range(model.config.vocab_size) if token not in (PAD, BOS, EOS)]
    found = []
    for length in range(limit + 1):
        for ids in itertools.product(words, repeat=length):
            prefix = np.array(ids, dtype=np.int64)
            log_prob = sum(model.log_probs(source, prefix[:t])[ids[t]] for t in range(length))
            ended = length < limit
            if ended:
                log_prob += model.log_probs(source, prefix)[EOS]
            found.append(Hypothesis(list(ids), log_prob / ((5 + length + ended) / 6) ** alpha, log_prob, ended))
    return sorted(found, key=lambda h: (not h.ended, -h.score))


def search_in_loops(
    model: TableModel, source: np.ndarray, num_beams: int, limit: int, alpha: float
) -> list[Hypothesis]:
    """Beam search as it is told: one sentence, lists, no early stop."""
    beam, found = [(0.0, [])], []
    for length in range(1, limit + 1):
        extensions = []
        for log_prob, prefix in beam:
            for token, p in enumerate(model.log_probs(source, np.array(prefix, dtype=np.int64))):
                if token not in (PAD, BOS):
                    extensions.append((log_prob + p, [*prefix, token]))
        extensions.sort(key=lambda extension: -extension[0])
        beam = []
        for log_prob, prefix in extensions[: num_beams - len(found)]:
            ended = prefix[-1] == EOS
            if ended or length == limit:
                ids, score = prefix[:-1] if ended else prefix, log_prob / ((5 + length) / 6) ** alpha
                found.append(Hypothesis(ids, score, log_prob, ended))
            else:
                beam.append((log_prob, prefix))
    return sorted(found, key=lambda h: (not h.ended, -h.score))


def assert_same(ours: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(h.ids, h.ended) for h in ours] == [(h.ids, h.ended) for h in expected]
    np.testing.assert_allclose([h.score for h in ours], [h.score for h in expected], rtol=0, atol=1e-12)
    np.testing.assert_allclose([h.log_prob for h in ours], [h.log_prob for h in expected], rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("vocab_size", "limit"), [(4, 5), (5, 4), (6, 3)])
def test_a_beam_as_wide_as_the_search_space_finds_what_exhaustive_search_finds(vocab_size, limit, alpha):
    model = TableModel(vocab_size, max_length=limit, seed=vocab_size)
    source = sources(2, 3)
    width = vocab_size**limit
    results = beam_search(model, source, num_beams=width, length_penalty=alpha, n_best=width)
    for row, ours in zip(source, results, strict=True):
        assert_same(ours, exhaustive(model, row, limit, alpha))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(4, 9),
    num_beams=st.integers(1, 6),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    max_extra=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
    eos_bonus=st.sampled_from([-2.0, 0.0, 2.0]),
)
def test_the_vectorised_search_equals_one_in_loops(seed, vocab_size, num_beams, lengths, max_extra, alpha, eos_bonus):
    model = TableModel(vocab_size, max_length=8, seed=seed, eos_bonus=eos_bonus)
    source = sources(*lengths)
    everything = beam_search(model, source, num_beams, alpha, n_best=num_beams, max_extra=max_extra)
    best = beam_search(model, source, num_beams, alpha, n_best=1, max_extra=max_extra)
    for row, length, ours, first in zip(source, lengths, everything, best, strict=True):
        expected = search_in_loops(model, row, num_beams, min(length + max_extra, 8), alpha)
        assert_same(ours, expected)
        assert first == ours[:1]  # the early stop changed nothing


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    eos_bonus=st.sampled_from([-1.0, 1.0]),
)
def test_greedy_search_is_a_beam_of_one(seed, lengths, eos_bonus):
    model = TableModel(7, max_length=9, seed=seed, eos_bonus=eos_bonus)
    source = sources(*lengths)
    greedy = greedy_search(model, source, length_penalty=0.6, max_extra=4)
    assert [[h] for h in greedy] == beam_search(model, source, num_beams=1, max_extra=4)
    assert [h.score for h in greedy_search(model, source, max_extra=4)] == [h.log_prob for h in greedy]


def test_outputs_are_at_most_fifty_tokens_longer_than_the_source_and_never_above_the_model_s_maximum():
    endless = TableModel(5, max_length=60, eos_bonus=-50.0)
    source = sources(3, 9, 14)
    for found in (greedy_search(endless, source), [best for (best,) in beam_search(endless, source, num_beams=2)]):
        assert [len(h.ids) for h in found] == [53, 59, 60]
        assert not any(h.ended for h in found)


def test_what_ended_ranks_before_what_was_cut_off():
    model = TableModel(6, max_length=3, seed=1, eos_bonus=-6.0)
    found = beam_search(model, sources(2), num_beams=200, n_best=200)[0]
    ended, cut_off = ([h.score for h in found if h.ended is flag] for flag in (True, False))
    assert [h.score for h in found] == sorted(ended, reverse=True) + sorted(cut_off, reverse=True)
    assert max(cut_off) > max(ended)


def test_sentences_leave_the_batch_when_they_are_done():
    model = TableModel(6, max_length=40, seed=3)
    lengths = [len(h.ids) + h.ended for h in greedy_search(model, sources(*range(1, 13)))]
    assert model.positions_computed == sum(lengths) < len(lengths) * max(lengths)


def test_the_search_stops_as_soon_as_nothing_can_win():
    sure = TableModel(6, max_length=60, seed=0, eos_bonus=9.0)  # P(empty output) is nearly 1
    best = beam_search(sure, sources(4), num_beams=4, length_penalty=0.6)
    assert best[0][0].ids == []
    assert sure.positions_computed == 4  # one step of four beams
    one_step = sure.positions_computed
    beam_search(sure, sources(4), num_beams=4, length_penalty=0.6, n_best=4)
    assert sure.positions_computed > 2 * one_step


class UniformModel(TableModel):
    """All tokens are equally probable, always."""

    def logits(self, source, prefix):
        return np.zeros(self.config.vocab_size)


def test_ties_go_to_the_better_prefix_then_to_the_smaller_id():
    model = UniformModel(7, max_length=2)
    assert greedy_search(model, sources(1))[0].ids == []  # the end of the sentence has the smallest id
    found = beam_search(model, sources(1, 2), num_beams=4, length_penalty=0.0, n_best=4)
    assert [h.ids for h in found[0]] == [[], [3], [3, 3], [3, 4]]
    assert found[0] == found[1]


def test_the_length_penalty_is_the_one_of_wu_et_al():
    assert penalty(1, 0.6) == 1
    assert penalty(7, 1.0) == 2
    assert penalty(19, 0.5) == 2
    found = beam_search(TableModel(6, max_length=8, seed=5), sources(3), num_beams=3, length_penalty=0.5, n_best=3)[0]
    for h in found:
        assert h.score == h.log_prob / penalty(len(h.ids) + h.ended, 0.5)


def test_an_empty_batch_gives_nothing():
    nothing = np.zeros((0, 5), dtype=np.int64)
    assert greedy_search(TableModel(5, 5), nothing) == []
    assert beam_search(TableModel(5, 5), nothing) == []


class NaNModel(TableModel):
    """A model that has diverged."""

    def logits(self, source, prefix):
        return np.full(self.config.vocab_size, np.nan)


def test_bad_input_is_named():
    model = TableModel(5, max_length=5)
    for search in (greedy_search, beam_search):
        with pytest.raises(TypeError, match="source must be an integer NumPy array, got float64"):
            search(model, np.zeros((1, 3)))
        with pytest.raises(TypeError, match="got list"):
            search(model, [[3, 4]])  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match=r"source has shape \(3,\), expected 2 axes"):
            search(model, np.array([3, 4, 2]))
        with pytest.raises(ValueError, match="max_extra is 0"):
            search(model, sources(2), max_extra=0)
        for value in (-0.1, 10.1, 300.0, math.inf, math.nan):
            with pytest.raises(ValueError, match=f"length_penalty is {value}, expected a number from 0 to 10"):
                search(model, sources(2), length_penalty=value)
        with pytest.raises(FloatingPointError, match="logits are NaN"):
            search(NaNModel(5, 5), sources(2))
    for n_best in (0, 5):
        with pytest.raises(ValueError, match=f"n_best is {n_best}, expected 1 to num_beams, which is 4"):
            beam_search(model, sources(2), num_beams=4, n_best=n_best)
    with pytest.raises(ValueError, match="num_beams is 0, expected 1 or more"):
        beam_search(model, sources(2), num_beams=0)


@pytest.mark.parametrize("size", [5, 700, 40_000])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("p", [1e-9, 0.5, 0.9, 1.0])
def test_the_nucleus_is_that_of_all_tokens_sorted(size, sharpness, p):
    logits = np.random.default_rng(size).standard_normal(size).round(2)  # with ties
    probabilities = softmax_of(sharpness * logits)
    order = np.argsort(-probabilities, kind="stable")
    wanted = order[np.cumsum(probabilities[order]) - probabilities[order] < p]
    assert nucleus(probabilities, p).tolist() == wanted.tolist()
