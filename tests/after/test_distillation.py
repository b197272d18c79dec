"""Distillation: the loss towards probabilities, what a teacher adds to pairs, and a small run from nothing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.study_results import MadeUpRunner, made_up

from after.experiments import distillation
from after.experiments.distillation import BASELINE, BOTH, COLOURS, LEARNERS, SEQUENCES, TEACHER, WORDS, taught
from after.experiments.distillation.taught import Student, StudentTrial, TaughtPairs
from after.predictions import is_right
from after.task import Texts
from minitransformer.data.batching import PAD_ID
from minitransformer.data.preparation import CorpusChoice, PreparedData, prepare
from minitransformer.data.token_dataset import TokenDataset
from minitransformer.layers import DropoutStream
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.training import DataParallel, TrainingSettings
from study.experiment import Context, Findings
from study.trials.bootstrap import BLEU, Interval, interval
from study.trials.runner import Runner
from study.trials.translating import Translating
from study.trials.trial import Trial, TrialResult

pytestmark = pytest.mark.usefixtures("few_samples")
TEXT = CorpusChoice(vocab_size=400, sentences=30, max_length=70)
CONFIG = TransformerConfig(400, d_model=16, num_heads=2, d_ff=32, num_layers=2, dropout=0.1, max_length=120)
SMALL = replace(CONFIG, num_layers=1)
SETTINGS = TrainingSettings(steps=3, tokens_per_batch=512, warmup_steps=2, threads=1)
ASKED = (Translating("beam", 4, averaged=True, beam=2), Translating("greedy", 4, averaged=True, beam=1))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare(tmp_path_factory.mktemp("data"), TEXT)


@pytest.fixture(scope="module")
def teacher() -> Transformer:
    return Transformer(CONFIG, dtype="float64", seed=1)


@pytest.fixture(scope="module")
def few(data: PreparedData) -> TokenDataset:
    return TokenDataset.from_pairs(data.train[i] for i in range(6))


def test_towards_single_tokens_it_is_the_models_loss(few: TokenDataset) -> None:
    student, batch = Student(SMALL, dtype="float64"), few.batches(512, 0, SMALL).batch(0, 0)
    wanted = np.eye(400)[batch.target_out] * (batch.target_out != PAD_ID)[..., None]
    dropout, found = DropoutStream(0, 1), []
    for targets in (batch.target_out, wanted):
        student.parameters.zero_grad()
        loss, cache = student.loss(batch.source, batch.target_in, targets, dropout=dropout)
        student.loss_backward(0.5, cache)
        found.append((float(loss), student.parameters.grad.copy()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    assert np.abs(found[0][1] - found[1][1]).max() < 1e-12


def test_the_gradient_towards_a_teacher_is_that_of_central_differences(few: TokenDataset, teacher: Transformer) -> None:
    student = Student(SMALL, dtype="float64")
    batch = TaughtPairs(few, teacher).batches(512, 0, SMALL).batch(0, 0)
    _, cache = student.loss(*batch.inputs)
    student.parameters.zero_grad()
    student.loss_backward(1.0, cache)
    direction = np.random.default_rng(0).standard_normal(student.parameters.data.shape)
    losses = []
    for step in (1e-6, -2e-6):
        student.parameters.data += step * direction
        losses.append(float(student.loss(*batch.inputs)[0]))
    assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(float(student.parameters.grad @ direction), rel=1e-6)


def test_targets_are_half_the_token_and_half_the_teacher(few: TokenDataset, teacher: Transformer) -> None:
    batch = TaughtPairs(few, teacher).batches(512, 0, SMALL).batch(0, 0)
    real = batch.target_out != PAD_ID
    assert batch.wanted.sum(-1)[real] == pytest.approx(1)
    assert not batch.wanted[~real].any()
    right = np.take_along_axis(batch.wanted, batch.target_out[..., None], -1)[..., 0]
    assert right[real].min() > 0.5
    logits, _ = teacher.forward(batch.source, batch.target_in)
    others = np.argsort(logits[0, 0])[[0, 200]]
    ratio = batch.wanted[0, 0, others[1]] / batch.wanted[0, 0, others[0]]
    assert ratio == pytest.approx(np.exp(logits[0, 0, others[1]] - logits[0, 0, others[0]]))


def test_a_batch_in_parts_has_the_gradient_of_the_whole(few: TokenDataset, teacher: Transformer) -> None:
    batch, gradients = TaughtPairs(few, teacher).batches(512, 0, SMALL).batch(0, 0), []
    for shards in (1, 3):
        student = Student(SMALL, dtype="float64")
        with DataParallel(student, threads=1, shards=shards) as workers:
            workers.gradients([batch], 0.0, seed=0, step=1)
        gradients.append(np.array(student.parameters.grad))
    assert np.abs(gradients[0] - gradients[1]).max() < 1e-12


def trials_of(task: Texts, scale: float) -> list[Trial]:
    """The five trials, small, on the grammar."""
    first = Trial("distillation teacher", TEXT, CONFIG, SETTINGS, ASKED)
    alone = Trial("distillation student alone", TEXT, SMALL, SETTINGS, ASKED)
    return [first, alone, *(distillation._learner(name, alone, first) for name in LEARNERS)]


def test_it_runs_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "trials", trials_of)
    monkeypatch.setattr(distillation, "TIMED", 2)
    monkeypatch.setattr(distillation, "EVALUATIONS", ASKED)
    context = Context(Texts(), 1.0, Runner(tmp_path, workers=1, say=lambda line: None))
    context.runner.run(trials_of(Texts(), 1.0)[1:])  # the teacher is trained because students need it
    found = json.loads(json.dumps(distillation.find(context)))
    assert found["models"].keys() == COLOURS.keys()
    text = "\n\n".join(distillation.report(found))
    distillation.draw(found, tmp_path)
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {"distillation-bleu"}
    assert distillation.judge(found).keys() == found["predictions"].keys()


def test_students_learn_from_the_teachers_translations(data: PreparedData, tmp_path: Path) -> None:
    runner = Runner(tmp_path, workers=1, say=lambda line: None)
    first, _, *students = trials_of(Texts(), 1.0)
    runner.run([first])
    by_words, by_sequences, by_both = (each for each in students if isinstance(each, StudentTrial))
    own, models = runner.data(TEXT), [runner.model_path(first)]
    train, valid = by_sequences.material(own, models)
    assert isinstance(train, TokenDataset)
    assert train.source_lengths.tolist() == own.train.source_lengths.tolist()
    assert train.checksum() != own.train.checksum()
    assert valid is own.valid
    both = by_both.material(own, models)[0]
    assert isinstance(both, TaughtPairs)
    assert both.checksum() == train.checksum()
    assert by_words.material(own, models)[0].checksum() == own.train.checksum()
    assert len({json.dumps(each.describe()) for each in (by_words, by_sequences, by_both)}) == 3
    assert by_words.weight > by_sequences.weight


def found_for(
    qualities: dict[str, float], monkeypatch: pytest.MonkeyPatch, diverged: dict[str, str] | None = None
) -> Findings:
    """Findings of made-up trainings of these qualities, by the names of the models."""
    seconds = {TEACHER: 2.0, BASELINE: 1.0}
    times = {name: {search: [[s], [s]] for search in ("greedy", "beam")} for name, s in seconds.items()}
    monkeypatch.setattr(distillation, "_times", lambda runner, timed: {name: times[name] for name in timed})
    runner = MadeUpRunner({f"distillation {name}": value for name, value in qualities.items()}, diverged or {})
    return json.loads(json.dumps(distillation.find(Context(Texts(), 1.0, runner))))  # type: ignore[arg-type]


def test_differences_that_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_for({TEACHER: 0.9, BASELINE: 0.3, WORDS: 0.32, SEQUENCES: 0.5, BOTH: 0.75}, monkeypatch)
    text = "\n".join(distillation.report(found))
    assert re.search(r"sequence level minus student alone \| greedy \| \+.* \| the first is better \|", text)
    assert "these differ from the student alone: sequence level, beam 4: +" in text
    assert "the one of both levels has the highest BLEU with a beam" in text
    assert "of the teacher's lead over the student alone" in text
    outcomes = distillation.judge(found)
    assert outcomes["both"].right is True
    assert is_right(found["predictions"]["speed"], outcomes["speed"])
    assert outcomes["less from the beam"].right is None  # greedy and beam are made up alike
    low, high, best = (
        found["models"][name][distillation.SEARCHED]["bleu"]["value"] for name in (BASELINE, TEACHER, BOTH)
    )
    assert found["closed"]["value"] == pytest.approx(100 * (best - low) / (high - low))
    others = found_for({SEQUENCES: 0.9}, monkeypatch)
    assert distillation.judge(others)["both"].right is False
    assert "No lead of the teacher over the student alone is shown" in "\n".join(distillation.report(others))


def narrow(value: float) -> dict[str, float]:
    """A difference of which the test sentences alone leave little open."""
    return {"value": value, "low": value - 0.1, "high": value + 0.2}


def test_seeds_widen_each_side_of_an_interval() -> None:
    assert pytest.approx(0.4726, abs=1e-4) == distillation.SEED_SD
    found = distillation.widened(Interval(1.0, 0.7, 1.4), 0.2)
    assert found.value == 1
    of_three = 4.302652729911  # Student's t, 2 degrees of freedom
    assert 1 - found.low == pytest.approx((0.3**2 + (0.2 * of_three) ** 2) ** 0.5)
    assert found.high - 1 == pytest.approx((0.4**2 + (0.2 * of_three) ** 2) ** 0.5)
    gap, one = distillation.between(narrow(1.0)), distillation.level(narrow(35.0))
    seeds = of_three * distillation.SEED_SD
    assert 1 - gap.low == pytest.approx((0.1**2 + 2 * seeds**2) ** 0.5)
    assert one.high - 35 == pytest.approx((0.2**2 + seeds**2) ** 0.5)


def test_the_share_made_up_for_varies_as_its_three_scores_do() -> None:
    alone, best, teacher, sd = 30.0, 31.0, 34.0, distillation.SEED_SD
    moved = np.array([alone, best, teacher]) + sd * np.random.default_rng(0).standard_normal((100_000, 3)) / 20
    shares = 100 * (moved[:, 1] - moved[:, 0]) / (moved[:, 2] - moved[:, 0])  # moved little, as if it were linear
    found = {"closed": {"value": 25.0, "low": 25.0, "high": 25.0}, "against": {TEACHER: {"beam": narrow(4.0)}}}
    share = distillation.closed_share(found)
    assert share.high - share.value == pytest.approx(4.302652729911 * 20 * shares.std(), rel=0.02)


def test_verdicts_on_two_trainings_leave_room_for_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences of 1 are shown by the sentences alone, but two seeds could make them; of 4, they could not."""
    found = found_for({}, monkeypatch)
    claims = found["predictions"]
    claims["word level"] |= {"low": 0.5, "high": 1.5}
    found["best"], found["rest"] = BOTH, {WORDS: narrow(1.0), SEQUENCES: narrow(1.0)}
    found["less from the beam"] = narrow(-0.5)
    found["models"][BASELINE]["beam"]["bleu"] = narrow(31.5)
    found["against"] = {name: {"greedy": narrow(1.0), "beam": narrow(-1.0)} for name in (*LEARNERS, TEACHER)}
    found["against"][SEQUENCES]["greedy"] = narrow(0.5)
    found["from the beam"][WORDS] = narrow(1.0)
    outcomes = distillation.judge(found)
    judged = {name: is_right(claims[name], outcomes[name]) for name in claims}
    names = "baseline", "word level", "sequence level", "both", "less from the beam"
    assert {name: judged[name] for name in names} == dict.fromkeys(names)
    text = "\n".join(distillation.report(found))
    assert "neither the teacher nor a student with a teacher is shown to be better or worse" in text
    assert "word level minus student alone | greedy | +1.00 (−1.88 to +3.88) | no difference shown |" in text
    assert "word level | beam 4 minus greedy | +1.00 (+0.90 to +1.20) | the first is better |" in text
    found["against"][WORDS]["greedy"] = found["rest"][WORDS] = found["rest"][SEQUENCES] = narrow(4.0)
    assert distillation.judge(found)["both"].right is True
    text = "\n".join(distillation.report(found))
    assert "these differ from the student alone: word level, greedy: +4.00 (+1.12 to +6.88)." in text


