"""Watching a table: everything is seen, nothing is changed."""

import dataclasses

import numpy as np

from minitransformer import Transformer, TransformerConfig
from minitransformer.ops import Ops, numpy_ops
from minitransformer.probe import Call, probe

IDS = np.array([[3, 4, 5], [6, 7, 0]])
CONFIG = TransformerConfig(vocab_size=9, d_model=8, num_heads=2, d_ff=12, num_layers=1, max_length=8)


def trained(ops: Ops) -> tuple[float, np.ndarray]:
    model = Transformer(CONFIG, ops)
    loss, cache = model.loss(IDS, IDS, IDS)
    model.loss_backward(1.0, cache)
    return float(loss), model.parameters.grad


def test_a_watched_model_computes_the_same_bits():
    (loss, grad), (plain_loss, plain_grad) = trained(probe(numpy_ops, lambda call: None)), trained(numpy_ops)
    assert loss == plain_loss
    np.testing.assert_array_equal(grad, plain_grad)


def test_every_call_is_seen_with_its_arguments_its_result_and_its_time():
    calls: list[Call] = []
    ops = probe(numpy_ops, calls.append)
    x = np.array([-1.0, 2.0])
    y, cache = ops.relu.forward(x)
    dx = ops.relu.backward(dy=np.ones(2), cache=cache)
    joined = ops.concatenate([x, y], axis=0)
    forward, backward, plumbing = calls
    assert [(call.op, call.way) for call in calls] == [("relu", "forward"), ("relu", "backward"), ("concatenate", "")]
    assert forward.arguments == (x,)
    assert forward.result[0] is y
    assert set(backward.options) == {"dy", "cache"}
    assert backward.result is dx
    assert plumbing.result is joined
    assert all(call.seconds >= 0 for call in calls)


def test_every_entry_of_the_table_is_watched():
    ops = probe(numpy_ops, lambda call: None)
    same = {
        field.name for field in dataclasses.fields(Ops) if getattr(ops, field.name) == getattr(numpy_ops, field.name)
    }
    assert same == {"repeated", "has_threads"}
