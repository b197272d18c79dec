"""The experiment on Python as numbers with intervals, as verdicts, as a picture and as a part of the report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from minitransformer.plots.page import BLUE, VERMILION, Page
from study.charts import finish
from study.experiment import Findings
from study.markdown import listed, paragraph, picture, scientific, table, verbatim
from study.trials.bootstrap import Interval
from study.trials.seeds import mean_of_seeds

from ...predictions import Outcome, prediction_blocks
from .library import LONGEST, text_of
from .plan import KLS, MOST_TOKENS, NAME, PEAK, SAMPLES, TEXTS, VOCAB_SIZE

BASE, HELD, FREE = "base", *(f"{kl:g}" for kl in KLS)
NAMES = {BASE: "base", HELD: f"rewards, weight {HELD}", FREE: f"rewards, weight {FREE}"}
COLOURS = {HELD: BLUE, FREE: VERMILION}
WARM, COOL = "1", "0.7"

Run = dict[str, Any]
"""What `summary` tells of a run."""


def over(findings: Findings, name: str, number: Callable[[Run], float]) -> Interval:
    """The mean over the seeds of a model, with its interval."""
    return mean_of_seeds([number(run) for run in findings["models"][name]])


def against_base(findings: Findings, name: str, number: Callable[[Run, Run], float]) -> Interval:
    """The mean over seeds of a number of a run and its own base, with its interval."""
    pairs = zip(findings["models"][name], findings["models"][BASE], strict=True)
    return mean_of_seeds([number(run, base) for run, base in pairs])


def change(findings: Findings, name: str, number: Callable[[Run], float]) -> Interval:
    """The mean over seeds of what rewards add to a number of the base."""
    return against_base(findings, name, lambda run, base: number(run) - number(base))


def share(figure: str, temperature: str = WARM) -> Callable[[Run], float]:
    """The function from a run to a share of its texts, in per cent; of `length` to the mean, in characters."""
    return lambda run: (1 if figure == "length" else 100) * run["writing"][temperature][figure]


def shares(findings: Findings, name: str, figure: str, temperature: str = WARM) -> Interval:
    """A share over the seeds of a model, whose interval lies between 0 and 100 %; or a length."""
    found = over(findings, name, share(figure, temperature))
    return found if figure == "length" else Interval(found.value, max(found.low, 0.0), min(found.high, 100.0))


def bits(run: Run) -> float:
    """The bits that a run's model needs for a byte of the functions that validate."""
    return run["bits"]["value"]


def diverged(findings: Findings) -> list[str]:
    """Why runs diverged."""
    return [run["diverged"] for runs in findings["models"].values() for run in runs if run["diverged"]]


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""
    if diverged(findings):
        return dict.fromkeys(findings["predictions"], Outcome("a training run diverged"))

    def per_cent(found: Interval) -> Outcome:
        return Outcome(f"{found.text(1)} %", found=found)

    def kept(name: str) -> Outcome:
        length = share("length")
        return per_cent(against_base(findings, name, lambda run, base: 100 * length(run) / length(base)))

    packed, forgotten = findings["packed"]["xz"]["after"], change(findings, FREE, bits)
    return {
        "bits": Outcome(over(findings, BASE, bits).text(3), found=over(findings, BASE, bits)),
        "xz": per_cent(over(findings, BASE, lambda run: 100 * bits(run) / packed)),
        "parses": per_cent(shares(findings, BASE, "parses")),
        "cooler": per_cent(shares(findings, BASE, "parses", COOL)),
        "compiles": per_cent(over(findings, BASE, lambda run: share("parses")(run) - share("compiles")(run))),
        "copied": per_cent(shares(findings, BASE, "copied")),
        "held": per_cent(shares(findings, HELD, "parses")),
        "free": per_cent(shares(findings, FREE, "parses")),
        "held length": kept(HELD),
        "free length": kept(FREE),
        "free alike": per_cent(shares(findings, FREE, "distinct", COOL)),
        "forgotten": Outcome(forgotten.text(3, sign=True), found=forgotten),
    }


def draw(findings: Findings, folder: Path) -> None:
    """Draw `code-rewards.png`: the share of texts that parse, and their length, while the runs on rewards go on."""
    if diverged(findings):
        return
    page = Page(7.4, 3.0, layout="constrained")
    left, right = page.figure.subplots(1, 2, sharex=True)
    for name, colour in COLOURS.items():
        for number, run in enumerate(findings["models"][name]):
            steps, parsed, tokens, _ = zip(*run["curve"], strict=True)
            label = NAMES[name] if number == 0 else None
            left.plot(steps, [100 * each for each in parsed], color=colour, lw=1.3, alpha=0.7, label=label)
            right.plot(steps, tokens, color=colour, lw=1.3, alpha=0.7)
    left.legend(frameon=False, fontsize=7.5)
    finish(left, "steps", "texts that parse, %")
    finish(right, "steps", "tokens of a text")
    page.save(folder / f"{NAME}-rewards.png")


