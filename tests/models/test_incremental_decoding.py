"""One position at a time with a key/value cache gives what the whole sequence gives at once."""

import numpy as np
import pytest
from support.model_cases import model_of, ragged

from minitransformer.gradcheck import error
from minitransformer.models import BeamState, Transformer

OPTIONS = {
    "post-norm": {},
    "pre-norm, learned": {"norm_first": True, "positions": "learned"},
    "window": {"window": 1, "num_layers": 2},
    "widths": {"d_k": 3, "d_v": 2, "num_heads": 3, "num_layers": 1, "num_decoder_layers": 2},
    "one head": {"num_heads": 1},
}
SOURCE = ragged([3, 0, 4, 1], [1, 1, 1, 1]).source


@pytest.fixture(params=OPTIONS.values(), ids=list(OPTIONS))
def model(request: pytest.FixtureRequest) -> Transformer:
    return model_of(**request.param)


def tokens(length: int, num_beams: int, seed: int = 0) -> np.ndarray:
    """Random prefixes `(B, K, length)`, different in every beam."""
    return np.random.default_rng(seed).integers(1, 11, (len(SOURCE), num_beams, length))


def steps(model: Transformer, state: BeamState, prefixes: np.ndarray) -> np.ndarray:
    """The logits `(B, K, T, V)` of every step."""
    return np.stack([model.decode_step(prefixes[..., t], state) for t in range(prefixes.shape[-1])], axis=2)


def at_once(model: Transformer, source: np.ndarray, prefixes: np.ndarray) -> np.ndarray:
    """The same by `forward`, beam by beam."""
    return np.stack([model.forward(source, prefixes[:, k])[0] for k in range(prefixes.shape[1])], axis=1)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_every_position_of_every_beam(model, num_beams):
    prefixes = tokens(6, num_beams)
    state = model.start_decoding(SOURCE, num_beams)
    assert error(steps(model, state, prefixes), at_once(model, SOURCE, prefixes)) <= 1e-12
    assert state.position == 6


def test_past_the_first_room_of_the_cache_up_to_the_last_position():
    model = model_of(max_length=70)
    prefixes = tokens(70, 2)
    state = model.start_decoding(SOURCE, 2)
    assert error(steps(model, state, prefixes), at_once(model, SOURCE, prefixes)) <= 1e-12
    with pytest.raises(ValueError, match="position 70 is beyond the model's max_length of 70"):
        model.decode_step(prefixes[..., 0], state)
    assert state.position == 70


def test_reordered_beams_go_on_from_their_new_past(model):
    prefixes, more = tokens(4, 3), tokens(3, 3, seed=1)
    beams = np.array([[2, 2, 0], [0, 1, 2], [1, 0, 1], [2, 1, 0]])
    state = model.start_decoding(SOURCE, 3)
    steps(model, state, prefixes)
    state.reorder(beams)
    continued = np.concatenate([np.take_along_axis(prefixes, beams[..., None], axis=1), more], axis=-1)
    assert error(steps(model, state, more), at_once(model, SOURCE, continued)[:, :, 4:]) <= 1e-12


def test_sentences_that_are_done_leave(model):
    prefixes, more, kept = tokens(4, 2), tokens(3, 2, seed=1), np.array([2, 0])
    state = model.start_decoding(SOURCE, 2)
    steps(model, state, prefixes)
    state.select(kept)
    continued = np.concatenate([prefixes, more], axis=-1)[kept]
    assert error(steps(model, state, more[kept]), at_once(model, SOURCE[kept], continued)[:, :, 4:]) <= 1e-12

    beams = np.array([[1, 1], [0, 1]])  # and the beams of those that stay can still be reordered
    state.reorder(beams)
    again = np.concatenate([np.take_along_axis(continued, beams[..., None], axis=1), more[kept]], axis=-1)
    assert error(steps(model, state, more[kept]), at_once(model, SOURCE[kept], again)[:, :, 7:]) <= 1e-12


def test_two_states_of_one_model_do_not_meet(model):
    prefixes, others = tokens(4, 1), tokens(4, 1, seed=1)
    first, second = model.start_decoding(SOURCE), model.start_decoding(SOURCE[::-1])
    pairs = [(model.decode_step(prefixes[..., t], first), model.decode_step(others[..., t], second)) for t in range(4)]
    ours, theirs = (np.stack(part, axis=2) for part in zip(*pairs, strict=True))
    assert error(ours, at_once(model, SOURCE, prefixes)) <= 1e-12
    assert error(theirs, at_once(model, SOURCE[::-1], others)) <= 1e-12


def test_the_memory_is_not_copied_for_each_beam():
    """Beams fold into the query axis: the cache of the encoder's output is as large for 5 beams as for 1."""
    model = model_of()
    one, five = (model.start_decoding(SOURCE, beams).memory_caches for beams in (1, 5))
    assert [[a.shape for a in pair] for pair in one] == [[a.shape for a in pair] for pair in five]


def test_what_a_translation_under_way_can_not_take(model):
    source = ragged([3, 2], [3, 4]).source
    with pytest.raises(ValueError, match="num_beams is 0, expected 1 or more"):
        model.start_decoding(source, num_beams=0)
    state = model.start_decoding(source, num_beams=2)
    with pytest.raises(ValueError, match=r"ids has shape \(2, 3\), expected \(B, K\), \(2, 2\)"):
        model.decode_step(np.ones((2, 3), dtype=np.int64), state)
    for beams, message in (([[0, 2], [0, 0]], "numbers from 0 to 1"), ([[0], [0]], "expected \\(B, K\\)")):
        with pytest.raises(ValueError, match=message):
            state.reorder(np.array(beams))
    for sentences in ([], [2], [-1]):
        with pytest.raises(ValueError, match="sentences must be some numbers from 0 to 1"):
            state.select(np.array(sentences, dtype=np.int64))
    assert state.position == 0
