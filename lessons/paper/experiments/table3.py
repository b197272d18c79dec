"""Table 3: the variations on the base model, counted at the paper's size and trained in miniature."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from minitransformer.costs import num_parameters
from minitransformer.models import TransformerConfig
from minitransformer.plots.page import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Page
from study.charts import draw_intervals
from study.comparison import compare, learned, scores, shown, spread, verdict
from study.experiment import Context, Findings
from study.markdown import bullets, paragraph, picture, table
from study.trials.bootstrap import Interval
from study.trials.translating import Translating
from study.trials.trial import Trial

from ..published import Variation
from ..task import Task

VOCAB_SIZE = 37_000
"""§5.1: "a shared source-target vocabulary of about 37000 tokens"."""


@dataclass(frozen=True)
class Row:
    """A row of table 3: the difference from the base model, and the paper's results.

    `overrides` are fields of `TransformerConfig`, `training` those of `TrainingSettings`.
    """

    group: str
    name: str
    published: Variation
    overrides: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def config(self, vocab_size: int = VOCAB_SIZE) -> TransformerConfig:
        """The row's configuration at the paper's size."""
        return TransformerConfig.base(vocab_size, **self.overrides)


TABLE_3 = [
    Row("base", "base", Variation(4.92, 25.8, 65)),
    Row("A", "1 head", Variation(5.29, 24.9), {"num_heads": 1}),
    Row("A", "4 heads", Variation(5.00, 25.5), {"num_heads": 4}),
    Row("A", "16 heads", Variation(4.91, 25.8), {"num_heads": 16}),
    Row("A", "32 heads", Variation(5.01, 25.4), {"num_heads": 32}),
    Row("B", "d_k 16", Variation(5.16, 25.1, 58), {"d_k": 16}),
    Row("B", "d_k 32", Variation(5.01, 25.4, 60), {"d_k": 32}),
    Row("C", "2 layers", Variation(6.11, 23.7, 36), {"num_layers": 2}),
    Row("C", "4 layers", Variation(5.19, 25.3, 50), {"num_layers": 4}),
    Row("C", "8 layers", Variation(4.88, 25.5, 80), {"num_layers": 8}),
    Row("C", "d_model 256", Variation(5.75, 24.5, 28), {"d_model": 256, "d_k": 32, "d_v": 32}),
    Row("C", "d_model 1024", Variation(4.66, 26.0, 168), {"d_model": 1024, "d_k": 128, "d_v": 128}),
    Row("C", "d_ff 1024", Variation(5.12, 25.4, 53), {"d_ff": 1024}),
    Row("C", "d_ff 4096", Variation(4.75, 26.2, 90), {"d_ff": 4096}),
    Row("D", "dropout 0.0", Variation(5.77, 24.6), {"dropout": 0.0}),
    Row("D", "dropout 0.2", Variation(4.95, 25.5), {"dropout": 0.2}),
    Row("D", "smoothing 0.0", Variation(4.67, 25.3), training={"label_smoothing": 0.0}),
    Row("D", "smoothing 0.2", Variation(5.47, 25.7), training={"label_smoothing": 0.2}),
    Row("E", "learned positions", Variation(4.92, 25.7), {"positions": "learned"}),
    Row(
        "big",
        "big",
        Variation(4.33, 26.4, 213),
        {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
        {"steps": 300_000},
    ),
]


BASE = TABLE_3[0]


def fitting_vocabulary(row: Row) -> tuple[int, int]:
    """The smallest and the largest vocabulary with which the row has as many million parameters as the paper prints.

    Raises `ValueError` for a row for which the paper prints no number.
    """
    printed = row.published.parameters
    if printed is None:
        raise ValueError(f"the paper prints no number of parameters for {row.name}")
    config = row.config()
    rest = num_parameters(config) - config.vocab_size * config.d_model
    low, high = (((printed + half) * 10**6 - rest) / config.d_model for half in (-0.5, 0.5))
    return math.ceil(low), math.floor(high)


NAME, TITLE, MINUTES, ALONE = "table3", "Table 3: variations on the Transformer", 22.5, 22.5

OPERATIONS = 5.4e12
"""The operations of the base's training at scale 1, some 1,000 steps; all other rows take as many steps."""

SHORTENED = {"d_model": 8, "d_ff": 8, "d_k": 8, "d_v": 8, "num_layers": 2}
"""The paper's sizes divided by the miniature's; the sizes of all rows are divided by these."""

SHORT, LONG = (1, 16), (24, 160)
"""Tokens on each side of the pairs that length extrapolation trains on, and of the longer ones in its test."""

SEEDS = (1, 2)
"""The seeds of the base's other trainings, which show the effect of the seed alone."""

