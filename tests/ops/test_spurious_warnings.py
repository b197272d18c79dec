"""NumPy's floating-point warnings: finite input gives none, whatever lay in memory before.

OpenBLAS's kernel for `(m, 5) @ (5,)` in float32 on processors with AVX-512 loads whole vectors, reads past the end of
a buffer on the stack, and drops the surplus. Where a signalling NaN lies there, the flag of an invalid operation stays.
"""

import numpy as np
import pytest
from support.declared_ops import forwards

from minitransformer import Transformer, TransformerConfig, ops
from minitransformer.probe import Call, probe

SIGNALLING = np.full(1024, 0x7FA00000, np.uint32).view(np.float32)


def leave_signalling_nans_on_the_stack(length: int) -> None:
    """A product with a strided vector copies the vector to the stack first; how far down depends on the length."""
    with np.errstate(all="ignore"):
        np.matmul(np.ones((length, length), np.float32), SIGNALLING[: 2 * length : 2])


def sizes(m: int) -> list[dict]:
    """Return sizes at which a product of each op is `(m, 5) @ (5,)`, and sizes at which one is in its backward."""
    rows = {"...": (m,), "T": m, "Tq": m, "Tk": 5, "D": 2, "Dv": 1, "C": 5, "C_in": 5, "C_out": 1, "N": m, "V": 4}
    widths = {"...": (5,), "T": 5, "Tq": 1, "Tk": m, "D": 5, "Dv": 5, "C": m, "C_in": m, "C_out": 3, "N": 5, "V": 4}
    return [rows, widths]


@pytest.mark.parametrize("op", sorted(set(forwards()) - {"adam_step", "attention_mask", "topk"}))
def test_no_warning_for_finite_input_whatever_lay_in_memory(op):
    backward = getattr(ops, op.replace("_forward", "_backward"))
    calls = [forwards(each, "float32")[op] for m in (2, 3, 6) for each in sizes(m)]
    for length in range(16, 257, 3):
        for call in calls:
            leave_signalling_nans_on_the_stack(length)
            result = call()  # a warning is an error in these tests
            if backward is not call.function:
                backward(np.asfortranarray(result[0]), result[1])


def test_a_value_that_is_nowhere_near_a_number_is_warned_of():
    with pytest.warns(RuntimeWarning, match="invalid value"):
        ops.cos(np.array([np.inf]))
    with pytest.warns(RuntimeWarning, match="invalid value"):
        ops.relu_backward(np.array([np.inf]), np.array([0.0]))


def test_a_model_calls_its_unchecked_ops_where_such_warnings_are_off():
    seen = []

    def note(call: Call) -> None:
        if call.op == "relu":
            seen.append(np.geterr()["invalid"])

    config = TransformerConfig(vocab_size=9, d_model=8, num_heads=1, d_ff=8, num_layers=1)
    model, ids = Transformer(config, probe(ops.numpy_ops, note)), np.array([[3, 4]])
    logits, cache = model.forward(ids, ids)
    model.backward(logits, cache)
    loss, cache = model.loss(ids, ids, ids)
    model.loss_backward(loss, cache)
    model.decode_step(ids[:, :1], model.start_decoding(ids))
    assert seen == ["ignore"] * (4 + 4 + 2)
