"""What the paper's trainings cost, and would cost today: on this machine, on GPUs that were timed, at best."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from minitransformer.models import TransformerConfig
from minitransformer.ops import numpy_ops
from minitransformer.plots.page import BLUE, INK, VERMILION, Page, text_style
from minitransformer.threads import available_cores

from ...charts import finish
from ...cost import training_costs
from ...experiment import Context, Findings, Task
from ...markdown import picture, scientific, table
from ...published import RUNS, TABLE_2
from ...trials.trial import Trial
from .hardware import CHIPS, measured_steps
from .stopwatch import fits, time_step

NAME, TITLE, MINUTES, ALONE = "cost", "What it would cost today", 1.0, 1.0

MODELS: dict[str, Callable[[], TransformerConfig]] = {"base": TransformerConfig.base, "big": TransformerConfig.big}

LENGTH = 32
TIMED = {"base": 48, "big": 24}
"""Sentences of LENGTH tokens of the larger batch that is timed."""

PUBLISHED, MEASURED, COMPUTED = "published: steps × seconds a step", "extrapolated from measured steps", "computed"

BOLTZMANN, ROOM, BITS = 1.380649e-23, 300.0, 32
"""Joules a kelvin, kelvin, and the bits that the result of an operation takes in single precision."""


def trials(task: Task, scale: float) -> list[Trial]:
    """None."""
    return []


def find(context: Context) -> Findings:
    """Time training steps, and count hours."""
    laboratory = context.laboratory
    threads = available_cores() if laboratory.ops is numpy_ops else 1
    steps = {}
    for name, sentences in TIMED.items():
        config = MODELS[name]()
        if name == "base" or fits(config, sentences, LENGTH, threads):
            timed = time_step(config, laboratory.ops, laboratory.dtype, threads, sentences, LENGTH)
            tokens = RUNS[name].tokens_per_side
            steps[name] = vars(timed) | {
                "seconds": timed.seconds(tokens),
                "between": timed.between(tokens),
                "flops_per_second": tokens * timed.flops / timed.seconds(tokens),
            }
    costs = {name: vars(cost) | {"utilisation": cost.utilisation} for name, cost in training_costs().items()}
    return {
        "backend": laboratory.backend,
        "threads": threads,
        "costs": costs,
        "steps": steps,
        "rows": [_published(), _here(laboratory.backend, threads, steps, costs), *_gpus(costs)],
        "limits": [_limit(number, costs) for number in range(len(CHIPS))],
        "landauer": {name: cost["needed"] * BITS * BOLTZMANN * ROOM * math.log(2) for name, cost in costs.items()},
    }


def _published() -> dict[str, Any]:
    hours = {name: run.hours for name, run in RUNS.items()}
    return {"name": f"{RUNS['base'].gpus} × P100, the paper", "origin": PUBLISHED, "hours": hours, "scaled": []}


def _here(backend: str, threads: int, steps: dict[str, Any], costs: dict[str, Any]) -> dict[str, Any]:
    name = f"this machine, {backend}, {threads} {'thread' if threads == 1 else 'threads'}"
    timed = {name: RUNS[name].steps * step["seconds"] / 3600 for name, step in steps.items()}
    return _row(name, timed, costs)


def _gpus(costs: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each GPU of the ledger, where base's steps were timed."""
    run, rows = RUNS["base"], []
    for step in measured_steps():
        seconds = step.seconds * run.tokens_per_side / step.tokens_per_side
        rows.append(_row(f"{step.gpu}, our kernels: {step.what}", {"base": run.steps * seconds / 3600}, costs))
    return rows


def _row(name: str, timed: dict[str, float], costs: dict[str, Any]) -> dict[str, Any]:
    """With the hours of what was not timed, by its operations at the speed of base."""
    scaled = {model: timed["base"] * costs[model]["needed"] / costs["base"]["needed"] for model in costs}
    missing = [model for model in costs if model not in timed]
    return {"name": name, "origin": MEASURED, "hours": scaled | timed, "scaled": missing}


def _limit(number: int, costs: dict[str, Any]) -> dict[str, Any]:
    """One chip that does nothing but matrix products, and one used as the paper used its own."""
    chip = CHIPS[number]
    peak = {name: cost["needed"] / chip.flops / 3600 for name, cost in costs.items()}
    return {
        **vars(chip),
        "hours": peak,
        "used": {name: peak[name] / cost["utilisation"] for name, cost in costs.items()},
        "kilowatt_hours": {name: hours * chip.watts / 1000 for name, hours in peak.items()},
    }


def draw(findings: Findings, folder: Path) -> None:
    """The hours of base and big, as bars."""
    rows = [*findings["rows"], *findings["limits"]]
    names = [f"1 × {row['name']}, computed" if "used" in row else row["name"] for row in rows]
    hours = [value for row in rows for value in row["hours"].values()]
    least = 10 ** math.floor(math.log10(min(hours)) - 0.3)
    page = Page(7.4, 1.1 + 0.42 * len(rows), layout="constrained")
    axes = page.figure.subplots()
    axes.set_xscale("log")
    for number, row in enumerate(rows):
        for model, colour, shift in (("base", BLUE, -0.19), ("big", VERMILION, 0.19)):
            _draw_bar(axes, number + shift, row, model, colour, least)
    axes.set_xlim(least, max(hours) * 30)
    axes.set_yticks(np.arange(len(names)), names, **text_style(names, 8))
    axes.invert_yaxis()
    finish(axes, "hours", "")
    axes.tick_params(axis="y", length=0, colors=INK)
    legend = [Patch(color=BLUE, label="base"), Patch(color=VERMILION, label="big")]
    axes.legend(handles=legend, frameon=False, fontsize=8.5, labelcolor=INK, loc="upper right")
    page.save(folder / f"{NAME}-hours.png")


