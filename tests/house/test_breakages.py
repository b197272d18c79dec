"""A check that can't fail proves nothing: each known mistake is made in a copy of the code, and must be refused."""

from support.breakages import BASELINE_BREAKAGES, BREAKAGES
from support.making_breakages import MadeOnPurpose


class TestBreakages(MadeOnPurpose):
    breakages = BREAKAGES
    least = 80


class TestBaselineBreakages(MadeOnPurpose):
    breakages = BASELINE_BREAKAGES
    least = 12
