"""Cross-entropy with label smoothing, alone and fused with the output projection."""

from functools import partial

import numpy as np
import pytest
import torch
from support import oracles
from support.kernels.tables import TOLERANCES, WITHOUT_TRITON, every_checking_table, every_table, table
from support.prove import autograd, evaluate, normal, prove_float32_accuracy

from minitransformer.gradcheck import error
from minitransformer.ops import (
    cross_entropy_backward,
    cross_entropy_forward,
    linear_backward,
    linear_cross_entropy_backward,
    linear_cross_entropy_forward,
    linear_forward,
    numpy_ops,
)


def test_fused_equals_composed():
    """With more logits than a block of rows holds that the fused op works in; and without gradients, the same loss."""
    rng = np.random.default_rng(0)
    x, table, targets = normal(rng, 700, 3), normal(rng, 2003, 3), rng.integers(2003, size=700)
    targets[rng.random(700) < 0.3] = 0
    loss, cache = linear_cross_entropy_forward(x, table, targets, 0.1, 0)
    dx, dtable = linear_cross_entropy_backward(2.0, cache)
    assert error(linear_cross_entropy_forward(x, table, targets, 0.1, 0, with_grad=False)[0], loss) <= 1e-12

    logits, linear_cache = linear_forward(x, table.T, None)
    composed_loss, entropy_cache = cross_entropy_forward(logits, targets, 0.1, 0)
    composed_dx, dweight, _ = linear_backward(cross_entropy_backward(2.0, entropy_cache), linear_cache)
    assert error(loss, composed_loss) <= 1e-12
    assert error(dx, composed_dx) <= 1e-12
    assert error(dtable, dweight.T) <= 1e-12


def bare(x, table, targets, *args, **options):
    """`cross_entropy` over logits computed outside, in the fused op's clothes."""
    loss, cache = cross_entropy_forward(x @ table.T, targets, *args, **options)
    return loss, (cache, x, table)


def bare_backward(dloss, cache):
    entropy_cache, x, table = cache
    dlogits = cross_entropy_backward(dloss, entropy_cache)
    return dlogits @ table, dlogits.T @ x


both = pytest.mark.parametrize(
    ("forward", "backward"),
    [(bare, bare_backward), (linear_cross_entropy_forward, linear_cross_entropy_backward)],
    ids=["cross_entropy", "linear_cross_entropy"],
)


@both
@pytest.mark.parametrize("targets", [np.zeros(0, int), np.full(3, -100)], ids=["no rows", "all ignored"])
def test_no_target_at_all_gives_zero_and_zero_gradients(forward, backward, targets):
    loss, cache = forward(np.ones((len(targets), 4)), np.ones((5, 4)), targets, 0.1, -100)
    assert loss == 0
    for gradient in backward(1.0, cache):
        np.testing.assert_array_equal(gradient, 0)


@both
def test_ignored_rows_change_nothing(forward, backward):
    rng = np.random.default_rng(0)
    x, table, targets = normal(rng, 6, 3), normal(rng, 5, 3), np.array([1, -100, 4, -100, 2, 0])
    real = targets != -100
    loss, cache = forward(x, table, targets, 0.1, -100)
    alone, alone_cache = forward(x[real], table, targets[real], 0.1, -100)
    (dx, dtable), (dx_alone, dtable_alone) = backward(1.0, cache), backward(1.0, alone_cache)
    assert max(error(loss, alone), error(dx[real], dx_alone), error(dtable, dtable_alone)) <= 1e-12
    np.testing.assert_array_equal(dx[~real], 0)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_logits_do_not_overflow(forward, backward, dtype):
    x, table = np.array([[1e4], [-1e4]], dtype), np.array([[1.0], [-1.0], [0.0]], dtype)
    loss, cache = forward(x, table, np.array([1, 1]))
    assert loss == pytest.approx(1e4)
    assert all(np.isfinite(gradient).all() for gradient in backward(dtype(1), cache))


@both
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_float32_gradients_of_a_model_that_is_sure(forward, backward, smoothing):
    """Probabilities of 0.9 and more: the gradient is the small difference between them and the targets."""

    def draw(rng):
        table, targets = normal(rng, 200, 32), rng.integers(200, size=64)
        return {"x": sure_of(targets, table, 8.0) + 0.1 * normal(rng, 64, 32), "table": table, "targets": targets}

    oracle = partial(oracles.linear_cross_entropy, label_smoothing=smoothing)
    prove_float32_accuracy(partial(forward, label_smoothing=smoothing), backward, oracle, draw)


