"""The finite-difference suite that users run."""

import dataclasses
import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest
from support.prove import Proof

from minitransformer import check
from minitransformer.check import TOLERANCE, run_checks
from minitransformer.models import KINDS, Transformer, TransformerConfig
from minitransformer.ops import Pair, numpy_ops

LINES: list[str] = []


def run(samples, *given, **options):
    """Check that many coordinates of each array, which are enough to see a mistake, or what the command checks."""
    whole, fewer = check.check_gradients, {} if samples is None else {"samples": samples}
    with patch.object(check, "check_gradients", lambda *given, **options: whole(*given, **options | fewer)):
        return run_checks(*given, **options)


@pytest.fixture(scope="module", params=[2, pytest.param(None, marks=pytest.mark.slow)], ids=["a few", "all"])
def results(request):
    LINES.clear()
    return run(request.param, report=LINES.append)


def test_everything_is_right(results, proof: Proof):
    for result in results:
        assert result.passed, result.complaint
        assert result.error <= TOLERANCE
        if "Transformer" not in result.component:
            continue
        proof.record("every parameter of a model", "finite differences", result.error)


def test_every_op_layer_and_parameter_has_a_row(results):
    rows = [result.component for result in results]
    assert len(set(rows)) == len(rows)
    for name, _ in numpy_ops.pairs():
        assert any(row.split(",")[0] == name for row in rows), name
    layers = "Linear FeedForward LayerNorm RMSNorm TokenEmbedding PatchEmbedding LearnedPositions Attention Block"
    baselines = "Recurrent GatedConvolution AttendingConvolution RecurrentT ConvolutionalT"
    models = " ".join(config.__name__.removesuffix("Config") for config in KINDS.values())
    for name in f"{layers} {baselines} {models}".split():
        assert any(row.startswith(name) for row in rows), name
    for option in ("rotary positions", "grouped heads", "relative bias", "sparse", "linear, causal"):
        assert f"Attention, {option}" in rows
    assert "FeedForward, gated" in rows
    model = Transformer(TransformerConfig(vocab_size=9, d_model=4, num_heads=2, d_ff=5, num_layers=2))
    assert {f"Transformer: {name}" for name in model.parameters.named} <= set(rows)


def test_report_is_a_table(results):
    assert len(LINES) == len(results) + 3
    assert f"all {len(results)} gradients are right" in LINES[-1]


def test_a_broken_op_is_found_alone_and_inside_what_uses_it():
    def relu_backward(dy, cache):
        return dy * np.sign(cache) * 1.002

    lines: list[str] = []
    broken = Pair(numpy_ops.relu.forward, relu_backward)
    results = run(2, dataclasses.replace(numpy_ops, relu=broken), lines.append)
    wrong = [result for result in results if not result.passed]
    assert [result.component for result in wrong] == [
        "relu",
        "FeedForward",
        *(
            f"{kind}, {norm}"
            for norm in ("post-norm", "pre-norm", "post-norm, RMS", "pre-norm, norms of the outputs")
            for kind in ("Block", "Block of a decoder")
        ),
        "Transformer",
        "Transformer, pre-norm, learned positions",
        "T5",
    ]
    assert "1.002 times the true gradient" in wrong[0].complaint
    assert sum(line.endswith("WRONG") for line in lines) == len(wrong)
    assert f"{len(wrong)} of {len(results)} gradients are WRONG" in lines[-1]


def test_the_command_needs_numpy_alone():
    """With every other package that is installed out of reach."""
    program = """
import sys
from importlib.abc import MetaPathFinder

class NumPyAlone(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in {"numpy", "minitransformer"} or root in sys.stdlib_module_names:
            return None
        raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NumPyAlone())
from minitransformer import cli, gradcheck
sys.exit(cli.main(["check", "--help"]))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "central differences" in " ".join(run.stdout.split())
