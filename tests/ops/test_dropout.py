"""Dropout, whose mask is a function of coordinates."""

import itertools

import numpy as np
import pytest
from support.prove import normal

from minitransformer.ops import Dropout, dropout_forward, dropout_key, dropout_mask

RATES = [0.1, 0.25, 0.5, 0.9]
KEY = dropout_key(seed=1, step=2, site=3)


@pytest.mark.parametrize("dropout", [None, Dropout(0.0, KEY)])
def test_identity_when_off(dropout):
    x = normal(np.random.default_rng(0), 2, 3, 4)
    np.testing.assert_array_equal(dropout_forward(x, dropout)[0], x)


def test_kept_elements_are_scaled_and_the_others_are_zero():
    dropout = Dropout(0.25, KEY)
    x = normal(np.random.default_rng(0), 4, 8, 16)
    kept = dropout_mask(x.shape, dropout)
    y, _ = dropout_forward(x, dropout)
    assert 0 < kept.sum() < kept.size
    np.testing.assert_array_equal(y[~kept], 0)
    np.testing.assert_allclose(y[kept], x[kept] / 0.75, rtol=1e-3)


# --- The mask is a function of the key and of coordinates -----------------------------------------------------

SHAPE = 6, 9, 7  # sentences, positions, channels


def test_split_batch_has_the_same_mask():
    whole = dropout_mask(SHAPE, Dropout(0.5, KEY, sentence=10))
    first, second = dropout_mask((2, 9, 7), Dropout(0.5, KEY, 10)), dropout_mask((4, 9, 7), Dropout(0.5, KEY, 12))
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


def test_padded_batch_has_the_same_mask():
    whole = dropout_mask(SHAPE, Dropout(0.5, KEY))
    np.testing.assert_array_equal(dropout_mask((6, 5, 7), Dropout(0.5, KEY)), whole[:, :5])
    np.testing.assert_array_equal(dropout_mask((6, 9, 4), Dropout(0.5, KEY)), whole[:, :, :4])
    np.testing.assert_array_equal(dropout_mask((6, 4, 7), Dropout(0.5, KEY, position=5)), whole[:, 5:])


def test_packed_rows_have_the_same_mask():
    whole = dropout_mask(SHAPE, Dropout(0.5, KEY, sentence=10, position=2))
    sentence, position = np.nonzero(np.random.default_rng(0).random(SHAPE[:2]) < 0.6)
    packed = Dropout(0.5, KEY, sentence=10 + sentence, position=2 + position)
    np.testing.assert_array_equal(dropout_mask((len(sentence), 7), packed), whole[sentence, position])


def test_attention_weights_are_numbered_by_sentence_head_query_key():
    whole = dropout_mask((4, 3, 6, 8), Dropout(0.5, KEY, sentence=1))
    np.testing.assert_array_equal(dropout_mask((2, 3, 6, 8), Dropout(0.5, KEY, sentence=3)), whole[2:])
    np.testing.assert_array_equal(dropout_mask((4, 2, 6, 5), Dropout(0.5, KEY, sentence=1)), whole[:, :2, :, :5])
    np.testing.assert_array_equal(dropout_mask((4, 3, 4, 8), Dropout(0.5, KEY, 1, position=2)), whole[:, :, 2:])


def lowbias32(x: int) -> int:
    """Chris Wellons's 32-bit permutation."""
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    return x ^ x >> 16


