"""Predictions: every experiment has some, each with a reason, and they are held against what came."""

import json

import pytest

from after.command import STUDY
from after.predictions import FILE, Outcome, claim_of, is_right, prediction_blocks, predictions_of
from study.trials.bootstrap import Interval

ALL = json.loads(FILE.read_text(encoding="utf-8"))
TWO = {
    "a number": {"claim": "x is {low} to {high}", "why": "as ever", "low": 1.5, "high": 2},
    "an ordering": {"claim": "x is above y", "why": "so it seems"},
}


def test_every_experiment_has_predictions() -> None:
    assert STUDY.experiments.keys() <= ALL.keys()
    assert all(predictions_of(name) for name in STUDY.experiments)


@pytest.mark.parametrize("experiment", ALL)
def test_a_prediction_says_what_and_why(experiment: str) -> None:
    for each in ALL[experiment].values():
        assert each["claim"]
        assert each["why"]
        assert each.keys() <= {"claim", "why", "low", "high"}
        assert ("low" in each) == ("high" in each)
        assert "{" not in claim_of(each)
        if "low" in each:
            assert each["low"] < each["high"]
            assert "{high}" in each["claim"]


def test_what_came_is_held_against_it() -> None:
    said, rows = prediction_blocks(TWO, {"a number": Outcome("1.7", found=1.7), "an ordering": Outcome("no", False)})
    assert said.endswith("1 right, 1 wrong.")
    assert "| x is 1.5 to 2 | as ever | 1.7 | right |" in rows
    assert "| x is above y | so it seems | no | **wrong** |" in rows
    assert is_right(TWO["a number"], Outcome("2.1", found=2.1)) is False
    assert is_right(TWO["an ordering"], Outcome("a training diverged", None)) is None


@pytest.mark.parametrize(
    ("low", "high", "right"),
    [(1.6, 1.9, True), (1.0, 1.4, False), (2.1, 3.0, False), (1.4, 1.9, None), (1.0, 3.0, None)],
)
def test_an_interval_must_be_in_the_range_or_outside_it(low: float, high: float, right: bool | None) -> None:
    assert is_right(TWO["a number"], Outcome("", found=Interval((low + high) / 2, low, high))) is right


@pytest.mark.parametrize(("low", "high", "coarse"), [(1.4, 1.95, True), (1.6, 2.05, False), (2.1, 3.0, False)])
def test_a_bracket_wider_than_the_range_is_said_to_be(low: float, high: float, coarse: bool) -> None:
    outcomes = {"a number": Outcome("", found=Interval(low, low, high)), "an ordering": Outcome("")}
    said, _ = prediction_blocks(TWO, outcomes)
    assert ("In 1 of these the bracket is wider than the predicted range" in said) is coarse


def test_a_prediction_without_an_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match=r"differ in \['an ordering'\]"):
        prediction_blocks(TWO, {"a number": Outcome("1.7", found=1.7)})
