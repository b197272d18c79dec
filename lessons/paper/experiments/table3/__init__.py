"""Table 3: variations on the Transformer."""

from .experiment import ALONE, MINUTES, NAME, TITLE, draw, find, report, trials

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "report", "trials"]
