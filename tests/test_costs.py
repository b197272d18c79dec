"""The costs that `info` prints, against what a real model does."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minitransformer import Transformer, TransformerConfig
from minitransformer.costs import activations, flops_per_token, inference_bytes, parameter_groups, training_bytes
from minitransformer.layers import DropoutStream
from minitransformer.ops import numpy_ops

SIZES: dict[str, Any] = {"vocab_size": 50, "d_model": 32, "num_heads": 2, "d_ff": 64, "num_layers": 2, "max_length": 64}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"d_k": 24, "d_v": 8},
    {"num_decoder_layers": 3},
    {"norm_first": True, "positions": "learned"},
    {"d_ff": 256, "num_heads": 4},
]
LENGTH = 20


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameter_groups_add_up(variant: dict[str, Any]) -> None:
    config = TransformerConfig(**SIZES | variant)
    assert sum(parameter_groups(config).values()) == Transformer(config).parameters.count


@pytest.mark.parametrize("variant", VARIANTS)
def test_flops_are_those_of_the_products_that_a_model_takes(variant: dict[str, Any]) -> None:
    config = TransformerConfig(**SIZES | variant)
    counted = 0

    def linear_forward(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> tuple:
        nonlocal counted
        counted += 2 * x.size * weight.shape[1]
        return numpy_ops.linear_forward(x, weight, bias)

    def attention_forward(query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any) -> tuple:
        nonlocal counted
        counted += 2 * query.size * key.shape[2] + 2 * query[..., 0].size * value[0, 0].size
        return numpy_ops.attention_forward(query, key, value, **options)

    ops = replace(numpy_ops, linear_forward=linear_forward, attention_forward=attention_forward)
    ids = np.full((1, LENGTH), 5)
    Transformer(config, ops).forward(ids, ids)
    flops = flops_per_token(config, LENGTH)
    assert LENGTH * (flops.source + flops.target) == counted
    assert flops.training == 1.5 * counted / LENGTH


@pytest.mark.parametrize("variant", VARIANTS)
def test_activations_are_what_a_forward_keeps(variant: dict[str, Any]) -> None:
    config = TransformerConfig(**SIZES | variant, dropout=0.0)
    model, ids = Transformer(config), np.full((16, LENGTH), 5)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = model.loss(ids, ids, ids, 0.1, DropoutStream(seed=0, step=1))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 2
    assert activations(config, LENGTH) == pytest.approx((after - before) / 4 / ids.size, rel=0.1)


def test_memory_grows_with_what_it_is_for() -> None:
    config = TransformerConfig(**SIZES)
    parameters = Transformer(config).parameters.count
    one = training_bytes(config, parameters, tokens=0, length=LENGTH, threads=1)
    assert one == 4 * 4 * parameters  # weights, gradient, two moments
    assert training_bytes(config, parameters, tokens=0, length=LENGTH, threads=3) == one + 2 * 4 * parameters
    state = Transformer(config).start_decoding(np.full((1, LENGTH), 5), num_beams=3)
    memory = sum(keys.size + values.size for keys, values in state.memory_caches)
    assert inference_bytes(config, parameters, LENGTH, beam=3) == 4 * (parameters + 4 * memory)
