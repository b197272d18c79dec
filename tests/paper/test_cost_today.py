"""Hours, measured and computed."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minitransformer.models import TransformerConfig
from minitransformer.ops import numpy_ops
from paper.experiments import cost_today as cost
from paper.experiments.cost_today import CHIPS, MeasuredStep, StepTime, fits, measured_steps, time_step
from paper.published import RUNS, training_costs
from paper.task import GRAMMAR
from study.experiment import Context, Findings

TINY = TransformerConfig(vocab_size=50, d_model=16, num_heads=2, d_ff=16, num_layers=1)


@pytest.fixture(autouse=True)
def _memory_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator's settings are the whole process's."""
    monkeypatch.setattr(cost, "keep_freed_memory", lambda: False)


def _findings(monkeypatch: pytest.MonkeyPatch, big_fits: bool = True, gpus: Any = ()) -> Findings:
    models = {name: lambda: TINY for name in ("base", "big")}
    monkeypatch.setattr(cost, "MODELS", models)
    monkeypatch.setattr(cost, "TIMED", {"base": 8, "big": 4})
    monkeypatch.setattr(cost, "fits", lambda *arguments: big_fits)
    monkeypatch.setattr(cost, "measured_steps", lambda: iter(gpus))
    runner: Any = SimpleNamespace(ops=numpy_ops, dtype="float32", backend="NumPy, float32")
    return json.loads(json.dumps(cost.find(Context(GRAMMAR, 1.0, runner))))


def test_it_trains_nothing() -> None:
    assert cost.trials(GRAMMAR, 1.0) == []


def test_hours_follow_from_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _findings(monkeypatch)
    paper, here = found["rows"]
    assert paper["hours"]["base"] == pytest.approx(100_000 * 0.4 / 3600)
    for name, step in found["steps"].items():
        assert step["seconds"] == pytest.approx(step["fixed"] + 25_000 * step["per_token"])
        assert step["between"][0] <= step["seconds"] <= step["between"][1]
        assert here["hours"][name] == pytest.approx(RUNS[name].steps * step["seconds"] / 3600)
    assert here["scaled"] == []


def test_what_does_not_fit_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _findings(monkeypatch, big_fits=False)
    here = found["rows"][1]
    needed = {name: each.needed for name, each in training_costs().items()}
    assert here["scaled"] == ["big"]
    assert here["hours"]["big"] == pytest.approx(here["hours"]["base"] * needed["big"] / needed["base"])
    text = "\n".join(cost.report(found))
    assert f"{cost.duration(here['hours']['big'])} *" in text
    assert "only base was timed" in text
    assert "A training step of big" not in text


def test_the_report_with_and_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without = "\n".join(cost.report(_findings(monkeypatch)))
    assert "No GPU is in this table" in without
    assert "only base was timed" not in without
    step = MeasuredStep("NVIDIA H200", "+ CUDA graph", 50_000, 0.2)
    found = _findings(monkeypatch, gpus=[step])
    text = "\n".join(cost.report(found))
    assert "No GPU" not in text
    assert found["rows"][2]["hours"]["base"] == pytest.approx(100_000 * 0.1 / 3600)
    assert "| NVIDIA H200, our kernels: + CUDA graph | 2.8 h |" in text
    cost.draw(found, tmp_path)
    assert (tmp_path / "cost-hours.png").read_bytes().startswith(b"\x89PNG")


def test_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _findings(monkeypatch)
    by_name = {limit["name"]: limit for limit in found["limits"]}
    base = training_costs()["base"]
    assert by_name["P100"]["used"]["base"] == pytest.approx(8 * RUNS["base"].hours)  # as many P100-hours as were spent
    assert by_name["H100"]["hours"]["base"] == pytest.approx(base.needed / 989e12 / 3600)
    assert by_name["H100"]["kilowatt_hours"]["base"] == pytest.approx(by_name["H100"]["hours"]["base"] * 0.7)
    assert found["landauer"]["base"] == pytest.approx(base.needed * 32 * 4.14e-21 * math.log(2), rel=1e-3)
    assert [chip.flops for chip in CHIPS] == sorted(chip.flops for chip in CHIPS)


def test_the_ledger(tmp_path: Path) -> None:
    assert list(measured_steps(tmp_path / "nowhere")) == []

    def entry(what: str, who: str, found: dict[str, Any]) -> dict[str, Any]:
        return {"what": what, "size": {"sentences": 784, "length": 32}, "contestants": {who: found}}

    entries = [
        entry("NumPy", "NumPy", {"ms": 1.0}),
        entry("torch arithmetic", "ours", {"ms": 300.0}),
        entry("+ CUDA graph", "ours", {"ms": 200.0}),
        entry("+ Adam", "ours", {"failed": "no time left"}),
        entry("PyTorch eager", "PyTorch", {"ms": 100.0}),
    ]
    ledger = {"gpu": "NVIDIA H200", "smoke": False, "ops": {}, "sections": {"swap": {"entries": entries}}}
    (tmp_path / "nvidia-h200.json").write_text(json.dumps(ledger))
    (tmp_path / "smoke.json").write_text(json.dumps(ledger | {"smoke": True}))
    (tmp_path / "rows-only.json").write_text(json.dumps(ledger | {"sections": {}}))
    (tmp_path / "compiled.json").write_text(json.dumps({"triton": "3.7.1", "kernels": []}))
    assert list(measured_steps(tmp_path)) == [MeasuredStep("NVIDIA H200", "+ CUDA graph", 25_088, 0.2)]
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json is damaged"):
        list(measured_steps(tmp_path))


def test_the_ledger_is_where_the_kernels_write_it() -> None:
    from kernels.proof.ledger import RESULTS

    assert cost.LEDGER == RESULTS


def test_a_line_through_two_times() -> None:
    """0.5 s and 10 ms a token; where noise says otherwise, no time that is independent of tokens."""
    for times, fixed, per_token in (((0.7, 1.3), 0.5, 0.01), ((1.4, 1.3), 0.0, 1.3 / 80), ((0.1, 1.3), 0.0, 1.3 / 80)):
        assert cost._line((20, 80), times) == pytest.approx((fixed, per_token))


def test_a_step_is_timed() -> None:
    timed = time_step(TINY, numpy_ops, "float32", 2, sentences=8, length=5, rounds=2)
    assert timed.per_token > 0
    assert timed.tokens_per_side == 40
    assert timed.seconds(1000) == pytest.approx(timed.fixed + 1000 * timed.per_token)
    assert len(timed.rounds) == 2


def test_rounds_say_how_sure_it_is() -> None:
    timed = StepTime(1.0, 0.5, 6.0, 8, rounds=[(0.0, 0.75), (2.0, 0.25), (1.0, 0.5)])
    assert timed.between(100) == (27.0, 75.0)
    assert StepTime(1.0, 0.5, 6.0, 8, rounds=[(2.0, 0.5)]).between(100) == (51.0, 52.0)


def test_memory_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits(TINY, 2, 8, 1)
    assert not fits(TINY, 10**9, 8, 1)
    monkeypatch.setattr(cost.os, "sysconf_names", {})
    assert not fits(TINY, 2, 8, 1)


@pytest.mark.parametrize(
    ("hours", "text"), [(0.25, "15 minutes"), (2.66, "2.7 h"), (300.0, "12 days"), (24 * 365.25 * 3.5, "3.5 years")]
)
def test_durations(hours: float, text: str) -> None:
    assert cost.duration(hours) == text
