"""A check that can't fail proves nothing: each known mistake in the explorer's JavaScript must be refused."""

import pytest
from support.explorer_breakages import EXPLORER_BREAKAGES
from support.explorer_engine import NODE
from support.making_breakages import MadeOnPurpose, Workshop


@pytest.fixture(scope="session")
def workshop(workshop: Workshop) -> Workshop:
    """The workshop, where there is Node to run JavaScript in it."""
    if NODE is None:
        pytest.skip("Node, which runs JavaScript, is not installed: nodejs.org")
    return workshop


class TestExplorerBreakages(MadeOnPurpose):
    breakages = EXPLORER_BREAKAGES
    least = 20
