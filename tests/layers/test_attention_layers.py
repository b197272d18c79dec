"""Multi-head attention: of a sequence to itself, and to the encoder's output."""

import numpy as np
import pytest
import torch
from support import torch_model
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer
from support.spies import Spies

from minitransformer.gradcheck import error
from minitransformer.layers import Attention, AttentionConfig, Cache, Context, DropoutStream
from minitransformer.ops import numpy_ops
from minitransformer.probe import Call, probe

C = 4
STREAM = DropoutStream(seed=5, step=2, sentence=3)
KEY_MASK = np.array([[True, True, False], [False, False, False]])
WIDTHS = [(2, 2, 2), (1, 4, 4), (2, 3, 1), (4, 1, 2)]


@pytest.mark.parametrize(("heads", "d_k", "d_v"), WIDTHS)
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1])
@pytest.mark.parametrize("key_mask", [None, KEY_MASK], ids=["full", "padded"])
def test_self_attention(proof: Proof, heads, d_k, d_v, rate, causal, window, key_mask):
    def make() -> Attention:
        return Attention(numpy_ops, C, AttentionConfig(heads, d_k, d_v, window, rate), causal=causal)

    prove_layer(
        "Attention",
        make,
        {"x": normal(np.random.default_rng(heads), 2, 3, C)},
        lambda w, x: torch_model.self_attention(
            w, x, num_heads=heads, d_k=d_k, d_v=d_v, causal=causal, window=window, key_mask=key_mask,
            dropout=STREAM.at(make().site, rate),
        ),
        proof,
        call=lambda layer, x: layer.forward(x, Context(key_mask, dropout=STREAM)),
        back=without_memory,
    )  # fmt: skip


def without_memory(layer: Attention, dout: np.ndarray, cache: tuple) -> np.ndarray:
    dx, dmemory = layer.backward(dout, cache)
    assert dmemory is None
    return dx


@pytest.mark.parametrize(("heads", "d_k", "d_v"), WIDTHS)
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("key_mask", [None, KEY_MASK], ids=["full", "padded"])
def test_cross_attention(proof: Proof, heads, d_k, d_v, rate, key_mask):
    """The mask is the memory's; neither the mask of the sequence nor its window has a say here."""
    rng = np.random.default_rng(heads)

    def make() -> Attention:
        return Attention(numpy_ops, C, AttentionConfig(heads, d_k, d_v, window=0, dropout=rate), cross=True)

    own = np.zeros((2, 2), bool)
    prove_layer(
        "Attention, to the memory",
        make,
        {"x": normal(rng, 2, 2, C), "memory": normal(rng, 2, 3, C)},
        lambda w, x, memory: torch_model.cross_attention(
            w, x, memory, num_heads=heads, d_k=d_k, d_v=d_v, key_mask=key_mask, dropout=STREAM.at(make().site, rate)
        ),
        proof,
        call=lambda layer, x, memory: layer.forward(x, Context(own, memory, key_mask, STREAM)),
    )


def test_self_attention_equals_torch_s_own_module():
    calls: list[Call] = []
    layer = Attention(probe(numpy_ops, calls.append), 6, AttentionConfig(num_heads=3, d_k=2, d_v=2))
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
    out, _ = layer.forward(x, Context(real))
    tensor = torch.tensor(x)
    expected, weights = module(tensor, tensor, tensor, key_padding_mask=torch.tensor(~real), average_attn_weights=False)
    assert error(out, expected.detach()) <= 1e-12
    (call,) = (call for call in calls if call.op == "attention")
    options = {name: call.options[name] for name in ("causal", "window", "key_mask")}
    assert error(numpy_ops.attention_weights(*call.arguments[:2], **options), weights.detach()) <= 1e-12


@pytest.mark.parametrize("window", [None, 2])
def test_one_position_at_a_time_equals_all_at_once(window):
    layer = Attention(numpy_ops, C, AttentionConfig(2, 3, 1, window), causal=True)
    placed(layer)
    x, cache = np.random.default_rng(0).standard_normal((2, 5, C)), Cache(numpy_ops, batch=2, num_beams=1)
    steps = []
    for stop in (1, 2, 4, 5):  # two positions at once may come too
        steps.append(layer.forward(x[:, cache.position : stop], Context(cache=cache))[0])
        cache.position = stop
    assert error(np.concatenate(steps, axis=1), layer.forward(x)[0]) <= 1e-12


def test_beams_fold_into_the_queries_of_cross_attention():
    """Each beam gets what it would get alone, and only the first position asks for the memory."""
    spies = Spies()
    layer = Attention(spies.ops, C, AttentionConfig(2, 3, 1), cross=True)
    placed(layer)
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((3, 2, 4, C)), rng.standard_normal((2, 3, C))  # 3 positions of 2 sentences' 4 beams
    alone = [
        layer.forward(x[t, :, [k]].swapaxes(0, 1), Context(None, memory, KEY_MASK))[0] for t, k in np.ndindex(3, 4)
    ]
    cache = Cache(numpy_ops, batch=2, num_beams=4)
    spies.calls.clear()
    for t in range(3):
        context = Context(memory=None if t == 2 else memory, memory_mask=KEY_MASK, cache=cache)
        stepped, _ = layer.forward(x[t].reshape(8, 1, C), context)
        cache.position += 1
        for beam in range(4):
            assert error(stepped.reshape(2, 4, 1, C)[:, beam], alone[4 * t + beam]) <= 1e-12
    assert spies.calls["linear_forward"] == 3 * 2 + 1  # query and output at every position, the memory's keys once


def test_what_a_translation_keeps_is_under_the_layer_s_own_name():
    layers = [Attention(numpy_ops, C, AttentionConfig(2, 2, 2), cross=cross) for cross in (False, True)]
    cache, x = Cache(numpy_ops, batch=2, num_beams=1), np.ones((2, 1, C))
    for name, layer in zip(("decoder.layers.0.self", "decoder.layers.0.cross"), layers, strict=True):
        placed(layer)
        layer.name = name
        layer.forward(x, Context(memory=np.ones((2, 3, C)), cache=cache))
    assert set(cache.grown) == {"decoder.layers.0.self"}
    assert set(cache.shared) == {"decoder.layers.0.cross"}
