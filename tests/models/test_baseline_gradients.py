"""Recurrent and convolutional models: the loss, the logits and the gradient of every parameter."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.baseline_cases import baseline, every_config
from support.model_cases import STREAM, Pairs, ragged
from support.prove import Proof
from support.torch_baselines import TorchBaseline

from minitransformer.gradcheck import error, numerical_gradient
from minitransformer.layers import DropoutStream
from minitransformer.models import Model
from minitransformer.ops import numpy_ops
from minitransformer.optimizer import Adam

TOLERANCE = 1e-9


@st.composite
def batches(draw: st.DrawFn) -> Pairs:
    """One to three sentences; a source may have no token at all, a target only its end."""
    size = draw(st.integers(1, 3))
    source = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size).filter(any))
    target = draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    return ragged(source, target, seed=draw(st.integers(0, 1000)), longer=draw(st.integers(0, 1)))


def assert_gradients(model: Model, oracle: TorchBaseline, proof: Proof) -> None:
    for name, expected in oracle.gradients().items():
        worst = error(model.parameters.named[name].grad, expected)
        proof.record(type(model).__name__, "autograd", worst)
        assert worst <= TOLERANCE, name


@every_config
@example(batch=ragged([0, 4, 2], [3, 1, 4]), label_smoothing=0.1, evaluating=False)
@settings(max_examples=15)
@given(batch=batches(), label_smoothing=st.sampled_from([0.0, 0.1]), evaluating=st.booleans())
def test_loss_and_every_gradient(proof: Proof, config, batch, label_smoothing, evaluating):
    model, stream = baseline(config), None if evaluating else STREAM
    loss, cache = model.loss(*batch, label_smoothing=label_smoothing, dropout=stream)
    model.loss_backward(0.7, cache)
    oracle = TorchBaseline(model)
    expected = oracle.loss(*batch, label_smoothing=label_smoothing, stream=stream)
    (0.7 * expected).backward()
    assert error(loss, expected.item()) <= TOLERANCE
    assert_gradients(model, oracle, proof)


@every_config
@settings(max_examples=5)
@given(batch=batches(), evaluating=st.booleans())
def test_logits_and_every_gradient(proof: Proof, config, batch, evaluating):
    model, stream = baseline(config), None if evaluating else STREAM
    logits, cache = model.forward(batch.source, batch.target_in, stream)
    dlogits = np.random.default_rng(0).standard_normal(logits.shape)
    model.backward(dlogits, cache)
    oracle = TorchBaseline(model)
    expected = oracle.forward(batch.source, batch.target_in, stream)
    expected.backward(torch.tensor(dlogits))
    assert error(logits, expected.detach()) <= TOLERANCE
    assert_gradients(model, oracle, proof)


@every_config
def test_finite_differences_of_every_parameter(proof: Proof, config):
    """A few random coordinates of each, with everything on."""
    model, batch, rng = baseline(config), ragged([4, 2], [3, 4]), np.random.default_rng(0)
    _, cache = model.loss(*batch, 0.1, STREAM)
    model.loss_backward(1.0, cache)
    for name, parameter in model.parameters.named.items():
        checked = rng.permutation(parameter.data.size)[:5]
        values = parameter.data.reshape(-1)
        before = values[checked]

        def loss(moved: np.ndarray, values: np.ndarray = values, checked: np.ndarray = checked) -> float:
            values[checked] = moved
            return model.loss(*batch, 0.1, STREAM, with_grad=False)[0]

        worst = error(parameter.grad.reshape(-1)[checked], numerical_gradient(loss, before))
        values[checked] = before
        proof.record(type(model).__name__, "finite differences", worst)
        assert worst <= 1e-6, name


@every_config
def test_every_parameter_learns(config):
    model = baseline(config)
    _, cache = model.loss(*ragged([4, 3], [4, 4]))
    model.loss_backward(1.0, cache)
    for name, parameter in model.parameters.named.items():
        assert abs(parameter.grad).max() > 1e-6, name
    assert [name for name, p in model.parameters.named.items() if 11 in p.shape] == ["tokens.table"]  # one, tied


@every_config
def test_ten_steps_follow_torch_s_adam(config):
    """Ragged batches, dropout, smoothing: losses and parameters."""
    model = baseline(config)
    oracle = TorchBaseline(model)
    ours = Adam(model.parameters, numpy_ops)
    theirs = torch.optim.Adam(oracle.weights.values(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    rng = np.random.default_rng(0)
    for step in range(1, 11):
        batch = ragged(rng.integers(1, 6, 3).tolist(), rng.integers(1, 6, 3).tolist(), seed=step)
        dropout = DropoutStream(seed=4, step=step)
        model.parameters.zero_grad()
        loss, cache = model.loss(*batch, 0.1, dropout)
        model.loss_backward(1.0, cache)
        ours.step(0.01)
        theirs.zero_grad()
        expected = oracle.loss(*batch, 0.1, dropout)
        expected.backward()
        theirs.step()
        assert error(loss, expected.item()) <= 1e-8
    for name, value in model.parameters.state_dict().items():
        assert error(value, oracle.weights[name].detach()) <= 1e-8, name


@every_config
def test_float32_is_as_accurate_as_torch_s(config):
    """Error against float64 at most twice that of PyTorch's float32, each the median over eight models and batches.

    Logits, and the gradients of at least 1,000 elements. The parameters are not far from where they start: where
    attention's scores are large, whoever computes them, one rounding is as good as all the rest.
    """
    ours, theirs = [], []
    for seed in range(8):
        model = baseline(replace(config, vocab_size=200, d_model=32), "float32", moved=0.1, seed=seed)
        batch = ragged([12, 9, 14, 7], [10, 14, 8, 12], vocab_size=200, seed=seed)
        stream = DropoutStream(seed, step=1)
        _, cache = model.loss(*batch, 0.1, stream)
        model.loss_backward(1.0, cache)
        logits, _ = model.forward(batch.source, batch.target_in, stream)
        gradients = {name: p.grad for name, p in model.parameters.named.items() if p.grad.size >= 1000}
        results = []
        for dtype in (torch.float32, torch.float64):
            oracle = TorchBaseline(model, dtype)
            oracle.loss(*batch, 0.1, stream).backward()
            their_logits = oracle.forward(batch.source, batch.target_in, stream).detach().numpy()
            results.append([their_logits, *(oracle.gradients()[name] for name in gradients)])
        single, truth = results
        ours.append([error(a, b) for a, b in zip([logits, *gradients.values()], truth, strict=True)])
        theirs.append([error(a, b) for a, b in zip(single, truth, strict=True)])
    assert (np.median(ours, axis=0) <= 2 * np.median(theirs, axis=0)).all()
