"""The losses: cross-entropy over logits, and its fusion with the output projection."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.machine_faults import in_a_process
from support.kernels.prove_kernel import DEVICE, DTYPES, check, few, on_device, prove_kernel, seeds, to_numpy
from support.kernels.traffic import Traffic

import kernels
import kernels.linear_cross_entropy as fused
from kernels.cross_entropy import cross_entropy_naive
from kernels.logits import ELEMENTS
from minitransformer import ops

vocab_sizes = st.sampled_from([1, 2, 5, 16, 37, 100, 1500, ELEMENTS, ELEMENTS + 1, 2 * ELEMENTS + 800])
"""Rows that share a program, two to a program, rows of a whole block, of a block and one more, and of three blocks."""
smoothings = st.sampled_from([0.0, 0.1, 1.0])
ignored = st.sampled_from([None, 0, -100])


def draw_targets(rng: np.random.Generator, shape: tuple, vocab_size: int, ignore_index: int | None) -> np.ndarray:
    """Targets of which about a third are ignored, where that is asked for."""
    targets = rng.integers(vocab_size, size=shape)
    return targets if ignore_index is None else np.where(rng.random(shape) < 0.3, ignore_index, targets)


def draw_weights(rng: np.random.Generator, shape: tuple, weighted: bool) -> dict[str, Any]:
    """An option of weights, if it is asked for."""
    return {"weights": np.asarray(rng.standard_normal(shape), np.float32)} if weighted else {}


def in_chunks(logits: int) -> Any:
    """Inside it the fused loss has at most so many logits at a time, or one row."""
    return mock.patch.multiple(fused, CHUNK_LOGITS=logits, CHUNK_ROWS=1)


def fused_arguments(dtype: torch.dtype = torch.float32, rows: int = 40, vocab_size: int = 203) -> list[Any]:
    """x, table and targets, some of which are 0, to be ignored."""
    rng = np.random.default_rng(0)
    targets = draw_targets(rng, (rows,), vocab_size, 0)
    return on_device((rng.standard_normal((rows, 3)), rng.standard_normal((vocab_size, 3)), targets), dtype)


def bare(x, table, targets, *args, **options):
    """`cross_entropy` over logits computed outside, in the fused op's clothes."""
    loss, cache = kernels.cross_entropy_forward(x @ table.T, targets, *args, **options)
    return loss, (cache, x, table)


def bare_backward(dloss, cache):
    entropy_cache, x, table = cache
    dlogits = kernels.cross_entropy_backward(dloss, entropy_cache)
    return dlogits @ table, dlogits.T @ x


