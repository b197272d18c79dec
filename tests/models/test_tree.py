"""Any configuration in the tree of options gives a model whose gradient, steps, size and file are right.

Every field that is a choice or a flag is drawn by itself, so that a new option is in here from its first day.
"""

import copy
import json
from dataclasses import fields, replace
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model_cases import moved

from minitransformer.costs import parameter_groups
from minitransformer.gradcheck import error
from minitransformer.inside import logit_lens
from minitransformer.layers import DropoutStream, RotaryConfig, SparseConfig
from minitransformer.models import (
    GPT,
    IGNORED,
    KINDS,
    BERTConfig,
    CaptionerConfig,
    CLIPConfig,
    ConvolutionalConfig,
    GPTConfig,
    ModelConfig,
    RecurrentConfig,
    TransformerConfig,
    ViTConfig,
)
from minitransformer.ops import Ops

V, T = 11, 6
FAMILY = [kind for kind in KINDS.values() if kind not in (RecurrentConfig, ConvolutionalConfig)]
SEEN_INSIDE = [kind for kind in FAMILY if kind is not CLIPConfig]
"""Those whose logits are read from one stream."""

PATTERNS = [
    *((None, None), (0, None), (2, None), (1, SparseConfig(global_tokens=2)), (1, SparseConfig(stride=2))),
    *((None, SparseConfig(block=2, summary=1)), (1, SparseConfig(block=3, stride=4, global_tokens=1))),
    *((1, SparseConfig(full_every=2)), (None, SparseConfig(block=2, full_every=1))),
]
DRAWN: dict[str, Any] = {
    "vocab_size": st.just(V), "max_length": st.just(T + 1), "d_model": st.just(8), "num_heads": st.just(4),
    "num_kv_heads": st.sampled_from([None, 1, 2]), "num_decoder_heads": st.sampled_from([None, 1]),
    "d_k": st.sampled_from([2, 4]), "d_v": st.sampled_from([None, 1]),
    "d_ff": st.integers(0, 6), "d_decoder_ff": st.sampled_from([None, 3]),
    "num_layers": st.integers(1, 2), "num_decoder_layers": st.sampled_from([None, 1]),
    "dropout": st.sampled_from([0.0, 0.3]), "attention_dropout": st.sampled_from([0.0, 0.3]),
    "rotary": st.none() | st.builds(RotaryConfig, st.sampled_from([None, 2]), interleaved=st.booleans()),
    "softcap": st.sampled_from([None, 1.5]), "logits_softcap": st.sampled_from([None, 1.5]),
    "head": st.sampled_from(["masked", "classes", "tokens", "answer"]), "token_types": st.sampled_from([0, 2]),
    "first_position": st.sampled_from([0, 2]),
    "buckets": st.just(4), "max_distance": st.just(3), "embedding_scale": st.sampled_from([1.0, 2.0]),
    "num_classes": st.integers(2, 3), "image_size": st.just(4), "patch_size": st.sampled_from([1, 2, 4]),
    "channels": st.integers(1, 2), "embedding": st.integers(1, 5),
}  # fmt: skip
"""The values of the fields that are numbers or parts; the others have their defaults."""


def any_config(draw: Any, kind: type[ModelConfig]) -> Any:
    """A configuration of this kind, with options that go together."""
    values, hints = {}, get_type_hints(kind)
    for each in fields(cast(Any, kind)):
        hint = hints[each.name]
        strategy = (
            st.booleans() if hint is bool else st.sampled_from(get_args(hint)) if get_origin(hint) is Literal else None
        )
        strategy = DRAWN.get(each.name, strategy)
        if strategy is not None:
            values[each.name] = draw(strategy, each.name)
    if kind is not GPTConfig and "d_ff" in values:
        values["d_ff"] = max(values["d_ff"], 1)
    if values.get("head") == "answer":
        values["num_classes"] = 2
    if "window" in hints:
        pattern = draw(st.sampled_from(PATTERNS), "pattern")
        values |= dict(zip(("window", "sparse"), pattern, strict=True)) if "sparse" in hints else {"window": pattern[0]}
    if values.get("attention") == "linear":
        values |= {"window": None, "sparse": None, "softcap": None, "attention_dropout": 0.0}
        values["positions"] = "none" if values["positions"] in ("alibi", "relative") else values["positions"]
    if values.get("rotary") and values.get("sparse") and values["sparse"].full_every:
        values["rotary"] = replace(values["rotary"], full_theta=draw(st.sampled_from([None, 3.0]), "full_theta"))
    return kind(**values)


