"""A captured step: on a GPU a graph that is replayed, elsewhere the same reads from memory without the capture."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, few
from support.model_cases import BASELINES, config, ragged

import kernels
from kernels.graph import Captured
from minitransformer.data.batching import Batch
from minitransformer.layers import DropoutStream
from minitransformer.models import Transformer, build_model
from minitransformer.ops import as_it_is, numpy_ops
from minitransformer.training import DataParallel, training_step
from minitransformer.training.optimizer import Adam
from minitransformer.training.step import loss_and_gradient

SEED = 5


def batches(seed: int) -> list[Batch]:
    """Some of one bucket, one of a bucket of its own."""
    rng = np.random.default_rng(seed)
    sizes = [(2, 4, 3), (3, 7, 9), (9, 5, 16), (2, 4, 3)]
    return [
        Batch(*ragged(list(rng.integers(1, source + 1, n)), list(rng.integers(1, target, n)), seed=seed + i))
        for i, (n, source, target) in enumerate(sizes)
    ]


@few
@given(seed=st.integers(0, 1000), clip=st.sampled_from([None, 0.5]), attention_dropout=st.sampled_from([0.0, 0.2]))
def test_captured_steps_are_steps_of_training(seed, clip, attention_dropout):
    """The dropout keys and the batch change from replay to replay; the rest of the step is that of every backend."""
    changes = {"dropout": 0.3, "attention_dropout": attention_dropout}
    ops = dataclasses.replace(kernels.torch_ops(DEVICE, "float64"), repeated=Captured)
    work, rates, found = batches(seed), [1e-2, 5e-3, 2e-2, 1e-2], []
    for table in (numpy_ops, ops):
        model = Transformer(config(**changes), table, "float64")
        adam, options = Adam(model.parameters, table), {"clip_norm": clip, "seed": SEED}
        with DataParallel(model, 1) as workers:
            steps = [
                training_step(workers, adam, [batch], learning_rate=rate, **options)
                for batch, rate in zip(work, rates, strict=True)
            ]
        found.append((steps, model.parameters.state_dict()))
    (expected, truth), (actual, parameters) = found
    np.testing.assert_allclose(actual, expected, rtol=1e-9)
    assert isinstance(workers._run, Captured)
    assert len(workers._run._graphs) == 2
    for name, array in parameters.items():
        # A key's bias has no gradient but rounding errors (softmax ignores it), and Adam makes steps of them.
        np.testing.assert_allclose(array, truth[name], atol=1e-7, err_msg=name)


@pytest.mark.parametrize("kind", ["tanh, attention", "lstm", "convolutional"])
def test_a_step_of_another_model_could_be_captured(kind):
    """Its loss is that of the step itself, padding to a bucket's shape and the keys of dropout from memory included."""
    batch = Batch(*ragged([4, 2, 5], [3, 4, 1]), first=0)
    losses, runs = [], (loss_and_gradient, Captured(loss_and_gradient))
    for run in runs:
        model = build_model(BASELINES[kind], kernels.torch_ops("cpu"))
        adam, found = Adam(model.parameters, model.ops), []
        for number in (1, 2):
            model.parameters.zero_grad()
            found.append(float(run(model, batch, 1.0, 0.1, DropoutStream(3, number))))
            adam.step(0.01)
        losses.append(found)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def gradient_of(model: Transformer, run: Captured, batch: Batch, share: float, stream: DropoutStream) -> tuple:
    """The loss and a copy of the gradient."""
    model.parameters.zero_grad()
    loss = float(run(model, batch, share, 0.1, stream))
    return loss, model.parameters.grad.clone()


def test_a_replay_is_no_repetition():
    """A batch twice: other dropout masks in another step, and another share of the step's gradient."""
    model = Transformer(config(dropout=0.5), kernels.torch_ops(DEVICE))
    run, batch = Captured(loss_and_gradient), batches(0)[0]
    first, gradient = gradient_of(model, run, batch, 1.0, DropoutStream(SEED, 1))
    second, _ = gradient_of(model, run, batch, 1.0, DropoutStream(SEED, 2))
    again, half = gradient_of(model, run, batch, 0.5, DropoutStream(SEED, 1))
    assert first != pytest.approx(second, rel=1e-3)
    assert first == again
    assert len(run._graphs) == 1
    np.testing.assert_allclose(half.cpu(), 0.5 * gradient.cpu(), rtol=1e-5, atol=1e-7)


def test_sentences_further_on_in_a_step_have_masks_of_their_own():
    model = Transformer(config(dropout=0.5), kernels.torch_ops(DEVICE))
    run, batch, stream = Captured(loss_and_gradient), batches(0)[0], DropoutStream(SEED, 1, sentence=4)
    expected = float(loss_and_gradient(model, batch, 1.0, 0.1, stream))
    assert gradient_of(model, run, batch, 1.0, stream)[0] == pytest.approx(expected)
    assert gradient_of(model, run, batch, 1.0, DropoutStream(SEED, 1))[0] != pytest.approx(expected, rel=1e-3)


def test_a_bucket_is_never_longer_than_the_model_takes():
    model, run = Transformer(config(max_length=18), kernels.torch_ops(DEVICE)), Captured(loss_and_gradient)
    stream = DropoutStream(SEED, 1)
    assert np.isfinite(float(run(model, Batch(*ragged([17, 18], [17, 3])), 1.0, 0.1, stream)))
    with pytest.raises(ValueError, match="the batch has 19 tokens, more than the model's max_length of 18"):
        run(model, Batch(*ragged([19], [3])), 1.0, 0.1, stream)


def test_a_training_on_a_cpu_runs_no_graph():
    assert kernels.torch_ops("cpu").repeated is as_it_is


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, and a PyTorch that was built for it")
def test_a_training_on_a_gpu_runs_the_graph():
    for device in ("cuda", "cuda:0"):
        assert kernels.torch_ops(device).repeated is Captured
        assert kernels.triton_ops(device).repeated is Captured
