"""Training each architecture: as `torch.optim.Adam` trains `transformers`' model, on any threads, on tensors too."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pretrained_cases import exact, inputs, random_model, theirs

import kernels
from minitransformer.data.batching import BOS_ID, EOS_ID, Batch
from minitransformer.data.rows import Rows
from minitransformer.models import IGNORED, Model, T5Config, build_model
from minitransformer.ops import Ops, numpy_ops
from minitransformer.pretrained import ARCHITECTURES, load
from minitransformer.training import DataParallel
from minitransformer.training.optimizer import Adam
from minitransformer.training.step import training_step

STEPS, RATE, SMOOTHING = 20, 1e-3, 0.1
# The seed decides the head of a BERT: 0 masked tokens, 1 classes, 3 classes of tokens.
CASES = [("gpt2", 0), ("llama", 1), ("bert", 0), ("bert", 1), ("t5", 0), ("t5", 1), ("vit", 0), ("deit", 1)]
CASES += [("gemma2", 3), ("distilbert", 3)]
each_case = pytest.mark.parametrize(("kind", "seed"), CASES)


def with_dropout(model: Model[Any], rate: float, ops: Ops = numpy_ops, dtype: str = "float64") -> Model[Any]:
    """A copy of a model on NumPy, with these rates of dropout."""
    rates = {each.name: rate for each in fields(model.config) if each.name in ("dropout", "attention_dropout")}
    copy = build_model(replace(model.config, **rates), ops, dtype)
    copy.parameters.load_state_dict({name: each.astype(dtype) for name, each in model.parameters.state_dict().items()})
    return copy


def examples(kind: str, model: Any, seed: int) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Five batches for `transformers`, without padding, and their targets, of which some do not count."""
    found = []
    for number in range(5):
        given = {name: each for name, each in inputs(kind, model, 10 * seed + number).items() if "mask" not in name}
        if kind == "t5":
            given["decoder_input_ids"][:, 0] = BOS_ID  # a T5 trained here begins with a token of its own
        rng = np.random.default_rng([seed, number])
        shape = theirs(model, given).shape
        targets = rng.integers(1, shape[-1], shape[:-1])
        if kind not in ("t5", "vit", "deit") and targets.ndim == 2:
            targets[rng.random(targets.shape) < 0.3] = IGNORED
        found.append((given, targets))
    return found


def batch_of(kind: str, given: dict[str, np.ndarray], targets: np.ndarray) -> Batch | Rows:
    if kind == "t5":
        return Batch(given["input_ids"], given["decoder_input_ids"], targets)
    first = given[next(iter(given))]
    return Rows((first, targets, given["token_type_ids"]) if kind == "bert" else (first, targets))


def trained(model: Model[Any], batches: list[Batch | Rows], threads: int = 1, steps: int = STEPS) -> list[float]:
    """The losses of the steps, which change the model."""
    optimizer = Adam(model.parameters, model.ops, (0.9, 0.98), 1e-9)
    with DataParallel(model, threads) as workers:
        return [
            training_step(
                workers, optimizer, [batches[step % 5]], learning_rate=RATE, label_smoothing=SMOOTHING, seed=3
            )[0]
            for step in range(steps)
        ]


def loaded(kind: str, seed: int, folder: Path) -> tuple[Any, Model[Any], list[Any]]:
    reference = random_model(kind, seed)
    reference.save_pretrained(folder)
    model, _ = load(folder, dtype="float64")
    if isinstance(model.config, T5Config):
        model.config = replace(model.config, bos_id=BOS_ID, eos_id=EOS_ID)
    return reference, model, examples(kind, reference, seed)


@each_case
def test_steps_follow_torch_s_adam(kind: str, seed: int, tmp_path: Path) -> None:
    reference, model, pairs = loaded(kind, seed, tmp_path)
    model = with_dropout(model, 0.0)
    before = model.parameters.data.copy()
    losses = trained(model, [batch_of(kind, *pair) for pair in pairs])
    with exact(reference):
        adam = torch.optim.Adam(reference.parameters(), RATE, (0.9, 0.98), 1e-9)
        for step, loss in enumerate(losses):
            given, targets = pairs[step % 5]
            adam.zero_grad()
            logits = theirs(reference, given)
            wanted = torch.nn.functional.cross_entropy(
                logits.flatten(0, -2), torch.from_numpy(targets).flatten(), label_smoothing=SMOOTHING
            )
            wanted.backward()
            adam.step()
            assert abs(loss - wanted.item()) <= 1e-8, step
    assert np.abs(model.parameters.data - before).max() > RATE  # something was learnt
    architecture = ARCHITECTURES[kind]
    tensors = {architecture.canonical(name): each.detach().numpy() for name, each in reference.named_parameters()}
    for row in architecture.table(model.config):
        for name, array in row.to_theirs(model.parameters.named[row.ours].data).items():
            assert np.abs(array - tensors[name]).max() <= 1e-8, name


@each_case
def test_threads_agree_up_to_rounding_and_repeat_exactly(kind: str, seed: int, tmp_path: Path) -> None:
    _, model, pairs = loaded(kind, seed, tmp_path)
    batches = [batch_of(kind, *pair) for pair in pairs]
    one, two, again = (with_dropout(model, 0.2) for _ in range(3))
    losses = trained(one, batches, steps=5)
    repeated = [trained(each, batches, threads=2, steps=5) for each in (two, again)]
    np.testing.assert_allclose(repeated[0], losses, rtol=1e-9)
    assert repeated[0] == repeated[1]
    np.testing.assert_array_equal(two.parameters.data, again.parameters.data)
    assert losses[0] != trained(with_dropout(model, 0.0), batches, steps=1)[0]  # dropout was on


@each_case
def test_tensors_give_the_same_losses(kind: str, seed: int, tmp_path: Path) -> None:
    """From the weights that a training begins with: after larger ones float32's roundings grow with the steps."""
    _, model, pairs = loaded(kind, seed, tmp_path)
    batches = [batch_of(kind, *pair) for pair in pairs]
    model.parameters.initialize(seed)
    arrays = trained(with_dropout(model, 0.2, dtype="float32"), batches, steps=10)
    tensors = trained(with_dropout(model, 0.2, kernels.torch_ops("cpu"), "float32"), batches, steps=10)
    np.testing.assert_allclose(tensors, arrays, rtol=1e-5)
