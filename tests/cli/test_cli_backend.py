"""`--backend`, `--dtype` and `--device`: the same commands on PyTorch, and what is said where that can't be."""

import argparse
import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from support.cli_runs import SMALL, Command, Run, refuse

import kernels
from kernels import availability
from minitransformer.cli.train import _backend_options
from minitransformer.training import read_log


def losses(folder: Path) -> list[float]:
    return [record["loss"] for record in read_log(folder / "log.jsonl")]


def test_a_training_on_torch_is_that_on_numpy_and_goes_on_there(trained: Run, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "run"
    options = [item if item != "4" else "2" for item in SMALL]
    status, said, _ = command("train", "--data", trained.data, "--out", out, *options, "--backend", "torch")
    assert status == 0
    assert "torch on cpu, float32" in said
    status, said, _ = command("train", "--resume", out, "--steps", "4", "--threads", "1")
    assert status == 0
    assert "NumPy, float32" in said
    assert losses(out) == pytest.approx(losses(trained.folder), rel=1e-4)


@pytest.mark.parametrize("options", [[], ["--backend", "torch"], ["--backend", "torch", "--dtype", "float64"]], ids=str)
def test_translations_are_the_same_on_every_backend(trained: Run, command: Command, options: list[str]) -> None:
    sentences = ["The dog sleeps.", "A cat eats a fish."]
    expected = command("translate", trained.checkpoint, *sentences)
    assert command("translate", trained.checkpoint, *sentences, *options)[:2] == expected[:2]


def test_evaluation_on_torch(trained: Run, command: Command) -> None:
    options = ["--data", trained.data, "--beam", "1"]
    expected = command("evaluate", trained.checkpoint, *options)
    assert command("evaluate", trained.checkpoint, *options, "--backend", "torch")[:2] == expected[:2]


@pytest.mark.parametrize(("package", "backend"), [("torch", "torch"), ("torch", "triton"), ("triton", "triton")])
def test_what_is_said_where_a_package_is_missing(
    trained: Run, command: Command, monkeypatch: pytest.MonkeyPatch, package: str, backend: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(availability, "find_spec", lambda name: None if name == package else find(name))
    for name in ("torch_ops", "triton_ops"):
        monkeypatch.delitem(vars(kernels), name, raising=False)
    says = "PyTorch is not installed" if package == "torch" else "Triton is not installed"
    refuse(command, "translate", trained.checkpoint, "A dog.", "--backend", backend, says=says)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--backend", "triton", "--dtype", "float64"], "the triton backend computes in float32"),
        (["--dtype", "bfloat16"], "the numpy backend computes in float32 or float64, not in bfloat16"),
        (["--device", "cuda"], "the numpy backend runs on the cpu, not on cuda"),
        (["--backend", "torch", "--device", "abacus"], "device is 'abacus', expected cpu, cuda or mps"),
        (["--backend", "abacus"], "invalid choice: 'abacus'"),
        (["--backend", "torch", "--device", "cuda"], "no device of the kind 'cuda' here: use cpu"),
    ],
)
def test_what_is_refused(
    trained: Run, command: Command, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuse(command, "translate", trained.checkpoint, "A dog.", *options, says=says)


def test_how_to_go_on_names_the_backend() -> None:
    """A checkpoint continues on any: it does not hold which one it was."""
    chosen = argparse.Namespace(backend="torch", dtype="bfloat16", device=None)
    assert _backend_options(chosen) == " --backend torch --dtype bfloat16"
    assert _backend_options(argparse.Namespace(backend="numpy", dtype=None, device=None)) == ""


def test_numpy_needs_neither_torch_nor_triton(trained: Run, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "triton", "kernels"):
        monkeypatch.setitem(sys.modules, name, None)
    assert command("translate", trained.checkpoint, "A dog.")[0] == 0
