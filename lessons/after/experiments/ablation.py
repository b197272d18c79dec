"""Single parts of a GPT, exchanged at equal cost: norms, activations, positions, kinds of attention."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from minitransformer.costs import flops_per_token
from minitransformer.data.text import TextDataset
from minitransformer.models import IGNORED, GPTConfig
from minitransformer.ops.linear_attention import CHUNK
from minitransformer.plots.page import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, Page
from minitransformer.training import TrainingSettings
from minitransformer.training.checkpoint import load_checkpoint
from study.charts import draw_intervals, finish, plain_logarithm
from study.experiment import Context, Findings
from study.markdown import bullets, listed, paragraph, picture, scientific, table
from study.trials.bootstrap import Interval
from study.trials.likelihood import question, target_losses
from study.trials.run import lasting
from study.trials.seeds import loss_difference, loss_of, loss_rise
from study.trials.text_models import TextLoss, TextRows, TextTrial
from study.trials.trial import Trial, TrialResult

from ..predictions import Outcome, prediction_blocks, predictions_of
from ..task import VOCAB_SIZE, Texts

NAME, TITLE, MINUTES, ALONE = "ablation", "Single parts, exchanged at equal cost", 36.0, 36.0

OPERATIONS = 4.0e12
"""The operations of each training at scale 1: some 1,100 steps of the base, two minutes of one core."""

LENGTH, LONGER = 64, 256
"""Tokens of a row in training, and of the rows on which length extrapolation is tested."""

SENTENCES = 160_000
SEEDS = (0, 1, 2)
WITHIN, LATE, BEYOND = "within", "late", "beyond"
EVALUATIONS = (
    TextLoss(WITHIN, length=LENGTH, averaged=True),
    TextLoss(LATE, length=LENGTH, skip=LENGTH // 2, averaged=True),
    TextLoss(BEYOND, length=LONGER, skip=LENGTH, averaged=True),
)
BLOCK = 32
"""Places in a row over which the loss is averaged in the picture of length extrapolation."""

BASE = GPTConfig(
    VOCAB_SIZE,
    d_model=64,
    num_heads=4,
    d_ff=256,
    num_layers=4,
    max_length=LONGER,
    dropout=0.0,
    attention_dropout=0.0,
    activation="gelu",
    bos_id=2,
    eos_id=2,
)


@dataclass(frozen=True)
class Variant:
    """The base with one part exchanged: fields of its configuration."""

    group: str
    name: str
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> GPTConfig:
        """The configuration."""
        return replace(BASE, **self.overrides)


def equal_width() -> int:
    """The width of a gated network with which the model has as many parameters as the base, as nearly as it can."""
    least, next_one = (replace(BASE, gated=True, activation="silu", d_ff=d_ff).num_parameters for d_ff in (1, 2))
    return 1 + round((BASE.num_parameters - least) / (next_one - least))


BASE_NAME, SCALED, NONE = "base", "scaled sinusoids", "no positions"
VARIANTS = [
    Variant("", BASE_NAME),
    Variant("norm", "post-norm", {"norm_first": False}),
    Variant("norm", "RMSNorm", {"norm": "rmsnorm"}),
    Variant("activation", "ReLU", {"activation": "relu"}),
    Variant("activation", "SwiGLU", {"activation": "silu", "gated": True, "d_ff": equal_width()}),
    Variant("positions", NONE, {"positions": "none"}),
    Variant("positions", "sinusoids", {"positions": "sinusoidal"}),
    Variant("positions", SCALED, {"positions": "sinusoidal", "embedding_scale": 1 / BASE.init_std}),
    Variant("positions", "rotary", {"positions": "rotary"}),
    Variant("positions", "ALiBi", {"positions": "alibi"}),
    Variant("positions", "relative bias", {"positions": "relative"}),
    Variant("attention", "grouped", {"num_kv_heads": 1}),
    Variant("attention", "linear", {"attention": "linear"}),
]
BY_NAME = {variant.name: variant for variant in VARIANTS}
OF_BASE = "pre-norm, LayerNorm, GELU, learned positions, full attention"
LEARNED = "learned"
"""The name of the base in the comparison of positions."""

COLOURS = {"norm": BLUE, "activation": GREEN, "positions": ORANGE, "attention": VERMILION}
POSITIONS = {
    LEARNED: (BASE_NAME, BLUE),
    "none": (NONE, GREY),
    "sinusoids": ("sinusoids", SKY),
    SCALED: (SCALED, INK),
    "rotary": ("rotary", VERMILION),
    "ALiBi": ("ALiBi", GREEN),
    "relative bias": ("relative bias", PURPLE),
}
"""The positions, each with the name of its variant and its colour."""


EQUAL = 0.01
"""Nats within which two losses count as equal: a prediction of no difference is right if the interval is within."""

HIGHEST = 100
"""The highest perplexity that the picture of length extrapolation shows."""

LINEAR = 0.1
"""Nats up to which the axis of differences is linear; beyond it is logarithmic."""


def trial(variant: Variant, seed: int, task: Texts, scale: float) -> TextTrial:
    """The training of a variant: as many steps as it can take for `OPERATIONS`."""
    settings = TrainingSettings(
        tokens_per_batch=2048,
        warmup_steps=150,
        peak_lr=3e-3,
        label_smoothing=0.0,
        clip_norm=1.0,
        threads=1,
        seed=seed,
    )
    steps = scale * OPERATIONS / (settings.tokens_per_batch * flops_per_token(variant.config, LENGTH).training)
    name, text = f"ablation {variant.name}, seed {seed}", task.english(SENTENCES)
    return TextTrial(name, text, variant.config, lasting(settings, steps), EVALUATIONS, LENGTH)


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """Return a trial of every variant with every seed."""
    return [trial(variant, seed, task, scale) for variant in VARIANTS for seed in SEEDS]


def find(context: Context[Texts]) -> Findings:
    """The losses of all variants and their differences from the base; of positions, the loss at every place."""
    task, scale, runner = context.task, context.scale, context.runner
    results = {v.name: [runner.result(trial(v, seed, task, scale)) for seed in SEEDS] for v in VARIANTS}
    places = {}
    for name, (variant, _) in POSITIONS.items():
        if results[variant][0].diverged is None:
            first = trial(BY_NAME[variant], SEEDS[0], task, scale)
            places[name] = loss_by_place(runner.model_path(first), runner.data(first.text))
    return {
        "predictions": predictions_of(NAME),
        "operations": OPERATIONS * scale,
        "variants": {name: _summary(each) for name, each in results.items()},
        "differences": {
            name: difference(each, results[BASE_NAME]) for name, each in results.items() if name != BASE_NAME
        },
        "activations": difference(results["SwiGLU"], results["ReLU"]),
        "sinusoids": {
            name: difference(results[name], results[NONE])
            for name in ("sinusoids", SCALED)
            if {name, NONE} <= results.keys()
        },
        "positions": _rotary_and_the_best({name: results[variant] for name, (variant, _) in POSITIONS.items()}),
        "stretched": {name: stretch(results[variant]) for name, (variant, _) in POSITIONS.items()},
        "places": places,
    }


def _summary(results: Sequence[TrialResult]) -> dict[str, Any]:
    """A variant's size and cost, and for each of its seeds the loss in each reading."""
    one = results[0]
    whole = [each for each in results if each.diverged is None]
    return {
        "parameters": one.parameters,
        "steps": one.steps,
        "seconds": float(np.mean([each.seconds for each in results])),
        "losses": {r.name: [loss_of(each.answers(r.name).likelihood) for each in whole] for r in EVALUATIONS},
    }