def report(findings: Findings) -> list[str]:
    """Report the text, bits a byte, what the models write before and after the rewards, and the predictions."""
    if reasons := diverged(findings):
        return [f"{len(reasons)} training runs diverged: nothing can be compared. The first: {reasons[0]}."]
    return [
        *_read(findings),
        *_written(findings),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


def _read(findings: Findings) -> list[str]:
    base, (train, valid) = findings["models"][BASE][0], findings["functions"]
    packed, (_, size) = findings["packed"], findings["bytes"]
    rows = [[name, *(f"{each[when]:.3f}" for when in ("alone", "after"))] for name, each in packed.items()]
    rows += [[f"GPT, {NAMES[name]}", "", over(findings, name, bits).text(3)] for name in NAMES]
    return [
        paragraph(f"""
            Every machine with Python has a text of Python: its standard library. A small GPT reads {train:,} of its
            functions ({findings["bytes"][0]:,} bytes; Python {findings["python"]}) by the recipe of `train --kind gpt`
            with rotary positions, rows of 256 tokens and a vocabulary of {VOCAB_SIZE:,}: {base["parameters"]:,}
            parameters, {base["steps"]:,} steps, {base["epochs"]:.1f} times over the text, {scientific(base["flops"])}
            operations. The text is made at the start of a run and is not a part of this project; Python's library is
            under the licence of the Python Software Foundation (PSF-2.0). Functions of up to {LONGEST} characters are
            kept, each once, as `ast.unparse` writes them, without docstrings and comments: a smaller language, and
            easier to learn. Tests are left out. The {valid:,} functions ({size:,} bytes) that validate come from
            modules of their own, one in sixteen, chosen by a hash of the name. Seeds: {len(findings["models"][BASE])},
            each with a base of its own; brackets are 95 % intervals over the seeds, by Student's t. Other modules would
            move all numbers.
        """),
        table(["bits a byte", "alone", "after the training text"], rows),
        paragraph("""
            *Alone*, a compressor packs the functions that validate, all in one; *after the training text*, counted is
            what they add to the packed training text. That is the fair comparison, for xz: gzip looks back only 32
            kilobytes. The GPT reads each function from nothing, so it can't use the others of its module, and a
            compressor can. Not counted: the parameters of a GPT, which a decoder would need, as xz's would need the
            training text.
        """),
    ]


def _written(findings: Findings) -> list[str]:
    figures = {
        "parses": "`ast.parse` accepts, %",
        "compiles": "`compile` does, %",
        "copied": "copies, %",
        "new": "accepted and no copies, %",
        "distinct": "distinct, %",
        "short": "one-line bodies, %",
        "length": "characters",
    }
    library = {"writing": {"": findings["library"] | {"distinct": 1.0}}}
    rows = [["the library's that validate", "", *(f"{share(each, '')(library):.1f}" for each in figures)]]
    rows += [
        [NAMES[name], temperature, *(shares(findings, name, each, temperature).text(1) for each in figures)]
        for name in NAMES
        for temperature in (WARM, COOL)
    ]
    runs = findings["models"][HELD]
    blocks = [
        "### What it writes, and a judge that needs no people",
        paragraph(f"""
            Each model writes {SAMPLES:,} texts of at most {MOST_TOKENS} tokens from nothing. `ast.parse` says whether a
            text is Python; `compile` also refuses, for instance, two arguments of one name. Neither runs it. A *copy*
            is in the training text word for word, and shows only what was remembered.
        """),
        paragraph(f"""
            Then `ast.parse` becomes the reward: 1 for a text that it accepts, else 0. From each base GRPO goes on for
            {runs[0]["steps"]} steps of {TEXTS} texts, a group, with a learning rate up to {PEAK:g} and without dropout:
            once with the weight {HELD} of the divergence from the base, once without. The reward asks for Python, and
            forgets the rest: that a function is long enough to do something, that it is new, and that it makes sense.
        """),
        table(["", "temperature", *figures.values()], rows),
        picture(f"{NAME}-rewards", "Share of texts that parse, and tokens of a text, against the steps on rewards"),
        f"Each line is a seed; each point is of {TEXTS} texts.",
        _found(findings),
    ]
    for name in NAMES:
        shown = "\n\n".join(text_of(line) for line in findings["models"][name][0]["writing"][COOL]["examples"][:3])
        blocks += [f"The {NAMES[name]} writes at temperature {COOL}, among others:", verbatim([shown])]
    return blocks


def _found(findings: Findings) -> str:
    """What the rewards added and took."""
    said = []
    for name in (HELD, FREE):
        gains = [
            f"{change(findings, name, share(figure)).text(1, sign=True)} {unit}"
            for figure, unit in (
                ("parses", "points of texts that parse"),
                ("new", "of those that are no copies"),
                ("short", "of one-line bodies"),
                ("length", "characters"),
            )
        ]
        gains.append(f"{change(findings, name, bits).text(3, sign=True)} bits a byte")
        said.append(f"With the weight {name} the rewards add, at temperature 1, {listed(gains)}.")
    return " ".join(said)
