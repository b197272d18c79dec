"""Trials: training runs with their evaluations, each described, run once, kept, and compared with its uncertainty."""
