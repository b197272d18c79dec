"""The costs that `info` prints, against what a real model does.

Operations are counted in study/test_counting.py, the parameters of Transformers in models/test_tree.py.
"""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.model_cases import of_kind

from minitransformer import ConvolutionalConfig, RecurrentConfig, Transformer, TransformerConfig, models
from minitransformer.costs import activations, inference_bytes, least_training_bytes, reading_bytes, training_bytes
from minitransformer.evaluation import text_nats
from minitransformer.layers import DropoutStream
from minitransformer.models import CaptionerConfig, GPTConfig, ModelConfig, T5Config, build_model
from minitransformer.training.optimizer import Adam

SIZES: dict[str, Any] = {"vocab_size": 50, "d_model": 32, "num_heads": 2, "d_ff": 64, "num_layers": 2, "max_length": 64}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"d_k": 24, "d_v": 8},
    {"num_decoder_layers": 3},
    {"norm_first": True, "positions": "learned"},
    {"d_ff": 256, "num_heads": 4},
]
LENGTH = 20


SMALL = st.integers(1, 6)
Kind = Callable[..., ModelConfig]
KINDS: dict[Kind, dict[str, st.SearchStrategy[Any]]] = {
    RecurrentConfig: {"cell": st.sampled_from(["tanh", "lstm"]), "attention": st.booleans()},
    ConvolutionalConfig: {"kernel_width": st.sampled_from([1, 3, 5])},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_baseline_declares_what_it_has(kind: Kind, data: st.DataObject) -> None:
    options = {name: data.draw(values, name) for name, values in KINDS[kind].items()}
    sizes = {"d_model": 2 * data.draw(SMALL), "num_layers": data.draw(SMALL), "max_length": data.draw(SMALL)}
    config = kind(vocab_size=data.draw(st.integers(3, 9)), **sizes, **options)
    model = build_model(config)
    assert config.num_parameters == model.parameters.count
    assert config.num_layers_in_all == len(_layers(model.encoder)) + len(_layers(model.decoder))


HUGE: dict[str, Any] = {"vocab_size": 2**50, "d_model": 2**40, "num_layers": 2**60, "max_length": 2**45}
HUGE |= {"num_heads": 1, "d_ff": 2**42, "d_k": 2**40, "image_size": 2**30}


@pytest.mark.parametrize(
    "config",
    [*(of_kind(kind, HUGE) for kind in models.KINDS.values()), of_kind(GPTConfig, HUGE | {"positions": "rotary"})],
    ids=lambda config: config.kind,
)
def test_the_parameters_of_a_model_that_no_memory_holds_are_counted(config: ModelConfig) -> None:
    tracemalloc.start()
    count = config.num_parameters
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count > config.num_layers * config.d_model**2
    assert peak < 200_000


def _layers(stack: Any) -> list[Any]:
    return stack.stack.layers if hasattr(stack, "stack") else stack.layers


def test_what_any_training_takes_is_less_than_what_one_takes() -> None:
    config = TransformerConfig(**SIZES)
    least = least_training_bytes(config, threads=2)
    parameters = Transformer(config).parameters.count
    assert least > training_bytes(config, parameters, tokens=0, length=LENGTH, threads=2)
    assert least_training_bytes(config, threads=2, dtype="float64") > least
    assert least_training_bytes(config, threads=3) > least + 4 * parameters


BESIDES = {"d_k": 16, "image_size": 8, "patch_size": 2}
FAMILY = [of_kind(kind, SIZES | BESIDES) for kind in models.KINDS.values() if kind not in KINDS]


@pytest.mark.parametrize("config", [*FAMILY, GPTConfig.llama(**SIZES)], ids=lambda config: config.kind)
def test_two_replicas_and_an_optimiser_take_what_any_training_takes(config: ModelConfig) -> None:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    model = build_model(config)
    kept = model.replica(), Adam(model.parameters, model.ops)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept[0].parameters.data is model.parameters.data
    assert least_training_bytes(config, threads=2) == pytest.approx(after - before, rel=0.15)


@pytest.mark.parametrize("variant", VARIANTS)
def test_activations_are_what_a_forward_keeps(variant: dict[str, Any]) -> None:
    config = TransformerConfig(**SIZES | variant, dropout=0.0)
    model, ids = Transformer(config), np.full((16, LENGTH), 5)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = model.loss(ids, ids, ids, 0.1, DropoutStream(seed=0, step=1))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 2  # the loss and its cache
    assert activations(config, LENGTH) == pytest.approx((after - before) / 4 / ids.size, rel=0.1)


def test_memory_grows_with_what_it_is_for() -> None:
    config = TransformerConfig(**SIZES)
    parameters = Transformer(config).parameters.count
    one = training_bytes(config, parameters, tokens=0, length=LENGTH, threads=1)
    assert one == 4 * 4 * parameters  # weights, gradient, two moments
    assert training_bytes(config, parameters, tokens=0, length=LENGTH, threads=3) == one + 2 * 4 * parameters


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(**SIZES),
        GPTConfig(**SIZES, num_kv_heads=1),
        GPTConfig(**SIZES, attention="linear", attention_dropout=0.0),
        T5Config(**SIZES, d_k=5),
        CaptionerConfig(**SIZES, image_size=8, patch_size=2),
    ],
    ids=str,
)
def test_what_decoding_keeps_is_counted(config: Any) -> None:
    model = build_model(config)
    ids = np.full((1, LENGTH), 5)
    read = {GPTConfig: ids[:, : LENGTH - 1], CaptionerConfig: np.zeros((1, 3, 8, 8))}
    state = model.start_decoding(read.get(type(config), ids), num_beams=3)
    while state.position < LENGTH:
        model.decode_step(np.ones((1, 3), np.int64), state)
    kept = [array for arrays in (state.cache.shared | state.cache.rows).values() for array in arrays]
    kept += [
        array[:, :, : state.position] for keys, values, _ in state.cache.grown.values() for array in (keys, values)
    ]
    parameters = model.parameters.count
    assert inference_bytes(config, parameters, LENGTH, beam=3) == 4 * (parameters + sum(array.size for array in kept))


LLAMA: dict[str, Any] = {"positions": "rotary", "norm": "rmsnorm", "activation": "silu", "gated": True, "bias": False}
READERS = {
    "GPT-2": {},
    "Llama": LLAMA | {"num_kv_heads": 1, "tied": False},
    "heads": {"num_heads": 16},
    "softcap": {"softcap": 30.0, "num_heads": 16},
    "ALiBi": {"positions": "alibi"},
    "norms": LLAMA | {"extra_norms": "heads and outputs", "d_ff": 16},
    "words": {"vocab_size": 5000, "logits_softcap": 3.0},
}


@pytest.mark.parametrize("options", READERS.values(), ids=list(READERS))
def test_a_window_of_text_is_read_in_the_memory_that_is_said(options: dict[str, Any]) -> None:
    sizes: dict[str, Any] = {"vocab_size": 100, "d_model": 64, "num_heads": 4, "d_ff": 256, "num_layers": 3}
    config = GPTConfig(**sizes | options, max_length=600)
    model, ids = build_model(config), [1] * 600
    text_nats(model, ids[:8], 1)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    text_nats(model, ids, 1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most - before <= reading_bytes(config, 600) <= 1.9 * (most - before)
    assert reading_bytes(config, 600, in_blocks=False) >= reading_bytes(config, 600)
