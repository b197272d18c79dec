"""Intervals over seeds: against tables of Student's t, and how often they cover."""

import math

import numpy as np
import pytest

from study.trials.seeds import loss_difference, loss_of, loss_rise, mean_of_seeds, percentage_drop, student_t, welch


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)]
)
def test_students_t_is_that_of_the_tables(freedom: float, t: float) -> None:
    assert student_t(freedom) == pytest.approx(t, abs=2e-3)


def test_welch_s_interval_covers_the_difference_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(1000):
        found = welch((1.0 + 0.1 * rng.standard_normal(3)).tolist(), (0.3 * rng.standard_normal(3)).tolist())
        covered += found.low <= 1.0 <= found.high
    assert 930 <= covered <= 985


def test_a_mean_over_seeds_has_students_interval() -> None:
    """The deviation of 1, 2 and 3 is 1, so half of it is 4.303 / √3."""
    found = mean_of_seeds([1.0, 2.0, 3.0])
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 - 2.4843, 2 + 2.4843), abs=2e-3)


def test_seeds_that_agree_have_no_width() -> None:
    found = welch([2.0, 2.0], [1.5, 1.5])
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_seeds_and_rows_both_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    counts = np.full(200, 10.0)
    base = np.stack([20 + rng.standard_normal(200), counts], axis=1)
    noise = rng.standard_normal(200)

    def seed(shift: float, rows: float) -> np.ndarray:
        return base + np.stack([10 * shift + rows * noise, 0 * counts], axis=1)

    only_rows = loss_difference([seed(0.1, 1)] * 2, [seed(0.0, 0)] * 2)
    only_seeds = loss_difference([seed(0.09, 0), seed(0.11, 0)], [seed(0.0, 0)] * 2)
    both = loss_difference([seed(0.09, 1), seed(0.11, 1)], [seed(0.0, 0)] * 2)
    halves = [each.high - each.value for each in (only_rows, only_seeds, both)]
    assert halves[2] == pytest.approx(math.hypot(*halves[:2]), rel=0.01)
    assert only_seeds.value == pytest.approx(0.1)
    assert loss_of(base) == pytest.approx(2.0, abs=0.02)


def test_a_rise_is_that_of_each_seed_with_the_rows_of_both_sides() -> None:
    """Seeds that are far apart and rise alike have a rise that seeds do not blur."""
    rng = np.random.default_rng(0)

    def rows(loss: float, count: int, noise: float) -> np.ndarray:
        return np.stack([10 * (loss + noise * rng.standard_normal(count)), np.full(count, 10.0)], axis=1)

    alike = loss_rise([rows(2.0, 100, 0), rows(3.0, 100, 0)], [rows(2.5, 50, 0), rows(3.5, 50, 0)])
    assert (alike.low, alike.value, alike.high) == pytest.approx((0.5, 0.5, 0.5))
    apart = loss_rise([rows(2.0, 100, 0)] * 2, [rows(2.4, 50, 0), rows(2.6, 50, 0)])
    assert apart.high - apart.value == pytest.approx(student_t(1) * 0.1)  # 0.2/√2 is their deviation, over √2 seeds
    same = [rows(2.0, 100, 0.5)] * 2, [rows(2.5, 50, 0.5)] * 2
    expected = 1.96 * 0.5 * math.sqrt(1 / 100 + 1 / 50)
    assert loss_rise(*same).high - loss_rise(*same).value == pytest.approx(expected, rel=0.25)


def test_a_fall_of_percentages_is_that_of_each_seed_with_the_rows_of_both_sides() -> None:
    alike = percentage_drop([50.0, 70.0], [40.0, 60.0], 10**12)
    assert (alike.low, alike.value, alike.high) == pytest.approx((10, 10, 10), abs=1e-3)
    apart = percentage_drop([100.0, 100.0], [0.0, 20.0], 10**12)
    assert apart.high - apart.value == pytest.approx(student_t(1) * 10, rel=1e-6)  # 20/√2 is their deviation, over √2
    same = percentage_drop([80.0, 80.0], [50.0, 50.0], 400)
    assert same.value - same.low == pytest.approx(1.96 * math.sqrt(100 * 100 / 400 * (0.8 * 0.2 + 0.5 * 0.5)), rel=1e-4)
