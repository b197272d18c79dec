"""Rotary positions: what the turning is for, and what it leaves alone."""

import numpy as np
import pytest

from minitransformer.gradcheck import error
from minitransformer.ops import rope_backward, rope_forward


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turning", [4, 6])
def test_a_score_depends_on_the_distance_alone(turning, interleaved):
    """One query and one key, each at every position: along a diagonal of the scores all are the same."""
    rng, T, D = np.random.default_rng(0), 9, 6
    angles = np.arange(T)[:, None] * rng.uniform(0.1, 1, turning // 2)  # (T, R/2)
    query, key = (np.tile(row, (1, 1, T, 1)) for row in rng.standard_normal((2, D)))
    turned = [rope_forward(x, np.cos(angles), np.sin(angles), interleaved)[0][0, 0] for x in (query, key)]
    scores = turned[0] @ turned[1].T  # (T, T)
    assert error(scores[1:, 1:], scores[:-1, :-1]) <= 1e-14
    assert error(np.diag(scores), np.full(T, query[0, 0, 0] @ key[0, 0, 0])) <= 1e-14  # at distance 0 it is the product
    assert len(np.unique(scores.round(6))) == 2 * T - 1  # and each distance has a score of its own


@pytest.mark.parametrize("interleaved", [False, True])
def test_channels_behind_the_turning_ones_stay_bit_for_bit(interleaved):
    rng = np.random.default_rng(0)
    x, angles = rng.standard_normal((2, 3, 4, 7)), rng.standard_normal((4, 2))
    y, cache = rope_forward(x, np.cos(angles), np.sin(angles), interleaved)
    np.testing.assert_array_equal(y[..., 4:], x[..., 4:])
    np.testing.assert_array_equal(rope_backward(x, cache)[..., 4:], x[..., 4:])
    assert (y[..., :4] != x[..., :4]).all()
    with pytest.raises(ValueError, match=r"cos has shape \(4, 4\), expected at most 3 angles a position beside x"):
        rope_forward(x, np.ones((4, 4)), np.ones((4, 4)))
