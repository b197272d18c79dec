"""Table 2: the models before the Transformer and two sizes of it, trained at equal cost on two language pairs."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from minitransformer.models import ConvolutionalConfig, RecurrentConfig, TranslationConfig
from minitransformer.plots.page import BLUE, GREEN, ORANGE, SKY, VERMILION, Page
from study.charts import finish
from study.comparison import compare, scores, shown, verdict
from study.experiment import Context, Findings
from study.markdown import bullets, paragraph, picture, scientific, table
from study.trials.translating import Translating
from study.trials.trial import Trial

from ..published import RUNS, TABLE_2, training_costs
from ..task import Task

NAME, TITLE, MINUTES, ALONE = "table2", "Table 2: translation, at equal cost", 16.5, 16.5

OPERATIONS = 12e12
"""The operations of each training at scale 1: some 900 steps of the larger Transformer, 3 to 4 minutes of one core."""

TARGETS = {"de": "English→German", "fr": "English→French"}
SMALLER, LARGER = "Transformer, d_model 64", "Transformer, d_model 128"
COLOURS = {"RNN": VERMILION, "RNN + attention": ORANGE, "ConvS2S, small": GREEN, SMALLER: SKY, LARGER: BLUE}
EVALUATION = Translating(averaged=True)  # as in §6.1: the last five checkpoints, beam 4, α = 0.6


def models(task: Task) -> dict[str, TranslationConfig]:
    """The models, by name. The RNN has LSTM cells, like those in the recurrent rows of the paper's table."""
    text = task.text
    shared: dict[str, Any] = {
        "vocab_size": text.vocab_size,
        "max_length": text.max_length,
        "dropout": task.transformer().dropout,
    }
    return {
        "RNN": RecurrentConfig(d_model=192, attention=False, **shared),
        "RNN + attention": RecurrentConfig(d_model=192, **shared),
        "ConvS2S, small": ConvolutionalConfig(d_model=128, num_layers=3, **shared),
        SMALLER: task.transformer(),
        LARGER: task.transformer(d_model=128, d_ff=512, num_layers=2),
    }


def translator(task: Task, scale: float, target: str = "de", model: str = LARGER) -> Trial:
    """The trial of one model."""
    config = models(task)[model]
    settings = task.training(scale * task.steps(OPERATIONS, config))
    return Trial(f"table2 {model} {target}", task.translation(target), config, settings, (EVALUATION,))


def trials(task: Task, scale: float) -> Sequence[Trial]:
    """Return a trial of each model for each language pair."""
    return [translator(task, scale, target, model) for target in TARGETS for model in models(task)]


def find(context: Context[Task]) -> Findings:
    """The scores, and the differences of the Transformers from the other models and from each other."""
    task, runner = context.task, context.runner
    found: dict[str, Any] = {
        "task": task.name,
        "beam": EVALUATION.beam,
        "operations": OPERATIONS * context.scale,
        "warmup": translator(task, context.scale).settings.warmup_steps,
        "rates": {name: _peak(translator(task, context.scale, model=name)) for name in models(task)},
        "pairs": {},
    }
    for target in TARGETS:
        results = {m: runner.result(translator(task, context.scale, target, m)) for m in models(task)}
        found["pairs"][target] = {
            "models": {name: scores(result) for name, result in results.items()},
            "curves": {name: result.curve for name, result in results.items()},
            "differences": {
                ours: {theirs: compare(results[ours], results[theirs], "bleu") for theirs in others}
                for ours, others in _rivals(results).items()
            },
        }
    found["costs"] = {name: {"billed": cost.billed, "needed": cost.needed} for name, cost in training_costs().items()}
    return found


def _rivals(names: Collection[str]) -> dict[str, list[str]]:
    """The models that a Transformer is compared with: all that come before it."""
    return {ours: list(names)[: list(names).index(ours)] for ours in (LARGER, SMALLER)}


def _peak(trial: Trial) -> float:
    return trial.settings.schedule(trial.config.d_model).peak_lr


def draw(findings: Findings, folder: Path) -> None:
    """Draw validation perplexity against operations, for each language pair."""
    page = Page(7.4, 3.3, layout="constrained")
    both = page.figure.subplots(1, 2, sharey=True)
    for axes, (target, pair) in zip(both, findings["pairs"].items(), strict=True):
        for name, curve in pair["curves"].items():
            whole = pair["models"][name]
            operations = [whole["flops"] / 1e12 * point["step"] / whole["steps"] for point in curve]
            axes.plot(operations, [p["perplexity"] for p in curve], color=COLOURS[name], lw=1.6, label=name)
        axes.set_yscale("log")
        axes.set_title(TARGETS[target], fontsize=9.5)
        finish(axes, "training, 10¹² operations", "validation perplexity" if axes is both[0] else "")
    both[1].legend(frameon=False, fontsize=8)
    page.save(folder / f"{NAME}-curves.png")


