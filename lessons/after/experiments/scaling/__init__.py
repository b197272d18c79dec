"""Scaling laws in miniature: how the loss of a GPT follows from its size and its tokens.

Source: Kaplan et al. 2020; Hoffmann et al. 2022; Pearce & Song 2024 (arXiv 2406.12907) on why their exponents differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from minitransformer.costs import flops_per_token
from minitransformer.models import GPTConfig
from minitransformer.plots.page import BLUE, GREEN, GREY, INK, ORANGE, VERMILION, Page
from minitransformer.training import TrainingSettings
from study.charts import finish, plain_logarithm
from study.experiment import Context, Findings
from study.markdown import listed, paragraph, picture, scientific, table
from study.trials.bootstrap import CONFIDENCE, MEAN, Interval, interval
from study.trials.run import lasting
from study.trials.text_models import TextLoss, TextTrial
from study.trials.trial import Trial

from ...predictions import Outcome, prediction_blocks, predictions_of
from ...task import VOCAB_SIZE, Texts
from .fit import BOOTSTRAPS, DELTA, Fit, Law, starts

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

BATCH, PEAK, PEAK_WIDTH = 1024, 0.003, 64
"""Tokens of a step; the learning rate's peak, which falls with the root of the width, at this width."""

FAR = 3.5
"""The per cent of the loss beyond which the report counts a miss of the law as far."""

LAWS = {ALL: "The law of all parameters", WITHOUT: "The law without embeddings"}
"""The name of each count's law in the report."""

COLOURS = (BLUE, GREEN, ORANGE, VERMILION)


def trial(size: Size, operations: float, task: Texts, scale: float) -> TextTrial:
    """The training of a size with a number of operations at scale 1. A tenth of its steps are warm-up.

    Paper: Hoffmann et al. end at a tenth of the peak, along a cosine; here the rate falls as 1/√step to a third of it,
    and the last fifth is averaged.
    """
    config = size.config
    settings = TrainingSettings(
        tokens_per_batch=BATCH,
        peak_lr=round(PEAK * (PEAK_WIDTH / size.d_model) ** 0.5, 6),
        label_smoothing=0.0,
        clip_norm=1.0,
        threads=1,
    )
    steps = scale * operations / (settings.tokens_per_batch * flops_per_token(config, LENGTH).training)
    settings = lasting(
        TrainingSettings.from_dict(settings.to_dict() | {"warmup_steps": max(1, round(steps / 10))}), steps
    )
    name = f"scaling {size.name}, {operations:.1e}"
    return TextTrial(name, task.english(SENTENCES), config, settings, (TextLoss(length=LENGTH, averaged=True),))


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """Return a trial of every size with each of its budgets, and that of the held-out size."""
    fitted = [trial(size, operations, task, scale) for operations, sizes in BUDGETS for size in sizes]
    return [*fitted, trial(ASIDE, LARGEST, task, scale)]


def find(context: Context[Texts]) -> Findings:
    """The losses of all trainings, the laws that fit them by each count of parameters, and the laws' predictions."""
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
        "ahead": [found for known in range(1, len(BUDGETS)) if (found := ahead(whole, known)) is not None],
    }


def ahead(runs: Sequence[dict[str, Any]], known: int) -> dict[str, Any] | None:
    """Predict the trainings with the last budget by a law of the first `known` ones, N being all parameters.

    Returns None if fewer than six trainings have those budgets, or none has the last. `misses` are in per cent, with
    their intervals.
    """
    below = [run for run in runs if run["budget"] < known]
    goals = [run for run in runs if run["budget"] == len(BUDGETS) - 1]
    if len(below) <= 5 or not goals:
        return None
    fit = _fit(below, ALL)
    return {
        "known": known,
        "trainings": len(below),
        "misses": [_bracket(miss(fit.law, run, ALL), [miss(law, run, ALL) for law in fit.samples]) for run in goals],
    }


