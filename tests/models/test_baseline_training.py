"""Recurrent and convolutional models with the Transformer's trainer, searches, files and tables."""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.model_cases import BASELINES, every_baseline
from support.toy_training import SETTINGS, TOKENIZER, toy_model, toy_trainer

from minitransformer.data.batching import pad
from minitransformer.decoding import Translator, beam_search, greedy_search
from minitransformer.models import (
    ConvolutionalConfig,
    RecurrentConfig,
    Transformer,
    TransformerConfig,
    build_model,
    config_from_dict,
)
from minitransformer.ops import numpy_ops
from minitransformer.training.checkpoint import CheckpointError, checkpoint_path, load_checkpoint
from minitransformer.training.optimizer import Adam

LEARNERS = {
    "tanh": (RecurrentConfig(12, 32, cell="tanh", attention=False, dropout=0.0, max_length=16), 2, 300),
    "tanh, attention": (RecurrentConfig(12, 32, cell="tanh", dropout=0.0, max_length=16), 4, 250),
    "lstm": (RecurrentConfig(12, 32, attention=False, dropout=0.0, max_length=16), 3, 300),
    "lstm, attention": (RecurrentConfig(12, 32, dropout=0.0, max_length=16), 4, 200),
    "convolutional": (ConvolutionalConfig(12, 32, num_layers=2, dropout=0.0, max_length=16), 4, 200),
}
"""The model, the longest sentence, the optimiser's steps. One vector for a whole sentence holds but a short one."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("tanh, attention", "lstm"))) for name in LEARNERS]
)
def test_learns_to_copy(name):
    """Sentences of 1 to `longest` ids, to be written once more; of 50 drawn anew, at least 45 with each search."""
    config, longest, steps = LEARNERS[name]
    model, rng = build_model(config), np.random.default_rng(0)
    optimizer = Adam(model.parameters, numpy_ops)

    def sentences(count: int) -> list[list[int]]:
        return [rng.integers(3, 12, rng.integers(1, longest + 1)).tolist() for _ in range(count)]

    for step in range(steps):
        words = sentences(64)
        source, target_in = pad([[*ids, 2] for ids in words]), pad([[1, *ids] for ids in words])
        model.parameters.zero_grad()
        _, cache = model.loss(source, target_in, source)
        model.loss_backward(1.0, cache)
        optimizer.step(0.01 * (1 - step / steps))
    unseen = sentences(50)
    source = pad([[*ids, 2] for ids in unseen])
    for found in (greedy_search(model, source), [best for (best,) in beam_search(model, source, 3)]):
        assert sum(h.ids == ids for h, ids in zip(found, unseen, strict=True)) >= 45


@pytest.mark.parametrize("kind", ["tanh, attention", "lstm", "convolutional"])
def test_a_training_resumed_equals_one_that_was_not(tmp_path, kind):
    """To the bit, with two threads, two batches a step, and dropout; and it learns."""

    def model():
        return build_model(replace(BASELINES[kind], vocab_size=12, dropout=0.1), seed=1)

    whole, halves = (replace(SETTINGS, steps=steps, valid_interval=6) for steps in (12, 6))
    uninterrupted = toy_trainer(tmp_path / "whole", whole, model=model())
    uninterrupted.train()
    toy_trainer(tmp_path / "parts", halves, model=model()).train()
    resumed = toy_trainer(tmp_path / "parts", whole, model=model())
    resumed.resume()
    resumed.train()
    np.testing.assert_array_equal(resumed.model.parameters.data, uninterrupted.model.parameters.data)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]


@every_baseline
def test_a_checkpoint_is_of_a_kind(tmp_path, config):
    model = build_model(replace(config, vocab_size=TOKENIZER.vocab_size), seed=4)
    trainer = toy_trainer(tmp_path, replace(SETTINGS, steps=1), model=model, valid=None)
    trainer.train()
    path = checkpoint_path(tmp_path, 1)
    translator = Translator.from_checkpoint(path)
    assert type(translator.model) is type(model)
    assert translator.model.config == model.config
    np.testing.assert_array_equal(translator.model.parameters.data, model.parameters.data)
    assert translator.translate(["a toy", "toy"], beam=2) == Translator(model, TOKENIZER).translate(["a toy", "toy"], 2)
    with pytest.raises(ValueError, match=f"a {config.kind} model has no attention maps: a Transformer has"):
        translator.attention("a toy")
    other = toy_model()
    with pytest.raises(CheckpointError, match=f"the checkpoint is of a {config.kind} model, not of a transformer one"):
        load_checkpoint(path).restore(other)


def test_a_transformer_s_file_says_nothing_of_kinds(tmp_path):
    """A file that was written before there were other kinds loads as it did."""
    trainer = toy_trainer(tmp_path, replace(SETTINGS, steps=1))
    trainer.train()
    checkpoint = load_checkpoint(checkpoint_path(tmp_path, 1))
    assert "kind" not in checkpoint.config
    model = checkpoint.model()
    assert type(model) is Transformer
    np.testing.assert_array_equal(model.parameters.data, trainer.model.parameters.data)


@every_baseline
def test_a_configuration_comes_back(config):
    written = json.loads(json.dumps(config.to_dict()))
    assert config_from_dict(written) == config
    with pytest.raises(ValueError, match=f"is of a model of kind '{config.kind}', not 'transformer'"):
        TransformerConfig.from_dict(written)
    with pytest.raises(ValueError, match="no vocab_size"):
        config_from_dict({"kind": config.kind})
