"""Queries, keys and values for the tests of attention."""

import numpy as np
import torch
from support.kernels.prove_kernel import DEVICE


def qkv(seed=0, batch=1, heads=1, tq=3, tk=4, d=4, dv=4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "query": rng.standard_normal((batch, heads, tq, d)),
        "key": rng.standard_normal((batch, heads, tk, d)),
        "value": rng.standard_normal((batch, heads, tk, dv)),
    }


def on_device(arrays: dict[str, np.ndarray], dtype=torch.float32) -> list[torch.Tensor]:
    return [torch.from_numpy(array).to(DEVICE, dtype) for array in arrays.values()]
