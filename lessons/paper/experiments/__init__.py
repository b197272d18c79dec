"""The experiments: each a module with what `paper.experiment.Experiment` names."""

from ..experiment import Experiment
from . import cost, figures, strategy, table1, table2, table3, table4

EXPERIMENTS: dict[str, Experiment] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "figures": figures,
    "cost": cost,
    "strategy": strategy,
}
"""By name, in the order of the report."""
