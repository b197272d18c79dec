"""The experiments: each a module with what `study.experiment.Experiment` names."""

from study.experiment import Experiment

from ..task import Task
from . import cost_today, figures, strategy, table1, table2, table3, table4

MODULES: tuple[Experiment[Task], ...] = (table1, table2, table3, table4, figures, cost_today, strategy)
EXPERIMENTS = {module.NAME: module for module in MODULES}
"""By name, in the order of the report."""
