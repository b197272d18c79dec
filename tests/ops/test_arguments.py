"""The declared arguments of ops: every op holds to its line, and an error says which part was not kept."""

from typing import Any

import numpy as np
import pytest
from support.declared_ops import SIZES, backwards, forwards

from minitransformer import ops
from minitransformer.check import random_arguments
from minitransformer.ops import numpy_ops
from minitransformer.ops.arguments import arguments, check_number, unchecked
from minitransformer.probe import Call, probe

every_op = pytest.mark.parametrize("op", forwards())
every_pair = pytest.mark.parametrize("op", backwards())
IDS = np.array([0, 2])
X, WEIGHT, BIAS = np.ones((2, 3)), np.ones((3, 5)), np.ones(5)
HEADS = np.ones((1, 1, 2, 3))
NUMBER: Any = 0.1
TEXT: Any = "a"


def test_every_pair_is_declared():
    pairs = dict(numpy_ops.pairs())
    assert {f"{name}_forward" for name in pairs} <= set(forwards())
    assert {name.removesuffix("_forward") for name in backwards()} == set(pairs)


@every_op
def test_types_never_mix(op):
    call = forwards()[op]
    floats = [name for name, array in call.arrays.items() if array.dtype.kind == "f"]
    for name in floats[1:]:
        with pytest.raises(TypeError, match=rf"{floats[0]} is float64 and {name} is float32: types are never mixed"):
            call(**{name: call.arrays[name].astype(np.float32)})
    for name in floats:
        with pytest.raises(TypeError, match=rf"{name} must be float32 or float64, got int64"):
            call(**{name: call.arrays[name].astype(np.int64)})
    for name in set(call.arrays) - set(floats):  # ids and masks
        other = bool if call.arrays[name].dtype.kind == "i" else int
        with pytest.raises(TypeError, match=rf"{name} must be an? (integer|boolean) array, got {np.dtype(other)}"):
            call(**{name: call.arrays[name].astype(other)})


@every_op
def test_a_size_that_does_not_fit_is_refused_never_broadcast(op):
    """Each axis of each array whose letter another array has too, or that must not be empty."""
    call = forwards()[op]
    assert call.declaration is not None
    seen = [axis for argument in call.declaration.arrays if not argument.broadcast for axis in argument.axes]
    for argument in call.declaration.arrays:
        others = {each.name: None for each in call.declaration.arrays if each.broadcast and each is not argument}
        array = call.arrays[argument.name]
        lead = array.ndim - len(argument.axes)
        for place, letter in enumerate(argument.axes):
            sizes = {7} if argument.broadcast else {1, 7} if seen.count(letter) > 1 else set()
            sizes |= {0} & {0 if letter in call.declaration.not_empty else 1}
            for size in sizes - {SIZES[letter]}:
                shape = list(array.shape)
                shape[max(0, place + lead)] = size
                with pytest.raises(ValueError, match=rf"\b{argument.name}\b"):
                    call(**{argument.name: np.zeros(shape, array.dtype)} | others)


@every_op
def test_an_axis_too_few_is_refused(op):
    call = forwards()[op]
    assert call.declaration is not None
    for argument in call.declaration.arrays:
        if argument.axes not in [(), ("...",)] and not argument.broadcast:
            alone = np.zeros(() if "..." in argument.axes else (2,) * (len(argument.axes) - 1))
            with pytest.raises(ValueError, match=rf"{argument.name} has shape \S.*, expected .*ax[ei]s"):
                call(**{argument.name: alone.astype(call.arrays[argument.name].dtype)})


@every_pair
def test_a_gradient_has_the_shape_and_the_type_of_the_output(op):
    call = backwards()[op]
    ((name, gradient),) = call.arrays.items()
    for wrong in [gradient[..., :1], gradient[None]] if gradient.ndim else [np.ones(2)]:
        with pytest.raises(ValueError, match=rf"{name} has shape .*expected"):
            call(**{name: wrong})
    if gradient.ndim:  # a loss takes any number
        with pytest.raises(TypeError, match=f"{name} is float32 and its output is float64"):
            call(**{name: gradient.astype(np.float32)})


def convolve(padding: str, time: int = 5, taps: int = 3) -> None:
    ops.conv1d_forward(np.ones((2, time, 2)), np.ones((taps, 2, 3)), np.ones(3), padding=padding)


