"""What table 4's experiment says: its report and its picture, from its findings alone."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from minitransformer.plots.page import BLUE, GREY, INK, ORANGE, Page, text_style

from ...charts import finish
from ...comparison import shown, verdict
from ...experiment import Findings
from ...markdown import paragraph, picture, scientific, table
from ...published import TABLE_4
from ...trials.bootstrap import Interval

MODELS = TRANSFORMER, RNN = "Transformer", "RNN + attention"
COLOURS = {TRANSFORMER: BLUE, RNN: ORANGE}
LINES = {"small": "--", "large": "-"}
PICTURE = "table4-parsing"

COUNTERPARTS = {"small": "WSJ only, discriminative", "large": "semi-supervised"}
PAPER_NAMES = {TRANSFORMER: "Transformer (4 layers)", RNN: "Vinyals & Kaiser et al. (2014)"}
PUBLISHED = {(row.training, row.parser): row.f1 for row in TABLE_4}


def published(trees: str, model: str) -> float:
    """The F1 of the paper's row that a parser of ours is the miniature of."""
    return PUBLISHED[COUNTERPARTS[trees], PAPER_NAMES[model]]


def draw(findings: Findings, folder: Path) -> None:
    """How the four trainings went, and where they arrived beside the paper's."""
    page = Page(7.4, 3.3, layout="constrained")
    left, right = page.figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    for row in findings["parsers"]:
        operations, perplexities = zip(*row["curve"], strict=True) if row["curve"] else ((), ())
        losses = [math.log(perplexity) for perplexity in perplexities]
        label = f"{row['model']}, {row['num_trees']:,} trees"
        style = {"color": COLOURS[row["model"]], "ls": LINES[row["trees"]]}
        left.plot([count / 1e12 for count in operations], losses, lw=1.6, label=label, **style)
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter("{x:g}")
    left.minorticks_off()
    left.legend(frameon=False, fontsize=8, labelcolor=INK)
    finish(left, "operations of the training, 10¹²", "validation cross-entropy, nats a token")
    _draw_scores(right, findings["parsers"])
    page.save(folder / f"{PICTURE}.png")


def _draw_scores(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A bar with its interval for each parser, and a mark at the paper's."""
    for place, row in enumerate(rows):
        colour = COLOURS[row["model"]]
        if "f1" in row:
            f1 = Interval(**row["f1"])
            filling = colour if row["trees"] == "large" else "white"
            axes.bar(place, f1.value, width=0.62, linewidth=1.6, facecolor=filling, edgecolor=colour)
            axes.plot([place, place], [f1.low, f1.high], color=INK, lw=1.2)
            axes.text(place, f1.high + 1.5, f"{f1.value:.1f}", ha="center", va="bottom", **text_style([], 8))
        mark = {"marker": "D", "ms": 5, "ls": "", "color": "white", "markeredgecolor": INK}
        label = None if place else "the paper's, on the Wall Street Journal"
        axes.plot(place + 0.42, published(row["trees"], row["model"]), label=label, **mark)
    names = [f"{'RNN' if row['model'] == RNN else row['model']}\n{row['trees']}" for row in rows]
    axes.set(ylim=(0, 118))
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=7.5, labelcolor=GREY, loc="upper left")
    finish(axes, "", "F1, %")
    axes.set_xticks(range(len(rows)), names, fontsize=7.5)
    axes.tick_params(axis="x", length=0)


def report(findings: Findings) -> list[str]:
    """Ours beside the paper's, what differs, and what goes wrong."""
    return [
        *_introduction(findings),
        "",
        *_ours(findings["parsers"]),
        "",
        *_verdicts(findings),
        "",
        picture(PICTURE, "Validation cross-entropy against operations of four parsers; their F1 beside the paper's"),
        "",
        *_linearisation(findings["example"]),
        "",
        *_brackets(findings["parsers"]),
        "",
        *_mistake(findings["mistake"]),
        "",
        *_differences(findings),
        "",
        "The paper's own table (F1 on section 23 of the Wall Street Journal):",
        "",
        *table(["parser", "training", "F1"], [[row.parser, row.training, f"{row.f1}"] for row in TABLE_4]),
    ]


