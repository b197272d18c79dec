"""Ids and targets: of every kind of integer, ignored, and out of range where the host does not look."""

import numpy as np
import pytest
import torch
from support.kernels.op_cases import C, V
from support.kernels.prove_kernel import DEVICE
from support.kernels.tables import TOLERANCES, WITHOUT_TRITON, every_checking_table, every_table, table
from torch import Tensor

from kernels import checks
from minitransformer import ops as reference
from minitransformer.gradcheck import error

both_tables = pytest.mark.parametrize("backend", ["torch", pytest.param("triton", marks=WITHOUT_TRITON)])
losses = pytest.mark.parametrize("op", ["cross_entropy", "linear_cross_entropy"])
NONE = [-1, V, V + 1, -100, -(2**31) - 1, 2**32, -(2**62), 2**62]
"""No ids: near ones, in memory that is ours in these tests, and some that 32 bits would take for one."""


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at ids, as if they were in a GPU's memory."""
    monkeypatch.setattr(checks, "check_ids", lambda *_, **__: None)


def guarded(rows: int, width: int, guard: float) -> tuple[Tensor, Tensor]:
    """Whole numbers `(rows, width)` in the midst of rows that are all `guard`; and all of them."""
    whole = torch.full((3 * rows, width), guard, device=DEVICE)
    rows_of_it = whole[rows : 2 * rows]
    rows_of_it.copy_(torch.from_numpy(np.random.default_rng(0).integers(-9, 9, (rows, width))))
    return rows_of_it, whole


# --- Out of range, unseen -------------------------------------------------------------------------------------


@WITHOUT_TRITON
@both_tables
@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("bad", NONE)
def test_an_id_that_is_none_gives_nan_and_its_gradient_goes_nowhere(backend, bad):
    ops = table(backend)
    weights, _ = guarded(V, C, 7.0)
    ids = torch.tensor([[2, bad, 0], [bad, bad, 2]], device=DEVICE)
    y, cache = ops.embedding.forward(ids, weights, 3.0)
    known = (ids == 2) | (ids == 0)
    assert y[~known].isnan().all()
    assert torch.equal(y[known], 3.0 * weights[ids[known]])

    gradient, whole = guarded(V, C, 7.0)
    expected = whole.clone()
    expected[V : 2 * V].index_add_(0, torch.tensor([2, 0, 2], device=DEVICE), torch.full((3, C), 3.0, device=DEVICE))
    assert ops.embedding.backward(torch.ones_like(y), cache, out=gradient) is gradient
    assert torch.equal(whole, expected)
    assert ops.embedding.backward(torch.full_like(y, torch.nan), cache)[[1, 3, 4]].count_nonzero() == 0


@WITHOUT_TRITON
@both_tables
@losses
@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("bad", NONE)
def test_a_target_that_is_none_makes_the_loss_nan_and_its_row_of_the_gradient(backend, op, bad):
    ops = table(backend)
    targets = torch.tensor([3, bad, 0, -5, 1], device=DEVICE)
    of_targets = {"logits": guarded(5, V, 7.0)[0]}
    if op == "linear_cross_entropy":
        of_targets = {"x": guarded(5, C, 7.0)[0], "table": guarded(V, C, 7.0)[0]}
    forward, backward = getattr(ops, op).forward, getattr(ops, op).backward
    for smoothing in (0.0, 0.1):
        found = []
        for each in (targets, torch.where(targets == bad, 4, targets)):
            loss, cache = forward(*of_targets.values(), each, smoothing, -5)
            gradients = backward(1.0, cache)
            found.append((loss, gradients[0] if isinstance(gradients, tuple) else gradients))
        (loss, gradient), (right, expected) = found
        assert loss.isnan()
        assert right.isfinite()
        assert gradient[1].isnan().all()
        others = [0, 2, 3, 4]
        torch.testing.assert_close(gradient[others], expected[others], rtol=1e-6, atol=1e-8)
        assert not gradient[3].any()


@WITHOUT_TRITON
@pytest.mark.skipif(DEVICE != "cpu", reason="hide the GPU, CUDA_VISIBLE_DEVICES='': seen in the interpreter alone")
@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("bad", NONE)
def test_nothing_outside_is_read_or_written(bad):
    """Not even what would be masked away afterwards."""
    from course.sanitizer import sanitize

    ops = table("triton")
    weights, x, logits = (torch.ones(shape, device=DEVICE) for shape in ((V, C), (5, C), (5, V)))
    targets, of_losses = torch.tensor([bad, 3, 0, bad, 1], device=DEVICE), torch.ones(5, device=DEVICE)
    with sanitize() as seen:
        y, cache = ops.embedding.forward(targets, weights)
        ops.embedding.backward(y, cache)
        for ignored in (None, 0, -100):
            _, cache = ops.cross_entropy.forward(logits, targets, 0.1, ignored, weights=of_losses)
            ops.cross_entropy.backward(1.0, cache)
            _, cache = ops.linear_cross_entropy.forward(x, weights, targets, 0.1, ignored, weights=of_losses)
            ops.linear_cross_entropy.backward(1.0, cache)
    assert (seen.loads, seen.stores) == (0, 0)


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU, and a PyTorch that was built for it")
@pytest.mark.parametrize("op", ["embedding", "cross_entropy", "linear_cross_entropy"])
def test_nothing_waits_for_the_gpu(op):
    ops, ids = table("triton"), torch.zeros(300, dtype=torch.int64, device=DEVICE)
    arrays = {"embedding": [(4, 8)], "cross_entropy": [(300, 4)], "linear_cross_entropy": [(300, 8), (4, 8)]}[op]
    ones = [torch.ones(shape, device=DEVICE) for shape in arrays]
    torch.cuda.set_sync_debug_mode("error")  # whatever waits raises
    try:
        out, cache = getattr(ops, op).forward(*((ids, *ones) if op == "embedding" else (*ones, ids, 0.1, 1)))
        getattr(ops, op).backward(out, cache)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# --- Every kind, and any number for what is ignored -----------------------------------------------------------


