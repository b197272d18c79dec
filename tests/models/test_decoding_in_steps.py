"""One position at a time, with what the layers remember, gives what the whole sequence gives at once."""

from dataclasses import replace

import numpy as np
import pytest
from support.model_cases import BASELINES, MODELS, every_model, moved, ragged
from support.spies import Spies

from minitransformer.decoding import beam_search, greedy_search
from minitransformer.gradcheck import error
from minitransformer.layers.cache import FIRST_ROOM
from minitransformer.models import Decoding, EncoderDecoder, build_model
from minitransformer.ops import numpy_ops

SOURCE = ragged([3, 0, 4, 1], [1, 1, 1, 1]).source


def tokens(length: int, num_beams: int, seed: int = 0) -> np.ndarray:
    """Random prefixes `(B, K, length)`, different in every beam."""
    return np.random.default_rng(seed).integers(1, 11, (len(SOURCE), num_beams, length))


def steps(model: EncoderDecoder, state: Decoding, prefixes: np.ndarray) -> np.ndarray:
    """The logits `(B, K, T, V)` of every step."""
    return np.stack([model.decode_step(prefixes[..., t], state) for t in range(prefixes.shape[-1])], axis=2)


def at_once(model: EncoderDecoder, source: np.ndarray, prefixes: np.ndarray) -> np.ndarray:
    """Return the logits by `forward`, beam by beam."""
    return np.stack([model.forward(source, prefixes[:, k])[0] for k in range(prefixes.shape[1])], axis=1)


@every_model
@pytest.mark.parametrize("num_beams", [1, 3])
def test_every_position_of_every_beam_up_to_the_last(config, num_beams):
    """Past the first room of a key/value cache."""
    model, prefixes = moved(replace(config, max_length=FIRST_ROOM + 3)), tokens(FIRST_ROOM + 3, num_beams)
    state = model.start_decoding(SOURCE, num_beams)
    assert error(steps(model, state, prefixes), at_once(model, SOURCE, prefixes)) <= 1e-12
    with pytest.raises(ValueError, match="position 35 is beyond the model's max_length of 35"):
        model.decode_step(prefixes[..., 0], state)
    assert state.position == FIRST_ROOM + 3


@every_model
def test_beams_that_move_and_sentences_that_leave(config):
    """Reordered beams go on from their new past; those of the sentences that stay can be reordered once more."""
    model, prefixes, more = moved(config), tokens(4, 3), tokens(3, 3, seed=1)
    beams, kept = np.array([[2, 2, 0], [0, 1, 2], [1, 0, 1], [2, 1, 0]]), np.array([2, 0])
    state = model.start_decoding(SOURCE, 3)
    steps(model, state, prefixes)
    state.reorder(beams)
    continued = np.concatenate([np.take_along_axis(prefixes, beams[..., None], axis=1), more], axis=-1)
    assert error(steps(model, state, more), at_once(model, SOURCE, continued)[:, :, 4:]) <= 1e-12
    state.select(kept)
    assert state.shape == (2, 3)
    longer = np.concatenate([continued, more], axis=-1)[kept]
    assert error(steps(model, state, more[kept]), at_once(model, SOURCE[kept], longer)[:, :, 7:]) <= 1e-12
    again = np.array([[1, 1, 0], [0, 2, 1]])
    state.reorder(again)
    longest = np.concatenate([np.take_along_axis(longer, again[..., None], axis=1), more[kept]], axis=-1)
    assert error(steps(model, state, more[kept]), at_once(model, SOURCE[kept], longest)[:, :, 10:]) <= 1e-12


@every_model
def test_sentences_may_leave_before_the_first_step(config):
    model, prefixes, kept = moved(config), tokens(3, 2), np.array([3, 0])
    state = model.start_decoding(SOURCE, 2)
    state.select(kept)
    state.reorder(np.array([[1, 0], [1, 1]]))
    assert error(steps(model, state, prefixes[kept]), at_once(model, SOURCE[kept], prefixes[kept])) <= 1e-12


@every_model
def test_two_states_of_one_model_do_not_meet(config):
    model, prefixes, others = moved(config), tokens(4, 1), tokens(4, 1, seed=1)
    first, second = model.start_decoding(SOURCE), model.start_decoding(SOURCE[::-1])
    pairs = [(model.decode_step(prefixes[..., t], first), model.decode_step(others[..., t], second)) for t in range(4)]
    ours, theirs = (np.stack(part, axis=2) for part in zip(*pairs, strict=True))
    assert error(ours, at_once(model, SOURCE, prefixes)) <= 1e-12
    assert error(theirs, at_once(model, SOURCE[::-1], others)) <= 1e-12