def difference(ours: Sequence[TrialResult], theirs: Sequence[TrialResult]) -> dict[str, float] | None:
    """The mean loss of ours minus that of theirs within the length of training; None if a training diverged."""
    if any(each.diverged for each in (*ours, *theirs)):
        return None
    return asdict(loss_difference(*([e.answers(WITHIN).likelihood for e in each] for each in (ours, theirs))))


def stretch(results: Sequence[TrialResult]) -> dict[str, float] | None:
    """Return the rise of the mean loss from within the length of training to beyond it; None if a training diverged."""
    if any(each.diverged for each in results):
        return None
    return asdict(loss_rise(*([each.answers(which).likelihood for each in results] for which in (LATE, BEYOND))))


def _rotary_and_the_best(results: Mapping[str, Sequence[TrialResult]]) -> dict[str, Any] | None:
    """The other positions with the least loss, and by how much rotary ones differ; None if these diverged."""
    means = {
        name: float(np.mean([loss_of(e.answers(WITHIN).likelihood) for e in each]))
        for name, each in results.items()
        if name != "rotary" and not any(e.diverged for e in each)
    }
    if not means or any(each.diverged for each in results["rotary"]):
        return None
    best = min(means, key=lambda name: means[name])
    return {"best other": best, "difference": difference(results["rotary"], results[best])}


