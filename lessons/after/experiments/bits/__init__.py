"""The cost of few bits: perplexity by bits and by the weights that share a scale, and where the error sits.

Source: Dettmers et al. 2022, LLM.int8(), whose outliers are channels of large inputs; Frantar et al. 2022, GPTQ.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.costs import flops_per_token
from minitransformer.data.preparation import TextChoice
from minitransformer.data.text import TextDataset
from minitransformer.plots.page import BLUE, GREEN, GREY, INK, ORANGE, PALE, VERMILION, Page, text_style
from minitransformer.pretrained import load
from minitransformer.system.threads import Threads
from minitransformer.training.checkpoint import load_checkpoint
from study.charts import finish
from study.experiment import Context, Findings
from study.markdown import listed, paragraph, picture, table
from study.trials.bootstrap import MEAN, PERPLEXITY, Interval, difference, interval
from study.trials.text_models import text_dataset
from study.trials.trial import Trial

from ...predictions import Outcome, prediction_blocks, predictions_of
from ...task import Texts
from ..inside.looking import Subject, subject
from ..rewards.plan import base_trial
from .rounding import Channels, Matrices, Spared, Way, channels

NAME, TITLE, MINUTES, ALONE = "bits", "What few bits cost", 0.0, 12.0

GPT, SMOLLM2, FILE = "GPT", "SmolLM2", "MINITRANSFORMER_SMOLLM2"
"""The grammar's GPT; a published model, SmolLM2-135M-Instruct, and the variable with the path of its file, in Q4_1."""

LEVELS = {"8 bits": (8, True), "4 bits": (4, False), "4 bits, no minimum": (4, True), "3 bits": (3, False)}
COLOURS = dict(zip(LEVELS, (GREEN, BLUE, ORANGE, VERMILION), strict=True))
GROUPS: dict[str, tuple[int | None, ...]] = {GPT: (16, 32, 64, 128, None), SMOLLM2: (16, 32, 64, 192, None)}
"""Weights that share a scale; None: a whole column. 192 divides SmolLM2's widths, and 128 does not."""

SENTENCES, FEWER, ROW = 1000, 72, 64
"""Sentences of the grammar's test set that the GPT reads; those that SmolLM2 reads, in rows of so many tokens."""

LOOKED_AT = Way(3, 32, False)
"""Where the error is looked at: three bits, so that there is some."""

LARGEST = 0.01
"""The share of each map's channels that are called the largest, rounded up."""


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """The training of the grammar's GPT, the one with which training on rewards begins."""
    return [base_trial(task)]


def find(context: Context[Texts]) -> Findings:
    """Read the grammar's test set with the GPT and, where its file is at hand, with SmolLM2, in all ways."""
    runner, trial = context.runner, base_trial(context.task)
    data = runner.data(trial.text)
    assert isinstance(data.choice, TextChoice)
    lines = data.choice.lines
    model = load_checkpoint(runner.model_path(trial), with_optimizer=False).model(runner.ops, runner.dtype)
    with Threads(1):
        seen, other = (subject(model, data, SENTENCES, split) for split in ("test", "valid"))
        found = {GPT: look(seen, other, GROUPS[GPT])}
        if os.environ.get(FILE):
            model, tokenizer = load(os.environ[FILE])

            def reading(split: Any) -> Subject:
                ids = tokenizer.encode(" ".join(islice(lines(split), FEWER)))
                text = text_dataset(model.config, TextDataset.from_lines([ids], model.config.eos_id), ROW)
                return Subject(model, list(text.batches(8 * ROW, None, model.config).epoch(0)))

            found[SMOLLM2] = look(reading("test"), reading("valid"), GROUPS[SMOLLM2])
    return {"predictions": predictions_of(NAME), "models": found}


