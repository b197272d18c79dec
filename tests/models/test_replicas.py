"""Parts of a batch: replicas on threads, and gradient accumulation."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.model_cases import TRANSFORMERS, Pairs, every_model, moved, ragged

from kernels import torch_ops
from minitransformer.gradcheck import error
from minitransformer.layers import DropoutStream
from minitransformer.models import EncoderDecoder, build_model
from minitransformer.ops import numpy_ops
from minitransformer.probe import Call, probe


def part(batch: Pairs, rows: slice) -> Pairs:
    """Some sentences of a batch, without the padding that only the others needed."""
    source, target_in, target_out = (array[rows] for array in batch)
    source_length, target_length = ((array != 0).sum(1).max() for array in (source, target_out))
    return Pairs(source[:, :source_length], target_in[:, :target_length], target_out[:, :target_length])


def tokens(batch: Pairs) -> int:
    return int(np.count_nonzero(batch.target_out))


WHOLE = ragged([2, 5, 3, 6, 1], [4, 1, 6, 2, 5])
PARTS = [slice(0, 1), slice(1, 3), slice(3, 5)]  # the first sentence alone


def whole_gradient(model: EncoderDecoder) -> np.ndarray:
    _, cache = model.loss(*WHOLE, 0.1, DropoutStream(seed=2, step=5))
    model.loss_backward(1.0, cache)
    gradient = model.parameters.grad.copy()
    model.parameters.zero_grad()
    return gradient


def add_gradient(model: EncoderDecoder, rows: slice) -> None:
    """One part's share: its mean is over its own n_i tokens, so it counts n_i / n_total."""
    batch = part(WHOLE, rows)
    _, cache = model.loss(*batch, 0.1, DropoutStream(seed=2, step=5, sentence=rows.start))
    model.loss_backward(tokens(batch) / tokens(WHOLE), cache)


@every_model
def test_parts_sum_to_the_whole_batch_on_threads_and_one_after_the_other(config):
    model = moved(config)
    expected = whole_gradient(model)
    replicas = [model.replica() for _ in PARTS]
    with ThreadPoolExecutor(len(PARTS)) as threads:
        list(threads.map(add_gradient, replicas, PARTS))
    assert error(sum(replica.parameters.grad for replica in replicas), expected) <= 1e-12
    np.testing.assert_array_equal(model.parameters.grad, 0)
    for rows in PARTS:
        add_gradient(model, rows)
    assert error(model.parameters.grad, expected) <= 1e-12


@every_model
def test_a_copy_can_be_trained_for_itself(config):
    """Copied array by array, a layer's weights would no longer be those that the optimiser moves."""
    model = moved(config)
    expected = whole_gradient(model)
    model.parameters.grad[...] = 7.0
    twin = copy.deepcopy(model)
    np.testing.assert_array_equal(twin.parameters.data, model.parameters.data)
    np.testing.assert_array_equal(twin.parameters.grad, model.parameters.grad)
    model.parameters.zero_grad()
    twin.parameters.zero_grad()
    assert not np.shares_memory(twin.parameters.data, model.parameters.data)
    np.testing.assert_array_equal(whole_gradient(twin), expected)
    twin.parameters.data += 0.1
    np.testing.assert_array_equal(whole_gradient(model), expected)
    assert error(whole_gradient(twin), expected) > 1e-3


@every_model
def test_a_model_can_be_pickled(config):
    model = moved(config)
    expected = whole_gradient(model)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(whole_gradient(again), expected)
    again.parameters.data *= 0.5  # its layers' weights are those of its flat array
    assert error(whole_gradient(again), expected) > 1e-3


def test_a_model_on_pytorchs_ops_says_why_it_cannot_be_pickled():
    model = build_model(TRANSFORMERS["one head"], torch_ops("cpu"))
    with pytest.raises(TypeError, match="save a checkpoint"):
        pickle.dumps(model)


@every_model
def test_a_replica_follows_its_model(config):
    model = moved(config)
    replica = model.replica()
    assert replica.parameters.data is model.parameters.data
    model.parameters.data *= 0.5
    assert replica.loss(*WHOLE)[0] == model.loss(*WHOLE)[0]
    assert replica.parameters.named.keys() == model.parameters.named.keys()
    for name, parameter in replica.parameters.named.items():
        assert np.shares_memory(parameter.data, model.parameters.named[name].data)
    assert not np.shares_memory(replica.parameters.grad, model.parameters.grad)
    assert replica.dropout_sites == model.dropout_sites


@every_model
def test_a_replica_may_have_a_table_of_its_own(config):
    calls: list[Call] = []
    model = moved(config)
    watched = model.replica(probe(numpy_ops, calls.append))
    assert not calls or {call.way for call in calls} == {""}  # making it computes nothing
    assert watched.loss(*WHOLE)[0] == model.loss(*WHOLE)[0]
    assert any(call.op == "linear" for call in calls)
