"""Table 4: constituency parsing."""

from .experiment import ALONE, MINUTES, NAME, TITLE, draw, find, report, trials

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "report", "trials"]
