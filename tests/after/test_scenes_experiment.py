"""Pictures and words as an experiment: the patches of a thing, the words that name it, and a small run from nothing."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from after.experiments import scenes
from after.experiments.scenes import clip, plan
from after.experiments.scenes.looking import cross_maps, looks, patches_of, words_of
from after.experiments.scenes.plan import NEW_PAIRS, TEST
from after.experiments.scenes.telling import percentages
from after.predictions import is_right
from after.task import Texts
from minitransformer.cli.recipes import Recipe
from minitransformer.data import preparation
from minitransformer.data.scenes import SceneDataset, caption_tokenizer
from minitransformer.grammar.captions import caption
from minitransformer.grammar.scenes import Thing, draw
from minitransformer.inside import attention_maps
from minitransformer.models import CaptionerConfig, CLIPConfig, build_model
from study.experiment import Context
from study.trials.runner import Runner

SHAPE: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 2}
CONFIG = CaptionerConfig(len(caption_tokenizer()), **SHAPE)
TASK = Texts()


def test_the_patches_of_a_thing_are_those_that_are_not_grey_in_its_picture() -> None:
    """All are among those that its box reaches, and the box reaches no row or column without one."""
    scene = SceneDataset("train", 1).scene(4)
    drawn = abs(draw(scene)).max(0).reshape(8, 4, 8, 4).max((1, 3)) > 0
    reached = [patches_of(thing, 32, 4).reshape(8, 8) for thing in scene.things]
    assert not (drawn & ~np.logical_or.reduce(reached)).any()
    square = patches_of(Thing("big", "red", "square", 10, 21), 32, 4).reshape(8, 8)  # 5 to 15 across, 16 to 26 down
    assert [axis.tolist() for axis in np.nonzero(square)] == [[4] * 3 + [5] * 3 + [6] * 3, [1, 2, 3] * 3]


def test_each_word_names_its_thing_and_has_the_map_of_the_place_that_writes_it() -> None:
    scene = SceneDataset("train", 2).scene(1)
    text = caption(scene)
    ids, words = caption_tokenizer().encode(text), text.replace(",", " ,").replace(".", " .").split()
    assert {(words[place], number) for place, part, number in words_of(scene)} == {
        (word, number) for number, thing in enumerate(scene.things) for word in thing.words
    }
    model = build_model(CONFIG)
    whole = attention_maps(model, draw(scene)[None], np.array([[1, *ids]]))
    np.testing.assert_array_equal(cross_maps(model, scene)[1], whole["decoder.layers.1.cross_attention"][0])


def test_a_model_that_looks_everywhere_alike_looks_evenly() -> None:
    model = build_model(CONFIG)
    for name, parameter in model.parameters.named.items():
        if "cross_attention.query" in name:
            parameter.data[...] = 0
    for shares in looks(model, 3).values():
        np.testing.assert_allclose(shares["own"], np.full((2, 2), shares["even"]), rtol=1e-5)
        np.testing.assert_allclose(shares["others"], np.full((2, 2), shares["others even"]), rtol=1e-5)


def made_up_run(true: float, new: float, own: float, diverged: str | None = None) -> dict[str, Any]:
    right = {
        split: percentages(np.array([[n < 100 * share] * 4 + [n < 90 * share] for n in range(100)]))
        for split, share in ((TEST, true), (NEW_PAIRS, new))
    }
    part = {"own": [[0.2, own]], "others": [[0.2, 0.1]], "even": 0.1, "others even": 0.15}
    curve = [{"step": step, "loss": 1.0, "perplexity": 2.0, "seconds": 1.0} for step in (1, 2)]
    example = {"scene": 1, "words": ["red", "ring"], "maps": [[1 / 64] * 64] * 2}
    run = {"right": right, "looks": dict.fromkeys(("size", "colour", "shape"), part), "example": example}
    return {
        "steps": 10,
        "scenes": 320,
        "flops": 1.0,
        "seconds": 1.0,
        "parameters": 9,
        "diverged": diverged,
        "curve": curve,
        **run,
    }


def found_for(*runs: dict[str, Any]) -> dict[str, Any]:
    clips = [
        {"steps": 10, "scenes": 1280, "diverged": None, "found": {TEST: [each] * 4, NEW_PAIRS: [each - 60] * 4}}
        for each in (74.0, 75.0, 76.0)
    ]
    return {"predictions": scenes.predictions_of("scenes"), "runs": list(runs), "clips": clips}


def test_shares_are_told_and_predictions_judged(tmp_path: Path) -> None:
    found = found_for(made_up_run(0.91, 0.6, 0.7), made_up_run(0.92, 0.62, 0.71), made_up_run(0.93, 0.61, 0.72))
    text = "\n\n".join(scenes.report(found))
    assert "| new scenes | 92.0 (89.5 to 94.5) |" in text
    assert "saw 1,280 scenes in 10 steps" in text
    assert "| with a pair that no training shows | 15.0 (12.5 to 17.5) | 15.0" in text
    outcomes = scenes.judge(found)
    assert {name: is_right(found["predictions"][name], each) for name, each in outcomes.items()} == {
        "true": True,
        "relation": True,
        "new pairs": False,
        "habit": False,
        "gap": True,
        "looks": True,
        "uniform": True,
        "found": True,
        "found back": True,
        "found new pairs": False,
        "found gap": False,
    }
    scenes.draw(found, tmp_path)
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {path.stem for path in tmp_path.glob("*.png")}


def test_a_run_that_diverged_is_told(tmp_path: Path) -> None:
    found = found_for(made_up_run(0.9, 0.9, 0.5, "the loss is nan"))
    assert scenes.report(found) == ["1 training runs diverged: nothing can be compared. The first: the loss is nan."]
    assert {outcome.right for outcome in scenes.judge(found).values()} == {None}
    scenes.draw(found, tmp_path)
    assert not list(tmp_path.iterdir())
    found = found_for(*[made_up_run(0.9, 0.9, 0.5)] * 2)
    found["clips"][0] |= {"diverged": "the loss is inf", "found": {}}
    assert "1 trainings of CLIP diverged. The first: the loss is inf." in scenes.report(found)
    assert {outcome.right for outcome in scenes.judge(found).values()} == {None}


def test_the_last_batch_of_an_epoch_holds_fewer_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SCENES", 300)
    trial = plan.trials_of("clip", (), TASK, 20 / 1200)[0]
    batches = SceneDataset("train", 300).batches(trial.settings.tokens_per_batch, None, trial.config)
    rows = [batch.num_sentences for epoch in range(7) for batch in batches.epoch(epoch)]
    assert rows[:3] == [128, 128, 44]
    assert trial.settings.steps == 20
    assert trial.scenes == sum(rows[:20])


def test_a_search_is_told_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    cosines = np.array([[0.9, 0.1, 0.2], [0.8, 0.7, 0.9], [0.1, 0.1, 0.5]])  # text 1 is found, but not for picture 1
    monkeypatch.setattr(clip.Matcher, "similarities", lambda *given: cosines)
    model: Any = build_model(CLIPConfig(len(caption_tokenizer()), **SHAPE))
    found = clip.Finding(TEST, 3).answer(model, None)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.statistics, [[1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 0, 1]])


@pytest.mark.slow
@pytest.mark.usefixtures("few_samples")
def test_it_runs_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "GRAMMAR_VALIDATION", 30)
    monkeypatch.setattr("study.trials.run.CHECKPOINTS", 2)
    settings = {"steps": 4, "tokens_per_batch": 256, "warmup_steps": 2, "peak_lr": 1e-2, "label_smoothing": 0.0}
    model = {"vocab_size": len(caption_tokenizer()), **SHAPE}
    monkeypatch.setitem(plan.RECIPES, "captioner", Recipe(("captions",), model, settings))
    matching = {"vocab_size": len(caption_tokenizer()), "patch_size": 8, **SHAPE}
    monkeypatch.setitem(plan.RECIPES, "clip", Recipe(("matches",), matching, settings | {"threads": 1}))
    monkeypatch.setattr(plan, "SEEDS", (0, 1))
    monkeypatch.setattr(clip, "JUDGED", 4)
    monkeypatch.setattr(clip.Finding.__init__, "__defaults__", (4, False))
    monkeypatch.setattr(plan.Describing.__init__, "__defaults__", (4, False))
    monkeypatch.setattr(scenes, "LOOKED_AT", 2)
    runner = Runner(tmp_path, workers=1, say=lambda line: None)
    runner.run(scenes.trials(TASK, 1.0))
    found = json.loads(json.dumps(scenes.find(Context(TASK, 1.0, runner))))
    assert [np.shape(run["right"][NEW_PAIRS]["three"]) for run in found["runs"]] == [(5,), (5,)]
    assert [run["steps"] for run in found["runs"]] == [4, 4]
    assert [np.shape(run["found"][NEW_PAIRS]) for run in found["clips"]] == [(4,), (4,)]
    assert np.shape(found["runs"][0]["looks"]["shape"]["own"]) == (2, 2)
    assert scenes.report(found)[0].startswith("A captioner reads")
