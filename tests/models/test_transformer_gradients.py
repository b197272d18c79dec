"""The whole model: its loss, its logits and the gradient of every parameter."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.model_cases import STREAM, Pairs, model_of, ragged
from support.prove import Proof
from support.torch_model import TorchTransformer

from minitransformer.gradcheck import error, numerical_gradient
from minitransformer.models import Transformer

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


@st.composite
def batches(draw: st.DrawFn) -> Pairs:
    """One to three sentences; a source may have no token at all, a target only its end."""
    size = draw(st.integers(1, 3))
    source = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any))
    target = draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    return ragged(source, target, seed=draw(st.integers(0, 1000)), longer=draw(st.integers(0, 1)))


def gradients(model: Transformer) -> dict[str, np.ndarray]:
    return {name: parameter.grad for name, parameter in model.parameters.named.items()}


def assert_gradients(model: Transformer, oracle: TorchTransformer, proof: Proof) -> None:
    for name, expected in oracle.gradients().items():
        worst = error(gradients(model)[name], expected)
        proof.record("Transformer", "autograd", worst)
        assert worst <= TOLERANCE, name


EVERYTHING = {
    "num_layers": 2, "num_decoder_layers": 1, "d_k": 4, "d_v": 1, "positions": "learned", "window": 2,
    "dropout": 0.3, "attention_dropout": 0.4,
}  # fmt: skip


@example(options={"num_heads": 1}, batch=ragged([1], [1]), label_smoothing=0.0, evaluating=True)
@example(options=EVERYTHING, batch=ragged([0, 4, 2], [3, 1, 4]), label_smoothing=0.1, evaluating=False)
@example(options=EVERYTHING | {"norm_first": True}, batch=ragged([0, 4], [3, 1]), label_smoothing=0.1, evaluating=False)
@settings(max_examples=100)
@given(options=configurations, batch=batches(), label_smoothing=st.sampled_from([0.0, 0.1]), evaluating=st.booleans())
def test_loss_and_every_gradient(proof: Proof, options, batch, label_smoothing, evaluating):
    model, stream = model_of(**options), None if evaluating else STREAM
    loss, cache = model.loss(*batch, label_smoothing=label_smoothing, dropout=stream)
    model.loss_backward(0.7, cache)
    oracle = TorchTransformer(model)
    expected = oracle.loss(*batch, label_smoothing=label_smoothing, stream=stream)
    (0.7 * expected).backward()
    assert error(loss, expected.item()) <= TOLERANCE
    assert_gradients(model, oracle, proof)


@settings(max_examples=40)
@given(options=configurations, batch=batches(), evaluating=st.booleans())
def test_logits_and_every_gradient(proof: Proof, options, batch, evaluating):
    model, stream = model_of(**options), None if evaluating else STREAM
    logits, cache = model.forward(batch.source, batch.target_in, stream)
    dlogits = np.random.default_rng(0).standard_normal(logits.shape)
    model.backward(dlogits, cache)
    oracle = TorchTransformer(model)
    expected = oracle.forward(batch.source, batch.target_in, stream)
    expected.backward(torch.tensor(dlogits))
    assert error(logits, expected.detach()) <= TOLERANCE
    assert_gradients(model, oracle, proof)


@pytest.mark.parametrize("norm_first", [False, True])
def test_finite_differences_of_every_parameter(proof: Proof, norm_first):
    """A few random coordinates of each, with everything on."""
    model = model_of(**EVERYTHING, norm_first=norm_first)
    batch, rng = ragged([4, 2], [3, 4]), np.random.default_rng(0)
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
        proof.record("Transformer", "finite differences", worst)
        assert worst <= 1e-6, name


def test_every_parameter_learns():
    """No gradient is zero by mistake: only a key's bias, which moves all of a query's scores alike, has none."""
    model = model_of(num_layers=2, positions="learned", norm_first=True)
    _, cache = model.loss(*ragged([4, 3], [4, 4]))
    model.loss_backward(1.0, cache)
    for name, gradient in gradients(model).items():
        if name.endswith("query_key_value.bias"):
            query, key, value = np.split(gradient, 3)
            assert abs(key).max() < 1e-15
            gradient = np.concatenate([query, value])
        elif name.endswith("key_value.bias"):
            key, gradient = np.split(gradient, 2)
            assert abs(key).max() < 1e-15
        assert abs(gradient).max() > 1e-6, name


def test_no_target_at_all_gives_no_loss_and_no_gradient():
    model, batch = model_of(), ragged([3, 2], [2, 3])
    loss, cache = model.loss(batch.source, batch.target_in, np.zeros_like(batch.target_out), 0.1)
    model.loss_backward(1.0, cache)
    assert loss == 0
    np.testing.assert_array_equal(model.parameters.grad, 0)


def test_the_token_table_is_tied_and_its_gradients_sum():
    """One parameter: looked up by the encoder and the decoder, multiplied by in the output layer."""
    model, batch = model_of(), ragged([3, 2], [2, 3])
    assert [name for name, parameter in model.parameters.named.items() if 11 in parameter.shape] == ["tokens.table"]
    oracle = TorchTransformer(model)
    oracle.loss(*batch).backward()
    _, cache = model.loss(*batch)
    for times in (1, 2):
        model.loss_backward(1.0, cache)
        assert error(model.tokens.table.grad, times * oracle.gradients()["tokens.table"]) <= TOLERANCE
