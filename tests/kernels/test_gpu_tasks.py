"""The tasks that are timed on a GPU: every contestant computes the same, and how a time is taken."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.kernels.prove_kernel import DEVICE

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")

sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "gpu"))

import attention
from swap import SMOOTHING, Setting, TorchTransformer, Truth, copy_weights
from timing import Machine

from kernels.proof.ledger import FLEX, FORWARD
from minitransformer.models import Transformer

SMOKE = Machine(DEVICE, smoke=True)


def test_a_rate_is_the_work_over_the_time():
    machine = Machine(DEVICE, smoke=True, ceilings={"matmul_tflops": 2.0, "copy_gbs": 4.0})
    found = machine.timed(lambda: [lambda: None], moved=1e6)
    assert found["gbs"] == pytest.approx(1 / found["ms"])
    assert found["share"] == pytest.approx(found["gbs"] / 4.0)
    assert machine.timed(lambda: [lambda: None], flops=1e6).keys() == {"ms", "peak_mb", "tflops", "share"}


TASKS = [*attention.tasks(SMOKE), *attention.decoding(SMOKE, ["ours"])]
SHAPES = {task.size["kind"]: attention.Shape(**task.size) for task in TASKS}


@pytest.mark.parametrize("shape", [shape for shape in SHAPES.values() if not shape.pattern.causal], ids=str)
def test_pairs_are_counted_as_the_mask_has_them(shape):
    mask = shape.mask("cpu")
    everything = torch.ones(shape.B, 1, shape.Tq, shape.Tk, dtype=torch.bool)
    assert shape.pairs() == (everything if mask is None else everything & mask).sum().item()


@pytest.mark.parametrize("shape", [shape for kind, shape in SHAPES.items() if kind != "dropout"], ids=str)
def test_contestants_compute_the_same(shape):
    """All that run here: of PyTorch's backends a CPU has few, and a GPU not all for each mask."""
    inputs, dout = shape.draw(SMOKE)
    prepares = attention.contestants(shape, FORWARD, SMOKE)
    calls = {name: prepare(inputs, dout) for name, prepare in prepares.items()}
    (out, _), bound = calls.pop("ours")(), 1e-5 if SMOKE.dtype == torch.float32 else 0.03
    compared = set()
    for name, call in calls.items():
        try:
            found = call()
        except RuntimeError as error:
            assert "No available kernel" in str(error) or "No viable backend" in str(error)  # noqa: PT017
            continue
        torch.testing.assert_close(found, out, atol=bound, rtol=bound)
        compared.add(name)
    assert "math" in compared
    assert (FLEX in compared) == (shape.kind not in ("full", "decoding"))


def test_times_on_a_gpu_are_medians_over_inputs_that_take_turns(monkeypatch):
    seen = []

    def do_bench(call: Callable[[], Any], **how: Any) -> float:
        assert how["return_mode"] == "median"
        for _ in range(3):
            call()
        return 1.5

    monkeypatch.setattr("timing.do_bench", do_bench)
    calls = [lambda: seen.append("first"), lambda: seen.append("second")]
    assert Machine("cuda", smoke=False).milliseconds(calls) == 1.5
    assert seen == ["first", "second", "first"]


@pytest.mark.parametrize("window", [None, 0])
def test_a_model_must_be_the_same_before_it_is_timed(window):
    """PyTorch's is ours to rounding; and one that sees fewer words is told apart."""
    setting = Setting.of(SMOKE)
    config, batch = setting.config, setting.batch(0)
    ours = Transformer(type(config)(**config.to_dict() | {"window": window}))
    theirs = TorchTransformer(config).eval()
    copy_weights(theirs, {name: torch.from_numpy(array) for name, array in ours.parameters.state_dict().items()})
    loss = theirs(*map(torch.from_numpy, (batch.source, batch.target_in, batch.target_out)), None, SMOOTHING)
    loss.backward()
    gradient = theirs.table.grad
    assert gradient is not None
    our_loss, cache = ours.loss(batch.source, batch.target_in, batch.target_out, SMOOTHING)
    ours.loss_backward(1.0, cache)
    truth = Truth(batch, float(our_loss), ours.parameters.named["tokens.table"].grad)
    if window is None:
        truth.require(loss.item(), gradient)
        assert loss.item() == pytest.approx(truth.loss, abs=1e-5)
        np.testing.assert_allclose(gradient.numpy(), truth.gradient, atol=1e-5)
    else:
        with pytest.raises(AssertionError, match=r"its gradient is 0\.\d+ away"):
            truth.require(loss.item(), gradient)