@both
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_many_small_probabilities_are_not_lost_in_float32(forward, backward, smoothing):
    """One probability of 0.9 beside 1,999 small ones: no less exact than PyTorch."""
    rng = np.random.default_rng(0)
    oracle = partial(oracles.linear_cross_entropy, label_smoothing=smoothing)
    errors = []
    for _ in range(8):
        table, targets = normal(rng, 2000, 32), rng.integers(8, size=64)
        table[8:] *= 0.01
        x = sure_of(targets, table, 9.8) + 0.01 * normal(rng, 64, 32)
        single = {"x": x.astype(np.float32), "table": table.astype(np.float32), "targets": targets}
        double = {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in single.items()}
        _, truths = autograd(oracle, double, np.ones(()))
        _, theirs = autograd(oracle, single, np.ones((), np.float32))
        ours = backward(np.float32(1), forward(*single.values(), smoothing)[1])
        errors.append([[error(*pair) for pair in zip(way, truths, strict=True)] for way in (ours, theirs)])
    ours, theirs = np.mean(errors, axis=0)
    assert (ours <= theirs).all()


def sure_of(targets, table, logit):
    """`x` whose logits of the targets are `logit`."""
    return logit * table[targets] / (table[targets] ** 2).sum(axis=1, keepdims=True)


@both
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_float32_losses(forward, backward, smoothing):
    """One loss is one number, too few to compare errors by: 1,000 of them."""
    rng = np.random.default_rng(0)
    x = normal(rng, 1000, 8, 32).astype(np.float32)
    table = normal(rng, 50, 32).astype(np.float32)
    targets = rng.integers(50, size=(1000, 8))

    def oracle(x, table, targets):
        return torch.stack([oracles.linear_cross_entropy(x[i], table, targets[i], smoothing) for i in range(1000)])

    ours = [forward(x[i], table, targets[i], smoothing)[0] for i in range(1000)]
    theirs = evaluate(oracle, x, table, targets)
    exact = evaluate(oracle, x.astype(np.float64), table.astype(np.float64), targets)
    assert error(ours, exact) <= 2 * error(theirs, exact)


# --- Weights --------------------------------------------------------------------------------------------------

FUSED = pytest.mark.parametrize("fused", [False, True], ids=["cross_entropy", "linear_cross_entropy"])


def weighted(ops, dtype, fused, weights, dloss=1.0, targets=(1, -100, 4, -100, 2, 0), kind=None):
    """The loss of six targets, and its gradients with respect to x and the table; logits are x @ tableᵀ.

    The weights are of another `kind` than the logits if it is given.
    """
    rng = np.random.default_rng(0)
    x, table = (ops.asarray(rng.standard_normal(shape), dtype) for shape in ((6, 3), (5, 3)))
    given = ops.asarray(np.array(targets)), 0.1, -100
    weights = None if weights is None else ops.asarray(np.array(weights), kind or dtype)
    if fused:
        loss, cache = ops.linear_cross_entropy.forward(x, table, *given, weights=weights)
        return ops.to_numpy(loss), [ops.to_numpy(g) for g in ops.linear_cross_entropy.backward(dloss, cache)]
    loss, cache = ops.cross_entropy.forward(x @ table.T, *given, weights=weights)
    dlogits = ops.cross_entropy.backward(dloss, cache)
    return ops.to_numpy(loss), [ops.to_numpy(dlogits @ table), ops.to_numpy(dlogits.T @ x)]


@every_table
@FUSED
def test_a_weighted_loss_is_divided_by_the_number_of_targets(backend, dtype, fused):
    """So a weight of 1 for all changes nothing, of 2 doubles the loss, and of −1 turns it and its gradients around."""
    ops = table(backend, dtype)
    loss, gradients = weighted(ops, dtype, fused, None)
    for weight in (1, 2, -1, 0):
        again, scaled = weighted(ops, dtype, fused, [weight] * 6)
        assert error(again, weight * loss) <= TOLERANCES[dtype]
        for one, other in zip(scaled, gradients, strict=True):
            assert error(one, weight * other) <= TOLERANCES[dtype]


@every_table
@FUSED
def test_each_row_has_the_weight_of_its_own_target(backend, dtype, fused):
    ops, weights = table(backend, dtype), np.array([3.0, 7.0, -0.5, 7.0, 0.0, 2.0])
    _, (dx, _) = weighted(ops, dtype, fused, None)
    _, (scaled, _) = weighted(ops, dtype, fused, weights)
    assert error(scaled, weights[:, None] * dx) <= TOLERANCES[dtype]


@every_table
@FUSED
@pytest.mark.parametrize("absurd", [np.nan, np.inf, 1e30])
def test_the_weight_of_an_ignored_target_has_no_effect(backend, dtype, fused, absurd):
    ops = table(backend, dtype)
    loss, gradients = weighted(ops, dtype, fused, [2.0, 0.0, -1.0, 0.0, 3.0, 1.0])
    again, found = weighted(ops, dtype, fused, [2.0, absurd, -1.0, absurd, 3.0, 1.0])
    for one, other in zip([again, *found], [loss, *gradients], strict=True):
        np.testing.assert_array_equal(one, other)


