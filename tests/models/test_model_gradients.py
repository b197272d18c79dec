"""The whole model, of every kind: its loss, its logits, the gradient of every parameter, twenty steps of training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.model_cases import BASELINES, STREAM, Pairs, config, every_baseline, every_model, model_of, moved, ragged
from support.prove import Proof
from support.torch_twins import TorchModel

from minitransformer.gradcheck import error, numerical_gradient
from minitransformer.layers import DropoutStream
from minitransformer.models import EncoderDecoder
from minitransformer.ops import numpy_ops
from minitransformer.training.optimizer import Adam, noam

TOLERANCE = 1e-9

configurations = st.fixed_dictionaries(
    {
        "num_heads": st.sampled_from([1, 2, 3]),
        "d_k": st.sampled_from([None, 1, 4]),
        "d_v": st.sampled_from([None, 1, 3]),
        "num_layers": st.integers(1, 2),
        "num_decoder_layers": st.sampled_from([None, 1, 2]),
        "norm_first": st.booleans(),
        "positions": st.sampled_from(["sinusoidal", "learned"]),
        "window": st.sampled_from([None, 0, 2]),
        "dropout": st.sampled_from([0.0, 0.3]),
        "attention_dropout": st.sampled_from([0.0, 0.4]),
        "layernorm_eps": st.sampled_from([1e-5, 1e-2]),
    }
)
LEARNED = {"positions": "learned"}
EVERYTHING = {
    "num_layers": 2, "num_decoder_layers": 1, "d_k": 4, "d_v": 1, "window": 2, "dropout": 0.3,
    "attention_dropout": 0.4, **LEARNED,
}  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> Pairs:
    """One to three sentences; a source may have no token at all, a target only its end."""
    size = draw(st.integers(1, 3))
    source = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size).filter(any))
    target = draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    return ragged(source, target, seed=draw(st.integers(0, 1000)), longer=draw(st.integers(0, 1)))


def proved_beside_its_twin(model: EncoderDecoder, twin: TorchModel, proof: Proof) -> None:
    """The gradient of every parameter is what autograd left."""
    expected = twin.gradients()
    assert expected.keys() == model.parameters.named.keys()
    for name, gradient in expected.items():
        worst = error(model.parameters.named[name].grad, gradient)
        proof.record(type(model).__name__, "autograd", worst)
        assert worst <= TOLERANCE, name


def prove_model(model: EncoderDecoder, batch: Pairs, smoothing: float, dropping: bool, proof: Proof) -> None:
    """The loss and the logits, with every gradient of each."""
    stream = STREAM if dropping else None
    loss, cache = model.loss(*batch, label_smoothing=smoothing, dropout=stream)
    model.loss_backward(0.7, cache)
    twin = TorchModel(model)
    expected = twin.loss(*batch, label_smoothing=smoothing, stream=stream)
    (0.7 * expected).backward()
    assert error(loss, expected.item()) <= TOLERANCE
    proved_beside_its_twin(model, twin, proof)

    model.parameters.zero_grad()
    logits, cache = model.forward(batch.source, batch.target_in, stream)
    dlogits = np.random.default_rng(0).standard_normal(logits.shape)
    model.backward(dlogits, cache)
    twin = TorchModel(model)
    outputs = twin.forward(batch.source, batch.target_in, stream)
    outputs.backward(torch.tensor(dlogits))
    assert error(logits, outputs.detach()) <= TOLERANCE
    proved_beside_its_twin(model, twin, proof)


drawn = {"batch": batches(), "smoothing": st.sampled_from([0.0, 0.1]), "dropping": st.booleans()}


@example(options={"num_heads": 1}, batch=ragged([1], [1]), smoothing=0.0, dropping=False)
@example(options={"num_heads": 4, "d_k": 2, "d_v": 3}, batch=ragged([3, 1], [2, 4]), smoothing=0.0, dropping=False)
@example(options={"d_model": 5, "num_heads": 1, **LEARNED}, batch=ragged([3, 1], [2, 4]), smoothing=0.0, dropping=False)
@example(options={"d_model": 2, "num_heads": 1, "d_ff": 1}, batch=ragged([3], [2]), smoothing=0.0, dropping=False)
@example(options=EVERYTHING, batch=ragged([0, 4, 2], [3, 1, 4]), smoothing=0.1, dropping=True)
@example(options=EVERYTHING | {"norm_first": True}, batch=ragged([0, 4], [3, 1]), smoothing=0.1, dropping=True)
@settings(max_examples=30)
@given(options=configurations, **drawn)
def test_a_transformer_and_every_gradient(proof: Proof, options, batch, smoothing, dropping):
    prove_model(model_of(**options), batch, smoothing, dropping, proof)


@every_baseline
@example(batch=ragged([0, 4, 2], [3, 1, 4]), smoothing=0.1, dropping=True)
@settings(max_examples=6)
@given(**drawn)
def test_a_baseline_and_every_gradient(proof: Proof, config, batch, smoothing, dropping):
    prove_model(moved(config), batch, smoothing, dropping, proof)


ALIKE = "tanh, attention", "lstm", "convolutional, wide", "convolutional, narrow"


def each_of(cases: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Baselines whose parts are in others too are slow."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize("name", [pytest.param(each, marks=[slow] * (each in ALIKE)) for each in cases])


FULL = {"everything": config(**EVERYTHING), "everything, pre-norm": config(**EVERYTHING, norm_first=True), **BASELINES}


@each_of(FULL)
def test_finite_differences_of_every_parameter(proof: Proof, name):
    """A few random coordinates of each, with everything on; `check` measures all."""
    model, batch, rng = moved(FULL[name]), ragged([4, 2], [3, 4]), np.random.default_rng(0)
    _, cache = model.loss(*batch, 0.1, STREAM)
    model.loss_backward(1.0, cache)
    for place, parameter in model.parameters.named.items():
        checked = rng.permutation(parameter.data.size)[:3]
        values = parameter.data.reshape(-1)
        before = values[checked]

        def loss(moved: np.ndarray, values: np.ndarray = values, checked: np.ndarray = checked) -> float:
            values[checked] = moved
            return model.loss(*batch, 0.1, STREAM, with_grad=False)[0]

        worst = error(parameter.grad.reshape(-1)[checked], numerical_gradient(loss, before))
        values[checked] = before
        proof.record(type(model).__name__, "finite differences", worst)
        assert worst <= 1e-6, place


LEARNING = {"two layers": config(num_layers=2, positions="learned", norm_first=True), **BASELINES}


@pytest.mark.parametrize("config", LEARNING.values(), ids=list(LEARNING))
def test_every_parameter_learns(config):
    """No gradient is zero by mistake: only a key's bias, which moves all of a query's scores alike, has none."""
    model = moved(config)
    _, cache = model.loss(*ragged([4, 3], [4, 4]))
    model.loss_backward(1.0, cache)
    for name, parameter in model.parameters.named.items():
        gradient = parameter.grad
        if name.endswith("key_value.bias"):  # of query, key and value, or of key and value
            *query, key, value = np.split(gradient, 3 if "query" in name else 2)
            assert abs(key).max() < 1e-15
            gradient = np.concatenate([*query, value])
        assert abs(gradient).max() > 1e-6, name


@every_model
def test_no_target_at_all_gives_no_loss_and_no_gradient(config):
    model, batch = moved(config), ragged([3, 2], [2, 3])
    loss, cache = model.loss(batch.source, batch.target_in, np.zeros_like(batch.target_out), 0.1)
    model.loss_backward(1.0, cache)
    assert loss == 0
    np.testing.assert_array_equal(model.parameters.grad, 0)


# --- Training --------------------------------------------------------------------------------------------------

WIDE = {"num_layers": 2, "d_model": 8, "positions": "learned", "dropout": 0.2, "attention_dropout": 0.1}
TRAINED = {
    "post-norm": (config(**WIDE), 0.0, lambda step: noam(step, 8, warmup_steps=10)),
    "pre-norm": (config(**WIDE, norm_first=True), 0.0, lambda step: noam(step, 8, warmup_steps=10)),
    **{name: (config, 0.3, lambda step: 0.01) for name, config in BASELINES.items()},
}
"""A model, how far it is moved from where it starts, and its learning rate at each step: here the paper's warm-up."""


