"""Recurrent and convolutional models: losses, gradients and translations do not depend on what computes them."""

import numpy as np
import pytest
from baseline_cases import CONFIGS, baseline
from model_cases import STREAM, ragged
from tables import TOLERANCES, every_table, table

from minitransformer.decoding import beam_search
from minitransformer.gradcheck import error
from minitransformer.models import build_model

KINDS = ["tanh, attention", "lstm", "convolutional"]


@every_table
@pytest.mark.parametrize("config", [CONFIGS[kind] for kind in KINDS], ids=KINDS)
def test_every_table_gives_the_same(config, backend, dtype):
    reference = baseline(config)
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