def report(findings: Findings) -> list[str]:
    """Report our results, the paper's, and the origin of the paper's FLOPs."""
    pairs = findings["pairs"]
    rows = [row for pair in pairs.values() for row in pair["models"].values() if row["diverged"] is None]
    flops, epochs = ([row[name] for row in rows] for name in ("flops", "epochs"))
    spent = dict.fromkeys(map(scientific, (min(flops), max(flops)))) if rows else {}  # one if both print the same
    rates = ", ".join(f"{name} {rate:.2g}" for name, rate in findings["rates"].items())
    if rows:
        blocks = [
            paragraph(f"""
                Every model was trained for as many steps as it can take for {scientific(findings["operations"])}
                operations: of the matrix products, those of the forward and twice as many of the backward, on full
                batches. Counted on their own batches, padding included, it was {" to ".join(spent)}, and
                {min(epochs):.1f} to {max(epochs):.1f} times over the {rows[0]["pairs"]:,} pairs. They were tested
                with the mean of five checkpoints of the last fifth of the training, a beam of {findings["beam"]} and
                α = 0.6 (§6.1). In brackets: the 95 % interval of 1,000 bootstrap samples of the test sentences; each
                model was trained once, so the interval leaves out the effect of another seed, which table 3 shows for
                its base. RNN is an LSTM of one layer. The learning rate is the paper's schedule, made for the
                Transformer and tuned for none of the others; its peaks: {rates}. For the same operations the larger
                Transformer takes the fewest steps, of which {findings["warmup"]:,} are warm-up.
            """)
        ]
    else:
        blocks = ["Every training diverged."]
    for target, title in TARGETS.items():
        differences = pairs[target]["differences"].items()
        said = (verdict(ours, theirs, "bleu", gap) for ours, gaps in differences for theirs, gap in gaps.items())
        blocks += [f"**{title}**", _ours(pairs[target]["models"]), bullets(said)]
        blocks += _still_falling(pairs[target]["curves"])
    return [
        *blocks,
        picture(f"{NAME}-curves", "Validation perplexity against operations, for five models and two pairs"),
        "The paper's own table (newstest2014; cost in FLOPs):",
        _published(),
        *_costs(findings["costs"]),
    ]


def _ours(rows: dict[str, dict[str, Any]]) -> str:
    head = ["model", "BLEU", "perplexity", "exactly right", "parameters", "steps", "operations", "seconds"]
    cells = []
    for name, row in rows.items():
        right = f"{100 * row['exactly_right'] / row['sentences']:.1f} %" if "bleu" in row else row["diverged"]
        cells.append(
            [
                name,
                shown(row, "bleu"),
                shown(row, "perplexity", 3),
                right,
                f"{row['parameters']:,}",
                f"{row['steps']:,}",
                scientific(row["flops"]),
                f"{row['seconds']:,.0f}",
            ]
        )
    return table(head, cells)


def _still_falling(curves: dict[str, list[dict[str, float]]]) -> list[str]:
    """A sentence on how fast each loss still fell at the end, since more steps would not help all models equally."""
    falls = {name: curve[-2:] for name, curve in curves.items() if len(curve) > 1}
    told = "; ".join(
        f"{name} from {before['perplexity']:.3f} to {last['perplexity']:.3f} in {last['step'] - before['step']:,} steps"
        for name, (before, last) in falls.items()
    )
    begins = "How close each run was to its end: in its last steps validation perplexity went, for"
    return [f"{begins} {told}."] if told else []


def _published() -> str:
    def cell(value: float | None, cost: bool = False) -> str:
        return "" if value is None else scientific(value) if cost else f"{value}"

    head = ["model", "BLEU EN-DE", "BLEU EN-FR", "FLOPs EN-DE", "FLOPs EN-FR"]
    rows = [
        [row.model, cell(row.bleu_de), cell(row.bleu_fr), cell(row.flops_de, True), cell(row.flops_fr, True)]
        for row in TABLE_2
    ]
    return table(head, rows)


def _costs(costs: dict[str, dict[str, float]]) -> list[str]:
    head = ["", "the paper's run", "billed as in table 2", "needed by the arithmetic", "needed ÷ billed"]
    rows = [
        [
            name,
            f"{run.steps:,} × {run.seconds_per_step} s × {run.gpus} GPUs",
            scientific(costs[name]["billed"]),
            scientific(costs[name]["needed"]),
            f"{100 * costs[name]['needed'] / costs[name]['billed']:.0f} %",
        ]
        for name, run in RUNS.items()
    ]
    return [
        paragraph("""
            The origin of 3.3 · 10¹⁸ and 2.3 · 10¹⁹: the paper multiplies training time, number of GPUs and the
            sustained rate of a P100, 9.5 · 10¹² operations a second (footnote 5). We repeat that from its steps and
            seconds a step, and count beside it the operations of the matrix products: 25,000 tokens a side and step,
            three times the forward.
        """),
        table(head, rows),
        paragraph(f"""
            The rest may have gone to other operations than matrix products, to padding, and to waiting for memory and
            for each other: the paper does not say. Base's row of the paper agrees with its own steps and seconds
            ({scientific(costs["base"]["billed"])}, printed 3.3 · 10¹⁸ from 12 hours, of which steps take
            {RUNS["base"].hours:.1f}); big's likewise ({scientific(costs["big"]["billed"])}, printed 2.3 · 10¹⁹ from
            3.5 days).
        """),
    ]
