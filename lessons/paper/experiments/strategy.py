"""The paper's training (§5): warm-up, the norm's place, smoothing, dropout, large batches, averaged checkpoints."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from minitransformer.data.token_dataset import Batches
from minitransformer.models import build_model
from minitransformer.plots.page import BLUE, SKY, VERMILION, Page
from minitransformer.training import DataParallel
from study.charts import finish
from study.comparison import compare, learned, scores, shown, spread, verdict
from study.experiment import Context, Findings
from study.markdown import bullets, paragraph, picture, table
from study.trials.trial import Trial

from ..task import Task
from .table3 import BASE, SEEDS, TABLE_3, trial

NAME, TITLE, MINUTES, ALONE = "strategy", "How it is trained", 5.5, 10.5

NORMS = {"post-norm": False, "pre-norm": True}
SCHEDULES = {"warm-up": 1, "a tenth of it": 10, "none": None}
"""The divisors of the base's warm-up; None leaves one step. After the warm-up all follow the same curve of eq. 3."""

COLOURS = dict(zip(SCHEDULES, (BLUE, SKY, VERMILION), strict=True))
SMALL, RATES = 1000, (0.0, 0.3)
"""The sentences of a corpus that is small enough to be learned by heart, and the rates of dropout on it."""

ROWS = {row.name: row for row in TABLE_3}
PARTS = 4