@every_model
@pytest.mark.parametrize("num_beams", [1, 2, 4])
def test_searches_find_what_they_find_in_a_sentence_alone(config, num_beams):
    """Whatever stands beside it, and where."""
    model, lengths = moved(config), [3, 5, 4, 1]
    model.parameters.data *= 2  # sharper opinions
    source = ragged(lengths, [1, 1, 1, 1]).source
    together, turned = (
        beam_search(model, ids, num_beams, n_best=num_beams, max_extra=5) for ids in (source, source[::-1])
    )
    greedy = greedy_search(model, source, max_extra=5)
    for row, length in enumerate(lengths):
        alone = source[row : row + 1, :length]
        (found,) = beam_search(model, alone, num_beams, n_best=num_beams, max_extra=5)
        for others in (together[row], turned[::-1][row]):
            assert [(h.ids, h.ended) for h in others] == [(h.ids, h.ended) for h in found]
            assert error([(h.score, h.log_prob) for h in others], [(h.score, h.log_prob) for h in found]) <= 1e-12
        assert greedy_search(model, alone, max_extra=5)[0].ids == greedy[row].ids
        for h in found:  # its log-probability is that of the whole model at once
            ids = np.array([[1, *h.ids] + [2] * h.ended])
            log_probs = numpy_ops.log_softmax(model.forward(alone, ids[:, :-1])[0])
            assert abs(h.log_prob - np.take_along_axis(log_probs, ids[:, 1:, None], axis=2).sum()) <= 1e-10


@every_model
def test_the_memory_is_not_copied_for_each_beam(config):
    """Beams fold into the query axis: what is kept of the encoder's output is as large for 5 beams as for 1."""
    model, kept = moved(config), []
    for num_beams in (1, 5):
        state = model.start_decoding(SOURCE, num_beams)
        steps(model, state, tokens(2, num_beams))
        kept.append({name: [array.shape for array in arrays] for name, arrays in state.cache.shared.items()})
    assert kept[0] == kept[1]
    assert all(shape[0] == len(SOURCE) for shapes in kept[1].values() for shape in shapes)


COSTS = {"post-norm": 2 * 6, "pre-norm, learned": 6, "tanh, attention": 2 * 2 + 2, "convolutional": 2}
"""Linear maps of one position: a block's query, key and value in one, output, query, output and the network's two;
a recurrent layer's two, the attention's query and what joins both; a convolutional layer's query."""


@pytest.mark.parametrize("kind", COSTS)
def test_nothing_is_computed_once_more(kind):
    """The memory's keys and values are computed with the first position, and no position's own a second time."""
    spies, config = Spies(), MODELS[kind]
    model = build_model(config, spies.ops)
    state = model.start_decoding(SOURCE, 2)
    of_memory = {"post-norm": 2, "pre-norm, learned": 1, "tanh, attention": 1, "convolutional": 0}[kind]
    for position in range(4):
        spies.calls.clear()
        model.decode_step(np.ones((4, 2), np.int64), state)
        expected = COSTS[kind] + 1 + (of_memory if position == 0 else 0)  # 1: the output layer
        assert spies.calls["linear_forward"] == expected
        assert spies.calls["embedding_forward"] == 1
        assert state.memory is None


def test_what_an_encoder_hands_over():
    """Without attention the final states, one vector a layer, are all that the decoder gets."""
    model = moved(BASELINES["lstm"])
    state = model.start_decoding(SOURCE)
    steps(model, state, tokens(1, 1))
    assert not state.cache.shared
    assert not state.cache.grown
    assert [part.shape for layer in state.cache.rows.values() for part in layer] == [(4, 6)] * 4


@every_model
def test_what_a_translation_under_way_can_not_take(config):
    model, source = moved(config), ragged([3, 2], [3, 4]).source
    with pytest.raises(ValueError, match="num_beams is 0, expected 1 or more"):
        model.start_decoding(source, num_beams=0)
    state = model.start_decoding(source, num_beams=2)
    with pytest.raises(ValueError, match=r"ids has shape \(2, 3\), expected \(B, K\), \(2, 2\)"):
        model.decode_step(np.ones((2, 3), dtype=np.int64), state)
    for beams in ([[0, 2], [0, 0]], [[-1, 0]] * 2):
        with pytest.raises(ValueError, match="numbers from 0 to 1"):
            state.reorder(np.array(beams))
    with pytest.raises(ValueError, match="expected \\(B, K\\)"):
        state.reorder(np.array([[0], [0]]))
    for sentences in ([], [2], [-1], [[0]]):
        with pytest.raises(ValueError, match="sentences must be some numbers from 0 to 1"):
            state.select(np.array(sentences, dtype=np.int64))
    assert (state.position, state.shape) == (0, (2, 2))
    prefixes = np.random.default_rng(0).integers(1, 11, (2, 2, 3))
    assert error(steps(model, state, prefixes), at_once(model, source, prefixes)) <= 1e-12  # as if nothing had been
