"""Tables 2 and 3 and the training strategy, gathered from made-up results; what their trials are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.study_results import MadeUpRunner

from minitransformer.data.preparation import CorpusChoice, prepare
from paper.experiments import strategy, table2, table3
from paper.experiments.table3 import TABLE_3
from paper.task import GRAMMAR, Task, multi30k
from study.experiment import Context
from study.trials.run import CHECKPOINTS
from study.trials.runner import Runner
from study.trials.trial import step_flops

pytestmark = pytest.mark.usefixtures("few_samples")
ROWS = {row.name: row for row in TABLE_3}


class Shelf(MadeUpRunner):
    """Made-up results beside real text."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(**options)
        self.folder = folder

    def data(self, choice: CorpusChoice) -> Any:
        """A small edition of the text."""
        return prepare(self.folder / "data", replace(choice, sentences=40))


def context(folder: Path, scale: float = 0.01, **options: Any) -> Context:
    runner: Any = Shelf(folder, **options)
    return Context(GRAMMAR, scale, runner)


@pytest.mark.parametrize(("task", "scale"), [(GRAMMAR, 1.0), (multi30k(None), 10.0)], ids=["grammar", "multi30k"])
def test_models_of_table_2_cost_the_same(task: Task, scale: float) -> None:
    costs = [trial.settings.steps * step_flops(trial.config) for trial in table2.trials(task, scale)]
    assert max(costs) / min(costs) < 1.02  # steps are multiples of the checkpoints
    assert len(costs) == 10


def test_the_miniature_rows_are_the_papers_divided() -> None:
    base = table3.miniature(ROWS["base"], GRAMMAR)
    big = table3.miniature(ROWS["big"], GRAMMAR)
    assert (base.d_model, base.d_ff, base.num_layers, base.num_heads, base.key_width) == (64, 256, 3, 8, 8)
    assert (big.d_model, big.d_ff, big.num_layers, big.num_heads, big.dropout) == (128, 512, 3, 16, 0.1)
    for row in TABLE_3:
        small, large = table3.miniature(row, GRAMMAR), row.config()
        ratios = (large.d_model / small.d_model, large.d_ff / small.d_ff, large.key_width / small.key_width)
        assert (ratios, large.num_layers / small.num_layers) == ((8, 8, 8), 2)
        assert (small.num_heads, small.positions) == (large.num_heads, large.positions)
        assert small.dropout == (base.dropout if row.name == "big" else large.dropout)


def test_every_row_takes_the_base_s_steps_and_its_own_smoothing() -> None:
    trials = {row.name: table3.trial(row, GRAMMAR, 0.5) for row in TABLE_3}
    assert len({trial.settings.steps for trial in trials.values()}) == 1
    assert trials["smoothing 0.2"].settings.label_smoothing == 0.2
    assert trials["base"].settings.label_smoothing == 0.1


def test_a_budget_changes_steps_alone() -> None:
    for experiment in (table2, table3, strategy):
        for small, large in zip(experiment.trials(GRAMMAR, 1.0), experiment.trials(GRAMMAR, 2.0), strict=True):
            assert large.settings.steps == pytest.approx(2 * small.settings.steps, abs=CHECKPOINTS)
            assert large.settings.steps % CHECKPOINTS == 0
            assert large.config == small.config


def test_without_warmup_the_rate_is_the_same_from_its_end_on() -> None:
    base, bare = (strategy.schedule_trial("post-norm", s, GRAMMAR, 1.0) for s in ("warm-up", "none"))
    rates = [trial.settings.schedule(64) for trial in (base, bare)]
    warmup = base.settings.warmup_steps
    assert rates[0](warmup + 50) == pytest.approx(rates[1](warmup + 50))
    assert rates[1](1) == pytest.approx(rates[0](warmup) * warmup**0.5)


