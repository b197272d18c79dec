"""Lesson 29: circuits of attention heads."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..checks import in_case, require, require_array, require_close, require_none_of, require_precision, unpack
from ..exercise import Attempt, exercise
from . import mistakes, solutions

Measure = Callable[[np.ndarray], float]


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Causal attention weights, `(B, H, T, T)`."""
    weights = np.tril(rng.random(shape) + 0.01)
    return weights / weights.sum(axis=-1, keepdims=True)


# --- Induction --------------------------------------------------------------------------------------------------


@exercise(answer=solutions.induction_score)
def induction_score(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    ids = np.array(
        [[1, 2, 3, 4, 1, 2, 3, 4], [5, 6, 5, 7, 7, 5, 6, 5], [0, 1, 2, 3, 4, 5, 6, 7], [3, 1, 3, 2, 2, 1, 3, 0]]
    )
    weights = _weights(rng, (4, 3, 8, 8))
    found = attempt(weights, ids)
    shapes = {
        (): "one number for each head: the mean is not over the heads",
        (4, 3): "one number for each head: the mean is over the texts too",
        (3, 8): "one number for each head: the mean is over the tokens too",
        (8,): "one number for each head, not for each token",
        (4,): "one number for each head, not for each text",
    }
    require(np.shape(found) == (3,), f"it returns shape {np.shape(found)} and must return (3,), {_said(shapes, found)}")
    _judge_score(require_array(found), weights, ids)
    for B, H, T, V in ((2, 2, 12, 3), (3, 1, 7, 5), (1, 4, 20, 10)):
        weights, ids = _weights(rng, (B, H, T, T)), rng.integers(0, V, (B, T))
        with in_case(f"for {B} texts of {T} tokens and {H} heads,"):
            _judge_score(require_array(attempt(weights, ids)), weights, ids)


def _judge_score(found: np.ndarray, weights: np.ndarray, ids: np.ndarray) -> None:
    right = solutions.induction_score(weights, ids)
    if len(ids) > 2:  # where all mistakes differ
        require_none_of("the score", found, right, mistakes.score(weights, ids))
    require_precision("the score", found, right)
    require_close("the score", found, right)


def _said(shapes: dict[tuple[int, ...], str], found: Any) -> str:
    return shapes.get(np.shape(found), "and what is each axis?")


# --- Direct logit attribution -----------------------------------------------------------------------------------


@exercise(answer=solutions.logit_terms)
def logit_terms(attempt: Attempt) -> None:
    rng = np.random.default_rng(1)
    for N, T, C in ((4, 5, 6), (1, 3, 8), (7, 2, 5), (3, 4, 4)):
        terms = rng.standard_normal((N, T, C)) + rng.standard_normal((N, 1, 1))
        gamma, beta, w = 1 + 0.5 * rng.random(C), rng.standard_normal(C), rng.standard_normal(C)
        with in_case(f"for {N} terms, {T} positions and {C} channels"):
            parts, constant = unpack(attempt(terms, gamma, beta, w, 0.1), "contributions", "constant")
            shapes = {
                (T, N): "is it transposed?",
                (T,): "the terms stay apart",
                (N,): "the positions stay apart",
                (N, T, C): "the product with the direction sums over the channels",
                (N, T, 1): "the last axis has gone into the product",
            }
            require(
                parts.shape == (N, T) or np.shape(parts) not in shapes,
                f"contributions have shape {parts.shape} and must have {(N, T)}: {_said(shapes, parts)}",
            )
            require(
                np.ndim(constant) == 0,
                f"constant has shape {np.shape(constant)} and must be one number: all positions have the same",
            )
            right, whole = solutions.logit_terms(terms, gamma, beta, w, 0.1)
            if N > 2:
                require_none_of("contributions", parts, right, mistakes.terms(terms, gamma, beta, w, 0.1))
            require_precision("contributions", parts, right)
            require_close("contributions", parts, right)
            require_none_of("constant", constant, whole, mistakes.constant(gamma, beta, w, N))
            require_close("constant", np.asarray(constant), np.asarray(whole))


# --- Patching ---------------------------------------------------------------------------------------------------


def _measure(rng: np.random.Generator, T: int, C: int) -> Measure:
    """A function of a stream that mixes all positions and channels, and is not linear."""
    first, second = rng.standard_normal((T * C, 9)), rng.standard_normal(9)
    return lambda x: float(np.tanh(x.reshape(-1) @ first / np.sqrt(T * C)) @ second)


@exercise(answer=solutions.patch_shares)
def patch_shares(attempt: Attempt) -> None:
    rng = np.random.default_rng(3)
    for T, C in ((5, 5), (4, 7), (1, 3)):
        after, (own, other) = _measure(rng, T, C), rng.standard_normal((2, T, C))
        with in_case(f"for {T} positions of {C} channels"):
            found = require_array(attempt(after, own, other), "the result")
            right = solutions.patch_shares(after, own, other)
            require(
                found.shape == (T,),
                f"the result has shape {found.shape} and must have {(T,)}, a number for each position",
            )
            if T == C:
                require_none_of("the shares", found, right, mistakes.shares(after, own, other))
            require_precision("the shares", found, right)
            require_close("the shares", found, right)


# --- Circuits ---------------------------------------------------------------------------------------------------


@exercise(answer=solutions.circuits)
def circuits(attempt: Attempt) -> None:
    rng = np.random.default_rng(4)
    for C, H, D in ((7, 3, 2), (5, 2, 4), (8, 1, 3), (4, 4, 2)):
        query, key, value = rng.standard_normal((3, C, H * D))
        output = rng.standard_normal((H * D, C))
        with in_case(f"for {H} heads of {D} and a stream of {C}"):
            qk, ov = unpack(attempt(query, key, value, output, H), "qk", "ov")
            right_qk, right_ov = solutions.circuits(query, key, value, output, H)
            for name, circuit in (("qk", qk), ("ov", ov)):
                shapes = {
                    (H, D, D): "the products are of vectors of the stream, C wide, and not D",
                    (C, C): "each head has its own",
                    (C, C, H): "heads come first",
                    (C, H, C): "heads come first",
                }
                known = circuit.shape != (H, C, C) and circuit.shape in shapes
                require(
                    not known, f"{name} has shape {circuit.shape} and must have {(H, C, C)}: {_said(shapes, circuit)}"
                )
            if H == 3:
                exchanged = np.shape(qk) == right_ov.shape and np.allclose(qk, right_ov) and np.allclose(ov, right_qk)
                require(not exchanged, "qk and ov are exchanged: the order is qk, ov")
                require_none_of("the QK circuits", qk, right_qk, mistakes.qk(query, key, value, H))
                require_none_of("the OV circuits", ov, right_ov, mistakes.ov(key, query, value, output, H))
            for name, circuit, right in (("qk", qk, right_qk), ("ov", ov, right_ov)):
                require_precision(name, circuit, right)
                require_close(name, circuit, right)


@exercise(answer=solutions.key_composition)
def key_composition(attempt: Attempt) -> None:
    rng = np.random.default_rng(5)
    for H, E, C in ((3, 4, 6), (2, 2, 5), (1, 3, 4)):
        qk, ov = (rng.standard_normal((count, C, C)) for count in (H, E))
        with in_case(f"for {H} later and {E} earlier heads of a stream of {C}"):
            found = require_array(attempt(qk, ov), "the result")
            right = solutions.key_composition(qk, ov)
            require(
                found.shape != (E, H) or E == H,
                f"the result has shape {found.shape} and must have {(H, E)}: rows are later heads",
            )
            if E == 4:
                require_none_of("the scores", found, right, mistakes.composition(qk, ov))
            require_precision("the scores", found, right)
            require_close("the scores", found, right)
