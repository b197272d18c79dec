"""The cache of decoding: rows that grow, rows of one size, and what the beams of a sentence share."""

import numpy as np
import pytest

import kernels
from minitransformer.costs import cache_bytes
from minitransformer.layers import ByteCache, Cache
from minitransformer.layers.cache import FIRST_ROOM
from minitransformer.models import GPTConfig, build_model
from minitransformer.ops import numpy_ops

B, K, H = 3, 2, 2


def fresh(seed: int, time: int = 1, rows: int = B * K) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values, of different widths, of some positions."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, H, time, 3)), rng.standard_normal((rows, H, time, 2))


def filled(positions: int) -> tuple[Cache, list[np.ndarray]]:
    """A cache after so many positions, and what it should hold of one layer: keys and values."""
    cache = Cache(numpy_ops, B, K)
    steps = [fresh(0, time=0)]
    for t in range(positions):
        steps.append(fresh(t))
        cache.extended("a", *steps[-1])
        cache.position += 1
    return cache, [np.concatenate(parts, axis=2) for parts in zip(*steps, strict=True)]


def assert_past(cache: Cache, past: list[np.ndarray]) -> None:
    """The cache gives this back, with the next position behind it."""
    new = fresh(seed=1000, rows=cache.batch * cache.num_beams)
    for whole, before, added in zip(cache.extended("a", *new), past, new, strict=True):
        np.testing.assert_array_equal(whole, np.concatenate([before, added], axis=2))


@pytest.mark.parametrize("positions", [0, 1, FIRST_ROOM - 1, FIRST_ROOM, 2 * FIRST_ROOM, 2 * FIRST_ROOM + 1])
def test_what_comes_is_put_behind_what_was_there(positions):
    assert_past(*filled(positions))


def test_several_positions_at_once_and_of_another_type():
    cache = Cache(numpy_ops, B, K)
    parts = [[array.astype(np.float32) for array in fresh(t, time)] for t, time in enumerate((3, 40, 1))]
    whole: tuple[np.ndarray, ...] = ()
    for part in parts:
        whole = cache.extended("a", part[0], part[1])
        cache.position += part[0].shape[2]
    for index, array in enumerate(whole):
        np.testing.assert_array_equal(array, np.concatenate([part[index] for part in parts], axis=2))
        assert array.dtype == np.float32


def test_room_is_doubled_and_not_made_anew_for_every_position():
    cache, rooms = Cache(numpy_ops, B, K), []
    for t in range(5 * FIRST_ROOM):
        cache.extended("a", *fresh(t))
        rooms.append(cache.grown["a"][0].shape[2])
        cache.position += 1
    assert set(rooms) == {FIRST_ROOM, 2 * FIRST_ROOM, 4 * FIRST_ROOM, 8 * FIRST_ROOM}
    addresses = set()
    for t in range(10):
        addresses.add(cache.extended("a", *fresh(t))[0].ctypes.data)
        cache.position += 1
    assert len(addresses) == 1


@pytest.mark.parametrize("positions", [5, FIRST_ROOM])
@pytest.mark.parametrize(
    ("change", "order", "sentences"),
    [
        (lambda cache: cache.reorder(np.array([[1, 0], [1, 1], [0, 1]])), [1, 0, 3, 3, 4, 5], [0, 1, 2]),
        (lambda cache: cache.select(np.array([2, 0])), [4, 5, 0, 1], [2, 0]),
    ],
    ids=["beams go on from another beam of their sentence", "sentences leave"],
)
def test_all_that_is_kept_moves_along(positions, change, order, sentences):
    """Rows move with their beams, those that grow and those of one size; what beams share moves with its sentence."""
    cache, past = filled(positions)
    state, shared = np.arange(B * K * 4.0).reshape(B * K, 4), np.arange(B * 5.0).reshape(B, 1, 5)
    cache.rows["state"], cache.shared["memory"] = (state.copy(),), (shared.copy(),)
    change(cache)
    assert (cache.batch, cache.num_beams, cache.position) == (len(sentences), K, positions)
    assert_past(cache, [array[order] for array in past])
    np.testing.assert_array_equal(cache.rows["state"][0], state[order])
    np.testing.assert_array_equal(cache.shared["memory"][0], shared[sentences])