def test_table_2_is_told(tmp_path: Path) -> None:
    names = {f"table2 {table2.LARGER} de": 0.95, "table2 RNN de": 0.1, "table2 ConvS2S, small de": 0.95}
    given = context(tmp_path, qualities=names)
    findings = table2.find(given)
    text = "\n".join(table2.report(findings))
    assert f"{table2.LARGER} is better than RNN by" in text
    assert f"{table2.LARGER} and ConvS2S, small: no difference" in text
    assert f"{table2.LARGER} is better than {table2.SMALLER} by" in text
    assert f"{table2.SMALLER} is better than RNN by" in text
    assert f"{table2.SMALLER} is worse than ConvS2S, small by" in text
    assert f"{table2.SMALLER} and {table2.LARGER}" not in text
    first, last = findings["pairs"]["de"]["curves"][table2.LARGER][-2:]
    fell = f"{first['perplexity']:.3f} to {last['perplexity']:.3f} in {last['step'] - first['step']:,} steps"
    assert f"{table2.LARGER} from {fell}" in text
    assert "3.3 · 10¹⁸" in text
    table2.draw(findings, tmp_path)
    assert (tmp_path / "table2-curves.png").read_bytes().startswith(b"\x89PNG")


def test_table_3_is_told(tmp_path: Path) -> None:
    names = {"table3 1 head": 0.1, "table3 d_ff 4096": 0.1, "table3 big": 0.95, "table3 lengths sinusoidal": 0.9}
    names |= {"table3 8 layers": 0.95, "table3 2 layers": 0.35, "table3 base, seed 2": 0.3}
    given = context(tmp_path, qualities=names, mute=frozenset({"table3 d_model 256"}))
    findings = table3.find(given)
    text = "\n".join(table3.report(findings))
    assert "one head is worse than eight: **shown**" in text
    assert "big is better: **shown**" in text
    assert "more layers have a worse BLEU: **the other way round** here; 8 layers" in text
    assert "a wider feed-forward is better: **the other way round**" in text
    assert "fewer layers are worse: **not told apart** from the effect of another seed" in text
    assert "a narrower model is worse: not to be compared, d_model 256: did not learn to translate in" in text
    assert "too many heads are worse than eight: **not told apart**" in text
    assert "One vocabulary of 40,932 to 41,160 tokens" in text
    assert "- Long: Sinusoidal is better than learned by" in text
    table3.draw(findings, tmp_path)
    assert (tmp_path / "table3-differences.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("experiment", "every"),
    [(table2, 3), *(pytest.param(experiment, 1, marks=pytest.mark.slow) for experiment in (table2, table3, strategy))],
    ids=lambda value: getattr(value, "NAME", value),
)
def test_any_training_may_diverge(experiment: Any, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy, "_accumulation", lambda context: {"float64": 1e-15, "float32": 1e-6})
    found = []
    for trial in experiment.trials(GRAMMAR, 0.01)[::every]:
        given = context(tmp_path, diverged={trial.name: "the loss of step 3 is nan"})
        found.append(experiment.find(given))
        text = "\n".join(experiment.report(found[-1]))
        assert "diverged" in text or "the loss of step 3 is nan" in text, trial.name
    experiment.draw(found[0], tmp_path)


def test_the_strategy_is_told(tmp_path: Path) -> None:
    wild = "strategy post-norm none"
    names = {"table3 smoothing 0.0": 0.9, "strategy pre-norm warm-up": 0.25, "table3 base, seed 2": 0.1}
    given = context(tmp_path, qualities=names, diverged={wild: "the loss of step 3 is nan"})
    findings = strategy.find(given)
    text = "\n".join(strategy.report(findings))
    assert "a training diverged" in text
    assert "the loss of step 3 is nan" in text
    smoothing, norms = (next(line for line in text.split("\n") if word in line) for word in ("Smoothing 0.1", "Post-"))
    assert "Smoothing 0.1 is worse than none by" in smoothing
    assert "Post-norm is better than pre-norm by" in norms
    assert "seeds" not in smoothing
    assert norms.endswith(" BLEU. But seeds of the base differ by as much.")
    assert 0 < findings["accumulation"]["float64"] < 1e-12
    assert 0 < findings["accumulation"]["float32"] < 1e-4
    strategy.draw(findings, tmp_path)
    assert (tmp_path / "strategy-warmup.png").read_bytes().startswith(b"\x89PNG")


def test_trials_are_shared(tmp_path: Path) -> None:
    """The strategy's base, with its seeds, and two of its rows are table 3's: trained once."""
    runner = Runner(tmp_path)
    ours, theirs = ({runner.key(t) for t in e.trials(GRAMMAR, 1.0)} for e in (strategy, table3))
    assert len(ours & theirs) == 5
