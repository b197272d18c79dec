"""Lesson 30: where words look, the contrastive loss, its gradients, and what is found among many."""

from typing import Any

import numpy as np

from minitransformer.gradcheck import numerical_gradient
from minitransformer.models.contrastive import contrastive_loss_backward as backward_of_package
from minitransformer.models.contrastive import contrastive_loss_forward

from ..checks import (
    in_case,
    require,
    require_array,
    require_close,
    require_float64,
    require_none_of,
    require_precision,
    type_name,
    unpack,
)
from ..exercise import Attempt, exercise
from . import mistakes, solutions

# --- Where it looks ---------------------------------------------------------------------------------------------


def _triangle(height: int, width: int, row: float, column: float, side: float) -> np.ndarray:
    """A right angle's corner in a row and column, its legs down and to the right."""
    rows, columns = np.arange(height)[:, None] - row, np.arange(width) - column
    return (rows >= 0) & (columns >= 0) & (rows + columns < side)


@exercise(answer=solutions.looked_at)
def looked_at(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    # A square picture first: in it the likely mistakes have the right shape, and differ.
    for words, size, thing in (
        (4, 4, _triangle(24, 24, 7, 2, 15)),
        (3, 2, _triangle(6, 10, 2, 5, 3)),
        (1, 3, _triangle(9, 6, 0, 0, 1)),
        (2, 1, _triangle(4, 5, 1, 1, 2)),
    ):
        height, width = thing.shape
        weights = rng.random((words, thing.size // size**2)) ** 3
        weights /= weights.sum(axis=1, keepdims=True)
        with in_case(f"for {words} words and a picture of {height} × {width} pixels in patches of {size} × {size},"):
            _judge_looks(attempt, weights, thing, size)


def _judge_looks(attempt: Attempt, weights: np.ndarray, thing: np.ndarray, size: int) -> None:
    arguments, names = (weights, thing, size), ("maps", "shares", "chance")
    found = unpack(attempt(*arguments), *names)
    right = solutions.looked_at(*arguments)
    height, width = thing.shape
    down, across = height // size, width // size
    shapes = {
        (len(weights), down, across): "each patch has size × size pixels",
        (len(weights), height * width): "the rows of pixels are an axis of their own",
        (len(weights), width, height): "height comes before width",
        (height, width): "each word has a map",
        (): "each word has a share",
        weights.shape: "sum the weights of the thing's patches",
    }
    for name, each, other in zip(names, found, right, strict=True):
        wanted = np.shape(other)
        likely = shapes.get(each.shape, "what is each axis?") if wanted else "an even look is the same for all words"
        require(each.shape == wanted, f"{name} has shape {each.shape} and must have {wanted}: {likely}")
    for name, each, other, likely in zip(
        names, found, right, (mistakes.maps, mistakes.shares, mistakes.chances), strict=True
    ):
        if len(weights) == 4:
            require_none_of(name, each, other, likely(*arguments))
        if each.ndim:
            require_array(each, name)
        require_precision(name, each, other)
        require_close(name, each, other)


# --- The contrastive loss ---------------------------------------------------------------------------------------


def _loss(a: np.ndarray, b: np.ndarray, log_scale: np.ndarray) -> float:
    """The package's."""
    return contrastive_loss_forward(a, b, log_scale)[0]


def _gradients(a: np.ndarray, b: np.ndarray, log_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The package's."""
    return backward_of_package(1.0, contrastive_loss_forward(a, b, log_scale)[1])


def _pairs(B: int, C: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of which each is a little like its own one, of very different lengths; and the logarithm of a scale."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((B, C))
    b = 0.5 * a + rng.standard_normal((B, C))
    lengths = rng.uniform(0.5, 3, (2, B, 1))
    return lengths[0] * a, lengths[1] * b, np.array(1.5)


def _number(result: Any) -> Any:
    require(
        isinstance(result, float | np.floating) or (isinstance(result, np.ndarray) and result.ndim == 0),
        f"it must return a number, not {type_name(result)}",
    )
    require_float64("it", result)
    return result


@exercise(answer=_loss)
def contrastive_loss(attempt: Attempt) -> None:
    a, b, log_scale = _pairs(5, 5)
    found, right = _number(attempt(a, b, log_scale)), _loss(a, b, log_scale)
    require_none_of("the loss", found, right, mistakes.losses(a, b, log_scale))
    require_precision("the loss", found, right)
    require_close("the loss", found, right)
    for B, C in ((1, 4), (2, 7), (6, 3)):
        a, b, log_scale = _pairs(B, C, seed=B)
        with in_case(f"for {B} pairs of vectors of {C} numbers"):
            require_close("the loss", _number(attempt(a, b, log_scale)), _loss(a, b, log_scale))
    a, b, _ = _pairs(4, 3, seed=9)
    found, right = _number(attempt(a, b, np.array(8.0))), _loss(a, b, np.array(8.0))
    require(np.isfinite(found), "with a scale of exp(8) it is no finite number: use log_softmax, which never overflows")
    require_close("with a scale of exp(8) the loss", found, right)


@exercise(answer=_gradients)
def contrastive_loss_backward(attempt: Attempt) -> None:
    names = "da", "db", "dlog_scale"
    # As many pairs as numbers in a vector first: then a missing transpose raises no exception, and can be named.
    for B, C in ((5, 5), (2, 6), (6, 3), (1, 4)):
        a, b, log_scale = arguments = _pairs(B, C, seed=B)
        with in_case(f"for {B} pairs of vectors of {C} numbers"):
            found, right = unpack(attempt(*arguments), *names), _gradients(*arguments)
            for name, each, other in zip(names, found, right, strict=True):
                shapes = {(C, B): "is it transposed?", (B, B): "that is the logits'", (1,): "a plain number"}
                require(
                    each.shape == other.shape,
                    f"{name} has shape {each.shape} and must have {other.shape}: "
                    f"{shapes.get(each.shape, 'a gradient has the shape of its array')}",
                )
            if B > 2:
                require(
                    not (np.allclose(found[0], right[1]) and np.allclose(found[1], right[0])),
                    "da and db are exchanged: the order is da, db, dlog_scale",
                )
                likely = (
                    mistakes.gradients(a, b, log_scale),
                    mistakes.gradients(b, a, log_scale),
                    mistakes.slopes(a, b, log_scale),
                )
                for name, each, other, wrong in zip(names, found, right, likely, strict=True):
                    require_none_of(name, each, other, wrong)
            for name, each, other in zip(names, found, right, strict=True):
                require_precision(name, each, other)
                require_close(name, each, other)
    a, b, log_scale = _pairs(4, 3)
    for name, each, slope in zip(
        names,
        attempt(a, b, log_scale),
        (
            numerical_gradient(lambda a: float(_loss(a, b, log_scale)), a),
            numerical_gradient(lambda b: float(_loss(a, b, log_scale)), b),
            numerical_gradient(lambda s: float(_loss(a, b, s)), log_scale),
        ),
        strict=True,
    ):
        require_close(f"against central differences {name}", np.asarray(each), slope, tolerance=1e-7)
    large = (*_pairs(4, 3, seed=9)[:2], np.array(8.0))
    require(
        all(map(np.allclose, attempt(*large), _gradients(*large))),
        "it is right, but not with a scale of exp(8): use log_softmax, which never overflows",
    )


# --- Retrieval --------------------------------------------------------------------------------------------------


def _similarities(N: int, levels: int, seed: int) -> np.ndarray:
    """Similarities of N rows, of few different values, so that there are ties; the own ones are larger by a little."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, levels, (N, N)) + 2 * np.eye(N) - levels // 2) / 8


@exercise(answer=solutions.recall)
def recall(attempt: Attempt) -> None:
    cases = [(12, 5, 1), (12, 5, 2), (12, 5, 3), (12, 9, 4), (9, 1, 4), (6, 4, 6), (7, 100, 1), (1, 1, 1)]
    asked = [(_similarities(N, levels, seed), k) for seed, (N, levels, k) in enumerate(cases)]
    found = np.array([float(_number(attempt(s, k))) for s, k in asked])
    right = np.array([solutions.recall(s, k) for s, k in asked])
    tried = [mistakes.recalls(s, k) for s, k in asked]
    for mistake in tried[0]:
        other = np.array([each[mistake] for each in tried])
        require(np.allclose(other, right) or not np.allclose(found, other), f"the share {mistake}")
    for (s, k), each, expected in zip(asked, found, right, strict=True):
        with in_case(f"for {len(s)} rows and k = {k}"):
            require_close("the share", each, expected)
