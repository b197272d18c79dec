"""The paper's training costs, recomputed."""

import pytest

from minitransformer.costs import flops_per_token
from minitransformer.models import TransformerConfig
from paper.published import RUNS, TABLE_2, Run, training_cost, training_costs

PRINTED = {"base": "Transformer (base model)", "big": "Transformer (big)"}


@pytest.mark.parametrize("name", RUNS)
def test_what_was_billed_is_what_table_2_prints(name: str) -> None:
    """Within the rounding of the seconds a step: 12 hours are 0.43 s, 3.5 days 1.0 s."""
    (printed,) = (row.flops_de for row in TABLE_2 if row.model == PRINTED[name])
    assert training_costs()[name].billed == pytest.approx(printed, rel=0.08)


def test_the_gpus_were_used_to_a_third_and_more() -> None:
    """31 % of their peak with base, 42 % with big, whose products are larger."""
    costs = training_costs()
    assert costs["base"].utilisation == pytest.approx(0.313, abs=0.001)
    assert costs["big"].utilisation == pytest.approx(0.424, abs=0.001)


def test_the_cost_of_a_step_is_three_forwards() -> None:
    config = TransformerConfig.base(100, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    each = flops_per_token(config, 7)
    cost = training_cost(config, Run(steps=1, seconds_per_step=1.0, tokens_per_side=10, gpus=1), length=7)
    assert cost.needed == 3 * 10 * (each.source + each.target)
    assert cost.billed == 9.5e12


def test_sentence_length_hardly_matters() -> None:
    short, long = (training_cost(TransformerConfig.base(), RUNS["base"], length).needed for length in (25, 50))
    assert short < long < 1.01 * short
