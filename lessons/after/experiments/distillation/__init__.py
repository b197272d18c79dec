"""Distillation for translation: a small student learns from a larger teacher, by its words, its sentences, or both.

Source: Hinton, Vinyals, Dean 2015; Kim & Rush 2016.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.preparation import PreparedData
from minitransformer.models import TransformerConfig
from minitransformer.plots.page import BLUE, GREEN, GREY, ORANGE, VERMILION, Page
from minitransformer.system.threads import Threads
from minitransformer.training import TrainingSettings
from minitransformer.training.checkpoint import load_checkpoint
from study.charts import draw_intervals
from study.comparison import compare, scores, shown
from study.experiment import Context, Findings
from study.markdown import listed, paragraph, picture, scientific, table
from study.measuring import in_rounds, over_rounds, rounds_text
from study.trials.bootstrap import BLEU, Interval, Metric, interval
from study.trials.run import lasting
from study.trials.runner import Runner
from study.trials.seeds import student_t
from study.trials.translating import Translating, translations
from study.trials.trial import Trial, TrialResult

from ...predictions import Outcome, prediction_blocks, predictions_of
from ...task import Texts
from .taught import BEAM, SHARE, StudentTrial

NAME, TITLE, MINUTES, ALONE = "distillation", "Distillation: a small translator learns from a larger one", 38.5, 38.5

STEPS = 2200
"""The steps of each training at scale 1."""

DROPOUT = 0.1
"""The students' dropout; the teacher has its preset's."""

TEACHER, BASELINE, WORDS, SEQUENCES, BOTH = "teacher", "student alone", "word level", "sequence level", "both levels"
COLOURS = {TEACHER: GREY, BASELINE: BLUE, WORDS: GREEN, SEQUENCES: ORANGE, BOTH: VERMILION}
LEARNERS = (WORDS, SEQUENCES, BOTH)

GREEDY, SEARCHED = "greedy", "beam"
EVALUATIONS = (Translating(SEARCHED, averaged=True, beam=BEAM), Translating(GREEDY, averaged=True, beam=1))

TIMED, ROUNDS = 200, 3
"""The sentences whose translation is timed, and how often."""

OF_SEEDS = {SEARCHED: (37.8, 37.6, 38.5), GREEDY: (37.6, 37.5, 37.7)}
"""BLEU of the preset `tiny` after 4,000 steps with seeds 0, 1 and 2. Source: minitransformer/cli/README.md."""

SEED_SD = float(np.std(OF_SEEDS[SEARCHED], ddof=1))
"""The standard deviation of a training's BLEU over seeds. Greedy the three differ less; this one serves for both."""

GAIN_SD = float(np.std(np.subtract(OF_SEEDS[SEARCHED], OF_SEEDS[GREEDY]), ddof=1))
"""The standard deviation over seeds of a beam's gain over greedy search."""


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """The teacher, and the four students, in the order of `COLOURS`."""
    text = task.multi30k()
    settings = lasting(TrainingSettings(tokens_per_batch=2048, warmup_steps=1000, threads=1), scale * STEPS)
    large = TransformerConfig.tiny(text.vocab_size, max_length=text.max_length)
    small = TransformerConfig.tiny(text.vocab_size, max_length=text.max_length, num_layers=1, dropout=DROPOUT)
    teacher = Trial(f"{NAME} {TEACHER}", text, large, settings, EVALUATIONS)
    alone = Trial(f"{NAME} {BASELINE}", text, small, settings, EVALUATIONS)
    learners = [_learner(name, alone, teacher) for name in LEARNERS]
    return [teacher, alone, *learners]


