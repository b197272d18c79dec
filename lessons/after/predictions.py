"""Predictions for each experiment, written down before it ran for its results, and their comparison with these.

`predictions.json` has for each experiment, by name, the `claim`, `why` it was made, and `low` and `high` where a number
was predicted, which the claim names in braces. The results keep the predictions as they stood when the experiment ran,
and the report shows those.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.markdown import table
from study.trials.bootstrap import Interval

FILE = Path(__file__).with_name("predictions.json")

Predictions = dict[str, dict[str, Any]]
"""By name the `claim` of a prediction, `why` it was made, and the range `low` to `high` of a number."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a prediction, as text.

    right  True or False, or None if the experiment can't tell
    found  instead of `right`, the number that should be in the predicted range, with its interval if it has one
    """

    came: str
    right: bool | None = None
    found: Interval | float | None = None


def predictions_of(experiment: str) -> Predictions:
    """The predictions for an experiment, by name."""
    return json.loads(FILE.read_text(encoding="utf-8"))[experiment]


def is_right(prediction: Mapping[str, Any], outcome: Outcome) -> bool | None:
    """Return True if a prediction was right, by the outcome's own verdict or because its number is in the range.

    A number with an interval is in the range, or outside it, if all of the interval is; else that can't be told.
    """
    if outcome.found is None:
        return outcome.right
    found = outcome.found if isinstance(outcome.found, Interval) else Interval(*[outcome.found] * 3)
    if prediction["low"] <= found.low and found.high <= prediction["high"]:
        return True
    return False if found.high < prediction["low"] or found.low > prediction["high"] else None


def is_too_coarse(prediction: Mapping[str, Any], outcome: Outcome) -> bool:
    """Return True if a number's interval is wider than the predicted range and overlaps it: it could not be right."""
    found = outcome.found
    if not isinstance(found, Interval) or is_right(prediction, outcome) is not None:
        return False
    return found.high - found.low > prediction["high"] - prediction["low"]


def prediction_blocks(predictions: Predictions, outcomes: Mapping[str, Outcome]) -> list[str]:
    """The part of a report that compares predictions with results.

    Raises `ValueError` if a prediction has no outcome, or an outcome no prediction.
    """
    if predictions.keys() != outcomes.keys():
        raise ValueError(f"predictions and outcomes differ in {sorted(predictions.keys() ^ outcomes.keys())}")
    words = {True: "right", False: "**wrong**", None: "can't be told"}
    judged = {name: is_right(each, outcomes[name]) for name, each in predictions.items()}
    rows = [
        [claim_of(each), each["why"], outcomes[name].came, words[judged[name]]] for name, each in predictions.items()
    ]
    said = ", ".join(
        f"{list(judged.values()).count(value)} {word.strip('*')}"
        for value, word in words.items()
        if value in judged.values()
    )
    coarse = sum(is_too_coarse(each, outcomes[name]) for name, each in predictions.items())
    if coarse:
        said += f". In {coarse} of these the bracket is wider than the predicted range, and could not lie inside"
    return [
        f"**Predicted before, and what came**: {said}.",
        table(["predicted", "because", "came", "verdict"], rows, left=4),
    ]


def claim_of(prediction: Mapping[str, Any]) -> str:
    """A prediction's claim, with its range where it has one."""
    return prediction["claim"].format(
        **{name: f"{prediction[name]:g}" for name in ("low", "high") if name in prediction}
    )
