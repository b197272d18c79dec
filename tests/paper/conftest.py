"""What tests of the experiments share."""

import pytest

from paper.trials import bootstrap


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bootstrap intervals from fewer samples, for differences that are large or none."""
    monkeypatch.setattr(bootstrap, "SAMPLES", 100)
