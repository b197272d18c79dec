"""The cost of a token: counted, timed on a state like the one that decoding leaves, and told."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from after.experiments import decoding
from after.experiments.decoding import COLOURS, FULL, GROUPED, LINEAR, Sizes, filled, kept_bytes, moved_bytes
from after.task import Texts
from minitransformer.models import GPT
from study.experiment import Context, Findings
from study.trials.runner import Runner

TINY = Sizes(
    d_model=16,
    num_heads=4,
    kv_heads=2,
    num_layers=2,
    vocab_size=30,
    lengths=(4, 8, 64),
    shown=(8, 64),
    rounds=2,
    steps=2,
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    context = Context(Texts(), 1.0, Runner(tmp_path_factory.mktemp("work")))
    return json.loads(json.dumps(decoding.find(context, TINY)))


@pytest.mark.parametrize("kind", COLOURS)
def test_the_state_is_like_the_one_that_reading_leaves(kind: str) -> None:
    model = GPT(TINY.config(kind))
    read, drawn = model.start_decoding(np.ones((1, 8), np.int64)), filled(model, 8)
    assert drawn.position == read.position == 8
    for ours, theirs in ((drawn.cache.rows, read.cache.rows), (drawn.cache.grown, read.cache.grown)):
        assert ours.keys() == theirs.keys()
    for name, arrays in read.cache.rows.items():
        assert [each.shape for each in arrays] == [each.shape for each in drawn.cache.rows[name]]
    for name, (keys, _, first) in read.cache.grown.items():
        ours = drawn.cache.grown[name]
        assert ours[0][:, :, :8].shape == keys[:, :, :8].shape
        assert ours[2] == first


@pytest.mark.parametrize("kind", COLOURS)
def test_what_is_kept_is_what_the_state_holds(kind: str) -> None:
    model = GPT(TINY.config(kind))
    state = filled(model, 8)
    held = sum(each[:, :, :8].nbytes for keys, values, _ in state.cache.grown.values() for each in (keys, values))
    held += sum(each.nbytes for arrays in state.cache.rows.values() for each in arrays)
    assert held == kept_bytes(model.config, 8)
    weights = model.parameters.data.nbytes
    assert moved_bytes(model.config, 8) == weights + (2 * held if kind == LINEAR else held)


def test_operations_and_bytes_are_equal_one_beyond_the_heads_width(found: Findings) -> None:
    """D = 4, and full attention has costs D + 1 = 5 times those of a position."""
    assert found["equal"] == {"operations": 5, "bytes": 5}
    assert moved_bytes(TINY.config(FULL), 5) == moved_bytes(TINY.config(LINEAR), 5)


def test_grouped_heads_keep_their_share() -> None:
    kept = [kept_bytes(TINY.config(kind), 64) for kind in (FULL, GROUPED, LINEAR)]
    assert kept[0] == 2 * kept[1] > kept[2]
    assert kept_bytes(TINY.config(LINEAR), 8) == kept[2]


def test_every_length_is_timed_in_every_round(found: Findings) -> None:
    for kind in COLOURS:
        each = found["kinds"][kind]
        assert np.array(each["rounds"]).shape == (2, 3)
        assert each["best"] == np.min(each["rounds"], axis=0).tolist()


def test_it_is_told_and_drawn(found: Findings, tmp_path: Path) -> None:
    decoding.draw(found, tmp_path)
    text = "\n\n".join(decoding.report(found))
    shown = set(re.findall(r"pictures/(.+?)\.png", text))
    assert shown == {path.stem for path in tmp_path.glob("*.png")} == {"decoding-cost"}
    assert "**Predicted before, and what came**" in text
    assert "5 by operations, 5 by bytes, D = 4" in text


def test_lines_that_never_cross_are_told(found: Findings) -> None:
    never = {"value": None, "rounds": [None, None]}
    changed = {**found, "crossings": {**found["crossings"], "linear": never}}
    assert "at no n up to 64" in "\n".join(decoding.report(changed))


def test_noise_that_hides_the_rise_is_told(found: Findings) -> None:
    kinds = {**found["kinds"], FULL: {**found["kinds"][FULL], "best": [1e-3] * len(TINY.lengths)}}
    text = "\n\n".join(decoding.report({**found, "kinds": kinds}))
    assert "Between n = 4 and n = 64 noise hides" in text
    assert "10⁹ operations" not in text