def attend(bias: Any = None, kv_heads: int = 2, **options: Any) -> None:
    """Four heads of queries."""
    query, key = np.ones((1, 4, 2, 3)), np.ones((1, kv_heads, 2, 3))
    ops.attention_forward(query, key, key, bias, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.linear_forward(X, X, None), r"weight has shape \(2, 3\), expected \(3, C_out\) beside x \(2, 3\)"),
        (lambda: ops.linear_forward(X, WEIGHT, X[0]), r"bias has shape \(3,\), expected \(5,\) beside weight \(3, 5\)"),
        (lambda: ops.add_layernorm_forward(X, X[:1], X[0], X[0]), r"sublayer_out .*expected \(2, 3\) beside x"),
        (lambda: ops.layernorm_forward(X[:, :0], X[0], X[0]), r"x has .*expected \(\.\.\., C\) with C ≥ 1"),
        (lambda: ops.softmax_forward(X[0, 0]), "x must be a NumPy array, got float64"),
        (lambda: ops.softmax_forward(np.array(1.0)), r"x has shape \(\), expected at least one axis \(\.\.\., n\)"),
        (lambda: ops.embedding_forward(IDS, X[0]), r"table has shape \(3,\), expected 2 axes \(V, C\)"),
        (lambda: ops.embedding_forward(IDS, X), "ids holds 2, expected ids from 0 to 1"),
        (lambda: ops.embedding_forward(X, X), "ids must be an integer array, got float64"),
        (lambda: ops.topk(np.array(1.0), 1), "k is 1, expected 1 to 0"),
        (lambda: ops.dropout_forward(X, NUMBER), "dropout must be a Dropout or None, got float"),
        (lambda: ops.attention_forward(HEADS, HEADS, HEADS, dropout=NUMBER), "dropout must be a Dropout"),
        (lambda: ops.add_layernorm_forward(X, X, X[0], X[0], dropout=NUMBER), "dropout must be a Dropout"),
        (lambda: ops.attention_forward(HEADS, HEADS, HEADS, scale=np.nan), "scale is nan"),
        (lambda: ops.attention_forward(HEADS, HEADS, HEADS, scale=TEXT), "scale must be a number, got str"),
        (lambda: ops.attention_forward(HEADS, HEADS, HEADS, window=-1), "window is -1, expected an integer of 0 or mo"),
        (lambda: attend(window=(1, -1)), "window's right is -1, expected an integer of 0 or more"),
        (lambda: attend(window=(1, 2, 3)), r"window has 3 numbers, expected an integer or a pair \(left, right\)"),
        (lambda: attend(window=(TEXT, None)), "window's left must be an integer, got str"),
        (lambda: attend(softcap=0.0), "softcap is 0, expected a finite number above 0"),
        (lambda: attend(softcap=-1), r"softcap is -1.0, expected a finite number in \[0, inf\]"),
        (lambda: attend(pattern=TEXT), "pattern must be a Pattern or None, got str"),
        (lambda: attend(window=1, pattern=ops.Pattern(window=1)), "window is given twice, in pattern and beside it"),
        (
            lambda: attend(pattern=ops.Pattern(key_mask=IDS[None] > 0), key_mask=IDS[None] > 0),
            "key_mask is given twice",
        ),
        (
            lambda: attend(pattern=ops.Pattern(key_mask=IDS[None, :1] > 0)),
            r"key_mask has .*\(1, 1\), expected \(1, 2\)",
        ),
        (lambda: attend(np.ones((1, 3, 2, 2))), r"bias has shape \(1, 3, 2, 2\), .* broadcast to \(1, 4, 2, 2\)"),
        (lambda: attend(np.ones((1, 1, 1, 1, 1))), r"bias has shape \(1, 1, 1, 1, 1\), expected one that can be broad"),
        (lambda: attend(np.ones((2, 2), np.float32)), "query is float64 and bias is float32: types are never mixed"),
        (lambda: attend(kv_heads=3), r"key has shape \(1, 3, 2, 3\), .* where Hk divides H, which is 4"),
        (lambda: attend(kv_heads=8), r"key has shape \(1, 8, 2, 3\), expected \(B, Hk, Tk, D\), where Hk divides H"),
        (lambda: attend(kv_heads=0), r"key has shape \(1, 0, 2, 3\), expected \(B, Hk, Tk, D\), where Hk divides H"),
        (lambda: ops.attention_weights(HEADS[:, [0] * 3], HEADS[:, [0] * 2]), "where Hk divides H, which is 3"),
        (lambda: ops.layernorm_forward(X, X[0], X[0], eps=-1.0), r"eps is -1.0, expected .* \[0, inf\]"),
        (lambda: ops.layernorm_forward(X, X[0], X[0], eps=TEXT), "eps must be a number, got str"),
        (lambda: ops.cross_entropy_forward(X, IDS, ignore_index=NUMBER), "ignore_index must be an integer"),
        (lambda: ops.cross_entropy_forward(X, IDS, label_smoothing=1.5), r"label_smoothing is 1.5, .*\[0, 1\]"),
        (lambda: convolve(taps=4, padding="same"), "weight has 4 positions: padding 'same' needs an odd number"),
        (lambda: convolve(time=2, padding="valid"), "padding 'valid' needs at least weight's 3 positions"),
        (lambda: convolve(padding="full"), "padding is 'full', expected one of causal, same, valid"),
    ],
)
def test_a_refusal_says_what_was_given_and_what_was_expected(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


# --- Gradients added into what is there ----------------------------------------------------------------------


def linear_into(weight: np.ndarray, bias: np.ndarray | None) -> None:
    y, cache = ops.linear_forward(X, WEIGHT, BIAS)
    ops.linear_backward(y, cache, out=(weight, bias))


def embedding_into(table: np.ndarray) -> None:
    y, cache = ops.embedding_forward(IDS, X.repeat(2, axis=0))  # a table of four rows
    ops.embedding_backward(y, cache, out=table)


def loss_into(table: np.ndarray) -> None:
    _, cache = ops.linear_cross_entropy_forward(X, np.ones((4, 3)), IDS)
    ops.linear_cross_entropy_backward(1.0, cache, out=table)


@pytest.mark.parametrize(
    ("add", "kind", "message"),
    [
        (lambda: linear_into(np.zeros((3, 5), np.float32), np.zeros(5)), TypeError, "out's dweight is float32"),
        (lambda: linear_into(np.zeros((2, 3, 5)), np.zeros(5)), ValueError, "out's dweight has shape"),
        (lambda: linear_into(np.zeros((3, 5)), None), TypeError, "out's dbias must be a NumPy array, got NoneType"),
        (lambda: embedding_into(np.zeros((4, 3), np.float32)), TypeError, "out is float32"),
        (lambda: embedding_into(np.zeros((9, 3))), ValueError, "out has shape"),
        (lambda: loss_into(np.zeros((4, 3), np.float32)), TypeError, "out is float32"),
        (lambda: loss_into(np.zeros((2, 4, 3))), ValueError, "out has shape"),
    ],
)
def test_a_gradient_is_added_only_where_it_fits(add, kind, message):
    with pytest.raises(kind, match=message):
        add()


@every_pair
@pytest.mark.parametrize("cache", [0, (1,) * 9])
def test_a_cache_of_something_else_is_refused(op, cache):
    call = backwards()[op]
    with pytest.raises(TypeError, match=f"cache is not what {op} returned"):
        call(cache=cache)


# --- Declarations as values, and functions without their checks ----------------------------------------------


def test_a_declaration_can_be_read():
    @arguments("ids<V ..., table V≥1 C, bias? C, real?:bool B T, some?:broadcast P|T B", scale=check_number)
    def op(ids, table, bias, real=None, some=None, scale: float | None = None):
        return ids, table, bias, real, scale

    declaration = vars(op)["declaration"]
    told = [(a.name, a.axes, a.kind, a.limit, a.optional, a.broadcast) for a in declaration.arrays]
    assert told == [
        ("ids", ("...",), "ids", "V", False, False),
        ("table", ("V", "C"), "float", "", False, False),
        ("bias", ("C",), "float", "", True, False),
        ("real", ("B", "T"), "mask", "", True, False),
        ("some", ("P", "B"), "float", "", True, True),
    ]
    assert declaration.multiples == {"P": "T"}
    assert declaration.not_empty == {"V"}
    assert set(declaration.options) == {"scale"}
    sizes = {"...": (2, 3), "V": 4, "C": 5, "B": 1, "T": 2}
    drawn: dict[str, Any] = random_arguments(declaration, sizes, np.random.default_rng(0), "float32")
    assert drawn.pop("some").shape == (2, 1)
    kinds = {name: (array.shape, array.dtype) for name, array in drawn.items()}
    assert kinds == {"ids": ((2, 3), int), "table": ((4, 5), "f4"), "bias": ((5,), "f4"), "real": ((1, 2), bool)}
    assert op(**drawn)[0] is drawn["ids"]
    with pytest.raises(ValueError, match="scale is nan"):
        op(**drawn, scale=np.nan)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'bias'"):
        op(drawn["ids"], drawn["table"])  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="missing 2 required positional arguments: 'query' and 'value'"):
        ops.attention_forward(key=HEADS, bias=HEADS)  # pyright: ignore[reportCallIssue]


