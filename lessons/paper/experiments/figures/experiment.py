"""The paper's figures, from a live model and from a trained one; the learning rate's schedule and the positions."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.data.batching import collate
from minitransformer.data.preparation import CorpusChoice, PreparedData
from minitransformer.grammar import sample
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.translator import Translator

from ...experiment import Context, Findings, Task
from ...markdown import picture, table
from ...trials.bootstrap import Interval
from ...trials.trial import Trial
from ..table2 import translator
from .architecture import draw_architecture
from .attention_figure import draw_attention
from .attention_lines import Panel, draw_lines
from .curves import draw_positions, draw_schedule
from .dependencies import ANTECEDENT, ARTICLE, BRACKET, KINDS, NEGATION, SUBJECT, VERB
from .head_pictures import (
    LONGEST,
    TITLES,
    dependency_picture,
    dependency_row,
    head_name,
    measured_jobs,
    most_different,
    sharpest,
)
from .heads import EVEN, JOBS, SPREAD, job_of, observe, resolve
from .heads_figure import draw_jobs

NAME, TITLE, MINUTES, ALONE = "figures", "Figures 1 to 5, the schedule and the positions", 1.0, 6.0

SEARCHED, JUDGED = 1000, 100
"""Test sentences among which dependencies are looked for; and over which the heads' jobs are measured."""

DEPENDENCIES = (BRACKET, SUBJECT, VERB, ARTICLE, ANTECEDENT, NEGATION)
DRAWN = {"long-distance": (BRACKET, SUBJECT), "agreement": (ARTICLE, ANTECEDENT)}
"""The counterparts of figures 3 and 4: of these, the one that is resolved best."""


def trials(task: Task, scale: float) -> list[Trial]:
    """The larger of table 2's Transformers, English to German."""
    return [translator(task, scale)]


def find(context: Context) -> Findings:
    """What the trained model's heads do, and the sentences that are drawn."""
    (trial,) = trials(context.task, context.scale)
    assert isinstance(trial.config, TransformerConfig)
    data = context.laboratory.data(trial.text)
    findings: Findings = {"config": trial.config.to_dict(), "batch": _batch(data)}
    diverged = context.laboratory.result(trial).diverged
    if diverged is not None:
        return findings | {"diverged": diverged}
    model = Translator.from_checkpoint(context.laboratory.model_path(trial), threads=1)
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
    """Whether it is known which word depends on which."""
    return text.dataset == "grammar"


def _batch(data: PreparedData) -> dict[str, Any]:
    """The first two test sentences, as a model takes them."""
    pairs = list(islice(data.choice.pairs("test"), 2))
    sources, targets = ([data.tokenizer.encode(text) for text in side] for side in zip(*pairs, strict=True))
    batch = collate(sources, targets)
    return {
        "sentences": [pair.source for pair in pairs],
        "source": batch.source.tolist(),
        "target": batch.target_in.tolist(),
    }


def _resolved(model: Translator, seed: int) -> Findings:
    """What the grammar's derivations show: every dependency with its best head, and the two that are drawn."""
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
    """Figures 1 and 2, the schedule and the positions; of a trained model its heads."""
    model = Transformer(TransformerConfig.from_dict(findings["config"]))
    source, target = (np.array(findings["batch"][side]) for side in ("source", "target"))
    draw_architecture(model, source, target, folder / f"{NAME}-architecture.png")
    draw_attention(model, source, folder / f"{NAME}-attention.png")
    draw_schedule(folder / f"{NAME}-schedule.png")
    draw_positions(folder / f"{NAME}-positions.png")
    if findings["diverged"] is not None:
        return
    draw_jobs(findings["jobs"], TITLES, folder / f"{NAME}-jobs.png")
    for name, found in (findings["pictures"] | {"heads": findings["different"]}).items():
        draw_lines([Panel(**panel) for panel in found["panels"]], folder / f"{NAME}-{name}.png")


def report(findings: Findings) -> list[str]:
    """The pictures, and how often the heads do what they show."""
    layers, heads = (findings["config"][name] for name in ("num_layers", "num_heads"))
    drawn = (
        "**Figures 1 and 2**, drawn from the arrays that a model computes on two sentences of the test set "
        f"(“{findings['batch']['sentences'][0]}” is the first); it has {layers} layers with {heads} heads, and each "
        "shape is what the arrow carries."
    )
    if findings["diverged"] is not None:
        trained = [f"Figures 3 to 5 need a trained model, and its training ended early: {findings['diverged']}."]
    else:
        trained = _heads_lines(findings)
    formulas = (
        "**The schedule** of §5.3, equation 3, and **the positions** of §3.5: their dot product depends on the "
        "distance alone."
    )
    return [
        drawn,
        "",
        picture(f"{NAME}-architecture", "Figure 1: the architecture with the shapes on its arrows"),
        "",
        picture(f"{NAME}-attention", "Figure 2: scaled dot-product attention and its heads"),
        "",
        *trained,
        "",
        formulas,
        "",
        picture(f"{NAME}-schedule", "The learning rate over the steps"),
        "",
        picture(f"{NAME}-positions", "The sinusoids, and the dot products of positions by their distance"),
    ]


