"""Studies: experiments on small models, run once, kept as JSON, and reported with their uncertainty.

A study is a package that describes itself as a `Study`: `paper` is one, `after` another.

experiment.py             the interface of an experiment
command.py, report.py     the command line of a study; its results, and the report that is written from them
trials/                   training runs and their evaluations: described, run once, kept, compared
measuring.py              numbers that follow from times
comparison.py, charts.py, markdown.py    sentences on differences, pictures, and pieces of a report
"""
