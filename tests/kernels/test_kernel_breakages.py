"""A check that can't fail proves nothing: each known mistake in a kernel is made in a copy, and must be refused."""

from support.kernel_breakages import KERNEL_BREAKAGES
from support.making_breakages import MadeOnPurpose


class TestKernelBreakages(MadeOnPurpose):
    breakages = KERNEL_BREAKAGES
    least = 140
