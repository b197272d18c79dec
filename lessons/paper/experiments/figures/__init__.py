"""The paper's figures, from live and from trained models."""

from .experiment import ALONE, MINUTES, NAME, TITLE, draw, find, report, trials

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "report", "trials"]
