"""Log-probabilities and entropies at the edges: tokens that are ruled out, logits as large as numbers get."""

import numpy as np
import pytest
from support.kernels.tables import TOLERANCES, every_checking_table, every_table, table

from minitransformer.gradcheck import error

RULED_OUT = np.array([[0.0, -np.inf, 1.0, -np.inf], [-np.inf, -np.inf, 2.0, -np.inf]])


@every_table
def test_log_probs_are_the_losses_of_single_targets(backend, dtype):
    ops, rng = table(backend, dtype), np.random.default_rng(0)
    logits, ids = rng.standard_normal((7, 5)), rng.integers(5, size=7)
    given = ops.asarray(logits, dtype)
    log_probs, cache = ops.log_probs.forward(given, ops.asarray(ids))
    dlogits = ops.log_probs.backward(log_probs * 0 + 1, cache)
    for row in range(7):
        loss, loss_cache = ops.cross_entropy.forward(given[row : row + 1], ops.asarray(ids[row : row + 1]))
        assert float(log_probs[row]) == pytest.approx(-float(loss), rel=1e-6)
        expected = ops.to_numpy(ops.cross_entropy.backward(-1.0, loss_cache))
        assert error(ops.to_numpy(dlogits[row : row + 1]), expected) <= TOLERANCES[dtype]


@every_table
def test_a_token_that_is_ruled_out_adds_nothing_and_gets_no_gradient(backend, dtype):
    """The entropy is that of the other tokens, and 0 if there is one alone."""
    ops = table(backend, dtype)
    entropy, cache = ops.entropy.forward(ops.asarray(RULED_OUT, dtype))
    alone, alone_cache = ops.entropy.forward(ops.asarray(RULED_OUT[:1, [0, 2]], dtype))
    dlogits = ops.to_numpy(ops.entropy.backward(entropy * 0 + 1, cache))
    expected = ops.to_numpy(ops.entropy.backward(alone * 0 + 1, alone_cache))
    assert error(ops.to_numpy(entropy), [float(alone[0]), 0.0]) <= TOLERANCES[dtype]
    assert error(dlogits[0, [0, 2]], expected[0]) <= TOLERANCES[dtype]
    assert not dlogits[0, [1, 3]].any()
    assert not dlogits[1].any()
    log_probs, cache = ops.log_probs.forward(ops.asarray(RULED_OUT, dtype), ops.asarray(np.array([2, 2])))
    dlogits = ops.to_numpy(ops.log_probs.backward(log_probs * 0 + 1, cache))
    assert np.isfinite(ops.to_numpy(log_probs)).all()
    assert not dlogits[0, [1, 3]].any()
    assert not dlogits[1].any()


@every_table
def test_a_row_without_any_token_has_no_entropy_and_gets_no_gradient(backend, dtype):
    ops = table(backend, dtype)
    entropy, cache = ops.entropy.forward(ops.asarray(np.full((2, 3), -np.inf), dtype))
    assert not ops.to_numpy(entropy).any()
    assert not ops.to_numpy(ops.entropy.backward(entropy * 0 + 1, cache)).any()


@every_checking_table
def test_large_logits_do_not_overflow(backend, dtype):
    """A model that is sure has no entropy, and one that cannot tell tokens apart has the most: log V."""
    ops, largest = table(backend, dtype), float(np.finfo(dtype).max)
    rows = np.array([[largest, -largest, 0.0], [largest, largest, largest], [-largest, -largest, -largest]])
    entropy, cache = ops.entropy.forward(ops.asarray(rows, dtype))
    assert error(ops.to_numpy(entropy), [0.0, np.log(3), np.log(3)]) <= TOLERANCES[dtype]
    assert error(ops.to_numpy(ops.entropy.backward(entropy * 0 + 1, cache)), np.zeros((3, 3))) <= TOLERANCES[dtype]
    log_probs, cache = ops.log_probs.forward(ops.asarray(rows, dtype), ops.asarray(np.array([0, 1, 2])))
    assert error(ops.to_numpy(log_probs), [0.0, -np.log(3), -np.log(3)]) <= TOLERANCES[dtype]
    assert np.isfinite(ops.to_numpy(ops.log_probs.backward(log_probs * 0 + 1, cache))).all()


@every_checking_table
@pytest.mark.parametrize("wrong", [-1, 4, -100])
def test_an_id_outside_the_vocabulary_is_refused(backend, dtype, wrong):
    ops = table(backend, dtype)
    with pytest.raises(ValueError, match=f"ids holds {wrong}, expected ids from 0 to 3"):
        ops.log_probs.forward(ops.asarray(np.ones((2, 4)), dtype), ops.asarray(np.array([0, wrong])))
