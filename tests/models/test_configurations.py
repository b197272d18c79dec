"""Every configuration: each field refuses by name what it can't hold, and JSON keeps the whole."""

import dataclasses
import json
import math
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from minitransformer import RecurrentConfig, TransformerConfig
from minitransformer.config import Config
from minitransformer.layers import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    FeedForwardConfig,
    NormConfig,
    RotaryConfig,
    SparseConfig,
    StackConfig,
)
from minitransformer.models import (
    KINDS,
    BERTConfig,
    CaptionerConfig,
    CLIPConfig,
    ConvolutionalConfig,
    GPTConfig,
    MarianConfig,
    ModelConfig,
    T5Config,
    ViTConfig,
    kinds,
)
from minitransformer.training import TrainingSettings

BLOCK = BlockConfig(AttentionConfig(num_heads=2, d_k=2, d_v=1), FeedForwardConfig(5), NormConfig(), d_model=4)
TRANSFORMER = TransformerConfig(vocab_size=11, d_model=6, num_heads=2, d_ff=7, num_layers=1, window=3)
CONVOLUTIONAL, RECURRENT = ConvolutionalConfig(vocab_size=11), RecurrentConfig(vocab_size=11)
GPT = GPTConfig.llama(
    11, d_model=8, num_heads=2, window=3, sparse=SparseConfig(stride=3), rotary=RotaryConfig(theta=5e5)
)
SETTINGS = TrainingSettings(steps=5, minutes=2.5, peak_lr=0.005, threads=1)
CONFIGS: list[Any] = [
    *(TRANSFORMER, RECURRENT, CONVOLUTIONAL, SETTINGS),
    *(GPT, BERTConfig(11), T5Config(11), MarianConfig(11), ViTConfig(image_size=8, patch_size=4)),
    *(CaptionerConfig(11), CLIPConfig(11)),
    *(StackConfig(BLOCK, 2), BLOCK, BLOCK.attention, BLOCK.feed_forward, BLOCK.norm),
    *(RotaryConfig(), BiasConfig(), SparseConfig(block=4, summary=2)),
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)

HOSTILE: dict[Any, list[Any]] = {
    int: [-1, 2**63, 2**70, 2.5, math.nan, True, "2", [1]],
    float: [-0.1, math.nan, math.inf, True, "0.1", [0.1]],
    bool: [0, 1, "yes", math.nan],
    str: ["sideways", 3, ["lstm"]],
}
"""What no field of a type may hold; `None` is tried where it is not the default."""

MAY_BE_0 = {"window", "summary", "global_tokens", "steps", "seed", "pad_id", "bos_id", "eos_id", "mask_id"}
MAY_BE_0 |= {"token_types", "first_position", "d_ff"}
RATES = {"dropout", "attention_dropout", "label_smoothing", "cooldown", "beta1", "beta2"}


@every_config
def test_a_field_refuses_by_name_what_it_can_not_hold(config):
    for each in fields(config):
        hint = get_type_hints(type(config))[each.name]
        kind = str if get_origin(hint) is Literal else (get_args(hint) or [hint])[0]
        if issubclass(kind, Config):
            for value in ("x", 5, {"theta": 1e4}, SETTINGS, *([None] if each.default is not None else [])):
                with pytest.raises(TypeError, match=rf"^{each.name} must be a {kind.__name__}, got "):
                    replace(config, **{each.name: value})
            continue
        edges = {int: [] if each.name in MAY_BE_0 else [0], float: [1.0 if each.name in RATES else 0.0]}.get(kind, [])
        for value in [*HOSTILE[kind], *edges, *([None] if each.default is not None else [])]:
            with pytest.raises((TypeError, ValueError), match=rf"^{each.name} (is|must be) "):
                replace(config, **{each.name: value})


@every_config
def test_json_keeps_it(config):
    written = json.loads(json.dumps(config.to_dict()))
    assert written == config.to_dict()
    assert type(config).from_dict(written) == config
    with pytest.raises(ValueError, match="unknown configuration fields: d_modle, momentum"):
        type(config).from_dict({**written, "momentum": 1, "d_modle": 5})
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, fields(config)[0].name, 1)


def test_every_kind_of_model_is_among_them() -> None:
    assert {config.kind for config in CONFIGS if isinstance(config, ModelConfig)} == KINDS.keys()
    assert len(KINDS) == len(kinds.CONFIGS)  # no two of one name