def _learner(name: str, alone: Trial, teacher: Trial) -> StudentTrial:
    """A student with a teacher, whose probabilities take the place of label smoothing at word level."""
    words, sequences = name in (WORDS, BOTH), name in (SEQUENCES, BOTH)
    settings = alone.settings.to_dict() | ({"label_smoothing": 0.0} if words else {})
    return StudentTrial(
        f"{NAME} {name}",
        alone.text,
        alone.config,
        TrainingSettings.from_dict(settings),
        alone.evaluations,
        teacher=teacher,
        words=words,
        sequences=sequences,
    )


def find(context: Context[Texts]) -> Findings:
    """The scores of all models, their differences, and how fast they translate."""
    runner = context.runner
    chosen = dict(zip(COLOURS, trials(context.task, context.scale), strict=True))
    results = {name: runner.result(trial) for name, trial in chosen.items()}
    whole = {name: result for name, result in results.items() if result.diverged is None}
    found: Findings = {
        "predictions": predictions_of(NAME),
        "models": {
            name: {e.name: scores(result, evaluation=e.name) for e in EVALUATIONS} for name, result in results.items()
        },
        "table": chosen[BASELINE].config.vocab_size * chosen[BASELINE].config.d_model,
        "layers": {name: chosen[name].config.num_layers for name in (TEACHER, BASELINE)},
        "against": {
            name: {e.name: compare(results[name], results[BASELINE], "bleu", (e.name, e.name)) for e in EVALUATIONS}
            for name in (*LEARNERS, TEACHER)
        },
        "from the beam": {
            name: compare(result, result, "bleu", (SEARCHED, GREEDY)) for name, result in results.items()
        },
        "times": _times(runner, {name: chosen[name] for name in (TEACHER, BASELINE) if name in whole}),
    }
    if len(whole) == len(results):
        best = max(LEARNERS, key=lambda name: found["models"][name][SEARCHED]["bleu"]["value"])
        found["best"] = best
        found["rest"] = {
            name: compare(results[best], results[name], "bleu", (SEARCHED, SEARCHED))
            for name in LEARNERS
            if name != best
        }
        if between(found["against"][TEACHER][SEARCHED]).low > 0:
            found["closed"] = _closed(*(results[name] for name in (best, BASELINE, TEACHER)))
        found["less from the beam"] = _beam_gains(results[SEQUENCES], results[BASELINE])
    return found


def _statistics(result: TrialResult, *evaluations: str) -> list[NDArray[np.float64]]:
    return [result.answers(name).statistics for name in evaluations]


def _closed(best: TrialResult, alone: TrialResult, teacher: TrialResult) -> dict[str, float]:
    """The percentage of the teacher's lead over the student alone that the best student closes."""

    def share(sums: NDArray[np.float64]) -> float:
        ours, low, high = (BLEU.score(part) for part in np.split(sums, 3))
        return 100 * (ours - low) / max(high - low, 1e-9)

    parts = [each for result in (best, alone, teacher) for each in _statistics(result, SEARCHED)]
    return asdict(interval(Metric("share", share), np.concatenate(parts, axis=1)))


def _beam_gains(ours: TrialResult, theirs: TrialResult) -> dict[str, float]:
    """Return the gain of a beam over greedy search, in BLEU, for `ours` minus that for `theirs`, with its interval."""

    def gap(sums: NDArray[np.float64]) -> float:
        a, b, c, d = (BLEU.score(part) for part in np.split(sums, 4))
        return (a - b) - (c - d)

    parts = [each for result in (ours, theirs) for each in _statistics(result, SEARCHED, GREEDY)]
    return asdict(interval(Metric("difference of gains", gap), np.concatenate(parts, axis=1)))


def _times(runner: Runner, timed: dict[str, Trial]) -> dict[str, dict[str, list[list[float]]]]:
    """Time some translations on one core, in rounds; return the seconds for each model and search."""
    models = {
        name: load_checkpoint(runner.model_path(each), with_optimizer=False).model() for name, each in timed.items()
    }
    found: dict[str, dict[str, list[list[float]]]] = {name: {GREEDY: [], SEARCHED: []} for name in models}
    sources = {name: _sources(runner.data(each.text)) for name, each in timed.items()}
    with Threads(1):
        for _ in range(ROUNDS):
            for name, model in models.items():
                for search, beam in ((GREEDY, 1), (SEARCHED, BEAM)):
                    start = perf_counter()
                    translations(model, sources[name], beam=beam)
                    found[name][search].append([perf_counter() - start])
    return found


