"""Weights of a model's loss: those of its targets, by which a model is trained on rewards."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.model_cases import STREAM, config, moved

import kernels
from minitransformer.gradcheck import error
from minitransformer.models import IGNORED, GPTConfig, MarianConfig, build_model
from minitransformer.ops import cross_entropy_backward, cross_entropy_forward, numpy_ops

SMALL: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 7, "num_layers": 1, "max_length": 16, "dropout": 0.3}
GPT = GPTConfig(11, **SMALL)
MODELS = {
    "gpt": GPT,
    "gpt, softcap": replace(GPT, logits_softcap=2.0),
    "gpt, untied": replace(GPT, tied=False),
    "transformer": config(dropout=0.3),
    "marian, with a bias": MarianConfig(11, 4, 2, 4, num_layers=1),
}
RNG = np.random.default_rng(0)
IDS, TARGETS = RNG.integers(3, 11, (2, 3, 5))
TARGETS[RNG.random((3, 5)) < 0.3] = IGNORED
WEIGHTS = np.where(TARGETS == IGNORED, np.nan, RNG.standard_normal((3, 5)))


def inputs_of(model: Any) -> tuple:
    return (IDS,) if isinstance(model.config, GPTConfig) else (IDS, IDS)


@pytest.mark.parametrize("kind", MODELS)
def test_the_loss_is_that_of_weighted_targets(kind):
    model = moved(MODELS[kind])
    inputs = inputs_of(model)
    loss, cache = model.loss(*inputs, TARGETS, 0.1, STREAM, weights=WEIGHTS)
    model.loss_backward(0.7, cache)
    found = model.parameters.grad.copy()
    model.parameters.zero_grad()
    logits, cache = model.forward(*inputs, dropout=STREAM)
    expected, loss_cache = cross_entropy_forward(logits, TARGETS, 0.1, IGNORED, weights=WEIGHTS)
    model.backward(cross_entropy_backward(0.7, loss_cache), cache)
    assert error(loss, expected) <= 1e-12
    assert error(found, model.parameters.grad) <= 1e-12
    alone, _ = model.loss(*inputs, TARGETS, 0.1, STREAM, with_grad=False, weights=WEIGHTS)
    assert error(alone, loss) <= 1e-12


@pytest.mark.parametrize("kind", ["gpt", "gpt, softcap"])
def test_weights_stay_exact_beside_narrow_activations(kind):
    """Weights of any type are taken; bfloat16 would round them by a 500th."""
    narrow, reference = (build_model(MODELS[kind], ops) for ops in (kernels.torch_ops("cpu", "bfloat16"), numpy_ops))
    weights = np.full((3, 5), 1.001)
    losses = [float(narrow.loss(IDS, TARGETS, weights=each)[0]) for each in (weights, np.ones((3, 5), int), None)]
    assert losses[0] == pytest.approx(1.001 * losses[1], rel=1e-6)
    assert losses[1] == pytest.approx(losses[2], rel=1e-6)
    assert losses[2] == pytest.approx(float(reference.loss(IDS, TARGETS)[0]), rel=2e-2)


@pytest.mark.parametrize("kind", ["gpt", "transformer"])
def test_weights_of_another_shape_are_refused(kind):
    model = moved(MODELS[kind])
    with pytest.raises(ValueError, match=r"^weights has shape \(3, 1\), expected \(3, 5\)$"):
        model.loss(*inputs_of(model), TARGETS, weights=np.ones((3, 1)))
