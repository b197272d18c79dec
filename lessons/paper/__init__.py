"""The paper's experiments, in miniature and to the number: its tables and figures beside what this project finds.

What is arithmetic (parameters, operations, path lengths) is computed from the configurations; what needs eight GPUs for
days is trained in small.

experiments/                   what each table and figure trains, measures, draws and says
trials/                        trainings and their evaluations: described, done once, kept, compared
command.py, report.py          `make paper`, and what it writes:
paper.md, results/, pictures/  the report, its results and its pictures
"""
