"""Distillation for translation: a small student learns from a larger teacher, by its words, its sentences, or both.

Source: Hinton, Vinyals, Dean 2015; Kim & Rush 2016.
"""

from collections.abc import Sequence
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
from minitransformer.threads import Threads
from minitransformer.training import TrainingSettings
from minitransformer.training.checkpoint import load_checkpoint
from study.charts import draw_intervals
from study.comparison import compare, scores, shown, verdict
from study.experiment import Context, Findings
from study.markdown import bullets, paragraph, picture, scientific, table
from study.measuring import in_rounds, over_rounds, rounds_text
from study.trials.bootstrap import BLEU, Interval, Metric, interval
from study.trials.run import lasting
from study.trials.runner import Runner
from study.trials.translating import Translating, translations
from study.trials.trial import Trial, TrialResult

from ...predictions import Outcome, prediction_blocks, predictions_of
from ...task import Texts
from .taught import BEAM, SHARE, StudentTrial

NAME, TITLE, MINUTES, ALONE = "distillation", "Distillation: a small translator learns from a larger one", 38.5, 38.5

STEPS = 2200
"""The steps of each training at scale 1."""

TEACHER, BASELINE, WORDS, SEQUENCES, BOTH = "teacher", "student alone", "word level", "sequence level", "both levels"
COLOURS = {TEACHER: GREY, BASELINE: BLUE, WORDS: GREEN, SEQUENCES: ORANGE, BOTH: VERMILION}
LEARNERS = (WORDS, SEQUENCES, BOTH)

GREEDY, SEARCHED = "greedy", "beam"
EVALUATIONS = (Translating(SEARCHED, averaged=True, beam=BEAM), Translating(GREEDY, averaged=True, beam=1))

TIMED, ROUNDS = 200, 3
"""The sentences whose translation is timed, and how often."""


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """The teacher, and the four students, in the order of `COLOURS`."""
    text = task.multi30k()
    settings = lasting(TrainingSettings(tokens_per_batch=2048, warmup_steps=1000, threads=1), scale * STEPS)
    large = TransformerConfig.tiny(text.vocab_size, max_length=text.max_length)
    small = TransformerConfig.tiny(text.vocab_size, max_length=text.max_length, num_layers=1, dropout=0.1)
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
        if Interval(**found["against"][TEACHER][SEARCHED]).low > 0:
            found["closed"] = _closed(*(results[name] for name in (best, BASELINE, TEACHER)))
        found["less from the beam"] = _beam_gains(results[SEQUENCES], results[BASELINE])
    return found


def _statistics(result: TrialResult, *evaluations: str) -> list[NDArray[np.float64]]:
    return [result.answers(name).statistics for name in evaluations]


def _closed(best: TrialResult, alone: TrialResult, teacher: TrialResult) -> dict[str, float]:
    """The percentage of what the student alone lacks to the teacher that the best student makes up for."""

    def share(sums: NDArray[np.float64]) -> float:
        ours, low, high = (BLEU.score(part) for part in np.split(sums, 3))
        return 100 * (ours - low) / max(high - low, 1e-9)

    parts = [each for result in (best, alone, teacher) for each in _statistics(result, SEARCHED)]
    return asdict(interval(Metric("share", share), np.concatenate(parts, axis=1)))


def _beam_gains(ours: TrialResult, theirs: TrialResult) -> dict[str, float]:
    """What a beam wins over greedy search, in BLEU, for ours less than for theirs."""

    def gap(sums: NDArray[np.float64]) -> float:
        a, b, c, d = (BLEU.score(part) for part in np.split(sums, 4))
        return (a - b) - (c - d)

    parts = [each for result in (ours, theirs) for each in _statistics(result, SEARCHED, GREEDY)]
    return asdict(interval(Metric("difference of gains", gap), np.concatenate(parts, axis=1)))


def _times(runner: Runner, timed: dict[str, Trial]) -> dict[str, dict[str, list[list[float]]]]:
    """For each model and search the seconds of some translations on one core, in rounds."""
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
    both[1].invert_yaxis()  # again, because both axes share it and each inverted it
    page.save(folder / f"{NAME}-bleu.png")


def _search_name(search: str) -> str:
    return "greedy" if search == GREEDY else f"beam {BEAM}"


def speed(findings: Findings, search: str) -> dict[str, Any] | None:
    """How many times as fast the student translates as the teacher; None if one of them diverged."""
    times = findings["times"]
    if not times.keys() >= {TEACHER, BASELINE}:
        return None
    return in_rounds(lambda a, b: a[0] / b[0], times[TEACHER][search], times[BASELINE][search])


