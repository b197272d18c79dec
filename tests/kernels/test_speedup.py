"""`python -m kernels.speedup`: rehearsed in the interpreter, shown without a GPU, and on a T4 that is pretended."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.model_cases import config
from torch import Tensor

import kernels
from kernels import availability, speedup
from kernels.proof import ledger
from minitransformer.models import TransformerConfig

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedup, "STEPS", 1)
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def swapping(monkeypatch: pytest.MonkeyPatch, *ops: str) -> None:
    """Only these ops are checked, and swapped in as one rung."""
    monkeypatch.setattr(speedup, "RUNGS", {"+ swapped": {op: {} for op in ops}} if ops else {})


@pytest.mark.parametrize(
    "rungs",
    [
        ["+ Triton softmax", "+ add_layernorm", "+ Adam"],
        pytest.param([*speedup.RUNGS], id="all", marks=pytest.mark.slow),
    ],
)
def test_a_rehearsal_checks_swaps_and_times_nothing(rungs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(speedup, "RUNGS", {rung: speedup.RUNGS[rung] for rung in rungs})
    monkeypatch.setattr(speedup.time, "monotonic", lambda: 0.0)  # the only clock that it has on a CPU
    assert speedup.main(["--out", str(tmp_path / "none.png")]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "a tiny rehearsal (nothing is timed)"
    ops = [op for ops in speedup.RUNGS.values() for op in ops]
    assert [line.split() for line in lines[: len(ops)]] == [[op, "right"] for op in ops]
    rows = {line[:28].strip(): line[28:] for line in lines[len(ops) + 1 :]}
    assert list(rows) == [speedup.FIRST, *rungs, speedup.GRAPH]
    assert len(set(rows.values())) == 1
    assert not list(tmp_path.iterdir())


def test_a_wrong_kernel_is_named_and_not_timed(monkeypatch, capsys):
    right = kernels.relu_forward
    monkeypatch.setattr(kernels, "relu_forward", lambda x: (2 * right(x)[0], right(x)[1]))
    swapping(monkeypatch, "relu")
    assert speedup.main([]) == 1
    _, checked, _, *rows = capsys.readouterr().out.splitlines()
    assert checked.startswith("relu ")
    assert "WRONG, not timed: ArithmeticError: the output is off by" in checked
    assert [row[:28].strip() for row in rows] == [speedup.FIRST, speedup.GRAPH]


def test_a_row_that_computes_something_else_is_not_timed(monkeypatch, capsys):
    """Whatever the checks of the ops say."""
    right = kernels.relu_forward
    monkeypatch.setattr(kernels, "relu_forward", lambda x: (8 * right(x)[0], right(x)[1]))
    monkeypatch.setattr(speedup, "check", lambda *what: "right")
    swapping(monkeypatch, "relu")
    assert speedup.main([]) == 1
    *_, swapped, captured = capsys.readouterr().out.splitlines()
    for row in (swapped, captured):
        assert "WRONG, not timed: ArithmeticError: the loss is" in row


def test_a_kernel_that_does_not_compile_is_wrong_too(monkeypatch, capsys):
    def fails(x: Tensor) -> None:
        raise RuntimeError("out of resource: shared memory")

    monkeypatch.setattr(kernels, "relu_forward", fails)
    swapping(monkeypatch, "relu")
    assert speedup.main([]) == 1
    assert "WRONG, not timed: RuntimeError: out of resource" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["Triton", "a GPU"])
def test_elsewhere_it_shows_what_was_recorded(missing, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.chdir(tmp_path)
    if missing == "Triton":
        monkeypatch.setattr(availability, "find_spec", lambda name: None if name == "triton" else name)
    else:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert speedup.main([]) == 0
    assert not list(tmp_path.iterdir())
    why, *lines = capsys.readouterr().out.splitlines()
    assert ("Triton is not installed" if missing == "Triton" else "needs a GPU") in why
    found = json.loads((ledger.RESULTS / "nvidia-h200.json").read_text(encoding="utf-8"))
    times = {
        e["what"]: c["ms"] for e in found["sections"]["swap"]["entries"] for c in e["contestants"].values() if "ms" in c
    }
    del times["NumPy"]
    assert lines[0].startswith("NVIDIA H200, bfloat16: ")
    assert lines[0].endswith("784 pairs of sentences of 32 tokens, on 2026-11-26")
    shown = {line[:28].strip(): [float(number) for number in line[28:].split()] for line in lines[2:-1]}
    assert {name: numbers[0] for name, numbers in shown.items()} == pytest.approx(times, rel=1e-3)
    first, before = times[speedup.FIRST], times["+ flash attention"]
    assert shown["+ add_layernorm"][1:] == pytest.approx(
        [before / times["+ add_layernorm"], first / times["+ add_layernorm"]], rel=1e-3
    )
    picture = lines[-1].removeprefix("drawn: ")
    assert (Path(speedup.__file__).parents[1] / picture).exists()


def test_on_a_t4_it_computes_in_float16_and_says_why(monkeypatch, tmp_path, capsys):
    """A GPU's way, with PyTorch on a CPU in its place."""
    from kernels import tables
    from kernels.tuning import Capability, pretending

    on_cpu, times = tables.torch_ops, iter([3.0, 2.0])
    monkeypatch.setattr(tables, "torch_ops", lambda device, dtype: on_cpu("cpu", dtype))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(speedup, "gpu_memory", lambda device: 15_800_000_000)
    monkeypatch.setattr("triton.testing.do_bench", lambda step, **how: next(times))
    monkeypatch.setattr(TransformerConfig, "base", lambda: speedup.TINY)
    monkeypatch.setattr(speedup, "LENGTH", 4)
    swapping(monkeypatch)
    with pretending(Capability("cuda", 75, 64 * 1024)):
        assert speedup.measure("cuda", tmp_path / "t4.png") == []
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "Tesla T4, float16: a training step of the paper's base, 200 pairs of sentences of 4 tokens"
    assert "Triton uses no tensor cores" in " ".join(lines)
    assert [line.split()[-3:] for line in lines[-3:-1]] == [["3", "1", "1"], ["2", "1.5", "1.5"]]
    assert (tmp_path / "t4.png").read_bytes().startswith(b"\x89PNG")


def test_small_gradients_are_scaled_and_adam_takes_the_scale_back():
    from itertools import repeat

    from kernels.tables import torch_ops
    from minitransformer.data.batching import collate
    from minitransformer.models import Transformer

    data = []
    for scale in (1.0, 4096.0):
        model = Transformer(config(), torch_ops("cpu", "float32"))
        speedup.step_of(model, repeat(collate([[3, 4]], [[5]])), False, scale)()
        data.append(model.parameters.data)
    np.testing.assert_allclose(*data, rtol=1e-5, atol=1e-7)
