"""Training on rewards as an experiment: what its runs learn and cost, and a small run from nothing."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from after.experiments import rewards
from after.experiments.rewards import arms as runs
from after.experiments.rewards import plan
from after.experiments.rewards.arms import Accepted, Counted, Ordinary, Preferred, Rewarded, draw, seeded
from after.experiments.rewards.judging import reached
from after.experiments.rewards.plan import ACCEPTED, LONGEST, ORDINARY, PREFERRED, REWARDED, RIGHT, TEXTS, TOKENS
from after.predictions import is_right
from after.task import Texts
from minitransformer.cli.recipes import Recipe
from minitransformer.costs import flops_per_token
from minitransformer.data import BPETokenizer, preparation
from minitransformer.decoding import Generator
from minitransformer.grammar import sample
from minitransformer.models import GPT, GPTConfig
from minitransformer.ops import numpy_ops
from minitransformer.training.rewards import RewardSettings, Rollouts
from study.experiment import Context, Findings
from study.trials.bootstrap import Interval
from study.trials.counting import counting
from study.trials.runner import Runner
from study.trials.trial import Answers, Trial, TrialResult

CONFIG = GPTConfig(
    400, d_model=32, num_heads=2, d_ff=64, num_layers=2, max_length=128, dropout=0.0, attention_dropout=0.0,
    bos_id=2, eos_id=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    """A tokenizer of a few of the grammar's sentences."""
    return BPETokenizer.train(Texts().english(300).lines("train"), 400)


def test_runs_are_planned_for_the_same_operations() -> None:
    """Their steps are whole twentieths, so that they miss the budget by at most half of one."""
    rewarded, ordinary, accepted, preferred = plan.planned(Texts(), 1.0).values()
    text, row = (flops_per_token(rewarded.config, length).target for length in (LONGEST, runs.LENGTH))
    assert isinstance(accepted, Accepted)
    assert isinstance(preferred, Preferred)
    planned = {
        REWARDED: text * rewarded.settings.steps * TEXTS * (5 * LONGEST + TOKENS),
        ORDINARY: row * 3 * ordinary.settings.steps * 2048,
        ACCEPTED: text * accepted.draws * TOKENS + row * 3 * accepted.settings.steps * 2048,
        PREFERRED: text * (preferred.draws * TOKENS + preferred.settings.steps * TEXTS * 5 * LONGEST),
    }
    for name, operations in planned.items():
        assert operations == pytest.approx(plan.OPERATIONS, rel=0.04), name
    assert accepted.draws * RIGHT * TOKENS == pytest.approx(accepted.settings.steps * 2048, rel=0.04)
    assert preferred.draws * (1 - RIGHT) == pytest.approx(preferred.settings.steps * TEXTS / 2, rel=0.06)
    assert isinstance(ordinary, Ordinary)
    assert ordinary.sentences * TOKENS > ordinary.settings.steps * 2048  # no sentence is read twice


@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_what_a_run_logs_is_what_its_products_take(kl: float, tokenizer: BPETokenizer) -> None:
    """A token is drawn with fewer keys than its text has at the end, so a little less is computed than is counted."""
    ops, tally = counting(numpy_ops)
    model, start = (GPT(CONFIG, ops, "float32", seed=1) for _ in range(2))
    writer = Generator(model, tokenizer)
    settings = RewardSettings(max_tokens=20, kl=kl)
    trial = replace(plan.planned(Texts(), 1.0)[REWARDED], config=CONFIG, rewards=settings)  # type: ignore[call-arg]
    counted = trial.lessons(writer, start)
    batch = counted.batches(8 * 21, 0, CONFIG).batch(0, 1)
    before = tally.forward
    model.loss(batch.inputs[0], batch.targets, with_grad=False)
    computed = before + 3 * (tally.forward - before)
    assert 0.9 < computed / batch.figures["operations"] <= 1


def test_drawing_before_the_first_step_is_counted_once(tokenizer: BPETokenizer) -> None:
    model = GPT(CONFIG, numpy_ops, "float32", seed=1)
    rollouts = Rollouts(Generator(model, tokenizer), runs.many_words, RewardSettings(max_tokens=4, kl=0.0))
    first, second = (
        [batch.figures["operations"] for batch in Counted(rollouts, 3, before).batches(1, 0, CONFIG).epoch(0)]
        for before in (0.0, 5e9)
    )
    assert np.subtract(second, first).tolist() == [5e9]