def look(seen: Subject, other: Subject, groups: Sequence[int | None]) -> dict[str, Any]:
    """Return all figures of a model; its largest channels are those on another text."""
    matrices, exact = Matrices.of(seen.model), seen.losses()
    size = sum(matrix.size for matrix in {**matrices.maps, **matrices.tables}.values())
    rest = 4.0 * (seen.model.parameters.count - size)

    def rounded(way: Way, spared: Spared | None = None) -> dict[str, Any]:
        with matrices.rounded(way, spared) as taken:
            losses = seen.losses()
        return {
            "bits": 8 * (taken - rest) / size,
            "bytes": taken,
            "perplexity": asdict(interval(PERPLEXITY, losses)),
            "rise": {end: 100 * math.expm1(x) for end, x in asdict(difference(MEAN, losses, exact)).items()},
        }

    largest = {name: each.size.argsort()[::-1] for name, each in channels(matrices, other.batches, LOOKED_AT).items()}
    counts = {name: math.ceil(LARGEST * len(order)) for name, order in largest.items()}
    rng = np.random.default_rng(0)
    shown = channels(matrices, seen.batches, LOOKED_AT)
    return {
        "parameters": seen.model.parameters.count,
        "operations": flops_per_token(seen.model.config, 1).target,
        "rows": len(exact),
        "tokens": int(exact[:, 1].sum()),
        "exact": asdict(interval(PERPLEXITY, exact)),
        "ways": {
            name: [{"group": group} | rounded(Way(bits, group, symmetric)) for group in groups]
            for name, (bits, symmetric) in LEVELS.items()
        },
        "spared": {
            "none": rounded(LOOKED_AT),
            "largest": rounded(LOOKED_AT, {name: order[: counts[name]] for name, order in largest.items()}),
            "drawn": rounded(
                LOOKED_AT, {name: rng.permutation(order)[: counts[name]] for name, order in largest.items()}
            ),
        },
        **of_channels(shown, {name: order[: counts[name]] for name, order in largest.items()}),
    }


def of_channels(shown: Mapping[str, Channels], largest: Spared) -> dict[str, Any]:
    """Return the share of the error that each map's largest channels have, the mean curve, and the most unequal map.

    curve  the share of the squared error in so many hundredths of the channels, the largest first, a mean over maps
    """
    apart = {name: float(each.size.max() / np.median(each.size)) for name, each in shown.items()}
    worst = max(apart, key=apart.__getitem__)
    hundredths, curves = np.linspace(0, 1, 101), []
    for each in shown.values():
        sums = np.r_[0, each.share[each.size.argsort()[::-1]].cumsum()]
        curves.append(np.interp(hundredths, np.linspace(0, 1, len(sums)), sums))
    return {
        "apart": apart,
        "held": {name: float(each.share[list(largest[name])].sum()) for name, each in shown.items()},
        "curve": np.mean(curves, 0).round(4).tolist(),
        "worst": {"layer": worst, "size": [float(f"{x:.3g}") for x in shown[worst].size]},
    }


# --- The report -------------------------------------------------------------------------------------------------


