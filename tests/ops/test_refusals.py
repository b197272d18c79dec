"""What no op takes: gradients to add into that do not fit, numbers that are none, arrays without an axis."""

from typing import Any

import numpy as np
import pytest

from minitransformer.ops import (
    add_layernorm_forward,
    attention_forward,
    cross_entropy_forward,
    dropout_forward,
    embedding_backward,
    embedding_forward,
    layernorm_forward,
    linear_backward,
    linear_cross_entropy_backward,
    linear_cross_entropy_forward,
    linear_forward,
    log_softmax,
    softmax_forward,
    topk,
)

IDS = np.array([0, 2])
X, WEIGHT, BIAS = np.ones((2, 3)), np.ones((3, 5)), np.ones(5)
HEADS = np.ones((1, 1, 2, 3))
SCALAR = np.array(1.0)
NUMBER: Any = 0.1
TEXT: Any = "a"


def linear_into(weight: np.ndarray, bias: np.ndarray | None) -> None:
    y, cache = linear_forward(X, WEIGHT, BIAS)
    linear_backward(y, cache, out=(weight, bias))


def embedding_into(table: np.ndarray) -> None:
    y, cache = embedding_forward(IDS, X.repeat(2, axis=0))  # a table of four rows
    embedding_backward(y, cache, out=table)


def loss_into(table: np.ndarray) -> None:
    _, cache = linear_cross_entropy_forward(X, np.ones((4, 3)), IDS)
    linear_cross_entropy_backward(1.0, cache, out=table)


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


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: dropout_forward(X, NUMBER), TypeError, "dropout must be a Dropout or None, got float"),
        (lambda: attention_forward(HEADS, HEADS, HEADS, dropout=NUMBER), TypeError, "dropout must be a Dropout"),
        (lambda: add_layernorm_forward(X, X, X[0], X[0], dropout=NUMBER), TypeError, "dropout must be a Dropout"),
        (lambda: attention_forward(HEADS, HEADS, HEADS, scale=np.nan), ValueError, "scale is nan"),
        (lambda: attention_forward(HEADS, HEADS, HEADS, scale=TEXT), TypeError, "scale must be a number, got str"),
        (lambda: layernorm_forward(X, X[0], X[0], eps=-1.0), ValueError, "eps is -1.0"),
        (lambda: layernorm_forward(X, X[0], X[0], eps=TEXT), TypeError, "eps must be a number, got str"),
        (lambda: cross_entropy_forward(X, IDS, ignore_index=NUMBER), TypeError, "ignore_index must be an integer"),
        (lambda: cross_entropy_forward(X, IDS, label_smoothing=1.5), ValueError, "label_smoothing is 1.5"),
    ],
)
def test_an_option_of_another_kind_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("call", [softmax_forward, log_softmax, lambda x: dropout_forward(x, None)])
def test_a_row_needs_an_axis(call):
    with pytest.raises(ValueError, match=r"x has shape \(\), expected at least one axis"):
        call(SCALAR)
    with pytest.raises(ValueError, match="k is 1, expected 1 to 0"):
        topk(SCALAR, 1)
