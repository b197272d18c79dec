"""Lesson 22: patches put back, the gradients of a class token and of positions, attention rolled out."""

from typing import Any

import numpy as np

from minitransformer.gradcheck import error
from minitransformer.ops import patches_backward as package_backward
from minitransformer.ops import patches_forward

from ..checks import (
    in_case,
    largest_error,
    require,
    require_array,
    require_arrays,
    require_close,
    require_gradients,
    require_none_of,
    require_precision,
)
from ..exercise import Attempt, Wrong, exercise
from . import solutions


def _patches_backward(drows: Any, channels: int, height: int, width: int, size: int) -> np.ndarray:
    _, cache = patches_forward(np.zeros((len(drows), channels, height, width), drows.dtype), size)
    return package_backward(drows, cache)


@exercise(answer=_patches_backward)
def patches_backward(attempt: Attempt) -> None:
    for batch, channels, height, width, size in (
        (2, 1, 4, 4, 2),
        (2, 3, 4, 4, 2),
        (1, 2, 6, 9, 3),
        (3, 2, 8, 4, 2),
        (2, 1, 3, 5, 1),
        (1, 3, 4, 4, 4),
    ):
        images = np.random.default_rng(0).standard_normal((batch, channels, height, width))
        of = "one channel" if channels == 1 else f"{channels} channels"
        with in_case(f"with B = {batch}, {of} of {height} × {width} pixels and patches of {size} × {size},"):
            _judge_patches(attempt, images, size)


def _judge_patches(attempt: Attempt, images: np.ndarray, size: int) -> None:
    batch, channels, height, width = images.shape
    rows, _ = patches_forward(images, size)
    back = require_array(attempt(rows, channels, height, width, size))
    require(
        back.shape == images.shape,
        f"it returns shape {back.shape} and must return that of the images, {images.shape}",
    )
    if error(back, images) < 1e-12:
        require_gradients(
            lambda images: patches_forward(images, size),
            lambda drows, _: attempt(drows, channels, height, width, size),
            {"images": images},
        )
        return
    require(np.isfinite(back).all(), "it holds NaN or infinity: does every pixel get its gradient?")
    require_precision("what it returns", back, images)
    down, across = height // size, width // size
    cut = rows.reshape(batch, down, across, channels, size, size)

    def is_like(parts: np.ndarray, *order: int) -> bool:
        return error(back, parts.transpose(order).reshape(images.shape)) < 1e-12

    require(
        down * across == 1 or error(back, rows.reshape(images.shape)) > 1e-12,
        "it is reshaped only: reshape keeps the order of the numbers, and a row of pixels belongs to several patches, "
        "so axes must change places",
    )
    require(
        not is_like(cut, 0, 3, 1, 5, 2, 4),
        "each patch is turned over, rows for columns: of the two axes within a patch the first goes with its rows",
    )
    for name, parts, order in (
        (
            "the patches come column by column: the first axis of the patches goes down, the second across",
            rows.reshape(batch, across, down, channels, size, size),
            (0, 3, 2, 4, 1, 5),
        ),
        (
            "the channels are taken for the last axis of a patch: a patch is (channels, size, size)",
            rows.reshape(batch, down, across, size, size, channels),
            (0, 5, 1, 3, 2, 4),
        ),
        (
            "the axes of a pixel's row are the wrong way round: the patch comes first, then the row in it",
            cut,
            (0, 3, 4, 1, 5, 2),
        ),
    ):
        if parts.transpose(order).size == images.size:
            require(not is_like(parts, *order), name)
    factor = float(np.vdot(images, back) / np.vdot(images, images))
    require(
        error(back, factor * images) > 1e-9 or abs(factor) < 1e-9,
        f"the pixels are {factor:.3g} times what they should be: each goes to one place and comes from one, so nothing "
        "is added or divided",
    )
    places = [tuple(int(i) for i in index) for index in np.argwhere(np.abs(back - images) > 1e-9)]
    first = places[0]
    came = np.argwhere(np.abs(images - back[first]) < 1e-12)
    what = f"comes from pixel {tuple(int(i) for i in came[0])}" if len(came) else f"is {back[first]:.3g}"
    raise Wrong(
        f"{len(places)} of {images.size} pixels do not come back to their places: what arrives at {first} (image, "
        f"channel, row, column) {what}",
    )


