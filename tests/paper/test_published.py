"""The paper's figures, recomputed: its training costs, and the sizes of table 3's rows."""

import pytest

from minitransformer.costs import flops_per_token, num_parameters
from minitransformer.models import TransformerConfig
from paper.experiments.table3 import TABLE_3, Row, fitting_vocabulary
from paper.published import RUNS, TABLE_2, Run, training_cost, training_costs

PRINTED_AS = {"base": "Transformer (base model)", "big": "Transformer (big)"}


@pytest.mark.parametrize("name", RUNS)
def test_what_was_billed_is_what_table_2_prints(name: str) -> None:
    """Within the rounding of the seconds a step: 12 hours are 0.43 s, 3.5 days 1.0 s."""
    (printed,) = (row.flops_de for row in TABLE_2 if row.model == PRINTED_AS[name])
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


BY_NAME = {row.name: row for row in TABLE_3}
PRINTED = [row for row in TABLE_3 if row.published.parameters is not None]


@pytest.mark.parametrize("row", PRINTED, ids=lambda row: row.name)
def test_parameters_with_the_printed_vocabulary_are_within_seven_percent(row: Row) -> None:
    """About 37,000 tokens: every row of A to E comes out 2 to 7 % below what is printed, big 0.6 % above."""
    assert row.published.parameters is not None
    ratio = num_parameters(row.config()) / 1e6 / row.published.parameters
    assert (1.0 < ratio < 1.01) if row.name == "big" else (0.93 < ratio < 0.99)


def test_one_vocabulary_explains_every_row_but_big() -> None:
    """Between 40,932 and 41,160 tokens, each row of A to E rounds to what is printed; big needs fewer than 36,300."""
    lows, highs = zip(*(fitting_vocabulary(row) for row in PRINTED if row.name != "big"), strict=True)
    low, high = max(lows), min(highs)
    assert (low, high) == (40_932, 41_160)
    for row in PRINTED:
        rounded = {round(num_parameters(row.config(vocabulary)) / 1e6) for vocabulary in (low, high)}
        assert (rounded == {row.published.parameters}) == (row.name != "big"), row.name
    assert fitting_vocabulary(BY_NAME["big"])[1] < 36_300


def test_the_ends_of_the_interval_are_its_ends() -> None:
    for row in PRINTED:
        low, high = fitting_vocabulary(row)
        inside = [round(num_parameters(row.config(size)) / 1e6, 9) for size in (low, high)]
        outside = [num_parameters(row.config(size)) / 1e6 for size in (low - 1, high + 1)]
        assert row.published.parameters is not None
        assert all(abs(count - row.published.parameters) <= 0.5 for count in inside)
        assert all(abs(count - row.published.parameters) > 0.5 for count in outside)


@pytest.mark.parametrize("name", ["1 head", "4 heads", "16 heads", "32 heads", "dropout 0.2", "smoothing 0.0"])
def test_rows_without_a_figure_are_as_large_as_base(name: str) -> None:
    assert num_parameters(BY_NAME[name].config()) == num_parameters(BY_NAME["base"].config())
    with pytest.raises(ValueError, match=f"prints no number of parameters for {name}"):
        fitting_vocabulary(BY_NAME[name])


def test_rows_are_the_presets() -> None:
    assert BY_NAME["base"].config() == TransformerConfig.base()
    assert BY_NAME["big"].config() == TransformerConfig.big()


def test_the_papers_runs_take_as_long_as_it_says() -> None:
    assert RUNS["base"].hours == pytest.approx(12, rel=0.1)
    assert RUNS["big"].hours / 24 == pytest.approx(3.5, rel=0.01)
