"""Where a model's dropout keys come from."""

import itertools

import numpy as np
import pytest

from minitransformer.layers import DropoutStream
from minitransformer.ops import dropout_key, dropout_mask


def test_every_seed_step_and_site_has_a_key_of_its_own():
    numbers = list(itertools.product(range(4), repeat=3))
    keys = [DropoutStream(seed, step).at(site, 0.1).key for seed, step, site in numbers]
    assert keys == [dropout_key(*triple) for triple in numbers]
    assert len(set(keys)) == len(numbers)


def test_masks_of_different_sites_have_nothing_in_common():
    first, second = (dropout_mask((20, 30, 40), DropoutStream(0, 1).at(site, 0.5)) for site in (0, 1))
    assert np.mean(first == second) == pytest.approx(0.5, abs=0.02)


def test_a_part_of_a_batch_gets_the_masks_of_the_whole():
    whole = dropout_mask((6, 3, 4), DropoutStream(0, 1, sentence=0).at(2, 0.5))
    part = dropout_mask((2, 3, 4), DropoutStream(0, 1, sentence=4).at(2, 0.5))
    np.testing.assert_array_equal(part, whole[4:])