def _sources(data: PreparedData) -> list[list[int]]:
    """The ids of the first sentences of the test set."""
    return [data.tokenizer.encode(pair.source) for pair in islice(data.choice.pairs("test"), TIMED)]


# --- What another seed would change -----------------------------------------------------------------------------


def widened(found: Interval, sd: float) -> Interval:
    """An interval of the test sentences, widened by the variance over seeds; each side on its own.

    sd  the standard deviation over seeds, known from as many as `OF_SEEDS` has, so that Student's t stands for 1.96
    """
    of_seeds = student_t(len(OF_SEEDS[SEARCHED]) - 1) * sd
    low, high = (math.hypot(half, of_seeds) for half in (found.value - found.low, found.high - found.value))
    return Interval(found.value, found.value - low, found.value + high)


def level(found: Mapping[str, float]) -> Interval:
    """The BLEU of one training, with the interval of sentences and seeds."""
    return widened(Interval(**found), SEED_SD)


def between(found: Mapping[str, float], sd: float = SEED_SD) -> Interval:
    """A difference between two trainings, with the interval of sentences and of seeds that are independent."""
    return widened(Interval(**found), math.sqrt(2) * sd)


def closed_share(findings: Findings) -> Interval:
    """The percentage of `_closed`, with the interval of sentences and seeds.

    The share is (best − alone) / (teacher − alone). Its derivatives by the three scores, times the gap below the line,
    are 1, share − 1 and −share.
    """
    found, gap = Interval(**findings["closed"]), findings["against"][TEACHER][SEARCHED]["value"]
    share = found.value / 100
    return widened(found, 100 * SEED_SD / gap * math.hypot(1, share - 1, share))


# --- The report -------------------------------------------------------------------------------------------------


def draw(findings: Findings, folder: Path) -> None:
    """Draw `distillation-bleu.png`: BLEU of every model, greedy and with a beam."""
    models = {name: each for name, each in findings["models"].items() if each[GREEDY]["diverged"] is None}
    if not models:
        return
    page = Page(7.4, 2.4, layout="constrained")
    both = page.figure.subplots(1, 2, sharey=True, sharex=True)
    for axes, search in zip(both, (GREEDY, SEARCHED), strict=True):
        values = {name: Interval(**each[search]["bleu"]) for name, each in models.items()}
        draw_intervals(axes, values, [COLOURS[name] for name in values], f"BLEU, {_search_name(search)}")
    both[1].invert_yaxis()  # `draw_intervals` inverted the shared axis twice
    page.save(folder / f"{NAME}-bleu.png")


def _search_name(search: str) -> str:
    return "greedy" if search == GREEDY else f"beam {BEAM}"