def _sentence(tokens: Any, class_token: Any, positions: Any) -> np.ndarray:
    first = np.broadcast_to(class_token, (len(tokens), 1, len(class_token)))
    return np.concatenate([first, tokens], axis=1) + positions


@exercise(answer=solutions.sentence_backward)
def sentence_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    names = ("dtokens", "dclass_token", "dpositions")
    for batch, time, width in ((2, 3, 4), (5, 4, 2), (1, 2, 3), (3, 1, 5)):
        dx = rng.standard_normal((batch, 1 + time, width))
        with in_case(f"with B = {batch}, T = {time} and C = {width},"):
            found: dict[str, np.ndarray] = dict(zip(names, require_arrays(attempt(dx), *names), strict=True))
            _judge_sentence(found, dx)
            require_gradients(
                lambda *parts: (_sentence(*parts), None),
                lambda dx, _: attempt(dx),
                {
                    "tokens": rng.standard_normal((batch, time, width)),
                    "class_token": rng.standard_normal(width),
                    "positions": rng.standard_normal((1 + time, width)),
                },
            )


def _judge_sentence(found: dict[str, np.ndarray], dx: np.ndarray) -> None:
    batch, length, width = dx.shape
    shapes = {"dtokens": (batch, length - 1, width), "dclass_token": (width,), "dpositions": (length, width)}
    given = {name: found[name].shape for name in shapes}
    require(
        given == shapes or sorted(given.values()) != sorted(shapes.values()),
        f"the three gradients are in another order than {', '.join(shapes)}",
    )
    likely = {
        ("dtokens", dx.shape): "the first place is the class token's",
        ("dclass_token", (batch, width)): "all images share one class token, so its gradients are added over the batch",
        ("dpositions", dx.shape): "all images share the positions, so their gradients are added over the batch",
        ("dpositions", (length - 1, width)): "the class token has a position, too",
    }
    for name, shape in shapes.items():
        why = likely.get((name, given[name]), "a gradient has the shape of what it is the gradient of")
        require(given[name] == shape, f"{name} has shape {given[name]} and must have {shape}: {why}")
    require(
        error(found["dtokens"], dx[:, :-1]) > 1e-9,
        "dtokens has the first place and lacks the last: the class token stands first",
    )
    shared = {"adds up over the images: each image has tokens of its own": np.tile(dx[:, 1:].sum(0), (batch, 1, 1))}
    require_none_of("dtokens", found["dtokens"], dx[:, 1:], shared)
    require_close("dtokens", found["dtokens"], dx[:, 1:])
    require(
        error(found["dclass_token"], dx.sum(axis=(0, 1))) > 1e-9,
        "dclass_token is added over all places: the class token stands at the first alone",
    )
    require(
        error(found["dclass_token"], dx[:, -1].sum(axis=0)) > 1e-9,
        "dclass_token is the gradient of the last place: the class token stands first",
    )
    mistakes = {
        "is that of the last image alone: all images share it, so their gradients are added": dx[-1, 0],
        "is that of the first image alone: all images share it, so their gradients are added": dx[0, 0],
        "is the gradient of the second place: the class token stands first": dx[:, 1].sum(axis=0),
        "is the mean over all places: the class token stands at the first alone": dx.mean(axis=(0, 1)),
    }
    require_none_of("dclass_token", found["dclass_token"], dx[:, 0].sum(axis=0), mistakes)
    factors = {"the mean over the batch; shared numbers have the sum of their gradients": 1 / batch}
    require_close("dclass_token", found["dclass_token"], dx[:, 0].sum(axis=0), factors=factors)
    right = dx.sum(axis=0)
    without_first = right * (np.arange(length) > 0)[:, None]
    require(
        error(found["dpositions"], without_first) > 1e-9,
        "dpositions is 0 at the first place: the class token has a position, too",
    )
    require_close("dpositions", found["dpositions"], right, factors=factors)


