"""The experiments: each a module with what `study.experiment.Experiment` names."""

from study.experiment import Experiment

from ..task import Texts
from . import ablation, bits, code, decoding, distillation, inside, rewards, scaling, scenes

MODULES: tuple[Experiment[Texts], ...] = (
    decoding, inside, ablation, distillation, scaling, rewards, bits, code, scenes
)  # fmt: skip
EXPERIMENTS = {module.NAME: module for module in MODULES}
"""By name, in the order of the report."""
