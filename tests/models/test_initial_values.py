"""The first weights of a model."""

import math

import numpy as np
import pytest
from support.model_cases import config

from minitransformer.models import GPTConfig, Transformer, build_model

SIZES = {"vocab_size": 300, "d_model": 64, "num_heads": 2, "d_k": 40, "d_v": 10, "d_ff": 90, "positions": "learned"}
WIDTHS = {  # of the parts that share a matrix: each starts by its own fan
    "query_key_value": [80, 80, 20],
    "query": [80],
    "key_value": [80, 20],
    "output": [64],
    "expand": [90],
    "contract": [64],
}


@pytest.fixture(scope="module")
def model() -> Transformer:
    return Transformer(config(**SIZES), dtype="float64", seed=3)


def test_matrices_start_xavier_uniform_biases_0_and_gammas_1(model):
    for name, parameter in model.parameters.named.items():
        owner, kind = name.split(".")[-2:]
        if kind == "weight":
            fan_in, widths = parameter.shape[0], WIDTHS[owner]
            assert parameter.shape[1] == sum(widths)
            for part, fan_out in zip(np.split(parameter.data, np.cumsum(widths)[:-1], axis=1), widths, strict=True):
                bound = math.sqrt(6 / (fan_in + fan_out))
                assert 0.99 * bound < abs(part).max() <= bound, name
                assert part.std() == pytest.approx(bound / math.sqrt(3), rel=0.03), name
                assert abs(part.mean()) < 0.05 * bound, name
        elif kind in ("bias", "beta"):
            assert not parameter.data.any(), name
        elif kind == "gamma":
            assert (parameter.data == 1).all(), name
    of_one_shape = [
        model.parameters.named[f"{side}.layers.0.feed_forward.expand.weight"] for side in ("encoder", "decoder")
    ]
    assert (of_one_shape[0].data != of_one_shape[1].data).all()


@pytest.mark.parametrize(
    "name", ["tokens.table", "encoder.embedding.positions.table", "decoder.embedding.positions.table"]
)
def test_embeddings_start_normal_with_variance_one_over_d_model(name):
    table = Transformer(config(**SIZES, max_length=400), dtype="float64").parameters.named[name].data
    assert table.std() == pytest.approx(1 / 8, rel=0.02)
    assert abs(table.mean()) < 0.02 / 8
    assert np.mean(abs(table) < table.std()) == pytest.approx(0.6827, abs=0.01)  # normal, not uniform


@pytest.mark.parametrize(("d_ff", "num_layers"), [(128, 8), (0, 16)])
def test_gpts_matrices_start_as_gpt_2s(d_ff: int, num_layers: int):
    """N(0, 0.02²), and those that write into the residual stream of n sub-layers smaller by √n: twice L, or L."""
    config = GPTConfig(300, d_model=64, num_heads=2, d_ff=d_ff, num_layers=num_layers)
    named = build_model(config, seed=3).parameters.named
    for name, parameter in named.items():
        if name.endswith(("weight", "table")):
            into_residual = name.endswith(("output.weight", "contract.weight"))
            assert parameter.data.std() == pytest.approx(0.02 / (4 if into_residual else 1), rel=0.05), name


def test_a_seed_gives_the_same_model_in_every_type(model):
    again, single = (Transformer(config(**SIZES), dtype=dtype, seed=3) for dtype in ("float64", "float32"))
    other = Transformer(config(**SIZES), dtype="float64", seed=4)
    np.testing.assert_array_equal(again.parameters.data, model.parameters.data)
    for name, value in single.parameters.state_dict().items():
        np.testing.assert_array_equal(value, model.parameters.named[name].data.astype(np.float32))
    assert (other.tokens.table.data != model.tokens.table.data).all()


def test_an_option_without_weights_leaves_them_as_they_are(model):
    """Dropout, a window or the norm's place can be compared from the same start."""
    other = Transformer(config(**SIZES, dropout=0.5, window=2, norm_first=True), dtype="float64", seed=3)
    for name, parameter in model.parameters.named.items():
        np.testing.assert_array_equal(other.parameters.named[name].data, parameter.data)
