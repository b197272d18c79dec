"""A captured step: on a GPU a graph that is replayed, elsewhere the same reads from memory without the capture."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.prove_kernel import DEVICE, few
from support.model_cases import config, ragged

import kernels
from kernels.graph import CapturedStep
from minitransformer.data.batching import Batch
from minitransformer.layers import DropoutStream
from minitransformer.models import Transformer
from minitransformer.optimizer import Adam, clip_scale

SEED = 5


def batches(seed: int) -> list[Batch]:
    """Some of one bucket, one of a bucket of its own."""
    rng = np.random.default_rng(seed)
    sizes = [(2, 4, 3), (3, 7, 9), (9, 5, 16), (2, 4, 3)]
    return [
        Batch(*ragged(list(rng.integers(1, source + 1, n)), list(rng.integers(1, target, n)), seed=seed + i))
        for i, (n, source, target) in enumerate(sizes)
    ]


def plain_steps(model: Transformer, adam: Adam, work: list[Batch], rates: list[float], clip: float | None) -> list:
    """What the trainer does with one batch a step."""
    losses = []
    for batch, rate in zip(work, rates, strict=True):
        model.parameters.zero_grad()
        stream = DropoutStream(SEED, adam.num_steps + 1)
        loss, cache = model.loss(batch.source, batch.target_in, batch.target_out, 0.1, stream)
        model.loss_backward(1.0, cache)
        adam.step(rate, clip_scale(adam.grad_norm(), clip))
        losses.append(float(loss))
    return losses


@few
@given(seed=st.integers(0, 1000), clip=st.sampled_from([None, 0.5]), attention_dropout=st.sampled_from([0.0, 0.2]))
def test_captured_steps_are_steps_of_training(seed, clip, attention_dropout):
    """The step's number, the learning rate, the dropout keys and the batch change from replay to replay."""
    changes = {"dropout": 0.3, "attention_dropout": attention_dropout}
    reference = Transformer(config(**changes), dtype="float64")
    model = Transformer(config(**changes), kernels.torch_ops(DEVICE, "float64"), "float64")
    plain, captured = Adam(reference.parameters, reference.ops), Adam(model.parameters, model.ops)
    step = CapturedStep(model, captured, clip_norm=clip, seed=SEED)
    work, rates = batches(seed), [1e-2, 5e-3, 2e-2, 1e-2]
    expected = plain_steps(reference, plain, work, rates, clip)
    actual = [float(step(batch, rate)) for batch, rate in zip(work, rates, strict=True)]
    np.testing.assert_allclose(actual, expected, rtol=1e-9)
    assert captured.num_steps == len(work)
    assert len(step._replays) == 2
    for name, array in model.parameters.state_dict().items():
        # A key's bias has no gradient but rounding errors (softmax ignores it), and Adam makes steps of them.
        np.testing.assert_allclose(array, reference.parameters.state_dict()[name], atol=1e-7, err_msg=name)


def test_a_replay_is_no_repetition():
    """The same batch twice: other dropout masks, the next bias correction."""
    model = Transformer(config(dropout=0.5), kernels.torch_ops(DEVICE))
    step = CapturedStep(model, Adam(model.parameters, model.ops), seed=SEED)
    batch = batches(0)[0]
    first, second = (float(step(batch, 1e-9)) for _ in range(2))
    assert first != pytest.approx(second, rel=1e-3)


def test_a_bucket_is_never_longer_than_the_model_takes():
    model = Transformer(config(max_length=18), kernels.torch_ops(DEVICE))
    step = CapturedStep(model, Adam(model.parameters, model.ops))
    pairs = ragged([17, 18], [17, 3])
    assert np.isfinite(float(step(Batch(*pairs), 1e-3)))


def test_a_batch_that_is_too_long_is_no_step():
    model = Transformer(config(max_length=18), kernels.torch_ops(DEVICE))
    adam = Adam(model.parameters, model.ops)
    with pytest.raises(ValueError, match="the batch has 19 tokens, more than the model's max_length of 18"):
        CapturedStep(model, adam)(Batch(*ragged([19], [3])), 1e-3)
    assert adam.num_steps == 0
