"""The numbers that the paper prints, to compare with ours, and the cost of its trainings.

Source: Vaswani et al. 2017, tables 2, 3 and 4.
"""

from dataclasses import dataclass

from minitransformer.costs import flops_per_token
from minitransformer.models import TransformerConfig


@dataclass(frozen=True)
class Translation:
    """A row of table 2: BLEU on newstest2014 and training cost in FLOPs, for each pair of languages that was tried."""

    model: str
    bleu_de: float | None = None
    bleu_fr: float | None = None
    flops_de: float | None = None
    flops_fr: float | None = None


TABLE_2 = [
    Translation("ByteNet", 23.75),
    Translation("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Translation("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Translation("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Translation("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Translation("Deep-Att + PosUnk Ensemble", None, 40.4, None, 8.0e20),
    Translation("GNMT + RL Ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Translation("ConvS2S Ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Translation("Transformer (base model)", 27.3, 38.1, 3.3e18, 3.3e18),
    Translation("Transformer (big)", 28.4, 41.8, 2.3e19, 2.3e19),
]
"""The paper prints one cost for each Transformer, for both pairs of languages."""


@dataclass(frozen=True)
class Variation:
    """A row of table 3: perplexity (per piece of a word) and BLEU on newstest2013, parameters in millions.

    `parameters` is None if the paper leaves the field empty, which means as many as the base model.
    """

    perplexity: float
    bleu: float
    parameters: int | None = None


@dataclass(frozen=True)
class Parsing:
    """A row of table 4: F1 on section 23 of the Wall Street Journal; what the parser was trained on."""

    parser: str
    training: str
    f1: float


TABLE_4 = [
    Parsing("Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", 88.3),
    Parsing("Petrov et al. (2006)", "WSJ only, discriminative", 90.4),
    Parsing("Zhu et al. (2013)", "WSJ only, discriminative", 90.4),
    Parsing("Dyer et al. (2016)", "WSJ only, discriminative", 91.7),
    Parsing("Transformer (4 layers)", "WSJ only, discriminative", 91.3),
    Parsing("Zhu et al. (2013)", "semi-supervised", 91.3),
    Parsing("Huang & Harper (2009)", "semi-supervised", 91.3),
    Parsing("McClosky et al. (2006)", "semi-supervised", 92.1),
    Parsing("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Parsing("Transformer (4 layers)", "semi-supervised", 92.7),
    Parsing("Luong et al. (2015)", "multi-task", 93.0),
    Parsing("Dyer et al. (2016)", "generative", 93.3),
]


@dataclass(frozen=True)
class Run:
    """One of the paper's trainings (§5.1, §5.2): its steps, tokens of a batch on each side, and its P100 GPUs."""

    steps: int
    seconds_per_step: float
    tokens_per_side: int = 25_000
    gpus: int = 8

    @property
    def hours(self) -> float:
        """The hours from the first step to the last."""
        return self.steps * self.seconds_per_step / 3600


RUNS = {"base": Run(100_000, 0.4), "big": Run(300_000, 1.0)}
"""§5.2: "about 0.4 seconds" a step and 12 hours in all, "1.0 seconds" and 3.5 days."""

P100_FLOPS = 9.5e12
"""Floating-point operations a second in single precision, by footnote 5 of table 2."""


SENTENCE_LENGTH = 25
"""Tokens of a sentence, on which a part of the cost depends: between 25 and 50 the total changes by 1 %."""


@dataclass(frozen=True)
class TrainingCost:
    """The cost of one of the paper's trainings, counted in two ways.

    `billed`: the operations that its GPUs could have done in the time, as table 2 counts. `needed`: the operations of
    its matrix products.
    """

    billed: float
    needed: float

    @property
    def utilisation(self) -> float:
        """The share of the GPUs' possible operations that were matrix products."""
        return self.needed / self.billed


def training_cost(config: TransformerConfig, run: Run, length: int = SENTENCE_LENGTH) -> TrainingCost:
    """The cost of `run` with this model and sentences of `length` tokens.

    billed = steps · seconds a step · GPUs · 9.5e12         Vaswani 2017, §6.1, table 2, footnote 5
    needed = steps · tokens a side · 3 · (source + target)  operations a token: one forward, and two for the backward
    """
    tokens = run.steps * run.tokens_per_side
    return TrainingCost(
        billed=run.steps * run.seconds_per_step * run.gpus * P100_FLOPS,
        needed=tokens * 2 * flops_per_token(config, length).training,
    )


def training_costs() -> dict[str, TrainingCost]:
    """The costs of base and big."""
    configs = {"base": TransformerConfig.base(), "big": TransformerConfig.big()}
    return {name: training_cost(configs[name], run) for name, run in RUNS.items()}
