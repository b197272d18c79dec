"""A captioner in JavaScript against NumPy: what it says of a picture, and where its words look."""

import re
from typing import Any

import numpy as np
import pytest
from support.explorer_engine import Call, Result, bytes_tokenizer, needs_node, payload_of, relative_error, run_engine

from minitransformer.decoding import beam_search
from minitransformer.decoding.describer import start_of
from minitransformer.explorer.pictures import example_pictures
from minitransformer.explorer.storage import StorageLoss, stored_as_int8
from minitransformer.inside import attention_maps
from minitransformer.models import Captioner, CaptionerConfig

VOCAB = 270
SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 24, "num_layers": 2, "max_length": 60}
TARGET = [1, 77, 260, 31, 240]
STORAGES = {"float32": None, "int8": StorageLoss(1, 0.0, 0.0, 1)}


def made(dtype: str = "float32", **options: Any) -> Captioner:
    """A model with weights at which every part matters, and most what a word sees."""
    model, rng = Captioner(CaptionerConfig(VOCAB, **{**SIZES, **options}), dtype=dtype), np.random.default_rng(11)
    for name, parameter in model.parameters.named.items():
        noise = rng.normal(size=parameter.value.shape)
        parameter.value[...] = 1 + 0.3 * noise if "gamma" in name else noise * (1 if "cross" in name else 0.35)
    return model


def patch_gradients(model: Captioner, images: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the gradient of log P(31) after position 3 with respect to the vectors of the patches."""
    found: list[np.ndarray] = []
    model.patches.backward = lambda dout, cache: found.append(dout[0])
    logits, cache = model.forward(images, target)
    dlogits = np.zeros_like(logits)
    dlogits[0, 3] = -np.exp(model.ops.log_softmax(logits)[0, 3])
    dlogits[0, 3, 31] += 1
    model.backward(dlogits, cache)
    return found[0]


@needs_node
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("patch_size", [4, 16])
def test_the_engine_computes_what_numpy_computes(storage: str, patch_size: int) -> None:
    model = made(patch_size=patch_size, num_decoder_layers=1)
    pictures = example_pictures(3)
    content = payload_of(model, bytes_tokenizer(VOCAB), examples=pictures, loss=STORAGES[storage])
    if storage == "int8":
        model = stored_as_int8(model)
    images, target = np.stack([each.pixels for each in pictures]), np.array([TARGET] * 3)
    exact = made("float64", patch_size=patch_size, num_decoder_layers=1)
    exact.parameters.data[...] = model.parameters.data
    logits, _ = exact.forward(images, target)
    maps = attention_maps(exact, images, target)
    assert np.abs(logits[0] - logits[1]).max() > 0.1, "a picture matters"

    sources = [each["ids"] for each in run_engine(content, [Call("encodeSource", [each.name]) for each in pictures])]
    calls = [Call("trace", [{"source": source, "target": TARGET}]) for source in sources]
    *traces, gradient = run_engine(content, [*calls, Call("gradient", [Result(1), 3, 31])])
    assert relative_error(gradient["source"]["vectors"], patch_gradients(exact, images[1:2], target[:1])) <= 1e-4
    for number, trace in enumerate(traces):
        np.testing.assert_allclose(trace["logits"], logits[number], rtol=0, atol=1e-4)
        for place, weights in maps.items():
            stack, _, layer, kind = place.split(".")
            sublayers = trace[stack]["layers"][int(layer)]["sublayers"]
            heads = next(each["attention"]["heads"] for each in sublayers if each["kind"] == kind)
            found = np.stack([head["weights"] for head in heads])
            np.testing.assert_allclose(found, weights[number], rtol=0, atol=1e-5)

    for beams in (1, 3):
        expected = beam_search(exact, images, beams, 0.6, start=start_of(exact.config, 3))
        assert len({tuple(best.ids) for (best,) in expected}) > 1, "captions differ"
        start = [{"source": source, "target": [1]} for source in sources]
        calls = [Call("search", [each, {"beams": beams}], ["result.hypotheses.0"]) for each in start]
        for (found,), (best,) in zip(run_engine(content, calls), expected, strict=True):
            assert (found["ids"], found["ended"]) == (best.ids, best.ended)
            assert found["score"] == pytest.approx(best.score, abs=1e-4)


def test_captioners_that_the_page_cannot_show_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"image_size": 16}, "the pictures have shape (3, 32, 32), but the model takes (3, 16, 16)"),
        ({"patch_size": 1}, "the model reads 1024 patches: the explorer shows 256 at most"),
    ]
    for options, says in cases:
        with pytest.raises(ValueError, match=re.escape(says)):
            payload_of(made(**options), bytes_tokenizer(VOCAB))
