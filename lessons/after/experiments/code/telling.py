"""The experiment on Python as verdicts, as a picture and as a part of the report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from minitransformer.plots.page import BLUE, VERMILION, Page
from study.charts import finish
from study.experiment import Findings
from study.markdown import paragraph, picture, scientific, table, verbatim
from study.trials.bootstrap import Interval
from study.trials.seeds import mean_of_seeds, percentage_over_seeds

from ...predictions import Outcome, prediction_blocks
from .library import LONGEST, text_of
from .plan import BASE, KLS, LENGTH, MOST_TOKENS, NAME, PEAK, SAMPLES, TEMPERATURES, TEXTS, VOCAB_SIZE

HELD, FREE = (f"{kl:g}" for kl in KLS)
WARM, COOL = (f"{each:g}" for each in TEMPERATURES)
NAMES = {BASE: "the base", HELD: f"with rewards, weight {HELD}", FREE: f"with rewards, weight {FREE}"}
COLOURS = {HELD: BLUE, FREE: VERMILION}

FIGURES = {
    "parses": "`ast.parse` accepts, %",
    "compiles": "`compile` does, %",
    "copied": "copies, %",
    "new": "accepted and no copies, %",
    "distinct": "distinct, %",
    "short": "one-line bodies, %",
    "length": "characters",
}

Run = dict[str, Any]
"""What `summary` tells of a run."""


def over(findings: Findings, name: str, number: Callable[[Run], float]) -> Interval:
    """The mean over the seeds of a model, with its interval."""
    return mean_of_seeds([number(run) for run in findings["models"][name]])


def against_base(findings: Findings, name: str, number: Callable[[Run, Run], float]) -> Interval:
    """The mean over seeds of a number of a run and its own base, with its interval."""
    pairs = zip(findings["models"][name], findings["models"][BASE], strict=True)
    return mean_of_seeds([number(run, base) for run, base in pairs])


def written(findings: Findings, name: str, figure: str, temperature: str = WARM) -> Interval:
    """A figure of a model's texts over its seeds: the mean length, or a share in per cent, from 0 to 100."""
    if figure == "length":
        return over(findings, name, lambda run: run["writing"][temperature][figure])
    return percentage_over_seeds([100 * run["writing"][temperature][figure] for run in findings["models"][name]])


def bits(run: Run) -> float:
    """The bits that a run's model needs for a byte of the functions that validate."""
    return run["bits"]["value"]


def warm(run: Run, figure: str) -> float:
    """A figure of a run's texts at temperature 1."""
    return run["writing"][WARM][figure]


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""

    def per_cent(found: Interval) -> Outcome:
        return Outcome(f"{found.text(1)} %", found=found)

    def kept(name: str) -> Outcome:
        ratio = against_base(findings, name, lambda run, base: 100 * warm(run, "length") / warm(base, "length"))
        return per_cent(ratio)

    packed, read = findings["packed"]["xz"]["after"], over(findings, BASE, bits)
    forgotten = against_base(findings, FREE, lambda run, base: bits(run) - bits(base))
    uncompiled = over(findings, BASE, lambda run: 100 * (warm(run, "parses") - warm(run, "compiles")))
    return {
        "bits": Outcome(read.text(3), found=read),
        "xz": per_cent(over(findings, BASE, lambda run: 100 * bits(run) / packed)),
        "parses": per_cent(written(findings, BASE, "parses")),
        "cooler": per_cent(written(findings, BASE, "parses", COOL)),
        "compiles": Outcome(f"{uncompiled.text(1)} points", found=uncompiled),
        "copied": per_cent(written(findings, BASE, "copied")),
        "held": per_cent(written(findings, HELD, "parses")),
        "free": per_cent(written(findings, FREE, "parses")),
        "held length": kept(HELD),
        "free length": kept(FREE),
        "free alike": per_cent(written(findings, FREE, "distinct", COOL)),
        "forgotten": Outcome(forgotten.text(3, sign=True), found=forgotten),
    }