@exercise(answer=solutions.rollout)
def rollout(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for layers, batch, heads, time in ((2, 2, 3, 4), (1, 3, 2, 5), (4, 1, 1, 3)):
        weights = rng.random((layers, batch, heads, time, time)) ** 3
        weights /= weights.sum(axis=-1, keepdims=True)
        with in_case(f"with {layers} layer{'' if layers == 1 else 's'}, B = {batch}, H = {heads} and T = {time},"):
            _judge_rollout(require_array(attempt(weights)), weights)
    nobody = np.broadcast_to(np.eye(4), (3, 2, 2, 4, 4)).copy()
    require_close(
        "where every position looks at itself alone, in all layers, the result",
        require_array(attempt(nobody)),
        np.broadcast_to(np.eye(4), (2, 4, 4)).copy(),
    )


def _judge_rollout(found: np.ndarray, weights: np.ndarray) -> None:
    _, batch, heads, time, _ = weights.shape
    mean, eye = weights.mean(axis=2), np.eye(time)
    require(
        found.shape == (batch, time, time),
        f"it returns shape {found.shape} and must return a matrix for each image, {(batch, time, time)}",
    )

    def product(each: np.ndarray) -> np.ndarray:
        total = np.broadcast_to(eye, (batch, time, time))
        for layer in each:
            total = layer @ total
        return total

    half = (mean + eye) / 2
    each_head = np.stack([product((weights[:, :, head] + eye) / 2) for head in range(heads)])
    right = product(half)
    if error(found, right) <= 1e-9:
        return
    sums = found.sum(axis=-1)
    for why, wrong in (
        ("the residual connection is left out: half of what a layer gives on is what came in", product(mean)),
        (
            f"the identity is added and the sum is not halved: rows must sum to 1, and sum to {sums.flat[0]:.3g}",
            product(mean + eye),
        ),
        (
            "the layers are multiplied in the other order: the last layer's matrix stands on the left",
            product(half[::-1]),
        ),
        ("it is the last layer's alone: what it looks at is a mixture already", half[-1]),
        ("it is the last layer's attention, and no more: what it looks at is a mixture already", mean[-1]),
        ("it is the first layer's alone: the layers above mix its vectors further", half[0]),
        ("the residual connection is counted once, and every layer has one", (product(mean) + eye) / 2),
        ("each head is rolled out by itself: heads are averaged in each layer, before the product", each_head.mean(0)),
        ("the heads are added up, and must be averaged", product((weights.sum(axis=2) + eye) / 2)),
        ("the largest weight of all heads is taken, and must be their mean", product((weights.max(axis=2) + eye) / 2)),
        ("the layers are averaged, and must be multiplied: what is looked at has looked before", half.mean(axis=0)),
        ("the layers are multiplied number by number, and must be by the product of matrices", half.prod(axis=0)),
        ("the rows of the result are keys: rows are queries, as in the weights", right.swapaxes(1, 2)),
        ("the weights are transposed: rows are queries, in the weights too", product(half.swapaxes(2, 3))),
        ("the first head alone is taken: heads are averaged", product((weights[:, :, 0] + eye) / 2)),
        ("the smallest weight of all heads is taken, and must be their mean", product((weights.min(axis=2) + eye) / 2)),
        ("the images are averaged: each has a matrix of its own", product((mean.mean(1, keepdims=True) + eye) / 2)),
        (
            "the residual connection has the weight ⅔: half of what a layer gives on is what came in",
            product((mean + 2 * eye) / 3),
        ),
        ("the identity is not halved: half of what a layer gives on is what came in", product(mean / 2 + eye)),
        (
            "the layers are added up, and must be multiplied: what is looked at has looked before",
            eye + half.sum(axis=0),
        ),
        ("the layers are multiplied number by number, and must be by the product of matrices", eye * half.prod(axis=0)),
        ("the last layer is left out", product(half[:-1])),
    ):
        require(error(found, wrong) > 1e-9, why)  # with one layer, or one head, some mistakes give the right result
    _, given, one = largest_error(sums, 1.0)
    require(
        np.allclose(sums, 1, rtol=0, atol=1e-9),
        f"a row of it sums to {given}, and must sum to {one}: each says of what a vector is made",
    )
    require_close("the result", found, right)
