"""The races: that they run, refuse what is not comparable, and that `benchmarks/README.md` says what they measured."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from minitransformer.models import GPT, GPTConfig
from minitransformer.pretrained import save

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    """Imports a module of the benchmarks, which run from a folder of their own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    return module


def test_contestants_take_turns(benchmark):
    race = benchmark("race")
    jobs = {
        f"{length} keys": race.Job("numpy_jobs", "attention", {"length": length}, turn_seconds=0.01)
        for length in (4, 64)
    }
    found = race.race(jobs, rounds=2, threads=1)
    assert set(found) == set(jobs)
    for result in found.values():
        assert len(result.seconds) == 2
        assert all(seconds > 0 for seconds in result.seconds)
        assert result.memory_mb >= 0


def test_answers_that_differ_stop_a_race_before_it_is_timed(benchmark):
    race = benchmark("race")

    def refuse(answers: dict[str, Any]) -> None:
        assert answers == {"attention": None}
        raise ValueError("they differ")

    with pytest.raises(ValueError, match="they differ"):
        race.race({"attention": race.Job("numpy_jobs", "attention", {"length": 4})}, 1, 1, refuse)


def test_a_contestant_that_fails_stops_the_race(benchmark, capfd):
    race = benchmark("race")
    with pytest.raises(RuntimeError, match="ended with status 1"):
        race.race({"nobody": race.Job("numpy_jobs", "attention", {"length": -1})}, 1, 1)
    assert "ValueError" in capfd.readouterr().err


@pytest.mark.parametrize(
    "step", ["linear", "relu", "add_layernorm", "attention", "linear_cross_entropy", "adam_step", "threads"]
)
def test_naive_ops_train_as_the_fast_ones_do(benchmark, step):
    jobs = benchmark("numpy_jobs")
    with jobs.training(2, "XS", 0.0) as (fast, _), jobs.training(2, "XS", 0.0, undone=step) as (naive, _):
        assert len(fast) == 2
        assert fast[1] < fast[0]
        np.testing.assert_allclose(naive, fast, atol=1e-5)


def test_an_op_is_compared_with_its_formula_by_turns(benchmark, monkeypatch):
    steps = benchmark("steps")
    monkeypatch.setattr(steps, "SECONDS", 0.0)
    found = steps.compare("relu", "XS")
    assert {name: len(turns["seconds"]) for name, turns in found.items()} == dict.fromkeys(
        ("ours", "printed"), steps.LEAST_PAIRS
    )
    assert found["printed"]["memory_mb"] > found["ours"]["memory_mb"] > 0


@pytest.fixture
def restored_torch_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.usefixtures("restored_torch_threads")
def test_pytorch_trains_as_ours_does(benchmark, fused):
    ours, pytorch = (benchmark(module).training for module in ("numpy_jobs", "torch_jobs"))
    with ours(1, "XS", 0.0) as (expected, _), pytorch(1, "XS", 0.0, fused=fused) as (losses, _):
        np.testing.assert_allclose(losses, expected, atol=1e-5)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.usefixtures("restored_torch_threads")
def test_pytorch_translates_as_ours_does(benchmark, num_beams):
    ours, pytorch = (benchmark(module).translation for module in ("numpy_jobs", "torch_jobs"))
    with ours(1, 2, num_beams) as (expected, _), pytorch(1, 2, num_beams) as (translations, _):
        assert translations == expected


@pytest.mark.usefixtures("restored_torch_threads")
def test_hugging_face_continues_as_ours_does(benchmark, tmp_path):
    shape = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 2, "init_std": 0.3}
    save(GPT(GPTConfig.gpt2(vocab_size=50, max_length=32, bos_id=None, eos_id=None, **shape)), tmp_path)
    jobs, options = benchmark("continuation_jobs"), {"folder": str(tmp_path), "prompt": 7, "new": 9}
    with jobs.numpy_continuation(1, **options) as (expected, _), jobs.torch_continuation(1, **options) as (found, work):
        assert len(set(expected)) > 1
        assert found == expected == work()


def test_ratios_are_taken_pair_by_pair(benchmark):
    ratio = benchmark("race").Ratio.of([2.0, 30.0, 8.0], [1.0, 10.0, 2.0])
    assert (ratio.median, ratio.least, ratio.most) == (3.0, 2.0, 4.0)
    assert str(ratio) == "3.00 (2.00 to 4.00)"


def test_readme_and_steps_say_what_was_measured(benchmark):
    report = benchmark("report")
    for page, section in report.sections():
        text = page.read_text(encoding="utf-8")
        assert report.BEGIN + section + report.END in text, "run python tests/benchmarks/report.py"


def test_every_contestant_had_as_many_turns():
    files = sorted((BENCHMARKS / "results").glob("*.json"))
    assert files
    for file in files:
        for found in json.loads(file.read_text())["races"]:
            turns = {len(contestant["seconds"]) for contestant in found["contestants"].values()}
            assert len(turns) == 1
            assert turns.pop() >= 1