def test_no_share_is_made_up_for_where_seeds_could_make_the_teachers_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    for lead, shown in ((1.0, False), (4.0, True)):
        monkeypatch.setattr(distillation, "compare", lambda *_, lead=lead: narrow(lead))
        assert ("closed" in found_for({}, monkeypatch)) == shown


def test_the_scores_of_seeds_are_those_of_the_readme() -> None:
    text = (Path(__file__).parents[2] / "minitransformer/cli/README.md").read_text(encoding="utf-8")
    for search, mean in (("greedy", 37.6), ("beam", 38.0)):
        scores = distillation.OF_SEEDS[search]
        assert f"{', '.join(f'{score:.1f}' for score in scores)}: mean {mean:.1f} |" in text
        assert np.mean(scores) == pytest.approx(mean, abs=0.05)
    assert "German after 8,000 has" in text
    assert "**39.5**" in text


def test_the_perplexity_of_sequence_level_is_explained_where_it_is_high(monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_for({}, monkeypatch)
    assert "The likely reason" not in "\n".join(distillation.report(found))
    found["models"][SEQUENCES]["beam"]["perplexity"] = narrow(27.0)
    assert "27.0 at sequence level" in "\n".join(distillation.report(found))


def test_what_a_beam_wins_is_its_score_less_that_of_greedy_search() -> None:
    """Ours wins little, theirs much: the difference is negative."""

    def result(greedy: float, beam: float) -> TrialResult:
        trial = Trial("made up", TEXT, SMALL, SETTINGS, (Translating(),))
        answers = {"greedy": made_up(trial, greedy).answers(), "beam": made_up(trial, beam).answers()}
        return replace(made_up(trial), evaluations=answers)

    def gain(found: TrialResult) -> float:
        beam, greedy = (interval(BLEU, found.answers(name).statistics).value for name in ("beam", "greedy"))
        return beam - greedy

    ours, theirs = result(0.5, 0.6), result(0.3, 0.8)
    found = distillation._beam_gains(ours, theirs)
    assert found["value"] == pytest.approx(gain(ours) - gain(theirs))
    assert found["value"] < 0


def test_trainings_that_diverged_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = found_for({}, monkeypatch, diverged={"distillation word level": "the loss of step 1 is nan"})
    text = "\n".join(distillation.report(found))
    assert "the loss of step 1 is nan" in text
    assert "a training run diverged" in text
    distillation.draw(found, tmp_path)
    everything = {f"distillation {name}": "nan" for name in COLOURS}
    none = found_for({}, monkeypatch, diverged=everything)
    assert distillation.report(none) == ["Every training run diverged."]


def test_the_trials_are_those_of_the_report() -> None:
    trials = distillation.trials(Texts(), 1.0)
    assert [trial.name.removeprefix("distillation ") for trial in trials] == list(COLOURS)
    assert {trial.text for trial in trials} == {Texts().multi30k()}
    large, small = trials[0].config.num_parameters, trials[1].config.num_parameters
    assert 0.5 < small / large < 0.65
    assert {trial.settings.steps for trial in trials} == {distillation.STEPS}
    assert taught.BEAM == 4
    assert [trial.config.dropout for trial in trials] == [0.3] + 4 * [distillation.DROPOUT]
