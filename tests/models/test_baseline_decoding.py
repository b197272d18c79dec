"""Recurrent and convolutional models: what their sentences, their beams and their batches must not see."""

import numpy as np
import pytest
from support.baseline_cases import CONFIGS, baseline, every_config
from support.model_cases import STREAM, Pairs, ragged
from support.spies import Spies

from minitransformer.decoding import beam_search, greedy_search
from minitransformer.gradcheck import error
from minitransformer.layers import DropoutStream
from minitransformer.models import BeamState, Model, build_model

SOURCE = ragged([3, 0, 4, 1], [1, 1, 1, 1]).source


def tokens(length: int, num_beams: int, seed: int = 0) -> np.ndarray:
    """Random prefixes `(B, K, length)`, different in every beam."""
    return np.random.default_rng(seed).integers(1, 11, (len(SOURCE), num_beams, length))


def steps(model: Model, state: BeamState, prefixes: np.ndarray) -> np.ndarray:
    """The logits `(B, K, T, V)` of every step."""
    return np.stack([model.decode_step(prefixes[..., t], state) for t in range(prefixes.shape[-1])], axis=2)


def at_once(model: Model, source: np.ndarray, prefixes: np.ndarray) -> np.ndarray:
    """The same by `forward`, beam by beam."""
    return np.stack([model.forward(source, prefixes[:, k])[0] for k in range(prefixes.shape[1])], axis=1)


@every_config
@pytest.mark.parametrize("num_beams", [1, 3])
def test_every_position_of_every_beam(config, num_beams):
    model, prefixes = baseline(config), tokens(16, num_beams)
    state = model.start_decoding(SOURCE, num_beams)
    assert error(steps(model, state, prefixes), at_once(model, SOURCE, prefixes)) <= 1e-12
    with pytest.raises(ValueError, match="position 16 is beyond the model's max_length of 16"):
        model.decode_step(prefixes[..., 0], state)


@every_config
def test_beams_that_move_and_sentences_that_leave(config):
    model, prefixes, more = baseline(config), tokens(4, 3), tokens(3, 3, seed=1)
    beams, kept = np.array([[2, 2, 0], [0, 1, 2], [1, 0, 1], [2, 1, 0]]), np.array([2, 0])
    state = model.start_decoding(SOURCE, 3)
    steps(model, state, prefixes)
    state.reorder(beams)
    continued = np.concatenate([np.take_along_axis(prefixes, beams[..., None], axis=1), more], axis=-1)
    assert error(steps(model, state, more), at_once(model, SOURCE, continued)[:, :, 4:]) <= 1e-12
    state.select(kept)
    longer = np.concatenate([continued, more], axis=-1)[kept]
    assert error(steps(model, state, more[kept]), at_once(model, SOURCE[kept], longer)[:, :, 7:]) <= 1e-12


@every_config
def test_searches_find_what_they_find_in_a_sentence_alone(config):
    model = baseline(config)
    model.parameters.data *= 2  # sharper opinions
    source = ragged([3, 5, 4, 1], [1, 1, 1, 1]).source
    together, greedy = beam_search(model, source, max_extra=5), greedy_search(model, source, max_extra=5)
    for row, length in enumerate([3, 5, 4, 1]):
        alone = source[row : row + 1, :length]
        assert [h.ids for h in beam_search(model, alone, max_extra=5)[0]] == [h.ids for h in together[row]]
        assert greedy_search(model, alone, max_extra=5)[0].ids == greedy[row].ids


@every_config
def test_future_never_leaks(config):
    model, batch = baseline(config), ragged([4, 2], [5, 5])
    logits, _ = model.forward(batch.source, batch.target_in)
    other = batch.target_in.copy()
    other[:, 3:] = other[:, 3:] % 10 + 1
    moved, _ = model.forward(batch.source, other)
    np.testing.assert_array_equal(moved[:, :3], logits[:, :3])
    assert (abs(moved - logits)[:, 3:].max(-1) > 0).all()


def gradient(model: Model, batch: Pairs, share: float = 1.0, sentence: int = 0) -> np.ndarray:
    model.parameters.zero_grad()
    _, cache = model.loss(*batch, 0.1, DropoutStream(2, 5, sentence))
    model.loss_backward(share, cache)
    return model.parameters.grad.copy()