def draw(findings: Findings, folder: Path) -> None:
    """Draw `code-rewards.png`: the share of texts that parse, and their length, while the runs on rewards go on."""
    page = Page(7.4, 3.0, layout="constrained")
    left, right = page.figure.subplots(1, 2, sharex=True)
    for name, colour in COLOURS.items():
        for number, run in enumerate(findings["models"][name]):
            steps, parsed, tokens, _ = zip(*run["curve"], strict=True)
            label = None if number else f"weight {name}"
            left.plot(steps, [100 * each for each in parsed], color=colour, lw=1.3, alpha=0.7, label=label)
            right.plot(steps, tokens, color=colour, lw=1.3, alpha=0.7)
    left.legend(frameon=False, fontsize=7.5)
    finish(left, "steps", "texts that parse, %")
    finish(right, "steps", "tokens of a text")
    page.save(folder / f"{NAME}-rewards.png")


def report(findings: Findings) -> list[str]:
    """Report the text, bits a byte, what the models write before and after the rewards, and the predictions."""
    return [*_read(findings), *_written(findings), *prediction_blocks(findings["predictions"], judge(findings))]


def _read(findings: Findings) -> list[str]:
    base, seeds = findings["models"][BASE][0], len(findings["models"][BASE])
    (train, valid), (train_size, valid_size) = findings["functions"], findings["bytes"]
    rows = [[name, *(f"{each[when]:.3f}" for when in ("alone", "after"))] for name, each in findings["packed"].items()]
    rows += [[f"GPT, {NAMES[name]}", "", over(findings, name, bits).text(3)] for name in NAMES]
    return [
        paragraph(f"""
            Every machine with Python has a text of Python: its standard library. A GPT with {base["parameters"]:,}
            parameters reads {train:,} of its functions ({train_size:,} bytes; Python {findings["python"]}) by the
            recipe of `train --kind gpt`, with rotary positions, rows of {LENGTH} tokens and a vocabulary of
            {VOCAB_SIZE:,}: {base["steps"]:,} steps, {base["epochs"]:.1f} times over the text,
            {scientific(base["flops"])} operations. The text is read where Python keeps it, under the licence of the
            Python Software Foundation, and this project holds none of it. Functions of up to {LONGEST} characters are
            kept, each once, as `ast.unparse` writes them, without docstrings and comments: a smaller language, which a
            small model learns sooner. Tests are left out. The {valid:,} functions ({valid_size:,} bytes) that validate
            are from modules of their own, one in sixteen, chosen by a hash of the name. Each of {seeds} seeds has a
            base of its own, and brackets are 95 % intervals over them by Student's t. They do not cover other modules.
        """),
        table(["bits a byte", "alone", "after the training text"], rows),
        paragraph("""
            *Alone*, a compressor packs all functions that validate together. *After the training text* counts what they
            add to the packed training text: the fair comparison, though gzip looks back only 32 kilobytes. The GPT
            reads each function from nothing, and does not see the others of its module, as a compressor does. To unpack
            one needs the training text, or the GPT's parameters; neither is counted.
        """),
    ]


def _written(findings: Findings) -> list[str]:
    library = (f"{findings['library'][each] * (1 if each == 'length' else 100):.1f}" for each in FIGURES)
    rows = [["the library's that validate", "", *library]]
    rows += [
        [NAMES[name], temperature, *(written(findings, name, each, temperature).text(1) for each in FIGURES)]
        for name in NAMES
        for temperature in (WARM, COOL)
    ]
    blocks = [
        "### A judge that needs no people",
        paragraph(f"""
            Each model writes {SAMPLES:,} texts of at most {MOST_TOKENS} tokens from nothing. `ast.parse` says whether a
            text is Python. `compile` refuses more, such as two arguments of one name. Neither runs it. A *copy* is in
            the training text word for word, and shows only what was remembered. Then `ast.parse` becomes the reward: 1
            for a text that it accepts, else 0. From each base GRPO goes on for {findings["models"][HELD][0]["steps"]}
            steps of {TEXTS} texts, compared with one another, with a learning rate of up to {PEAK:g} and without
            dropout: once with the weight {HELD} of the divergence from the base, and once without. The reward asks for
            Python. It forgets that a function should do something, be new and make sense.
        """),
        table(["", "temperature", *FIGURES.values()], rows),
        picture(f"{NAME}-rewards", "Share of texts that parse, and tokens of a text, against the steps on rewards"),
        f"Each line is a seed, each point {TEXTS} texts. At temperature {COOL} the models of the first seed write:",
    ]
    for name in NAMES:
        examples = findings["models"][name][0]["writing"][COOL]["examples"][:3]
        blocks += [f"{NAMES[name].capitalize()}:", verbatim(["\n\n".join(map(text_of, examples))])]
    return blocks
