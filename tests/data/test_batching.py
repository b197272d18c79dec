"""Batches: every pair once an epoch, in rectangles no larger than asked, the same whenever they are asked for."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from support.multi30k_files import multi30k_dir

from minitransformer.data.batching import BOS_ID, EOS_ID, Batch, Marks, collate, pad
from minitransformer.data.sentence_pairs import corpus_from_folder
from minitransformer.data.token_dataset import Batches, TokenDataset
from minitransformer.models import T5Config, build_model
from minitransformer.ops import numpy_ops
from minitransformer.training.step import Worker

SENTENCE = st.lists(st.integers(3, 99), max_size=12)
Pairs = list[tuple[list[int], list[int]]]
PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=60)


def random_dataset(num_pairs: int, seed: int = 0) -> TokenDataset:
    """Pairs of about the same length, as translations are."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.gamma(4, 3, num_pairs), 1, 40).astype(int)
    sides = [(n, max(1, n + int(rng.integers(-2, 3)))) for n in lengths]
    return TokenDataset.from_pairs([(rng.integers(3, 99, s), rng.integers(3, 99, t)) for s, t in sides])


def collate_pairs(pairs: Sequence[tuple[ArrayLike, ArrayLike]], first: int = 0) -> Batch:
    """A batch of (source, target) pairs."""
    return collate([source for source, _ in pairs], [target for _, target in pairs], first)