def _draw_bar(axes: Axes, y: float, row: dict[str, Any], model: str, colour: str, least: float) -> None:
    """What is computed in pale, up to the chip's peak, and paler up to the paper's use of it."""
    value, ends = row["hours"][model], row.get("used", row["hours"])[model]
    if "used" in row:
        axes.barh(y, ends - least, 0.34, left=least, color=colour, alpha=0.3)
        axes.barh(y, value - least, 0.34, left=least, color=colour, alpha=0.45)
        said = f"{duration(value)} to {duration(ends)}"
    else:
        axes.barh(y, value - least, 0.34, left=least, color=colour)
        said = duration(value) + " (by operations)" * (model in row["scaled"])
    axes.text(ends * 1.15, y, said, va="center", **text_style([said], 7.5))


def report(findings: Findings) -> list[str]:
    """What was billed and what is needed; the hours; what energy and physics ask."""
    billed = (
        "Table 2 counts what eight P100s could have done in the time that the trainings took. What the matrix products "
        "need is less:"
    )
    no_gpu = "No GPU is in this table: the ledger of the kernels (`kernels/results`) has no training step of one."
    measured = [row for row in findings["rows"] if row["origin"] == MEASURED]
    return [
        billed,
        "",
        *_billed_table(findings["costs"]),
        "",
        *_steps_lines(findings),
        *([no_gpu, ""] if len(measured) == 1 else []),
        *_hours_table(findings),
        "",
        picture(f"{NAME}-hours", "Hours of the trainings, on a logarithmic scale"),
        "",
        _physics(findings),
    ]


def _billed_table(costs: dict[str, Any]) -> list[str]:
    head = ["operations", "billed, as printed", "billed: steps × seconds × 8 × 9.5e12", "needed", "utilisation"]
    printed = {name: row.flops_de for row in TABLE_2 for name in costs if row.model.startswith(f"Transformer ({name}")}
    return table(
        head,
        [
            [
                name,
                scientific(printed[name] or 0),
                scientific(cost["billed"]),
                scientific(cost["needed"]),
                f"{cost['utilisation']:.0%}",
            ]
            for name, cost in costs.items()
        ],
    )


def _hours_table(findings: Findings) -> list[str]:
    """A star where the time follows from base's."""
    rows = []
    for row in findings["rows"]:
        hours = [duration(value) + " *" * (name in row["scaled"]) for name, value in row["hours"].items()]
        rows.append([row["name"], *hours, row["origin"]])
    for limit in findings["limits"]:
        name = f"1 × {limit['name']}, {limit['kind']}, {limit['flops'] / 1e12:g} · 10¹² operations a second"
        rows.append([f"{name}, all used", *map(duration, limit["hours"].values()), COMPUTED])
        rows.append([f"1 × {limit['name']}, used as in the paper", *map(duration, limit["used"].values()), COMPUTED])
    return table(["", *findings["costs"], "how it is known"], rows)


def _steps_lines(findings: Findings) -> list[str]:
    """What was timed here."""
    lines = []
    for name, step in findings["steps"].items():
        tokens, (low, high) = RUNS[name].tokens_per_side, step["between"]
        lines.append(
            f"A training step of {name} was timed here on up to {step['tokens_per_side']:,} tokens a side: "
            f"{1000 * step['per_token']:.2g} ms a token and {step['fixed']:.2g} s for the rest, so that the paper’s "
            f"{tokens:,} would take {step['seconds']:,.0f} s (by single rounds {low:,.0f} to {high:,.0f} s): "
            f"{tokens / step['seconds']:,.0f} tokens of a side and {step['flops_per_second'] / 1e9:,.0f} · 10⁹ "
            "operations a second."
        )
    if any(row["scaled"] for row in findings["rows"]):
        lines.append("Where there is a star, only base was timed: big’s time is by its operations at base’s speed.")
    return [*lines, ""]


def _physics(findings: Findings) -> str:
    best = min(findings["limits"], key=lambda limit: limit["kilowatt_hours"]["base"])
    energy, landauer = best["kilowatt_hours"], findings["landauer"]
    return (
        "What is computed was not measured: it is the operations needed over those that a data sheet promises (the "
        "P100’s are the paper’s), and for the use as in the paper divided by its utilisation (in the picture pale and "
        "paler). One "
        f"{best['name']} at its peak that draws its rated {best['watts']:g} W all the while takes "
        f"{energy['base']:.2g} kWh for base and {energy['big']:.2g} kWh for big. If each operation erased one result "
        f"of {BITS} bits, Landauer’s limit (k·T·ln 2 a bit, at {ROOM:g} K) would ask for {landauer['base']:.2g} J and "
        f"{landauer['big']:.2g} J."
    )


def duration(hours: float) -> str:
    """Hours as one reads them: "31 minutes", "11.1 h", "139 days", "2.1 years"."""
    if hours < 1:
        return f"{60 * hours:.0f} minutes"
    if hours < 100:
        return f"{hours:.1f} h"
    if hours < 24 * 730:
        return f"{hours / 24:,.0f} days"
    return f"{hours / 24 / 365.25:,.1f} years"
