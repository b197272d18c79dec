"""One run of any model, recorded: what each part adds to the stream, on NumPy and PyTorch, and what it costs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model_cases import moved
from test_long_texts import KINDS, built, peak
from test_tree import SEEN_INSIDE, OneBlock, T, V, any_config, inputs_of

import kernels
from minitransformer.gradcheck import error
from minitransformer.inside import Recording, attention_maps, record
from minitransformer.layers import Block, attention
from minitransformer.models import (
    BERTConfig,
    CLIPConfig,
    GPTConfig,
    ModelConfig,
    RecurrentConfig,
    ViTConfig,
    build_model,
)
from minitransformer.probe import Call, probe

LENGTH = 2 * attention.BLOCK + 9


def played(model: Any, recording: Recording) -> int:
    """Assert that each state follows from the one before it and what was added; return the number of blocks."""
    blocks = 0
    for side, stream in recording.streams.items():
        total, stack = stream.states[0].copy(), getattr(model, side)
        for n, block in enumerate(stack.layers):
            x = stream.states[n]
            for name, added in stream.contributions.items():
                norm = getattr(block, f"{name}_norm")
                x = x + added[n] if norm.pre_norm else norm.forward(x + added[n])[0]
                total += added[n]
            assert error(x, stream.states[n + 1]) <= 1e-12
            reads = {f"{name}.output": of[n].reshape(*of.shape[1:3], -1) for name, of in stream.heads.items()}
            reads |= {"feed_forward.contract": stream.neurons[n]} if block.has_network else {}
            for name, read in reads.items():
                part, _, last = name.partition(".")
                leaves = getattr(block, f"{part}_norm")
                out = getattr(getattr(block, part), last).forward(read)[0]
                out = leaves.of_output.forward(out)[0] if hasattr(leaves, "of_output") else out
                np.testing.assert_array_equal(out, stream.contributions[part][n])
            assert len(reads) == len(stream.contributions)
            blocks += 1
        assert stack.final_norm is None or error(total, stream.states[-1]) <= 1e-12
    return blocks


def arrays(recording: Recording) -> dict[str, np.ndarray]:
    """All that is in a recording, by name."""
    found = {f"map of {name}": weights for name, weights in recording.maps()}
    found |= {f"lens {n}": logits for n, logits in enumerate(recording.lens())}
    for side, stream in recording.streams.items():
        parts = {"states": stream.states, "neurons": stream.neurons, **stream.contributions}
        parts |= {f"heads of {name}": heads for name, heads in stream.heads.items()}
        found |= {f"{side} {name}": array for name, array in parts.items()}
    return found


@pytest.mark.parametrize("kind", SEEN_INSIDE)
@settings(max_examples=20)
@given(data=st.data())
def test_any_model_is_recorded_in_one_run(kind: type[ModelConfig], data: st.DataObject) -> None:
    model = moved(any_config(data.draw, kind))
    *inputs, _ = inputs_of(model.config, np.random.default_rng(0))
    inputs = inputs[:1] if kind in (BERTConfig, GPTConfig, ViTConfig) else inputs[:2]
    run, runs = Block.forward, list[Block]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Block, "forward", lambda block, *given: runs.append(block) or run(block, *given))
        recording = record(model, *inputs)
        seen = arrays(recording)
    assert len(runs) == len(set(runs)) == played(model, recording) == model.config.num_layers_in_all
    depth = len(model.decoder.layers if hasattr(model, "decoder") else model.encoder.layers)
    assert sum(name.startswith("lens") for name in seen) == depth + 1
    np.testing.assert_array_equal(seen[f"lens {depth}"], model.forward(*inputs)[0])

    twin = build_model(model.config, kernels.torch_ops("cpu", "float64"), "float64")
    twin.parameters.load_state_dict(model.parameters.state_dict())
    other = arrays(record(twin, *inputs))
    assert list(other) == list(seen)
    for name, array in other.items():
        assert error(array, seen[name]) <= 1e-10, name


def test_a_block_that_stands_in_several_places_is_recorded_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPTConfig, "model", OneBlock)
    model = moved(GPTConfig(V, d_model=8, num_heads=2, d_ff=5, num_layers=3, max_length=T))
    recording = record(model, [[3, 1, 4]])
    assert played(model, recording) == 3
    assert [name for name, _ in recording.maps()] == [f"decoder.layers.{n}.self_attention" for n in range(3)]


@pytest.mark.parametrize("config", KINDS.values(), ids=list(KINDS))
def test_the_maps_of_a_long_text_are_whole(config: GPTConfig) -> None:
    """They are what each layer attends with, also where attention would take its queries in blocks."""
    model, ids = built(config), np.random.default_rng(0).integers(40, size=(1, LENGTH))
    calls = list[Call]()
    watched = model.replica(probe(model.ops, lambda call: call.op == "attention" and calls.append(call)))
    watched.forward(ids)
    for (name, weights), call in zip(record(model, ids).maps(), calls, strict=True):
        assert weights.shape == (1, 4, LENGTH, LENGTH), name
        value = np.repeat(call.arguments[2], 4 // call.arguments[2].shape[1], axis=1)  # each head's own
        np.testing.assert_allclose(weights @ value, call.result[0], rtol=0, atol=1e-12)


def test_a_lens_holds_the_logits_of_one_layer_at_a_time() -> None:
    """And the run keeps no cache: without a lens it costs less than the forward that a backward may follow."""
    model = build_model(GPTConfig(20_000, d_model=16, num_heads=1, d_ff=16, num_layers=8, max_length=64))
    ids = np.zeros((1, 64), np.int64)
    whole = 8 * model.forward(ids)[0].nbytes
    assert peak(lambda: [logits.argmax() for logits in record(model, ids).lens()]) < whole / 2
    model = build_model(GPTConfig(20, d_model=16, num_heads=4, d_ff=64, num_layers=8, max_length=512))
    ids = np.zeros((1, 512), np.int64)
    assert peak(lambda: record(model, ids)) < peak(lambda: model.forward(ids)) / 2


def test_what_has_no_layers_or_no_softmax_says_so() -> None:
    with pytest.raises(ValueError, match="a recurrent model has no layers to look into: it has no stack of blocks"):
        record(build_model(RecurrentConfig(vocab_size=9, d_model=8)), [[3]], [[1]])
    with pytest.raises(ValueError, match=r"a clip model .*: it has no stack of blocks that gives logits"):
        record(build_model(CLIPConfig(9, d_model=8)))
    linear = build_model(
        GPTConfig(9, d_model=8, num_heads=2, d_ff=8, num_layers=1, attention="linear", attention_dropout=0)
    )
    assert not dict(record(linear, [[3]]).maps())
    with pytest.raises(ValueError, match="a gpt model has no attention maps: it has no softmax attention"):
        attention_maps(linear, [[3]])