@every_table
@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "uint16", "int32", "int64"])
def test_ids_of_every_kind_of_integer(backend, dtype, kind):
    """PyTorch takes uint8 for a mask, 300 beside uint8 for 44, and compares no uint16: its arithmetic here does."""
    ops = table(backend, dtype)
    weights = ops.asarray(np.arange(300.0)[:, None] + np.zeros((300, 2)), dtype)
    numbers = ops.asarray(np.array([[1, 0], [3, 100], [2, 2]]), kind)
    y, cache = ops.embedding.forward(numbers, weights)
    np.testing.assert_array_equal(ops.to_numpy(y)[..., 0], [[1, 0], [3, 100], [2, 2]])
    dtable = ops.embedding.backward(y, cache)
    np.testing.assert_array_equal(ops.to_numpy(dtable)[[0, 1, 2, 3, 100], 0], [0, 1, 4, 3, 100])
    x, targets = ops.asarray(np.eye(3), dtype), ops.asarray(np.array([[0, 1], [2, 1], [0, 2]]), kind)[:, 0]
    for op, arrays in (("cross_entropy", [x]), ("linear_cross_entropy", [x, x])):
        loss, _ = getattr(ops, op).forward(*arrays, targets, 0.1)
        expected, _ = reference.cross_entropy_forward(np.eye(3), np.array([0, 2, 0]), 0.1)
        assert float(loss) == pytest.approx(float(expected), rel=1e-6)


@every_table
@losses
@pytest.mark.parametrize("ignored", [0, V - 1, V, -1, -100, np.int64(-100), -(2**31), 2**31 - 1])
def test_any_integer_may_be_what_is_ignored(backend, dtype, op, ignored):
    """A token or none: its rows come to nothing, and the mean is over the others."""
    ops, rng = table(backend, dtype), np.random.default_rng(0)
    targets = np.array([3, ignored, 5, ignored, 3, 1])
    arrays = [rng.standard_normal((6, V))]
    if op == "linear_cross_entropy":
        arrays = [rng.standard_normal((6, C)), rng.standard_normal((V, C))]
    expected, cache = getattr(reference, f"{op}_forward")(*arrays, targets, 0.1, ignored)
    gradient = getattr(reference, f"{op}_backward")(1.0, cache)
    real = targets != ignored
    alone, _ = getattr(reference, f"{op}_forward")(arrays[0][real], *arrays[1:], targets[real], 0.1)
    assert expected == pytest.approx(alone)
    loss, cache = getattr(ops, op).forward(
        *(ops.asarray(array, dtype) for array in arrays), ops.asarray(targets), 0.1, ignored
    )
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    found = getattr(ops, op).backward(1.0, cache)
    for actual, wanted in zip(*(g if isinstance(g, tuple) else (g,) for g in (found, gradient)), strict=True):
        assert error(ops.to_numpy(actual), wanted) <= TOLERANCES[dtype]


@every_table
def test_what_is_ignored_is_no_other_id_in_a_narrow_type(backend, dtype):
    """−100 as uint8 is 156, which is a token here, and counts."""
    ops = table(backend, dtype)
    logits = ops.asarray(np.eye(200)[[156, 3]], dtype)
    targets = ops.asarray(np.array([156, 4]), "uint8")
    loss, _ = ops.cross_entropy.forward(logits, targets, 0.0, -100)
    expected, _ = ops.cross_entropy.forward(logits, targets)
    assert float(loss) == float(expected)


@every_checking_table
@losses
@pytest.mark.parametrize(
    ("ignored", "kind", "message"),
    [
        (2**31, ValueError, "ignore_index is 2147483648, expected an integer from -2147483648 to 2147483647"),
        (-(2**31) - 1, ValueError, "ignore_index is -2147483649, expected"),
        (2**70, ValueError, "ignore_index is 1.18059162071741e\\+21, expected"),
        (True, TypeError, "ignore_index must be an integer, got bool"),
        (0.5, TypeError, "ignore_index must be an integer, got float"),
    ],
)
def test_what_is_ignored_must_be_an_integer_of_32_bits(backend, dtype, op, ignored, kind, message):
    ops = table(backend, dtype)
    square = ops.asarray(np.ones((3, 3)), dtype)
    arrays = [square, square][: 2 if op == "linear_cross_entropy" else 1]
    with pytest.raises(kind, match=message):
        getattr(ops, op).forward(*arrays, ops.asarray(np.array([0, 1, 2])), 0.0, ignored)