def test_a_part_refuses_an_unknown_field_too():
    values = StackConfig(BLOCK, 2).to_dict()
    values["block"]["attention"]["heads"] = 3
    with pytest.raises(ValueError, match="unknown configuration fields: heads"):
        StackConfig.from_dict(values)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (TRANSFORMER, {"num_heads": 4}, "num_heads is 4 and does not divide d_model, 6"),
        (TRANSFORMER, {"num_heads": 4, "d_k": 2}, "num_heads is 4 and does not divide d_model, 6"),
        (TRANSFORMER, {"d_model": 5, "num_heads": 1}, "d_model is 5: sinusoidal positions need an even width"),
        (TRANSFORMER, {"dropout": 1.0}, r"dropout is 1.0, expected a number in \[0, 1\)"),
        (TRANSFORMER, {"vocab_size": 0}, "vocab_size is 0, expected 1 or more"),
        (TRANSFORMER, {"d_k": 0}, "d_k is 0, expected 1 or more"),
        (TRANSFORMER, {"window": -1}, "window is -1, expected 0 or more"),
        (TRANSFORMER, {"positions": "rotary"}, "positions is 'rotary', expected 'sinusoidal' or 'learned'"),
        (TRANSFORMER, {"positions": np.ones(2)}, r"positions is array.*, expected 'sinusoidal' or 'learned'"),
        (TRANSFORMER, {"layernorm_eps": 1e-300}, "layernorm_eps is 1e-300, expected .*: 1.2e-38 to 1"),
        (TRANSFORMER, {"layernorm_eps": 2}, "layernorm_eps is 2, expected"),
        (TRANSFORMER, {"init_gain": 1e308}, r"init_gain is 1e\+308, expected"),
        (TRANSFORMER, {"d_ff": 2**63}, f"d_ff is larger than {2**63 - 1}, the most that an axis of an array can be"),
        (TRANSFORMER, {"pad_id": 1}, r"pad_id, bos_id, eos_id are \(1, 1, 2\), expected three ids below 11"),
        (CONVOLUTIONAL, {"eos_id": 11}, r"are \(0, 1, 11\), expected three ids below 11"),
        (CONVOLUTIONAL, {"kernel_width": 4}, "kernel_width is 4, expected an odd number"),
        (RECURRENT, {"cell": "gru"}, "cell is 'gru', expected 'tanh' or 'lstm'"),
        (GPT, {"num_heads": 3}, "num_heads is 3 and does not divide d_model, 8"),
        (GPT, {"num_kv_heads": 4}, "num_kv_heads is 4 and does not divide num_heads, 2"),
        (GPT, {"rotary": RotaryConfig(6)}, "rotary positions turn 6 channels of heads of 4"),
        (GPT, {"attention": "linear"}, "linear attention has no window, scale, softcap, bias or dropout"),
        (GPT, {"window": None, "sparse": SparseConfig(global_tokens=1)}, "needs a window, a block or a stride"),
        (SparseConfig(), {"global_tokens": 2**40}, f"global_tokens is {2**40}, expected 0 to 65536"),
        (SparseConfig(block=2), {"summary": 3}, "summary is 3, expected at most block, which is 2"),
        (BERTConfig(11), {"pad_id": 11}, "pad_id is 11, expected an id below the vocabulary"),
        (BERTConfig(11), {"mask_id": 11}, "mask_id is 11, expected an id below the vocabulary"),
        (BERTConfig(11), {"num_heads": 5}, "num_heads is 5 and does not divide d_model, 768"),
        (ViTConfig(), {"patch_size": 15}, "patch_size is 15 and does not divide image_size, 224"),
        (BLOCK.norm, {"eps": 0.0}, "eps is 0.0, expected a finite number above 0"),
        (StackConfig(BLOCK, 1), {"block": replace(BLOCK, d_model=5)}, "need an even width"),
        (SETTINGS, {"accumulate": 0}, "accumulate is 0, expected 1 to 4096"),
        (SETTINGS, {"accumulate": 4097}, "accumulate is 4097, expected 1 to 4096"),
        (SETTINGS, {"minutes": 0}, "minutes is 0, expected a finite number above 0$"),
        (SETTINGS, {"eps": 1e-300}, "eps is 1e-300, expected a finite number above 0: 1.2e-38 to 1"),
        (SETTINGS, {"threads": 1025}, "threads is 1025, expected 1 to 1024"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_refusal_says_what_it_holds_and_what_it_may_hold(config, changes, message):
    with pytest.raises(ValueError, match=message):
        replace(config, **changes)
