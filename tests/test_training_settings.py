"""The settings of a training: what they refuse, and that JSON keeps them."""

import math

import pytest

from minitransformer.training import TrainingSettings


def test_settings_survive_json():
    settings = TrainingSettings(steps=5, minutes=2.5, peak_lr=0.005, threads=1)
    assert TrainingSettings.from_dict(settings.to_dict()) == settings
    with pytest.raises(ValueError, match="unknown configuration fields: momentum, weight_decay"):
        TrainingSettings.from_dict({"steps": 3, "weight_decay": 1, "momentum": 1})


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("steps", -1, "steps is -1, expected 0 or more"),
        ("accumulate", 0, "accumulate is 0, expected 1 to 4096"),
        ("minutes", 0, "minutes is 0, expected a finite number above 0$"),
        ("peak_lr", math.inf, "peak_lr is inf, expected a finite number above 0$"),
        ("clip_norm", math.nan, "clip_norm is nan, expected a finite number above 0$"),
        ("label_smoothing", 1.0, r"label_smoothing is 1.0, expected a number in \[0, 1\)"),
        ("beta2", -0.1, r"beta2 is -0.1, expected a number in \[0, 1\)"),
        ("eps", 0.0, "eps is 0.0, expected a finite number above 0: 1.2e-38 to 1"),
        ("eps", 1e-300, "eps is 1e-300, expected a finite number above 0: 1.2e-38 to 1"),
        ("eps", math.inf, "eps is inf, expected a finite number above 0: 1.2e-38 to 1"),
        ("steps", 2**63, f"steps is larger than {2**63 - 1}"),
        ("accumulate", 4097, "accumulate is 4097, expected 1 to 4096"),
        ("threads", 1025, "threads is 1025, expected 1 to 1024"),
    ],
)
def test_impossible_settings(setting, value, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**{setting: value})


@pytest.mark.parametrize("value", [1.5, True, "2", None])
def test_counts_are_integers(value):
    with pytest.raises(TypeError, match=f"threads must be an integer, got {type(value).__name__}"):
        TrainingSettings(threads=value)