def _run(size: Size, budget: int, done: TextTrial, runner: Any) -> dict[str, Any]:
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
    """A law's constants with their intervals, and its prediction for the held-out size."""
    n, d = aside["parameters"][count], aside["tokens"]
    return {
        "law": [fit.law.a, fit.law.alpha, fit.law.b, fit.law.beta, fit.law.e],
        "constants": {
            name: _bracket(value, [each.constants[name] for each in fit.samples])
            for name, value in fit.law.constants.items()
        },
        "aside": _bracket(fit.law.loss(n, d), [each.loss(n, d) for each in fit.samples]),
    }


def _gap(fits: dict[str, Fit]) -> list[float] | None:
    """The exponent of the best size without embeddings minus that with all parameters, and its interval."""
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
    """Draw the loss against the size for each budget, and the law's misses against the size, as `scaling-….png`."""
    if not findings["laws"]:
        return
    law = Law(*findings["laws"][ALL]["law"])
    runs, aside = _whole(findings), findings["aside"]
    page = Page(7.4, 3.4, layout="constrained")
    left, right = page.figure.subplots(1, 2, sharex=True)
    right.axhline(0, color=GREY, lw=0.9, ls=":")
    for number, (operations, colour) in enumerate(zip(findings["operations"], COLOURS, strict=True)):
        here = [run for run in runs if run["budget"] == number]
        if not here:
            continue
        n, d, losses = (np.array([row[i] for row in map(_point, here)]) for i in range(3))
        left.plot(n, losses, "o", ms=4.5, color=colour, label=f"{scientific(operations)} operations")
        fine = np.geomspace(n.min() / 1.3, n.max() * 1.3, 60)
        # The tokens that the budget buys at other sizes are interpolated in logarithms from the measured sizes.
        tokens = np.exp(np.polyval(np.polyfit(np.log(n), np.log(d), min(2, len(n) - 1)), np.log(fine)))
        left.plot(fine, [law.loss(*each) for each in zip(fine, tokens, strict=True)], color=colour, lw=1.2)
        right.plot(n, [miss(law, run, ALL) for run in here], "o-", ms=4.5, lw=0.9, color=colour)
    if aside["diverged"] is None:
        n, _, loss = _point(aside)
        left.plot(n, loss, "*", ms=11, color=INK, label="kept aside")
        right.plot(n, miss(law, aside, ALL), "*", ms=11, color=INK)
    left.set_xscale("log")
    plain_logarithm(left.xaxis, (1, 3))
    left.legend(frameon=False, fontsize=7.5, labelcolor=INK)
    finish(left, "parameters", "loss, nats a token")
    finish(right, "parameters", "the law's loss minus the measured, %")
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0"))
    page.save(folder / f"{NAME}-law.png")


def _point(run: dict[str, Any]) -> tuple[float, float, float]:
    """Return the number of all parameters, the tokens and the loss of a run."""
    return run["parameters"][ALL], run["tokens"], run["loss"]


def _whole(findings: Findings) -> list[dict[str, Any]]:
    """The trainings that the laws are fitted to: those that did not diverge."""
    return [run for run in findings["runs"] if run["diverged"] is None]


def miss(law: Law, run: dict[str, Any], count: str) -> float:
    """Return the law's loss of a training, N by this count, minus its own loss, in per cent of the latter."""
    return 100 * (law.loss(run["parameters"][count], run["tokens"]) / run["loss"] - 1)


def aside_miss(findings: Findings, count: str) -> Interval:
    """Return a law's miss of the loss of the held-out size, in per cent, with the law's interval."""
    loss = findings["aside"]["loss"]
    return Interval(*(100 * (each / loss - 1) for each in findings["laws"][count]["aside"]))


def _size(miss: Interval) -> Interval:
    """Return the absolute value of a miss, with its interval."""
    ends = abs(miss.low), abs(miss.high)
    return Interval(abs(miss.value), min(ends) if miss.excludes_zero else 0.0, max(ends))