def loss_by_place(path: Path, data: Any, length: int = LONGER) -> list[float]:
    """The mean loss of a kept model on the test set by the place of a token in its row, in blocks of `BLOCK` places."""
    model = load_checkpoint(path, with_optimizer=False).model()
    lines = [data.tokenizer.encode(line) for line in data.choice.lines("test")]
    rows = TextRows(TextDataset.from_lines(lines), length).batches(8 * length, None, model.config)
    losses, counts = np.zeros(length), np.zeros(length)
    for batch in rows.epoch(0):
        arguments, options, targets = question(model, batch)
        losses += target_losses(model.forward(*arguments, **options)[0], targets, model).sum(0)
        counts += (targets != IGNORED).sum(0)
    return (losses.reshape(-1, BLOCK).sum(1) / counts.reshape(-1, BLOCK).sum(1)).tolist()


# --- The report -------------------------------------------------------------------------------------------------


def stretched(findings: Findings, name: str) -> Interval | None:
    """The perplexity of these positions beyond the length of training, over that within it."""
    found = findings["stretched"][name]
    return None if found is None else Interval(**{key: float(np.exp(nats)) for key, nats in found.items()})


def gap_of(findings: Findings, name: str) -> Interval | None:
    """A variant's loss minus the base's, with its interval."""
    found = findings["differences"][name]
    return None if found is None else Interval(**found)


def draw(findings: Findings, folder: Path) -> None:
    """Draw the differences from the base, and the loss by place, as `ablation-….png`."""
    gaps = {v.name: gap for v in VARIANTS[1:] if (gap := gap_of(findings, v.name)) is not None}
    if gaps:
        page = Page(5.6, 0.9 + 0.26 * len(gaps), layout="constrained")
        axes = page.figure.subplots()
        said = f"loss minus the base's, nats a token (logarithmic beyond {LINEAR:g})"
        draw_intervals(axes, gaps, [COLOURS[BY_NAME[name].group] for name in gaps], said)
        axes.axvline(0, color=GREY, lw=1)
        axes.set_xscale("symlog", linthresh=LINEAR, linscale=2)
        low = 1.1 * min(0, *(gap.low for gap in gaps.values())) - 0.01
        high = 1.1 * max(0, *(gap.high for gap in gaps.values())) + 0.01
        ticks = [sign * x for sign in (-1, 1) for x in (0, 0.02, 0.05, LINEAR, 0.2, 0.5, 1, 2, 5, 10)]
        axes.set_xticks([x for x in ticks if low <= x <= high])
        axes.set_xlim(low, high)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
        page.save(folder / f"{NAME}-differences.png")
    if findings["places"]:
        page = Page(5.6, 3.2, layout="constrained")
        axes = page.figure.subplots()
        for name, losses in findings["places"].items():
            middles = BLOCK * (np.arange(len(losses)) + 0.5)
            label = f"{name} (up to {max(np.exp(losses)):,.0f})" if max(np.exp(losses)) > HIGHEST else name
            axes.plot(middles, np.exp(losses), "o-", ms=3, lw=1.5, color=POSITIONS[name][1], label=label)
        axes.axvline(LENGTH, color=GREY, lw=0.9, ls=":")
        axes.set_yscale("log")
        axes.set_ylim(top=min(axes.get_ylim()[1], HIGHEST))
        plain_logarithm(axes.yaxis, (1, 1.5, 2, 3, 4, 5, 7))
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="center left", bbox_to_anchor=(1, 0.5))
        finish(axes, "place in the row, tokens", "perplexity")
        page.save(folder / f"{NAME}-length.png")


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""
    gaps = {name: gap_of(findings, name) for name in findings["differences"]}

    def none(name: str) -> Outcome:
        """Return the outcome for "no difference": right if the interval is within `EQUAL`, wrong if it lacks zero."""
        gap = gaps[name]
        right = None
        if gap is not None and gap.low >= -EQUAL and gap.high <= EQUAL:
            right = True
        elif gap is not None and gap.excludes_zero:
            right = False
        return Outcome(_text(gap), right)

    def better(*names: str) -> Outcome:
        found = {name: gaps[name] for name in names}
        told = [None if gap is None or not gap.excludes_zero else gap.value < 0 for gap in found.values()]
        right = False if False in told else None if None in told else True
        return Outcome("; ".join(f"{name} {_text(gap)}" for name, gap in found.items()), right)

    def beyond(name: str) -> Outcome:
        found = stretched(findings, name)
        return Outcome("a training run diverged" if found is None else f"{_ratio(found)} times", found=found)

    linear = gaps["linear"]
    return {
        "post-norm": none("post-norm"),
        "RMSNorm": none("RMSNorm"),
        "ReLU": none("ReLU"),
        "SwiGLU": better("SwiGLU"),
        "sinusoids": none("sinusoids"),
        "scaled sinusoids": none(SCALED),
        "relative positions": better("rotary", "ALiBi", "relative bias"),
        "best positions": _judge_best(findings["positions"]),
        "learned beyond": beyond(LEARNED),
        "sinusoids beyond": beyond("sinusoids"),
        "rotary beyond": beyond("rotary"),
        "ALiBi beyond": beyond("ALiBi"),
        "relative beyond": beyond("relative bias"),
        "grouped": none("grouped"),
        "linear": Outcome(_text(linear), found=linear),
    }


