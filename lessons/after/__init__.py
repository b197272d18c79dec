"""What came after the paper, measured: single parts at equal cost, and what each section holds equal.

experiments/                   what each experiment trains, measures, draws and reports
predictions.json               what was expected of each, written down before it ran for its results
task.py, predictions.py        the texts, and predictions beside what came
command.py                     `make after`, which runs the study (see `study`) and writes
after.md, results/, pictures/  the report, its results and its pictures
"""
