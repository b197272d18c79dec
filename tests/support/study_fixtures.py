"""The fixtures that tests of the experiments share."""

from collections.abc import Iterator

import pytest

from minitransformer.data import preparation
from study.trials import bootstrap


@pytest.fixture(scope="package", autouse=True)
def small_validation_set() -> Iterator[None]:
    """The grammar writes no more for validation and testing than the tests look at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "GRAMMAR_VALIDATION", 100)
        yield


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bootstrap intervals from fewer samples, for differences that are large or none."""
    monkeypatch.setattr(bootstrap, "SAMPLES", 100)
