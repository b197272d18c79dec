"""Circuits of heads: QK gives the scores of the layer, OV what it adds, and what two heads do together."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.model_cases import moved

from minitransformer.gradcheck import error
from minitransformer.inside import (
    composition_scores,
    induction_scores,
    ov_circuit,
    previous_token_scores,
    qk_circuit,
    record,
    repeated_tokens,
)
from minitransformer.layers import RotaryConfig
from minitransformer.models import BERTConfig, GPTConfig, T5Config
from minitransformer.probe import Call, probe

V, T = 11, 5
SIZES: dict[str, Any] = {"d_model": 8, "num_heads": 4, "d_ff": 5, "num_layers": 2, "max_length": 2 * T}
ALONE: dict[str, Any] = SIZES | {"d_ff": 0, "d_k": 4}
ROTARY: dict[str, Any] = {"positions": "rotary", "norm": "rmsnorm"}
CONFIGS: dict[str, Any] = {
    "pre-norm": GPTConfig(V, **SIZES),
    "attention alone": GPTConfig(V, **ALONE),
    "post-norm": GPTConfig(V, **SIZES, norm_first=False),
    "rotary, groups": GPTConfig(V, **SIZES, **ROTARY, num_kv_heads=2),
    "rotary, a part of a head": GPTConfig(V, **SIZES, **ROTARY, d_k=4, rotary=RotaryConfig(2, interleaved=True)),
    "norms of heads": GPTConfig(V, **SIZES, **ROTARY, d_k=4, num_kv_heads=1, extra_norms="heads"),
    "sandwich, scale": GPTConfig(V, **SIZES, extra_norms="outputs", scale=0.7),
    "bert": BERTConfig(V, **SIZES),
}


def unbiased(config: Any) -> Any:
    """A model without biases and betas, which are no part of a circuit."""
    model = moved(config)
    for name, each in model.parameters.named.items():
        if name.endswith((".bias", ".beta")):
            each.data[...] = 0
    return model


def divided(norm: Any, x: np.ndarray) -> np.ndarray:
    """x by the deviation that a norm divides it by."""
    centred = x if norm.rms else x - x.mean(-1, keepdims=True)
    return x / np.sqrt((centred**2).mean(-1, keepdims=True) + norm.eps)


@pytest.mark.parametrize("name", CONFIGS)
def test_circuits_are_what_the_layer_computes(name: str) -> None:
    model, calls = unbiased(CONFIGS[name]), list[Call]()
    ids = np.random.default_rng(0).integers(0, V, (1, T))
    recording = record(model, ids)
    seen = model.replica(probe(model.ops, lambda call: call.op == "attention" and calls.append(call)))
    seen.forward(ids)
    *_, (side, stream) = recording.streams.items()
    for n, (block, call) in enumerate(zip(getattr(model, side).layers, calls, strict=True)):
        norm, attention, x = block.self_attention_norm, block.self_attention, stream.states[n][0]
        read = divided(norm, x) if norm.pre_norm else x
        query, key = call.arguments[0][0], call.arguments[1][0]  # (H, T, D), (Hk, T, D)
        keys = np.repeat(key, 4 // len(key), axis=0)
        scale = attention.scale or query.shape[-1] ** -0.5
        plain = attention.query_key_value.forward(norm.enter(x[None])[0])[0][0].reshape(T, -1, query.shape[-1])
        for h in range(4):
            for t, s in ((4, 4), (4, 3), (3, 0)):
                score = read[t] @ qk_circuit(model, n, h, distance=t - s) @ read[s]
                for each, of in zip(
                    attention.head_norms, (plain[t, h], plain[s, 4 + h // (4 // len(key))]), strict=False
                ):
                    score *= np.linalg.norm(divided(each, of)) / np.linalg.norm(of)
                assert error(score, scale * query[h, t] @ keys[h, s]) <= 1e-12
    alone = record(model, ids[:, :1])  # a token that can only look at itself
    *_, stream = alone.streams.values()
    for n, block in enumerate(getattr(model, side).layers):
        norm, x = block.self_attention_norm, stream.states[n][0]
        read = divided(norm, x) if norm.pre_norm else x
        added = sum(read @ ov_circuit(model, n, h) for h in range(4))
        if hasattr(norm, "of_output"):
            out = block.self_attention.output.forward(stream.heads["self_attention"][n].reshape(1, 1, -1))[0][0]
            added = added * (divided(norm.of_output, out) / out)
        assert error(added, stream.contributions["self_attention"][n][0]) <= 1e-12


def test_compositions_are_norms_of_products_and_tell_query_key_and_value_apart() -> None:
    """A head is made to look for what another one wrote: then it stands out in this way alone."""
    model = unbiased(replace(CONFIGS["attention alone"], d_model=64))
    rng, (first, second) = np.random.default_rng(1), model.decoder.layers
    second.self_attention_norm.gamma.data[...] = 1
    written = first.self_attention.output.weight.value[4:8]  # (D, C): what head 1 writes
    for part, way in enumerate(("query", "key", "value")):
        weight = second.self_attention.query_key_value.weight
        weight.data[...] = rng.standard_normal(weight.shape)
        weight.data[:, 16 * part + 8 : 16 * part + 12] = written.T  # head 2 reads it
        found = {each: composition_scores(model, each, later=1, earlier=0) for each in ("query", "key", "value")}
        for h in range(4):
            for e in range(4):
                ov, qk, later = ov_circuit(model, 0, e), qk_circuit(model, 1, h), ov_circuit(model, 1, h)
                products = {"query": (ov @ qk, qk), "key": (ov @ qk.T, qk), "value": (ov @ later, later)}
                for each, (product, reads) in products.items():
                    size = np.sqrt((product**2).sum() / (ov**2).sum() / (reads**2).sum())
                    assert error(found[each][h, e], size) <= 1e-12
        best = {each: scores.argmax() for each, scores in found.items()}
        assert best[way] == 2 * 4 + 1
        assert found[way].max() > 1.5 * np.delete(found[way].ravel(), 9).max()
        assert all(scores[2, 1] < found[way].max() / 1.5 for each, scores in found.items() if each != way)


@pytest.mark.parametrize("config", [GPTConfig(V, **SIZES), BERTConfig(V, **SIZES)], ids=["gpt", "bert"])
def test_scores_are_the_mean_weights_of_the_places(config: Any) -> None:
    model = moved(config)
    ids = np.random.default_rng(3).integers(0, 5, (3, 2 * T))
    maps = [weights for _, weights in record(model, ids).maps()]
    for n, weights in enumerate(maps):
        for h in range(4):
            after, before = [], []
            for row, of_row in zip(ids.tolist(), weights[:, h], strict=True):
                before += [of_row[t, t - 1] for t in range(1, len(row))]
                for t, id in enumerate(row):
                    earlier = [s for s in range(t) if row[s] == id]
                    after += [of_row[t, earlier[-1] + 1]] if earlier else []
            assert induction_scores(model, ids)[n, h] == pytest.approx(np.mean(after), rel=1e-12)
            assert previous_token_scores(model, ids)[n, h] == pytest.approx(np.mean(before), rel=1e-12)


def test_repeated_tokens_come_twice_and_no_more() -> None:
    ids = repeated_tokens(9, 5, rows=4, seed=2, first=8)
    assert ids.shape == (4, 11)
    assert (ids[:, 0] == 8).all()
    np.testing.assert_array_equal(ids[:, 1:6], ids[:, 6:])
    assert all(len(set(row[1:6])) == 5 for row in ids.tolist())
    np.testing.assert_array_equal(ids, repeated_tokens(9, 5, 4, 2, 8))
    assert (ids != repeated_tokens(9, 5, 4, 3, 8)).any()


def test_what_has_no_circuit_says_so() -> None:
    model = moved(GPTConfig(V, **SIZES))
    linear = moved(GPTConfig(V, **SIZES, attention="linear", attention_dropout=0))
    for act, says in (
        (lambda: qk_circuit(model, 2, 0), "layer is 2, expected 0 to 1"),
        (lambda: ov_circuit(model, 0, 4), "head is 4, expected 0 to 3"),
        (lambda: qk_circuit(moved(CONFIGS["rotary, groups"]), 0, 0, distance=-1), "distance is -1, expected 0 or more"),
        (
            lambda: ov_circuit(model, 0, 0, stack="encoder"),
            "a gpt model has no layers to look into: it has no encoder of blocks",
        ),
        (lambda: composition_scores(model, "key", 0, 0), "earlier is 0 and later is 0"),
        (lambda: composition_scores(model, "keys", 1, 0), "way is 'keys', expected 'query', 'key' or 'value'"),  # type: ignore[arg-type]
        (lambda: qk_circuit(linear, 0, 0), "linear attention has no scores"),
        (lambda: induction_scores(linear, [[1, 1]]), "a gpt model has no attention maps"),
        (lambda: induction_scores(model, [[1, 2, 3]]), "no token comes twice"),
        (lambda: repeated_tokens(4, 5, 1), "length is 5, expected 1 to 4"),
    ):
        with pytest.raises(ValueError, match=says):
            act()
    t5 = moved(T5Config(V, **SIZES, d_k=2))
    assert qk_circuit(t5, 1, 3, stack="encoder").shape == ov_circuit(t5, 1, 3).shape == (8, 8)