both = pytest.mark.parametrize(
    ("forward", "backward"),
    [(bare, bare_backward), (kernels.linear_cross_entropy_forward, kernels.linear_cross_entropy_backward)],
    ids=["cross_entropy", "linear_cross_entropy"],
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(
    batch=st.sampled_from([(), (3,), (5,), (2, 3), (0, 2)]),
    vocab_size=vocab_sizes,
    smoothing=smoothings,
    ignore_index=ignored,
    weighted=st.booleans(),
    seed=seeds,
)
def test_cross_entropy(dtype, batch, vocab_size, smoothing, ignore_index, weighted, seed):
    rng = np.random.default_rng(seed)
    targets = draw_targets(rng, batch, vocab_size, ignore_index)
    arrays = {"logits": rng.standard_normal((*batch, vocab_size)), "targets": np.asarray(targets)}
    options = {"label_smoothing": smoothing, "ignore_index": ignore_index} | draw_weights(rng, batch, weighted)
    prove_kernel("cross_entropy", arrays, dtype, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@few
@given(
    rows=st.sampled_from([0, 1, 5]),  # of 1500 logits two share a program: three programs, the last not full
    width=st.sampled_from([1, 8, 33]),
    vocab_size=vocab_sizes,
    smoothing=smoothings,
    ignore_index=ignored,
    weighted=st.booleans(),
    chunk=st.sampled_from([1, 40_000, fused.CHUNK_LOGITS]),
    seed=seeds,
)
def test_linear_cross_entropy(dtype, rows, width, vocab_size, smoothing, ignore_index, weighted, chunk, seed):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.standard_normal((rows, width)), "table": rng.standard_normal((vocab_size, width))}
    arrays["targets"] = draw_targets(rng, (rows,), vocab_size, ignore_index)
    options = {"label_smoothing": smoothing, "ignore_index": ignore_index} | draw_weights(rng, (rows,), weighted)
    with in_chunks(chunk):
        prove_kernel("linear_cross_entropy", arrays, dtype, **options)


# --- Both -----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("count", [0, 3], ids=["no rows", "all ignored"])
def test_no_target_at_all_gives_zero_and_zero_gradients(forward, backward, count):
    x, table = torch.ones(count, 4, device=DEVICE), torch.ones(5, 4, device=DEVICE)
    loss, cache = forward(x, table, torch.full((count,), -100, device=DEVICE), 0.1, -100)
    assert loss.item() == 0
    assert loss.shape == ()
    for gradient in backward(1.0, cache):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@both
@pytest.mark.parametrize(
    "dloss", [2, 2.0, np.float32(2), torch.tensor(2.0), torch.tensor([2.0]), torch.tensor(2.0).half()]
)
def test_dloss_is_a_number_or_a_tensor(forward, backward, dloss):
    _, cache = forward(*fused_arguments(), 0.1, 0)
    dloss = dloss.to(DEVICE) if isinstance(dloss, torch.Tensor) else dloss
    for gradient, single in zip(backward(dloss, cache), backward(1.0, cache), strict=True):
        assert torch.equal(gradient, 2 * single)
    for wrong, kind in ((torch.ones(2, device=DEVICE), ValueError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(kind, match="dloss"):
            backward(wrong, cache)


@both
def test_large_logits_do_not_overflow(forward, backward):
    x, table = torch.tensor([[1e4], [-1e4]], device=DEVICE), torch.tensor([[1.0], [-1.0], [0.0]], device=DEVICE)
    loss, cache = forward(x, table, torch.tensor([1, 1], device=DEVICE))
    assert loss.item() == pytest.approx(1e4)
    assert all(torch.isfinite(gradient).all() for gradient in backward(1.0, cache))


# --- Rows that are long, far apart or extreme -------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_common_offset_costs_no_accuracy(smoothing):
    """Near 20,000 a log-sum-exp is known to 1e-3 only, but the loss and its gradient must be exact."""
    rng = np.random.default_rng(0)
    logits = (2e4 + rng.standard_normal((9, 5000))).astype(np.float32)
    targets = rng.integers(5000, size=9)
    expected, reference = ops.cross_entropy_forward(logits.astype(np.float64), targets, smoothing)
    loss, cache = kernels.cross_entropy_forward(*on_device((logits, targets)), label_smoothing=smoothing)
    check("loss", loss, expected, 1e-6)
    gradient = kernels.cross_entropy_backward(1e3, cache)
    check("gradient", gradient, ops.cross_entropy_backward(1e3, reference), 1e-5)
    check("its rows' sums", gradient.sum(-1), np.zeros(9), 1e-4)


def test_a_row_of_131073():
    rng = np.random.default_rng(0)
    logits, targets = 3 * rng.standard_normal((2, 131_073)), np.array([131_072, 0])
    expected, reference = ops.cross_entropy_forward(logits, targets, 0.1)
    loss, cache = kernels.cross_entropy_forward(*on_device((logits, targets)), label_smoothing=0.1)
    check("loss", loss, expected, 1e-6)
    check("gradient", kernels.cross_entropy_backward(1.0, cache), ops.cross_entropy_backward(1.0, reference), 1e-6)


@pytest.mark.filterwarnings("ignore:overflow")  # −3e38 · log2(e) is −inf, of which 2ˣ is 0, as it should be
@pytest.mark.parametrize("width", [3, ELEMENTS + 1])
@pytest.mark.parametrize("others", [[-torch.inf, 1.0], [-3e38, 0.0]], ids=["-inf", "-3e38"])
def test_a_token_that_is_ruled_out(others, width):
    """Without smoothing its −inf takes no part, wherever it stands, even if a whole block is ruled out."""
    logits = torch.full((1, width), others[0], device=DEVICE)
    logits[0, -2:] = torch.tensor([0.0, others[1]])
    targets = torch.tensor([width - 2], device=DEVICE)
    loss, cache = kernels.cross_entropy_forward(logits, targets)
    assert loss.item() == pytest.approx(torch.nn.functional.cross_entropy(logits, targets).item(), abs=1e-6)
    gradient = kernels.cross_entropy_backward(1.0, cache)
    assert torch.isfinite(gradient).all()
    assert not gradient[0, :-2].any()


def test_ruling_out_the_target_or_smoothing_over_it_costs_everything():
    logits = torch.tensor([[0.0, -torch.inf, 1.0]], device=DEVICE)
    for target, smoothing in ((1, 0.0), (1, 0.1), (0, 0.1)):
        loss, _ = kernels.cross_entropy_forward(logits, torch.tensor([target], device=DEVICE), smoothing)
        assert loss.item() == torch.inf


def test_ignored_rows_are_not_even_read():
    rng = np.random.default_rng(0)
    targets = np.array([1, -100, 4, -100, 2, 0])
    logits, targets = on_device((rng.standard_normal((6, 50)), targets))
    real = targets != -100
    alone, alone_cache = kernels.cross_entropy_forward(logits[real], targets[real], 0.1)
    logits[~real] = torch.nan
    loss, cache = kernels.cross_entropy_forward(logits, targets, 0.1, -100)
    gradient = kernels.cross_entropy_backward(1.0, cache)
    check("loss", loss, alone.item(), 1e-6)  # zeros between the losses: they are added in another order
    assert torch.equal(gradient[real], kernels.cross_entropy_backward(1.0, alone_cache))
    assert not gradient[~real].any()


@both
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1 / 3, 1.0])
def test_a_vocabulary_of_one_leaves_nothing_to_learn(forward, backward, smoothing):
    """Its only token is certain, and `softmax − q` is 0 whatever ε is: q is to round to 1."""
    x, table = torch.randn(300, 1, device=DEVICE), torch.tensor([[1.7]], device=DEVICE)
    loss, cache = forward(x, table, torch.zeros(300, dtype=torch.int64, device=DEVICE), smoothing)
    assert loss.item() == 0
    assert not any(gradient.any() for gradient in backward(1.0, cache))


@pytest.mark.filterwarnings("ignore:All-NaN")  # of NumPy, where four NaN have no maximum
def test_nan_stays_nan():
    logits = torch.tensor([[0.0, torch.nan, 1.0]], device=DEVICE)
    assert torch.isnan(kernels.cross_entropy_forward(logits, torch.tensor([0], device=DEVICE))[0])


# --- The first rung -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("op", "naive", "shapes", "passes"),
    [
        ("cross_entropy", cross_entropy_naive, [(5, 2, 7)], 20),
        ("linear_cross_entropy", fused.linear_cross_entropy_naive, [(10, 3), (7, 3)], 20 + 3),  # its three products
    ],
)
def test_the_naive_rungs(op, naive, shapes, passes, smoothing):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    arrays.append(draw_targets(rng, arrays[0].shape[:-1], 7, 0))
    expected, cache = getattr(ops, f"{op}_forward")(*arrays, smoothing, 0)
    wanted = getattr(ops, f"{op}_backward")(1.0, cache)
    tensors = on_device(arrays)
    with Traffic(70) as traffic:
        loss, *gradients = naive(*tensors, label_smoothing=smoothing, ignore_index=0)
    assert traffic.passes == passes
    check("loss", loss, expected, 1e-6)
    for gradient, truth in zip(gradients, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        check("gradient", gradient, truth, 1e-6)


# --- Fused with the projection --------------------------------------------------------------------------------


def test_the_logits_never_exist_all_at_once():
    x, table, targets = fused_arguments()
    whole, cache = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0)
    with in_chunks(1000), Traffic() as traffic:
        loss, chunked_cache = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0)
        gradients = kernels.linear_cross_entropy_backward(1.0, chunked_cache)
    assert traffic.largest <= 1000 < x.shape[0] * table.shape[0]
    check("loss", loss, whole.item(), 1e-6)
    for gradient, wanted in zip(gradients, kernels.linear_cross_entropy_backward(1.0, cache), strict=True):
        check("gradient", gradient, to_numpy(wanted), 1e-6)