def speed(findings: Findings, search: str) -> dict[str, Any] | None:
    """Return the factor by which the student translates faster than the teacher; None if one of them diverged."""
    times = findings["times"]
    if not times.keys() >= {TEACHER, BASELINE}:
        return None
    return in_rounds(lambda a, b: a[0] / b[0], times[TEACHER][search], times[BASELINE][search])


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""
    if "best" not in findings:
        return dict.fromkeys(findings["predictions"], Outcome("a training run diverged", None))
    models, against = findings["models"], findings["against"]

    def gained(name: str) -> Outcome:
        gap = between(against[name][GREEDY])
        return Outcome(gap.text(2, sign=True), found=gap)

    def bleu(name: str) -> Outcome:
        found = level(models[name][SEARCHED]["bleu"])
        return Outcome(found.text(1), found=found)

    best, rest = findings["best"], {name: between(each) for name, each in findings["rest"].items()}
    rivals = rest.values() if best == BOTH else [rest[BOTH]]
    is_best = best == BOTH if all(each.excludes_zero for each in rivals) else None
    gains = between(findings["less from the beam"], GAIN_SD)
    times = speed(findings, SEARCHED)
    return {
        "teacher": bleu(TEACHER),
        "baseline": bleu(BASELINE),
        "word level": gained(WORDS),
        "sequence level": gained(SEQUENCES),
        "both": Outcome(
            "; ".join(f"{best} minus {name}: {gap.text(2, sign=True)}" for name, gap in rest.items()), is_best
        ),
        "less from the beam": Outcome(gains.text(2, sign=True), gains.value < 0 if gains.excludes_zero else None),
        "the gap": Outcome(f"{closed_share(findings).text(0)} %", found=closed_share(findings))
        if "closed" in findings
        else Outcome("the teacher is not shown to be better than the student alone"),
        "speed": Outcome("a training run diverged")
        if times is None
        else Outcome(f"{rounds_text(times)} times", found=over_rounds(times)),
    }


