"""A check that can't fail proves nothing: each known mistake in a kernel is made in a copy, and must be refused."""

import pytest
from support.breakages import Breakage
from support.kernel_breakages import KERNEL_BREAKAGES
from support.making_breakages import Workshop, assert_it_fits_the_code, due


@pytest.mark.parametrize("breakage", KERNEL_BREAKAGES, ids=lambda breakage: breakage.name)
def test_breakages_fit_the_code(breakage: Breakage) -> None:
    assert_it_fits_the_code(breakage)


@pytest.mark.slow
@pytest.mark.parametrize("breakage", due(KERNEL_BREAKAGES), ids=lambda breakage: breakage.name)
def test_breakage_is_refused(breakage: Breakage, workshop: Workshop) -> None:
    workshop.assert_it_is_refused(breakage)


@pytest.mark.slow
def test_the_same_tests_accept_the_code_as_it_is(workshop: Workshop) -> None:
    workshop.assert_right_code_is_accepted(KERNEL_BREAKAGES)


def test_there_are_enough() -> None:
    assert len({(breakage.file, breakage.after) for breakage in KERNEL_BREAKAGES}) >= 140
