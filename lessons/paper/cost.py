"""What the paper's trainings cost: as table 2 counts it, and in operations that the arithmetic needs."""

from dataclasses import dataclass

from minitransformer.costs import flops_per_token
from minitransformer.models import TransformerConfig

from .published import P100_FLOPS, RUNS, Run

SENTENCE_LENGTH = 25
"""Tokens of a sentence, for the part of the cost that grows with it: between 25 and 50 it changes the sum by 1 %."""


@dataclass(frozen=True)
class TrainingCost:
    """A training of the paper's, counted twice.

    `billed`: what its GPUs could have done in the time, which is how table 2 counts. `needed`: the operations of its
    matrix products.
    """

    billed: float
    needed: float

    @property
    def utilisation(self) -> float:
        """The part of what the GPUs could do that went into matrix products."""
        return self.needed / self.billed


def training_cost(config: TransformerConfig, run: Run, length: int = SENTENCE_LENGTH) -> TrainingCost:
    """The cost of `run` with that model, sentences `length` tokens long.

    billed = steps · seconds a step · GPUs · 9.5e12         Vaswani 2017, §6.1, table 2, footnote 5
    needed = steps · tokens a side · 3 · (source + target)  operations a token: forward, and twice that backward
    """
    tokens = run.steps * run.tokens_per_side
    return TrainingCost(
        billed=run.steps * run.seconds_per_step * run.gpus * P100_FLOPS,
        needed=tokens * 2 * flops_per_token(config, length).training,
    )


def training_costs() -> dict[str, TrainingCost]:
    """Those of base and big."""
    configs = {"base": TransformerConfig.base(), "big": TransformerConfig.big()}
    return {name: training_cost(configs[name], run) for name, run in RUNS.items()}
