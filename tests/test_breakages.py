"""A check that can't fail proves nothing: each known mistake is made in a copy of the code, and must be refused."""

import pytest
from support.breakages import BASELINE_BREAKAGES, BREAKAGES, Breakage
from support.making_breakages import Workshop, assert_it_fits_the_code, due

ALL_BREAKAGES = BREAKAGES + BASELINE_BREAKAGES


@pytest.mark.parametrize("breakage", ALL_BREAKAGES, ids=lambda breakage: breakage.name)
def test_breakages_fit_the_code(breakage: Breakage) -> None:
    assert_it_fits_the_code(breakage)


@pytest.mark.slow
@pytest.mark.parametrize("breakage", due(ALL_BREAKAGES), ids=lambda breakage: breakage.name)
def test_breakage_is_refused(breakage: Breakage, workshop: Workshop) -> None:
    workshop.assert_it_is_refused(breakage)


@pytest.mark.slow
def test_the_same_tests_accept_the_code_as_it_is(workshop: Workshop) -> None:
    workshop.assert_right_code_is_accepted(ALL_BREAKAGES)


@pytest.mark.parametrize(("breakages", "least"), [(BREAKAGES, 80), (BASELINE_BREAKAGES, 12)])
def test_there_are_enough(breakages: list[Breakage], least: int) -> None:
    assert len({(breakage.file, breakage.after) for breakage in breakages}) >= least
