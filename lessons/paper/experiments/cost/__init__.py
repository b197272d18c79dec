"""What the paper's trainings would cost today."""

from .experiment import ALONE, MINUTES, NAME, TITLE, draw, find, report, trials

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "report", "trials"]