def guesses(findings: Findings) -> tuple[dict[str, Any], float] | None:
    """Return two guesses, without a law, of the held-out size's loss, from the trainings with its budget.

    The largest of these trainings, whose loss is the one guess; and the loss by a parabola in log N that fits theirs
    with least squares. None where fewer than three of them are whole.
    """
    aside = findings["aside"]
    runs = [run for run in _whole(findings) if run["budget"] == aside["budget"]]
    if len(runs) < 3:
        return None
    n, losses = (np.array([_point(run)[i] for run in runs]) for i in (0, 2))
    parabola = np.polyfit(np.log(n), losses, 2)
    largest = max(runs, key=lambda run: run["parameters"][ALL])
    return largest, float(np.polyval(parabola, np.log(aside["parameters"][ALL])))


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""
    if not findings["laws"]:
        return dict.fromkeys(findings["predictions"], Outcome("too many training runs diverged"))
    law, claims = findings["laws"][ALL], findings["predictions"]

    def constant(name: str, claim: str) -> Outcome:
        found = Interval(*law["constants"][name])
        return Outcome(_positive(found, _digits(claims[claim])), found=found)

    gap, optimum = Interval(*findings["gap"]), constant("optimum", "optimum")
    found = {
        "fit": _judge_fit(findings),
        "alpha": constant("α", "alpha"),
        "beta": constant("β", "beta"),
        "E": constant("E", "E"),
        "optimum": Outcome(f"C^{optimum.came}", found=optimum.found),
        "without embeddings": Outcome(gap.text(_digits(claims["without embeddings"]), sign=True), found=gap),
        "kept aside": Outcome("it diverged"),
    }
    if findings["aside"]["diverged"] is None:
        missed = aside_miss(findings, ALL)
        found["kept aside"] = Outcome(f"{missed.text(2, sign=True)} %", found=_size(missed))
    return found


def _digits(prediction: dict[str, Any]) -> int:
    """Return the decimals of a result: one more than its predicted range has, so that rounding can't mislead."""
    return 1 + max(len(f"{prediction[end]:g}".partition(".")[2]) for end in ("low", "high"))


def _positive(found: Interval, digits: int) -> str:
    """A positive constant as text; an end that would be rounded to 0 is said to be less than the last decimal."""
    return found.text(digits).replace(f"({0:.{digits}f} to", f"(< {10**-digits:.{digits}f} to")


def _judge_fit(findings: Findings) -> Outcome:
    """The median of the misses, by all parameters, with their root mean square and the greatest, which it hides."""
    misses = misses_of(findings, ALL)
    median = median_miss(misses)
    said = f"{median:.2f} %; root mean square {_root(misses):.2f} %, greatest {greatest_miss(misses):.2f} %"
    return Outcome(said, found=median)


def misses_of(findings: Findings, count: str) -> list[float]:
    """Return a law's miss of each of its trainings, in per cent."""
    law = Law(*findings["laws"][count]["law"])
    return [miss(law, run, count) for run in _whole(findings)]


def median_miss(misses: Sequence[float]) -> float:
    """The median of their sizes."""
    return float(np.median(np.abs(misses)))


def greatest_miss(misses: Sequence[float]) -> float:
    """The greatest of their sizes."""
    return float(np.abs(misses).max())


def _root(misses: Sequence[float]) -> float:
    """The root mean square."""
    return float(np.sqrt(np.mean(np.square(misses))))