def _introduction(findings: Findings) -> list[str]:
    exam, rows = findings["exam"], findings["parsers"]
    few, many = (next(row for row in rows if row["trees"] == name) for name in COUNTERPARTS)
    by_model = {row["model"]: row["config"] for row in rows}
    other_task = "" if findings["task"] == "grammar" else f" {findings['task']} has no trees: these are the grammar's."
    return [
        paragraph(f"""
            The models read an English sentence and write its parse tree as a sequence (§6.3), from
            {few["num_trees"]:,} trees ("small", in the place of the paper's 40,000 sentences of the Wall Street
            Journal) and from {many["num_trees"]:,} ("large", in the place of its 17 million of the semi-supervised
            setting), to equal training operations by the count of a typical batch.{other_task} The Transformer has
            {by_model[TRANSFORMER]["num_layers"]} layers on each side, d_model {by_model[TRANSFORMER]["d_model"]} and
            {by_model[TRANSFORMER]["num_heads"]} heads; the other model is of the kind of the paper's first row, an LSTM
            with additive attention, here with {_count(by_model[RNN]["num_layers"], "layer")} and d_model
            {by_model[RNN]["d_model"]}. Vocabulary: {few["config"]["vocab_size"]:,} tokens for few trees,
            {many["config"]["vocab_size"]:,} for many; dropout {few["config"]["dropout"]} and
            {many["config"]["dropout"]}, the higher rate for the trees that are seen more often; batches of
            {few["training"]["tokens_per_batch"]:,} padded tokens. Sizes, rates and batches are the same for both
            models where both have them. They were chosen for the Transformer after a few short trainings, not by a
            search.
        """),
        "",
        paragraph(f"""
            Each was asked {_asked(rows):,} sentences of the test set, with
            {"the mean of its last five checkpoints" if exam["averaged"] else "its last checkpoint"}, a beam of
            {exam["beam"]}, α = {exam["length_penalty"]} and at most {exam["max_extra"]} tokens more than the input has.
            In brackets: the 95 % interval of 1,000 bootstrap samples of the test sentences. There is one training of
            each, so what another seed would change is not in the interval.
        """),
    ]


def _ours(rows: list[dict[str, Any]]) -> list[str]:
    head = [
        "model", "trees", "F1", "F1, malformed ones all wrong", "malformed", "exactly right",
        "operations", "seconds", "steps", "epochs", "parameters", "F1 of the paper's counterpart",
    ]  # fmt: skip
    cells = []
    for row in rows:
        examined = row["diverged"] is None
        cells.append(
            [
                row["model"],
                row["trees"],
                shown(row, "f1") if examined else f"diverged: {row['diverged']}",
                Interval(**row["strict_f1"]).text() if examined else "–",
                f"{row['malformed']} of {row['sentences']}" if examined else "–",
                f"{100 * row['exactly_right'] / row['sentences']:.1f} %" if examined else "–",
                scientific(row["flops"]),
                f"{row['seconds']:,.0f}",
                f"{row['steps']:,}",
                f"{row['epochs']:,.1f}",
                f"{row['parameters']:,}",
                f"{published(row['trees'], row['model'])}",
            ]
        )
    return table(head, cells)


def _verdicts(findings: Findings) -> list[str]:
    """Each difference with its interval, and the paper's."""
    lines = []
    for trees, found in findings["between_models"].items():
        printed = published(trees, TRANSFORMER) - published(trees, RNN)
        lines.append(f"- {trees}: {verdict(TRANSFORMER, RNN, 'f1', found)} In the paper: {_signed(printed)}.")
    for model, found in findings["between_trees"].items():
        printed = published("large", model) - published("small", model)
        pair = f"{model} with many trees", f"{model} with few"
        lines.append(f"- {verdict(*pair, 'f1', found)} In the paper: {_signed(printed)}.")
    return [*lines, "", f"Many trees and few differ in dropout and vocabulary too. {_losses(findings['parsers'])}"]


