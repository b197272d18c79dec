"""The experiments: each a module with what `minitransformer.paper.experiment.Experiment` names."""

from ..experiment import Experiment
from . import strategy, table2, table3

EXPERIMENTS: dict[str, Experiment] = {
    "table2": table2,
    "table3": table3,
    "strategy": strategy,
}
"""By name, in the order of the report."""