# --- Keys and values in bytes ---------------------------------------------------------------------------------


def rounded(array: np.ndarray) -> np.ndarray:
    """Each head's numbers at a position as whole multiples of a 127th of the largest."""
    scale = abs(array).max(-1, keepdims=True) / 127
    return scale * np.floor(array / np.where(scale == 0, 1, scale) + 0.5)


@pytest.mark.parametrize("ops", [numpy_ops, kernels.torch_ops("cpu", "float64")], ids=["numpy", "torch"])
def test_keys_in_bytes_are_wrong_by_at_most_half_a_scale(ops):
    cache, steps, found = ByteCache(ops, B, K), [], ()
    for t in range(2 * FIRST_ROOM + 1):
        steps.append(fresh(t))
        steps[0][0][0] = 0  # a head without a number
        found = cache.extended("a", *map(ops.asarray, steps[-1]))
        cache.position += 1
    for whole, parts in zip(found, zip(*steps, strict=True), strict=True):
        given = np.concatenate(parts, axis=2)
        whole = ops.to_numpy(whole)
        np.testing.assert_allclose(whole, rounded(given), rtol=1e-12, atol=1e-12)
        assert (abs(whole - given) <= abs(given).max(-1, keepdims=True) / 254 * (1 + 1e-12)).all()
    cache.reorder(np.array([[1, 0], [1, 1], [0, 0]]))
    cache.select(np.array([2, 0]))
    assert cache.go_back(5)
    rows = [4, 4, 1, 0]
    new = fresh(1000, rows=4)
    for whole, parts, added in zip(
        cache.extended("a", *map(ops.asarray, new)), zip(*steps, strict=True), new, strict=True
    ):
        wanted = np.concatenate([np.concatenate(parts, axis=2)[rows, :, :5], added], axis=2)
        np.testing.assert_allclose(ops.to_numpy(whole), rounded(wanted), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("ops", "dtype"), [(numpy_ops, "float32"), (kernels.torch_ops("cpu", "float16"), "float16")], ids=["numpy", "torch"]
)
def test_the_tiniest_keys_fit_into_bytes(ops, dtype):
    """A 127th of each largest number is far from its rounded self, or 0: a quotient by that would leave a byte."""
    tiny = np.finfo(dtype).smallest_subnormal
    for most in (1, 50, 126, 170, 1000):
        key = (np.linspace(-most, most, 6).reshape(1, 1, 2, 3) * tiny).astype(dtype)
        kept = ops.asarray(key, dtype)
        found = ops.to_numpy(ByteCache(ops, 1, 1).extended("a", kept, kept)[0])
        most_wrong = 127 / 2 + most / 254 + 1  # 127 times half a step of the scale, half a scale, and two roundings
        assert (abs(found.astype(float) - key) <= most_wrong * float(tiny)).all()


@pytest.mark.parametrize("changes", [{}, {"window": 5}])
def test_a_text_goes_on_from_keys_in_bytes(changes):
    config = GPTConfig.llama(30, d_model=64, num_heads=2, d_ff=96, num_layers=2, max_length=64, **changes)
    model = build_model(config, seed=1)
    ids = np.random.default_rng(0).integers(0, 30, (2, 40))
    whole, states = (
        model.forward(ids)[0],
        [model.start_decoding(ids[:, :20], cache_in_bytes=each) for each in (False, True)],
    )
    for t in range(20, 40):
        exact, near = (model.decode_step(ids[:, t : t + 1], state)[:, 0] for state in states)
        np.testing.assert_allclose(exact, whole[:, t], atol=1e-4)
        assert 0 < abs(near - exact).max() < 0.02 * abs(exact).max()
    if not changes:
        held = [sum(each.nbytes for *pair, _ in state.cache.grown.values() for each in pair) for state in states]
        room = states[0].cache.grown["decoder.layers.0.self_attention"][0].shape[2]
        assert held == [2 * cache_bytes(config, room), 2 * cache_bytes(config, room, in_bytes=True)]
