"""The attention weights that pictures show."""

import numpy as np
import pytest
from support.model_cases import model_of, ragged

from minitransformer.models import Transformer
from minitransformer.ops import attention_weights, numpy_ops
from minitransformer.probe import Call, probe

SOURCE_LENGTHS, TARGET_LENGTHS = [4, 2], [3, 5]
BATCH = ragged(SOURCE_LENGTHS, TARGET_LENGTHS)
SHAPES = {"encoder": [(2, 3, 4, 4)] * 3, "decoder": [(2, 3, 5, 5)] * 2, "cross": [(2, 3, 5, 4)] * 2}


@pytest.fixture(params=[False, True], ids=["post-norm", "pre-norm"])
def model(request: pytest.FixtureRequest) -> Transformer:
    return model_of(num_heads=3, num_layers=3, num_decoder_layers=2, norm_first=request.param)


def test_they_are_the_weights_that_the_forward_attends_with(model):
    """Layer by layer, seen where the op is called: the encoder's, then each decoder layer's own and its cross one."""
    calls: list[Call] = []
    watched = model.replica(probe(numpy_ops, calls.append))
    watched.forward(BATCH.source, BATCH.target_in)
    maps = model.attention_maps(BATCH.source, BATCH.target_in)
    assert {kind: [weights.shape for weights in layers] for kind, layers in maps.items()} == SHAPES
    seen = []
    for call in (call for call in calls if call.op == "attention"):
        options = {name: call.options[name] for name in ("causal", "window", "key_mask") if name in call.options}
        seen.append(attention_weights(*call.arguments[:2], **options))
    expected = {"encoder": seen[:3], "decoder": seen[3::2], "cross": seen[4::2]}
    for kind, layers in expected.items():
        for weights, of_layer in zip(maps[kind], layers, strict=True):
            np.testing.assert_array_equal(weights, of_layer)
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-12)  # every query shares out one whole


def test_a_window_is_a_band():
    maps = model_of(window=1, num_heads=3).attention_maps(BATCH.source, BATCH.target_in)
    distance = abs(np.subtract.outer(np.arange(4), np.arange(4)))
    np.testing.assert_array_equal(maps["encoder"][0][0] > 0, np.broadcast_to(distance <= 1, (3, 4, 4)))
    assert (maps["cross"][0][0] > 0).all()  # the memory has no distance
