"""The family's data: no token lost or counted twice, masks and gaps as the papers draw them, the same for a seed."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.data.batching import BOS_ID, EOS_ID
from minitransformer.data.digits import ImageDataset, digits
from minitransformer.data.labelled import LabelledText
from minitransformer.data.masked import MaskedText, hide
from minitransformer.data.rows import IGNORED, Rows
from minitransformer.data.scenes import SceneDataset
from minitransformer.data.spans import SENTINELS, SpanText, corrupt, gaps, lengths, row_length
from minitransformer.data.text import TextDataset
from minitransformer.data.tokenizer import FIRST_BYTE, BPETokenizer
from minitransformer.models import Captioner

WORDS = 400
MASK = WORDS
LINES = st.lists(st.lists(st.integers(FIRST_BYTE, WORDS - 1), min_size=1, max_size=12), min_size=1, max_size=30)
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 64)


def a_config(**values: Any) -> SimpleNamespace:
    """Return the fields that datasets read in a configuration."""
    special = {"pad_id": 0, "bos_id": BOS_ID, "eos_id": EOS_ID, "mask_id": MASK}
    return SimpleNamespace(**{"vocab_size": WORDS + SENTINELS, "max_length": 16, "num_classes": 2} | special | values)


def a_text(num_lines: int = 50, seed: int = 0) -> TextDataset:
    rng = np.random.default_rng(seed)
    return TextDataset.from_lines(rng.integers(FIRST_BYTE, WORDS, rng.integers(1, 13)) for _ in range(num_lines))


def the_images(num_images: int = 40) -> ImageDataset:
    rng = np.random.default_rng(0)
    return ImageDataset(rng.standard_normal((num_images, 1, 8, 8)), rng.integers(0, 10, num_images))


IMAGES = a_config(channels=1, image_size=8, num_classes=10, num_patches=16)
DATASETS = {
    "text": (a_text(), a_config()),
    "masked": (MaskedText(a_text()), a_config()),
    "spans": (SpanText(a_text()), a_config()),
    "labelled": (LabelledText(a_text(), np.arange(50) % 2), a_config()),
    "images": (the_images(), IMAGES),
    "scenes": (
        SceneDataset("train", 14),
        a_config(channels=3, image_size=32, num_patches=10, vocab_size=400, model=Captioner),
    ),
}


def arrays(batch: Any) -> list[Any]:
    return [each.tolist() for each in batch.inputs if each is not None]


@pytest.mark.parametrize("name", DATASETS)
def test_batches_follow_from_seed_epoch_and_number(name: str) -> None:
    dataset, config = DATASETS[name]
    batches, again, other = (dataset.batches(40, seed, config) for seed in (5, 5, 6))
    whole = [arrays(batch) for batch in batches.epoch(1)]
    assert len(whole) == len(batches) > 3
    assert [arrays(batch) for batch in again.epoch(1, 2)] == whole[2:]
    assert arrays(again.batch(1, 0)) == whole[0]  # asked for late, and it is the same
    assert [arrays(batch) for batch in batches.epoch(2)] != whole
    assert [arrays(batch) for batch in other.epoch(1)] != whole
    validation = dataset.batches(40, None, config)
    assert [arrays(batch) for batch in validation.epoch(7)] == [arrays(batch) for batch in validation.epoch(0)]
    with pytest.raises(IndexError, match="an epoch has batches 0 to"):
        batches.batch(0, len(batches))


@pytest.mark.parametrize("name", ["text", "spans"])
def test_each_epoch_cuts_the_stream_elsewhere(name: str) -> None:
    dataset, config = DATASETS[name]
    batches: Any = dataset.batches(10**6, 0, config)  # one batch
    cuts = [sorted(batches.batch(epoch, 0).inputs[0][:, 0].tolist()) for epoch in range(8)]
    assert len({tuple(cut) for cut in cuts}) > 4


def test_each_epoch_hides_other_tokens() -> None:
    batches = MaskedText(a_text(1)).batches(64, 0, a_config())
    assert len(batches) == 1
    places = {(batches.batch(epoch, 0).targets != IGNORED).tobytes() for epoch in range(20)}
    assert len(places) > 2


@pytest.mark.parametrize("name", DATASETS)
def test_split_keeps_every_row_its_number_and_its_targets(name: str) -> None:
    dataset, config = DATASETS[name]
    batch = dataset.batches(100, 0, config).batch(0, 0)
    for n in (1, 2, 3, 100):
        parts = batch.split(n)
        assert [part.first for part in parts] == np.cumsum([0, *(part.num_sentences for part in parts)])[:-1].tolist()
        assert 1 <= len(parts) <= min(n, batch.num_sentences)
        for field in ("num_sentences", "num_targets", "num_tokens"):
            assert sum(getattr(part, field) for part in parts) == getattr(batch, field), field
        if isinstance(batch, Rows):
            for i, whole in enumerate(batch.inputs):
                pieces: list[Any] = [part.inputs[i] for part in parts]
                assert pieces == [None] * len(parts) if whole is None else (np.concatenate(pieces) == whole).all()
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        batch.split(0)


@given(LINES, SIZES, SIZES)
def test_a_validation_of_a_text_asks_for_every_token_once(lines: list[list[int]], length: int, size: int) -> None:
    """In order, each after the token before it, however the rows are cut; the first one follows </s>."""
    text = TextDataset.from_lines(lines)
    stream = [token for line in lines for token in (*line, EOS_ID)]
    batches: list[Any] = list(text.batches(size, None, a_config(max_length=length)).epoch(0))
    ids, targets = (np.concatenate([batch.inputs[i].ravel() for batch in batches]).tolist() for i in (0, 1))
    assert sum(batch.num_targets for batch in batches) == len(stream)
    assert targets[: len(stream)] == stream
    assert set(targets[len(stream) :]) <= {IGNORED}
    assert ids[: len(stream)] == [EOS_ID, *stream[:-1]]
    assert max(batch.num_tokens for batch in batches) <= size


@given(LINES, SIZES, SEEDS)
def test_an_epoch_of_a_text_asks_for_every_token_and_for_few_twice(
    lines: list[list[int]], length: int, seed: int
) -> None:
    places = [range(i * 20, i * 20 + len(line)) for i, line in enumerate(lines)]  # each token is another one
    text = TextDataset.from_lines([FIRST_BYTE + place for place in line] for line in places)
    batches = text.batches(64, seed, a_config(max_length=length, vocab_size=10_000))
    row = min(length, 64, len(text.stream))
    counts = Counter(token for batch in batches.epoch(0) for token in batch.inputs[1].ravel().tolist())
    expected = Counter(text.stream.tolist())
    assert counts.keys() == expected.keys()
    assert 0 <= counts.total() - expected.total() < row
    before = dict(zip(text.stream.tolist(), np.roll(text.stream, 1).tolist(), strict=True))
    for batch in batches.epoch(0):
        ids, targets = batch.inputs
        for token, target in zip(ids.ravel().tolist(), targets.ravel().tolist(), strict=True):
            assert target == EOS_ID or before[target] == token


def test_a_text_on_disk_is_the_text_in_memory(tmp_path: Path) -> None:
    lines = ["the dog barks", "", "the cat", "x" * 50]
    tokenizer = BPETokenizer.train(["the dog barks at the cat"], vocab_size=280)
    built = TextDataset.build(lines, tokenizer, tmp_path / "text", max_length=40)
    memory = TextDataset.from_lines(tokenizer.encode(line) for line in ("the dog barks", "the cat"))
    assert built.stream.tolist() == memory.stream.tolist() == TextDataset.open(tmp_path / "text").stream.tolist()
    assert built.checksum() == memory.checksum()
    assert (len(built), built.lines.num_empty, built.lines.num_too_long) == (2, 1, 1)
    everything = TextDataset.build(lines, tokenizer, tmp_path / "whole", max_length=sys.maxsize)
    assert len(everything) == 3


@given(LINES, SEEDS)
def test_hiding_touches_targets_alone_and_can_be_undone(lines: list[list[int]], seed: int) -> None:
    batches: Any = MaskedText(TextDataset.from_lines(lines)).batches(64, seed, a_config())
    seen = []
    for batch in batches.epoch(3):
        ids, targets, types, mask = batch.inputs
        asked = targets != IGNORED
        assert types is None
        assert asked.any(axis=1).all()
        text = np.where(asked, targets, ids)  # (B, T)
        seen += [row[real].tolist() for row, real in zip(text, mask, strict=True)]
        assert (text[~mask] == 0).all()
        assert (targets[asked] >= FIRST_BYTE).all()  # never <s>, </s> or padding
        for row, count in zip(text, asked.sum(1), strict=True):
            assert count == max(1, round(0.15 * (row >= FIRST_BYTE).sum()))
    assert sorted(seen) == sorted([BOS_ID, *line, EOS_ID] for line in lines)


OURS = np.arange(FIRST_BYTE, MASK)
THEIRS = np.setdiff1d(np.arange(1, MASK + 3), [MASK // 2, 7, MASK])  # the mask and another mark among the words


@pytest.mark.parametrize(("mask", "words"), [(MASK, None), (MASK // 2, THEIRS)], ids=["ours", "another's"])
def test_of_the_targets_80_in_100_are_masked_10_random_and_10_kept(mask: int, words: Any) -> None:
    """Within five standard deviations of binomial counts; a token drawn by chance is the old one in 1 of 397."""
    known = OURS if words is None else words
    ids = known[np.random.default_rng(0).integers(len(known), size=(500, 200))]
    hidden, targets = hide(ids, mask, np.random.default_rng(1), words)
    asked = targets != IGNORED
    n = int(asked.sum())
    assert n == 500 * 30
    assert (hidden[~asked] == ids[~asked]).all()
    masked, kept = hidden[asked] == mask, hidden[asked] == ids[asked]
    for count, share in ((masked, 0.8), (kept, 0.1), (~masked & ~kept, 0.1)):
        assert abs(count.sum() - share * n) < 5 * np.sqrt(n * share * (1 - share)) + n * 0.1 / 397
    drawn = hidden[asked][~masked & ~kept]
    assert np.isin(drawn, known).all()
    assert len(np.unique(drawn)) > 370  # of 397 ids, about 388 are among 1,500 draws
    per_place = asked.sum(0)  # (200,): every place is as likely
    assert abs(per_place - 75).max() < 5 * np.sqrt(500 * 0.15 * 0.85)


def restored(source: list[int], target: list[int], vocab_size: int) -> list[int]:
    """The text: each sentinel of the source gives way to what follows it in the target."""
    assert source.pop() == target.pop() == EOS_ID
    pieces: dict[int, list[int]] = {}
    for token in target:
        if token >= vocab_size - SENTINELS:
            pieces[token] = []
        else:
            pieces[next(reversed(pieces))].append(token)
    assert list(pieces) == [vocab_size - 1 - i for i in range(len(pieces))]
    assert [token for token in source if token in pieces] == list(pieces)
    assert all(pieces.values())
    return [token for each in source for token in pieces.get(each, [each])]


@given(st.integers(2, 900), SEEDS)
def test_source_and_target_give_back_the_text(length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(FIRST_BYTE, WORDS, length)
    source, target = corrupt(row, WORDS + SENTINELS, rng)
    assert (len(source), len(target)) == lengths(length)
    assert restored(source.tolist(), target.tolist(), WORDS + SENTINELS) == row.tolist()


def test_the_gaps_are_the_paper_s() -> None:
    """T5 was trained on sources of 512 tokens: texts of 568, of which 85 in 28 gaps, and targets of 114 (with </s>)."""
    assert row_length(512) == 568
    assert gaps(568) == (85, 28)
    assert lengths(568) == (512, 114)


@given(LINES, st.integers(3, 64), SEEDS)
def test_nothing_of_a_span_batch_is_padded_and_every_token_is_there(
    lines: list[list[int]], longest: int, seed: int
) -> None:
    text = TextDataset.from_lines([FIRST_BYTE + i, *line] for i, line in enumerate(lines))
    config = a_config(max_length=longest)
    for chosen in (seed, None):
        found: Counter[int] = Counter()
        longest_row = 0
        for batch in SpanText(text).batches(100, chosen, config).epoch(0):
            source, target_in, target_out = batch.inputs
            assert source.shape[1] <= longest
            assert max(source.size, target_out.size) <= 100
            assert (source != 0).all()
            assert (target_in[:, 0] == BOS_ID).all()
            assert (target_in[:, 1:] == target_out[:, :-1]).all()
            for row, answer in zip(source.tolist(), target_out.tolist(), strict=True):
                tokens = restored(row, answer, config.vocab_size)
                found.update(tokens)
                longest_row = max(longest_row, len(tokens))
        expected = Counter(text.stream.tolist())
        assert not expected - found
        assert (found - expected).total() < longest_row  # only the last row may begin the stream again
        assert longest_row <= len(text.stream)  # or it would hold its own answers


@given(LINES, SEEDS, st.data())
def test_a_line_keeps_its_class(lines: list[list[int]], seed: int, data: st.DataObject) -> None:
    classes = data.draw(st.lists(st.integers(0, 3), min_size=len(lines), max_size=len(lines)))
    dataset = LabelledText(TextDataset.from_lines(lines), classes)
    batches: Any = dataset.batches(64, seed, a_config(num_classes=4))
    found = []
    for batch in batches.epoch(0):
        ids, targets, _, mask = batch.inputs
        found += [(row[real].tolist(), c) for row, real, c in zip(ids, mask, targets.tolist(), strict=True)]
    assert sorted(found) == sorted(([BOS_ID, *line, EOS_ID], c) for line, c in zip(lines, classes, strict=True))


def test_the_digits_are_split_by_class_and_none_is_lost() -> None:
    train, valid = digits()
    assert (len(train), len(valid)) == (1433, 364)
    assert train.images.shape[1:] == (1, 8, 8)
    assert (train.images.min(), train.images.max()) == (-1.0, 1.0)
    for digit in range(10):
        here, there = ((part.classes == digit).sum() for part in (train, valid))
        assert abs(there / (here + there) - 0.2) < 0.005
    both = {image.tobytes() for part in (train, valid) for image in part.images}
    assert len(both) == 1797  # no image twice, so none of those held out is trained on
    assert [part.checksum() for part in digits()] == [train.checksum(), valid.checksum()]


def test_without_scikit_learn_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ModuleNotFoundError, match="the digits come with scikit-learn: pip install scikit-learn"):
        digits()


def test_a_checksum_changes_with_a_class_and_with_a_pixel() -> None:
    text, images = a_text(4), the_images()
    changed = images.images.copy()
    changed[3, 0, 2, 1] += 1
    classes = images.classes.copy()
    classes[0] += 1
    sums = [images, ImageDataset(changed, images.classes), ImageDataset(images.images, classes)]
    sums += [LabelledText(text, [0, 1, 0, 1]), LabelledText(text, [0, 1, 1, 1])]
    assert len({each.checksum() for each in sums}) == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextDataset.from_lines([]), "pairs must not be empty"),
        (lambda: a_text().batches(8, 0, a_config(vocab_size=50)), "but the vocabulary has 50 tokens"),
        (lambda: MaskedText(a_text()).batches(64, 0, a_config(mask_id=None)), "the model has no mask_id"),
        (lambda: MaskedText(a_text()).batches(64, 0, a_config(mask_id=50)), "but the vocabulary has 50 tokens"),
        (lambda: MaskedText(a_text()).batches(64, 0, a_config(max_length=5)), "max_length is 5, but the longest"),
        (lambda: SpanText(a_text()).batches(64, 0, a_config(vocab_size=WORDS)), "but the vocabulary has 300 tokens"),
        (lambda: SpanText(a_text()).batches(64, 0, a_config(bos_id=0)), "pad_id, bos_id, eos_id are 0, 0, 2"),
        (lambda: SpanText(a_text()).batches(2, 0, a_config()), "rows of 2 tokens are too short to cut gaps into them"),
        (lambda: LabelledText(a_text(3), [0, 1]), r"classes have shape \(2,\), but the text has 3 lines"),
        (lambda: LabelledText(a_text(2), [0, -1]), "classes must be 0 or more, got -1"),
        (lambda: LabelledText(a_text(2), [0, 2]).batches(64, 0, a_config()), "class 2, but the model knows 2"),
        (lambda: ImageDataset(np.zeros((2, 1, 8, 8)), np.zeros(3, int)), "2 images and 3 classes"),
        (lambda: the_images().batches(64, 0, a_config(channels=3, image_size=8)), r"the model takes \(3, 8, 8\)"),
        (lambda: the_images().batches(64, 0, a_config(channels=1, image_size=8)), "but the model knows 2"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
