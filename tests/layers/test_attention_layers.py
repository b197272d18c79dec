"""Multi-head attention: of a sequence to itself, and to the encoder's output."""

import numpy as np
import pytest
import torch
from support import torch_model
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.gradcheck import error
from minitransformer.layers import CrossAttention, DropoutStream, SelfAttention
from minitransformer.ops import numpy_ops

C = 4
STREAM = DropoutStream(seed=5, step=2, sentence=3)
KEY_MASK = np.array([[True, True, False], [False, False, False]])
WIDTHS = [(2, 2, 2), (1, 4, 4), (2, 3, 1), (4, 1, 2)]


@pytest.mark.parametrize(("heads", "d_k", "d_v"), WIDTHS)
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"window": 1}, {"causal": True, "window": 1}, {"attention_dropout": 0.5}], ids=str
)
@pytest.mark.parametrize("key_mask", [None, KEY_MASK], ids=["full", "padded"])
def test_self_attention(proof: Proof, heads, d_k, d_v, options, key_mask):
    masks = {name: value for name, value in options.items() if name != "attention_dropout"}
    dropout = STREAM.at(7, 0.5) if "attention_dropout" in options else None
    prove_layer(
        "SelfAttention",
        lambda: SelfAttention(numpy_ops, C, heads, d_k, d_v, **options, site=7),
        {"x": normal(np.random.default_rng(heads), 2, 3, C)},
        lambda w, x: torch_model.self_attention(
            w, x, num_heads=heads, d_k=d_k, d_v=d_v, **masks, key_mask=key_mask, dropout=dropout
        ),
        proof,
        call=lambda layer, x: layer.forward(x, key_mask, STREAM),
    )


@pytest.mark.parametrize(("heads", "d_k", "d_v"), WIDTHS)
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("key_mask", [None, KEY_MASK], ids=["full", "padded"])
def test_cross_attention(proof: Proof, heads, d_k, d_v, rate, key_mask):
    rng = np.random.default_rng(heads)
    prove_layer(
        "CrossAttention",
        lambda: CrossAttention(numpy_ops, C, heads, d_k, d_v, attention_dropout=rate, site=7),
        {"x": normal(rng, 2, 2, C), "memory": normal(rng, 2, 3, C)},
        lambda w, x, memory: torch_model.cross_attention(
            w, x, memory, num_heads=heads, d_k=d_k, d_v=d_v, key_mask=key_mask, dropout=STREAM.at(7, rate)
        ),
        proof,
        call=lambda layer, x, memory: layer.forward(x, memory, key_mask, STREAM),
    )


def test_self_attention_equals_torch_s_own_module():
    layer = SelfAttention(numpy_ops, 6, num_heads=3, d_k=2, d_v=2)
    w = {name: torch.tensor(value) for name, value in placed(layer).state_dict().items()}
    module = torch.nn.MultiheadAttention(6, 3, batch_first=True, dtype=torch.float64)
    module.load_state_dict(
        {
            "in_proj_weight": w["query_key_value.weight"].T,
            "in_proj_bias": w["query_key_value.bias"],
            "out_proj.weight": w["output.weight"].T,
            "out_proj.bias": w["output.bias"],
        }
    )
    x = np.random.default_rng(1).standard_normal((2, 5, 6))
    real = np.array([[True] * 5, [True] * 3 + [False] * 2])
    out, cache = layer.forward(x, real)
    tensor = torch.tensor(x)
    expected, weights = module(tensor, tensor, tensor, key_padding_mask=torch.tensor(~real), average_attn_weights=False)
    assert error(out, expected.detach()) <= 1e-12
    assert error(layer.weights(cache), weights.detach()) <= 1e-12


@pytest.mark.parametrize("options", [{}, {"window": 2}], ids=str)
def test_one_position_at_a_time_equals_all_at_once(options):
    layer = SelfAttention(numpy_ops, C, 2, 3, 1, causal=True, **options)
    placed(layer)
    x = np.random.default_rng(0).standard_normal((2, 5, C))
    keys, values = np.full((2, 2, 9, 3), np.nan), np.full((2, 2, 9, 1), np.nan)  # room to spare, never looked at
    steps = [layer.step(x[:, t : t + 1], keys, values, t) for t in range(5)]
    assert error(np.concatenate(steps, axis=1), layer.forward(x)[0]) <= 1e-12


def test_beams_fold_into_the_queries_of_cross_attention():
    layer = CrossAttention(numpy_ops, C, 2, 3, 1)
    placed(layer)
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((2, 4, C)), rng.standard_normal((2, 3, C))
    stepped = layer.step(x, *layer.keys_and_values(memory), KEY_MASK)
    for beam in range(4):
        alone, _ = layer.forward(x[:, beam : beam + 1], memory, KEY_MASK)
        assert error(stepped[:, beam : beam + 1], alone) <= 1e-12


def test_weights_are_those_of_the_forward_without_its_dropout():
    layer = SelfAttention(numpy_ops, C, 2, 2, 2, causal=True, attention_dropout=0.5, site=1)
    placed(layer)
    x = np.random.default_rng(0).standard_normal((2, 3, C))
    dropped, plain = layer.forward(x, None, STREAM)[1], layer.forward(x)[1]
    np.testing.assert_array_equal(layer.weights(dropped), layer.weights(plain))
