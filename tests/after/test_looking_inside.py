"""Looks inside models: what is switched off and on again, distances that are known, and the report."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from after.experiments import inside
from after.experiments.inside import COLOURS, GPT, looking, rising
from after.task import Texts
from minitransformer.data.preparation import CorpusChoice, PreparedData, TextChoice, prepare
from minitransformer.layers import Attention, FeedForward, SelfAttention
from minitransformer.models import BERTConfig, GPTConfig, TransformerConfig, build_model
from study.experiment import Context, Findings

SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 2, "max_length": 128}
CONFIGS = {
    GPT: GPTConfig(400, **SIZES),
    inside.BERT: BERTConfig(401, mask_id=400, **SIZES),
    inside.TRANSLATOR: TransformerConfig(400, **SIZES),
}
pytestmark = pytest.mark.usefixtures("few_samples")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PreparedData]:
    """A text for each model."""
    folder = tmp_path_factory.mktemp("data")
    english = prepare(folder / "en", TextChoice(vocab_size=400, sentences=100, max_length=128))
    german = prepare(folder / "de", CorpusChoice(vocab_size=400, sentences=100, max_length=128))
    return {GPT: english, inside.BERT: english, inside.TRANSLATOR: german}


@pytest.fixture(params=CONFIGS)
def seen(request: pytest.FixtureRequest, data: dict[str, PreparedData]) -> looking.Subject:
    """An untrained model of each kind with a few sentences; its weights are larger than at first: all count."""
    model = build_model(CONFIGS[request.param], seed=1)
    model.parameters.data *= np.float32(3)
    return looking.subject(model, data[request.param], 12)


def _bias(layer: SelfAttention) -> np.ndarray:
    assert layer.query_key_value.bias is not None
    return layer.query_key_value.bias.data


def test_even_attention_has_the_distance_of_even_attention(seen: looking.Subject) -> None:
    for _, layer in seen.model.named_layers():
        if isinstance(layer, SelfAttention):
            layer.query_key_value.weight.data[:, : layer.query_width] = 0
            _bias(layer)[: layer.query_width] = 0
    for each in looking.distances(seen).values():
        assert np.array(each["heads"]).shape == (2, 2)
        assert np.array(each["heads"]) == pytest.approx(each["even"], abs=2e-3)


def test_the_distance_of_even_attention_is_that_of_the_formula(seen: looking.Subject) -> None:
    """Over T tokens it is (T² − 1) / 3T, and (T − 1) / 4 where only those before are seen."""
    rows = [[row.shape[1] for row in arguments] for arguments in looking._single_rows(seen)]
    sizes = {kind: np.array([row[0 if kind == "encoder" else -1] for row in rows]) for kind in ("encoder", "decoder")}
    means = {"encoder": lambda t: (t**2 - 1) / (3 * t), "decoder": lambda t: (t - 1) / 4}
    for kind, each in looking.distances(seen).items():
        t = sizes[kind]
        assert each["even"] == pytest.approx((t * means[kind](t)).sum() / t.sum(), abs=1e-3)


def test_a_head_that_is_off_says_nothing(seen: looking.Subject) -> None:
    """All heads of a layer off are the same as the layer's values gone, and everything is as before afterwards."""
    before = seen.model.parameters.data.copy()
    layer = next(layer for _, layer in seen.model.named_layers() if isinstance(layer, SelfAttention))
    with looking.zeroed(seen.model, *(looking.head_rows(layer, head) for head in range(2))):
        off = seen.loss()
    assert np.all(seen.model.parameters.data == before)
    weight, bias = layer.query_key_value.weight.data, _bias(layer)
    weight[:, 2 * layer.query_width :] = 0
    bias[2 * layer.query_width :] = 0
    assert seen.loss() == pytest.approx(off, rel=1e-6)


def test_heads_go_in_the_order_of_what_they_cost_on_other_text(
    seen: looking.Subject, data: dict[str, PreparedData]
) -> None:
    """On the text itself, the best order would have been chosen by what it is measured with."""
    kind = next(kind for kind, config in CONFIGS.items() if config == seen.model.config)
    other = looking.subject(seen.model, data[kind], 12, "valid")
    assert not np.array_equal(other.losses(), seen.losses())
    for chosen_on in (seen, other):
        found = looking.heads_off(seen, chosen_on, some=1e-3)
        alone = looking.heads_off(chosen_on, chosen_on, some=1e-3)["single"]
        cheapest = int(np.argmin([each["value"] for each in alone]))
        assert len(found["rises"]) == len(found["single"]) + 1
        assert found["rises"][0] == 0
        assert found["rises"][1] == pytest.approx(found["single"][cheapest]["value"], abs=1e-9)
        share = looking.share_that_can_go(np.array(found["rises"]), 1e-3)
        assert found["can_go"]["value"] == pytest.approx(share)
        assert found["can_go"]["low"] <= share <= found["can_go"]["high"]