def report(findings: Findings) -> list[str]:
    """Report the trainings, the laws, the size that was kept aside, and the predictions."""
    if not findings["laws"]:
        return ["Too many training runs diverged to fit a law."]
    operations, runs = findings["operations"], findings["runs"]
    seconds = sum(run["seconds"] for run in (*runs, findings["aside"]))
    return [
        paragraph(f"""
            {len(runs)} GPTs read the grammar's sentences in rows of {LENGTH} tokens: {len(SIZES)} sizes of
            {_span(runs, lambda run: run["parameters"][ALL])} parameters, with {len(operations)} budgets of
            {scientific(operations[0])} to {scientific(operations[-1])} operations, which pay for
            {_span(runs, lambda run: run["tokens"])} tokens, at most {max(run["epochs"] for run in runs):.1f} times over
            the text. With the one that was kept aside they took {seconds / 60:.0f} core-minutes. Each was trained once,
            with one seed. Adam's learning rate has its peak at {PEAK} · √({PEAK_WIDTH} / width). It rises for a tenth
            of the steps, and then falls as 1/√step, to about a third of the peak. The checkpoints of the last fifth are
            averaged. Nothing was tuned for a size or a budget.
        """),
        paragraph(f"""
            We fit the law L = E + A/N^α + B/D^β to the losses L on the test set as in approach 3 of Hoffmann et al.
            (2022): the law's log L is a log-sum-exp, and the Huber loss of its residuals, with δ = {DELTA:g}, is made
            as small as possible from {len(starts()):,} starts. Hoffmann et al. do this with L-BFGS, we with the method
            of Levenberg and Marquardt. In brackets: the middle {CONFIDENCE:g} % of the fits to {BOOTSTRAPS} bootstrap
            samples of the training runs. N is counted in two ways, with the table of tokens and without it, as Kaplan
            et al. (2020) did. D is the number of tokens that a model was trained on.
        """),
        _run_table(findings),
        picture(
            f"{NAME}-law", "Loss against size for each budget, with the law's lines; the law's misses against size"
        ),
        "The law in the picture is that of all parameters.",
        _law_table(findings),
        _fit_quality(findings),
        _exponents(findings),
        *_kept_aside(findings),
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
    """The constants of each law with their intervals, and how far it misses its trainings."""
    rows = []
    for count, law in findings["laws"].items():
        constants = {name: Interval(*each) for name, each in law["constants"].items()}
        misses = misses_of(findings, count)
        rows.append(
            [
                count,
                _positive(constants["E"], 2),
                *(_wide(constants[name]) for name in ("A", "B")),
                *(_positive(constants[name], 2) for name in ("α", "β", "optimum")),
                ", ".join(f"{each:.2f}" for each in (median_miss(misses), _root(misses), greatest_miss(misses))),
            ]
        )
    head = ["N", "E", "A", "B", "α", "β", "best N ∝ C^", "misses: median, root mean square, greatest, %"]
    return table(head, rows)


def _wide(found: Interval) -> str:
    """A constant that is known to a factor of thousands only, with its interval."""
    value, low, high = (f"{x:.3g}" if x < 1000 else scientific(x) for x in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def _fit_quality(findings: Findings) -> str:
    """Return a paragraph on the trainings that the law of all parameters misses, and on its shape."""
    misses = misses_of(findings, ALL)
    median = f"""
        The median of the misses says little. Beyond δ Huber's loss grows like the miss and not like its square, so the
        fit comes close to most training runs and leaves a few far off: the median becomes small by construction. By all
        parameters the law misses {sum(abs(each) > FAR for each in misses)} of {len(misses)} training runs by more than
        {FAR} %.
    """
    rows = [
        [each for run, each in zip(_whole(findings), misses, strict=True) if run["budget"] == budget]
        for budget in range(len(findings["operations"]))
    ]
    if min(map(len, rows)) < 3:
        return paragraph(median)
    first, *others = rows
    middle, ends, largest = first[1:-1], [first[0], first[-1]], [row[-1] for row in others]
    pattern = f"""
        With the smallest budget it misses the smallest and the largest size by {_signed(*ends)} %, and those between by
        {_signed(*middle)} %. With the larger budgets it misses the largest size by {_signed(*largest)} %.
    """
    verdict = ""
    if max(middle) < -FAR and max(largest) > FAR:
        shortest = min(run["tokens"] for run in _whole(findings)) // BATCH
        verdict = f"""
            So the misses are systematic. Around the best size of the smallest budget the law's loss is too low, and far
            above the best sizes of the next budgets it is too high: the law does not have the shape of these losses.
            The short runs may be a part of the cause: the shortest has {shortest:,} steps. Resampling the runs does not
            cover such errors, so they are not in the intervals.
        """
    return paragraph(median + pattern + verdict)


def _signed(*values: float) -> str:
    """Return signed numbers as text: `+1.00, −2.00 and +3.00`."""
    return listed([f"{value:+.2f}".replace("-", "−") for value in values])


def _exponents(findings: Findings) -> str:
    """Return paragraphs that compare the exponents of the two counts with each other and with others', and define C."""
    gap = Interval(*findings["gap"])
    differ = "is larger" if gap.low > 0 else "is smaller" if gap.high < 0 else "can't be told from the other"
    digits = _digits(findings["predictions"]["without embeddings"])
    runs = _whole(findings)
    most = {count: max(run["flops"] / (6 * run["parameters"][count] * run["tokens"]) for run in runs) for count in LAWS}
    return paragraph(f"""
        By these laws the best size grows as a power of compute, C = 6 N D. Without embeddings in N, and so in C, the
        exponent {differ}: {gap.text(digits, sign=True)}. Kaplan et al. found 0.73, without embeddings. Hoffmann et al.
        found 0.50 and 0.49, with all parameters, by their approaches 1 and 2, and 0.46 by approach 3, which is used
        here; Besiroglu et al. (2024) fit the same training runs again, and get 0.51. Pearce & Song (2024) derive most
        of the difference between Kaplan's and Hoffmann's exponents from the count, at small sizes, where the tables are
        much of the model. For small models C = 6 N D is not the real cost: these training runs took up to
        {most[ALL]:.1f} times as many operations by all parameters, and up to {most[WITHOUT]:.1f} times as many without
        embeddings, since this count leaves out the output layer.
    """)


def _kept_aside(findings: Findings) -> list[str]:
    """Return a paragraph on the predictions for the held-out size, by the laws and by guesses without a law."""
    aside = findings["aside"]
    if aside["diverged"] is not None:
        return []
    missed = {count: aside_miss(findings, count) for count in findings["laws"]}
    read = f"The size that was kept aside, {aside['size']}, read {aside['tokens']:,} tokens."
    said = [read, f"Its loss was {aside['loss']:.3f}."]
    for count, law in findings["laws"].items():
        said.append(
            f"{LAWS[count]} says {Interval(*law['aside']).text(3)}, which is off by "
            f"{missed[count].text(2, sign=True)} %."
        )
    said.append("All losses are of the same test rows, so these intervals do not cover the effect of other rows.")
    guessed = guesses(findings)
    if guessed is None:
        return [" ".join(said)]
    largest, by_parabola = guessed
    neighbour, parabola = (100 * (value / aside["loss"] - 1) for value in (largest["loss"], by_parabola))
    guess = f"""
        This is an easy test: the size is close to the others. The loss of the next smaller size with the same budget,
        {largest["size"]}, is {largest["loss"]:.3f}: as a guess it is off by {_signed(neighbour)} %. A parabola in
        log N, fitted to the losses of that budget alone, says {by_parabola:.3f}, which is off by
        {_signed(parabola)} %.
    """
    tested = [guess]
    for count, each in missed.items():
        better = abs(each.value) < abs(parabola)
        tested.append(f"{LAWS[count]} comes {'nearer' if better else 'no nearer'} than this parabola.")
    tested.append("With one size, such differences may be chance.")
    return [" ".join(said), paragraph(" ".join(tested)), *_ahead(findings)]


def _ahead(findings: Findings) -> list[str]:
    """Return a paragraph on the errors of laws of the smaller budgets at the largest budget."""
    said = []
    for found in findings["ahead"]:
        factor = findings["operations"][-1] / findings["operations"][found["known"] - 1]
        misses = listed([Interval(*each).text(1, sign=True) for each in found["misses"]])
        said.append(
            f"the {found['trainings']} runs with at most 1/{factor:.1f} of the largest budget: off by {misses} %"
        )
    if not said:
        return []
    return [
        paragraph(f"""
            A harder test is to look ahead. Fit the law of all parameters only to the smaller budgets, and predict the
            losses of the runs with the largest budget, from the smallest model to the largest. From
            {"; from ".join(said)}. With intervals as wide as these, so few training runs do not determine the law.
        """)
    ]
