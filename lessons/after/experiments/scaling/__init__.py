"""Scaling laws in miniature: how the loss of a GPT follows from its size and its tokens.

Source: Kaplan et al. 2020; Hoffmann et al. 2022; Pearce & Song 2024 (arXiv 2406.12907) on why their exponents differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.costs import flops_per_token
from minitransformer.models import GPTConfig
from minitransformer.plots.page import BLUE, GREEN, GREY, INK, ORANGE, VERMILION, Page
from minitransformer.training import TrainingSettings
from study.charts import finish, plain_logarithm
from study.experiment import Context, Findings
from study.markdown import paragraph, picture, scientific, table
from study.trials.bootstrap import CONFIDENCE, MEAN, Interval, interval
from study.trials.reading import Reading, ReadingTrial
from study.trials.run import lasting
from study.trials.trial import Trial

from ...predictions import Outcome, prediction_blocks, predictions_of
from ...task import VOCAB_SIZE, Texts
from .fit import Fit, Law

NAME, TITLE, MINUTES, ALONE = "scaling", "Scaling laws in miniature", 39.0, 39.0

LENGTH, SENTENCES = 64, 1_200_000
"""Tokens of a row; sentences that the grammar writes: few are read twice."""

LARGEST = 2.4e13
"""The operations of the largest trainings at scale 1, some ten minutes of one core; the least take a hundredth."""


@dataclass(frozen=True)
class Size:
    """A GPT's width, layers and heads."""

    d_model: int
    num_layers: int
    num_heads: int

    @property
    def config(self) -> GPTConfig:
        """The configuration: Llama's positions, so that every parameter but the table of tokens is in a block."""
        return GPTConfig(
            VOCAB_SIZE,
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_ff=4 * self.d_model,
            num_layers=self.num_layers,
            max_length=LENGTH,
            positions="rotary",
            dropout=0.0,
            attention_dropout=0.0,
            bos_id=2,
            eos_id=2,
        )

    @property
    def parameters(self) -> dict[str, int]:
        """The number of parameters by definition: all, and without the table of tokens."""
        count = self.config.num_parameters
        return {ALL: count, WITHOUT: count - VOCAB_SIZE * self.d_model}

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.d_model} × {self.num_layers}"


ALL, WITHOUT = "all parameters", "without embeddings"

SIZES = [
    Size(16, 1, 1),
    Size(24, 2, 2),
    Size(32, 2, 2),
    Size(48, 3, 3),
    Size(64, 3, 4),
    Size(96, 4, 6),
    Size(128, 4, 8),
]
ASIDE = Size(160, 5, 10)
"""The size that no fit sees, trained with the largest budget."""

BUDGETS = [(LARGEST / 100 * 100 ** (n / 3), SIZES[n : n + 5]) for n in range(3)] + [(LARGEST, SIZES[3:])]
"""Operations at scale 1, each with the sizes that are trained with so many: two decades of compute."""

COLOURS = (BLUE, GREEN, ORANGE, VERMILION)


def trial(size: Size, operations: float, task: Texts, scale: float) -> ReadingTrial:
    """The training of a size with so many operations at scale 1. A tenth of its steps are warm-up.

    Paper: Hoffmann et al. end at a tenth of the peak, along a cosine; here the rate falls as 1/√step to a third of it,
    and the last fifth is averaged. The peak falls with the root of the width, from 0.003 at a width of 64.
    """
    config = size.config
    settings = TrainingSettings(
        tokens_per_batch=1024,
        peak_lr=round(0.003 * (64 / size.d_model) ** 0.5, 6),
        label_smoothing=0.0,
        clip_norm=1.0,
        threads=1,
    )
    steps = scale * operations / (settings.tokens_per_batch * flops_per_token(config, LENGTH).training)
    settings = lasting(
        TrainingSettings.from_dict(settings.to_dict() | {"warmup_steps": max(1, round(steps / 10))}), steps
    )
    name = f"scaling {size.name}, {operations:.1e}"
    return ReadingTrial(name, task.english(SENTENCES), config, settings, (Reading(length=LENGTH, averaged=True),))


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """Every size with every budget that it gets, and the one that is kept aside."""
    fitted = [trial(size, operations, task, scale) for operations, sizes in BUDGETS for size in sizes]
    return [*fitted, trial(ASIDE, LARGEST, task, scale)]