def test_every_sublayer_is_tried(seen: looking.Subject) -> None:
    found = looking.sublayers_off(seen)
    layers = [name for name, layer in seen.model.named_layers() if isinstance(layer, Attention | FeedForward)]
    assert [each["layer"] for each in found] == layers
    assert all(each["low"] <= each["value"] <= each["high"] for each in found)


def test_the_lens_ends_with_the_model_itself(seen: looking.Subject) -> None:
    found = looking.lens(seen)
    assert len(found["loss"]) == len(found["agrees"]) == 3
    assert found["loss"][-1] == pytest.approx(seen.loss(), rel=1e-6)
    assert found["agrees"][-1] == {"value": 1, "low": 1, "high": 1}
    assert all(0 <= each["low"] <= each["value"] <= each["high"] <= 1 for each in found["agrees"])


def test_how_many_heads_can_go() -> None:
    assert looking.share_that_can_go(np.array([0, 0.01, 0.02, 0.3, 0.01]), 0.05) == 0.5
    assert looking.share_that_can_go(np.array([0, 0.06]), 0.05) == 0


def test_the_order_of_two_means_is_beyond_what_heads_differ() -> None:
    low, high, between = [1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 1.9, 2.0], [0.5, 2.9, 1.0, 1.9]
    assert rising((low, high)) is True
    assert rising((low, high), (high, low)) is False
    assert rising((low, high), (low, between)) is None


@pytest.fixture(scope="module")
def found(data: dict[str, PreparedData]) -> Findings:
    """Findings of untrained models."""
    models = {}
    for kind, config in CONFIGS.items():
        model = build_model(config, seed=1)
        seen, other = (looking.subject(model, data[kind], 12, split) for split in ("test", "valid"))
        looked = looking.look_inside(seen, other, 0.05)
        models[kind] = {"diverged": None, "seconds": 1.0, "steps": 1, "parameters": config.num_parameters, **looked}
    predictions = inside.predictions_of(inside.NAME)
    return json.loads(json.dumps({"predictions": predictions, "sentences": 12, "models": models}))


def test_it_is_told_and_drawn(found: Findings, tmp_path: Path) -> None:
    inside.draw(found, tmp_path)
    text = "\n\n".join(inside.report(found))
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {path.stem for path in tmp_path.glob("*.png")}
    assert inside.judge(found).keys() == found["predictions"].keys()


def test_whose_first_guess_is_worse_than_an_even_one_is_told(found: Findings) -> None:
    models = {kind: {**each, "lens": {**each["lens"]}} for kind, each in found["models"].items()}
    for kind, loss in ((GPT, 6.8), (inside.BERT, 7.0), (inside.TRANSLATOR, 7.0)):  # ln 1000 = 6.908, ln 1200 = 7.09
        models[kind]["lens"]["loss"] = [loss, 1.0, 0.5]
    text = "\n".join(inside.report({**found, "models": models}))
    assert "In BERT the loss there is worse than that of an even guess" in text
    models[inside.BERT]["lens"]["loss"] = [6.9, 1.0, 0.5]
    assert "even guess" not in "\n".join(inside.report({**found, "models": models}))


def test_trainings_that_diverged_are_told(found: Findings, tmp_path: Path) -> None:
    gone = {"diverged": "the loss of step 1 is nan", "seconds": 0.0}
    one = {**found, "models": {**found["models"], GPT: gone}}
    assert "Diverged: GPT." in "\n".join(inside.report(one))
    inside.draw(one, tmp_path)
    none = {**found, "models": dict.fromkeys(COLOURS, gone)}
    assert inside.report(none) == ["Every training run diverged."]
    inside.draw(none, tmp_path / "none")


def test_the_trials_are_of_three_models() -> None:
    trials = inside.trials(Texts(), 1.0)
    assert [trial.config.kind for trial in trials] == ["gpt", "bert", "transformer"]
    assert all(trial.settings.threads == 1 for trial in trials)
    assert [trial.settings.steps for trial in inside.trials(Texts(), 0.5)] == [360, 440, 700]


@pytest.mark.slow
def test_it_runs_from_nothing(tmp_path: Path) -> None:
    from study.trials.runner import Runner

    runner = Runner(tmp_path, workers=1, say=lambda line: None)
    runner.run(inside.trials(Texts(), 0.001))
    assert set(inside.find(Context(Texts(), 0.001, runner), 4)["models"]) == set(COLOURS)