@each_of(TRAINED)
def test_twenty_steps_follow_torch_s_adam(name):
    """Tied, ragged batches, dropout everywhere, smoothing: losses and parameters."""
    config, by, rate = TRAINED[name]
    model = moved(config, seed=1, by=by)
    start = model.parameters.data.copy()
    twin = TorchModel(model)
    ours = Adam(model.parameters, numpy_ops)
    theirs = torch.optim.Adam(twin.weights.values(), betas=(0.9, 0.98), eps=1e-9)
    rng = np.random.default_rng(0)
    losses = []
    for step in range(1, 21):
        batch = ragged(rng.integers(1, 6, 3).tolist(), rng.integers(1, 6, 3).tolist(), seed=step)
        dropout = DropoutStream(seed=5, step=step)

        model.parameters.zero_grad()
        loss, cache = model.loss(*batch, 0.1, dropout)
        model.loss_backward(1.0, cache)
        ours.step(rate(step))

        theirs.zero_grad()
        expected = twin.loss(*batch, 0.1, dropout)
        expected.backward()
        theirs.param_groups[0]["lr"] = rate(step)
        theirs.step()

        losses.append(loss)
        assert error(loss, expected.item()) <= 1e-8
        for place, value in model.parameters.state_dict().items():
            assert error(value, twin.weights[place].detach()) <= 1e-8, place
    assert error(model.parameters.data, start) > 0.05  # it did move
    if config.kind == "transformer":
        assert losses[-1] < losses[0] - 0.3


