"""The paper's figures, from a new model and from a trained one; the learning rate's schedule and the positions."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.data.batching import collate
from minitransformer.data.preparation import CorpusChoice, PreparedData
from minitransformer.decoding import Translator
from minitransformer.grammar import sample
from minitransformer.layers import SinusoidalPositions
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.ops import numpy_ops
from minitransformer.plots.page import BLUE, GREEN, GREY, INK, SIGNED, SKY, VERMILION, Page
from minitransformer.training.optimizer import noam
from study.charts import finish
from study.experiment import Context, Findings
from study.markdown import paragraph, picture, table
from study.trials.bootstrap import Interval
from study.trials.trial import Trial

from ...task import Task
from ..table2 import translator
from .architecture import architecture_page, attention_page
from .dependencies import ANTECEDENT, ARTICLE, BRACKET, KINDS, NEGATION, SUBJECT, VERB
from .heads import (
    EVEN,
    JOBS,
    LONGEST,
    SPREAD,
    TITLES,
    Panel,
    dependency_picture,
    dependency_row,
    draw_jobs,
    draw_lines,
    head_name,
    job_of,
    measured_jobs,
    most_different,
    observe,
    resolve,
    sharpest,
)

NAME, TITLE, MINUTES, ALONE = "figures", "Figures 1 to 5, the schedule and the positions", 1.0, 6.0

SEARCHED, JUDGED = 1000, 100
"""The test sentences in which dependencies are searched, and those over which the heads' jobs are measured."""

DEPENDENCIES = (BRACKET, SUBJECT, VERB, ARTICLE, ANTECEDENT, NEGATION)
DRAWN = {"long-distance": (BRACKET, SUBJECT), "agreement": (ARTICLE, ANTECEDENT)}
"""The candidates for the counterparts of figures 3 and 4: the one that is resolved best is drawn."""


def trials(task: Task, scale: float) -> list[Trial]:
    """The larger of table 2's Transformers, English to German."""
    return [translator(task, scale)]


def find(context: Context[Task]) -> Findings:
    """The jobs of the trained model's heads, and the sentences that are drawn."""
    (trial,) = trials(context.task, context.scale)
    assert isinstance(trial.config, TransformerConfig)
    data = context.runner.data(trial.text)
    findings: Findings = {"config": trial.config.to_dict(), "batch": _batch(data)}
    diverged = context.runner.result(trial).diverged
    if diverged is not None:
        return findings | {"diverged": diverged}
    model = Translator.from_checkpoint(context.runner.model_path(trial), threads=1)
    maps = [
        model.attention(pair.source, pair.target, truncate=True)
        for pair in islice(data.choice.pairs("test"), JUDGED)
        if len(data.tokenizer.encode(pair.target)) < trial.config.max_length
    ]
    findings |= {"diverged": None, "judged": len(maps), "jobs": {kind: measured_jobs(maps, kind) for kind in KINDS}}
    findings["different"] = most_different(maps, findings["jobs"])
    if _has_derivations(trial.text):
        return findings | _resolved(model, trial.text.seed)
    pictures = {"long-distance": sharpest(maps, "encoder"), "agreement": sharpest(maps, "cross")}
    return findings | {"dependencies": None, "pictures": pictures}


def _has_derivations(text: CorpusChoice) -> bool:
    """Return True if the text's sentences have derivations, from which the dependencies of words are known."""
    return text.dataset == "grammar"


def _batch(data: PreparedData) -> dict[str, Any]:
    """The first two test sentences as a batch."""
    pairs = list(islice(data.choice.pairs("test"), 2))
    sources, targets = ([data.tokenizer.encode(text) for text in side] for side in zip(*pairs, strict=True))
    batch = collate(sources, targets)
    return {
        "sentences": [pair.source for pair in pairs],
        "source": batch.source.tolist(),
        "target": batch.target_in.tolist(),
    }


def _resolved(model: Translator, seed: int) -> Findings:
    """Every dependency of the grammar's derivations with its best head, and the two that are drawn."""
    examples = list(islice(sample("test", seed), SEARCHED))
    found = {each.name: resolve(observe(model, each, examples), LONGEST) for each in DEPENDENCIES}
    rows = [dependency_row(each, found[each.name]) for each in DEPENDENCIES]
    pictures = {}
    for name, candidates in DRAWN.items():
        judged = [(each, best) for each in candidates if (best := found[each.name]) is not None]
        if judged:
            pictures[name] = dependency_picture(*max(judged, key=lambda pair: pair[1].beyond.value))
    return {"searched": len(examples), "dependencies": rows, "pictures": pictures}


