"""A check that can't fail proves nothing: each known mistake in the explorer's JavaScript must be refused."""

import pytest
from support.breakages import Breakage
from support.explorer_breakages import EXPLORER_BREAKAGES
from support.explorer_engine import needs_node
from support.making_breakages import Workshop, assert_it_fits_the_code, due


def each_of(breakages: list[Breakage]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("breakage", breakages, ids=lambda breakage: breakage.name)


@each_of(EXPLORER_BREAKAGES)
def test_breakages_fit_the_code(breakage: Breakage) -> None:
    assert_it_fits_the_code(breakage)


@pytest.mark.slow
@needs_node
@each_of(due(EXPLORER_BREAKAGES))
def test_breakage_is_refused(breakage: Breakage, workshop: Workshop) -> None:
    workshop.assert_it_is_refused(breakage)


@pytest.mark.slow
@needs_node
def test_the_same_tests_accept_the_code_as_it_is(workshop: Workshop) -> None:
    workshop.assert_right_code_is_accepted(EXPLORER_BREAKAGES)
