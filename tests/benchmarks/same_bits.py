"""Compare the bits that another checkout computes: `python tests/benchmarks/same_bits.py OTHER_CHECKOUT`.

For each kind of model with its options: the loss, the gradient, the parameters after 20 steps with dropout, and what is
decoded in steps. Prints what differs; the status is 1 then. Each checkout computes in a process of its own.
"""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer import (
    BERTConfig,
    CaptionerConfig,
    CLIPConfig,
    ConvolutionalConfig,
    GPTConfig,
    MarianConfig,
    RecurrentConfig,
    T5Config,
    TransformerConfig,
    ViTConfig,
)
from minitransformer.layers import DropoutStream
from minitransformer.models import build_model

V, STEPS = 23, 20
SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 4, "d_ff": 24, "num_layers": 2}
PAPER = TransformerConfig(V, **SIZES, max_length=16, dropout=0.2, attention_dropout=0.1)
READER = GPTConfig(V, **SIZES, max_length=16, dropout=0.2, attention_dropout=0.1, eos_id=2)
LINEAR = {"attention": "linear", "attention_dropout": 0.0}
LLAMA = {"positions": "rotary", "norm": "rmsnorm", "activation": "silu", "gated": True, "num_kv_heads": 2}
SAMPLES: dict[str, Any] = {
    "paper": PAPER,
    "pre-norm, learned positions": replace(PAPER, norm_first=True, positions="learned"),
    "window, other widths": replace(PAPER, window=2, d_k=3, d_v=5, num_decoder_layers=1),
    "recurrent": RecurrentConfig(V, 16, num_layers=2, max_length=16, dropout=0.2),
    "recurrent without attention": RecurrentConfig(V, 16, num_layers=1, max_length=16, cell="tanh", attention=False),
    "convolutional": ConvolutionalConfig(V, 16, num_layers=2, max_length=16, dropout=0.2),
    "T5": T5Config(V, **SIZES, d_k=4, buckets=8, max_distance=12, max_length=16, dropout=0.2),
    "T5, gated, untied": T5Config(V, **SIZES, d_k=4, gated=True, tied=False, scale_output=False, max_length=16),
    "Marian": MarianConfig(V, **SIZES, max_length=16),
    "GPT": READER,
    "Llama": replace(READER, **LLAMA, bias=False, attention_bias=False, tied=False),
    "GPT, ALiBi, post-norm": replace(READER, positions="alibi", norm_first=False),
    "GPT, relative, window": replace(READER, positions="relative", window=3),
    "GPT, linear": replace(READER, **LINEAR),
    "GPT, linear, rotary": replace(READER, **LINEAR, positions="rotary"),
    "BERT": BERTConfig(V, **SIZES, max_length=16, dropout=0.2, attention_dropout=0.1),
    "BERT, classes": BERTConfig(V, **SIZES, max_length=16, head="classes", num_classes=3),
    "ViT": ViTConfig(3, image_size=8, patch_size=4, channels=1, **SIZES, dropout=0.2),
    "Captioner": CaptionerConfig(V, image_size=8, channels=1, **SIZES, max_length=16, dropout=0.2),
    "CLIP": CLIPConfig(V, image_size=8, channels=1, **SIZES, embedding=8, max_length=16, dropout=0.2),
}


def bits(array: Any) -> str:
    """Return a hash of the array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def inputs_of(config: Any, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return a batch as the model's `loss` takes it, with padding where the kind has it."""
    if isinstance(config, ViTConfig):
        return rng.standard_normal((4, 1, 8, 8)), rng.integers(0, 3, 4)
    ids, targets, out = rng.integers(3, V, (3, 4, 9))
    if isinstance(config, CaptionerConfig):
        return rng.standard_normal((4, 1, 8, 8)), targets, out
    if isinstance(config, CLIPConfig):
        ids[:, -1] = config.eos_id
        return rng.standard_normal((4, 1, 8, 8)), ids
    if isinstance(config, GPTConfig):
        return ids, targets
    ids[1, 6:] = out[2, 4:] = config.pad_id
    if isinstance(config, BERTConfig):
        return ids, rng.integers(0, 3, 4) if config.head == "classes" else np.where(ids % 2, ids, -100)
    return ids, targets, out


def computed(config: Any, dtype: str) -> dict[str, str]:
    """Return the hashes of what a model of this configuration computes."""
    rng = np.random.default_rng(0)
    model, inputs = build_model(config, dtype=dtype, seed=1), inputs_of(config, rng)
    if isinstance(config, ViTConfig | CaptionerConfig | CLIPConfig):
        inputs = inputs[0].astype(dtype), *inputs[1:]
    found = {"first weights": bits(model.parameters.data)}
    for step in range(STEPS):
        model.parameters.zero_grad()
        loss, cache = model.loss(*inputs, label_smoothing=0.1, dropout=DropoutStream(7, step, 0))
        model.loss_backward(1.0, cache)
        if not step:
            found |= {"loss": bits(loss), "gradient": bits(model.parameters.grad)}
        model.parameters.data -= np.asarray(0.1, dtype) * model.parameters.grad
    found["weights"] = bits(model.parameters.data)
    found["loss without a gradient"] = bits(model.loss(*inputs, with_grad=False)[0])
    if hasattr(model, "start_decoding"):
        state, ids = model.start_decoding(inputs[0], 2), np.full((4, 2), 5)
        for number in range(3):
            found[f"decoded position {number}"] = bits(model.decode_step(ids, state))
            state.reorder(rng.integers(0, 2, (4, 2)))
    return found


def everything() -> dict[str, dict[str, str]]:
    """Return the hashes of all samples in both types."""
    return {
        f"{name}, {dtype}": computed(config, dtype)
        for name, config in SAMPLES.items()
        for dtype in ("float32", "float64")
    }


def main(other: Path) -> int:
    """Print what differs in the other checkout; return the status."""
    command = [sys.executable, str(Path(__file__).resolve()), "--print"]
    root, environment = Path(__file__).parents[2], os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ours, theirs = (
        json.loads(
            subprocess.run(command, env=environment | {"PYTHONPATH": str(each.resolve())}, check=True, stdout=-1).stdout
        )
        for each in (root, other)
    )
    differing = [
        f"{name}: {what}" for name in ours for what in ours[name] if ours[name][what] != theirs[name].get(what)
    ]
    print("\n".join(differing) or f"equal bits: {len(ours)} models, {sum(map(len, ours.values()))} results")
    return int(bool(differing))


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(json.dumps(everything()))
    else:
        sys.exit(main(Path(sys.argv[1])))