def _heads_lines(findings: Findings) -> list[str]:
    drawn = (
        "**Figures 3 to 5**, from the larger of table 2’s Transformers, English to German. Left is what looks, right "
        "what is looked at; a line is as thick as its weight. The decoder reads the reference translation, and what "
        "counts is where it looks as it writes a word’s first piece. A weight says where a head looks, not what the "
        "model does with it."
    )
    unknown = (
        "Nothing says which word of this text depends on which, so nothing is claimed about what a head resolves: the "
        "pictures show the heads whose weight lies most on single words that are neither near, first nor punctuation."
    )
    pictures = findings["pictures"]
    return [
        drawn,
        "",
        *([unknown, ""] if findings["dependencies"] is None else _dependency_lines(findings)),
        *_picture_lines("long-distance", "Figure 3’s counterpart, a dependency over a distance", pictures),
        *_picture_lines("agreement", "Figure 4’s counterpart, agreement or reference", pictures),
        *_jobs_lines(findings),
    ]


def _dependency_lines(findings: Findings) -> list[str]:
    """The table of dependencies and their heads; which no head resolves."""
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
    explained = (
        "What a word depends on is known here from the grammar’s derivation. Of "
        f"{findings['searched']:,} test sentences those that hold a dependency were halved: on one half the head was "
        "chosen that gives the governor most weight, on the other it was measured (mean, and its 95 % interval over "
        "these sentences). `even` is what the governor would get if all words that may be seen got the same."
    )
    if missed:
        explained += f" No head gives the governor more than that: {'; '.join(missed)}."
    if few:
        explained += f" Too few sentences to judge: {'; '.join(few)}."
    head = ["dependency", "attention", "head", "weight on the governor", "mean of all heads", "even"]
    head += ["tokens apart", "sentences"]
    return [explained, "", *table(head, rows), ""] if rows else [explained, ""]


def _resolves(found: dict[str, Any]) -> bool:
    """Whether the head gives more than even attention would, beyond what may be chance."""
    return Interval(*found["beyond"]).low > 0


def _picture_lines(name: str, title: str, pictures: dict[str, Any]) -> list[str]:
    if name not in pictures:
        return [f"{title}: the test set holds too few sentences to judge.", ""]
    found = pictures[name]
    where = f"{head_name(found['layer'], found['head'])} of {TITLES[found['kind']]}"
    if "words" in found:
        said = _said_of_words(found, where)
    else:
        title = title.partition(",")[0]
        said = f"{where}, with {found['elsewhere']:.0%} of its weight on such words."
    return [f"{title}: {said}", "", picture(f"{NAME}-{name}", title), ""]


def _said_of_words(found: dict[str, Any], where: str) -> str:
    weight = Interval(*found["weight"])
    dependent, governor = found["words"]
    if _resolves(found):
        times = weight.value / found["even"]
        said = f"{where.capitalize()} gives the governor {weight.text(2)}, {times:.1f} times what even attention would."
    else:
        said = (
            f"No head does it: the best, {where}, gives the governor {weight.text(2)}, even attention "
            f"{found['even']:.2f}."
        )
    return (
        f"{found['name']}. {said} In the sentence, the median of those that are short enough, “{dependent}” gives "
        f"“{governor}” {found['one']:.2f}."
    )


def _jobs_lines(findings: Findings) -> list[str]:
    """How many heads have which job, and the two that differ most."""
    jobs, different = findings["jobs"], findings["different"]
    counts = {
        kind: Counter(job_of(head, jobs[kind]["even"]) for layer in jobs[kind]["shares"] for head in layer)
        for kind in KINDS
    }
    rows = [[job, *(str(counts[kind][job]) for kind in KINDS)] for job in (*JOBS, SPREAD)]
    explained = (
        f"Figure 5’s counterpart, heads with different jobs. Over {findings['judged']} test sentences, a head’s job is "
        "where it puts more of its weight than even attention would, by the largest difference; heads of which no "
        f"place gets {EVEN} more count as “{SPREAD}”. Keys count by their place beside the query’s (in the decoder, "
        "beside the word written last), then as the first token, as punctuation or end mark, or as elsewhere; the "
        "evenness in the picture is a head’s entropy as a part of even attention’s."
    )
    layer = different["layer"]
    one, other = (
        f"{head_name(layer, head)} ({_described(jobs['encoder']['shares'][layer][head], jobs['encoder']['even'])})"
        for head in different["heads"]
    )
    return [
        explained,
        "",
        *table(["job", *(TITLES[kind] for kind in KINDS)], rows),
        "",
        picture(f"{NAME}-jobs", "Where each head’s weight lies, and how evenly"),
        "",
        f"The two heads of one encoder layer that differ most: {one} and {other}.",
        "",
        picture(f"{NAME}-heads", "Figure 5’s counterpart: two heads of one layer on one sentence"),
    ]


def _described(share: Sequence[float], evenly: Sequence[float]) -> str:
    """A head's job and how much of its weight that takes."""
    job = job_of(share, evenly)
    if job == SPREAD:
        return SPREAD
    return f"{job}: {share[JOBS.index(job)]:.0%} of its weight, evenly {evenly[JOBS.index(job)]:.0%}"
