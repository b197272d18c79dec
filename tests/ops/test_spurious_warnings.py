"""NumPy's floating-point warnings: finite input gives none, whatever lay in memory before.

OpenBLAS's kernel for `(m, 5) @ (5,)` in float32 on processors with AVX-512 loads whole vectors, reads past the end of
a buffer on the stack, and drops the surplus. Where a signalling NaN lies there, the flag of an invalid operation stays.
"""

from typing import Any

import numpy as np
import pytest

from minitransformer import Transformer, TransformerConfig
from minitransformer.ops import (
    Ops,
    Pair,
    additive_attention_backward,
    additive_attention_forward,
    attention_backward,
    attention_forward,
    attention_weights,
    layernorm_backward,
    layernorm_forward,
    linear_backward,
    linear_cross_entropy_backward,
    linear_cross_entropy_forward,
    linear_forward,
    log_softmax,
    relu_backward,
    relu_forward,
    softmax_forward,
)

SIGNALLING = np.full(1024, 0x7FA00000, np.uint32).view(np.float32)


def leave_signalling_nans_on_the_stack(length: int) -> None:
    """A product with a strided vector copies the vector to the stack first; how far down depends on the length."""
    with np.errstate(all="ignore"):
        np.matmul(np.ones((length, length), np.float32), SIGNALLING[: 2 * length : 2])


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def linear(m: int) -> None:
    y, cache = linear_forward(ones(m, 5), ones(5, 1), None)
    linear_backward(y, cache)
    y, cache = linear_forward(ones(5, m), ones(m, 3), ones(3))
    linear_backward(y.T.copy().T, cache)


def attention(m: int) -> None:
    out, cache = attention_forward(ones(1, 1, m, 2), ones(1, 1, 5, 2), ones(1, 1, 5, 1))
    attention_backward(out, cache)
    query, key = ones(1, 1, 1, 5), ones(1, 1, m, 5)
    attention_weights(query, key)
    out, cache = attention_forward(query, key, key)
    attention_backward(out, cache)


def additive_attention(m: int) -> None:
    out, cache = additive_attention_forward(ones(1, m, 5), ones(1, 5, 5), ones(1, 5, 1), ones(5))
    additive_attention_backward(out, cache)


def layernorm(m: int) -> None:
    y, cache = layernorm_forward(np.arange(5 * m, dtype=np.float32).reshape(m, 5), ones(5), ones(5))
    layernorm_backward(y, cache)
    y, cache = layernorm_forward(np.arange(5 * m, dtype=np.float32).reshape(5, m), ones(m), ones(m))
    layernorm_backward(y.T.copy().T, cache)


def linear_cross_entropy(m: int) -> None:
    loss, cache = linear_cross_entropy_forward(ones(m, 5), ones(4, 5), np.zeros(m, int), label_smoothing=0.1)
    linear_cross_entropy_backward(loss, cache)


@pytest.mark.parametrize(
    "call",
    [
        linear,
        attention,
        additive_attention,
        layernorm,
        linear_cross_entropy,
        lambda m: softmax_forward(ones(m, 5)),
        lambda m: log_softmax(ones(m, 5)),
    ],
    ids="linear attention additive_attention layernorm linear_cross_entropy softmax log_softmax".split(),
)
def test_no_warning_for_finite_input_whatever_lay_in_memory(call):
    for length in range(16, 257):
        for m in (2, 3, 6):
            leave_signalling_nans_on_the_stack(length)
            call(m)  # a warning is an error in these tests


def test_a_model_calls_its_unchecked_ops_where_such_warnings_are_off():
    seen = []

    def noted(function: Any) -> Any:
        def run(*args):
            seen.append(np.geterr()["invalid"])
            return function(*args)

        return run

    ops = Ops(relu=Pair(noted(relu_forward), noted(relu_backward)))
    model = Transformer(TransformerConfig(vocab_size=9, d_model=8, num_heads=1, d_ff=8, num_layers=1), ops=ops)
    ids = np.array([[3, 4]])
    logits, cache = model.forward(ids, ids)
    model.backward(logits, cache)
    loss, cache = model.loss(ids, ids, ids)
    model.loss_backward(loss, cache)
    model.decode_step(ids[:, :1], model.start_decoding(ids))
    assert seen == ["ignore"] * (4 + 4 + 2)