def find(context: Context[Texts]) -> Findings:
    """The losses of all trainings, the laws that fit them by each count of parameters, and what they predict."""
    task, scale, runner = context.task, context.scale, context.runner
    runs = []
    for number, (operations, sizes) in enumerate(BUDGETS):
        runs += [_run(size, number, trial(size, operations, task, scale), runner) for size in sizes]
    aside = _run(ASIDE, len(BUDGETS) - 1, trial(ASIDE, LARGEST, task, scale), runner)
    whole = [run for run in runs if run["diverged"] is None]
    fits = {count: _fit(whole, count) for count in (ALL, WITHOUT)} if len(whole) > 5 else {}
    return {
        "predictions": predictions_of(NAME),
        "operations": [scale * operations for operations, _ in BUDGETS],
        "runs": runs,
        "aside": aside,
        "laws": {count: _described(fit, aside, count) for count, fit in fits.items()},
        "gap": _gap(fits),
    }


def _run(size: Size, budget: int, done: ReadingTrial, runner: Any) -> dict[str, Any]:
    result = runner.result(done)
    found = {
        "size": size.name,
        "budget": budget,
        "parameters": size.parameters,
        "tokens": result.tokens,
        "epochs": result.epochs,
        "flops": result.flops,
        "seconds": result.seconds,
        "diverged": result.diverged,
    }
    if result.diverged is None:
        loss = interval(MEAN, result.answers().likelihood)
        found |= {"loss": loss.value, "interval": [loss.low, loss.high]}
    return found


def _fit(runs: Sequence[dict[str, Any]], count: str) -> Fit:
    columns = zip(*((run["parameters"][count], run["tokens"], run["loss"]) for run in runs), strict=True)
    return Fit(*(np.array(column, dtype=np.float64) for column in columns))


def _described(fit: Fit, aside: dict[str, Any], count: str) -> dict[str, Any]:
    """A law's constants with their intervals, how well it fits, and what it says of the size that was kept aside."""
    n, d = aside["parameters"][count], aside["tokens"]
    return {
        "law": [fit.law.a, fit.law.alpha, fit.law.b, fit.law.beta, fit.law.e],
        "constants": {
            name: _bracket(value, [each.constants[name] for each in fit.samples])
            for name, value in fit.law.constants.items()
        },
        "median miss": 100 * float(np.median(np.abs(fit.misses()))),
        "greatest miss": 100 * float(np.abs(fit.misses()).max()),
        "aside": _bracket(fit.law.loss(n, d), [each.loss(n, d) for each in fit.samples]),
    }


def _gap(fits: dict[str, Fit]) -> list[float] | None:
    """The exponent of the best size without embeddings less that with all parameters, and its interval."""
    if not fits:
        return None
    pairs = zip(fits[WITHOUT].samples, fits[ALL].samples, strict=True)
    return _bracket(fits[WITHOUT].law.optimum - fits[ALL].law.optimum, [a.optimum - b.optimum for a, b in pairs])


def _bracket(value: float, samples: Sequence[float]) -> list[float]:
    """A number with the middle 95 % of its bootstrap samples."""
    ends = np.percentile(samples, [(100 - CONFIDENCE) / 2, (100 + CONFIDENCE) / 2])
    return [value, *map(float, ends)]


# --- The report -------------------------------------------------------------------------------------------------