@every_table
@FUSED
def test_weights_of_targets_that_are_all_ignored(backend, dtype, fused):
    for weights in ([np.nan] * 6, [0.0] * 6):
        loss, gradients = weighted(table(backend, dtype), dtype, fused, weights, targets=[-100] * 6)
        assert loss == 0
        assert not any(gradient.any() for gradient in gradients)


@FUSED
@pytest.mark.parametrize("backend", ["torch", pytest.param("triton", marks=WITHOUT_TRITON)])
@pytest.mark.parametrize("size", [1e-7, 1.0, 1e6])
def test_no_weight_is_too_large_or_too_small_for_half_precision(backend, fused, size):
    """A loss whose scale makes up for it has the gradients of weights of order one."""
    weights = np.array([3.0, np.nan, -0.5, np.nan, 0.25, 2.0])
    exact, truth = weighted(numpy_ops, "float64", fused, weights)
    ops = table(backend, "float16")
    loss, gradients = weighted(ops, "float16", fused, weights * size, 1 / size, kind="float32")
    assert loss.dtype == np.float32
    assert error(loss / size, exact) <= 2e-3
    for gradient, wanted in zip(gradients, truth, strict=True):
        assert error(gradient, wanted) <= 2e-3


@every_checking_table
@FUSED
def test_weights_that_do_not_fit_are_refused(backend, dtype, fused):
    ops = table(backend, dtype)
    with pytest.raises(ValueError, match=r"weights has shape \(5,\), expected \(6,\)"):
        weighted(ops, dtype, fused, np.ones(5))
    with pytest.raises(TypeError, match="weights must be"):
        weighted(ops, dtype, fused, np.ones(6), kind="int64")


# --- Targets that are probabilities ---------------------------------------------------------------------------


@every_table
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_probabilities_that_are_all_on_one_token_are_its_id(backend, dtype, smoothing):
    ops, rng = table(backend, dtype), np.random.default_rng(0)
    logits, ids = ops.asarray(rng.standard_normal((2, 7, 5)), dtype), rng.integers(5, size=(2, 7))
    both = []
    for targets in (ops.asarray(ids), ops.asarray(np.eye(5)[ids], dtype)):
        loss, cache = ops.cross_entropy.forward(logits, targets, smoothing)
        both.append((float(loss), ops.to_numpy(ops.cross_entropy.backward(2.0, cache))))
    for one, other in zip(*both, strict=True):
        assert error(one, other) <= 8 * np.finfo(dtype).eps


@every_table
def test_probabilities_that_do_not_add_up_to_1_are_taken_as_they_are(backend, dtype):
    """As in PyTorch: a row of zeros has no loss, and half of the probabilities half of it."""
    ops, rng = table(backend, dtype), np.random.default_rng(0)
    logits, targets = rng.standard_normal((3, 5)), rng.dirichlet(np.ones(5), 3) * np.array([[0], [0.5], [1]])
    loss, cache = ops.cross_entropy.forward(ops.asarray(logits, dtype), ops.asarray(targets, dtype))
    dlogits = ops.to_numpy(ops.cross_entropy.backward(1.0, cache))
    expected, (gradient,) = autograd(
        lambda x: torch.nn.functional.cross_entropy(x, torch.from_numpy(targets)), {"logits": logits}, np.ones(())
    )
    assert max(error(float(loss), expected), error(dlogits, gradient)) <= TOLERANCES[dtype]
    assert not dlogits[0].any()


@every_checking_table
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (-0.1, "targets holds -0.1.*, expected probabilities from 0 to 1"),
        (1.001, "targets holds 1.00.*, expected probabilities from 0 to 1"),
        (np.nan, "targets holds nan, expected probabilities from 0 to 1"),
        (0.5, "ignore_index is 0, expected None where targets are probabilities"),
    ],
)
def test_what_is_no_probability_is_refused(backend, dtype, wrong, message):
    ops, targets = table(backend, dtype), np.array([[0.5, wrong, 0.0]])
    options = {"ignore_index": 0} if wrong == 0.5 else {}
    with pytest.raises(ValueError, match=message):
        ops.cross_entropy.forward(ops.asarray(np.ones((1, 3)), dtype), ops.asarray(targets, dtype), **options)


@pytest.mark.parametrize("logits", [[0.0, -np.inf, 1.0], [1e308, -1e308, 0.0]])
def test_a_token_that_is_ruled_out(logits):
    """Without smoothing its −inf takes no part; with smoothing the loss is infinite, as PyTorch's."""
    row = np.array([logits])
    loss, cache = cross_entropy_forward(row, np.array([0]))
    expected = torch.nn.functional.cross_entropy(torch.tensor(row), torch.tensor([0])).item()
    assert loss == pytest.approx(expected, abs=1e-12)
    assert np.isfinite(cross_entropy_backward(1.0, cache)).all()
