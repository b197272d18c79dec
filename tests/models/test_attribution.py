"""Direct logit attribution: the terms add up to the logits for every kind of model, and each is its own part's."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model_cases import moved
from test_tree import SEEN_INSIDE, OneBlock, T, V, any_config, inputs_of

from minitransformer.gradcheck import error
from minitransformer.inside import Recording, logit_attribution, record
from minitransformer.models import BERTConfig, GPTConfig, ModelConfig, TransformerConfig, Tuning, ViTConfig, build_model

SIZES: dict[str, Any] = {"d_model": 8, "num_heads": 2, "d_ff": 5, "num_layers": 2, "max_length": T}
ALONE: dict[str, Any] = SIZES | {"d_ff": 0}
GROUPS: dict[str, Any] = SIZES | {"num_heads": 4, "num_kv_heads": 2}
WIDE: dict[str, Any] = SIZES | {"d_model": 32, "d_ff": 32}
PLAIN: dict[str, Any] = {
    "pre-norm": GPTConfig(V, **SIZES),
    "attention alone": GPTConfig(V, **ALONE),
    "groups": GPTConfig.llama(V, **GROUPS),
    "sandwich": GPTConfig(V, **SIZES, extra_norms="outputs"),
    "post-norm": GPTConfig(V, **SIZES, norm_first=False),
    "post-norm sandwich": GPTConfig(V, **SIZES, norm_first=False, extra_norms="outputs"),
    "transformer": TransformerConfig(V, **SIZES),
}
IDS = np.random.default_rng(0).integers(2, V, (2, 2, T))


def run_of(config: Any) -> tuple[Any, Recording]:
    model = moved(config)
    return model, record(model, *(IDS if isinstance(config, TransformerConfig) else IDS[:1]))


@pytest.mark.parametrize("kind", SEEN_INSIDE)
@settings(max_examples=20)
@given(data=st.data())
def test_the_terms_of_any_model_add_up(kind: type[ModelConfig], data: st.DataObject) -> None:
    model = moved(any_config(data.draw, kind))
    *inputs, _ = inputs_of(model.config, np.random.default_rng(0))
    recording = record(model, *(inputs[:1] if kind in (BERTConfig, GPTConfig, ViTConfig) else inputs[:2]))
    found = logit_attribution(model, recording, np.arange(recording.logits.shape[-1]))
    np.testing.assert_array_equal(found.logits, recording.logits)
    assert error(found.total(), recording.logits) <= 1e-12
    for name, heads in found.heads.items():
        assert error(heads.sum(1) + found.head_biases[name], found.sublayers[name]) <= 1e-12, name
    own = logit_attribution(model, recording, recording.logits.argmax(-1)[..., None])  # each place its own token
    np.testing.assert_array_equal(own.logits[..., 0], recording.logits.max(-1))
    assert error(own.total(), own.logits) <= 1e-12


class Forward:
    """The way of one term to the logits, step by step, through norms with the scale of the whole run."""

    def __init__(self, model: Any, recording: Recording) -> None:
        *_, (side, self.stream) = recording.streams.items()
        self.model, self.stack = model, getattr(model, side)
        self.hidden = np.zeros(1)

    @staticmethod
    def norm(norm: Any, whole: np.ndarray, term: np.ndarray) -> np.ndarray:
        """The derivative of a norm whose deviation does not change, along a term: both are normalised by hand."""
        centre = (lambda x: x) if norm.rms else (lambda x: x - x.mean(-1, keepdims=True))
        return norm.gain * centre(term) / np.sqrt((centre(whole) ** 2).mean(-1, keepdims=True) + norm.eps)

    def logits(self, start: int, name: str, term: np.ndarray) -> np.ndarray:
        """Return what a term that a sub-layer of layer `start` adds becomes."""
        x, begun = self.stream.states[0], False
        for n, block in enumerate(self.stack.layers):
            for each, added in self.stream.contributions.items():
                norm, begun = getattr(block, f"{each}_norm"), begun or (n == start and each == name)
                if norm.pre_norm:
                    x = x + added[n]
                else:
                    term = self.norm(norm, x + added[n], term) if begun else term
                    x = norm.forward(x + added[n])[0]
        term = self.norm(self.stack.final_norm, x, term) if self.stack.final_norm else term
        return self.model.output.logits(term)[0] - self.model.output.logits(0 * term)[0]


@pytest.mark.parametrize("name", PLAIN)
def test_each_term_is_what_its_part_becomes_on_its_way(name: str) -> None:
    model, recording = run_of(PLAIN[name])
    found, forward = logit_attribution(model, recording, np.arange(V)), Forward(model, recording)
    for part, added in forward.stream.contributions.items():
        for n, block in enumerate(forward.stack.layers):
            assert error(found.sublayers[part][n], forward.logits(n, part, added[n])) <= 1e-12
            if part not in found.heads:
                continue
            output, leaves = getattr(block, part).output, getattr(block, f"{part}_norm")
            heads = forward.stream.heads[part][n]  # (B, T, H, D)
            for h in range(heads.shape[2]):
                one = heads * (np.arange(heads.shape[2]) == h)[:, None]
                term = output.forward(one.reshape(2, T, -1))[0] - output.forward(np.zeros((1, 8)))[0]
                if hasattr(leaves, "of_output"):
                    term = forward.norm(leaves.of_output, output.forward(heads.reshape(2, T, -1))[0], term)
                assert error(found.heads[part][n, h], forward.logits(n, part, term)) <= 1e-12


def test_a_block_in_several_places_adapters_and_few_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    config = GPTConfig(V, **WIDE, dropout=0, attention_dropout=0)
    tuned = build_model(config, dtype="float64").tuned(Tuning(rank=2, targets=("*.output", "*.value")))
    tuned.parameters.data[...] += 0.2 * np.random.default_rng(0).standard_normal(tuned.parameters.data.shape)
    few = moved(config, "float32").quantized(8)
    monkeypatch.setattr(GPTConfig, "model", OneBlock)
    for model, bound in ((moved(GPTConfig(V, **SIZES)), 1e-12), (tuned, 1e-12), (few, 1e-4)):
        recording = record(model, IDS[0])
        found = logit_attribution(model, recording, [1, 2, 3])
        assert error(found.total(), recording.logits[..., 1:4]) <= bound
        heads = found.heads["self_attention"].sum(1) + found.head_biases["self_attention"]
        assert error(heads, found.sublayers["self_attention"]) <= bound


def test_what_has_no_such_logits_says_so() -> None:
    model, recording = run_of(PLAIN["pre-norm"])
    for tokens, says in (
        (3, r"tokens has shape \(\), expected K ids, or \(2, 6, 'K'\)"),
        ([[3]], r"tokens has shape \(1, 1\), expected K ids"),
        ([0.5], "expected K ids"),
        ([0, V], f"tokens has ids from 0 to {V}, expected 0 to {V - 1}"),
    ):
        with pytest.raises(ValueError, match=says):
            logit_attribution(model, recording, tokens)
    hidden = moved(BERTConfig(V, **SIZES, head="hidden"))
    with pytest.raises(ValueError, match="a bert model with the head 'hidden' gives hidden states, and no logits"):
        logit_attribution(hidden, record(hidden, IDS[0]), [0])
