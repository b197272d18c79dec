"""Table 1: what a layer costs, and how far a signal travels."""

from .experiment import ALONE, MINUTES, NAME, TITLE, draw, find, report, trials

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "report", "trials"]
