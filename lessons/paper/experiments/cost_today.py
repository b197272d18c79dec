"""The cost of the paper's trainings then and today: on this machine, on GPUs that were timed, and at best."""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from minitransformer.costs import flops_per_token, num_parameters, training_bytes
from minitransformer.data.batching import Batch
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.ops import Ops, numpy_ops
from minitransformer.plots.page import BLUE, INK, VERMILION, Page, text_style
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.system.threads import available_cores
from minitransformer.training import DataParallel, training_step
from minitransformer.training.optimizer import Adam
from study.charts import finish
from study.experiment import Context, Findings
from study.markdown import paragraph, picture, scientific, table
from study.trials.trial import Trial

from ..published import P100_FLOPS, RUNS, TABLE_2, training_costs
from ..task import Task

LEDGER = Path(__file__).parents[3] / "kernels" / "results"
"""The folder in which measurements on GPUs are kept."""


@dataclass(frozen=True)
class Chip:
    """A GPU by its data sheet: dense operations a second in numbers of `kind`, and rated power in watts."""

    name: str
    kind: str
    flops: float
    watts: float


CHIPS = [
    Chip("P100", "float32", P100_FLOPS, 300),
    Chip("V100", "float16", 125e12, 300),
    Chip("A100", "bfloat16", 312e12, 400),
    Chip("H100", "bfloat16", 989e12, 700),
]
"""NVIDIA's data sheets, for the modules with SXM; the P100 as the paper counts it (its sheet says 10.6e12)."""


@dataclass(frozen=True)
class MeasuredStep:
    """A training step of the paper's base on a GPU: the one of ours that is fastest per token."""

    gpu: str
    what: str
    tokens_per_side: int
    seconds: float


def measured_steps(folder: Path = LEDGER) -> Iterator[MeasuredStep]:
    """The measured step of each GPU in the ledger; none if no GPU was timed or there is no ledger.

    Raises `ValueError`, naming the file, for one that is not JSON.
    """
    for path in sorted(folder.glob("*.json")):
        try:
            ledger = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        if "gpu" not in ledger or ledger.get("smoke"):
            continue
        entries = ledger["sections"].get("swap", {"entries": []})["entries"]
        timed = [entry for entry in entries if "ms" in entry["contestants"].get("ours", {})]
        if timed:
            best = min(timed, key=lambda entry: entry["contestants"]["ours"]["ms"] / _tokens(entry))
            tokens = _tokens(best)
            yield MeasuredStep(ledger["gpu"], best["what"], tokens, best["contestants"]["ours"]["ms"] / 1000)


def _tokens(entry: dict[str, Any]) -> int:
    return entry["size"]["sentences"] * entry["size"]["length"]


SMOOTHING, LEARNING_RATE = 0.1, 1e-4
SMALLER = 4
"""The other batch is this many times smaller."""

MARGIN = 1.5
"""Free memory must be this many times that of weights and activations, because of temporary arrays."""


@dataclass(frozen=True)
class StepTime:
    """The time of a step: `fixed` seconds (the update of all parameters), plus `per_token` for each token of a side.

    flops            operations of matrix products for one source and one target token
    tokens_per_side  those of the largest batch that was timed
    rounds           `fixed` and `per_token` from the times of each round
    """

    fixed: float
    per_token: float
    flops: float
    tokens_per_side: int
    rounds: list[tuple[float, float]]

    def seconds(self, tokens_per_side: float) -> float:
        """The seconds of a step on a batch of this size."""
        return self.fixed + self.per_token * tokens_per_side

    def between(self, tokens_per_side: float) -> tuple[float, float]:
        """The least and the most seconds that follow from a single round or from all together."""
        lines = [(self.fixed, self.per_token), *self.rounds]
        said = [fixed + per_token * tokens_per_side for fixed, per_token in lines]
        return min(said), max(said)


