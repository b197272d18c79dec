"""Hyper-parameters: the named sizes, and what can't be a model."""

from collections import Counter
from typing import Any

import pytest
from support.model_cases import config

from minitransformer.layers import AttentionConfig, BlockConfig, FeedForwardConfig, InitConfig, NormConfig, StackConfig
from minitransformer.models import PRESETS, Transformer, TransformerConfig

TABLE_3 = {  # Vaswani 2017
    "base": {"num_layers": 6, "d_model": 512, "d_ff": 2048, "num_heads": 8, "key_width": 64, "value_width": 64},
    "big": {"num_layers": 6, "d_model": 1024, "d_ff": 4096, "num_heads": 16, "key_width": 64, "value_width": 64},
}


@pytest.mark.parametrize("preset", TABLE_3)
def test_base_and_big_are_table_3_s(preset):
    sizes = getattr(TransformerConfig, preset)(37_000)
    assert {name: getattr(sizes, name) for name in TABLE_3[preset]} == TABLE_3[preset]
    assert (sizes.decoder_layers, sizes.norm_first, sizes.positions, sizes.window) == (6, False, "sinusoidal", None)


def test_dropout_is_table_3_s():
    """0.1 for base; big's 0.3, and 0.1 for English→French (§6.1)."""
    assert TransformerConfig.base(37_000).dropout == 0.1
    assert TransformerConfig.big(37_000).dropout == TransformerConfig.big(37_000, "en-de").dropout == 0.3
    assert TransformerConfig.big(32_000, "en-fr").dropout == 0.1
    assert {getattr(TransformerConfig, preset)(100).attention_dropout for preset in PRESETS} == {0.0}
    with pytest.raises(ValueError, match=r"language_pair is 'en-it', expected one of en-de, en-fr"):
        TransformerConfig.big(37_000, "en-it")


def test_tiny_has_2_35_million_parameters():
    tiny = TransformerConfig.tiny(8000)
    sizes = (tiny.d_model, tiny.d_ff, tiny.num_heads, tiny.num_layers, tiny.decoder_layers, tiny.dropout)
    assert sizes == (128, 256, 4, 4, 4, 0.3)
    assert Transformer(tiny).parameters.count == pytest.approx(2.35e6, abs=5e3)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_take_overrides(preset):
    changed = getattr(TransformerConfig, preset)(300, num_layers=1, dropout=0.25)
    assert (changed.vocab_size, changed.num_layers, changed.dropout) == (300, 1, 0.25)


@pytest.mark.parametrize(
    "changes", [{}, {"num_decoder_layers": 3, "positions": "learned"}, {"norm_first": True}], ids=str
)
def test_the_tree_says_what_the_flat_fields_say(changes):
    """Each stack of the built model has as many parameters as its layers declare."""
    flat = config(window=2, dropout=0.3, attention_dropout=0.2, layernorm_eps=1e-3, init_gain=0.5, d_k=4, **changes)
    for tree, decoder, layers in ((flat.encoder, False, 1), (flat.decoder, True, flat.decoder_layers)):
        attention = AttentionConfig(num_heads=2, d_k=4, d_v=3, window=2, dropout=0.2)
        norm = NormConfig(first=flat.norm_first, eps=1e-3)
        shared: dict[str, Any] = {"dropout": 0.3, "init": InitConfig(0.5)}
        block = BlockConfig(attention, FeedForwardConfig(7), norm, 6, decoder, decoder, **shared)
        assert tree == StackConfig(block, layers, flat.positions, max_length=16)
    model = Transformer(flat)
    counted: Counter[str] = Counter()
    for name, parameter in model.parameters.named.items():
        counted[name.split(".")[0]] += parameter.data.size
    declared: Counter[str] = Counter()
    for name, size in flat.parameter_sizes().items():
        declared[name.split(".")[0]] += size
    assert counted == declared
    assert counted["tokens"] == 11 * 6
    assert flat.num_parameters == model.parameters.count