def rows(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """The pairs of a batch, taken from its arrays: padding must be on the right and the specials in place."""
    pairs = []
    for source, target_in, target_out in zip(batch.source, batch.target_in, batch.target_out, strict=True):
        source, target_in, target_out = (np.trim_zeros(row, "b").tolist() for row in (source, target_in, target_out))
        assert source.pop() == EOS_ID
        assert target_out.pop() == EOS_ID
        assert target_in.pop(0) == BOS_ID
        assert target_in == target_out
        assert 0 not in source + target_out
        pairs.append((source, target_out))
    return pairs


def test_pad() -> None:
    np.testing.assert_array_equal(pad([[5, 6, 7], [], [8]]), [[5, 6, 7], [0, 0, 0], [8, 0, 0]])
    np.testing.assert_array_equal(pad([[5], [6, 7]], pad_id=9), [[5, 9], [6, 7]])
    assert pad([]).shape == (0, 0)
    assert pad([[1]]).dtype == np.int64


def test_collate_spells_out_the_specials() -> None:
    batch = collate([[5, 6, 7], [8]], [[9], [10, 11]], first=4)
    np.testing.assert_array_equal(batch.source, [[5, 6, 7, 2], [8, 2, 0, 0]])
    np.testing.assert_array_equal(batch.target_in, [[1, 9, 0], [1, 10, 11]])
    np.testing.assert_array_equal(batch.target_out, [[9, 2, 0], [10, 11, 2]])
    assert (batch.first, batch.num_sentences, batch.num_source_tokens, batch.num_target_tokens) == (4, 2, 6, 5)


@given(PAIRS)
def test_collate_keeps_every_pair_in_its_row(pairs: Pairs) -> None:
    batch = collate_pairs(pairs)
    assert rows(batch) == pairs
    assert batch.source.shape[1] == max(len(source) for source, _ in pairs) + 1
    assert batch.target_in.shape == batch.target_out.shape


@pytest.mark.parametrize(
    ("sources", "targets", "error", "message"),
    [
        ([[3]], [], ValueError, "1 sources and 0 targets"),
        ([[3, 0]], [[3]], ValueError, r"positive \(0 is padding\), got 0"),
        ([[3]], [[4, -7]], ValueError, "got -7"),
        ([[3.5]], [[3]], TypeError, "integers, got float64"),
    ],
)
def test_collate_refuses(sources: list, targets: list, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        collate(sources, targets)


@given(PAIRS, st.integers(1, 9), st.integers(0, 5))
def test_split_then_concatenate_is_the_identity(pairs: Pairs, n: int, first: int) -> None:
    batch = collate_pairs(pairs, first)
    parts = batch.split(n)
    assert 1 <= len(parts) <= n
    assert [pair for part in parts for pair in rows(part)] == pairs
    ends = [part.first + part.num_sentences for part in parts]
    assert [part.first for part in parts] == [first, *ends[:-1]]
    for part in parts:
        assert part.num_sentences > 0
        assert part.source[:, -1].any(), "a column of padding was not trimmed"
        assert part.target_out[:, -1].any(), "a column of padding was not trimmed"
        assert part.target_in.shape == part.target_out.shape


@given(PAIRS, st.integers(1, 4))
def test_parts_hold_about_as_many_tokens(pairs: Pairs, n: int) -> None:
    """Each cut lies where the tokens are even, give or take half a sentence pair: 13 + 13 tokens at most here."""
    batch = collate_pairs(pairs)
    parts = batch.split(n)
    total = batch.num_source_tokens + batch.num_target_tokens
    for part in parts:
        assert part.num_source_tokens + part.num_target_tokens <= total / n + 26


@pytest.mark.parametrize("pairs", [[([3], [3] * 9), ([3], [3])], [([3], [3]), ([3], [3] * 9)]])
def test_two_pairs_have_two_halves(pairs: Pairs) -> None:
    """However uneven the pairs are: a cut goes to the nearer side of a pair."""
    assert [rows(half) for half in collate_pairs(pairs).split(2)] == [[pair] for pair in pairs]


def test_splitting_an_empty_batch_or_into_none() -> None:
    assert collate([], []).split(2) == []
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        collate([[3]], [[3]]).split(0)


@given(PAIRS, st.integers(13, 200), st.integers(0, 2**32), st.integers(0, 1000))
def test_every_pair_is_in_one_batch_of_an_epoch(pairs: Pairs, tokens_per_batch: int, seed: int, epoch: int) -> None:
    batches = Batches(TokenDataset.from_pairs(pairs), tokens_per_batch, seed)
    indices = [batches.indices(epoch, index) for index in range(len(batches))]
    assert sorted(np.concatenate(indices)) == list(range(len(pairs)))
    for chosen, batch in zip(indices, batches.epoch(epoch), strict=True):
        assert rows(batch) == [pairs[i] for i in chosen]
        assert max(batch.source.shape[1], batch.target_in.shape[1]) * batch.num_sentences <= tokens_per_batch
        lengths = [(len(source), len(target)) for source, target in rows(batch)]
        assert lengths == sorted(lengths)


def test_batches_are_as_large_as_they_may_be() -> None:
    """In order of length, no batch could take the first pair of the next one."""
    dataset = random_dataset(2_000)
    batches = Batches(dataset, 300)
    longer = np.maximum(dataset.source_lengths, dataset.target_lengths) + 1
    by_length = [sorted(longer[batches.indices(0, index)]) for index in range(len(batches))]
    by_length.sort(key=lambda batch: (batch[-1], batch[0], -len(batch)))
    for batch, following in pairwise(by_length):
        assert following[0] * (len(batch) + 1) > 300


def test_a_batch_depends_on_seed_epoch_and_index_only() -> None:
    dataset = random_dataset(500)
    straight = [batch.source for epoch in range(3) for batch in Batches(dataset, 400, seed=7).epoch(epoch)]
    jumping = Batches(dataset, 400, seed=7)
    for step in reversed(range(len(straight))):
        np.testing.assert_array_equal(jumping.batch(*divmod(step, len(jumping))).source, straight[step])
    resumed = [batch.source for batch in Batches(dataset, 400, seed=7).epoch(1, start=5)]
    for here, there in zip(resumed, straight[len(jumping) + 5 : 2 * len(jumping)], strict=True):
        np.testing.assert_array_equal(here, there)


def test_epochs_and_seeds_differ_in_order_and_in_company() -> None:
    dataset = random_dataset(2_000)
    batches, other = Batches(dataset, 400, seed=1), Batches(dataset, 400, seed=2)
    first, second, other_first = (
        [tuple(source.indices(epoch, index)) for index in range(len(source))]
        for source, epoch in ((batches, 0), (batches, 1), (other, 0))
    )
    for here, there in ((first, second), (first, other_first)):
        assert here != there
        same_company = set(map(frozenset, here)) & set(map(frozenset, there))
        assert len(same_company) < 0.1 * len(here)


def test_lengths_are_not_in_order_over_an_epoch() -> None:
    widths = [batch.source.shape[1] for batch in Batches(random_dataset(3_000), 400).epoch(0)]
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.3


def padding(batches: list[Batch]) -> float:
    """The share of padding in the rectangles that a model sees."""
    cells = sum(batch.source.size + batch.target_out.size for batch in batches)
    return 1 - sum(batch.num_source_tokens + batch.num_target_tokens for batch in batches) / cells


def test_little_padding() -> None:
    """Below 8 %, where batches of the same pairs without sorting are half padding; and halves pad less."""
    dataset = random_dataset(10_000)
    batches = list(Batches(dataset, 2_000).epoch(0))
    unsorted = [collate_pairs([dataset[i + j] for j in range(100)]) for i in range(0, 10_000, 100)]
    assert padding(unsorted) > 0.4
    assert padding(batches) < 0.08
    assert padding([half for batch in batches for half in batch.split(2)]) < padding(batches)


def test_little_padding_on_real_text() -> None:
    """Words stand for tokens: 6 % of a Multi30k batch is padding."""
    folder = multi30k_dir()
    if folder is None:
        pytest.skip("Multi30k is not on this machine: set MULTI30K_DIR to the folder of its .gz files")
    words = [(source.split(), target.split()) for source, target in corpus_from_folder(folder, "en", "de").train.read()]
    pairs = [([3] * len(source), [3] * len(target)) for source, target in words]
    assert padding(list(Batches(TokenDataset.from_pairs(pairs), 4_096).epoch(0))) < 0.08


def test_batches_refuses() -> None:
    dataset = TokenDataset.from_pairs([([3, 4], [5] * 9), ([6], [80])])
    with pytest.raises(ValueError, match="tokens_per_batch is 9, but the longest sentence has 10 tokens"):
        Batches(dataset, 9)
    assert len(Batches(dataset, 10)) == 2
    with pytest.raises(ValueError, match="holds token id 80, but the vocabulary has 80 tokens"):
        Batches(dataset, 100, vocab_size=80)
    assert len(Batches(dataset, 100, vocab_size=81)) == 1
    with pytest.raises(ValueError, match="max_length is 9, but the longest sentence has 10 tokens"):
        Batches(dataset, 100, max_length=9)
    assert len(Batches(dataset, 100, max_length=10)) == 1
    with pytest.raises(IndexError, match="batches 0 to 0, got 1"):
        Batches(dataset, 100).batch(0, 1)


def test_padding_of_a_source_is_masked_where_targets_begin_with_it():
    """A T5 infers no mask: the loss of two pairs together is the mean of theirs, also in parts."""
    config = T5Config(vocab_size=30, d_model=8, num_heads=2, d_k=4, d_ff=12, num_layers=1, max_length=16, dropout=0.0)
    model, marks = build_model(config, numpy_ops, "float64", seed=0), Marks(0, 0, 1)
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(2, 30, n), rng.integers(2, 30, m)) for n, m in ((9, 3), (2, 7))]
    together = collate([source for source, _ in pairs], [target for _, target in pairs], marks=marks)
    alone = [collate([source], [target], marks=marks) for source, target in pairs]
    worker = Worker(model)
    losses = [worker.gradients([batch], 0.0, 0, 1) * batch.num_targets for batch in alone]
    for batches in ([together], together.split(2)):
        assert worker.gradients(batches, 0.0, 0, 1) == pytest.approx(sum(losses) / together.num_targets, rel=1e-12)
