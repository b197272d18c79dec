"""Parameters as named views into one flat array."""

import itertools

import numpy as np
import pytest
from support.prove_layer import placed

from minitransformer.layers import FlatParameters, Layer, Linear, Parameter
from minitransformer.ops import numpy_ops
from minitransformer.ops.initialize import constant
from minitransformer.training.optimizer import Adam


class Odd(Layer):
    """Parameters of sizes that never fill a cache line, some of them of layers in a list."""

    def __init__(self) -> None:
        super().__init__(numpy_ops)
        self.first = Linear(numpy_ops, 3, 5)
        self.rest = [Linear(numpy_ops, 1, 1), Linear(numpy_ops, 7, 3)]
        self.scalar = Parameter((), constant(2.0))


def flat(layer: Layer, dtype: str = "float64") -> FlatParameters:
    return FlatParameters(dict(layer.named_parameters()), numpy_ops, dtype)


@pytest.fixture
def parameters() -> FlatParameters:
    return placed(Odd())


def padding(parameters: FlatParameters, array: np.ndarray) -> np.ndarray:
    """The elements of a flat array that belong to no parameter."""
    owned = np.zeros(array.shape, bool)
    for view in parameters.views(owned).values():
        view[...] = True
    return array[~owned]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_view_starts_on_a_cache_line_and_shares_the_flat_array(dtype):
    parameters = flat(Odd(), dtype)
    for parameter in parameters.named.values():
        for view, whole in ((parameter.data, parameters.data), (parameter.grad, parameters.grad)):
            assert view.ctypes.data % 64 == 0
            assert view.shape == parameter.shape
            assert view.dtype == dtype
            assert view.flags.c_contiguous
            assert np.shares_memory(view, whole)
        assert parameter.value is parameter.data
    for a, b in itertools.combinations(parameters.named.values(), 2):
        assert a is b or not np.shares_memory(a.data, b.data)


def test_count_leaves_out_the_padding(parameters):
    assert parameters.count == 3 * 5 + 5 + 1 + 1 + 7 * 3 + 3 + 1
    assert padding(parameters, parameters.data).size == parameters.data.size - parameters.count > 0


def test_names_are_dotted_paths(parameters):
    names = ["first.weight", "first.bias", "rest.0.weight", "rest.0.bias", "rest.1.weight", "rest.1.bias", "scalar"]
    assert list(parameters.named) == names == list(parameters.state_dict())
    assert [parameter.name for parameter in parameters.named.values()] == names


def test_padding_stays_zero_through_training(parameters):
    optimizer, rng = Adam(parameters, numpy_ops), np.random.default_rng(0)
    for _ in range(3):
        for parameter in parameters.named.values():
            parameter.grad += rng.standard_normal(parameter.shape)
        optimizer.step(learning_rate=0.1)
    for array in (parameters.data, parameters.grad, optimizer.m, optimizer.v):
        np.testing.assert_array_equal(padding(parameters, array), 0)


def test_a_state_round_trips(parameters):
    state = {name: array.copy() for name, array in parameters.state_dict().items()}
    other = flat(Odd())
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.data, parameters.data)
    single = flat(Odd(), "float32")
    single.load_state_dict(state)
    np.testing.assert_array_equal(single.data, parameters.data.astype(np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("scalar"), r"missing \['scalar'\], unexpected \[\]"),
        (lambda state: state.update(extra=np.zeros(1)), r"missing \[\], unexpected \['extra'\]"),
        (lambda state: state.update({"rest.1.bias": np.zeros((1, 3))}), r"rest.1.bias has shape \(1, 3\), expected"),
        (lambda state: state.update({"rest.1.bias": np.zeros(1)}), r"rest.1.bias has shape \(1,\), expected \(3,\)"),
    ],
    ids=["missing", "unexpected", "one axis more", "would broadcast"],
)
def test_a_state_of_another_model_is_refused_and_changes_nothing(parameters, change, message):
    before = parameters.data.copy()
    state = {name: array + 1 for name, array in parameters.state_dict().items()}
    change(state)
    with pytest.raises(ValueError, match=message):
        parameters.load_state_dict(state)
    np.testing.assert_array_equal(parameters.data, before)


def test_initial_values_repeat_from_their_seed_and_depend_on_their_name_alone():
    first, again, other, alone = flat(Odd()), flat(Odd()), flat(Odd()), flat(Linear(numpy_ops, 7, 3))
    first.initialize(seed=1)
    again.initialize(seed=1)
    other.initialize(seed=2)
    np.testing.assert_array_equal(first.data, again.data)
    for name in ("first.weight", "rest.0.weight", "rest.1.weight"):
        assert (first.named[name].data != other.named[name].data).all()
    alone.named = {"rest.1.weight": alone.named["weight"]}
    alone.initialize(seed=1)
    np.testing.assert_array_equal(alone.named["rest.1.weight"].data, first.named["rest.1.weight"].data)
