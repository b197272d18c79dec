"""Twenty optimiser steps, parts of a batch, and float32."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from support.model_cases import Pairs, config, model_of, ragged
from support.torch_model import TorchTransformer

from minitransformer.gradcheck import error
from minitransformer.layers import DropoutStream
from minitransformer.models import Transformer
from minitransformer.ops import numpy_ops
from minitransformer.optimizer import Adam, noam


@pytest.mark.parametrize("norm_first", [False, True])
def test_twenty_steps_follow_torch_s_adam(norm_first):
    """2+2 layers, tied, ragged batches, dropout everywhere, smoothing, the paper's warm-up: losses and parameters."""
    settings = config(
        num_layers=2, d_model=8, positions="learned", norm_first=norm_first, dropout=0.2, attention_dropout=0.1
    )
    model = Transformer(settings, dtype="float64", seed=1)
    oracle = TorchTransformer(model)
    ours = Adam(model.parameters, numpy_ops)
    theirs = torch.optim.Adam(oracle.weights.values(), betas=(0.9, 0.98), eps=1e-9)
    rng = np.random.default_rng(0)
    losses = []
    for step in range(1, 21):
        batch = ragged(rng.integers(1, 6, 3).tolist(), rng.integers(1, 6, 3).tolist(), seed=step)
        learning_rate, dropout = noam(step, 8, warmup_steps=10), DropoutStream(seed=4, step=step)

        model.parameters.zero_grad()
        loss, cache = model.loss(*batch, 0.1, dropout)
        model.loss_backward(1.0, cache)
        ours.step(learning_rate)

        theirs.zero_grad()
        expected = oracle.loss(*batch, 0.1, dropout)
        expected.backward()
        theirs.param_groups[0]["lr"] = learning_rate
        theirs.step()

        losses.append(loss)
        assert error(loss, expected.item()) <= 1e-8
        for name, value in model.parameters.state_dict().items():
            assert error(value, oracle.weights[name].detach()) <= 1e-8, name
    assert losses[-1] < losses[0] - 0.3  # it did move


# --- Parts of a batch: replicas on threads, and gradient accumulation -------------------------------------------


def part(batch: Pairs, rows: slice) -> Pairs:
    """Some sentences of a batch, without the padding that only the others needed."""
    source, target_in, target_out = (array[rows] for array in batch)
    source_length, target_length = ((array != 0).sum(1).max() for array in (source, target_out))
    return Pairs(source[:, :source_length], target_in[:, :target_length], target_out[:, :target_length])


def tokens(batch: Pairs) -> int:
    return int(np.count_nonzero(batch.target_out))


WHOLE = ragged([2, 5, 3, 6, 1], [4, 1, 6, 2, 5])
PARTS = [slice(0, 2), slice(2, 5)]


@pytest.fixture
def model() -> Transformer:
    return model_of(num_layers=2, positions="learned", dropout=0.3, attention_dropout=0.3)


def whole_gradient(model: Transformer) -> np.ndarray:
    _, cache = model.loss(*WHOLE, 0.1, DropoutStream(seed=2, step=5))
    model.loss_backward(1.0, cache)
    gradient = model.parameters.grad.copy()
    model.parameters.zero_grad()
    return gradient


def add_gradient(model: Transformer, rows: slice) -> None:
    """One part's share: its mean is over its own n_i tokens, so it counts n_i / n_total."""
    batch = part(WHOLE, rows)
    _, cache = model.loss(*batch, 0.1, DropoutStream(seed=2, step=5, sentence=rows.start))
    model.loss_backward(tokens(batch) / tokens(WHOLE), cache)


def test_replicas_on_threads_sum_to_the_whole_batch(model):
    expected = whole_gradient(model)
    replicas = [model.replica() for _ in PARTS]
    with ThreadPoolExecutor(len(PARTS)) as threads:
        list(threads.map(add_gradient, replicas, PARTS))
    assert error(sum(replica.parameters.grad for replica in replicas), expected) <= 1e-12
    np.testing.assert_array_equal(model.parameters.grad, 0)


def test_gradients_accumulate_to_the_whole_batch(model):
    expected = whole_gradient(model)
    for rows in PARTS:
        add_gradient(model, rows)
    assert error(model.parameters.grad, expected) <= 1e-12


def test_a_replica_follows_its_model(model):
    replica = model.replica()
    assert replica.parameters.data is model.parameters.data
    model.parameters.data *= 0.5
    assert replica.loss(*WHOLE)[0] == model.loss(*WHOLE)[0]
    assert replica.parameters.named.keys() == model.parameters.named.keys()


# --- float32 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [False, True])
def test_float32_is_as_accurate_as_torch_s(norm_first):
    """Error against float64 at most twice that of PyTorch's float32, each the median over eight models and batches.

    Logits, and the gradients of at least 1,000 elements. The loss is one number, whose rounding is luck. So is a ReLU's
    gate: where its input is 1e-6, either float32 may open what float64 shuts, and gradients move by 1e-3; hence the
    median.
    """
    ours, theirs = [], []
    for seed in range(8):
        sizes = {"vocab_size": 200, "d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2}
        model = model_of("float32", seed, norm_first=norm_first, dropout=0.1, **sizes)
        batch = ragged([12, 9, 14, 7], [10, 14, 8, 12], vocab_size=200, seed=seed)
        stream = DropoutStream(seed, step=1)
        loss, cache = model.loss(*batch, 0.1, stream)
        model.loss_backward(1.0, cache)
        logits, _ = model.forward(batch.source, batch.target_in, stream)
        gradients = {name: p.grad for name, p in model.parameters.named.items() if p.grad.size >= 1000}

        results = []
        for dtype in (torch.float32, torch.float64):
            oracle = TorchTransformer(model, dtype)
            value = oracle.loss(*batch, 0.1, stream)
            value.backward()
            their_logits = oracle.forward(batch.source, batch.target_in, stream).detach().numpy()
            results.append([their_logits, *(oracle.gradients()[name] for name in gradients)])
        single, truth = results
        assert error(loss, value.item()) <= 1e-6
        ours.append([error(a, b) for a, b in zip([logits, *gradients.values()], truth, strict=True)])
        theirs.append([error(a, b) for a, b in zip(single, truth, strict=True)])
    assert (np.median(ours, axis=0) <= 2 * np.median(theirs, axis=0)).all()
