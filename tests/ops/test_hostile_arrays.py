"""What is no array of numbers, in every place of every op: one sentence that names the argument, never another end."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from minitransformer import ops

IDS = np.array([0, 2])
X, WEIGHT, BIAS = np.ones((2, 3)), np.ones((3, 5)), np.ones(5)
HEADS = np.ones((1, 1, 2, 3))
TIMES = np.ones((1, 2, 3))


class Call(NamedTuple):
    """An op with arguments that it takes; those in `optional` may be None."""

    function: Callable[..., Any]
    arrays: dict[str, Any]
    optional: tuple[str, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012 - never written

    def __call__(self, **replaced: Any) -> Any:
        return self.function(**{**self.arrays, **self.options, **replaced})


def forwards() -> dict[str, Call]:
    """Every forward, and the functions beside them that take arrays."""
    mask = np.ones((1, 2), bool)
    qkv = {"query": HEADS, "key": HEADS, "value": HEADS}
    targets = {"targets": IDS}
    moments = {name: np.ones(4) for name in ("data", "grad", "m", "v")}
    return {
        "linear": Call(ops.linear_forward, {"x": X, "weight": WEIGHT, "bias": BIAS}, ("bias",)),
        "relu": Call(ops.relu_forward, {"x": X}),
        "tanh": Call(ops.tanh_forward, {"x": X}),
        "sigmoid": Call(ops.sigmoid_forward, {"x": X}),
        "softmax": Call(ops.softmax_forward, {"x": X}),
        "log_softmax": Call(ops.log_softmax, {"x": X}),
        "dropout": Call(ops.dropout_forward, {"x": X}, options={"dropout": ops.Dropout(0.5, key=1)}),
        "layernorm": Call(ops.layernorm_forward, {"x": X, "gamma": X[0], "beta": X[0]}),
        "add_layernorm": Call(ops.add_layernorm_forward, {"x": X, "sublayer_out": X, "gamma": X[0], "beta": X[0]}),
        "embedding": Call(ops.embedding_forward, {"ids": IDS, "table": np.ones((4, 3))}),
        "attention": Call(ops.attention_forward, {**qkv, "key_mask": mask}, ("key_mask",)),
        "attention_weights": Call(
            ops.attention_weights, {"query": HEADS, "key": HEADS, "key_mask": mask}, ("key_mask",)
        ),
        "additive_attention": Call(
            ops.additive_attention_forward,
            {"query": TIMES, "key": TIMES, "value": TIMES, "score_weight": X[0], "key_mask": mask},
            ("key_mask",),
        ),
        "conv1d": Call(ops.conv1d_forward, {"x": TIMES, "weight": np.ones((2, 3, 5)), "bias": BIAS}, ("bias",)),
        "cross_entropy": Call(ops.cross_entropy_forward, {"logits": X, **targets}),
        "linear_cross_entropy": Call(ops.linear_cross_entropy_forward, {"x": X, "table": np.ones((4, 3)), **targets}),
        "adam_step": Call(ops.adam_step, moments, options={"step": 1, "lr": 0.1}),
        "global_norm": Call(ops.global_norm, {"grad": np.ones(4)}),
        "topk": Call(ops.topk, {"x": X}, options={"k": 2}),
    }


def backwards() -> dict[str, Call]:
    """Every backward after its forward, with a gradient that fits."""
    calls = {}
    for name, forward in forwards().items():
        backward = getattr(ops, f"{name}_backward", None)
        if backward is not None:
            out, cache = forward()
            received = next(iter(backward.__annotations__))
            calls[name] = Call(backward, {received: np.ones_like(out)}, options={"cache": cache})
    return calls


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


@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_element_alone_is_an_array_too(name, dtype):
    x = np.asarray(0.5, dtype)
    y, cache = getattr(ops, f"{name}_forward")(x)
    rows, row_cache = getattr(ops, f"{name}_forward")(x[None])
    dx = getattr(ops, f"{name}_backward")(y, cache)
    assert (y, dx) == (rows[0], getattr(ops, f"{name}_backward")(rows, row_cache)[0])
    assert np.shape(dx) == ()
    assert dx.dtype == dtype


@pytest.mark.parametrize("shape", [-1, (2, -1)])
def test_no_axis_is_shorter_than_nothing(shape):
    with pytest.raises(ValueError, match="shape"):
        ops.zeros(shape)
