"""The experiments: each a module with what `paper.experiment.Experiment` names."""

from ..experiment import Experiment
from . import cost_today, figures, strategy, table1, table2, table3, table4

MODULES: tuple[Experiment, ...] = (table1, table2, table3, table4, figures, cost_today, strategy)
EXPERIMENTS = {module.NAME: module for module in MODULES}
"""By name, in the order of the report."""
