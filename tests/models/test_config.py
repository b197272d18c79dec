"""Hyper-parameters: the named sizes, and what can't be a model."""

import dataclasses
import json
from collections import Counter

import numpy as np
import pytest
from support.model_cases import config, model_of, ragged

from minitransformer.layers import AttentionConfig, BlockConfig, FeedForwardConfig, NormConfig, StackConfig
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


@pytest.mark.parametrize("preset", PRESETS)
def test_a_configuration_round_trips_through_json(preset):
    sizes = getattr(TransformerConfig, preset)(300, window=3, positions="learned")
    assert TransformerConfig.from_dict(json.loads(json.dumps(sizes.to_dict()))) == sizes
    with pytest.raises(ValueError, match="unknown configuration fields: d_modle"):
        TransformerConfig.from_dict({**sizes.to_dict(), "d_modle": 5})


def test_a_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().d_model = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"num_heads": 4}, ValueError, "num_heads is 4 and does not divide d_model, 6"),
        ({"num_heads": 4, "d_k": 2}, ValueError, "num_heads is 4 and does not divide d_model, 6"),
        ({"d_model": 5, "num_heads": 1}, ValueError, "d_model is 5: sinusoidal positions need an even width"),
        ({"dropout": 1.0}, ValueError, r"dropout is 1.0, expected a number in \[0, 1\)"),
        ({"dropout": -0.1}, ValueError, r"dropout is -0.1, expected"),
        ({"dropout": float("nan")}, ValueError, "dropout is nan, expected"),
        ({"dropout": "0.1"}, TypeError, "dropout must be a number, got str"),
        ({"attention_dropout": 1.5}, ValueError, "attention_dropout is 1.5, expected"),
        ({"vocab_size": 0}, ValueError, "vocab_size is 0, expected 1 or more"),
        ({"d_ff": 2.5}, TypeError, "d_ff must be an integer, got float"),
        ({"num_layers": 0}, ValueError, "num_layers is 0, expected 1 or more"),
        ({"num_layers": True}, TypeError, "num_layers must be an integer, got bool"),
        ({"num_decoder_layers": 0}, ValueError, "num_decoder_layers is 0, expected 1 or more"),
        ({"d_k": -1}, ValueError, "d_k is -1, expected 1 or more"),
        ({"d_v": 0}, ValueError, "d_v is 0, expected 1 or more"),
        ({"max_length": 0}, ValueError, "max_length is 0, expected 1 or more"),
        ({"window": -1}, ValueError, "window is -1, expected 0 or more"),
        ({"positions": "rotary"}, ValueError, "positions is 'rotary', expected 'sinusoidal' or 'learned'"),
        ({"norm_first": 1}, TypeError, "norm_first must be True or False, got int"),
        ({"layernorm_eps": 0.0}, ValueError, "layernorm_eps is 0.0, expected a finite number above 0"),
        ({"layernorm_eps": float("inf")}, ValueError, "layernorm_eps is inf, expected a finite number above 0"),
        ({"layernorm_eps": 1e-300}, ValueError, "layernorm_eps is 1e-300, expected .*: 1.2e-38 to 1"),
        ({"layernorm_eps": 2}, ValueError, "layernorm_eps is 2, expected"),
        ({"init_gain": 1e308}, ValueError, r"init_gain is 1e\+308, expected"),
        ({"d_ff": 2**63}, ValueError, f"d_ff is larger than {2**63 - 1}, the most that an axis of an array can be"),
        ({"layernorm_eps": True}, TypeError, "layernorm_eps must be a number, got bool"),
        ({"pad_id": 0.5}, TypeError, "pad_id must be an integer, got float"),
        ({"pad_id": 1}, ValueError, r"pad_id, bos_id, eos_id are \(1, 1, 2\), expected three ids below 11"),
        ({"eos_id": 11}, ValueError, r"are \(0, 1, 11\), expected three ids below 11"),
    ],
    ids=str,
)
def test_what_can_not_be_a_model(changes, kind, message):
    with pytest.raises(kind, match=message):
        config(**changes)


@pytest.mark.parametrize(
    "changes", [{}, {"num_decoder_layers": 3, "positions": "learned"}, {"norm_first": True}], ids=str
)
def test_the_tree_says_what_the_flat_fields_say(changes):
    """Each stack of the built model has as many parameters as its tree counts."""
    flat = config(window=2, dropout=0.3, attention_dropout=0.2, layernorm_eps=1e-3, init_gain=0.5, d_k=4, **changes)
    for tree, decoder, layers in ((flat.encoder, False, 1), (flat.decoder, True, flat.decoder_layers)):
        attention = AttentionConfig(num_heads=2, d_k=4, d_v=3, window=2, dropout=0.2)
        norm = NormConfig(first=flat.norm_first, eps=1e-3)
        block = BlockConfig(attention, FeedForwardConfig(7), norm, 6, decoder, decoder, dropout=0.3, init_gain=0.5)
        assert tree == StackConfig(block, layers, flat.positions, max_length=16)
    model = Transformer(flat)
    counted: Counter[str] = Counter()
    for name, parameter in model.parameters.named.items():
        counted[name.split(".")[0]] += parameter.data.size
    expected = {"encoder": flat.encoder.num_parameters(), "decoder": flat.decoder.num_parameters()}
    assert counted == {"tokens": 11 * 6, **expected}
    assert flat.num_parameters == model.parameters.count


@pytest.mark.parametrize(
    "changes",
    [
        {"num_heads": 4, "d_k": 2, "d_v": 3},
        {"d_model": 5, "num_heads": 1, "positions": "learned"},
        {"d_model": 2, "num_heads": 1, "d_ff": 1, "vocab_size": 3, "max_length": 9},
        {"window": 0},
    ],
    ids=str,
)
def test_what_can(changes):
    model = model_of(**changes)
    loss, cache = model.loss(*ragged([3, 1], [2, 4], vocab_size=3))
    model.loss_backward(1.0, cache)
    assert np.isfinite(loss)
    assert np.isfinite(model.parameters.grad).all()
