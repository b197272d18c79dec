"""The bench: a whole rehearsal without a GPU, what it refuses, and how it times."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from support.kernels.prove_kernel import DEVICE

import kernels
from kernels import KERNELS
from kernels.bench import __main__ as command_line
from kernels.bench import attention, charts, ledger, run
from minitransformer.models import Transformer

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")

from kernels.bench import checks
from kernels.bench.cases import cases
from kernels.bench.checks import Refused, check
from kernels.bench.ledger import BOTH, FLEX, FORWARD
from kernels.bench.machine import REPEAT_MS, WARM_UP_MS, Machine
from kernels.bench.race import Bench
from kernels.bench.reference import Reference
from kernels.bench.swap import SMOOTHING, Setting, Truth, ladder

ROOT = Path(ledger.__file__).parents[2]
SMOKE = Machine(DEVICE, smoke=True)
TIMED = ("attention", "rows", "swap")


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """`python -m kernels.bench` in a process of its own, which sets the interpreter up by itself."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-m", "kernels.bench", *arguments],
        capture_output=True, text=True, cwd=ROOT, env=inherited | environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a rehearsal of all sections."""
    folder = tmp_path_factory.mktemp("bench")
    done = command("--smoke", "--out", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    for name, seconds in run.SECONDS.items():
        assert re.search(rf"^{name}: \d+ s, of {seconds}$", done.stdout, re.MULTILINE)
    return folder


@pytest.fixture(scope="module")
def written(rehearsed: Path) -> ledger.Ledger:
    """What it wrote."""
    return ledger.read(rehearsed / "smoke.json")


# --- A rehearsal ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_op_is_checked(written):
    assert written["smoke"] is True
    assert set(written["ops"]) == set(KERNELS)
    assert all(any(cases(op, full)) for op in KERNELS for full in (False, True))
    for op, entry in written["ops"].items():
        assert entry["hash"] == ledger.current(op)
        assert entry["versions"].keys() >= {"torch", "triton"}
        for dtype in SMOKE.dtypes:
            worst = entry["errors"][str(dtype).removeprefix("torch.")]
            assert 0 <= worst["of_allowed"] <= 1
            assert 0 <= worst["error"] < 0.01


def test_the_parts_of_a_check_are_all_of_its_cases(monkeypatch):
    seen = []
    monkeypatch.setattr(checks, "findings_of", lambda op, case, *rest: seen.append(case.name) or [])
    for part in range(3):
        checks.check("attention", torch.float32, SMOKE, part, 3)
    parts, seen[:] = sorted(seen), []
    checks.check("attention", torch.float32, SMOKE)
    assert parts == sorted(seen)
    assert len(seen) > 9


@pytest.mark.slow
@pytest.mark.parametrize("section", TIMED)
def test_every_section_has_its_times(written, section):
    found = written["sections"][section]
    assert found.keys() == {"versions", "ceilings", "hashes", "entries", "seconds"}
    assert all(value > 0 for value in found["ceilings"].values())
    for entry in found["entries"]:
        for name, contestant in entry["contestants"].items():
            assert ("ms" in contestant) != ("failed" in contestant), (entry["what"], name)
            numbers = [value for key, value in contestant.items() if isinstance(value, float) and key != "peak_mb"]
            assert all(value > 0 and np.isfinite(value) for value in numbers), (entry["what"], name)
        first, *_ = entry["contestants"].values()  # ours; of a training step the only one
        assert first.keys() >= {"ms", "share"}, first


@pytest.mark.slow
def test_what_is_compared(written):
    attention, rows, swap = (ledger.entries(written, section) for section in TIMED)
    assert {entry["size"]["kind"] for entry in attention} == {
        "full", "causal", "padding", "scattered padding", "window", "dropout", "cross", "grouped heads", "bias",
        "softcap", "alibi", "pattern",
    }  # fmt: skip
    known = set()
    for entry in attention:
        task, flex = (entry["size"]["kind"], entry["what"]), entry["contestants"].get(FLEX)
        assert bool(flex) == (task not in known and task[0] not in ("full", "cross", "dropout"))
        known.add(task)
        if flex and "ms" not in flex:
            assert entry["what"] == BOTH
            assert "does not support backward on CPU" in flex["failed"]
        peers = set() if entry["size"]["kind"] == "softcap" else {"FlashAttention-2", "cuDNN", "math"}
        assert entry["contestants"].keys() >= {"ours", *peers}
        assert ("naive" in entry["contestants"]) == (entry["size"]["kind"] != "dropout")
    assert {entry["op"] for entry in rows} == set(KERNELS) - {"attention"}
    for entry in rows:
        assert entry["contestants"].keys() >= {"ours", "PyTorch", "torch.compile"}
        assert all("ms" in contestant for contestant in entry["contestants"].values()), entry
    names = ["NumPy", *ladder(SMOKE), "+ CUDA graph", "PyTorch eager", "PyTorch, torch.compile"]
    assert [entry["what"] for entry in swap] == names
    numpy = swap[0]["contestants"]["NumPy"]
    assert numpy["estimated_from"]["sentences"] < swap[0]["size"]["sentences"]
    assert numpy["hours"] == pytest.approx(numpy["ms"] * 100_000 / 3_600_000)


@pytest.mark.slow
@pytest.mark.parametrize("section", TIMED)
def test_pictures_are_drawn_from_the_file_alone(rehearsed, written, tmp_path, section):
    path = tmp_path / "alone.json"
    ledger.write(path, written | {"sections": {section: written["sections"][section]}})
    assert charts.draw(path) == [tmp_path / f"alone-{section}.png"]
    for picture in (rehearsed / f"smoke-{section}.png", tmp_path / f"alone-{section}.png"):
        image = imread(picture)
        assert min(image.shape[:2]) > 300
        assert image.std() > 0.05


@pytest.mark.slow
@pytest.mark.usefixtures("known_machine")
def test_sections_that_are_left_out_stay_as_they_are(rehearsed, written, tmp_path, monkeypatch):
    shutil.copy(rehearsed / "smoke.json", tmp_path)
    monkeypatch.setattr(run, "KERNELS", {"relu": KERNELS["relu"]})
    monkeypatch.setattr(run, "current", lambda op: "another hash")
    assert command_line.main(["--smoke", "--only", "checks", "--out", str(tmp_path)]) == 0
    merged = ledger.read(tmp_path / "smoke.json")
    assert merged["sections"] == written["sections"]
    assert merged["ops"].keys() == written["ops"].keys()
    assert [op for op in merged["ops"] if merged["ops"][op]["hash"] == "another hash"] == ["relu"]


# --- What is refused ------------------------------------------------------------------------------------------


def rectify(x: torch.Tensor) -> tuple:
    return x.clamp(min=0), x


def gradient(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return dy * (x > 0)


def unwritten(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(dy)
    out[:-1] = gradient(dy, x)[:-1]
    return out


@pytest.mark.parametrize(
    ("forward", "backward", "says"),
    [
        (rectify, lambda dy, x: 1.001 * gradient(dy, x), r"gradient 0 is off by 0\.00\d+, allowed 1e-05"),
        (rectify, unwritten, "gradient 0 is off by inf"),
        (rectify, lambda dy, x: gradient(dy, x) + 1e-7 * torch.rand_like(dy), "a second backward gives other bits"),
        (rectify, lambda dy, x: gradient(dy, x)[:-1], ".*shape"),
        (rectify, lambda dy, x: (dy, dy), "there are 2 gradients, expected 1"),
        (lambda x: (x.clamp_(min=0), x), gradient, "an input was written into"),
        (lambda x: import_module("nowhere"), gradient, "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_wrong_kernel_is_refused(monkeypatch, capsys, forward, backward, says):
    monkeypatch.setattr(kernels, "relu_forward", forward)
    monkeypatch.setattr(kernels, "relu_backward", backward)
    with pytest.raises(Refused, match=rf"^float32, \(3, 5\): {says}"):
        check("relu", torch.float32, SMOKE)
    assert ("Traceback" in capsys.readouterr().err) == ("Error" in says or "shape" in says)


def test_a_smoke_run_never_writes_into_the_ledger(capsys):
    with pytest.raises(SystemExit):
        command_line.main(["--smoke", "--out", str(ledger.RESULTS)])
    assert "a smoke run measures nothing" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="hide the GPU, CUDA_VISIBLE_DEVICES=''")
@pytest.mark.parametrize("environment", [pytest.param({}, marks=pytest.mark.slow), {"TRITON_INTERPRET": "1"}])
def test_without_a_gpu_one_sentence(environment):
    done = command(**environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("the triton backend needs a GPU that PyTorch can use, and there is none")
    assert done.stderr.count("\n") == 1


# --- Races ----------------------------------------------------------------------------------------------------


def test_a_rate_is_the_work_over_the_time():
    bench = Bench(SMOKE, {"matmul_tflops": 2.0, "copy_gbs": 4.0})
    found = bench.timed(lambda: [lambda: None], moved=1e6)
    assert found["gbs"] == pytest.approx(1 / found["ms"])
    assert found["share"] == pytest.approx(found["gbs"] / 4.0)
    assert bench.timed(lambda: [lambda: None], flops=1e6).keys() == {"ms", "peak_mb", "tflops", "share"}


@pytest.mark.parametrize("shape", [s for s in attention.shapes(SMOKE) if s.window or not s.causal], ids=str)
def test_pairs_are_counted_as_the_mask_has_them(shape):
    mask = shape.mask("cpu")
    everything = torch.ones(shape.B, 1, shape.Tq, shape.Tk, dtype=torch.bool)
    assert shape.pairs() == (everything if mask is None else everything & mask).sum().item()


@pytest.mark.parametrize("shape", {s.kind: s for s in attention.shapes(SMOKE) if s.kind != "dropout"}.values(), ids=str)
def test_contestants_compute_the_same(shape):
    """All that run here: of PyTorch's backends a CPU has few, and a GPU not all for each mask."""
    inputs, dout = shape.draw(SMOKE)
    prepares = attention.contestants(shape, FORWARD, SMOKE, with_flex=True)
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
    assert ("math" in compared) == (shape.kind != "softcap")
    assert (FLEX in compared) == (shape.kind not in ("full", "cross"))
    assert "naive" in compared