@pytest.mark.parametrize(
    ("rows", "vocab_size", "chunks"),
    [(25_088, 37_000, 4), (8192, 128_000, 4), (8192, 256_000, 5), (3999, 256_000, 2), (1999, 10**6, 4)],
)
def test_chunks_have_rows_enough_for_good_products(rows, vocab_size, chunks):
    x, table = (torch.empty(length, 8, dtype=torch.float16, device="meta") for length in (rows, vocab_size))
    found = [logits for _, logits in fused._chunks(x, table)]
    assert len(found) == chunks
    assert sum(map(len, found)) == rows
    for logits in found:
        assert logits.numel() <= 2 * fused.CHUNK_LOGITS
        assert len(logits) >= 1600 or vocab_size > 2 * fused.CHUNK_LOGITS // fused.CHUNK_ROWS


def test_evaluation_does_no_work_for_gradients():
    x, table, targets = fused_arguments()
    with_grad, _ = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0)
    with Traffic() as traffic:
        loss, cache = kernels.linear_cross_entropy_forward(x, table, targets, 0.1, 0, with_grad=False)
    check("loss", loss, with_grad.item(), 1e-6)  # by another kernel
    assert cache is None
    assert [name for name in traffic.operations if "mm" in name] == ["mm"]
    with pytest.raises(ValueError, match="with_grad=False"):
        kernels.linear_cross_entropy_backward(1.0, cache)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_out_adds_into_an_existing_tensor_which_may_be_wider(dtype, layout):
    x, table, targets = fused_arguments(dtype)
    _, cache = kernels.linear_cross_entropy_forward(x, table, targets)
    dx, dtable = kernels.linear_cross_entropy_backward(0.5, cache)
    into = torch.zeros(table.shape, device=DEVICE)
    if layout == "transposed":
        into = into.T.contiguous().T
    for times in (1, 2):
        dx_again, returned = kernels.linear_cross_entropy_backward(0.5, cache, out=into)
        assert returned is into
        assert torch.equal(dx_again, dx)
        assert torch.equal((into / times).to(dtype), dtable)
    assert dtable.dtype == dx.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("chunk", [640, fused.CHUNK_LOGITS])
