"""How it is trained (§5): warm-up, where the norm stands, smoothing, dropout, large batches, averaged checkpoints."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...data.batching import Batches
from ...models import build_model
from ...plots.page import Page
from ...training import DataParallel
from ..charts import BLUE, SKY, VERMILION, finish
from ..comparison import compare, scores, shown, verdict
from ..experiment import Context, Findings, Task
from ..markdown import paragraph, picture, table
from ..trials.trial import Trial
from .table3.experiment import BASE, trial
from .table3.variations import TABLE_3

NAME, TITLE, MINUTES, ALONE = "strategy", "How it is trained", 5.5, 8.5

NORMS = {"post-norm": False, "pre-norm": True}
SCHEDULES = ("warm-up", "from its peak", "eq. 3 without warm-up")
COLOURS = dict(zip(SCHEDULES, (BLUE, SKY, VERMILION), strict=True))
SMALL, RATES = 1000, (0.0, 0.3)
"""Sentences of the corpus that is small enough to be learned by heart, and rates of dropout on it."""

ROWS = {row.name: row for row in TABLE_3}
PARTS = 4


def schedule_trial(norm: str, schedule: str, task: Task, scale: float) -> Trial:
    """The miniature base with that norm and schedule; post-norm with warm-up is table 3's."""
    base = trial(BASE, task, scale)
    if norm == "post-norm" and schedule == "warm-up":
        return base
    settings, config = base.settings, task.transformer(norm_first=NORMS[norm])
    if schedule != "warm-up":
        peak = settings.schedule(config.d_model).peak_lr
        # step^-0.5 alone starts where it is the same from the end of the warm-up on
        start = peak if schedule == "from its peak" else peak * math.sqrt(settings.warmup_steps)
        settings = replace(settings, warmup_steps=1, peak_lr=start)
    return replace(base, name=f"strategy {norm} {schedule}", config=config, settings=settings, exams=base.exams[:1])


def small_trial(rate: float, task: Task, scale: float) -> Trial:
    """The miniature base with that rate of dropout on a small corpus."""
    base = trial(BASE, task, scale)
    text = replace(base.text, sentences=SMALL)
    config = task.transformer(dropout=rate)
    return replace(base, name=f"strategy small, dropout {rate}", text=text, config=config, exams=base.exams[:1])


def trials(task: Task, scale: float) -> Sequence[Trial]:
    """Norms and schedules; dropout on a small corpus; and of table 3 the rows on dropout and smoothing."""
    schedules = [schedule_trial(norm, schedule, task, scale) for norm in NORMS for schedule in SCHEDULES]
    small = [small_trial(rate, task, scale) for rate in RATES] if task.text.dataset == "grammar" else []
    rows = [trial(ROWS[name], task, scale) for name in ("dropout 0.0", "smoothing 0.0")]
    return [*schedules, *small, *rows]


def find(context: Context) -> Findings:
    """What each decision changes, with its interval."""
    task, scale, result = context.task, context.scale, context.laboratory.result
    base = result(trial(BASE, task, scale))
    runs = {n: {s: result(schedule_trial(n, s, task, scale)) for s in SCHEDULES} for n in NORMS}
    unsmoothed, undropped = (result(trial(ROWS[name], task, scale)) for name in ("smoothing 0.0", "dropout 0.0"))
    found: Findings = {
        "task": task.name,
        "warmup_steps": trial(BASE, task, scale).settings.warmup_steps,
        "schedules": {n: {s: scores(r) for s, r in of_norm.items()} for n, of_norm in runs.items()},
        "curves": {n: {s: r.curve for s, r in of_norm.items()} for n, of_norm in runs.items()},
        "warm-up": {
            n: {s: compare(r["warm-up"], r[s], "bleu") for s in SCHEDULES[1:]} for n, r in runs.items()
        },
        "norms": compare(runs["post-norm"]["warm-up"], runs["pre-norm"]["warm-up"], "bleu"),
        "smoothing": {metric: compare(base, unsmoothed, metric) for metric in ("bleu", "perplexity")},
        "dropout": compare(base, undropped, "bleu"),
        "averaging": {m: compare(base, base, m, ("averaged", "exam")) for m in ("bleu", "perplexity")},
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


def _accumulation(context: Context) -> dict[str, float]:
    """A batch's gradient at once, and summed over its parts, dropout on: the largest difference over the largest."""
    task, errors = context.task, {}
    data = context.laboratory.data(trial(BASE, task, context.scale).text)
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
    """Validation perplexity of each norm and schedule."""
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
    """Each decision of §5 and what became of it."""
    return [
        *_schedule_lines(findings),
        "",
        *_smoothing_lines(findings["smoothing"]),
        "",
        *_dropout_lines(findings),
        "",
        paragraph(f"""
            **Large batches by accumulation.** The gradient of a batch at once and summed over {PARTS} parts of it,
            dropout on: they differ by {findings["accumulation"]["float64"]:.0e} of the largest gradient in float64, by
            {findings["accumulation"]["float32"]:.0e} in float32. Masks depend on a sentence's number, not on the part
            it is in, and each part's loss is weighted by its share of the targets.
        """),
        "",
        *_averaging_lines(findings["averaging"]),
    ]


def _schedule_lines(findings: Findings) -> list[str]:
    rows = [
        [norm, schedule, shown(found, "bleu"), shown(found, "perplexity", 3), found["diverged"] or ""]
        for norm, of_norm in findings["schedules"].items()
        for schedule, found in of_norm.items()
    ]
    sentences = [
        f"- {norm}: {verdict('Warm-up', f'the schedule {schedule!r}', 'bleu', gap)}"
        for norm, gaps in findings["warm-up"].items()
        for schedule, gap in gaps.items()
    ]
    return [
        paragraph(f"""
            **Warm-up and the norm's place** (§5.3; the paper is post-norm). *Warm-up*: {findings["warmup_steps"]} steps
            to the peak, then falling as 1/√step. *From its peak*: the same peak at the first step, falling from there.
            *Eq. 3 without warm-up*: its first term alone, which is the same from the end of the warm-up on and starts
            far above the peak.
        """),
        "",
        *table(["norm", "schedule", "BLEU", "perplexity", ""], rows),
        "",
        *sentences,
        f"- With warm-up: {verdict('Post-norm', 'pre-norm', 'bleu', findings['norms'])}",
        "",
        picture(f"{NAME}-warmup", "Validation perplexity over the steps, for each norm and schedule"),
    ]


def _smoothing_lines(gaps: dict[str, Any]) -> list[str]:
    lines = ['**Label smoothing** "hurts perplexity … but improves accuracy and BLEU score" (§5.4).', ""]
    return [*lines, *(f"- {verdict('Smoothing 0.1', 'none', metric, gap)}" for metric, gap in gaps.items())]


def _dropout_lines(findings: Findings) -> list[str]:
    lines = [
        '**Dropout** "is very helpful in avoiding over-fitting" (§6.2).',
        "",
        f"- On the whole corpus: {verdict('Dropout 0.1', 'none', 'bleu', findings['dropout'])}",
    ]
    small = findings.get("small")
    if small:
        rate = small["rates"][1]
        lines += [
            f"- On {small['sentences']:,} sentences: {verdict(f'Dropout {rate}', 'none', metric, gap)}"
            for metric, gap in small["difference"].items()
        ]
    return lines


def _averaging_lines(gaps: dict[str, Any]) -> list[str]:
    lines = ["**Averaging** the last five checkpoints (§6.1), of the miniature base:", ""]
    return [*lines, *(f"- {verdict('The mean', 'the last one', metric, gap)}" for metric, gap in gaps.items())]