def draw(findings: Findings, folder: Path) -> None:
    """Draw figures 1 and 2, the schedule, the positions and, if the training succeeded, the model's heads."""
    model = Transformer(TransformerConfig.from_dict(findings["config"]))
    source, target = (np.array(findings["batch"][side]) for side in ("source", "target"))
    architecture_page(model, source, target).save(folder / f"{NAME}-architecture.png")
    attention_page(model, source).save(folder / f"{NAME}-attention.png")
    draw_schedule(folder / f"{NAME}-schedule.png")
    draw_positions(folder / f"{NAME}-positions.png")
    if findings["diverged"] is not None:
        return
    draw_jobs(findings["jobs"], folder / f"{NAME}-jobs.png")
    for name, found in (findings["pictures"] | {"heads": findings["different"]}).items():
        draw_lines([Panel(**panel) for panel in found["panels"]], folder / f"{NAME}-{name}.png")


def report(findings: Findings) -> list[str]:
    """Report the pictures, and how often heads do what the pictures show."""
    layers, heads = (findings["config"][name] for name in ("num_layers", "num_heads"))
    trained = [f"Figures 3 to 5 need a trained model, and its training ended early: {findings['diverged']}."]
    return [
        paragraph(f"""
            **Figures 1 and 2**, drawn from the arrays that a model computes on two sentences of the test set
            (“{findings["batch"]["sentences"][0]}” is the first); it has {layers} layers with {heads} heads, and each
            shape is that of the array on the arrow.
        """),
        picture(f"{NAME}-architecture", "Figure 1: the architecture with the shapes on its arrows"),
        picture(f"{NAME}-attention", "Figure 2: scaled dot-product attention and its heads"),
        *(_heads_blocks(findings) if findings["diverged"] is None else trained),
        paragraph("""
            **The schedule** of §5.3, equation 3, and **the positions** of §3.5: their dot product depends on the
            distance alone.
        """),
        picture(f"{NAME}-schedule", "The learning rate over the steps"),
        picture(f"{NAME}-positions", "The sinusoids, and the dot products of positions by their distance"),
    ]


def _heads_blocks(findings: Findings) -> list[str]:
    unknown = paragraph("""
        Nothing says which word of this text depends on which, so nothing is claimed about what a head resolves: the
        pictures show the heads whose weight lies most on single words that are neither near, first nor punctuation.
    """)
    pictures = findings["pictures"]
    return [
        paragraph("""
            **Figures 3 to 5**, from the larger of table 2’s Transformers, English to German. Queries are on the left,
            keys on the right; a line is as thick as its weight. The decoder reads the reference translation, and its
            weights are taken when it writes a word’s first piece. A weight says where a head looks, not how the
            model uses it.
        """),
        *([unknown] if findings["dependencies"] is None else _dependency_blocks(findings)),
        *_picture_blocks("long-distance", "Figure 3’s counterpart, a dependency over a distance", pictures),
        *_picture_blocks("agreement", "Figure 4’s counterpart, agreement or reference", pictures),
        *_jobs_blocks(findings),
    ]


def _dependency_blocks(findings: Findings) -> list[str]:
    """The table of dependencies and their heads, and those that no head resolves."""
    judged = [each for each in findings["dependencies"] if each["sentences"]]
    few = [each["name"] for each in findings["dependencies"] if not each["sentences"]]
    missed = [each["name"] for each in judged if not _resolves(each)]
    rows = [
        [
            each["name"],
            TITLES[each["kind"]],
            f"{each['layer'] + 1}.{each['head'] + 1}",
            Interval(*each["weight"]).text(2),
            f"{each['others']:.2f}",
            f"{each['even']:.2f}",
            "" if each["apart"] is None else f"{each['apart']:.1f}",
            str(each["sentences"]),
        ]
        for each in judged
    ]
    head = ["dependency", "attention", "head", "weight on the governor", "mean of all heads", "even"]
    head += ["tokens apart", "sentences"]
    explained = paragraph(f"""
        The grammar’s derivation says which word each word depends on. Of {findings["searched"]:,} test sentences those
        with a dependency were halved: on one half the head was chosen that gives the governor most weight, on the other
        it was measured (mean, and its 95 % interval over these sentences). `even` is the governor’s weight if all
        visible words got the same.
        {f"No head gives the governor more than that: {'; '.join(missed)}." if missed else ""}
        {f"Too few sentences to judge: {'; '.join(few)}." if few else ""}
    """)
    return [explained, table(head, rows)] if rows else [explained]


def _resolves(found: dict[str, Any]) -> bool:
    """Return True if the head gives significantly more weight than even attention would."""
    return Interval(*found["beyond"]).low > 0


def _picture_blocks(name: str, title: str, pictures: dict[str, Any]) -> list[str]:
    if name not in pictures:
        return [f"{title}: the test set holds too few sentences to judge."]
    found = pictures[name]
    where = f"{head_name(found['layer'], found['head'])} of {TITLES[found['kind']]}"
    if "words" in found:
        said = _said_of_words(found, where)
    else:
        title = title.partition(",")[0]
        said = f"{where}, with {found['elsewhere']:.0%} of its weight on such words."
    return [f"{title}: {said}", picture(f"{NAME}-{name}", title)]