def draw(findings: Findings, folder: Path) -> None:
    """Draw `bits-perplexity.png`: the rise against bits, and `bits-channels.png`: the largest inputs."""
    models = findings["models"]
    page = Page(3.7 * len(models), 3.2, layout="constrained")
    every = np.atleast_1d(page.figure.subplots(1, len(models)))
    for axes, (kind, found) in zip(every, models.items(), strict=True):
        for name, points in found["ways"].items():
            rises = [Interval(**each["rise"]) for each in points]
            bits = [each["bits"] for each in points]
            axes.plot(bits, [each.value for each in rises], "o-", ms=4, lw=1.4, color=COLOURS[name], label=name)
            axes.vlines(
                bits, [each.low for each in rises], [each.high for each in rises], color=COLOURS[name], alpha=0.5
            )
        axes.set_yscale("symlog", linthresh=0.1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.axhline(0, color=GREY, lw=0.9, ls=":")
        axes.set_title(kind, **text_style([kind], 9))
        finish(axes, "bits a weight, with scales and minima", "rise of perplexity, %" if kind == GPT else "")
    every[-1].legend(frameon=False, fontsize=8, labelcolor=INK)
    page.save(folder / f"{NAME}-perplexity.png")

    page = Page(2.5 * (len(models) + 1), 2.7, layout="constrained")
    *panels, last = page.figure.subplots(1, len(models) + 1)
    for axes, (kind, found), colour in zip(panels, models.items(), (BLUE, VERMILION), strict=False):
        sizes = found["worst"]["size"]
        axes.vlines(range(len(sizes)), 0, sizes, color=colour, lw=0.8)
        axes.set_title(title := f"{kind}, {map_name(found['worst']['layer'])}", **text_style([title], 8))
        finish(axes, "channel", "size of inputs, √(mean x²)" if kind == GPT else "")
        last.plot(range(101), 100 * np.array(found["curve"]), color=colour, lw=1.6, label=kind)
    last.plot([0, 100], [0, 100], color=GREY, lw=0.9, ls=":")
    last.grid(color=PALE, lw=0.8)
    last.legend(frameon=False, fontsize=8, labelcolor=INK)
    finish(last, "channels, the largest first, %", "of the squared error, %")
    page.save(folder / f"{NAME}-channels.png")


def map_name(name: str) -> str:
    """A map's name for readers: `layer 2, contract` for `decoder.layers.1.feed_forward.contract.weight`."""
    _, _, layer, _, part, *_ = name.split(".")
    return f"layer {int(layer) + 1}, {part.replace('_', ' ')}"


def rise(found: Mapping[str, Any], name: str, group: int | None) -> Interval:
    """The rise of a model's perplexity, in per cent, and its interval."""
    return Interval(**next(each["rise"] for each in found["ways"][name] if each["group"] == group))


def taken_away(found: Mapping[str, Any], which: str) -> float:
    """The per cent of the rise that go if some channels are not rounded."""
    none, some = (found["spared"][name]["rise"]["value"] for name in ("none", which))
    return 100 * (1 - some / none)


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction; those on SmolLM2 can't be told without its file."""
    missing = Outcome("its file was not at hand")

    def risen(kind: str, name: str, group: int | None) -> Outcome:
        if kind not in findings["models"]:
            return missing
        found = rise(findings["models"][kind], name, group)
        return Outcome(f"{found.text(2, sign=True)} %", found=found)

    def number(kind: str, figure: Any) -> Outcome:
        if kind not in findings["models"]:
            return missing
        value = figure(findings["models"][kind])
        return Outcome(f"{value:.1f}", found=value)

    def held(found: Mapping[str, Any]) -> float:
        return 100 * float(np.median(list(found["held"].values())))

    def steeper(found: Mapping[str, Any]) -> float:
        return rise(found, "3 bits", 32).value / rise(found, "4 bits", 32).value

    return {
        "8 bits": risen(GPT, "8 bits", None),
        "4 bits": risen(GPT, "4 bits", 32),
        "columns": risen(GPT, "4 bits", None),
        "steeper": number(GPT, steeper),
        "held": number(GPT, held),
        "spared": number(GPT, partial(taken_away, which="largest")),
        "as stored": risen(SMOLLM2, "4 bits", 32),
        "SmolLM2, 4 bits": risen(SMOLLM2, "4 bits", 64),
        "SmolLM2, no minimum": risen(SMOLLM2, "4 bits, no minimum", 32),
        "SmolLM2, 3 bits": risen(SMOLLM2, "3 bits", 32),
        "SmolLM2, held": number(SMOLLM2, held),
        "SmolLM2, spared": number(SMOLLM2, partial(taken_away, which="largest")),
    }


def report(findings: Findings) -> list[str]:
    """Report perplexity, bytes and operations, where the error sits, and the predictions."""
    models = findings["models"]
    texts = [f"{kind} {found['tokens']:,} tokens in {found['rows']} rows" for kind, found in models.items()]
    return [
        paragraph(f"""
            Linear maps are rounded to 8, 4 or 3 bits, and the table of tokens to 8, as the package does with `--bits`.
            In 8 bits levels lie about 0; in 4 and 3 bits a group also has a minimum, unless the row says that it has
            none. 8 and 4 bits are the package's own, with groups of other sizes. 3 bits are simulated: weights are
            rounded to 8 levels and stay in float32, and their bytes are counted. The models are the grammar's GPT
            {"and SmolLM2-135M-Instruct" if SMOLLM2 in models else ""}; they read sentences of the grammar's test set:
            {listed(texts)}. Brackets are those of 1,000 bootstrap samples of the rows, the same for all ways. They
            cover the choice of the text. Rounding also moves a model a little by chance, which they leave out: so not
            every row of 4 bits is better than those with larger groups.
        """),
        *(block for kind, found in models.items() for block in _costs(kind, found)),
        *(() if SMOLLM2 in models else (f"SmolLM2 is left out: `{FILE}` did not name its file.",)),
        picture(f"{NAME}-perplexity", "Rise of perplexity against the bits of a weight, for each kind of levels"),
        "### Where the error sits",
        paragraph("""
            A map's output is wrong by x (W' − W). Its squared error is a sum over the channels of x: each channel's
            part is what its own weights add, with its share of what they do together with others. The largest channels
            are 1 % of those of each map, rounded up, by √(mean x²) on other text. Weights are in 3 bits and groups of
            32. The rise is given without change, then with the largest channels' weights left in float32, and then
            with as many channels' that were drawn.
        """),
        table(HEAD, [[kind, *_where(found)] for kind, found in models.items()]),
        picture(f"{NAME}-channels", "Inputs of one map by channel, and the share of the error in the largest channels"),
        paragraph("""
            One panel for each model: the map whose largest channel is farthest from its median. Right: the share of the
            squared error in the largest channels, a mean over maps; dotted: if all channels had the same. No time was
            measured here: NumPy unpacks weights more slowly than it reads them, so that bytes are what few bits save.
        """),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


def _costs(kind: str, found: Mapping[str, Any]) -> list[str]:
    exact = 4 * found["parameters"]
    rows = [["float32", "", "32", f"{exact / 1e6:.2f}", f"{found['operations'] / exact:.2f}",
             Interval(**found["exact"]).text(3), ""]]  # fmt: skip
    for name, points in found["ways"].items():
        for each in points:
            rows.append(
                [name, str(each["group"] or "column"), f"{each['bits']:.2f}", f"{each['bytes'] / 1e6:.2f}",
                 f"{found['operations'] / each['bytes']:.2f}", f"{each['perplexity']['value']:,.3f}",
                 Interval(**each["rise"]).text(2, sign=True)]
            )  # fmt: skip
    said = paragraph(f"""
        **{kind}**: {found["parameters"]:,} parameters, {found["operations"]:,.0f} operations a token (the first one's,
        without a text to attend to), at every number of bits. A token reads all megabytes once.
    """)
    if kind == SMOLLM2:
        said += " " + paragraph("""
            Its file (`MINITRANSFORMER_SMOLLM2` names it) holds the maps in 4 bits with a minimum, in groups of 32, and
            the table in 8 bits. So these cost nothing by construction, and *float32* is what this file stands for: not
            the model as it was trained, which 4 bits have changed already. The other rows show what rounding costs once
            more.
        """)
    return [
        said,
        table(["levels", "group", "bits a weight", "MB", "operations a byte", "perplexity", "rise, %"], rows, 2),
    ]


HEAD = (
    "model",
    "largest channel ÷ median, over maps",
    "the largest 1 % hold, % of the error",
    "rise, %",
    "largest spared",
    "drawn ones spared",
)


def _where(found: Mapping[str, Any]) -> list[str]:
    apart, held = (list(found[name].values()) for name in ("apart", "held"))
    rises = [Interval(**found["spared"][name]["rise"]).text(2, sign=True) for name in ("none", "largest", "drawn")]
    return [f"{min(apart):.1f} to {max(apart):.0f}", f"{100 * np.median(held):.1f} (median)", *rises]
