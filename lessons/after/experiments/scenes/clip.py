"""CLIP on the same scenes: a training for each seed, judged by what it finds among a thousand. Source: Radford 2021."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from minitransformer.data.preparation import PreparedData
from minitransformer.data.scenes import SceneDataset, caption_tokenizer
from minitransformer.decoding import Matcher
from minitransformer.evaluation import recall
from minitransformer.grammar.scenes import draw
from study.experiment import Context, Findings
from study.markdown import paragraph, table
from study.trials.seeds import percentage_drop, percentage_over_seeds
from study.trials.trial import Answers

from ...predictions import Outcome
from ...task import Texts
from .plan import JUDGED, NEW_PAIRS, TEST, SceneTrial

FIRST = 1, 5
"""How many of those found first may hold the right one."""

COLUMNS = [(way, first) for way in ("text of a picture", "picture of a text") for first in FIRST]


@dataclass(frozen=True)
class Finding:
    """A CLIP finds the captions of scenes among all of theirs, and the scenes. Statistics: 1 if found, in `COLUMNS`."""

    name: str
    count: int = JUDGED
    averaged: bool = False

    def answer(self, model: Any, data: PreparedData) -> Answers:
        """Compare all pictures with all captions."""
        start, scenes = perf_counter(), SceneDataset(self.name, 1).different(self.count)
        cosines = Matcher(model, caption_tokenizer()).similarities([*map(draw, scenes.values())], list(scenes))
        found = np.stack([recall(each, first) for each in (cosines, cosines.T) for first in FIRST], axis=1)
        return Answers(np.zeros((self.count, 2)), found, perf_counter() - start)


def clip_runs(context: Context[Texts], trials: Sequence[SceneTrial]) -> list[dict[str, Any]]:
    """Return for each seed what was found of each split, in per cent."""
    runs = []
    for trial in trials:
        result = context.runner.result(trial)
        run = {name: getattr(result, name) for name in ("steps", "parameters", "diverged")}
        found = {name: (100 * each.statistics.mean(0)).tolist() for name, each in result.evaluations.items()}
        runs.append(run | {"scenes": trial.scenes, "found": found})
    return runs


def found_of(findings: Findings, split: str, way: int = 0) -> list[float]:
    """Return for each seed what was found first of a split, in per cent; the way is a place in `COLUMNS`."""
    return [run["found"][split][way] for run in findings["clips"]]


def clip_outcomes(findings: Findings) -> dict[str, Outcome]:
    """The outcome of each prediction about CLIP."""
    test, new = (percentage_over_seeds(found_of(findings, split)) for split in (TEST, NEW_PAIRS))
    back = percentage_over_seeds(found_of(findings, TEST, len(FIRST)))
    gap = percentage_drop(found_of(findings, TEST), found_of(findings, NEW_PAIRS), JUDGED)
    return {
        "found": Outcome(f"{test.text()} %", found=test),
        "found back": Outcome(f"{back.text()} %", found=back),
        "found new pairs": Outcome(f"{new.text()} %", found=new),
        "found gap": Outcome(f"{gap.text(sign=True)} points", found=gap),
    }


def clip_blocks(findings: Findings) -> list[str]:
    """The part of the report on CLIP."""
    runs, splits = findings["clips"], {"new scenes": TEST, "with a pair that no training shows": NEW_PAIRS}
    diverged = [run["diverged"] for run in runs if run["diverged"]]
    if diverged:
        return [f"{len(diverged)} trainings of CLIP diverged. The first: {diverged[0]}."]
    rows = [
        [name, *(percentage_over_seeds(found_of(findings, split, way)).text() for way in range(len(COLUMNS)))]
        for name, split in splits.items()
    ]
    titles = [f"the {way}: first, %" if first == 1 else f"among the first {first}, %" for way, first in COLUMNS]
    return [
        paragraph(f"""
            A CLIP writes nothing: it maps pictures and captions into one space, and what is nearest is found. Each of
            {len(runs)} seeds saw {runs[0]["scenes"]:,} scenes in {runs[0]["steps"]:,} steps, and searches among
            {JUDGED:,} scenes whose captions are all different; chance finds {100 / JUDGED:g} % first.
        """),
        table(["scenes", *titles], rows),
    ]