def judge(findings: Findings) -> dict[str, Outcome]:
    """What came of each prediction."""
    if "best" not in findings:
        return dict.fromkeys(findings["predictions"], Outcome("a training diverged", None))
    models, against = findings["models"], findings["against"]

    def gained(name: str) -> Outcome:
        gap = Interval(**against[name][GREEDY])
        return Outcome(gap.text(1, sign=True), found=gap)

    def bleu(name: str) -> Outcome:
        return Outcome(shown(models[name][SEARCHED], "bleu"), found=Interval(**models[name][SEARCHED]["bleu"]))

    best, rest = findings["best"], {name: Interval(**each) for name, each in findings["rest"].items()}
    rivals = rest.values() if best == BOTH else [rest[BOTH]]
    is_best = best == BOTH if all(each.excludes_zero for each in rivals) else None
    gains = Interval(**findings["less from the beam"])
    times = speed(findings, SEARCHED)
    return {
        "teacher": bleu(TEACHER),
        "baseline": bleu(BASELINE),
        "word level": gained(WORDS),
        "sequence level": gained(SEQUENCES),
        "both": Outcome(
            f"{best}; less {', less '.join(f'{name} {gap.text(1, sign=True)}' for name, gap in rest.items())}", is_best
        ),
        "less from the beam": Outcome(gains.text(1, sign=True), gains.value < 0 if gains.excludes_zero else None),
        "the gap": Outcome(f"{Interval(**findings['closed']).text(0)} %", found=Interval(**findings["closed"]))
        if "closed" in findings
        else Outcome("the teacher is not shown to be better than the student alone"),
        "speed": Outcome("a training diverged")
        if times is None
        else Outcome(f"{rounds_text(times)} times", found=over_rounds(times)),
    }


def report(findings: Findings) -> list[str]:
    """Report scores, differences, sizes and speed, what it means, and the predictions."""
    models, layers = findings["models"], findings["layers"]
    trained = [each[GREEDY] for each in models.values() if each[GREEDY]["diverged"] is None]
    if not trained:
        return ["Every training diverged."]
    return [
        paragraph(f"""
            Multi30k, English to German. The teacher is the preset `tiny`, {layers[TEACHER]} layers in its encoder and
            as many in its decoder; the student has {layers[BASELINE]} and {layers[BASELINE]}, of the same width.
            *Word level*: a student's target is a distribution over all tokens, {1 - SHARE:g} times the right token plus
            {SHARE:g} times the teacher's probabilities at temperature 1 (in place of label smoothing). *Sequence
            level*: it learns from the teacher's translations of the training set, found with a beam of {BEAM}, instead
            of the right ones. *Both*: from these translations, with the teacher's probabilities of their tokens. All
            trainings take {trained[0]["steps"]:,} steps, {trained[0]["epochs"]:.1f} times over {trained[0]["pairs"]:,}
            pairs, and the mean of the last five checkpoints is evaluated. In brackets: the 95 % interval of 1,000
            bootstrap samples of the test sentences; there is one training of each, so what another seed would change is
            not in it.
        """),
        _table(findings),
        picture(f"{NAME}-bleu", "BLEU of the teacher and the students, greedy and with a beam"),
        bullets(_sentences(findings)),
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


def _sentences(findings: Findings) -> list[str]:
    said = []
    for name, gaps in findings["against"].items():
        for search, gap in gaps.items():
            said.append(f"{_search_name(search).capitalize()}: {verdict(name.capitalize(), BASELINE, 'bleu', gap)}")
    for name, gap in findings["from the beam"].items():
        said.append(f"{name.capitalize()}: {verdict('The beam', 'greedy search', 'bleu', gap)}")
    return said


def _meaning(findings: Findings) -> list[str]:
    """What a student is worth: its size, its speed, and how much nearer to its teacher it comes."""
    if "best" not in findings:
        return []
    models, best = findings["models"], findings["best"]
    large, small = (models[name][SEARCHED]["parameters"] for name in (TEACHER, BASELINE))
    share = findings["table"] / small
    faster = {search: rounds_text(each) for search in (GREEDY, SEARCHED) if (each := speed(findings, search))}
    taught, alone = models[best][GREEDY]["bleu"]["value"], models[BASELINE][SEARCHED]["bleu"]["value"]
    made_up = "the student alone is not shown to lack anything to the teacher"
    if "closed" in findings:
        closed = Interval(**findings["closed"])
        made_up = f"it makes up for {closed.text(0)} % of what the student alone lacks to the teacher"
    compared = "more than" if taught > alone else "no more than"
    return [
        paragraph(f"""
            A student has {100 * small / large:.0f} % of the teacher's parameters; {100 * share:.0f} % of its
            own are the table of tokens. It translates {faster[GREEDY]} times as fast, greedily, and
            {faster[SEARCHED]} times with a beam (in brackets: single rounds; one core, {TIMED} sentences). The best
            student with a beam is that of {best}:
            {made_up}. Greedily it has {taught:.1f} BLEU, {compared} the student alone with a beam ({alone:.1f}).
        """)
    ]