def draw(findings: Findings, folder: Path) -> None:
    """Draw the loss against the size for each budget, and what the law says against what came, as `scaling-….png`."""
    if not findings["laws"]:
        return
    law = Law(*findings["laws"][ALL]["law"])
    runs = [run for run in findings["runs"] if run["diverged"] is None]
    page = Page(7.4, 3.4, layout="constrained")
    left, right = page.figure.subplots(1, 2)
    for number, (operations, colour) in enumerate(zip(findings["operations"], COLOURS, strict=True)):
        here = [run for run in runs if run["budget"] == number]
        if not here:
            continue
        n, d, losses = (np.array([row[i] for row in map(_point, here)]) for i in range(3))
        left.plot(n, losses, "o", ms=4.5, color=colour, label=f"{scientific(operations)} operations")
        fine = np.geomspace(n.min() / 1.3, n.max() * 1.3, 60)
        # So many operations buy about as many tokens as at the measured sizes, interpolated in logarithms.
        tokens = np.exp(np.polyval(np.polyfit(np.log(n), np.log(d), min(2, len(n) - 1)), np.log(fine)))
        left.plot(fine, [law.loss(*each) for each in zip(fine, tokens, strict=True)], color=colour, lw=1.2)
        right.plot([law.loss(*each) for each in zip(n, d, strict=True)], losses, "o", ms=4.5, color=colour)
    shown = [run["loss"] for run in runs]
    aside = findings["aside"]
    if aside["diverged"] is None:
        n, d, loss = _point(aside)
        left.plot(n, loss, "*", ms=11, color=INK, label="kept aside")
        right.plot(law.loss(n, d), loss, "*", ms=11, color=INK)
        shown.append(loss)
    right.plot([min(shown), max(shown)], [min(shown), max(shown)], color=GREY, lw=0.9, ls=":")
    left.set_xscale("log")
    plain_logarithm(left.xaxis, (1, 3))
    left.legend(frameon=False, fontsize=7.5, labelcolor=INK)
    finish(left, "parameters", "loss, nats a token")
    finish(right, "loss that the law says", "loss that came")
    page.save(folder / f"{NAME}-law.png")


def _point(run: dict[str, Any]) -> tuple[float, float, float]:
    """All parameters, tokens and loss of a run."""
    return run["parameters"][ALL], run["tokens"], run["loss"]


def judge(findings: Findings) -> dict[str, Outcome]:
    """What came of each prediction."""
    if not findings["laws"]:
        return dict.fromkeys(findings["predictions"], Outcome("too many trainings diverged"))
    law, aside = findings["laws"][ALL], findings["aside"]

    def constant(name: str) -> Outcome:
        return Outcome(Interval(*law["constants"][name]).text(2), found=Interval(*law["constants"][name]))

    gap = Interval(*findings["gap"])
    found = {
        "fit": Outcome(f"{law['median miss']:.2f} %", found=law["median miss"]),
        "alpha": constant("α"),
        "beta": constant("β"),
        "E": constant("E"),
        "optimum": Outcome(
            f"C^{Interval(*law['constants']['optimum']).text(2)}", found=Interval(*law["constants"]["optimum"])
        ),
        "without embeddings": Outcome(gap.text(2, sign=True), found=gap),
        "kept aside": Outcome("it diverged"),
    }
    if aside["diverged"] is None:
        miss = 100 * (law["aside"][0] / aside["loss"] - 1)
        found["kept aside"] = Outcome(f"{miss:+.2f} %".replace("-", "−"), found=abs(miss))
    return found


