"""The tests of studies can fail: each known mistake is made in a copy of the code, and must be refused."""

from support.making_breakages import MadeOnPurpose
from support.study_breakages import STUDY_BREAKAGES


class TestStudyBreakages(MadeOnPurpose):
    breakages = STUDY_BREAKAGES
    least = 20
