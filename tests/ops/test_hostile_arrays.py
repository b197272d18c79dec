"""Values that are no arrays of numbers, in every place of every op: one sentence names the argument."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.declared_ops import Call, backwards, forwards

from minitransformer import ops

IDS = np.array([0, 2])
X, WEIGHT = np.ones((2, 3)), np.ones((3, 5))
NO_NUMBER: Any = None
NO_SEQUENCE: Any = X


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "None": lambda array: None,
    "a list": lambda array: array.tolist(),
    "a string": lambda array: "a",
    "a matrix": lambda array: np.matrix(np.atleast_2d(array)[:1].reshape(1, -1)),
    "a masked array": lambda array: np.ma.masked_array(array, mask=np.zeros(array.shape, bool)),
    "objects": lambda array: array.astype(object),
    "complex numbers": lambda array: array.astype(complex),
    "half precision": lambda array: array.astype(np.float16),
    "strings": lambda array: array.astype(str),
    "dates": lambda array: array.astype("i8").astype("M8[s]"),
    "a record": lambda array: np.zeros(array.shape, [("a", float)]),
    "an axis more": lambda array: np.ones((7, *array.shape), array.dtype),
}


def took(op: str, result: Any, hostile: Any, name: str) -> None:
    pytest.fail(f"{op} took {hostile} for {name} and gave {result!r}")


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("way", [forwards, backwards])
def test_what_is_no_array_of_numbers_is_refused_by_name(way, hostile):
    for op, call in way().items():
        call()
        for name, array in call.arrays.items():
            if hostile == "None" and name in call.optional:
                call(**{name: None})
                continue
            if hostile == "an axis more" and name in ("x", "ids", "grad", "logits"):  # any number of axes will do
                continue
            if hostile in ("a list", "half precision") and name == "dloss":  # a number all the same
                continue
            with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
                took(op, call(**{name: HOSTILE[hostile](array)}), hostile, name)


@pytest.mark.parametrize("hostile", ["a", object(), np.nan, 10**400, np.ones(3), [1]], ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("way", [forwards, backwards])
def test_an_option_of_no_sense_is_refused_by_name(way, hostile):
    for op, call in way().items():
        for name in set(inspect.signature(call.function).parameters) - set(call.arrays) - {"cache"}:
            if isinstance(hostile, int) and name == "window":  # as far as one likes
                continue
            if isinstance(hostile, np.ndarray | list) and name == "out":  # see test_refusals
                continue
            with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
                took(op, call(**{name: hostile}), hostile, name)


@pytest.mark.parametrize("field", ["rate", "key", "sentence", "position"])
@pytest.mark.parametrize("hostile", ["a", None, np.nan, [1]])
def test_dropout_is_made_of_numbers(field, hostile):
    with pytest.raises((TypeError, ValueError), match=rf"\b{field}\b"):
        ops.Dropout(**{"rate": 0.5, "key": 1, field: hostile})


@pytest.mark.parametrize(
    "number",
    [
        *({"lr": value} for value in (np.nan, np.inf, -1.0, "a", None, np.ones(2))),
        *({"grad_scale": value} for value in (np.nan, -np.inf, "a")),
        *({beta: value} for beta in ("beta1", "beta2") for value in (1.0, np.nan, -0.1, None)),
        *({"eps": value} for value in (0.0, np.nan, True)),
        *({"step": value} for value in (0, 1.5, np.nan, None)),
    ],
    ids=str,
)
def test_adam_takes_no_number_that_would_ruin_the_parameters(number):
    call = forwards()["adam_step"]
    arrays = {name: array.copy() for name, array in call.arrays.items()}
    with pytest.raises((TypeError, ValueError), match=rf"\b{next(iter(number))}\b"):
        call(**arrays, **number)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, call.arrays[name])


# --- The array plumbing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [-1, (2, -1), 2**70, 10**400, (0, 2**63)], ids=lambda shape: str(shape)[:9])
def test_no_axis_is_shorter_than_nothing_or_longer_than_memory(shape):
    with pytest.raises(ValueError, match=r"\bshape\b"):
        ops.zeros(shape)


@pytest.mark.parametrize("shape", [1.5, "", "3", b"ab", True, np.inf, np.nan, None, (2, 1.5), (True,), [None], IDS])
def test_a_shape_is_of_integers(shape):
    with pytest.raises(TypeError, match=r"\bshape\b"):
        ops.zeros(shape)


@pytest.mark.parametrize("shape", [3, np.int8(3), [3], (np.int64(3),), X[0].shape])
def test_a_shape_may_be_any_integers(shape):
    assert ops.zeros(shape).shape == (3,)


@pytest.mark.parametrize("dtype", [None, "no such type", "S3", "M8[s]", "complex64", object, 3, "f4,f4"])
@pytest.mark.parametrize("call", [lambda dtype: ops.zeros(3, dtype), lambda dtype: ops.cast(X, dtype)])
def test_a_type_is_of_numbers(call, dtype):
    with pytest.raises(TypeError, match=r"\bdtype must be a type of number"):
        call(dtype)
    if dtype is not None:
        with pytest.raises(TypeError, match=r"\bdtype must be a type of number"):
            ops.asarray(X, dtype)


PLUMBING: dict[str, Call] = {
    "cast": Call(ops.cast, {"array": X}, options={"dtype": "float64"}),
    "sin": Call(ops.sin, {"x": X}),
    "cos": Call(ops.cos, {"x": X}),
    "take": Call(ops.take, {"x": X, "indices": np.array([0, 1])}),
    "concatenate": Call(lambda arrays: ops.concatenate([X, arrays], axis=0), {"arrays": X}),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("hostile", sorted(set(HOSTILE) - {"half precision", "an axis more"}))
@pytest.mark.parametrize("op", PLUMBING)
def test_the_plumbing_refuses_what_is_no_array_of_numbers(op, hostile):
    call = PLUMBING[op]
    call()
    for name, array in call.arrays.items():
        with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
            took(op, call(**{name: HOSTILE[hostile](array)}), hostile, name)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("hostile", ["a matrix", "a masked array"])
@pytest.mark.parametrize(("op", "name"), [(ops.asarray, "data"), (ops.to_numpy, "array")])
def test_no_mask_is_dropped_on_the_way(op, name, hostile):
    with pytest.raises(TypeError, match=rf"\b{name} must be a NumPy array, got (matrix|MaskedArray)"):
        op(HOSTILE[hostile](X))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ops.take(X, np.array([0, 2])), ValueError, r"indices .* x of shape \(2, 3\)"),
        (lambda: ops.take(X, IDS, axis=2), ValueError, "axis is 2, expected one of 2 axes"),
        (lambda: ops.take(X, IDS, axis=NO_NUMBER), TypeError, "axis must be an integer"),
        (lambda: ops.take(X, X), TypeError, "indices must be an integer NumPy array, got float64"),
        (lambda: ops.concatenate([]), ValueError, "arrays has no element"),
        (lambda: ops.concatenate(NO_NUMBER), TypeError, "arrays must be a sequence of NumPy arrays, got NoneType"),
        (lambda: ops.concatenate(NO_SEQUENCE), TypeError, "arrays must be a sequence of NumPy arrays, got ndarray"),
        (lambda: ops.concatenate([X, WEIGHT]), ValueError, r"arrays have shapes \(2, 3\), \(3, 5\)"),
        (lambda: ops.concatenate([X, X[0]]), ValueError, r"arrays have shapes \(2, 3\), \(3,\)"),
        (lambda: ops.concatenate([X, X], axis=-3), ValueError, "axis is -3, expected one of 2 axes"),
        (lambda: ops.concatenate([X, X], axis=NO_NUMBER), TypeError, "axis must be an integer"),
    ],
)
def test_the_plumbing_names_what_does_not_fit(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


# --- A mask ---------------------------------------------------------------------------------------------------


MASK: dict[str, Any] = {"num_queries": 2, "num_keys": 3, "causal": True, "key_mask": np.ones((1, 3), bool), "window": 1}


@pytest.mark.parametrize(
    ("name", "hostile", "kind"),
    [
        *(
            (size, value, TypeError)
            for size in ("num_queries", "num_keys")
            for value in (1.5, 1j, IDS, None, "a", True)
        ),
        *((size, value, ValueError) for size in ("num_queries", "num_keys") for value in (-1, 2**40, 10**400)),
        *(("causal", value, TypeError) for value in ("x", 1, None, IDS)),
        *(("key_mask", value, TypeError) for value in (np.ones((1, 3), int), X[:1], [[True] * 3], True)),
        *(("key_mask", np.ones(shape, bool), ValueError) for shape in ((3,), (1, 2), (1, 1, 3), ())),
        ("key_mask", np.ma.masked_array(np.ones((1, 3), bool)), TypeError),
        *(("window", value, TypeError) for value in (1.5, "a", True, IDS)),
        ("window", -1, ValueError),
    ],
    ids=lambda value: str(value)[:9],
)
def test_a_mask_is_of_sizes_and_truths(name, hostile, kind):
    with pytest.raises(kind, match=rf"\b{name}\b"):
        took("attention_mask", ops.attention_mask(**{**MASK, name: hostile}), hostile, name)


def test_a_mask_takes_integers_of_any_width():
    narrow = {"num_queries": np.uint8(2), "num_keys": np.int8(3), "window": np.int8(1), "causal": np.True_}
    wanted = ops.attention_mask(**MASK)
    np.testing.assert_array_equal(wanted, [[[[True, True, False], [False, True, True]]]])
    np.testing.assert_array_equal(ops.attention_mask(**{**MASK, **narrow}), wanted)
    assert ops.attention_mask(2, 3, causal=False, key_mask=None, window=None) is None


@pytest.mark.parametrize("window", [np.int8(4), np.uint8(200)])
def test_a_window_may_be_a_narrow_integer(window):
    heads = np.random.default_rng(0).standard_normal((1, 1, 500, 2))
    out, _ = ops.attention_forward(heads, heads, heads, window=window)
    np.testing.assert_array_equal(out, ops.attention_forward(heads, heads, heads, window=int(window))[0])


# --- Adam's arrays --------------------------------------------------------------------------------------------


def refused_by_adam(arrays: dict[str, Any], message: str) -> None:
    before = {name: array.copy() for name, array in arrays.items()}
    with pytest.raises(ValueError, match=message):
        ops.adam_step(**arrays, step=1, lr=0.1)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("name", ["data", "m", "v"])
def test_adam_changes_nothing_where_an_array_is_read_only(name):
    arrays = {each: np.ones(4) for each in ("data", "grad", "m", "v")}
    arrays[name].flags.writeable = False
    refused_by_adam(arrays, rf"\b{name} is read-only")


@pytest.mark.parametrize("pair", [("data", "m"), ("data", "v"), ("m", "v"), ("data", "grad"), ("m", "grad")])
@pytest.mark.parametrize("distance", [0, 3])
def test_adam_changes_nothing_where_two_arrays_share_memory(pair, distance):
    arrays = {each: np.ones(4) for each in ("data", "grad", "m", "v")}
    memory = np.ones(8)
    arrays |= {name: memory[start : start + 4] for name, start in zip(pair, (0, distance), strict=True)}
    refused_by_adam(arrays, rf"\b{pair[0]} and {pair[1]} share memory")


def test_adam_takes_neighbours():
    """Parts of one array, even interleaved, share no element."""
    memory, apart = np.ones((4, 4)), [np.ones(4) for _ in range(4)]
    for data, grad, m, v in (memory.T, apart):
        ops.adam_step(data, grad, m, v, step=1, lr=0.1)
    np.testing.assert_array_equal(memory.T, apart)
