"""The paper's experiments: its tables and figures beside this project's results.

Arithmetic (parameters, operations, path lengths) is computed exactly from the configurations; what took eight GPUs for
days is trained in miniature.

experiments/                   what each table and figure trains, measures, draws and reports
task.py                        the texts that the miniatures translate
command.py                     `make paper`, which runs the study (see `study`) and writes
paper.md, results/, pictures/  the report, its results and its pictures
"""