def _text(gap: Interval | None) -> str:
    return "a training run diverged" if gap is None else gap.text(4, sign=True)


def _ratio(found: Interval) -> str:
    return found.text(3 if found.value < 10 else 0)


def _judge_best(found: Mapping[str, Any] | None) -> Outcome:
    """Return the outcome for "rotary positions are best", undecided if the interval of the difference holds zero."""
    if found is None:
        return Outcome("a training run diverged", None)
    gap = Interval(**found["difference"])
    right = gap.value < 0 if gap.excludes_zero else None
    return Outcome(f"{gap.text(4, sign=True)} against {found['best other']}", right)


def report(findings: Findings) -> list[str]:
    """Report the table, what differs and what does not, length extrapolation, and the predictions."""
    if not findings["variants"][BASE_NAME]["losses"][WITHIN]:
        return ["The base diverged: nothing can be compared with it."]
    return [
        paragraph(f"""
            A GPT with {BASE.num_layers} layers of width {BASE.d_model} and {BASE.num_heads} heads ({OF_BASE}) reads the
            grammar's sentences in rows of {LENGTH} tokens. Each variant exchanges one part, *scaled sinusoids* two. All
            are trained for as many steps as they can take for {scientific(findings["operations"])} operations of matrix
            products (to 1 %, since steps are rounded), with the same learning rate, tuned for none of them. Linear
            attention's operations are counted token by token, as in decoding; training takes {CHUNK} tokens at once, so
            the forward needs {100 * chunked_share():.0f} % more than is counted. SwiGLU's network is narrower, so that
            the model has as many parameters as the base. *Grouped* is multi-query attention here: one head of keys and
            values for all heads of queries. *Sinusoids* have a root mean square of 0.71. They are added to vectors of
            tokens whose numbers start with a standard deviation of {BASE.init_std:g}, as all of GPT-2's matrices; with
            *scaled sinusoids* these vectors of tokens are multiplied by {1 / BASE.init_std:g}.
        """),
        paragraph(f"""
            The loss is the mean over the tokens of the test set, in nats, with the mean of the last five checkpoints.
            *Minus base's*: the difference of the means over {len(SEEDS)} seeds, with a 95 % interval that covers both
            the seeds (Welch 1947) and the choice of the test rows; **bold** where it leaves out zero. There are
            {len(VARIANTS) - 1} such intervals: with no differences at all, one in twenty would leave out zero. *Seeds*:
            the highest loss of a variant's seeds minus the lowest. Equal operations are not equal seconds: these are of
            one core, while another model trained on the other one.
        """),
        _table(findings),
        picture(f"{NAME}-differences", "Loss of each variant minus the base's, with intervals"),
        "Each part has its colour: norm, activation, positions, attention, from top to bottom.",
        *_sentences(findings),
        "### Rows longer than in training",
        paragraph(f"""
            The same models read rows of {LONGER} tokens, four times as long as in training. *Beyond*: the perplexity of
            the tokens after the first {LENGTH} of such a row; *within*: that of the second half of rows of {LENGTH},
            which have about as much of their sentence before them. Sentences are shorter than that and do not depend on
            each other: a longer context adds nothing, and a ratio near 1 is the best to hope for. Its interval is
            that of {len(SEEDS)} seeds (Student 1908) and of the choice of the test rows; both readings hold the same
            text, but not the same tokens of it.
        """),
        _length_table(findings),
        picture(f"{NAME}-length", "Perplexity by the place of a token in its row, for each kind of positions; seed 0"),
        f"Dotted: {LENGTH} tokens, the rows of training.",
        paragraph(f"""
            A prediction of no difference is right where the whole interval lies within ± {EQUAL:g} nats. This margin
            was chosen after the experiment had run.
        """),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


def _table(findings: Findings) -> str:
    rows = []
    for variant in VARIANTS:
        found = findings["variants"][variant.name]
        losses = found["losses"][WITHIN]
        gap = gap_of(findings, variant.name) if variant.name != BASE_NAME else None
        said = "" if variant.name == BASE_NAME else _text(gap)
        rows.append(
            [
                variant.group,
                variant.name,
                f"{np.mean(losses):.4f}" if losses else "",
                f"{np.exp(np.mean(losses)):,.3f}" if losses else "",
                f"{max(losses) - min(losses):.4f}" if losses else "",
                f"**{said}**" if gap is not None and gap.excludes_zero else said,
                f"{found['parameters']:,}",
                f"{found['steps']:,}",
                f"{found['seconds']:,.0f}",
            ]
        )
    head = ["part", "variant", "loss", "perplexity", "seeds", "minus base's", "parameters", "steps", "seconds"]
    return table(head, rows, left=2)


def _sentences(findings: Findings) -> list[str]:
    """Return sentences that name the variants that differ from the base, and those that do not."""
    gaps = {name: gap for name in findings["differences"] if (gap := gap_of(findings, name)) is not None}
    kinds = {
        "Better than the base": [name for name, gap in gaps.items() if gap.high < 0],
        "Worse than the base": [name for name, gap in gaps.items() if gap.low > 0],
        "No difference that these seeds and this test set can show": [
            name for name, gap in gaps.items() if not gap.excludes_zero
        ],
        "Not to be compared, because a training run diverged": [n for n in findings["differences"] if n not in gaps],
    }
    said = [f"{title}: {', '.join(names)}." for title, names in kinds.items() if names]
    if findings["activations"] is not None:
        said.append(f"SwiGLU minus ReLU: {_verdict(Interval(**findings['activations']))}.")
    return [bullets(said), *_of_activations(gaps), *_of_sinusoids(findings)]


def _of_activations(gaps: Mapping[str, Interval]) -> list[str]:
    """Return a paragraph that compares a difference between ReLU and GELU with Shazeer's (2020), if there is one."""
    if "ReLU" not in gaps or not gaps["ReLU"].excludes_zero:
        return []
    return [
        paragraph("""
            In Shazeer (2020), table 1, ReLU is worse than GELU by 0.014 nats after 65,536 steps, and better by 0.002
            after 524,288. Here the learning rate and the initial weights were tuned for neither. Why ReLU is better
            here was not measured.
        """)
    ]


def _of_sinusoids(findings: Findings) -> list[str]:
    """Return a paragraph on the sinusoids' losses, and on why they say little about the paper's model."""
    gaps = {name: Interval(**gap) for name, gap in findings["sinusoids"].items() if gap is not None}
    worse = {name: gap for name, gap in gaps.items() if gap.low > 0}
    if not worse:
        return []
    said = "; ".join(f"{name} minus {NONE}: {_text(gap)}" for name, gap in worse.items())
    which = "Both kinds of sinusoids are" if len(worse) == len(gaps) > 1 else f"{listed(list(worse)).capitalize()} are"
    return [
        paragraph(f"""
            {which} worse than no positions at all: {said}. This does not show that the paper's sinusoids are bad. The
            paper multiplies its vectors of tokens by √d_model, which would be {BASE.d_model**0.5:g} here, and has
            another learning rate; here none was tuned. And where vectors are multiplied by {1 / BASE.init_std:g}, each
            step of Adam moves them {1 / BASE.init_std:g} times as far, which alone may make the loss worse.
        """)
    ]


def chunked_share() -> float:
    """The operations of a forward with linear attention beyond those that are counted, as a share of all that are.

    In a chunk of c tokens each query is multiplied with c keys, and the weights (c, c) with the values and a 1, beside
    the products with the state that are counted.
    """
    config = BY_NAME["linear"].config
    attention = config.decoder.block.attention
    more = 2 * attention.num_heads * CHUNK * (attention.d_k + attention.d_v + 1)
    return config.num_layers * more / flops_per_token(config, LENGTH).target


def _verdict(gap: Interval) -> str:
    return f"{gap.text(4, sign=True)}" + ("" if gap.excludes_zero else ", which of the two is better can't be told")


def _length_table(findings: Findings) -> str:
    rows = []
    for name, (variant, _) in POSITIONS.items():
        losses, found = findings["variants"][variant]["losses"], stretched(findings, name)
        if found is not None:
            values = (float(np.exp(np.mean(losses[which]))) for which in (LATE, BEYOND))
            rows.append([name, *(f"{x:,.{2 if x < 100 else 0}f}" for x in values), _ratio(found)])
    return table(["positions", "perplexity within", "beyond", "beyond ÷ within"], rows)
