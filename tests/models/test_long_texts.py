"""Long texts where no backward follows: attention in blocks of queries, and no cache that outlives its layer."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minitransformer.layers import AttentionConfig, Context, FlatParameters, SelfAttention, attention
from minitransformer.models import GPTConfig, build_model
from minitransformer.ops import numpy_ops

SMALL: dict[str, Any] = {"vocab_size": 40, "d_model": 16, "num_heads": 4, "d_ff": 24, "num_layers": 3}
KINDS = {
    "GPT-2": GPTConfig(**SMALL, max_length=700),
    "Llama": GPTConfig(**SMALL, max_length=700, num_kv_heads=2, positions="rotary", norm="rmsnorm"),
    "window": GPTConfig(**SMALL, max_length=700, positions="rotary", window=90),
    "softcap": GPTConfig(**SMALL, max_length=700, softcap=5.0),
}


def built(config: GPTConfig, dtype: str = "float64") -> Any:
    return build_model(config, numpy_ops, dtype, seed=0)


@pytest.mark.parametrize("config", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("length", [attention.BLOCK + 1, 700])
def test_blocks_are_the_whole(config: GPTConfig, length: int):
    model, ids = built(config), np.random.default_rng(0).integers(40, size=(2, length))
    logits, _ = model.forward(ids)
    np.testing.assert_allclose(model.output.logits(model.hidden_states(ids))[0], logits, rtol=0, atol=1e-12)
    targets = np.roll(ids, -1, 1)
    assert model.loss(ids, targets, with_grad=False)[0] == pytest.approx(model.loss(ids, targets)[0], abs=1e-13)


@pytest.mark.parametrize("window", [None, 7, 200])
@pytest.mark.parametrize("causal", [True, False])
def test_a_layer_says_the_same_whether_a_backward_follows(window: int | None, causal: bool):
    layer = SelfAttention(numpy_ops, 16, AttentionConfig(2, 8, 8, window=window), causal=causal)
    layer.name_layers()
    FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(0)
    x = np.random.default_rng(0).standard_normal((2, 300, 16))
    mask = np.arange(300) < np.array([[300], [150]])
    whole, _ = layer.forward(x, Context(mask))
    np.testing.assert_allclose(layer.forward(x, Context(mask, keep=False))[0], whole, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["Llama", "window"])
def test_a_long_prompt_beside_a_short_one_is_read_in_blocks(kind: str):
    model, rng = built(KINDS[kind]), np.random.default_rng(1)
    long, short = rng.integers(40, size=(1, 600)), rng.integers(40, size=(1, 500))
    prompts = np.concatenate([long, np.concatenate([np.full((1, 100), -100), short], axis=1)])
    state = model.start_decoding(prompts)
    logits = model.decode_step(np.array([[7], [7]]), state)
    for row, prompt in enumerate((long, short)):
        whole, _ = model.forward(np.concatenate([prompt, [[7]]], axis=1))
        np.testing.assert_allclose(logits[row, 0], whole[0, -1], rtol=0, atol=1e-12)


def peak(call: Callable[[], object]) -> int:
    """The bytes that a call has at most."""
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_memory_grows_as_the_text_and_not_with_the_layers():
    def most(length: int, layers: int) -> int:
        options: dict[str, Any] = {**SMALL, "num_layers": layers, "max_length": 4096}
        model = built(GPTConfig(**options), "float32")
        ids = np.zeros((1, length), np.int64)
        return peak(lambda: model.hidden_states(ids))

    shallow = most(1024, 2)
    assert most(1024, 6) < 1.1 * shallow
    assert most(4096, 2) < 4.4 * shallow  # 16 times with all scores at once


def test_a_loss_without_a_gradient_keeps_no_cache():
    options: dict[str, Any] = {**SMALL, "num_layers": 8, "max_length": 256}
    model = built(GPTConfig(**options), "float32")
    ids = np.zeros((4, 256), np.int64)
    with_cache, without = (peak(lambda kept=kept: model.loss(ids, ids, with_grad=kept)) for kept in (True, False))
    assert without < with_cache / 4