def test_texts_are_sorted_by_the_parser(tokenizer: BPETokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrained model writes no sentence, so a text counts as right here if its first token is even."""
    writer = Generator(GPT(CONFIG, numpy_ops, "float32", seed=1), tokenizer)
    drawn = draw(writer, 40, seed=0)
    right = {text for text, ids in zip(runs.texts_of(writer, drawn), drawn, strict=True) if ids[0] % 2 == 0}
    monkeypatch.setitem(runs.REWARDS, "grammar", lambda texts: [float(text in right) for text in texts])
    arms = plan.planned(Texts(), 1.0)
    accepted, preferred = (replace(arms[name], draws=40) for name in (ACCEPTED, PREFERRED))  # type: ignore[call-arg]
    lines = accepted.lessons(writer, writer.model)
    assert len(lines) == sum(ids[0] % 2 == 0 for ids in drawn)
    pairs = preferred.lessons(writer, writer.model)
    for _, better, worse in pairs.dataset.pairs:  # type: ignore[attr-defined]
        assert (better[0] % 2, worse[0] % 2) == (0, 1)
    assert pairs.before == lines.before > 0


def test_seeds_draw_and_read_other_texts(tokenizer: BPETokenizer) -> None:
    writer = Generator(GPT(CONFIG, numpy_ops, "float32", seed=1), tokenizer)
    assert draw(writer, 3, 0) == draw(writer, 5, 0)[:3] != draw(writer, 3, 1)
    ordinary = replace(plan.planned(Texts(), 1.0)[ORDINARY], sentences=20)  # type: ignore[call-arg]
    lessons = [seeded(ordinary, seed).lessons(writer, writer.model) for seed in (0, 1)]
    assert lessons[0].checksum() != lessons[1].checksum()
    assert isinstance(seeded(plan.held(Texts(), 1.0, 0.0), 2), Rewarded)


def test_forgetful_rewards() -> None:
    texts = ["She sleeps.", "The cat sees the dog.", "Does he sleep?", "she sleeps", "", "."]
    assert runs.no_word_twice(texts) == [1, 0, 1, 0, 0, 0]
    assert runs.many_words(texts) == [2, 4, 3, 0, 0, 0]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment with a small base, few texts and two seeds. Parity stands for the parser."""
    monkeypatch.setattr(preparation, "GRAMMAR_VALIDATION", 30)
    monkeypatch.setattr("study.trials.run.CHECKPOINTS", 5)
    model = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "max_length": 128, "bos_id": 2, "eos_id": 2}
    settings = {"steps": 5, "tokens_per_batch": 512, "warmup_steps": 2, "peak_lr": 1e-2, "label_smoothing": 0.0}
    monkeypatch.setitem(plan.RECIPES, "gpt", Recipe(("next",), model, settings))
    monkeypatch.setitem(runs.REWARDS, "grammar", lambda texts: [float(len(text) % 2) for text in texts])
    monkeypatch.setattr(runs, "WATCHED", 4)
    for name, value in {"SENTENCES": 200, "SAMPLES": 6, "SEEDS": (0, 1), "TEXTS": 16, "OPERATIONS": 1.0}.items():
        monkeypatch.setattr(plan, name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("small", "few_samples")
def test_it_runs_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = flops_per_token(plan.base_trial(Texts()).config, LONGEST).target
    monkeypatch.setattr(plan, "OPERATIONS", 5 * forward * 16 * (5 * LONGEST + TOKENS))
    runner = Runner(tmp_path, workers=1, say=lambda line: None)
    runner.run(rewards.trials(Texts(), 1.0))
    found = json.loads(json.dumps(rewards.find(Context(Texts(), 1.0, runner))))
    for seeds in found["arms"].values():
        assert len(seeds) == 2
        for run in seeds:
            assert run["curve"][-1][0] == run["flops"]
            assert run["kl"] > 0
    first, second = (runner.result(seeded(plan.planned(Texts(), 1.0)[REWARDED], seed)) for seed in (0, 1))
    assert first.answers().hypotheses != second.answers().hypotheses
    assert found["held"].keys() == {"0", "0.05", "2"}
    assert found["longer"][0]["steps"] > found["arms"][REWARDED][0]["steps"] >= found["loose"][0]["steps"] > 0
    assert [each["reward"] for each in found["hacks"]] == ["no word twice", "many words", "many words"]


@dataclass
class MadeUpWriter:
    """Gives a made-up result for any run: its share of grammatical texts where its name is known, else 0.8."""

    shares: dict[str, float]
    diverged: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()

    def result(self, trial: Trial) -> TrialResult:
        """As `Runner.result`: 40 texts for each evaluation, and a curve that rises to the share."""
        if trial.name in self.missing:
            raise FileNotFoundError(trial.name)
        share = self.shares.get(trial.name, 0.8) + 0.005 * trial.settings.seed
        right = np.arange(40) < 40 * share
        sentences = islice(sample("train", trial.settings.seed), 40)
        texts = [
            each.english if there else f"{n}" for n, (each, there) in enumerate(zip(sentences, right, strict=True))
        ]
        tokens = np.full(40, 20.0) + trial.settings.seed
        statistics = np.stack([right, tokens, 2 * tokens], axis=1)
        answers = Answers(np.ones((40, 2)), statistics, 1.0, texts)
        figures = {"validation_reward": share, "validation_kl": 0.05, "reward": share, "perplexity": 7.0 + share}
        curve = [{"step": n, "operations": 1e12 * n, **figures} for n in (1, 2)]
        names = [each.name for each in trial.evaluations]
        diverged = "the loss is nan" if trial.name in self.diverged else None
        return TrialResult(
            1000, 2, 100, 60.0, 10, 1.0, 2e12, curve, diverged, {} if diverged else dict.fromkeys(names, answers)
        )


def found_for(shares: dict[str, float], diverged: str = "", missing: Sequence[str] = ()) -> Findings:
    """Findings of made-up runs with these shares, by the names of the arms."""
    names = {f"rewards {arm}, seed {seed}": share for arm, share in shares.items() for seed in plan.SEEDS}
    writer = MadeUpWriter(names, frozenset([diverged]), frozenset(missing))
    return json.loads(json.dumps(rewards.find(Context(Texts(), 1.0, writer))))  # type: ignore[arg-type]


def test_a_share_above_the_goal_is_told(tmp_path: Path) -> None:
    found = found_for({REWARDED: 0.975, ORDINARY: 0.85})
    text = "\n\n".join(rewards.report(found))
    goal = next(line for line in text.splitlines() if line.startswith("| grammatical texts |"))
    assert ": reached |" in goal
    assert goal.endswith(": **missed** |")  # the longer run has 0.8
    assert "GRPO's share minus ordinary +1" in text
    assert "GRPO writes more grammatical texts than ordinary, accepted and DPO." in text
    assert rewards.judge(found).keys() == found["predictions"].keys()
    assert is_right(found["predictions"]["GRPO"], rewards.judge(found)["GRPO"]) is False  # above the range
    rewards.draw(found, tmp_path)
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {path.stem for path in tmp_path.glob("*.png")}


@pytest.mark.parametrize(("low", "high", "said"), [(93.0, 95.0, True), (92.9, 95.0, None), (90.0, 92.9, False)])
def test_a_goal_is_reached_where_all_of_the_interval_is(low: float, high: float, said: bool | None) -> None:
    assert reached(Interval((low + high) / 2, low, high), 93) is said


def test_runs_that_are_alike_can_not_be_told_apart() -> None:
    text = "\n\n".join(rewards.report(found_for({})))
    assert "These seeds can't tell GRPO from ordinary, accepted and DPO." in text


def test_runs_that_were_not_made_yet_are_left_out(tmp_path: Path) -> None:
    once = [
        trial.name for trial in plan.trials(Texts(), 1.0) if "seed" not in trial.name and trial.name != "rewards base"
    ]
    found = found_for({}, missing=[*once, "rewards DPO, seed 1", "rewards DPO, seed 2"])
    text = "\n\n".join(rewards.report(found))
    assert "Seeds: 3 of GRPO, 3 of ordinary, 3 of accepted and 1 of DPO (the others were not made yet)." in text
    assert rewards.judge(found)["longer"].came == "not all of its runs were made yet"
    assert rewards.judge(found)["DPO's distance"].right is None
    rewards.draw(found, tmp_path)
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {path.stem for path in tmp_path.glob("*.png")}


def test_a_run_that_diverged_is_told(tmp_path: Path) -> None:
    found = found_for({}, diverged="rewards longer")
    assert rewards.report(found) == ["1 training runs diverged: nothing can be compared. The first: the loss is nan."]
    assert {outcome.right for outcome in rewards.judge(found).values()} == {None}
    rewards.draw(found, tmp_path)
    assert not list(tmp_path.iterdir())