LAST, AVERAGED = Translating("last"), Translating("averaged", averaged=True)  # "no checkpoint averaging", §6.2
LENGTHS = (Translating("short", lengths=SHORT), Translating("long", lengths=LONG))
COLOURS = {"A": BLUE, "B": SKY, "C": ORANGE, "D": VERMILION, "E": GREEN, "big": PURPLE}


def miniature(row: Row, task: Task) -> TransformerConfig:
    """A row's model in miniature: every size is divided by the same factor as the base's.

    Paper: big has a dropout of 0.3 and three times as many steps. With so much dropout and so few steps as here it
    would not learn to translate, so it gets the base's dropout.
    """
    sizes = {name: value // SHORTENED[name] if name in SHORTENED else value for name, value in row.overrides.items()}
    if row.name == "big":
        del sizes["dropout"]
    return task.transformer(**sizes)


def trial(row: Row, task: Task, scale: float, seed: int = 0) -> Trial:
    """The training of a row."""
    steps = scale * task.steps(OPERATIONS, task.transformer())
    settings = task.training(steps, seed=seed, **{k: v for k, v in row.training.items() if k != "steps"})
    evaluations = (LAST, AVERAGED) if row is BASE and not seed else (LAST,)
    name = f"table3 {row.name}" + f", seed {seed}" * bool(seed)
    return Trial(name, task.translation(), miniature(row, task), settings, evaluations)


def extrapolation(positions: str, task: Task, scale: float) -> Trial:
    """The base, or learned positions, trained on short sentences only, and tested on short and on long ones."""
    steps = scale * task.steps(OPERATIONS, task.transformer())
    text = replace(task.translation(), max_length=SHORT[1])
    config = task.transformer(positions=positions)
    return Trial(f"table3 lengths {positions}", text, config, task.training(steps), LENGTHS)


def trials(task: Task, scale: float) -> Sequence[Trial]:
    """Return a trial of every row, of the base's other seeds, and two of length extrapolation."""
    rows = [trial(row, task, scale) for row in TABLE_3]
    seeds = [trial(BASE, task, scale, seed) for seed in SEEDS]
    return [*rows, *seeds, *(extrapolation(positions, task, scale) for positions in ("sinusoidal", "learned"))]


def find(context: Context[Task]) -> Findings:
    """The parameters at the paper's size; in miniature the scores and the differences from the base."""
    task, runner = context.task, context.runner
    results = {row.name: runner.result(trial(row, task, context.scale)) for row in TABLE_3}
    base = results[BASE.name]
    lengths = {p: runner.result(extrapolation(p, task, context.scale)) for p in ("sinusoidal", "learned")}
    asked = [each.name for each in LENGTHS]
    return {
        "task": task.name,
        "divisors": SHORTENED,
        "parameters": {row.name: _parameters(row) for row in TABLE_3},
        "miniature": {row.name: _sizes(miniature(row, task)) for row in TABLE_3},
        "scores": {name: scores(result) for name, result in results.items()},
        "seeds": [scores(runner.result(trial(BASE, task, context.scale, seed))) for seed in SEEDS],
        "curve": base.curve,
        "differences": {
            name: {metric: compare(result, base, metric) for metric in ("bleu", "perplexity")}
            for name, result in results.items()
            if name != BASE.name
        },
        "lengths": {
            "trained": SHORT,
            "asked": LONG,
            "scores": {p: {n: scores(r, evaluation=n) for n in asked} for p, r in lengths.items()},
            "differences": {n: compare(lengths["sinusoidal"], lengths["learned"], "bleu", (n, n)) for n in asked},
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
    """Draw each row's BLEU and perplexity minus the base's."""
    rows = [row for row in TABLE_3 if row is not BASE and findings["differences"][row.name]["bleu"]]
    page = Page(7.4, 1.0 + 0.24 * len(rows), layout="constrained")
    left, right = page.figure.subplots(1, 2, sharey=True)
    for axes, metric, name in ((left, "bleu", "BLEU"), (right, "perplexity", "perplexity")):
        names = [f"({row.group}) {row.name}" if row.group != "big" else "big" for row in rows]
        gaps = [Interval(**findings["differences"][row.name][metric]) for row in rows]
        colours = [COLOURS[row.group] for row in rows]
        draw_intervals(axes, dict(zip(names, gaps, strict=True)), colours, f"{name} minus the base's")
        axes.axvline(0, color=GREY, lw=1)
    right.invert_yaxis()  # `draw_intervals` inverted the shared axis twice
    page.save(folder / f"{NAME}-differences.png")


CLAIMS = [
    ("(A) one head is worse than eight", "1 head", "bleu", -1),
    ("(A) too many heads are worse than eight", "32 heads", "bleu", -1),
    ("(A) sixteen heads have a perplexity no worse than eight's", "16 heads", "perplexity", -1),
    ("(B) a smaller d_k hurts", "d_k 16", "bleu", -1),
    ("(C) fewer layers are worse", "2 layers", "bleu", -1),
    ("(C) more layers have a better perplexity", "8 layers", "perplexity", -1),
    ("(C) more layers have a worse BLEU", "8 layers", "bleu", -1),
    ("(C) a narrower model is worse", "d_model 256", "bleu", -1),
    ("(C) a wider model is better", "d_model 1024", "bleu", 1),
    ("(C) a wider feed-forward is better", "d_ff 4096", "bleu", 1),
    ("(D) without dropout it is worse", "dropout 0.0", "bleu", -1),
    ("(D) without label smoothing perplexity is better", "smoothing 0.0", "perplexity", -1),
    ("(D) without label smoothing BLEU is worse", "smoothing 0.0", "bleu", -1),
    ("big is better", "big", "bleu", 1),
]
"""The claims of the paper's table about each group: the claim, its row, the metric, and the sign of the difference."""


def report(findings: Findings) -> list[str]:
    """Report parameters, scores, and whether each claim holds here."""
    return [
        *_parameter_blocks(findings["parameters"]),
        _training_paragraph(findings),
        _score_table(findings),
        picture("table3-differences", "BLEU and perplexity of each row minus the base's, with intervals"),
        *_claim_blocks(findings),
        *_length_blocks(findings["lengths"]),
    ]


def _parameter_blocks(rows: dict[str, dict[str, Any]]) -> list[str]:
    printed = {name: row for name, row in rows.items() if row["printed"] is not None}
    span = {name: f"{row['vocabulary'][0]:,} to {row['vocabulary'][1]:,}" for name, row in printed.items()}
    lows, highs = zip(*(row["vocabulary"] for name, row in printed.items() if name != "big"), strict=True)
    low, high = max(lows), min(highs)
    fits = "No one vocabulary gives all the printed numbers"
    if low <= high:
        fits = f"One vocabulary of {low:,} to {high:,} tokens gives every printed number but big's, which asks for "
        fits += span["big"]
    cells = [[name, f"{r['printed']}", f"{r['counted'] / 1e6:.1f}", span[name]] for name, r in printed.items()]
    return [
        paragraph("""
            **Parameters, to the number**, in millions: the paper's, and ours counted from the configuration with the
            "about 37000 tokens" of §5.1 and one table for source, target and output (§3.4); with biases in attention's
            projections too, which the paper's formulas leave out. The last column is the vocabulary with which the
            count, rounded, is the printed one.
        """),
        table(["row", "printed", "counted", "vocabulary that fits"], cells),
        f"{fits}. The paper does not say what its vocabularies were, to the token.",
    ]


def _training_paragraph(findings: Findings) -> str:
    base, curve = findings["scores"][BASE.name], findings["curve"]
    divisors = ", ".join(f"{name} {number}" for name, number in findings["divisors"].items())
    falling = ""
    if len(curve) > 1 and curve[-1]["perplexity"] < curve[-2]["perplexity"]:
        before, last = curve[-2:]
        falling = f"""
            None is trained to its end: over the last {last["step"] - before["step"]:,} steps the base's validation
            perplexity fell from {before["perplexity"]:.3f} to {last["perplexity"]:.3f}. So a row shows how
            far it gets in so many steps, and anything that slows learning down (dropout, smoothing) costs more here
            than in a long run.
        """
    return paragraph(f"""
        **In miniature.** Every size is divided by the same number ({divisors}); every row is trained on
        {base["pairs"]:,} pairs for {base["steps"]:,} steps, which is {base["epochs"]:.1f} times over, and tested with
        its last checkpoint, a beam of 4 and α = 0.6, as in §6.2. Big has the base's dropout and takes no more steps
        than the others (in the paper 0.3, and three times as many). Perplexities are per token. *Minus base's*: the
        difference with its 95 % interval, both models on the same bootstrap samples of the test sentences; **bold**
        where the interval leaves out zero. {falling}
    """)


def _score_table(findings: Findings) -> str:
    head = ["", "row", "paper: ppl", "BLEU", "ours: perplexity", "minus base's", "BLEU", "minus base's", "parameters"]
    cells = []
    for row in TABLE_3:
        found, gaps = findings["scores"][row.name], findings["differences"].get(row.name, {})
        ours = [
            text
            for metric, digits in (("perplexity", 3), ("bleu", 1))
            for text in (_value(found, metric, digits), _gap(gaps.get(metric), digits))
        ]
        printed = [f"{row.published.perplexity:.2f}", f"{row.published.bleu:.1f}"]
        name = row.name + _changed_sizes(findings["miniature"], row.name)
        cells.append([row.group if row.group in "ABCDE" else "", name, *printed, *ours, f"{found['parameters']:,}"])
    return table(head, cells)


def _changed_sizes(rows: dict[str, dict[str, int]], name: str) -> str:
    """The miniature's sizes in place of those that the row names; for the base all sizes."""
    base, row = rows[BASE.name], rows[name]
    shown = [f"{size} {row[size]}" for size in row if row[size] != base[size] or name == BASE.name]
    return f" ({', '.join(shown)})" if shown else ""


def _value(found: dict[str, Any], metric: str, digits: int) -> str:
    return f"{found[metric]['value']:.{digits}f}" if metric in found else found["diverged"]


def _gap(found: dict[str, float] | None, digits: int) -> str:
    if found is None:
        return ""
    gap = Interval(**found)
    text = gap.text(digits, sign=True)
    return f"**{text}**" if gap.excludes_zero else text


def _claim_blocks(findings: Findings) -> list[str]:
    """The claims: those shown here, those contradicted, and those within the variation of test sentences or seeds."""
    bases = [findings["scores"][BASE.name], *findings["seeds"]]
    gap = findings["differences"]["learned positions"]["bleu"]
    learned_ones = verdict("The base with learned positions", "with sinusoids", "bleu", gap, spread(bases, "bleu"))
    positions = f"(E) {learned_ones} (The paper: 25.7 and 25.8.)"
    of_bleu, of_perplexity = spread(bases, "bleu"), spread(bases, "perplexity")
    if of_bleu is None or of_perplexity is None:
        return ["A base diverged: no row can be compared with it.", positions]
    bleu, perplexity = (
        ", ".join(f"{each[metric]['value']:.{digits}f}" for each in bases)
        for metric, digits in (("bleu", 1), ("perplexity", 3))
    )
    explained = paragraph(f"""
        The claims of the paper's table, and whether they hold here, at this size and length of training. The base was
        trained with {len(bases)} seeds, which came to {bleu} BLEU and {perplexity} perplexity: a difference counts as
        shown if its interval leaves out zero **and** it is larger than theirs ({of_bleu:.1f} and {of_perplexity:.3f}).
        Each other row is one training run.
    """)
    of_seeds = {"bleu": of_bleu, "perplexity": of_perplexity}
    return [explained, bullets(_judged(findings, *claim, of_seeds) for claim in CLAIMS), positions]


def _judged(findings: Findings, claim: str, row: str, metric: str, sign: int, of_seeds: dict[str, float]) -> str:
    found, score = findings["differences"][row][metric], findings["scores"][row]
    if found is None or not learned(score):
        why = score["diverged"] or f"did not learn to translate in {score['steps']:,} steps"
        return f"{claim}: not to be compared, {row}: {why}."
    gap = Interval(**found)
    digits, name = (1, "BLEU") if metric == "bleu" else (3, "perplexity")
    state = "**not told apart** from chance here"
    if gap.excludes_zero and abs(gap.value) > of_seeds[metric]:
        state = "**shown**" if gap.value * sign > 0 else "**the other way round** here"
    elif gap.excludes_zero:
        state = "**not told apart** from the effect of another seed"
    return f"{claim}: {state}; {row} {gap.text(digits, sign=True)} {name}."


def _length_blocks(lengths: dict[str, Any]) -> list[str]:
    short, long, rows = lengths["trained"], lengths["asked"], lengths["scores"]
    diverged = [positions for positions, found in rows.items() if found["short"]["diverged"]]
    if diverged:
        return [f"**Length extrapolation**: the training run with {' and '.join(diverged)} positions diverged."]
    cells = [
        [name, *(shown(found[which], "bleu") for which in found), shown(found["long"], "perplexity", 2)]
        for name, found in rows.items()
    ]
    some = rows["sinusoidal"]
    head = ["positions", f"BLEU, up to {short[1]} tokens", f"BLEU, {long[0]} tokens and more", "perplexity of those"]
    return [
        paragraph(f"""
            **Length extrapolation** (§3.5: sinusoids "may allow the model to extrapolate to sequence lengths longer
            than the ones encountered during training"). Two bases, trained on the {some["short"]["pairs"]:,} pairs of
            at most {short[1]} tokens on either side ({some["short"]["epochs"]:.0f} times over), are tested on
            {some["short"]["sentences"]} such pairs of the test set and {some["long"]["sentences"]} with {long[0]}
            tokens and more on both sides. Each was trained once, so the intervals leave out the effect of another
            seed:
        """),
        table(head, cells),
        bullets(
            f"{which.capitalize()}: {verdict('Sinusoidal', 'learned', 'bleu', gap)}"
            for which, gap in lengths["differences"].items()
        ),
        "Learned vectors of positions that no sentence reached are still their initial noise.",
    ]