def report(findings: Findings) -> list[str]:
    """Report the trainings, the laws, the size that was kept aside, and the predictions."""
    if not findings["laws"]:
        return ["Too many trainings diverged to fit a law."]
    operations, runs = findings["operations"], findings["runs"]
    seconds = sum(run["seconds"] for run in (*runs, findings["aside"]))
    return [
        paragraph(f"""
            {len(runs)} GPTs read the grammar's sentences in rows of {LENGTH} tokens: {len(SIZES)} sizes of
            {_span(runs, lambda run: run["parameters"][ALL])} parameters, with {len(operations)} budgets of
            {scientific(operations[0])} to {scientific(operations[-1])} operations, which pay for
            {_span(runs, lambda run: run["tokens"])} tokens, at most {max(run["epochs"] for run in runs):.1f} times over
            the text. With the one that was kept aside they took {seconds / 60:.0f} core-minutes.
            To their losses L on the test set the law
            L = E + A/N^α + B/D^β is fitted as by Hoffmann et al. (2022): log-sum-exp, Huber loss of log L, 4,500
            starts; in brackets the middle 95 % of bootstrap samples of the trainings. N is counted in two ways, with
            the table of tokens and without it, as Kaplan et al. (2020) did; D are the tokens of the training.
        """),
        _run_table(findings),
        picture(
            f"{NAME}-law", "Loss against size for each budget, with the law's lines; what it says against what came"
        ),
        _law_table(findings),
        *_meaning(findings),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


def _span(runs: Sequence[dict[str, Any]], number: Callable[[dict[str, Any]], int]) -> str:
    """A number of each run, from the least to the greatest."""
    numbers = [number(run) for run in runs]
    return f"{min(numbers):,} to {max(numbers):,}"


def _run_table(findings: Findings) -> str:
    """The loss of each size with each budget."""
    sizes = [*SIZES, ASIDE]
    cells = {(run["size"], run["budget"]): run for run in (*findings["runs"], findings["aside"])}
    rows = []
    for size in sizes:
        row = [cells.get((size.name, number)) for number in range(len(findings["operations"]))]
        name = f"{size.name}, kept aside" if size is ASIDE else size.name
        losses = ["" if run is None else run["diverged"] or f"{run['loss']:.3f}" for run in row]
        rows.append([name, *(f"{size.parameters[count]:,}" for count in (ALL, WITHOUT)), *losses])
    head = ["width × layers", ALL, WITHOUT, *(f"loss, {scientific(each)}" for each in findings["operations"])]
    return table(head, rows)


def _law_table(findings: Findings) -> str:
    rows = []
    for count, law in findings["laws"].items():
        constants = {name: Interval(*each) for name, each in law["constants"].items()}
        rows.append(
            [
                count,
                constants["E"].text(2),
                *(f"{constants[name].value:.3g}" for name in ("A", "B")),
                *(constants[name].text(2) for name in ("α", "β", "optimum")),
                f"{law['median miss']:.2f}, {law['greatest miss']:.2f}",
            ]
        )
    return table(["N", "E", "A", "B", "α", "β", "best N ∝ C^", "misses: median, greatest, %"], rows)


def _meaning(findings: Findings) -> list[str]:
    """What the two counts differ in, and what came of the size that was kept aside."""
    gap, aside = Interval(*findings["gap"]), findings["aside"]
    differ = "is larger" if gap.low > 0 else "is smaller" if gap.high < 0 else "can't be told from the other"
    said = [
        paragraph(f"""
            The exponent with which the best size grows with compute (C = 6 N D, by the same N) without embeddings
            {differ}: {gap.text(2, sign=True)}. Kaplan et al. found 0.73, without embeddings, Hoffmann et al. 0.5, with
            all parameters; Pearce & Song (2024) derive most of the difference from that count, at small sizes, where
            the tables are much of the model.
        """)
    ]
    if aside["diverged"] is None:
        came = f"{aside['loss']:.3f}"
        laws = "; ".join(f"{count}: {Interval(*law['aside']).text(3)}" for count, law in findings["laws"].items())
        low, high = aside["interval"]
        said.append(
            f"The size that was kept aside, {aside['size']}, with {aside['tokens']:,} tokens: the laws say {laws}; "
            f"{came} came ({low:.3f} to {high:.3f}, by the choice of the test rows)."
        )
    return said
