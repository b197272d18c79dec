"""Invariances of a model: to the future, to padding, to order, to other calls."""

import numpy as np
import pytest
from support.model_cases import MODELS, STREAM, Pairs, model_of, moved, ragged

from minitransformer.gradcheck import error
from minitransformer.layers import DropoutStream, Layer
from minitransformer.models import EncoderDecoder, build_model
from minitransformer.ops import Dropout, numpy_ops
from minitransformer.probe import Call, probe


@pytest.fixture(params=MODELS.values(), ids=list(MODELS))
def model(request: pytest.FixtureRequest) -> EncoderDecoder:
    return moved(request.param)


@pytest.fixture
def batch() -> Pairs:
    return ragged([4, 2, 3], [5, 3, 1])


def logits(model: EncoderDecoder, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    return model.forward(source, target, STREAM)[0]


def gradient(model: EncoderDecoder, batch: Pairs, stream: DropoutStream | None = STREAM) -> np.ndarray:
    """The flat gradient of the loss."""
    model.parameters.zero_grad()
    _, cache = model.loss(*batch, 0.1, stream)
    model.loss_backward(1.0, cache)
    return model.parameters.grad.copy()


# --- The future ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", range(1, 5))
def test_no_output_moves_when_a_future_target_token_changes(model, batch, position):
    changed = batch.target_in.copy()
    changed[0, position] = changed[0, position] % 10 + 1
    before, after = logits(model, batch.source, batch.target_in), logits(model, batch.source, changed)
    np.testing.assert_array_equal(after[0, :position], before[0, :position])
    np.testing.assert_array_equal(after[1:], before[1:])
    assert (after[0, position] != before[0, position]).any()


def test_every_output_moves_with_every_source_token():
    model, batch = model_of(), ragged([4], [5])
    before = logits(model, batch.source, batch.target_in)
    for position in range(4):
        changed = batch.source.copy()
        changed[0, position] = changed[0, position] % 10 + 1
        assert (logits(model, changed, batch.target_in) != before).any(-1).all()


# --- Padding ---------------------------------------------------------------------------------------------------


def test_more_padding_changes_nothing(model, batch):
    padded = ragged([4, 2, 3], [5, 3, 1], longer=3)
    outputs = logits(model, batch.source, batch.target_in)
    assert error(logits(model, padded.source, padded.target_in)[:, :5], outputs) <= 1e-12
    assert error(model.loss(*padded, 0.1, STREAM)[0], model.loss(*batch, 0.1, STREAM)[0]) <= 1e-12
    assert error(gradient(model, padded), gradient(model, batch)) <= 1e-12


def test_nothing_moves_with_what_stands_at_padding(model, batch):
    """Another embedding of the padding token moves its own logit and what stands at padded targets, nothing else."""
    real = batch.target_out != 0
    before = logits(model, batch.source, batch.target_in)[real]
    model.tokens.table.data[0] += 1.0
    after = logits(model, batch.source, batch.target_in)[real]
    np.testing.assert_array_equal(after[:, 1:], before[:, 1:])
    assert (after[:, 0] != before[:, 0]).all()


def test_padding_gets_no_gradient(model, batch):
    outputs, cache = model.forward(batch.source, batch.target_in, STREAM)
    dlogits = np.random.default_rng(0).standard_normal(outputs.shape)
    dlogits[batch.target_out == 0] = 0  # nothing is asked of padded targets ...
    dlogits[..., 0] = 0  # ... nor of padding as an answer
    model.backward(dlogits, cache)
    np.testing.assert_array_equal(model.tokens.table.grad[0], 0)
    assert model.tokens.table.grad[batch.source[0]].all()


def test_a_source_of_padding_alone_is_no_source(model):
    """Its sentence sees nothing, and no NaN reaches its neighbour."""
    batch = ragged([0, 3], [2, 3])
    alone = Pairs(*(array[1:] for array in batch))
    outputs = logits(model, batch.source, batch.target_in)
    assert np.isfinite(outputs).all()
    assert np.isfinite(gradient(model, batch)).all()
    next_one = DropoutStream(STREAM.seed, STREAM.step, STREAM.sentence + 1)
    assert error(outputs[1:], model.forward(alone.source, alone.target_in, next_one)[0]) <= 1e-12


# --- Order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [False, True])
def test_without_positions_the_encoder_is_permutation_equivariant(batch, norm_first):
    """Attention sees a set: "we must inject some information about the relative or absolute position" (§3.5)."""
    model = model_of(positions="learned", norm_first=norm_first, num_layers=2)
    order = np.random.default_rng(0).permutation(batch.source.shape[1])

    def broken() -> float:
        memory, permuted = (model.encode(ids)[0] for ids in (batch.source, batch.source[:, order]))
        return error(permuted, memory[:, order])

    assert broken() > 0.01
    model.parameters.named["encoder.embedding.positions.table"].data[...] = 0
    assert broken() <= 1e-12


def test_sentences_of_a_batch_do_not_meet(model, batch):
    order = np.array([2, 0, 1])
    turned = model.forward(batch.source[order], batch.target_in[order])[0]
    assert error(turned, model.forward(batch.source, batch.target_in)[0][order]) <= 1e-12


# --- Other calls -----------------------------------------------------------------------------------------------


def test_two_calls_before_their_backwards(model, batch):
    """A cache belongs to its call: the backwards may come in any order."""
    other = ragged([2, 6], [3, 2], seed=5)
    expected = gradient(model, batch) + gradient(model, other)
    model.parameters.zero_grad()
    caches = [model.loss(*pairs, 0.1, STREAM)[1] for pairs in (batch, other)]
    model.forward(other.source, other.target_in)
    for cache in caches:
        model.loss_backward(1.0, cache)
    assert error(model.parameters.grad, expected) <= 1e-12


def test_a_call_leaves_nothing_behind(model, batch):
    """No layer has an attribute that was not there before, or another one in its place."""
    before = attributes(model)
    gradient(model, batch)
    model.decode_step(np.ones((3, 1), np.int64), model.start_decoding(batch.source))
    assert attributes(model) == before


def attributes(layer: Layer, path: str = "model") -> dict[str, int]:
    """Every attribute of a layer and of the layers in it, by path, with its identity."""
    found = {f"{path}.{name}": id(value) for name, value in vars(layer).items()}
    for name, value in vars(layer).items():
        for index, part in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(part, Layer):
                found |= attributes(part, f"{path}.{name}.{index}")
    return found


def test_a_call_repeats_bit_for_bit_and_leaves_the_parameters_alone(model, batch):
    before = model.parameters.data.copy()
    np.testing.assert_array_equal(gradient(model, batch), gradient(model, batch))
    np.testing.assert_array_equal(model.parameters.data, before)


def test_dropout_follows_its_seed_its_step_and_its_sentence(batch):
    model = model_of(dropout=0.3)
    streams = [None, STREAM, DropoutStream(11, 4, 2), DropoutStream(12, 3, 2), DropoutStream(11, 3, 3)]
    losses = [model.loss(*batch, dropout=stream)[0] for stream in streams]
    assert len(set(losses)) == len(streams)
    assert model.loss(*batch, dropout=DropoutStream(11, 3, 2))[0] == losses[1]


SITES = {
    "post-norm": 1 + 3 * 2 + 1 + 5 * 2,
    "pre-norm, learned": 1 + 2 + 1 + 3,
    "tanh, attention": 6,
    "convolutional": 6,
}
"""One on each input, and on each layer's output; in a block on each sub-layer's, and on its attentions' weights."""


@pytest.mark.parametrize("kind", SITES)
def test_every_dropout_site_of_a_model_has_its_own_number_and_mask(kind):
    calls: list[Call] = []
    model = build_model(MODELS[kind], probe(numpy_ops, calls.append))
    assert len(model.dropout_sites) == len(set(model.dropout_sites)) == SITES[kind]
    model.loss(*ragged([4, 2, 3], [5, 3, 1]), 0.1, STREAM)
    given = [value for call in calls if call.way == "forward" for value in (*call.arguments, *call.options.values())]
    keys = [value.key for value in given if isinstance(value, Dropout)]
    assert sorted(keys) == sorted(STREAM.at(site, 0.3).key for site in model.dropout_sites)
    assert len(set(keys)) == SITES[kind]


def test_a_site_does_not_depend_on_what_else_is_in_the_model():
    """A deeper model, or one that drops in fewer places, draws the same masks where both have the layer."""
    shallow, deep = (model_of(num_layers=n, dropout=0.3, attention_dropout=a) for n, a in ((1, 0.0), (2, 0.3)))
    sites = dict(deep.named_layers())
    for name, layer in shallow.named_layers():
        assert layer.site == sites[name].site
    assert set(shallow.dropout_sites) < set(deep.dropout_sites)