def report(findings: Findings) -> list[str]:
    """Report scores, differences, sizes and speed, what it means, and the predictions."""
    models, layers = findings["models"], findings["layers"]
    trained = [each[GREEDY] for each in models.values() if each[GREEDY]["diverged"] is None]
    if not trained:
        return ["Every training run diverged."]
    passes = sorted({f"{each['epochs']:.1f}" for each in trained}, key=float)
    return [
        paragraph(f"""
            Multi30k, English to German. The teacher is the preset `tiny`, {layers[TEACHER]} layers in its encoder and
            as many in its decoder; the student has {layers[BASELINE]} and {layers[BASELINE]}, of the same width.
            Dropout is {TransformerConfig.tiny().dropout:g} in the teacher and {DROPOUT:g} in every student. *Word
            level*: a student's target is a distribution over all tokens, {1 - SHARE:g} times the right token plus
            {SHARE:g} times the teacher's probabilities at temperature 1 (in place of label smoothing). *Sequence
            level*: it learns from the teacher's translations of the training set, found with a beam of {BEAM}, instead
            of the right ones. *Both*: from these translations, with the teacher's probabilities of their tokens. All
            training runs take {trained[0]["steps"]:,} steps, {" to ".join(dict.fromkeys((passes[0], passes[-1])))}
            times over {trained[0]["pairs"]:,} pairs, and the mean of the last five checkpoints is evaluated.
        """),
        paragraph("""
            The brackets in the first table are 95 % intervals of 1,000 bootstrap samples of the test sentences. They
            say how far a score would move with other sentences. But each model was trained only once, and another seed
            would move its score too. So the brackets of a difference between two training runs are wider: they cover
            other sentences and other seeds. The same holds for every BLEU score that is compared with a prediction.
        """),
        paragraph(f"""
            How much a seed changes is known from three training runs of the preset `tiny` ([4,000
            steps](../../minitransformer/cli/README.md#real-text)): they have
            {listed([f"{bleu:.1f}" for bleu in OF_SEEDS[SEARCHED]])} BLEU with a beam, a standard deviation of
            {SEED_SD:.2f}. With greedy search it is
            {np.std(OF_SEEDS[GREEDY], ddof=1):.2f}; the larger one is taken for both. For the beam's lead over greedy
            search it is {GAIN_SD:.2f}. Three seeds give only a rough number. So it is multiplied by Student's t for
            {len(OF_SEEDS[SEARCHED])} values, {student_t(len(OF_SEEDS[SEARCHED]) - 1):.1f}, and not by the usual 2.0,
            and these brackets are wide: only a difference of about 3 BLEU or more can be shown. We assume that the
            training runs here vary as much, and independently of each other. The three students with a teacher all
            learn from the same one; no bracket covers the effect of another teacher.
        """),
        _table(findings),
        paragraph(_costs(findings)),
        picture(f"{NAME}-bleu", "BLEU of the teacher and the students, greedy and with a beam"),
        "These intervals are the first table's: they cover other sentences, but no other seeds.",
        *_differences(findings),
        *_meaning(findings),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


def _table(findings: Findings) -> str:
    rows = []
    for name, found in findings["models"].items():
        one = found[SEARCHED]
        scored = [shown(found[GREEDY], "bleu"), shown(one, "bleu"), shown(one, "perplexity", 2)]
        told = scored if one["diverged"] is None else [one["diverged"], "", ""]
        sizes = [f"{one['parameters']:,}", scientific(one["flops"]), f"{one['seconds']:,.0f}"]
        rows.append([name, *told, *sizes])
    head = ["model", "BLEU, greedy", f"BLEU, beam {BEAM}", "perplexity", "parameters", "operations", "seconds"]
    return table(head, rows)


def _costs(findings: Findings) -> str:
    """Return a paragraph on what the columns of costs include and leave out."""
    teacher, times = findings["models"][TEACHER][SEARCHED], findings["times"].get(TEACHER)
    said = f"""
        All models take as many steps, but not at equal cost. *Operations* are those of a model's own forwards and
        backwards. At word level the teacher also reads each batch: {scientific(teacher["flops"] / 3)} operations on
        top, a third of those of its own training, and about as many at both levels. They are not in that column, but
        their time is in the *seconds*. Before the students of sequence level and of both levels are trained, the
        teacher translates the training set. Neither column includes this.
    """
    if times is not None:
        seconds = min(one for (one,) in times[SEARCHED]) / TIMED * teacher["pairs"]
        said += f"At the speed measured below this would take about {seconds:,.0f} seconds on one core. "
    return said + f"The teacher's own training, {teacher['seconds']:,.0f} seconds, is in no student's row."


def _said(gap: Interval) -> str:
    """Return in words which of two is better, or that the interval shows no difference."""
    if not gap.excludes_zero:
        return "no difference shown"
    return f"the first is {'better' if gap.value > 0 else 'worse'}"


def _differences(findings: Findings) -> list[str]:
    """Return a table of all differences, those between two trainings first, and a paragraph that explains its words."""
    apart = [
        (f"{name} minus {BASELINE}", _search_name(search), None if gap is None else between(gap))
        for name, gaps in findings["against"].items()
        for search, gap in gaps.items()
    ]
    within = [
        (name, f"beam {BEAM} minus greedy", None if gap is None else Interval(**gap))
        for name, gap in findings["from the beam"].items()
    ]
    rows = [
        [what, how, *(("–", "a training run diverged") if gap is None else (gap.text(2, sign=True), _said(gap)))]
        for what, how, gap in (*apart, *within)
    ]
    return [
        paragraph(f"""
            The first {len(apart)} differences are between two training runs; their brackets cover sentences and seeds.
            The last {len(within)} are between two searches with one and the same model; their brackets cover sentences
            only, so they hold for this one training run. *No difference shown*: none that one training run each and
            this test set can show. It does not mean that the two are equal. The {len(rows)} comparisons are not
            corrected for their number: of twenty differences that are truly zero, about one would look real.
        """),
        table(["comparison", "search", "difference in BLEU", "verdict"], rows, left=2),
    ]


def _meaning(findings: Findings) -> list[str]:
    """Return paragraphs on the value of a student: its scores, the teacher they hold for, its size and its speed."""
    if "best" not in findings:
        return []
    models = findings["models"]
    large, small = (models[name][SEARCHED]["parameters"] for name in (TEACHER, BASELINE))
    share = findings["table"] / small
    faster = {search: rounds_text(each) for search in (GREEDY, SEARCHED) if (each := speed(findings, search))}
    return [
        paragraph(_result(findings)),
        paragraph(f"""
            This holds for a teacher whose training was stopped early. Here it comes to
            {models[TEACHER][SEARCHED]["bleu"]["value"]:.1f} BLEU with a beam, after
            {models[TEACHER][SEARCHED]["steps"]:,} steps. By [the recipe for real
            text](../../minitransformer/cli/README.md#real-text) the same preset comes to
            {np.mean(OF_SEEDS[SEARCHED]):.1f} after 4,000 steps (the mean of three training runs) and to 39.5 after
            8,000 (one training run). There, batches have twice as many tokens, and another learning rate is used. And
            teacher and students differ in more than their size: the teacher's dropout is
            {TransformerConfig.tiny().dropout:g}, theirs is {DROPOUT:g}. More dropout usually makes learning slower, so
            the teacher may be behind for this reason too. We did not measure how well students learn from a teacher
            that was trained for longer.
        """),
        *_perplexities(findings),
        paragraph(f"""
            A student has {100 * small / large:.0f} % of the teacher's parameters. Of its own parameters,
            {100 * share:.0f} % are the table of tokens. It translates {faster[GREEDY]} times as fast as the teacher,
            greedily, and {faster[SEARCHED]} times with a beam (in brackets: single rounds; one core, {TIMED}
            sentences). {_choice(findings)}
        """),
    ]


def _choice(findings: Findings) -> str:
    """Return the practical choice if the trainings show no difference in BLEU, else an empty text."""
    if any(between(gap).excludes_zero for each in findings["against"].values() for gap in each.values()):
        return ""
    return """With this budget the student alone is the practical choice: a smaller and faster model whose training is
        the simplest, and no loss of BLEU is shown. Gains and losses of less than 3 BLEU stay hidden."""


def _result(findings: Findings) -> str:
    """Return a paragraph on the differences between trainings that are shown, and on those that are not."""
    models, best = findings["models"], findings["best"]
    gaps = {
        f"{name}, {_search_name(search)}": between(gap)
        for name, each in findings["against"].items()
        for search, gap in each.items()
    }
    real = [f"{what}: {gap.text(2, sign=True)}" for what, gap in gaps.items() if gap.excludes_zero]
    said = f"At {models[BASELINE][SEARCHED]['steps']:,} steps "
    if real:
        said += f"these differ from the student alone: {'; '.join(real)}. For the others no difference is shown. "
    else:
        said += """
            neither the teacher nor a student with a teacher is shown to be better or worse than the student alone.
        """
    rest = {name: between(gap) for name, gap in findings["rest"].items()}
    against = (f"{best} minus {name}: {gap.text(2, sign=True)}, {_said(gap)}" for name, gap in rest.items())
    said += f"""
        Of the three students that have a teacher, the one of {best} has the highest BLEU with a beam,
        {models[best][SEARCHED]["bleu"]["value"]:.1f}. Its differences from the other two: {"; ".join(against)}.
    """
    if "closed" in findings:
        return f"""{said} It makes up for {closed_share(findings).text(0)} % of the teacher's lead over the student
            alone. It was chosen by the same test set, so this number is a little too high."""
    return f"""{said} No lead of the teacher over the student alone is shown, so we can't say which part of it a student
        makes up for."""


def _perplexities(findings: Findings) -> list[str]:
    """Return a paragraph on the likely reason of sequence level's high perplexity, if it is high."""
    taught, alone = (Interval(**findings["models"][name][SEARCHED]["perplexity"]) for name in (SEQUENCES, BASELINE))
    if taught.low <= alone.high:
        return []
    return [
        paragraph(f"""
            Perplexity is that of the human translations: {taught.value:.1f} at sequence level, {alone.value:.1f} for
            the student alone. The likely reason, which was not measured: the student of sequence level has learnt the
            one wording that its teacher chooses, and is sure of it, so that other wordings surprise it.
        """)
    ]
