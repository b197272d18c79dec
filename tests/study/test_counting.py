"""Operations counted by running agree with those that are derived."""

from typing import Any

import numpy as np
import pytest

from minitransformer.costs import Counted, flops_per_token
from minitransformer.models import (
    KINDS,
    BERTConfig,
    CaptionerConfig,
    CLIPConfig,
    ConvolutionalConfig,
    ConvolutionalTranslator,
    GPTConfig,
    MarianConfig,
    RecurrentConfig,
    RecurrentTranslator,
    T5Config,
    Transformer,
    TransformerConfig,
    ViTConfig,
    build_model,
)
from minitransformer.ops import numpy_ops
from study.trials.counting import Tally, counting

V, C, B, TS, TT = 50, 16, 2, 7, 5


def counted(make: Any, config: Any, source: int = TS, target: int = TT) -> Tally:
    """Count the cost of a loss, whose model must compute the same as with the table that does not count."""
    rng = np.random.default_rng(0)
    batch = rng.integers(3, V, (B, source)), *rng.integers(3, V, (2, B, target))
    ops, tally = counting(numpy_ops)
    assert make(config, ops).loss(*batch, 0.1)[0] == make(config).loss(*batch, 0.1)[0]
    return tally


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"d_k": 3, "d_v": 5}, {"num_decoder_layers": 3}, {"d_ff": 64, "num_heads": 4}),
        *({"norm_first": True}, {"norm_first": True, "positions": "learned"}),
    ],
)
def test_a_transformer_costs_what_is_derived(options: dict[str, Any]) -> None:
    sizes: dict[str, Any] = {"d_model": C, "num_heads": 2, "d_ff": 24, "num_layers": 2}
    config = TransformerConfig(V, **sizes | options)
    tally = counted(Transformer, config, TS, TS)
    each = flops_per_token(config, TS)
    assert tally.forward == B * TS * (each.source + each.target)
    assert tally.training == 2 * B * TS * each.training


SMALL: dict[str, Any] = {"d_model": C, "num_heads": 4, "d_ff": 24, "num_layers": 2}


FAMILY = [
    GPTConfig(V, **SMALL),
    GPTConfig.llama(V, **SMALL, num_kv_heads=2, d_k=6),
    GPTConfig(V, **SMALL, attention="linear", attention_dropout=0.0, num_kv_heads=1),
    *(BERTConfig(V, **SMALL), BERTConfig(V, **SMALL, head="classes", num_classes=3)),
    *(BERTConfig(V, **SMALL, head=head) for head in ("none", "hidden", "tokens", "answer")),
    T5Config(V, **SMALL, d_k=3, gated=True, num_decoder_layers=1),
    MarianConfig(V, **SMALL, num_decoder_heads=2, d_decoder_ff=7),
    ViTConfig(3, image_size=8, patch_size=4, channels=2, **SMALL),
]


def test_every_kind_whose_operations_are_derived_is_counted_too() -> None:
    derived = {kind for kind, config in KINDS.items() if issubclass(config, Counted)}
    others = {TransformerConfig, CaptionerConfig, CLIPConfig}
    assert derived == {config.kind for config in FAMILY} | {config.kind for config in others}


@pytest.mark.parametrize("config", FAMILY, ids=str)
def test_a_model_of_the_family_costs_what_is_derived(config: Any) -> None:
    rng = np.random.default_rng(0)
    ids, tokens = rng.integers(3, V, (B, TS)), B * TS
    inputs = (ids, ids) if isinstance(config, T5Config | MarianConfig) else (ids,)
    if isinstance(config, ViTConfig):
        inputs, tokens = (rng.standard_normal((B, 2, 8, 8)),), B * (1 + 4)
    ops, tally = counting(numpy_ops)
    build_model(config, ops).forward(*inputs)
    each = flops_per_token(config, TS)
    assert tally.forward == pytest.approx(tokens * (each.source + each.target), rel=1e-12)
    sides = len(inputs)
    assert tally.training == pytest.approx(sides * tokens * each.training, rel=1e-12)


def test_a_captioner_costs_what_is_derived_of_its_patches_and_of_its_words() -> None:
    config = CaptionerConfig(V, image_size=8, patch_size=4, channels=2, **SMALL, num_decoder_layers=1)
    rng, (ops, tally) = np.random.default_rng(0), counting(numpy_ops)
    build_model(config, ops).forward(rng.standard_normal((B, 2, 8, 8)), rng.integers(3, V, (B, TT)))
    each = flops_per_token(config, TT)
    assert tally.forward == B * (4 * each.source + TT * each.target)


def test_a_clip_costs_what_is_derived_of_its_vectors_and_of_its_words() -> None:
    config = CLIPConfig(V, image_size=8, patch_size=4, channels=2, **SMALL, embedding=7)
    rng, (ops, tally) = np.random.default_rng(0), counting(numpy_ops)
    ids = np.where(np.arange(TT) < TT - 1, rng.integers(3, V, (B, TT)), config.eos_id)
    build_model(config, ops).forward(rng.standard_normal((B, 2, 8, 8)), ids)
    each = flops_per_token(config, TT)
    assert tally.forward == pytest.approx(B * (5 * each.source + TT * each.target), rel=1e-12)


@pytest.mark.parametrize(("cell", "gates"), [("tanh", 1), ("lstm", 4)])
@pytest.mark.parametrize("attention", [False, True])
def test_a_recurrent_model_costs_its_two_products_at_every_position(cell: Any, gates: int, attention: bool) -> None:
    """Input and state with a matrix each, C × G·C; attention: three maps of C × C and one of 2C × C, and the mixing."""
    tally = counted(RecurrentTranslator, RecurrentConfig(V, C, num_layers=2, cell=cell, attention=attention))
    steps = 2 * 2 * B * (TS + TT) * 2 * C * gates * C
    output = 2 * B * TT * C * V
    maps = 2 * B * (TT * C * C + TS * C * C + TT * 2 * C * C)
    mixing = 2 * B * TT * TS * (C + C)
    assert tally.forward == steps + output + attention * (maps + mixing)


def test_a_convolutional_model_costs_its_kernels_width() -> None:
    layers, width = 3, 5
    config = ConvolutionalConfig(V, C, num_layers=layers, kernel_width=width)
    tally = counted(ConvolutionalTranslator, config)
    convolutions = 2 * layers * B * (TS + TT) * width * C * 2 * C
    attention = layers * 2 * B * TT * (C * C + TS * (C + C))
    assert tally.forward == convolutions + attention + 2 * B * TT * C * V


@pytest.mark.parametrize(("window", "reached"), [(1, 3 + 3 + 2), (9, 3 * 5), (None, 3 * 5)])
def test_a_window_is_counted_by_the_keys_it_reaches(window: int | None, reached: int) -> None:
    """By the queries at positions 2, 3 and 4 of five; a window of everything costs what none does."""
    query, key = np.zeros((1, 1, 3, 2)), np.zeros((1, 1, 5, 2))
    ops, tally = counting(numpy_ops)
    ops.attention.forward(query, key, key, window=window)
    assert tally.by_op == {"attention": 2 * reached * (2 + 2)}


@pytest.mark.parametrize(("padding", "positions"), [("causal", 6), ("same", 6), ("valid", 4)])
def test_a_convolution_costs_by_its_outputs(padding: str, positions: int) -> None:
    ops, tally = counting(numpy_ops)
    ops.conv1d.forward(np.zeros((2, 6, 4)), np.zeros((3, 4, 5)), None, padding=padding)
    assert tally.forward == 2 * 2 * positions * 3 * 4 * 5
