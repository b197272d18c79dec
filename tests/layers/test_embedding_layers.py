"""Tokens and positions as vectors, and the output layer that shares the tokens' table."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import oracles, torch_model
from support.prove import Proof, normal
from support.prove_layer import placed, prove_layer

from minitransformer.gradcheck import error
from minitransformer.layers import (
    Cache,
    Context,
    DropoutStream,
    InputEmbedding,
    LearnedPositions,
    SinusoidalPositions,
    TokenEmbedding,
)
from minitransformer.models.objectives import next_token_loss, next_token_loss_backward
from minitransformer.ops import numpy_ops

V, C = 5, 4
IDS = np.array([[1, 3, 3], [4, 1, 0]])
STREAM = DropoutStream(seed=1, step=9, sentence=4)


def tokens() -> TokenEmbedding:
    return TokenEmbedding(numpy_ops, V, C)


def hidden(*shape: int) -> dict[str, np.ndarray]:
    return {"hidden": normal(np.random.default_rng(0), *shape)}


# --- The token table: looked up with √d_model, multiplied by without it ----------------------------------------


def test_look_up(proof: Proof):
    def oracle(w: torch_model.Weights, ids: torch.Tensor) -> torch.Tensor:
        return math.sqrt(C) * F.embedding(ids, w["table"])

    prove_layer("TokenEmbedding", tokens, {"ids": IDS}, oracle, proof)


@pytest.mark.parametrize("shape", [(2, 3, C), (1, 1, C), (3, C)])
def test_logits(proof: Proof, shape):
    prove_layer(
        "TokenEmbedding, logits",
        tokens,
        hidden(*shape),
        lambda w, hidden: F.linear(hidden, w["table"]),
        proof,
        call=TokenEmbedding.logits,
        back=TokenEmbedding.logits_backward,
    )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("targets", [[[1, 2], [0, 4]], [[0, 0], [0, 0]]], ids=str)
def test_the_loss_of_the_next_tokens(proof: Proof, label_smoothing, targets):
    targets = np.array(targets)
    prove_layer(
        "next_token_loss",
        tokens,
        hidden(2, 2, C),
        lambda w, hidden: oracles.cross_entropy(
            F.linear(hidden, w["table"]), torch.tensor(targets), label_smoothing, ignore_index=0
        ),
        proof,
        call=lambda layer, hidden: next_token_loss(layer, hidden, targets, label_smoothing, pad_id=0),
        back=next_token_loss_backward,
    )


# --- Positions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_are_the_formula_of_the_paper(d_model):
    layer = SinusoidalPositions(numpy_ops, 600, d_model, "float64")
    assert error(layer.table, torch_model.sinusoids(600, d_model)) <= 1e-12


def test_sinusoids_are_as_exact_in_float32_at_late_positions_as_at_early_ones():
    layer = SinusoidalPositions(numpy_ops, 5000, 64, "float32")
    assert layer.table.dtype == np.float32
    assert abs(layer.table - torch_model.sinusoids(5000, 64).numpy()).max() <= 4e-7


def test_late_positions_are_made_once_a_sentence_reaches_them(monkeypatch):
    monkeypatch.setattr("minitransformer.layers.embedding.FIRST_POSITIONS", 4)
    layer, whole = SinusoidalPositions(numpy_ops, 10**15, 8, "float64"), torch_model.sinusoids(60, 8).numpy()
    for start, length in ((0, 3), (2, 2), (2, 3), (20, 1), (0, 60)):
        added, _ = layer.forward(np.zeros((1, length, 8)), start)
        np.testing.assert_allclose(added[0], whole[start : start + length], rtol=0, atol=1e-12)


@pytest.mark.parametrize("shift", [1, 7, -3])
def test_a_shift_is_a_rotation_of_every_pair_of_channels(shift):
    """Why sinusoids: "for any fixed offset k, PE(pos+k) can be represented as a linear function of PE(pos)" (§3.5)."""
    d_model, table = 8, SinusoidalPositions(numpy_ops, 50, 8, "float64").table
    for pair in range(d_model // 2):
        angle = shift / 10000 ** (2 * pair / d_model)
        rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        here, there = table[10:40, 2 * pair : 2 * pair + 2], table[10 + shift : 40 + shift, 2 * pair : 2 * pair + 2]
        assert error(here @ rotation, there) <= 1e-12


@pytest.mark.parametrize("start", [0, 3])
def test_sinusoidal_positions_are_added(start):
    layer = SinusoidalPositions(numpy_ops, 7, C, "float64")
    x = np.random.default_rng(0).standard_normal((2, 3, C))
    out, cache = layer.forward(x, start)
    assert error(out, x + layer.table[None, start : start + 3]) <= 1e-15
    np.testing.assert_array_equal(layer.backward(x, cache), x)


@pytest.mark.parametrize(("shape", "start"), [((2, 3, C), 0), ((1, 1, C), 0), ((3, 6, C), 0), ((2, 3, C), 2)])
def test_learned_positions(proof: Proof, shape, start):
    prove_layer(
        "LearnedPositions",
        lambda: LearnedPositions(numpy_ops, 6, C),
        {"x": normal(np.random.default_rng(0), *shape)},
        lambda w, x: x + w["table"][start : start + x.shape[1]],
        proof,
        call=lambda layer, x: layer.forward(x, start),
    )


# --- What a stack begins with ----------------------------------------------------------------------------------


def embedding(rate: float, positions: LearnedPositions | SinusoidalPositions | None = None) -> InputEmbedding:
    return InputEmbedding(numpy_ops, tokens(), positions or LearnedPositions(numpy_ops, 6, C), rate)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_input_embedding_drops_the_sum_of_tokens_and_positions(proof: Proof, rate):
    def oracle(w: torch_model.Weights, ids: torch.Tensor) -> torch.Tensor:
        x = math.sqrt(C) * F.embedding(ids, w["tokens.table"]) + w["positions.table"][: ids.shape[1]]
        return oracles.dropped(x, STREAM.at(embedding(rate).site, rate))

    prove_layer(
        "InputEmbedding",
        lambda: embedding(rate),
        {"ids": IDS},
        oracle,
        proof,
        call=lambda layer, ids: layer.forward(ids, Context(dropout=STREAM)),
    )


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_a_step_is_one_position_of_the_whole(kind):
    layer = embedding(0.1, SinusoidalPositions(numpy_ops, 6, C, "float64") if kind == "sinusoidal" else None)
    placed(layer)
    whole, _ = layer.forward(IDS)
    cache = Cache(numpy_ops, batch=2, num_beams=1)
    for cache.position in range(3):
        now = slice(cache.position, cache.position + 1)
        np.testing.assert_array_equal(layer.forward(IDS[:, now], Context(cache=cache))[0], whole[:, now])
