"""Loading takes hardly more memory than the file that is read."""

import subprocess
import sys
from pathlib import Path

import pytest

from minitransformer.models import GPT, GPTConfig
from minitransformer.pretrained import save

PROGRAM = """
import resource, sys
import numpy as np
from minitransformer.pretrained import load
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
load(sys.argv[1])
before = peak()
model, _ = load(sys.argv[2])
loaded = peak()
model.forward(np.arange(64)[None])
print(loaded - before, peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: ru_maxrss has another unit elsewhere")
@pytest.mark.parametrize(
    "sizes",
    [
        {"d_model": 256, "num_heads": 4, "d_ff": 1024, "num_layers": 2},
        pytest.param({}, marks=pytest.mark.slow),  # GPT-2's own: 124 million parameters
    ],
)
def test_a_gpt2_loads_in_little_more_than_its_file(sizes: dict[str, int], tmp_path: Path) -> None:
    save(GPT.blank(GPTConfig(11, d_model=4, num_heads=1, d_ff=4, num_layers=1, max_length=8)), tmp_path / "tiny")
    save(GPT.blank(GPTConfig.gpt2(**sizes)), tmp_path / "model")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "tiny"), str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    loaded, _ = map(int, done.stdout.split())
    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    assert loaded <= 1.2 * size