@every_config
def test_padding_never_leaks(config):
    """More of it changes nothing; nor does it matter who else is in the batch, with the masks of dropout on."""
    model, batch = baseline(config), ragged([2, 5, 3], [4, 1, 6])
    wider = Pairs(*(np.pad(array, ((0, 0), (0, 2))) for array in batch))
    expected = gradient(model, batch)
    assert error(gradient(model, wider), expected) <= 1e-12
    logits, _ = model.forward(batch.source, batch.target_in, STREAM)
    of_wider, _ = model.forward(wider.source, wider.target_in, STREAM)
    assert error(of_wider[:, :6], logits) <= 1e-12

    parts = np.zeros_like(expected)
    lengths = [(2, 4), (5, 1), (3, 6)]
    for row, (source, target) in enumerate(lengths):
        columns = (slice(0, source), slice(0, target), slice(0, target))
        alone = Pairs(*(array[row : row + 1, c] for array, c in zip(batch, columns, strict=True)))
        parts += gradient(model, alone, share=target / 11, sentence=row)
    assert error(parts, expected) <= 1e-12


@every_config
def test_every_dropout_site_has_its_own_number(config):
    """One on each embedding and one in each layer."""
    model = baseline(config)
    layers = []
    for side in (model.encoder, model.decoder):
        layers += [side.embedding, *(side.stack.layers if config.kind == "recurrent" else side.layers)]
    sites = [(getattr(layer, "convolution", layer)).site for layer in layers]
    assert sorted(sites) == list(range(2 * (1 + config.num_layers)))
    assert model.num_dropout_sites == len(sites)


def test_what_an_encoder_hands_over():
    """Without attention the final states, one vector a layer, are all that the decoder gets."""
    model = baseline(CONFIGS["lstm"])
    state = model.start_decoding(SOURCE)
    assert state.memory_caches == []
    assert [part.shape for layer in state.rows for part in layer] == [(4, 6)] * 4


@every_config
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_have_the_model_s_type(config, dtype):
    model, batch = baseline(config, dtype), ragged([4, 2], [3, 4])
    logits, cache = model.forward(*batch[:2], STREAM)
    model.backward(np.ones(logits.shape), cache)
    state = model.start_decoding(batch.source, 2)
    step = model.decode_step(np.ones((2, 2), np.int64), state)
    remembered = [array for layer in state.rows for array in layer]
    assert {array.dtype for array in (logits, step, model.parameters.grad, *remembered)} == {np.dtype(dtype)}


@every_config
@pytest.mark.parametrize(("batch", "source", "target"), [(0, 3, 2), (2, 0, 2), (2, 3, 0)])
def test_empty_arrays(config, batch, source, target):
    model = baseline(config)
    ids, ids_in = np.ones((batch, source), np.int64), np.ones((batch, target), np.int64)
    loss, cache = model.loss(ids, ids_in, ids_in)
    model.loss_backward(1.0, cache)
    assert model.forward(ids, ids_in)[0].shape == (batch, target, 11)
    assert np.isfinite(loss)
    assert np.isfinite(model.parameters.grad).all()


OPS = {
    "tanh": {"tanh"},
    "tanh, attention": {"tanh", "additive_attention"},
    "lstm": {"tanh", "sigmoid"},
    "lstm, attention": {"tanh", "sigmoid", "additive_attention"},
    "convolutional": {"sigmoid", "conv1d", "attention"},
}


@pytest.mark.parametrize("kind", OPS)
def test_ops_reached(kind):
    """Every forward has its backward; but for a state's product all positions have theirs in one product."""
    spies, batch = Spies(), ragged([4, 2], [3, 4])
    model = build_model(CONFIGS[kind], spies.ops)
    _, cache = model.loss(*batch, 0.1, STREAM)
    model.loss_backward(1.0, cache)
    always = {"linear", "dropout", "embedding", "linear_cross_entropy"}
    assert spies.math == OPS[kind] | always
    unpaired = {name for name in spies.math if spies.calls[f"{name}_forward"] != spies.calls[f"{name}_backward"]}
    assert unpaired == (set() if kind == "convolutional" else {"linear"})