SIZES = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2, "dropout": 0.1}
SINGLE = {
    "post-norm": (config(**SIZES), 0.3),
    "pre-norm": (config(**SIZES, norm_first=True), 0.3),
    **{name: (replace(config, d_model=32), 0.1) for name, config in BASELINES.items()},
}
"""A model, and how far its parameters are moved from where they start: where attention's scores are large, whoever
computes them, one rounding is as good as all the rest."""


@each_of(SINGLE)
def test_float32_is_as_accurate_as_torch_s(name):
    """Error against float64 at most twice that of PyTorch's float32, each the median over eight models and batches.

    Logits, and the gradients of at least 1,000 elements. The loss is one number, whose rounding is luck. So is a ReLU's
    gate: where its input is 1e-6, either float32 may open what float64 shuts, and gradients move by 1e-3; hence the
    median.
    """
    ours, theirs, (config, by) = [], [], SINGLE[name]
    for seed in range(8):
        model = moved(replace(config, vocab_size=200), "float32", seed, by)
        batch = ragged([12, 9, 14, 7], [10, 14, 8, 12], vocab_size=200, seed=seed)
        stream = DropoutStream(seed, step=1)
        loss, cache = model.loss(*batch, 0.1, stream)
        model.loss_backward(1.0, cache)
        logits, _ = model.forward(batch.source, batch.target_in, stream)
        gradients = {name: p.grad for name, p in model.parameters.named.items() if p.grad.size >= 1000}

        results = []
        for dtype in (torch.float32, torch.float64):
            twin = TorchModel(model, dtype)
            value = twin.loss(*batch, 0.1, stream)
            value.backward()
            their_logits = twin.forward(batch.source, batch.target_in, stream).detach().numpy()
            results.append([their_logits, *(twin.gradients()[name] for name in gradients)])
        single, truth = results
        assert error(loss, value.item()) <= 1e-6
        ours.append([error(a, b) for a, b in zip([logits, *gradients.values()], truth, strict=True)])
        theirs.append([error(a, b) for a, b in zip(single, truth, strict=True)])
    assert (np.median(ours, axis=0) <= 2 * np.median(theirs, axis=0)).all()
