"""Table 3: the variations on the base model as configurations, and how many parameters each has."""

import math
from dataclasses import dataclass, field
from typing import Any

from minitransformer.costs import num_parameters
from minitransformer.models import TransformerConfig

from ...published import Variation

VOCAB_SIZE = 37_000
"""§5.1: "a shared source-target vocabulary of about 37000 tokens"."""


@dataclass(frozen=True)
class Row:
    """A row of table 3: what differs from the base model, and what the paper found.

    `overrides` are fields of `TransformerConfig`, `training` those of `TrainingSettings`.
    """

    group: str
    name: str
    published: Variation
    overrides: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def config(self, vocab_size: int = VOCAB_SIZE) -> TransformerConfig:
        """The paper's own size."""
        return TransformerConfig.base(vocab_size, **self.overrides)


TABLE_3 = [
    Row("base", "base", Variation(4.92, 25.8, 65)),
    Row("A", "1 head", Variation(5.29, 24.9), {"num_heads": 1}),
    Row("A", "4 heads", Variation(5.00, 25.5), {"num_heads": 4}),
    Row("A", "16 heads", Variation(4.91, 25.8), {"num_heads": 16}),
    Row("A", "32 heads", Variation(5.01, 25.4), {"num_heads": 32}),
    Row("B", "d_k 16", Variation(5.16, 25.1, 58), {"d_k": 16}),
    Row("B", "d_k 32", Variation(5.01, 25.4, 60), {"d_k": 32}),
    Row("C", "2 layers", Variation(6.11, 23.7, 36), {"num_layers": 2}),
    Row("C", "4 layers", Variation(5.19, 25.3, 50), {"num_layers": 4}),
    Row("C", "8 layers", Variation(4.88, 25.5, 80), {"num_layers": 8}),
    Row("C", "d_model 256", Variation(5.75, 24.5, 28), {"d_model": 256, "d_k": 32, "d_v": 32}),
    Row("C", "d_model 1024", Variation(4.66, 26.0, 168), {"d_model": 1024, "d_k": 128, "d_v": 128}),
    Row("C", "d_ff 1024", Variation(5.12, 25.4, 53), {"d_ff": 1024}),
    Row("C", "d_ff 4096", Variation(4.75, 26.2, 90), {"d_ff": 4096}),
    Row("D", "dropout 0.0", Variation(5.77, 24.6), {"dropout": 0.0}),
    Row("D", "dropout 0.2", Variation(4.95, 25.5), {"dropout": 0.2}),
    Row("D", "smoothing 0.0", Variation(4.67, 25.3), training={"label_smoothing": 0.0}),
    Row("D", "smoothing 0.2", Variation(5.47, 25.7), training={"label_smoothing": 0.2}),
    Row("E", "learned positions", Variation(4.92, 25.7), {"positions": "learned"}),
    Row(
        "big",
        "big",
        Variation(4.33, 26.4, 213),
        {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
        {"steps": 300_000},
    ),
]


BASE = TABLE_3[0]


def fitting_vocabulary(row: Row) -> tuple[int, int]:
    """The smallest and the largest vocabulary with which the row has the parameters printed, rounded to millions.

    Raises `ValueError` for a row without a figure of its own.
    """
    printed = row.published.parameters
    if printed is None:
        raise ValueError(f"the paper prints no number of parameters for {row.name}")
    config = row.config()
    rest = num_parameters(config) - config.vocab_size * config.d_model
    low, high = (((printed + half) * 10**6 - rest) / config.d_model for half in (-0.5, 0.5))
    return math.ceil(low), math.floor(high)
