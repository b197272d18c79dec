"""A task whose answer may be far away, and small models that are trained on it."""

from typing import Any

import numpy as np

from minitransformer.models import GPT, IGNORED, GPTConfig
from minitransformer.training.optimizer import Adam

SPECIAL, NOISE, LENGTH = 8, 8, 64
TEXTS = 40  # for each place of the needle, in the test


def needles(rng: np.random.Generator, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ids (B, LENGTH), each text with a needle at its place (B,), and which token that is (B,)."""
    B = len(place)
    ids = rng.integers(SPECIAL, SPECIAL + NOISE, (B, LENGTH))
    ids[:, -1] = SPECIAL + NOISE  # the question mark
    ids[np.arange(B), place] = needle = rng.integers(0, SPECIAL, B)
    return ids, needle


def found(steps: int = 150, **options: Any) -> np.ndarray:
    """Train a GPT with these options, and return its share of right answers at each distance, 1 to LENGTH − 1."""
    sizes: dict[str, Any] = {
        "d_model": 32,
        "num_heads": 2,
        "d_ff": 64,
        "max_length": LENGTH,
        "positions": "none",
        "init_std": 0.1,
    }
    off: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0}
    model = GPT(GPTConfig(SPECIAL + NOISE + 1, **sizes | off | options))
    adam, data = Adam(model.parameters, model.ops), np.random.default_rng(0)
    for _ in range(steps):
        ids, needle = needles(data, data.integers(0, LENGTH - 1, 32))
        targets = np.full(ids.shape, IGNORED)
        targets[:, -1] = needle
        model.parameters.zero_grad()
        _, cache = model.loss(ids, targets)
        model.loss_backward(1.0, cache)
        adam.step(3e-3)
    ids, needle = needles(data, np.repeat(np.arange(LENGTH - 1), TEXTS))
    logits, _ = model.forward(ids)
    right = logits[:, -1, :SPECIAL].argmax(axis=-1) == needle
    return right.reshape(-1, TEXTS).mean(axis=1)[::-1]  # the last place is at distance 1
