"""The settings of a training: what they refuse, and that JSON keeps them."""

import math

import pytest

from minitransformer.training import TrainingSettings


def test_settings_survive_json():
    settings = TrainingSettings(steps=5, minutes=2.5, peak_lr=0.005, threads=1)
    assert TrainingSettings.from_dict(settings.to_dict()) == settings
    with pytest.raises(ValueError, match="not a training setting: momentum, weight_decay"):
        TrainingSettings.from_dict({"steps": 3, "weight_decay": 1, "momentum": 1})


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("steps", -1, "steps must be at least 0, got -1"),
        ("accumulate", 0, "accumulate must be at least 1, got 0"),
        ("minutes", 0, "minutes must be positive and finite, or None, got 0"),
        ("peak_lr", math.inf, "peak_lr must be positive and finite, or None, got inf"),
        ("clip_norm", math.nan, "clip_norm must be positive and finite, or None, got nan"),
        ("label_smoothing", 1.0, r"label_smoothing must be in \[0, 1\), got 1.0"),
        ("beta2", -0.1, r"beta2 must be in \[0, 1\), got -0.1"),
        ("eps", 0.0, "eps must be positive, from 1.2e-38 to 1, got 0.0"),
        ("eps", 1e-300, "eps must be positive, from 1.2e-38 to 1, got 1e-300"),
        ("eps", math.inf, "eps must be positive, from 1.2e-38 to 1, got inf"),
        ("steps", 2**63, f"steps must be at most {2**63 - 1}, got {2**63}"),
        ("accumulate", 4097, "accumulate must be at most 4096, got 4097"),
        ("threads", 1025, "threads must be at most 1024, got 1025"),
    ],
)
def test_impossible_settings(setting, value, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**{setting: value})


@pytest.mark.parametrize("value", [1.5, True, "2", None])
def test_counts_are_integers(value):
    with pytest.raises(TypeError, match=f"threads must be an integer, got {value!r}"):
        TrainingSettings(threads=value)