def test_times_on_a_gpu_are_medians_over_inputs_that_take_turns(monkeypatch):
    seen = []

    def do_bench(call: Callable[[], Any], **how: Any) -> float:
        assert how == {"warmup": WARM_UP_MS, "rep": REPEAT_MS, "return_mode": "median"}
        for _ in range(3):
            call()
        return 1.5

    monkeypatch.setattr("triton.testing.do_bench", do_bench)
    calls = [lambda: seen.append("first"), lambda: seen.append("second")]
    assert Machine("cuda", smoke=False).milliseconds(calls) == 1.5
    assert seen == ["first", "second", "first"]


@pytest.mark.parametrize("window", [None, 0])
def test_a_model_must_be_the_same_before_it_is_timed(window):
    """PyTorch's is ours to rounding; and one that sees fewer words is told apart."""
    setting = Setting.of(SMOKE)
    config, batch = setting.config, setting.batch(0)
    ours = Transformer(type(config)(**config.to_dict() | {"window": window}))
    theirs = Reference(config, ours.parameters.state_dict(), torch.float32).eval()
    loss = theirs(*map(torch.from_numpy, (batch.source, batch.target_in, batch.target_out)), SMOOTHING)
    loss.backward()
    assert theirs.flat.grad is not None
    gradient = theirs.named(theirs.flat.grad)["tokens.table"]
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
