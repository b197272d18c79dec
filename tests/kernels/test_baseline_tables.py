"""Recurrent and convolutional models: losses, gradients and translations do not depend on what computes them."""

import numpy as np
import pytest
import torch
from support.kernels.tables import TOLERANCES, every_table, table
from support.model_cases import BASELINES, STREAM, moved, ragged

import kernels
from kernels.graph import Captured
from minitransformer.data.batching import Batch
from minitransformer.decoding import beam_search
from minitransformer.gradcheck import error
from minitransformer.layers import DropoutStream
from minitransformer.models import build_model
from minitransformer.training.optimizer import Adam
from minitransformer.training.step import loss_and_gradient

KINDS = ["tanh, attention", "lstm", "convolutional"]

every_kind = pytest.mark.parametrize("config", [BASELINES[kind] for kind in KINDS], ids=KINDS)


@every_table
@every_kind
def test_every_table_gives_the_same(config, backend, dtype):
    reference = moved(config)
    model = build_model(config, table(backend, dtype), dtype)
    model.parameters.load_state_dict(reference.parameters.state_dict())
    found, batch = [], ragged([4, 2, 5], [3, 4, 1])
    for each in (reference, model):
        loss, cache = each.loss(*batch, 0.1, STREAM)
        each.loss_backward(1.0, cache)
        gradients = {name: each.ops.to_numpy(p.grad) for name, p in each.parameters.named.items()}
        found.append(gradients | {"loss": np.array(float(loss))})
    for name, expected in found[0].items():
        assert error(found[1][name].astype(np.float64), expected) <= TOLERANCES[dtype], name
    ids = [
        [[h.ids for h in best] for best in beam_search(each, batch.source, 3, max_extra=3)]
        for each in (reference, model)
    ]
    assert ids[0] == ids[1]


@every_kind
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_activations(config, dtype):
    """Parameters and gradients stay float32; every value is narrow, and the loss what it is in float32."""
    reference, model = build_model(config), build_model(config, kernels.torch_ops("cpu", dtype))
    batch = ragged([4, 2, 5], [3, 4, 1])
    loss, cache = model.loss(*batch, 0.1, STREAM)
    model.loss_backward(1.0, cache)
    expected, cache = reference.loss(*batch, 0.1, STREAM)
    reference.loss_backward(1.0, cache)
    assert float(loss) == pytest.approx(float(expected), rel=1e-2)
    for name, parameter in model.parameters.named.items():
        assert parameter.value.dtype == getattr(torch, dtype)
        assert parameter.data.dtype == parameter.grad.dtype == torch.float32
        assert error(parameter.grad, reference.parameters.named[name].grad) <= 2e-2, name
    assert beam_search(model, batch.source, 2, max_extra=3)


@every_kind
def test_a_step_that_could_be_captured(config):
    """The same loss as the step itself, padding to a bucket's shape and the keys of dropout from memory included."""
    batch = Batch(*ragged([4, 2, 5], [3, 4, 1]), first=0)
    reference, model = (build_model(config, kernels.torch_ops("cpu")) for _ in range(2))
    run, steps = Captured(loss_and_gradient), Adam(model.parameters, model.ops)
    optimizer = Adam(reference.parameters, reference.ops)
    for number in (1, 2):
        reference.parameters.zero_grad()
        loss, cache = reference.loss(batch.source, batch.target_in, batch.target_out, 0.1, DropoutStream(3, number))
        reference.loss_backward(1.0, cache)
        optimizer.step(0.01)
        model.parameters.zero_grad()
        assert float(run(model, batch, 1.0, 0.1, DropoutStream(3, number))) == pytest.approx(float(loss), rel=1e-5)
        steps.step(0.01)