@every_pair
def test_without_checks_it_is_the_same_function(op):
    for call in (forwards()[op], backwards()[op]):
        plain = vars(call.function).get("unchecked", call.function)
        expected, found = call(), plain(**call.arrays, **call.options)
        np.testing.assert_equal(found, expected)


def test_the_unchecked_table_checks_no_shapes_but_ids():
    plain = numpy_ops.unchecked()
    assert plain.relu.forward([1, -1])[0].tolist() == [1, 0]
    assert plain.relu.forward is unchecked(ops.relu_forward)
    for op, arrays in (("cross_entropy", (X,)), ("linear_cross_entropy", (X, X))):
        forward = getattr(plain, op).forward
        for targets, smoothing, message in (
            (IDS - 3, 0.0, "targets holds -3"),
            (IDS + 1, 0.0, "targets holds 3"),
            (IDS * 0 - 100, 0.0, "targets holds -100"),
            (IDS * 0, 1.5, "label_smoothing is 1.5"),
        ):
            with pytest.raises(ValueError, match=message):
                forward(*arrays, targets, smoothing)
    with pytest.raises(ValueError, match="ids holds 4"):
        plain.embedding.forward(np.array([4]), np.ones((4, 2)))


def test_a_watched_op_stays_watched():
    """`functools.wraps` gives a probe's function the attributes of the checked one."""
    calls: list[Call] = []
    ops_watched = probe(numpy_ops, calls.append).unchecked()
    ops_watched.relu.forward(X)
    assert [call.op for call in calls] == ["relu"]
