"""Attention in a translation: one position at a time, and beams that share a memory."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from support.prove_layer import placed
from support.spies import Spies

from minitransformer.gradcheck import error
from minitransformer.layers import (
    AttentionConfig,
    BiasConfig,
    Cache,
    Context,
    CrossAttention,
    RelativeBias,
    SelfAttention,
    SparseConfig,
)
from minitransformer.ops import numpy_ops

C = 4
KEY_MASK = np.array([[True, True, False], [False, False, False]])


@pytest.mark.parametrize("window", [None, 2])
def test_one_position_at_a_time_equals_all_at_once(window):
    layer = SelfAttention(numpy_ops, C, AttentionConfig(2, 3, 1, window), causal=True)
    placed(layer)
    x, cache = np.random.default_rng(0).standard_normal((2, 5, C)), Cache(numpy_ops, batch=2, num_beams=1)
    steps = []
    for stop in (1, 2, 4, 5):  # two positions at once may come too
        steps.append(layer.forward(x[:, cache.position : stop], Context(cache=cache))[0])
        cache.position = stop
    assert error(np.concatenate(steps, axis=1), layer.forward(x)[0]) <= 1e-12


def test_beams_fold_into_the_queries_of_cross_attention():
    """Each beam gets what it would get alone, and only the first position asks for the memory."""
    spies = Spies()
    layer = CrossAttention(spies.ops, C, AttentionConfig(2, 3, 1))
    placed(layer)
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((3, 2, 4, C)), rng.standard_normal((2, 3, C))  # 3 positions of 2 sentences' 4 beams
    alone = [
        layer.forward(x[t, :, [k]].swapaxes(0, 1), Context(None, memory, KEY_MASK))[0] for t, k in np.ndindex(3, 4)
    ]
    cache = Cache(numpy_ops, batch=2, num_beams=4)
    spies.calls.clear()
    for t in range(3):
        context = Context(memory=None if t == 2 else memory, memory_mask=KEY_MASK, cache=cache)
        stepped, _ = layer.forward(x[t].reshape(8, 1, C), context)
        cache.position += 1
        for beam in range(4):
            assert error(stepped.reshape(2, 4, 1, C)[:, beam], alone[4 * t + beam]) <= 1e-12
    assert spies.calls["linear_forward"] == 3 * 2 + 1  # query and output at every position, the memory's keys once


class Behind(RelativeBias):
    """Hides the pairs that a rule does not keep."""

    def __init__(self, keeps: Any) -> None:
        super().__init__(numpy_ops, BiasConfig("alibi"), 1, False, "float64")
        self.keeps = keeps

    def forward(self, num_queries: int, num_keys: int) -> tuple[np.ndarray, None]:
        kept = [[self.keeps(i, j) for j in range(num_keys)] for i in range(num_queries)]
        return np.where(kept, 0.0, -np.inf)[None, None], None

    def backward(self, dbias: np.ndarray, cache: tuple | None) -> None:
        assert dbias.shape == (1, 1, 9, 9)


SPARSE: dict[str, tuple[int | None, SparseConfig, Any]] = {
    "window, global tokens": (1, SparseConfig(global_tokens=2), lambda i, j: abs(i - j) <= 1 or i < 2 or j < 2),
    "strided": (2, SparseConfig(stride=3), lambda i, j: abs(i - j) <= 2 or (i - j) % 3 == 0),
    "fixed": (None, SparseConfig(block=3, summary=1), lambda i, j: i // 3 == j // 3 or j % 3 == 2),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_pattern_and_its_gradients_are_those_of_a_mask(name, causal):
    window, sparse, keeps = SPARSE[name]
    results = []
    for config in (AttentionConfig(2, 3, 2, window, sparse=sparse), AttentionConfig(2, 3, 2)):
        layer = SelfAttention(numpy_ops, C, config, causal=causal)
        parameters = placed(layer)
        layer.relative = None if config.sparse else Behind(keeps)
        rng = np.random.default_rng(0)
        mask = np.array([[True] * 9, [True] * 6 + [False] * 3])
        out, cache = layer.forward(rng.standard_normal((2, 9, C)), Context(mask))
        parameters.zero_grad()
        dx = layer.backward(rng.standard_normal(out.shape), cache)
        results.append((out, dx, parameters.grad))
    for sparse_result, masked in zip(*results, strict=True):
        assert error(sparse_result, masked) <= 1e-12


@pytest.mark.parametrize("sparse", [None, SparseConfig(global_tokens=2)])
def test_a_sparse_layer_keeps_what_its_pattern_keeps(sparse):
    """Each position sees 24 of 2,000, and all see the first two: with the pieces' own waste a tenth of all pairs."""
    layer = SelfAttention(numpy_ops, C, AttentionConfig(1, 3, 1, 24 if sparse else None, sparse=sparse), causal=True)
    placed(layer)
    x = np.random.default_rng(0).standard_normal((1, 2000, C))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = layer.forward(x)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 2  # the output and its cache
    pairs = (after - before) / x.itemsize
    assert pairs < 0.1 * 2000**2 if sparse else pairs > 2000**2
