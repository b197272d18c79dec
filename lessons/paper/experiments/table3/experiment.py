"""Table 3: the variations on the base model, counted at the paper's size and trained in miniature."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from minitransformer.costs import num_parameters
from minitransformer.models import TransformerConfig
from minitransformer.plots.page import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Page

from ...charts import draw_intervals
from ...comparison import compare, scores
from ...experiment import Context, Findings, Task
from ...trials.bootstrap import Interval
from ...trials.trial import Exam, Trial
from .report import report
from .variations import BASE, TABLE_3, Row, fitting_vocabulary

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "report", "trials"]

NAME, TITLE, MINUTES, ALONE = "table3", "Table 3: variations on the Transformer", 22.5, 22.5

OPERATIONS = 5.4e12
"""Of the base's training at scale 1, some 1,000 steps; the other rows take as many steps, whatever they cost."""

SHORTENED = {"d_model": 8, "d_ff": 8, "d_k": 8, "d_v": 8, "num_layers": 2}
"""The paper's sizes over the miniature's: those of a row are divided by the same numbers."""

SHORT, LONG = (1, 16), (24, 160)
"""Tokens on either side of the pairs that length extrapolation trains on, and of those that it asks for besides."""

SEEDS = (1, 2)
"""Of the base's other trainings, which show what a seed alone changes."""

EXAM = Exam()  # "no checkpoint averaging", §6.2
LENGTHS = (Exam("short", lengths=SHORT), Exam("long", lengths=LONG))
COLOURS = {"A": BLUE, "B": SKY, "C": ORANGE, "D": VERMILION, "E": GREEN, "big": PURPLE}


def miniature(row: Row, task: Task) -> TransformerConfig:
    """A row's model with every size as much smaller as the miniature base is than the paper's.

    Paper: big has three times as many steps, and a dropout of 0.3, with which it would not begin to translate in as few
    as there are here; it gets the base's.
    """
    sizes = {name: value // SHORTENED[name] if name in SHORTENED else value for name, value in row.overrides.items()}
    if row.name == "big":
        del sizes["dropout"]
    return task.transformer(**sizes)


def trial(row: Row, task: Task, scale: float, seed: int = 0) -> Trial:
    """The training of a row."""
    steps = scale * task.steps(OPERATIONS, task.transformer())
    settings = task.training(steps, seed=seed, **{k: v for k, v in row.training.items() if k != "steps"})
    exams = (EXAM, replace(EXAM, name="averaged", averaged=True)) if row is BASE and not seed else (EXAM,)
    name = f"table3 {row.name}" + f", seed {seed}" * bool(seed)
    return Trial(name, task.translation(), miniature(row, task), settings, exams)


def extrapolation(positions: str, task: Task, scale: float) -> Trial:
    """The base, or learned positions, on short sentences alone, asked for short and for long ones."""
    steps = scale * task.steps(OPERATIONS, task.transformer())
    text = replace(task.translation(), max_length=SHORT[1])
    config = task.transformer(positions=positions)
    return Trial(f"table3 lengths {positions}", text, config, task.training(steps), LENGTHS)


def trials(task: Task, scale: float) -> Sequence[Trial]:
    """Every row, the base's other seeds, and the two of length extrapolation."""
    rows = [trial(row, task, scale) for row in TABLE_3]
    seeds = [trial(BASE, task, scale, seed) for seed in SEEDS]
    return [*rows, *seeds, *(extrapolation(positions, task, scale) for positions in ("sinusoidal", "learned"))]


def find(context: Context) -> Findings:
    """Parameters at the paper's size; scores and differences from the base in miniature."""
    task, laboratory = context.task, context.laboratory
    results = {row.name: laboratory.result(trial(row, task, context.scale)) for row in TABLE_3}
    base = results[BASE.name]
    lengths = {p: laboratory.result(extrapolation(p, task, context.scale)) for p in ("sinusoidal", "learned")}
    return {
        "task": task.name,
        "divisors": SHORTENED,
        "parameters": {row.name: _parameters(row) for row in TABLE_3},
        "miniature": {row.name: _sizes(miniature(row, task)) for row in TABLE_3},
        "scores": {name: scores(result) for name, result in results.items()},
        "seeds": [scores(laboratory.result(trial(BASE, task, context.scale, seed))) for seed in SEEDS],
        "curve": base.curve,
        "differences": {
            name: {metric: compare(result, base, metric) for metric in ("bleu", "perplexity")}
            for name, result in results.items()
            if name != BASE.name
        },
        "lengths": {
            "trained": SHORT,
            "asked": LONG,
            "scores": {p: {exam.name: scores(r, exam=exam.name) for exam in LENGTHS} for p, r in lengths.items()},
            "differences": {
                exam.name: compare(lengths["sinusoidal"], lengths["learned"], "bleu", (exam.name, exam.name))
                for exam in LENGTHS
            },
        },
    }


def _parameters(row: Row) -> dict[str, Any]:
    printed = row.published.parameters
    return {
        "printed": printed,
        "counted": num_parameters(row.config()),
        "vocabulary": fitting_vocabulary(row) if printed is not None else None,
    }


def _sizes(config: TransformerConfig) -> dict[str, Any]:
    return {
        "layers": config.num_layers,
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "heads": config.num_heads,
        "d_k": config.key_width,
        "d_v": config.value_width,
    }


def draw(findings: Findings, folder: Path) -> None:
    """Each row's BLEU and perplexity less the base's."""
    rows = [row for row in TABLE_3 if row is not BASE and findings["differences"][row.name]["bleu"]]
    page = Page(7.4, 1.0 + 0.24 * len(rows), layout="constrained")
    left, right = page.figure.subplots(1, 2, sharey=True)
    for axes, metric, name in ((left, "bleu", "BLEU"), (right, "perplexity", "perplexity")):
        gaps = {
            f"({row.group}) {row.name}" if row.group != "big" else "big": Interval(
                **findings["differences"][row.name][metric]
            )
            for row in rows
        }
        draw_intervals(axes, gaps, [COLOURS[row.group] for row in rows], f"{name} less the base's")
        axes.axvline(0, color=GREY, lw=1)
    right.invert_yaxis()  # shared with the left one, and so inverted twice
    page.save(folder / f"{NAME}-differences.png")