def test_dtable_is_summed_in_float32(dtype, chunk):
    """Logits of 0 make dlogits of ±½; half of 2048 + 299 is more than float16 can count."""
    x, table = torch.ones(300, 1, dtype=dtype, device=DEVICE), torch.zeros(2, 1, dtype=dtype, device=DEVICE)
    x[0] = 2048
    with in_chunks(chunk):
        _, cache = kernels.linear_cross_entropy_forward(x, table, torch.zeros(300, dtype=torch.int64, device=DEVICE))
    _, dtable = kernels.linear_cross_entropy_backward(300.0, cache, out=torch.zeros(2, 1, device=DEVICE))
    assert dtable[:, 0].tolist() == pytest.approx([-2347 / 2, 2347 / 2], rel=1e-6)


@pytest.mark.parametrize("width", [ELEMENTS // 2, 2 * ELEMENTS + 1, 2 * ELEMENTS + 16])
def test_a_long_row_of_probabilities(width):
    """Its logits rise, so that the running maximum does; and some tokens are ruled out."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, width)) + np.linspace(0, 30, width)
    targets = rng.random((2, width)) / width
    logits[:, ::7], targets[:, ::7] = -np.inf, 0
    loss, cache = kernels.cross_entropy_forward(*on_device([logits, targets]))
    expected, reference = ops.cross_entropy_forward(logits, targets)
    check("loss", loss, expected, 1e-6)
    check("gradient", kernels.cross_entropy_backward(2.0, cache), ops.cross_entropy_backward(2.0, reference), 1e-6)


@pytest.mark.slow
def test_a_z_loss_as_machine_code():
    """No two lanes disagree about a sum that both hold, as they do where one's own product is not rounded."""
    script = Path(__file__).parents[1] / "support" / "kernels" / "machine_proofs.py"
    for errors in in_a_process(str(script), "z_loss").values():
        assert max(errors) < 2
