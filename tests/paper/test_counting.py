"""Operations counted by running agree with those that `costs` derives."""

import numpy as np
import pytest

from minitransformer.costs import flops_per_token
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.ops import numpy_ops
from minitransformer.paper.counting import counting


@pytest.mark.parametrize("options", [{}, {"d_k": 3, "d_v": 5}, {"num_decoder_layers": 3}, {"norm_first": True}])
def test_a_training_step_costs_what_is_derived(options: dict) -> None:
    sentences, length = 2, 7
    config = TransformerConfig(50, d_model=16, num_heads=2, d_ff=24, num_layers=2, **options)
    ops, tally = counting(numpy_ops)
    ids = np.random.default_rng(0).integers(3, 50, (3, sentences, length))
    model = Transformer(config, ops)
    loss, cache = model.loss(*ids, label_smoothing=0.1)
    each = flops_per_token(config, length)
    forward = sentences * length * (each.source + each.target)
    assert tally.total == forward
    model.loss_backward(1.0, cache)
    assert tally.total == 3 * forward == 2 * sentences * length * each.training
    plain = Transformer(config)
    assert loss == plain.loss(*ids, label_smoothing=0.1)[0]
    plain.loss_backward(1.0, plain.loss(*ids, label_smoothing=0.1)[1])
    np.testing.assert_array_equal(model.parameters.grad, plain.parameters.grad)


def test_a_window_is_counted_by_the_keys_it_reaches() -> None:
    query, key = np.zeros((1, 1, 3, 2)), np.zeros((1, 1, 5, 2))
    ops, tally = counting(numpy_ops)
    ops.attention_forward(query, key, key, window=1)
    reached = 3 + 3 + 2  # by the queries at positions 2, 3 and 4 of five
    assert tally.by_op == {"attention": 2 * reached * (2 + 2)}


def test_a_window_of_everything_costs_what_none_does() -> None:
    x = np.zeros((2, 2, 6, 3))
    tallies = []
    for window in (None, 6):
        ops, tally = counting(numpy_ops)
        ops.attention_forward(x, x, x, window=window)
        tallies.append(tally.total)
    assert tallies[0] == tallies[1] > 0