def schedule_trial(norm: str, schedule: str, task: Task, scale: float) -> Trial:
    """The miniature base with this norm and schedule; post-norm with warm-up is the trial of table 3."""
    base = trial(BASE, task, scale)
    if norm == "post-norm" and schedule == "warm-up":
        return base
    settings, config = base.settings, task.transformer(norm_first=NORMS[norm])
    if schedule != "warm-up":
        divisor = SCHEDULES[schedule]
        steps = max(1, settings.warmup_steps // divisor) if divisor else 1
        peak = settings.schedule(config.d_model).peak_lr * math.sqrt(settings.warmup_steps / steps)
        settings = replace(settings, warmup_steps=steps, peak_lr=peak)
    name = f"strategy {norm} {schedule}"
    return replace(base, name=name, config=config, settings=settings, evaluations=base.evaluations[:1])


def small_trial(rate: float, task: Task, scale: float) -> Trial:
    """The miniature base with this rate of dropout on a small corpus."""
    base = trial(BASE, task, scale)
    text = replace(base.text, sentences=SMALL)
    config = task.transformer(dropout=rate)
    name = f"strategy small, dropout {rate}"
    return replace(base, name=name, text=text, config=config, evaluations=base.evaluations[:1])


def trials(task: Task, scale: float) -> Sequence[Trial]:
    """Norms and schedules; dropout on a small corpus; and table 3's rows on dropout and smoothing, and its seeds."""
    schedules = [schedule_trial(norm, schedule, task, scale) for norm in NORMS for schedule in SCHEDULES]
    small = [small_trial(rate, task, scale) for rate in RATES] if task.text.dataset == "grammar" else []
    rows = [trial(ROWS[name], task, scale) for name in ("dropout 0.0", "smoothing 0.0")]
    return [*schedules, *small, *rows, *(trial(BASE, task, scale, seed) for seed in SEEDS)]


def find(context: Context[Task]) -> Findings:
    """The effect of each decision, with its interval."""
    task, scale, result = context.task, context.scale, context.runner.result
    base = result(trial(BASE, task, scale))
    runs = {n: {s: result(schedule_trial(n, s, task, scale)) for s in SCHEDULES} for n in NORMS}
    bases = [scores(each) for each in (base, *(result(trial(BASE, task, scale, seed)) for seed in SEEDS))]
    unsmoothed, undropped = (result(trial(ROWS[name], task, scale)) for name in ("smoothing 0.0", "dropout 0.0"))
    found: Findings = {
        "task": task.name,
        "rates": {s: _rates(schedule_trial("post-norm", s, task, scale)) for s in SCHEDULES},
        "dropout_rate": task.transformer().dropout,
        "schedules": {n: {s: scores(r) for s, r in of_norm.items()} for n, of_norm in runs.items()},
        "curves": {n: {s: r.curve for s, r in of_norm.items()} for n, of_norm in runs.items()},
        "warm-up": {n: {s: compare(r["warm-up"], r[s], "bleu") for s in list(SCHEDULES)[1:]} for n, r in runs.items()},
        "seeds": {metric: spread(bases, metric) for metric in ("bleu", "perplexity")},
        "norms": compare(runs["post-norm"]["warm-up"], runs["pre-norm"]["warm-up"], "bleu"),
        "smoothing": {metric: compare(base, unsmoothed, metric) for metric in ("bleu", "perplexity")},
        "dropout": compare(base, undropped, "bleu"),
        "averaging": {m: compare(base, base, m, ("averaged", "last")) for m in ("bleu", "perplexity")},
        "accumulation": _accumulation(context),
    }
    if task.text.dataset == "grammar":
        without, with_dropout = (result(small_trial(rate, task, scale)) for rate in RATES)
        found["small"] = {
            "sentences": SMALL,
            "rates": RATES,
            "scores": [scores(without), scores(with_dropout)],
            "difference": {m: compare(with_dropout, without, m) for m in ("bleu", "perplexity")},
        }
    return found


def _rates(trial: Trial) -> dict[str, float]:
    settings = trial.settings
    schedule = settings.schedule(trial.config.d_model)
    return {"warmup_steps": settings.warmup_steps, "peak": schedule.peak_lr, "last": schedule(settings.steps)}


def _accumulation(context: Context[Task]) -> dict[str, float]:
    """The largest difference, over the largest gradient, of a batch's gradient at once and summed over its parts."""
    task, errors = context.task, {}
    data = context.runner.data(trial(BASE, task, context.scale).text)
    whole = Batches(data.train, task.settings.tokens_per_batch).batch(0, 0)
    for dtype in ("float64", "float32"):
        model = build_model(task.transformer(), dtype=dtype)
        gradients = []
        with DataParallel(model, threads=1) as workers:
            for batches in ([whole], whole.split(PARTS)):
                workers.gradients(batches, task.settings.label_smoothing, seed=0, step=1)
                gradients.append(np.array(model.parameters.grad))
        errors[dtype] = float(np.abs(gradients[0] - gradients[1]).max() / np.abs(gradients[0]).max())
    return errors


def draw(findings: Findings, folder: Path) -> None:
    """Draw the validation perplexity of each norm and schedule."""
    page = Page(7.4, 3.1, layout="constrained")
    both = page.figure.subplots(1, 2, sharey=True)
    for axes, norm in zip(both, NORMS, strict=True):
        for schedule, curve in findings["curves"][norm].items():
            steps, values = ([point[name] for point in curve] for name in ("step", "perplexity"))
            axes.plot(steps, values, color=COLOURS[schedule], lw=1.6, label=schedule)
        axes.set_yscale("log")
        axes.set_title(norm, fontsize=9.5)
        finish(axes, "optimiser step", "validation perplexity" if axes is both[0] else "")
    both[1].legend(frameon=False, fontsize=8)
    page.save(folder / f"{NAME}-warmup.png")


def report(findings: Findings) -> list[str]:
    """Report each decision of §5 and its effect."""
    of_seeds = findings["seeds"]
    smoothing = (
        verdict("Smoothing 0.1", "none", metric, gap, of_seeds[metric]) for metric, gap in findings["smoothing"].items()
    )
    averaging = (verdict("The mean", "the last one", metric, gap) for metric, gap in findings["averaging"].items())
    return [
        *_schedule_blocks(findings),
        '**Label smoothing** "hurts perplexity … but improves accuracy and BLEU score" (§5.4).',
        bullets(smoothing),
        '**Dropout** "is very helpful in avoiding over-fitting" (§6.2).',
        bullets(_dropout_verdicts(findings)),
        paragraph(f"""
            **Large batches by accumulation.** The gradient of a batch at once and summed over {PARTS} parts of it,
            dropout on: they differ by {findings["accumulation"]["float64"]:.0e} of the largest gradient in float64, by
            {findings["accumulation"]["float32"]:.0e} in float32. Masks depend on a sentence's number, not on the part
            it is in, and each part's loss is weighted by its share of the targets.
        """),
        "**Averaging** five checkpoints (§6.1), here of the miniature base's last fifth, when it is still learning:",
        bullets(averaging),
    ]


def _schedule_blocks(findings: Findings) -> list[str]:
    rates = findings["rates"]
    rows = [
        [
            norm,
            f"{schedule} ({_steps(rates[schedule]['warmup_steps'])})",
            f"{rates[schedule]['peak']:.2g}",
            shown(found, "bleu"),
            shown(found, "perplexity", 3),
            found["diverged"] or ("" if learned(found) else "did not learn to translate"),
        ]
        for norm, of_norm in findings["schedules"].items()
        for schedule, found in of_norm.items()
    ]
    said = [
        f"{norm}: {verdict('The whole warm-up', other, 'bleu', gap)}"
        for norm, gaps in findings["warm-up"].items()
        for other, gap in gaps.items()
    ]
    norms = verdict("Post-norm", "pre-norm", "bleu", findings["norms"], findings["seeds"]["bleu"])
    return [
        paragraph(f"""
            **Warm-up and the norm's place** (§5.3; the paper is post-norm). The schedules differ in `warmup_steps` of
            eq. 3 alone: the rate climbs to its peak and then falls as 1/√step, on the same curve for all, to
            {rates["warm-up"]["last"]:.2g} at the last step. With less warm-up the peak is earlier and higher. Here and
            below each is one run; {_seeds_text(findings["seeds"])}.
        """),
        table(["norm", "warm-up", "peak", "BLEU", "perplexity", ""], rows),
        bullets([*said, f"With the whole warm-up: {norms}"]),
        picture(f"{NAME}-warmup", "Validation perplexity over the steps, for each norm and schedule"),
    ]


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number:,} steps"


def _seeds_text(of_seeds: dict[str, float | None]) -> str:
    bleu, perplexity = of_seeds["bleu"], of_seeds["perplexity"]
    if bleu is None or perplexity is None:
        return "the effect of another seed is unknown, since a base diverged"
    return f"the base's {1 + len(SEEDS)} seeds come out up to {bleu:.1f} BLEU and {perplexity:.3f} perplexity apart"


def _dropout_verdicts(findings: Findings) -> Iterator[str]:
    rate = f"Dropout {findings['dropout_rate']}"
    yield f"On the whole corpus: {verdict(rate, 'none', 'bleu', findings['dropout'], findings['seeds']['bleu'])}"
    if small := findings.get("small"):
        for metric, gap in small["difference"].items():
            told = verdict(f"Dropout {small['rates'][1]}", "none", metric, gap)
            yield f"On {small['sentences']:,} sentences: {told}"
