"""Read the results of `make after` for the lesson, and turn their numbers into sentences that follow from them."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from after.command import STUDY
from after.experiments import distillation as taught
from after.experiments import scaling
from after.predictions import claim_of, is_right
from study.comparison import verdict
from study.report import sections
from study.trials.bootstrap import Interval

Findings = dict[str, Any]


def findings(experiment: str, folder: Path = STUDY.out) -> Findings | None:
    """Return the findings of an experiment of `lessons/after`, or None if it has not run; print the command for it."""
    try:
        found = {section.experiment.NAME: section for section in sections(STUDY, folder)}
    except FileNotFoundError:
        found = {}
    if experiment not in found:
        print(f'Not measured yet: make after ARGS="{experiment}" measures it, and this cell then shows what came.')
        return None
    origin = found[experiment].origin
    print(f"{origin.command}: {origin.core_minutes:.0f} core-minutes; {origin.machine}")
    return found[experiment].findings


def wrapped(lines: Sequence[str]) -> str:
    """Return sentences one below the other, with long ones on several lines."""
    return "\n".join(fill(line, 116, subsequent_indent="    ") for line in lines)


def predicted(experiment: Any, found: Findings) -> list[str]:
    """Return each prediction with its outcome."""
    words = {True: "right", False: "WRONG", None: "can't be told"}
    outcomes = experiment.judge(found)
    return [
        f"{words[is_right(claim, outcomes[name])]}: {claim_of(claim)}: {outcomes[name].came}"
        for name, claim in found["predictions"].items()
    ]


# --- Distillation -----------------------------------------------------------------------------------------------


def trained(found: Findings) -> list[str]:
    """The names of the models whose training did not diverge."""
    return [name for name, each in found["models"].items() if each[taught.GREEDY]["diverged"] is None]


def distillation_table(found: Findings) -> list[str]:
    """A line for each model: BLEU greedy and with a beam, perplexity, parameters."""
    lines = [f"{'':<15}{'BLEU, greedy':>22}{f'BLEU, beam {taught.BEAM}':>22}{'perplexity':>24}{'parameters':>12}"]
    for name, each in found["models"].items():
        greedy, beam = each[taught.GREEDY], each[taught.SEARCHED]
        if greedy["diverged"] is not None:
            lines.append(f"{name:<15} diverged: {greedy['diverged']}")
            continue
        scores = Interval(**greedy["bleu"]).text(), Interval(**beam["bleu"]).text()
        perplexity = Interval(**beam["perplexity"]).text(2)
        lines.append(f"{name:<15}{scores[0]:>22}{scores[1]:>22}{perplexity:>24}{greedy['parameters']:>12,}")
    return lines


def distillation_verdicts(found: Findings) -> list[str]:
    """Return sentences on the differences between training runs, with those that are shown and those that are not."""
    said = []
    for name in (*taught.LEARNERS, taught.TEACHER):
        gap = found["against"][name][taught.GREEDY]
        widened = None if gap is None else asdict(taught.between(gap))
        said.append(f"Greedy: {verdict(name.capitalize(), taught.BASELINE, 'bleu', widened)}")
    for name in (taught.BASELINE, taught.SEQUENCES):
        gap = found["from the beam"][name]
        said.append(f"{name.capitalize()}: {verdict('The beam', 'greedy search', 'bleu', gap)}")
    models = found["models"]
    if {taught.BASELINE, taught.SEQUENCES} <= set(trained(found)):
        alone, taught_by = (
            Interval(**models[name][taught.SEARCHED]["perplexity"]) for name in (taught.BASELINE, taught.SEQUENCES)
        )
        apart = alone.high < taught_by.low or taught_by.high < alone.low
        order = "lower" if taught_by.value < alone.value else "higher"
        said.append(
            f"Perplexity on the human translations: sequence level is {order} than {taught.BASELINE}, "
            f"{taught_by.value:.2f} against {alone.value:.2f}" + ("." if apart else "; their intervals overlap.")
        )
    if "closed" in found:
        share = taught.closed_share(found).text(0)
        said.append(f"The best student, {found['best']}, makes up for {share} % of what the one alone lacks.")
    elif "best" in found:
        said.append("The teacher is not shown to be better than the student alone.")
    return said


# --- Scaling ----------------------------------------------------------------------------------------------------


def whole(found: Findings) -> list[dict[str, Any]]:
    """The training runs that a law can be fitted to: those that did not diverge."""
    return [run for run in found["runs"] if run["diverged"] is None]


def scaling_table(found: Findings) -> list[str]:
    """A line for each size: its parameters by both counts, and its loss with each budget."""
    budgets = found["operations"]
    cells = {(run["size"], run["budget"]): run for run in (*found["runs"], found["aside"])}
    names = list(dict.fromkeys(size for size, _ in cells))
    head = "".join(f"{f'{each:.1e}':>10}" for each in budgets)
    lines = [f"{'width × layers':<16}{'N, all':>10}{'N, without':>12}{head}   (operations)"]
    for name in names:
        row = [cells.get((name, budget)) for budget in range(len(budgets))]
        n = next(run["parameters"] for run in row if run is not None)
        losses = ["" if run is None else "diverged" if run["diverged"] else f"{run['loss']:.3f}" for run in row]
        aside = "   kept aside" if name == found["aside"]["size"] else ""
        lines.append(
            f"{name:<16}{n[scaling.ALL]:>10,}{n[scaling.WITHOUT]:>12,}{''.join(f'{x:>10}' for x in losses)}{aside}"
        )
    return lines


def law_table(found: Findings) -> list[str]:
    """A line for each count of parameters: the constants with their intervals, and the misses."""
    heads = "".join(f"{each:>22}" for each in ("E", "α", "β", "best N ∝ C^"))
    lines = [f"{'N':<20}{heads}{'misses, %: median, greatest':>30}"]
    for count, law in found["laws"].items():
        told = [Interval(*law["constants"][name]).text(2) for name in ("E", "α", "β", "optimum")]
        told = [each.replace("(0.00", "(< 0.01") for each in told]
        missed = scaling.misses_of(found, count)
        misses = f"{scaling.median_miss(missed):>20.2f}{scaling.greatest_miss(missed):>10.2f}"
        lines.append(f"{count:<20}{''.join(f'{each:>22}' for each in told)}{misses}")
    return lines


def scaling_verdicts(found: Findings) -> list[str]:
    """Return sentences that compare the laws of the two counts, and on the prediction of the held-out size."""
    if not found["laws"]:
        return ["Too many training runs diverged to fit a law."]
    gap, aside = Interval(*found["gap"]), found["aside"]
    differ = "larger" if gap.low > 0 else "smaller" if gap.high < 0 else "neither larger nor smaller, as far as shown"
    said = [f"Without embeddings the exponent of the best size is {differ}: {gap.text(3, sign=True)}."]
    if aside["diverged"] is not None:
        return [*said, "The training that was kept aside diverged."]
    for count, law in found["laws"].items():
        law_says = Interval(*law["aside"])
        inside = "inside" if law_says.low <= aside["loss"] <= law_says.high else "outside"
        said.append(
            f"Kept aside, {'with ' * (count == scaling.ALL)}{count}: the law said {law_says.text(3)}; "
            f"{aside['loss']:.3f} came, {inside} the law's interval. "
            f"The law is off by {scaling.aside_miss(found, count).text(2, sign=True)} %."
        )
    if guessed := scaling.guesses(found):
        nearest, parabola = guessed
        off = [f"{100 * (loss / aside['loss'] - 1):+.2f} %".replace("-", "−") for loss in (nearest["loss"], parabola)]
        said.append(
            f"Guesses without any law: the loss of the next smaller size with the same budget, {nearest['loss']:.3f}, "
            f"is off by {off[0]}; a parabola fitted to the losses with that budget, {parabola:.3f}, by {off[1]}."
        )
    return said


def _with_its_budget(found: Findings) -> list[dict[str, Any]]:
    """The training runs with the budget of the one that was kept aside."""
    return [run for run in whole(found) if run["budget"] == found["aside"]["budget"]]


def what_is_known(found: Findings) -> str:
    """Return a sentence on the widths of the exponents' intervals, and of that of a predicted loss."""
    law = found["laws"][scaling.ALL]
    named = {name: law["constants"][name] for name in ("α", "β", "optimum")}
    wide = {name: 100 * (high - low) / value for name, (value, low, high) in named.items()}
    exponents = f"of α is {wide['α']:.0f} % of α wide, that of β {wide['β']:.0f} %, that of the best size's exponent"
    _, low, high = law["aside"]
    said = (
        f"By all parameters, the interval {exponents} {wide['optimum']:.0f} %. That of the loss of the size kept aside "
        f"is {high - low:.3f} nats wide"
    )
    losses = [run["loss"] for run in _with_its_budget(found)]
    if not losses:
        return f"{said}."
    return f"{said}; for comparison, the losses of all other sizes with its budget are {np.ptp(losses):.3f} nats apart."


def columns(runs: Sequence[dict[str, Any]], count: str) -> tuple[list[float], list[float], list[float]]:
    """Return the parameters, tokens and losses of training runs."""
    return (
        [float(run["parameters"][count]) for run in runs],
        [float(run["tokens"]) for run in runs],
        [float(run["loss"]) for run in runs],
    )
