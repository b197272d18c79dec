"""Experiments on ideas that came after the paper: single parts compared at equal cost.

experiments/                   the experiments: each trains, measures, draws and reports
predictions.json               the predictions of each, written down before it ran for its results
task.py, predictions.py        the texts, and the comparison of predictions with results
command.py                     `make after`, which runs the study (see `study`) and writes
after.md, results/, pictures/  the report, its results and its pictures
"""
