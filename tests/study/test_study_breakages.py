"""The tests of studies can fail: each known mistake is made in a copy of the code, and must be refused."""

import pytest
from support.breakages import Breakage
from support.making_breakages import Workshop, assert_it_fits_the_code, due
from support.study_breakages import STUDY_BREAKAGES


@pytest.mark.parametrize("breakage", STUDY_BREAKAGES, ids=lambda breakage: breakage.name)
def test_breakages_fit_the_code(breakage: Breakage) -> None:
    assert_it_fits_the_code(breakage)


@pytest.mark.slow
@pytest.mark.parametrize("breakage", due(STUDY_BREAKAGES), ids=lambda breakage: breakage.name)
def test_breakage_is_refused(breakage: Breakage, workshop: Workshop) -> None:
    workshop.assert_it_is_refused(breakage)