def time_step(
    config: TransformerConfig, ops: Ops, dtype: str, threads: int, sentences: int, length: int, rounds: int = 3
) -> StepTime:
    """Time steps on batches of `sentences` and of a quarter of them, one after the other in each round.

    The fastest step of each size counts; single rounds are kept too, to show their variation. Sentences have `length`
    random tokens on each side and no padding. A step is the trainer's, with Adam; a first step is not timed.
    """
    keep_freed_memory()
    model = Transformer(config, ops, dtype)
    optimizer = Adam(model.parameters, ops)
    counts = max(1, sentences // SMALLER), max(2, sentences)
    batches = [_batch(config, count, length) for count in counts]
    taken: list[list[float]] = []
    with DataParallel(model, threads) as workers:
        _step(workers, optimizer, batches[1])
        for _ in range(rounds):
            taken.append([])
            for batch in batches:
                began = perf_counter()
                _step(workers, optimizer, batch)
                taken[-1].append(perf_counter() - began)
    tokens = counts[0] * length, counts[1] * length
    (fixed, per_token), *lines = (_line(tokens, times) for times in (np.min(taken, axis=0), *taken))
    return StepTime(fixed, per_token, 2 * flops_per_token(config, length).training, tokens[1], lines)


def _step(workers: DataParallel, optimizer: Adam, batch: Batch) -> None:
    training_step(workers, optimizer, [batch], learning_rate=LEARNING_RATE, label_smoothing=SMOOTHING)
    workers.model.ops.to_numpy(workers.model.parameters.data[:1])  # waits until a GPU has finished the step


def _line(tokens: tuple[int, int], times: Sequence[float]) -> tuple[float, float]:
    """The value at zero and the slope per token of the line through two times.

    If the larger batch did not take longer, the line goes through its time and through zero.
    """
    small, large = tokens
    per_token = (times[1] - times[0]) / (large - small)
    fixed = times[0] - small * per_token
    if per_token <= 0 or fixed < 0:
        fixed, per_token = 0.0, times[1] / large
    return float(fixed), float(per_token)


def fits(config: TransformerConfig, sentences: int, length: int, threads: int) -> bool:
    """Return True if there is enough free memory for `time_step`; False if the system does not tell."""
    names = ("SC_AVPHYS_PAGES", "SC_PAGE_SIZE")
    if not set(names) <= set(getattr(os, "sysconf_names", {})):
        return False
    pages, size = map(os.sysconf, names)
    needed = training_bytes(config, num_parameters(config), sentences * length, length, threads)
    return MARGIN * needed < pages * size


def _batch(config: TransformerConfig, sentences: int, length: int) -> Batch:
    ids = np.random.default_rng(0).integers(config.eos_id + 1, config.vocab_size, (2, sentences, length + 1))
    return Batch(ids[0, :, 1:], ids[1, :, :-1], ids[1, :, 1:])


NAME, TITLE, MINUTES, ALONE = "cost", "What it would cost today", 1.0, 1.0

MODELS: dict[str, Callable[[], TransformerConfig]] = {"base": TransformerConfig.base, "big": TransformerConfig.big}

LENGTH = 32
TIMED = {"base": 48, "big": 24}
"""The number of sentences of LENGTH tokens in the larger batch that is timed."""

PUBLISHED, MEASURED, COMPUTED = "published: steps × seconds a step", "extrapolated from measured steps", "computed"

BOLTZMANN, ROOM, BITS = 1.380649e-23, 300.0, 32
"""Joules a kelvin, kelvin, and the bits of a result in single precision."""


def trials(task: Task, scale: float) -> list[Trial]:
    """Return no trials: steps are timed, and no model is trained."""
    return []


def find(context: Context[Task]) -> Findings:
    """Time training steps, and compute the hours of trainings."""
    runner = context.runner
    threads = available_cores() if runner.ops is numpy_ops else 1
    steps = {}
    for name, sentences in TIMED.items():
        config = MODELS[name]()
        if name == "base" or fits(config, sentences, LENGTH, threads):
            timed = time_step(config, runner.ops, runner.dtype, threads, sentences, LENGTH)
            tokens = RUNS[name].tokens_per_side
            steps[name] = vars(timed) | {
                "seconds": timed.seconds(tokens),
                "between": timed.between(tokens),
                "flops_per_second": tokens * timed.flops / timed.seconds(tokens),
            }
    costs = {name: vars(cost) | {"utilisation": cost.utilisation} for name, cost in training_costs().items()}
    return {
        "backend": runner.backend,
        "threads": threads,
        "costs": costs,
        "steps": steps,
        "rows": list(_rows(runner.backend, threads, steps, costs)),
        "limits": [_limit(chip, costs) for chip in CHIPS],
        "landauer": {name: cost["needed"] * BITS * BOLTZMANN * ROOM * math.log(2) for name, cost in costs.items()},
    }


def _rows(backend: str, threads: int, steps: dict[str, Any], costs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The hours in the paper, on this machine, and on each GPU of the ledger on which base's steps were timed."""
    hours, base = {name: run.hours for name, run in RUNS.items()}, RUNS["base"]
    yield {"name": f"{base.gpus} × P100, the paper", "origin": PUBLISHED, "hours": hours, "scaled": []}
    here = f"this machine, {backend}, {threads} {'thread' if threads == 1 else 'threads'}"
    yield _row(here, {name: RUNS[name].steps * step["seconds"] / 3600 for name, step in steps.items()}, costs)
    for step in measured_steps():
        seconds = step.seconds * base.tokens_per_side / step.tokens_per_side
        yield _row(f"{step.gpu}, our kernels: {step.what}", {"base": base.steps * seconds / 3600}, costs)


def _row(name: str, timed: dict[str, float], costs: dict[str, Any]) -> dict[str, Any]:
    """A row of the table. The hours of a model that was not timed follow from its operations at the speed of base."""
    scaled = {model: timed["base"] * costs[model]["needed"] / costs["base"]["needed"] for model in costs}
    missing = [model for model in costs if model not in timed]
    return {"name": name, "origin": MEASURED, "hours": scaled | timed, "scaled": missing}


def _limit(chip: Chip, costs: dict[str, Any]) -> dict[str, Any]:
    """The hours of a chip that computes only matrix products, and of one that is used as well as the paper's."""
    peak = {name: cost["needed"] / chip.flops / 3600 for name, cost in costs.items()}
    return {
        **vars(chip),
        "hours": peak,
        "used": {name: peak[name] / cost["utilisation"] for name, cost in costs.items()},
        "kilowatt_hours": {name: hours * chip.watts / 1000 for name, hours in peak.items()},
    }


def draw(findings: Findings, folder: Path) -> None:
    """Draw the hours of base and big as bars."""
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
    """Draw a bar; a computed one is pale up to the hours at the chip's peak, paler up to those at the paper's use."""
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
    """Report billed and needed operations, the hours, and the energy."""
    head = ["operations", "billed, as printed", "billed: steps × seconds × 8 × 9.5e12", "needed", "utilisation"]
    printed = {row.model: row.flops_de or 0 for row in TABLE_2}
    models = {"base": "Transformer (base model)", "big": "Transformer (big)"}
    rows = [
        [name, *map(scientific, (printed[models[name]], cost["billed"], cost["needed"])), f"{cost['utilisation']:.0%}"]
        for name, cost in findings["costs"].items()
    ]
    measured = [row for row in findings["rows"] if row["origin"] == MEASURED]
    no_gpu = (
        "No GPU is in this table: when it was made, the ledger of the kernels (`kernels/results`) had no training step "
        "of one. `kernels/README.md` has the later ones."
    )
    return [
        paragraph("""
            Table 2 counts the operations that eight P100s could have done in the time of the training runs. The matrix
            products need fewer:
        """),
        table(head, rows),
        "\n".join(_timed_lines(findings)),
        *([no_gpu] if len(measured) == 1 else []),
        _hours_table(findings),
        picture(f"{NAME}-hours", "Hours of the training runs, on a logarithmic scale"),
        _physics(findings),
    ]


def _hours_table(findings: Findings) -> str:
    """The table of the hours of every row and limit, with a star if they follow from base's."""
    rows = []
    for row in findings["rows"]:
        hours = [duration(value) + " *" * (name in row["scaled"]) for name, value in row["hours"].items()]
        rows.append([row["name"], *hours, row["origin"]])
    for limit in findings["limits"]:
        name = f"1 × {limit['name']}, {limit['kind']}, {limit['flops'] / 1e12:g} · 10¹² operations a second"
        rows.append([f"{name}, all used", *map(duration, limit["hours"].values()), COMPUTED])
        rows.append([f"1 × {limit['name']}, used as in the paper", *map(duration, limit["used"].values()), COMPUTED])
    return table(["", *findings["costs"], "how it is known"], rows)


def _timed_lines(findings: Findings) -> Iterator[str]:
    """Sentences on the steps that were timed here."""
    for name, step in findings["steps"].items():
        tokens, (low, high) = RUNS[name].tokens_per_side, step["between"]
        yield paragraph(f"""
            A training step of {name} was timed here on up to {step["tokens_per_side"]:,} tokens a side:
            {1000 * step["per_token"]:.2g} ms a token and {step["fixed"]:.2g} s for the rest, so that the paper’s
            {tokens:,} would take {step["seconds"]:,.0f} s (by single rounds {low:,.0f} to {high:,.0f} s):
            {tokens / step["seconds"]:,.0f} tokens of a side and {step["flops_per_second"] / 1e9:,.0f} · 10⁹ operations
            a second.
        """)
    if any(row["scaled"] for row in findings["rows"]):
        yield "Where there is a star, only base was timed: big’s time is by its operations at base’s speed."


def _physics(findings: Findings) -> str:
    best = min(findings["limits"], key=lambda limit: limit["kilowatt_hours"]["base"])
    energy, landauer = best["kilowatt_hours"], findings["landauer"]
    return paragraph(f"""
        Computed rows were not measured: they are the needed operations divided by the rate of a data sheet (the P100’s
        is the paper’s), and for the use as in the paper by its utilisation too (in the picture pale and paler).
        One {best["name"]} at its peak that draws its rated {best["watts"]:g} W all the while takes
        {energy["base"]:.2g} kWh for base and {energy["big"]:.2g} kWh for big. If each operation erased one result of
        {BITS} bits, Landauer’s limit (k·T·ln 2 a bit, at {ROOM:g} K) would ask for {landauer["base"]:.2g} J and
        {landauer["big"]:.2g} J.
    """)


def duration(hours: float) -> str:
    """Hours as readable text: "31 minutes", "11.1 h", "139 days", "2.1 years"."""
    if hours < 1:
        return f"{60 * hours:.0f} minutes"
    if hours < 100:
        return f"{hours:.1f} h"
    if hours < 24 * 730:
        return f"{hours / 24:,.0f} days"
    return f"{hours / 24 / 365.25:,.1f} years"