def _losses(rows: list[dict[str, Any]]) -> str:
    """What the loss says of the same models, which may not be what F1 says."""
    told = [f"{row['model']}, {row['trees']} {math.log(row['curve'][-1][1]):.3f}" for row in rows if row["curve"]]
    return paragraph(f"""
        Validation cross-entropy at the end, in nats a token: {"; ".join(told) or "no training came so far"}. It asks
        for one token after the right ones; F1 asks for a whole tree, in which one XX too many shifts all that follows.
        So the two need not agree on which model is better.
    """)


def _linearisation(example: Mapping[str, str]) -> list[str]:
    return [
        paragraph("""
            A tree becomes tokens as Vinyals et al. (2015) write it: one opens a constituent, one closes it, each word
            is XX, and parts of speech are left out. A sentence of the test set, its tree, and what the model is to
            write:
        """),
        "",
        "```text",
        example["sentence"],
        example["tree"],
        example["linearised"],
        "```",
    ]


def _brackets(rows: list[dict[str, Any]]) -> list[str]:
    asked = [(f"{row['model']}, {row['trees']}", row) for row in rows if row["diverged"] is None]
    counts = [f"{name}: {row['no_tree']} and {row['malformed'] - row['no_tree']}" for name, row in asked]
    sound = [f"{name}: {Interval(**row['sound_f1']).text()}" for name, row in asked if row["sound_f1"]]
    words = [f"{name}: {row['only_words']} of {row['malformed']}" for name, row in asked]
    right = [f"{name}: {row['brackets_right']} of {row['sentences']}" for name, row in asked]
    return [
        paragraph(f"""
            F1 is the harmonic mean of labelled precision and recall over all constituents of the test set: one is right
            if the reference has it with the same label over the same words (PARSEVAL). A parse is malformed if it is no
            tree or has not as many words as the sentence (how many of either: {"; ".join(counts) or "none was asked"}).
            No sentence is left out: of a malformed parse a closing bracket closes the nearest open constituent of
            its label and those inside it, one without is ignored, as is a constituent without words, and what is open
            in the end is closed there. Words are counted, not matched: with one XX too few, all constituents after it
            are shifted and wrong. The second F1 gives malformed parses no right constituent at all. Over the sound ones
            alone, other sentences for each parser, F1 is {"; ".join(sound) or "of none"}.
        """),
        "",
        paragraph(f"""
            How much of that is counting? Of the malformed parses so many have the reference's brackets, all of them and
            in their order, and only the words between them miscounted: {"; ".join(words) or "none was asked"}. Of all
            parses so many have them: {"; ".join(right) or "none was asked"}.
        """),
    ]


def _mistake(mistake: Mapping[str, Any] | None) -> list[str]:
    if mistake is None:
        return ["No example of a parse that went wrong: the best parser made none."]
    kind = "malformed" if mistake["malformed"] else "sound"
    return [
        f"A parse that went wrong, of the best parser ({mistake['model']}, {mistake['trees']}); it is {kind}:",
        "",
        "```text",
        mistake["sentence"],
        f"wanted   {mistake['wanted']}",
        f"written  {mistake['written']}",
        *(f"missing  {each}" for each in mistake["missing"]),
        *(f"wrong    {each}" for each in mistake["wrong"]),
        "```",
    ]


def _differences(findings: Findings) -> list[str]:
    known = {row["trees"]: row for row in findings["parsers"] if row["diverged"] is None}
    shares = [f"{100 * row['known'] / row['sentences']:.0f} % among the {row['num_trees']:,}" for row in known.values()]
    seen = f" Of the test's trees, words aside, {' and '.join(shares)} to train on." if shares else ""
    return [
        paragraph(f"""
            What differs from the paper, besides size: the sentences and their trees are written together, from a fixed
            set of constructions, so they are far more regular than a newspaper's; our figures stand beside the
            paper's for their order, not for their height.{seen} The paper's large setting adds trees that
            other parsers wrote, mistakes included; ours are all right. Its recurrent row is an LSTM of three layers;
            and of its Transformer it chose dropout, learning rate and beam on a development set.
        """)
    ]


def _asked(rows: list[dict[str, Any]]) -> int:
    return max((row["sentences"] for row in rows if row["diverged"] is None), default=0)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")
