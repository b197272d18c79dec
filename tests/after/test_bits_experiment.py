"""The cost of few bits: rounding in groups of any size, the error by channel, and the report."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from after.experiments import bits
from after.experiments.bits import GPT, LEVELS, SMOLLM2
from after.experiments.bits.rounding import Matrices, Way, channels, simulated
from after.experiments.inside.looking import Subject
from after.task import Texts
from minitransformer.data.text import TextDataset
from minitransformer.models import GPT as Model
from minitransformer.models import GPTConfig
from minitransformer.ops import dequantize, quantize
from study.experiment import Findings
from study.trials.text_models import text_dataset

pytestmark = pytest.mark.usefixtures("few_samples")
CONFIG = GPTConfig(
    60, d_model=32, num_heads=2, d_ff=64, num_layers=2, max_length=16, dropout=0.0, attention_dropout=0.0
)
NAME = "decoder.layers.1.feed_forward.expand.weight"


@pytest.fixture
def seen() -> Subject:
    """An untrained model whose second feed-forward network reads one channel thirty times as large as the others."""
    model, rng = Model(CONFIG, seed=0), np.random.default_rng(1)
    model.parameters.data *= np.float32(3)
    model.parameters.named["decoder.layers.1.feed_forward_norm.gamma"].data[5] *= 30
    text = TextDataset.from_lines(rng.integers(3, 60, 12) for _ in range(20))
    return Subject(model, list(text_dataset(CONFIG, text).batches(64, None, CONFIG).epoch(0)))


def test_what_is_simulated_has_the_levels_of_the_package() -> None:
    weight = np.random.default_rng(0).standard_normal((96, 5), dtype=np.float32)
    for group in (16, 32, 96):
        np.testing.assert_array_equal(simulated(weight, 4, group), dequantize(quantize(weight, 4, group)))
    three, taken = Way(3, None, False).rounded(weight)
    assert [len(np.unique(column)) for column in three.T] == [8] * 5
    assert abs(three - weight).max() <= (np.ptp(weight, axis=0) / 14 + 2e-3).max()
    assert taken == 96 * 5 * 3 / 8 + 5 * 4


def test_few_bits_take_what_the_package_says_and_go_again(seen: Subject) -> None:
    matrices, before, losses = Matrices.of(seen.model), seen.model.parameters.data.copy(), seen.losses()
    with matrices.rounded(Way(4, 32, False), {NAME: np.array([5, 7])}) as taken:
        assert taken == CONFIG.weight_bytes(bits=4)
        changed = abs(matrices.maps[NAME] - Matrices.of(Model(CONFIG, seed=0)).maps[NAME] * np.float32(3)).max(1) > 0
        assert [i for i in range(32) if not changed[i]] == [5, 7]
        assert not np.array_equal(seen.losses(), losses)
    few = seen.model.quantized(4)
    with matrices.rounded(Way(4, 32, False)):
        np.testing.assert_allclose(seen.losses(), Subject(few, seen.batches).losses(), rtol=1e-5)
    assert seen.model.parameters.data.tobytes() == before.tobytes()


def test_the_parts_of_the_error_are_its_whole(seen: Subject) -> None:
    """For one map, from its inputs: what is wrong of its outputs, times what one channel alone makes wrong."""
    found = channels(Matrices.of(seen.model), seen.batches, Way(3, 32, False))
    assert len(found) == 8  # four maps in each of two layers, no table
    assert all(each.share.sum() == pytest.approx(1) for each in found.values())
    layer, inputs = seen.model.decoder.layers[1].feed_forward.expand, []
    inner = layer.forward
    layer.forward = lambda x: inputs.append(x.reshape(-1, 32)) or inner(x)
    seen.losses()
    x, weight = np.concatenate(inputs).astype(float), layer.weight.data
    wrong = (simulated(weight, 3, 32) - weight).astype(float)
    whole = x @ wrong
    shares = [float((np.outer(x[:, i], wrong[i]) * whole).sum()) for i in range(32)]
    np.testing.assert_allclose(found[NAME].share, np.divide(shares, (whole**2).sum()), atol=1e-5)
    np.testing.assert_allclose(found[NAME].size, np.sqrt((x**2).mean(0)), rtol=1e-5)
    assert found[NAME].size.argmax() == 5
    assert found[NAME].share[5] > 0.5


@pytest.fixture
def found(seen: Subject) -> Findings:
    model = bits.look(seen, seen, (16, 32, None))
    return json.loads(json.dumps({"predictions": bits.predictions_of("bits"), "models": {GPT: model}}))


def test_it_is_told_and_drawn(found: Findings, tmp_path: Path) -> None:
    assert found["models"][GPT]["worst"]["layer"] == NAME
    assert list(found["models"][GPT]["ways"]) == list(LEVELS)
    bits.draw(found, tmp_path)
    text = "\n\n".join(bits.report(found))
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {path.stem for path in tmp_path.glob("*.png")}
    assert bits.map_name(NAME) == "layer 2, expand"
    assert "SmolLM2 is left out" in text
    assert bits.judge(found)["SmolLM2, held"].right is None


def test_a_published_model_is_told_beside_it(found: Findings, tmp_path: Path) -> None:
    model = found["models"][GPT]
    ways = {name: [*each, {**each[0], "group": 64}] for name, each in model["ways"].items()}
    both = {**found, "models": {GPT: model, SMOLLM2: {**model, "ways": ways}}}
    bits.draw(both, tmp_path)
    text = "\n\n".join(bits.report(both))
    assert "nothing by construction" in text
    assert "left out" not in text


def test_the_gpt_is_the_one_with_which_training_on_rewards_begins() -> None:
    assert [trial.name for trial in bits.trials(Texts(), 0.5)] == ["rewards base"]