def _said_of_words(found: dict[str, Any], where: str) -> str:
    weight, even = Interval(*found["weight"]), found["even"]
    gives = f"gives the governor {weight.text(2)}"
    said = f"No head does it: the best, {where}, {gives}, even attention {even:.2f}."
    if _resolves(found):
        said = f"{where.capitalize()} {gives}, {weight.value / even:.1f} times that of even attention."
    dependent, governor = found["words"]
    return paragraph(f"""
        {found["name"]}. {said} In the sentence, the median of those that are short enough, “{dependent}” gives
        “{governor}” {found["one"]:.2f}.
    """)


def _jobs_blocks(findings: Findings) -> list[str]:
    """The number of heads with each job, and the two heads that differ most."""
    jobs, different = findings["jobs"], findings["different"]
    counts = {
        kind: Counter(job_of(head, jobs[kind]["even"]) for layer in jobs[kind]["shares"] for head in layer)
        for kind in KINDS
    }
    rows = [[job, *(str(counts[kind][job]) for kind in KINDS)] for job in (*JOBS, SPREAD)]
    layer = different["layer"]
    one, other = (
        f"{head_name(layer, head)} ({_described(jobs['encoder']['shares'][layer][head], jobs['encoder']['even'])})"
        for head in different["heads"]
    )
    return [
        paragraph(f"""
            Figure 5’s counterpart, heads with different jobs. Over {findings["judged"]} test sentences, a head’s job is
            where it puts more of its weight than even attention would, by the largest difference; heads of which no
            place gets {EVEN} more count as “{SPREAD}”. Keys count by their place beside the query’s (in the decoder,
            beside the word written last), then as the first token, as punctuation or end mark, or as elsewhere; the
            evenness in the picture is a head’s entropy as a part of even attention’s.
        """),
        table(["job", *(TITLES[kind] for kind in KINDS)], rows),
        picture(f"{NAME}-jobs", "Where each head’s weight lies, and how evenly"),
        f"The two heads of one encoder layer that differ most: {one} and {other}.",
        picture(f"{NAME}-heads", "Figure 5’s counterpart: two heads of one layer on one sentence"),
    ]


def _described(share: Sequence[float], evenly: Sequence[float]) -> str:
    """A head's job, and the share of its weight that goes there."""
    job = job_of(share, evenly)
    if job == SPREAD:
        return SPREAD
    return f"{job}: {share[JOBS.index(job)]:.0%} of its weight, evenly {evenly[JOBS.index(job)]:.0%}"


SCHEDULES = [
    ("base with half the warm-up", 512, 2000, SKY),
    ("base: d_model 512", 512, 4000, BLUE),
    ("big: d_model 1024", 1024, 4000, VERMILION),
]
STEPS = 40_000


def draw_schedule(path: str | Path) -> None:
    """Draw the learning rates of base, base with half the warm-up, and big. Source: Vaswani 2017, §5.3, eq. 3."""
    page = Page(7.4, 3.0, layout="constrained")
    axes = page.figure.subplots()
    steps = np.arange(1, STEPS + 1, 20)
    for name, d_model, warmup, colour in SCHEDULES:
        axes.plot(steps, [noam(int(step), d_model, warmup) for step in steps], color=colour, lw=1.6, label=name)
    axes.axvline(4000, color=GREY, lw=0.8, ls=":")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    axes.set(xlim=(0, STEPS), ylim=(0, None))
    finish(axes, "optimiser step", "learning rate")
    page.save(path)


def draw_positions(path: str | Path) -> None:
    """Draw the sinusoids as a map, and the dot products of one position's with all others, which depend on distance.

    Source: Vaswani 2017, §3.5.
    """
    table = np.asarray(SinusoidalPositions(numpy_ops, 100, 128, "float64").table)  # (length, d_model)
    page = Page(7.4, 3.2, layout="constrained")
    left, right = page.figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    image = left.imshow(table, aspect="auto", cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest")
    page.figure.colorbar(image, ax=left, pad=0.02).ax.tick_params(labelsize=7.5, colors=GREY)
    finish(left, "dimension", "position")
    for position, colour, width in ((20, BLUE, 4.5), (50, VERMILION, 2.7), (80, GREEN, 1.0)):  # they lie on each other
        products = table @ table[position]
        right.plot(np.arange(len(table)) - position, products, color=colour, lw=width, label=f"position {position}")
    right.legend(frameon=False, fontsize=8, labelcolor=INK, title="dot product with", title_fontsize=8)
    finish(right, "distance", "PE(pos) · PE(pos + distance)")
    page.save(path)