def test_mask_element_by_element():
    """In Python's integers: what a kernel in any language must compute to drop the same elements."""
    mask = dropout_mask((2, 3, 5), Dropout(0.3, KEY, sentence=4, position=6))
    for b, t, channel in np.ndindex(mask.shape):
        row = KEY % 2**32
        for number in (4 + b, 6 + t, KEY >> 32):
            row = lowbias32(row ^ number)
        word = lowbias32((row + channel // 2 * 0x9E3779B9) % 2**32)
        bits = word >> 16 if channel % 2 else word % 2**16
        assert mask[b, t, channel] == (bits >= round(0.3 * 2**16))


# --- It looks random. Seeds are fixed; a bound of 6 sigma is passed by chance all but once in 10⁹ -------------


@pytest.mark.parametrize("rate", [*RATES, 0.001, 0.999])
def test_kept_fraction(rate):
    mask = dropout_mask((64, 32, 257), Dropout(rate, KEY))
    kept = 1 / Dropout(rate, KEY).scale
    assert kept == pytest.approx(1 - rate, abs=1e-4)
    assert abs(mask.mean() - kept) <= 6 * np.sqrt(kept * (1 - kept) / mask.size)


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (1, 2)])
def test_no_row_column_or_plane_is_special(axes):
    mask = dropout_mask((64, 64, 64), Dropout(0.25, KEY))
    counts = mask.sum(axis=axes)
    variance = 64 * 64 * 0.25 * 0.75
    chi_squared = ((counts - 64 * 64 * 0.75) ** 2 / variance).sum()
    assert abs(chi_squared - 64) <= 6 * np.sqrt(2 * 64)


def masks_that_should_be_independent() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    shape = 32, 32, 128

    def mask(seed: int = 1, step: int = 1, site: int = 0, sentence: int = 0, position: int = 0) -> np.ndarray:
        return dropout_mask(shape, Dropout(0.5, dropout_key(seed, step, site), sentence, position))

    alone = mask()
    shifts = itertools.product([0, 1, 7], [0, 1, 2], [0, 1, 2, 64])
    return {
        "seed": (alone, mask(seed=2)),
        "step": (alone, mask(step=2)),
        "site": (alone, mask(site=1)),
        "swapped site and step": (mask(step=3, site=5), mask(step=5, site=3)),
        "swapped sentence and position": (alone, alone.swapaxes(0, 1)),
        "other sentences": (alone, mask(sentence=32)),
        "other positions": (alone, mask(position=32)),
        **{f"shifted by {by}": (alone, np.roll(alone, by, axis=(0, 1, 2))) for by in shifts if any(by)},
    }


@pytest.mark.parametrize("pair", masks_that_should_be_independent().items(), ids=lambda pair: pair[0])
def test_masks_are_uncorrelated(pair):
    _, (a, b) = pair
    off_diagonal = ~np.eye(32, dtype=bool)  # on it, a mask and its transpose are equal
    agreement = (a == b)[off_diagonal]
    sigma = 0.5 / np.sqrt(agreement.size)
    # A transposed mask meets itself: (i, j) with (j, i) is the same comparison as (j, i) with (i, j).
    assert abs(agreement.mean() - 0.5) <= 6 * np.sqrt(2) * sigma


def test_attention_heads_are_uncorrelated():
    mask = dropout_mask((8, 4, 64, 64), Dropout(0.5, KEY))
    for head, other in itertools.combinations(range(4), 2):
        agreement = (mask[:, head] == mask[:, other]).mean()
        assert abs(agreement - 0.5) <= 6 * 0.5 / np.sqrt(8 * 64 * 64)


def test_keys_of_neighbouring_sites_steps_and_seeds_differ():
    keys = {dropout_key(*numbers) for numbers in itertools.product(range(8), range(50), range(50))}
    assert len(keys) == 8 * 50 * 50
    assert all(0 <= key < 2**64 for key in keys)


@pytest.mark.parametrize("low_or_high", [1, 1 << 40])
def test_every_part_of_the_key_counts(low_or_high):
    a, b = (dropout_mask((32, 32, 32), Dropout(0.5, key)) for key in (KEY, KEY ^ low_or_high))
    assert abs((a == b).mean() - 0.5) <= 6 * 0.5 / np.sqrt(a.size)


# --- Bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_rate_outside_0_to_1(rate):
    with pytest.raises(ValueError, match="rate"):
        Dropout(rate, KEY)


def test_coordinates_that_do_not_fit():
    with pytest.raises(ValueError, match=r"sentence.*\(3,\).*expected"):
        dropout_mask((4, 7), Dropout(0.5, KEY, sentence=np.arange(3), position=np.arange(3)))