def inputs_of(config: Any, rng: np.random.Generator) -> tuple:
    """Return the arguments of the loss of this kind of model."""
    ids, targets = rng.integers(2, V, (2, 2, T))
    if isinstance(config, ViTConfig | CaptionerConfig | CLIPConfig):
        images = rng.standard_normal((2, config.channels, config.image_size, config.image_size))
        if isinstance(config, CaptionerConfig):
            return images, targets, ids
        if isinstance(config, CLIPConfig):
            ids[:, -1] = config.eos_id
            return images, ids
        return images, rng.integers(0, config.num_classes, 2)
    if isinstance(config, TransformerConfig):
        return ids[:, :4], targets, ids
    counted = np.where(rng.random((2, T)) < 0.7, targets, IGNORED)
    if isinstance(config, BERTConfig):
        classes = np.where(counted == IGNORED, IGNORED, counted % config.num_classes)
        wanted = {"masked": counted, "tokens": classes, "answer": targets[:, :2] % T}
        first = rng.integers(0, config.num_classes, 2)
        return ids, wanted.get(config.head, first), ids % 2, targets != 3
    return (ids, counted) if isinstance(config, GPTConfig) else (ids[:, :4], targets, counted)


@pytest.mark.parametrize("kind", FAMILY)
@settings(max_examples=30)
@given(data=st.data())
def test_any_model(kind: type[ModelConfig], data: st.DataObject) -> None:
    config = any_config(data.draw, kind)
    assert kind.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    model, rng = moved(config), np.random.default_rng(0)
    inputs, smoothing = inputs_of(config, rng), data.draw(st.sampled_from([0.0, 0.1]), "smoothing")

    assert config.num_parameters == model.parameters.count
    if isinstance(config, TransformerConfig):
        assert sum(parameter_groups(config).values()) == model.parameters.count
    names = ("encoder", "decoder", "picture_encoder", "text_encoder")
    stacks = [getattr(model, name).layers for name in names if hasattr(model, name)]
    assert config.num_layers_in_all == sum(map(len, stacks))

    dropout, direction = DropoutStream(1, 2), rng.standard_normal(model.parameters.data.shape)
    _, cache = model.loss(*inputs, label_smoothing=smoothing, dropout=dropout)
    model.parameters.zero_grad()
    model.loss_backward(1.0, cache)
    start, step, losses = model.parameters.data.copy(), 1e-8, []  # so small that relu's kink is hardly ever crossed
    for sign in (1, -1):
        model.parameters.data[...] = start + sign * step * direction
        losses.append(float(model.loss(*inputs, label_smoothing=smoothing, dropout=dropout)[0]))
    model.parameters.data[...] = start
    slope = (losses[0] - losses[1]) / (2 * step)
    assert error(model.parameters.grad @ direction, slope) <= 1e-7

    if not hasattr(model, "start_decoding"):
        return
    *source, ids = inputs[:-1]
    state = model.start_decoding(*(source or [ids[:, :0]]))
    steps = [model.decode_step(ids[:, t : t + 1], state)[:, 0] for t in range(T)]
    assert error(np.stack(steps, axis=1), model.forward(*inputs[:-1])[0]) <= 1e-11


class OneBlock(GPT):
    """A GPT whose layers are one block, as ALBERT's are (Lan et al. 2020)."""

    def _build(self, ops: Ops) -> None:
        super()._build(ops)
        self.decoder.layers = self.decoder.layers[:1] * self.config.num_layers


def test_a_stack_may_be_one_block_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPTConfig, "model", OneBlock)
    config = GPTConfig(V, d_model=8, num_heads=2, d_ff=5, num_layers=3, max_length=T)
    models = [moved(replace(config, num_layers=depth)) for depth in (1, 2, 3)]
    for each in models:
        each.parameters.load_state_dict(models[0].parameters.state_dict())
    assert [each.config.num_parameters for each in models] == [models[0].parameters.count] * 3
    ids = np.random.default_rng(0).integers(0, V, (2, T))
    lens = logit_lens(copy.deepcopy(models[-1]), ids)
    np.testing.assert_array_equal(lens[1:], [each.forward(ids)[0] for each in models])
