"""The report on the captioners: shares with their intervals, verdicts on the predictions, and two pictures."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.scenes import SceneDataset
from minitransformer.grammar.captions import PARTS
from minitransformer.grammar.scenes import draw as draw_picture
from minitransformer.plots.page import BLUE, INK, Page, text_style
from study.charts import finish
from study.experiment import Findings
from study.markdown import paragraph, picture, table
from study.trials.bootstrap import Interval
from study.trials.seeds import mean_of_seeds, percentage_drop, percentage_over_seeds

from ...predictions import Outcome, prediction_blocks
from .clip import clip_blocks, clip_outcomes
from .looking import NAMING, best_head
from .plan import JUDGED, LOOKED_AT, NAME, NEW_PAIRS, TEST

COLUMNS = ("true", *PARTS)
SCENES = {"all": slice(None), "two": slice(0, None, 2), "three": slice(1, None, 2)}
"""The places of all scenes in a split, and of those of two things and of three."""

Run = Mapping[str, Any]


def over_seeds(findings: Findings, number: Callable[[Run], float]) -> Interval:
    """The mean of a percentage over seeds."""
    return percentage_over_seeds([number(run) for run in findings["runs"]])


def percentages(verdicts: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return the percentages of captions that are right in each of `COLUMNS`, from `(N, 5)`, for each of `SCENES`."""
    return {name: (100 * verdicts[places].mean(0)).tolist() for name, places in SCENES.items()}


def share(findings: Findings, split: str, column: str, which: str = "all") -> Interval:
    """The percentage of captions of a split that are right in a part, or in all: `true`."""
    return over_seeds(findings, lambda run: run["right"][split][which][COLUMNS.index(column)])


def looked(run: Run, name: str, part: str | None = None) -> float:
    """The percentage of attention of the head that looks most at what its words name, for a part or the mean of all."""
    layer, head = best_head(run["looks"])
    values = [np.array(run["looks"][each][name]) for each in ([part] if part else NAMING)]
    return 100 * float(np.mean([each if each.ndim == 0 else each[layer, head] for each in values]))


def judge(findings: Findings) -> dict[str, Outcome]:
    """The outcome of each prediction."""
    if any(run["diverged"] for run in (*findings["runs"], *findings["clips"])):
        return {name: Outcome("a training diverged") for name in findings["predictions"]}
    true, new = (share(findings, split, "true") for split in (TEST, NEW_PAIRS))
    wrong = {part: 100 - share(findings, TEST, part).value for part in PARTS}
    rights = [run["right"][TEST]["all"] for run in findings["runs"]]
    behind = mean_of_seeds([min(others) - relation for _, *others, relation in rights])  # in the order of COLUMNS
    habit = share(findings, NEW_PAIRS, "shape")
    before, after = ([run["right"][split]["all"][0] for run in findings["runs"]] for split in (TEST, NEW_PAIRS))
    gap = percentage_drop(before, after, JUDGED)
    own, even = (over_seeds(findings, lambda run, name=name: looked(run, name)) for name in ("own", "even"))
    ratio = Interval(*(each / even.value for each in (own.value, own.low, own.high)))  # even is that of all seeds
    return {
        "true": Outcome(f"{true.text()} %", found=true),
        "relation": Outcome(
            "wrong: " + ", ".join(f"{part} {value:.1f} %" for part, value in wrong.items()),
            behind.low > 0 if behind.excludes_zero else None,
        ),
        "new pairs": Outcome(f"{new.text()} %", found=new),
        "habit": Outcome(f"{habit.text()} %", found=habit),
        "gap": Outcome(f"exactly true: {gap.text()} points fewer", gap.low > 0 if gap.excludes_zero else None),
        "looks": Outcome(f"{own.text()} %", found=own),
        "uniform": Outcome(f"{ratio.text()} times {even.value:.1f} %", found=ratio),
        **clip_outcomes(findings),
    }


def report(findings: Findings) -> list[str]:
    """The experiment's part of the report."""
    runs = findings["runs"]
    diverged = [run["diverged"] for run in runs if run["diverged"]]
    if diverged:
        return [f"{len(diverged)} training runs diverged: nothing can be compared. The first: {diverged[0]}."]
    asked = {
        "new scenes": (TEST, "all"),
        "of two things": (TEST, "two"),
        "of three": (TEST, "three"),
        "with a pair that no training shows": (NEW_PAIRS, "all"),
    }
    rows = [
        [name, *(share(findings, split, each, which).text() for each in COLUMNS)]
        for name, (split, which) in asked.items()
    ]
    looks = [
        [part, *(over_seeds(findings, lambda run, n=name, p=part: looked(run, n, p)).text() for name in _NAMES)]
        for part in NAMING
    ]
    return [
        paragraph(f"""
            A captioner reads a picture of 32 × 32 pixels as 64 patches, and its decoder writes what it shows. Each of
            {len(runs)} seeds saw {runs[0]["scenes"]:,} scenes, whose captions name big things first and then from left
            to right. A caption is true if a parser finds that all its words are right, in any order of the things.
            {JUDGED:,} new scenes and {JUDGED:,} with a new pair, the same for all seeds: the brackets cover seeds, and
            only those of a difference between the two cover the choice of scenes too.
        """),
        table(["scenes", "exactly true, %", *(f"{part} right, %" for part in PARTS)], rows),
        paragraph(f"""
            Where a word looks while the decoder writes it, in {LOOKED_AT} scenes: the part of the cross-attention on
            the patches of the thing that it names, and on those of the other things, beside the part of the patches
            that these are. The head is, for each seed, the one that looks most at what its words name.
        """),
        table(["word", *(f"{name}, %" for name in _NAMES.values())], looks),
        picture(f"{NAME}-looks", "A scene, and where the best head looks as the decoder writes each word"),
        picture(f"{NAME}-curve", "Validation loss against the steps of training, for each seed"),
        *clip_blocks(findings),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


_NAMES = {"own": "the thing itself", "even": "its part of the patches", "others": "the other things"}
_NAMES |= {"others even": "their part of the patches"}


def draw(findings: Findings, folder: Path) -> None:
    """Draw the curves, and one scene with the attention of its words."""
    runs = [run for run in findings["runs"] if run["diverged"] is None]
    if not runs:
        return
    page = Page(4.6, 3.0, layout="constrained")
    axes = page.figure.subplots()
    for run in runs:
        axes.plot(*np.array([(point["step"], np.log(point["perplexity"])) for point in run["curve"]]).T, color=BLUE)
    finish(axes, "optimiser step", "validation loss, nats a token")
    page.save(folder / f"{NAME}-curve.png")

    seen = runs[0]["example"]
    scene = SceneDataset("test", 1).scene(seen["scene"])
    pixels, count = (draw_picture(scene).transpose(1, 2, 0) + 1) / 2, len(seen["words"])
    page = Page(1.3 * (count + 1), 1.7, layout="constrained")
    for axes, title, weights in zip(
        page.figure.subplots(1, count + 1), ("the scene", *seen["words"]), (None, *seen["maps"]), strict=True
    ):
        axes.imshow(pixels, interpolation="nearest")
        if weights is not None:
            side = int(len(weights) ** 0.5)
            map = np.reshape(weights, (side, side)) / max(weights)
            shade = np.kron(1 - map, np.ones((len(pixels) // side,) * 2))
            axes.imshow(np.zeros_like(pixels), alpha=0.85 * shade, interpolation="nearest")
        axes.set_axis_off()
        axes.set_title(title, **text_style([title], 8, INK))
    page.save(folder / f"{NAME}-looks.png")
