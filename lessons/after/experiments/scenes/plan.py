"""The plan of the runs: a captioner with three seeds, judged on new scenes, and on pairs that training never shows.

A CLIP is trained with the same seeds, and judged in `clip`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import numpy as np

from minitransformer.cli.recipes import RECIPES, config_class
from minitransformer.costs import flops_per_token
from minitransformer.data.preparation import PreparedData
from minitransformer.data.scenes import SCENES, SceneDataset, caption_tokenizer, scenes
from minitransformer.decoding import Describer
from minitransformer.grammar.captions import caption, judge
from minitransformer.grammar.scenes import draw
from minitransformer.models import Captioner
from minitransformer.training import TrainingSettings
from study.trials.run import lasting
from study.trials.trial import Answers, Evaluation, Trial

from ...task import Texts

NAME = "scenes"

SEEDS = (0, 1, 2)

TEST, NEW_PAIRS = "test", "new pairs"
JUDGED, LOOKED_AT = 1000, 200
"""Scenes of each split whose captions are judged, and scenes of the test in which attention is measured."""

WORDS = 16.7
"""The mean number of tokens of a caption, with the end mark: operations are planned with it."""


@dataclass(frozen=True)
class Describing:
    """A captioner describes scenes of a split, greedily. Statistics: the verdict, true and part by part, 1 or 0."""

    name: str
    count: int = JUDGED
    averaged: bool = False

    def answer(self, model: Captioner, data: PreparedData) -> Answers:
        """Describe the scenes, and judge the captions."""
        start, asked = perf_counter(), SceneDataset(self.name, self.count).scenes
        said = Describer(model, caption_tokenizer()).describe([draw(scene) for scene in asked], beam=1)
        verdicts = np.array([judge(text, scene) for text, scene in zip(said, asked, strict=True)], np.float64)
        seconds = perf_counter() - start
        return Answers(np.zeros((self.count, 2)), verdicts, seconds, said, [caption(scene) for scene in asked])


@dataclass(frozen=True)
class SceneTrial(Trial):
    """A training on scenes; the text, which the runner prepares for each trial, is not read."""

    fewest_steps: ClassVar[int] = 10

    @property
    def scenes(self) -> int:
        """The number of scenes of all steps; the last batch of an epoch holds the rest."""
        batch = self.settings.tokens_per_batch // self.config.num_patches
        epochs, steps = divmod(self.settings.steps, math.ceil(SCENES / batch))
        return epochs * SCENES + steps * batch

    @property
    def weight(self) -> float:  # type: ignore[override]
        """The operations of the training, roughly."""
        each = flops_per_token(self.config, round(WORDS))
        return 3 * self.scenes * (self.config.num_patches * each.source + WORDS * each.target)

    def material(self, data: PreparedData, models: Sequence[Path]) -> tuple[SceneDataset, SceneDataset]:
        """The scenes to train on, which follow from the seed, and those that validate."""
        return scenes(self.settings.seed)


def trials_of(kind: str, judged: tuple[Evaluation, ...], task: Texts, scale: float) -> list[SceneTrial]:
    """Return a training for each seed, by the recipe of `train --kind`."""
    recipe = RECIPES[kind]
    config, steps = config_class(kind)(**recipe.model), scale * recipe.settings["steps"]
    return [
        SceneTrial(
            f"{NAME} {kind}, seed {seed}",
            task.english(200),
            config,
            lasting(TrainingSettings(**{**recipe.settings, "threads": 1, "seed": seed}), steps),
            judged,
        )
        for seed in SEEDS
    ]
