"""Loading takes hardly more memory than the parameters: one tensor of the file at a time is beside them."""

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support.gguf_files import write_gguf

from minitransformer.models import GPT, GPTConfig
from minitransformer.pretrained import load, save

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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama in a folder of each type, and in GGUF files. Its largest maps have more numbers than are read at once."""
    home, tr = tmp_path_factory.mktemp("published"), transformers
    sizes: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 8192, "num_attention_heads": 8}
    llama = tr.LlamaForCausalLM(tr.LlamaConfig(**sizes, vocab_size=500, num_hidden_layers=1))
    for kind in ("F32", "F16"):
        write_gguf(home / f"{kind}.gguf", llama, kind)
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        llama.to(kind).save_pretrained(home / str(kind))  # type: ignore[arg-type]
    return home


@pytest.mark.parametrize("name", ["torch.float32", "torch.float16", "torch.bfloat16", "F32.gguf", "F16.gguf"])
def test_one_tensor_at_a_time_is_in_memory(published: Path, name: str) -> None:
    load(published / name)
    tracemalloc.start()
    model, _ = load(published / name)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after > 2 * model.parameters.data.nbytes  # gradients too
    assert peak - after < 1.7 * 4 * 512 * 8192  # the largest map in float32, and no second one
