"""The paper's experiments, in miniature and to the number: its tables and figures beside what this project finds.

What is arithmetic (parameters, operations, path lengths) is computed from the configurations; what needs eight GPUs for
days is trained in small.
"""
