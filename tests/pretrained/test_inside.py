"""Attention maps, the logit lens and the perplexity of a text against what `transformers` computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pretrained_cases import BERTS, KINDS, TITLES, VITS, exact, inputs, ours, random_model
from torch import Tensor

from minitransformer.evaluation import text_nats
from minitransformer.inside import Recording, attention_maps, logit_lens, record
from minitransformer.models import RecurrentConfig, build_model
from minitransformer.ops import numpy_ops
from minitransformer.pretrained import load
from minitransformer.probe import Call, probe

SEEDS = [0, 1]
PAIR = ("self", "cross")


class Called:
    """A model whose `forward` is another function of the same inputs: `ours` gives each kind its arguments."""

    def __init__(self, function: Any, model: Any) -> None:
        self.function, self.model = function, model

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self.function(self.model, *inputs, **options)


def lens_of_theirs(kind: str, model: Any, hidden: Any) -> list[Tensor]:
    """The output layer on each layer's hidden states, the last of which has been normalised or is left out."""
    if kind == "gpt2":
        return [model.lm_head(model.transformer.ln_f(each)) for each in hidden[:-1]]
    if kind in TITLES:
        logits = [model.lm_head(model.model.norm(each)) for each in hidden[:-1]]
        cap = getattr(model.config, "final_logit_softcapping", None)
        return logits if cap is None else [cap * torch.tanh(each / cap) for each in logits]
    if kind in VITS:
        return [classes_of(model, getattr(model, kind).layernorm(each)) for each in hidden[:-1]]
    if kind in ("t5", "mt5"):
        scale = model.config.d_model**-0.5 if getattr(model.config, "scale_decoder_outputs", False) else 1.0
        return [model.lm_head(model.decoder.final_layer_norm(each) * scale) for each in hidden[:-1]]
    if kind == "marian":
        return [model.lm_head(each) + model.final_logits_bias for each in hidden[:-1]]
    return [head_of(kind, model)(each) for each in hidden[:-1]]


def classes_of(model: Any, hidden: Tensor) -> Tensor:
    """The logits of a picture's classes; those of a DeiT with two classifiers are the mean of both."""
    if hasattr(model, "classifier"):
        return model.classifier(hidden[:, 0])
    return (model.cls_classifier(hidden[:, 0]) + model.distillation_classifier(hidden[:, 1])) / 2


def head_of(kind: str, model: Any) -> Any:
    """The function from hidden states to logits of a BERT or a relative: a masked head, or the classes of a text."""
    if kind == "bert":
        return model.cls if hasattr(model, "cls") else lambda hidden: model.classifier(model.bert.pooler(hidden))
    if kind != "distilbert":
        return model.lm_head if hasattr(model, "lm_head") else model.classifier
    if hasattr(model, "pre_classifier"):
        return lambda hidden: model.classifier(model.pre_classifier(hidden[:, 0]).relu())
    changed = lambda hidden: model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))  # noqa: E731
    return lambda hidden: model.vocab_projector(changed(hidden))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_as_transformers_shows_it(kind: str, seed: int, tmp_path: Path) -> None:
    model = random_model(kind, seed)
    model.save_pretrained(tmp_path)
    given = inputs(kind, model, seed)
    with exact(model) as twin, torch.no_grad():
        twin.set_attn_implementation("eager")  # the only one that shows its weights
        tensors = {name: torch.from_numpy(array) for name, array in given.items()}
        out = twin(**tensors, output_attentions=True, output_hidden_states=True)
        if kind in ("t5", "mt5", "marian"):
            hidden = out.decoder_hidden_states
            states = {"encoder": out.encoder_hidden_states, "decoder": hidden}
            weights = {f"encoder.layers.{i}.self_attention": each for i, each in enumerate(out.encoder_attentions)}
            for i, pair in enumerate(zip(out.decoder_attentions, out.cross_attentions, strict=True)):
                weights |= {f"decoder.layers.{i}.{name}_attention": each for name, each in zip(PAIR, pair, strict=True)}
        else:
            hidden, stack = out.hidden_states, "encoder" if kind in (*BERTS, *VITS) else "decoder"
            weights = {f"{stack}.layers.{i}.self_attention": each for i, each in enumerate(out.attentions)}
            states = {stack: hidden}
        lens = [*lens_of_theirs(kind, twin, hidden), out.logits]
    mine, _ = load(tmp_path, dtype="float64")
    recording: Recording = ours(kind, Called(record, mine), given)  # pyright: ignore[reportAssignmentType]
    assert list(recording.streams) == list(states)
    for side, stream in recording.streams.items():
        final = None if kind in VITS else getattr(mine, side).final_norm  # a ViT shows the last state before it
        states_of = [*stream.states[:-1], final.forward(stream.states[-1])[0] if final else stream.states[-1]]
        for state, expected in zip(states_of, states[side], strict=True):
            np.testing.assert_allclose(state, expected, rtol=1e-9, atol=1e-9, err_msg=side)
    maps: Any = ours(kind, Called(attention_maps, mine), given)
    assert list(maps) == list(weights)
    for name, array in maps.items():
        np.testing.assert_allclose(array, weights[name], rtol=0, atol=1e-9, err_msg=name)
    logits = ours(kind, Called(logit_lens, mine), given)
    np.testing.assert_allclose(logits, torch.stack(lens), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(logits[-1], ours(kind, mine, given)[0])


@pytest.mark.parametrize("kind", ["gpt2", "t5", "bert", "vit"])
def test_a_lens_runs_every_layer_once(kind: str, tmp_path: Path) -> None:
    model, runs = random_model(kind, 0), list[Call]()
    model.save_pretrained(tmp_path)
    mine, _ = load(tmp_path, ops=probe(numpy_ops, lambda call: runs.append(call) if call.op == "attention" else None))
    given = inputs(kind, model, 0)
    ours(kind, mine, given)
    once = len(runs)
    ours(kind, Called(logit_lens, mine), given)
    assert len(runs) == 2 * once > 0


def test_models_without_attention_or_blocks_say_so() -> None:
    model = build_model(RecurrentConfig(vocab_size=9, d_model=8))
    for look in (attention_maps, logit_lens):
        with pytest.raises(ValueError, match=f"a {model.config.kind} model has no"):
            look(model, [[3]], [[1]])


@pytest.mark.parametrize("stride", [1, 4])
def test_a_text_s_perplexity_is_that_of_transformers(stride: int, tmp_path: Path) -> None:
    """Over windows that move along, each token counted once with its window's context."""
    model = random_model("gpt2", 3)
    model.save_pretrained(tmp_path)
    longest = model.config.n_positions
    tokens = np.random.default_rng(0).integers(0, model.config.vocab_size, 2 * longest + 3)
    expected, done = 0.0, 0
    with exact(model) as twin, torch.no_grad():
        while done < len(tokens) - 1:
            stop = min(done + (stride if done else longest), len(tokens) - 1)
            start = max(0, stop - longest)
            logits = twin(input_ids=torch.from_numpy(tokens[None, start:stop])).logits[0, done - start :]
            targets = torch.from_numpy(tokens[done + 1 : stop + 1])
            expected += float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
            done = stop
    mine, _ = load(tmp_path, dtype="float64")
    assert text_nats(mine, tokens[1:].tolist(), int(tokens[0]), stride) == pytest.approx(expected, rel=1e-9)
