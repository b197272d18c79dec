"""The experiments: each a module with what `study.experiment.Experiment` names."""

from study.experiment import Experiment

from ..task import Texts
from . import ablation, decoding, distillation, inside, scaling

MODULES: tuple[Experiment[Texts], ...] = (decoding, inside, ablation, distillation, scaling)
EXPERIMENTS = {module.NAME: module for module in MODULES}
"""By name, in the order of the report."""
