"""Lesson 30: wrong answers by the clause that names the mistake, for `require_none_of`."""

from typing import Any

import numpy as np

from .solutions import log_softmax

Named = dict[str, Any]


def _pixels(grid: np.ndarray, size: int) -> np.ndarray:
    return np.repeat(np.repeat(grid, size, axis=1), size, axis=2)


# --- Where it looks ---------------------------------------------------------------------------------------------


def maps(weights: np.ndarray, thing: np.ndarray, size: int) -> Named:
    """Return wrong maps of a square picture."""
    count, (height, width) = len(weights), thing.shape
    down, across = height // size, width // size
    grid = weights.reshape(count, down, across)
    right = _pixels(grid, size) / size**2
    touched = _touched(thing, size)
    softmax = np.exp(grid) / np.exp(grid).sum(axis=(1, 2), keepdims=True)
    return {
        "have the whole weight of a patch at each pixel: they share it, so that a map sums to 1": right * size**2,
        "are divided by the side of a patch, and a patch has size² pixels": right * size,
        "are divided by the pixels of the picture, and must be by those of a patch": right * size**2 / thing.size,
        "are divided by the number of patches": right * size**2 / (down * across),
        "repeat the whole grid of patches, and must repeat each weight: np.repeat, not np.tile": (
            np.tile(grid, (1, size, size)) / size**2
        ),
        "go through the patches column by column: they stand row by row": (
            _pixels(weights.reshape(count, across, down).swapaxes(1, 2), size) / size**2
        ),
        "have each patch as a strip of one row of pixels: it is a square": (
            np.repeat(weights, size**2, axis=1).reshape(right.shape) / size**2
        ),
        "are upside down: patch 0 is at the top": right[:, ::-1],
        "are mirrored: patch 0 is on the left": right[:, :, ::-1],
        "begin with the last patch": right[:, ::-1, ::-1],
        "are scaled so that the largest number of all is 1": right / right.max(),
        "are scaled so that the largest number of each is 1": right / right.max(axis=(1, 2), keepdims=True),
        "are scaled to lie between 0 and 1": (right - right.min()) / np.ptp(right),
        "are relative to an even look: a map sums to 1": right * size**2 * down * across,
        "are a softmax of the weights, which are the result of one already": _pixels(softmax, size) / size**2,
        "are logarithms": np.log(right),
        "are 0 outside the thing: a map shows all of the picture": right * thing,
        "are 0 outside the thing's patches: a map shows all of the picture": right * _pixels(touched[None], size),
        "are 0 on the thing": right * ~thing,
        "are the mean over the words, at each of them": right * 0 + right.mean(axis=0),
        "are those of the next word": np.roll(right, -1, axis=0),
        "are those of the words in the reverse order": right[::-1],
        "stand one patch too far: there is no class token here, weight 0 is that of patch 0": (
            _pixels(np.roll(weights, -1, axis=1).reshape(grid.shape), size) / size**2
        ),
        "hold the squares of the weights": right**2 * size**2,
        "hold 1 − weight": (1 - right * size**2) / size**2,
    }  # fmt: skip


def _touched(thing: np.ndarray, size: int) -> np.ndarray:
    return _cut(thing, size).max(axis=(1, 3))


def _cut(thing: np.ndarray, size: int) -> np.ndarray:
    height, width = thing.shape
    return thing.reshape(height // size, size, width // size, size)


def _others(thing: np.ndarray, size: int) -> dict[str, np.ndarray]:
    """Return other sets of patches that might be taken for the thing's."""
    cut, touched = _cut(thing, size), _touched(thing, size)
    around = np.outer(touched.max(axis=1), touched.max(axis=0))
    places = np.argwhere(thing).mean(axis=0) // size
    middle = np.zeros_like(touched)
    middle[tuple(places.astype(int))] = True
    grown = touched.copy()
    grown[1:] |= touched[:-1]
    grown[:-1] |= touched[1:]
    return {
        "patches that lie wholly on the thing: one pixel is enough": cut.min(axis=(1, 3)),
        "patches of which the thing covers half: one pixel is enough": cut.mean(axis=(1, 3)) >= 0.5,
        "all patches of the rectangle around the thing: a patch without a pixel of it does not count": around,
        "the patch in the thing's middle alone": middle,
        "patches above and below the thing, too": grown,
        "patches whose first pixel is on the thing: any of its pixels counts": thing[::size, ::size],
        "patches whose last pixel is on the thing: any of its pixels counts": thing[size - 1 :: size, size - 1 :: size],
        "patches whose middle pixel is on the thing: any of its pixels counts": (
            thing[size // 2 :: size, size // 2 :: size]
        ),
        "strips of one row, not squares": thing.reshape(*touched.shape, size * size).max(axis=-1),
        "patches column by column: they stand row by row": touched.T,
        "patches from the last to the first": touched[::-1, ::-1],
        "patches that the thing does not touch": ~touched,
    }


def shares(weights: np.ndarray, thing: np.ndarray, size: int) -> Named:
    """Return wrong shares of a square picture."""
    touched, covered = _touched(thing, size).ravel(), _covered(thing, size)
    right, best = weights @ touched, weights.argmax(axis=1)
    return {f"count {what}": weights @ patches.ravel() for what, patches in _others(thing, size).items()} | {
        "count the pixels of the thing: a weight belongs to a whole patch, which counts if the thing touches it": (
            weights @ covered
        ),
        "count each pixel of the thing with its patch's whole weight: a patch counts once": weights @ covered * size**2,
        "are means over the thing's patches, and must be sums": right / touched.sum(),
        "are the largest weight on the thing, and must be the sum": (weights * touched).max(axis=1),
        "are 1 where the largest weight is on the thing, else 0": touched[best].astype(float),
        "are divided by the share by chance: both come back": right / touched.mean(),
        "have the share by chance subtracted: both come back": right - touched.mean(),
        "compare the thing with the rest: it is its share of all": right / (1 - right),
        "are the mean over the words: each has its own": right * 0 + right.mean(),
        "are the share by chance at each word": right * 0 + touched.mean(),
        "are those of the words in the reverse order": right[::-1],
        "are sums of squared weights": weights**2 @ touched,
        "are in percent": 100 * right,
        "are divided by the number of patches": right / weights.shape[1],
    }


def _covered(thing: np.ndarray, size: int) -> np.ndarray:
    return _cut(thing, size).mean(axis=(1, 3)).ravel()


def chances(weights: np.ndarray, thing: np.ndarray, size: int) -> Named:
    """Return wrong shares by chance of a square picture."""
    touched = _touched(thing, size)
    return {f"counts {what}": patches.mean() for what, patches in _others(thing, size).items()} | {
        "is the thing's part of the pixels: an even look has 1/N on each patch that it touches": thing.mean(),
        "is the number of the thing's patches: divide by all": touched.sum(),
        "is 1 over the number of the thing's patches": 1 / touched.sum(),
        "is the number of the thing's patches per pixel": touched.sum() / thing.size,
        "is the mean of the shares: an even look does not depend on the weights": (weights @ touched.ravel()).mean(),
        "is in percent": 100 * touched.mean(),
        "is 1/2": 0.5,
    }


# --- The contrastive loss ---------------------------------------------------------------------------------------


def _own(x: np.ndarray, axis: int = 1) -> Any:
    """The mean of −log softmax at each row's own column."""
    return -np.diag(log_softmax(x, axis)).mean()


def _unit(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows, divided by their lengths, and these."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return x / lengths, lengths


def losses(a: np.ndarray, b: np.ndarray, log_scale: np.ndarray) -> Named:
    """Return wrong losses."""
    (u, of_a), (v, of_b), scale, B = _unit(a), _unit(b), np.exp(log_scale), len(a)
    products = u @ v.T
    logits = scale * products

    def both(x: np.ndarray) -> Any:
        return (_own(x) + _own(x, 0)) / 2

    def of_vectors(a: np.ndarray, b: np.ndarray) -> Any:
        return both(scale * (a @ b.T))

    def spread(x: np.ndarray, norms: Any) -> np.ndarray:
        return x / norms

    rows, columns, right = _own(logits), _own(logits, 0), both(logits)
    own, others = np.diag(logits), np.where(np.eye(B), -np.inf, logits)
    apart = ((u[:, None] - v) ** 2).sum(axis=-1)
    everything = np.block([[np.where(np.eye(B), -np.inf, scale * u @ u.T), logits],
                           [logits.T, np.where(np.eye(B), -np.inf, scale * v @ v.T)]])  # fmt: skip
    at = np.arange(B)
    signs = 2 * np.eye(B) - 1
    return {
        "has the rows alone, which text belongs to a picture: the columns count as much": rows,
        "has the columns alone, which picture belongs to a text: the rows count as much": columns,
        "is the sum of both directions, and must be their mean": rows + columns,
        "is the product of both directions": rows * columns,
        "is the sum over the pairs, and must be the mean": right * B,
        "has the wrong sign: it is −log": -right,
        "does not divide a and b by their lengths": of_vectors(a, b),
        "does not divide b by its lengths": of_vectors(u, b),
        "does not divide a by its lengths": of_vectors(a, v),
        "divides by the squares of the lengths": of_vectors(u / of_a, v / of_b),
        "divides by the roots of the lengths": of_vectors(u * np.sqrt(of_a), v * np.sqrt(of_b)),
        "divides by the lengths of the columns: a vector is a row": of_vectors(
            spread(a, np.linalg.norm(a, axis=0)), spread(b, np.linalg.norm(b, axis=0))
        ),
        "divides by the length of all rows together: each has its own": of_vectors(
            spread(a, np.linalg.norm(a)), spread(b, np.linalg.norm(b))
        ),
        "divides by sums of sizes: the length is the root of the sum of squares": of_vectors(
            spread(a, abs(a).sum(axis=1, keepdims=True)), spread(b, abs(b).sum(axis=1, keepdims=True))
        ),
        "divides by the largest number of each vector, and must by its length": of_vectors(
            spread(a, abs(a).max(axis=1, keepdims=True)), spread(b, abs(b).max(axis=1, keepdims=True))
        ),
        "divides by the root mean square: the length is the root of the sum of squares": of_vectors(
            u * np.sqrt(a.shape[1]), v * np.sqrt(b.shape[1])
        ),
        "has log_scale for the scale: it is exp(log_scale)": both(log_scale * products),
        "divides by exp(log_scale), and must multiply": both(products / scale),
        "has no scale": both(products),
        "has the scale twice": both(scale * logits),
        "has the scale in one direction alone": (rows + _own(products, 0)) / 2,
        "divides the scores by √C, as attention does: the scale is there for that": both(logits / np.sqrt(a.shape[1])),
        "has the probabilities of the own pairs, without the logarithm": (
            -(np.exp(np.diag(log_softmax(logits, 1))) + np.exp(np.diag(log_softmax(logits, 0)))).mean() / 2
        ),
        "has −log of the mean probability, and must have the mean of −log": (
            -np.log((np.exp(np.diag(log_softmax(logits, 1))) + np.exp(np.diag(log_softmax(logits, 0)))).mean() / 2)
        ),
        "is the share of pairs that are not found": 1 - (logits.argmax(axis=1) == at).mean(),
        "has one softmax over all B² pairs: each row, and each column, has its own": (
            -np.diag(logits - np.log(np.exp(logits).sum())).mean()
        ),
        "leaves the own pair out of the sum below: it is one of the B answers": (
            -(2 * own - np.log(np.exp(others).sum(axis=1)) - np.log(np.exp(others).sum(axis=0))).mean() / 2
        ),
        "has the mean below in place of the sum": right - np.log(B),
        "lacks the sum below: it is the mean of the own pairs' scores": -own.mean(),
        "is in bits: the logarithm is the natural one": right / np.log(2),
        "is exp of the loss": np.exp(right),
        "has squared distances for the products: near is large": both(scale * apart),
        "has minus the distances for the products": both(-scale * np.sqrt(apart)),
        "is 1 − cosine of the own pairs: the others must be pushed away": (1 - np.diag(products)).mean(),
        "has the sizes of the products: opposite vectors are not alike": both(abs(logits)),
        "has the squares of the products": both(scale * products**2),
        "is a sigmoid for each of the B² pairs": np.log1p(np.exp(-signs * logits)).mean(),
        "is a hinge: a margin of 1 to the nearest other": (
            np.maximum(0, 1 + np.array([others.max(axis=1), others.max(axis=0)]) - own).mean()
        ),
        "compares each picture with all other pictures, too": -log_softmax(everything, 1)[
            np.arange(2 * B), np.r_[at + B, at]
        ].mean(),
        "compares a with a, and must compare a with b": both(scale * (u @ u.T)),
        "compares b with b, and must compare a with b": both(scale * (v @ v.T)),
        "has the pair of row i in row i + 1 of the other: it is in row i": both(scale * (u @ np.roll(v, -1, axis=0).T)),
        "has the pairs in the reverse order: that of row i is in row i": both(scale * (u @ v[::-1].T)),
        "is that of the first pair alone": -(log_softmax(logits, 1)[0, 0] + log_softmax(logits, 0)[0, 0]) / 2,
        "is the mean over all B² places, and must be that of the own pairs": (
            -(log_softmax(logits, 1) + log_softmax(logits, 0)).mean() / 2
        ),
        "has the mean of each side subtracted: nothing is centred": of_vectors(
            _unit(a - a.mean(axis=0))[0], _unit(b - b.mean(axis=0))[0]
        ),
    }  # fmt: skip


# --- And its gradients ------------------------------------------------------------------------------------------


def gradients(a: np.ndarray, b: np.ndarray, log_scale: np.ndarray) -> Named:
    """Return wrong gradients of the first of the two."""
    (u, of_a), (v, of_b), scale, B = _unit(a), _unit(b), np.exp(log_scale), len(a)
    logits = scale * (u @ v.T)
    own = np.eye(B)
    p, q = np.exp(log_softmax(logits, 1)), np.exp(log_softmax(logits, 0))
    dlogits = (p + q - 2 * own) / (2 * B)

    def below(du: np.ndarray) -> np.ndarray:
        return (du - (du * u).sum(axis=1, keepdims=True) * u) / of_a

    def of_logits(dlogits: np.ndarray) -> np.ndarray:
        return below(scale * (dlogits @ v))

    du = scale * (dlogits @ v)
    along, right = (du * u).sum(axis=1, keepdims=True), below(du)
    whole = np.exp(logits - logits.max())
    unscaled = np.exp(log_softmax(u @ v.T, 1)) + np.exp(log_softmax(u @ v.T, 0))
    return {
        "has the wrong sign: softmax − one-hot": -right,
        "has the rows' softmax alone: the columns have one, too": of_logits((p - own) / (2 * B)),
        "has the columns' softmax alone: the rows have one, too": of_logits((q - own) / (2 * B)),
        "has the rows' softmax twice": of_logits((p - own) / B),
        "has the columns' softmax twice": of_logits((q - own) / B),
        "lacks the 1/2: the loss is the mean of both directions": 2 * right,
        "lacks the 1/B: the loss is a mean over the pairs": B * right,
        "lacks 1/(2B): the loss is a mean over the pairs and both directions": 2 * B * right,
        "has 1/B²: the loss is a mean over B pairs": right / B,
        "lacks the one-hot of the own pairs": of_logits((p + q) / (2 * B)),
        "has the one-hot once for both directions: each has its own": of_logits((p + q - own) / (2 * B)),
        "has the one-hot alone, without the softmax": of_logits(-own / B),
        "has the own pairs alone: the others are pushed away": of_logits(dlogits * own),
        "has the others alone: the own pairs pull": of_logits(dlogits * (1 - own)),
        "has 1/B for each softmax": of_logits((1 / B - own) / B),
        "has one softmax over all pairs": of_logits((whole / whole.sum() * B - own) / B),
        "has the logits themselves for the softmax": of_logits((logits - own) / B),
        "has a softmax of the products without the scale": of_logits((unscaled - 2 * own) / (2 * B)),
        "lacks the scale: logits = exp(log_scale) · u vᵀ": right / scale,
        "has the scale twice": scale * right,
        "has log_scale for the scale": right / scale * log_scale,
        "is divided by the scale, and must be multiplied": right / scale**2,
        "has dlogits transposed": below(scale * (dlogits.T @ v)),
        "has its own side's vectors: a product's gradient has the other's": below(scale * (dlogits @ u)),
        "has the other side as it was, not divided by its lengths": below(scale * (dlogits @ b)),
        "is the gradient of the unit vectors: the division by the lengths has a backward": du,
        "lacks what the length does: u changes only across itself, du − (du·u) u": du / of_a,
        "is not divided by the lengths": right * of_a,
        "is multiplied by the lengths, and must be divided": right * of_a**2,
        "is divided by the squares of the lengths": right / of_a,
        "is divided by the other side's lengths": right * of_a / of_b,
        "has (du·u) u added, and it is subtracted": (du + along * u) / of_a,
        "has half of (du·u) u": (du - along * u / 2) / of_a,
        "has du·u for each number, without the sum over the vector": (du - du * u * u) / of_a,
        "has the mean over the vector for the sum in du·u": (du - along * u / a.shape[1]) / of_a,
        "has du·u summed over all vectors: each has its own": (du - along.sum() * u) / of_a,
        "has du·u summed over the batch: it is over the vector, axis=1": (du - (du * u).sum(axis=0) * u) / of_a,
        "has the vectors as they were in du − (du·a) a: there they have length 1": (
            (du - (du * a).sum(axis=1, keepdims=True) * a) / of_a
        ),
        "has du − (du·u) a: the last one is of length 1, too": (du - along * a) / of_a,
        "has du − (du·v) v: it is its own direction that is lost": (
            (du - (du * v).sum(axis=1, keepdims=True) * v) / of_a
        ),
        "is only what the length takes away": along * u / of_a,
        "is 0": 0 * right,
        "is the mean over the batch at each row": 0 * right + right.mean(axis=0),
        "is scaled to length 1": right / np.linalg.norm(right, axis=1, keepdims=True),
    }


def slopes(a: np.ndarray, b: np.ndarray, log_scale: np.ndarray) -> Named:
    """Return wrong gradients of the logarithm of the scale."""
    (u, _), (v, _), scale, B = _unit(a), _unit(b), np.exp(log_scale), len(a)
    logits, own = scale * (u @ v.T), np.eye(B)
    rows, columns = np.exp(log_softmax(logits, 1)) - own, np.exp(log_softmax(logits, 0)) - own
    dlogits = (rows + columns) / (2 * B)
    right = (dlogits * logits).sum()
    return {
        "has the wrong sign: it is that of the scale's logarithm, not of the temperature's": -right,
        "is that of the scale: log_scale is learned, and exp has a backward": right / scale,
        "has the scale twice": right * scale,
        "has log_scale as a factor": right * log_scale,
        "is divided by log_scale": right / log_scale,
        "lacks the 1/2: the loss is the mean of both directions": 2 * right,
        "lacks the 1/B: the loss is a mean over the pairs": B * right,
        "is the mean over the pairs, and one number has touched all of them: it is the sum": right / B**2,
        "has the rows' softmax alone": (rows * logits).sum() / (2 * B),
        "has the columns' softmax alone": (columns * logits).sum() / (2 * B),
        "has the own pairs alone": (dlogits * own * logits).sum(),
        "has the other pairs alone": (dlogits * (1 - own) * logits).sum(),
        "lacks the one-hot": ((dlogits + own / B) * logits).sum(),
        "lacks the logits: a factor's gradient has what it multiplies": dlogits.sum(),
        "has sizes, without signs": abs(dlogits * logits).sum(),
        "has the products of the vectors as they were, not divided by their lengths": (
            (dlogits * (scale * a @ b.T)).sum()
        ),
    }


# --- Retrieval --------------------------------------------------------------------------------------------------


def recalls(s: np.ndarray, k: int) -> Named:
    """Return wrong shares of the rows whose own column is among the first k."""
    N = len(s)
    own = np.diag(s)[:, None]
    nearer, equal = (s > own).sum(axis=1), (s == own).sum(axis=1)
    right = np.clip((k - nearer) / equal, 0, 1)
    order = np.argsort(-s, axis=1, kind="stable")
    last = N - 1 - np.argsort(-s[:, ::-1], axis=1, kind="stable")
    at = np.arange(N)[:, None]
    own_down = np.diag(s)[None]
    down = np.clip((k - (s > own_down).sum(axis=0)) / (s == own_down).sum(axis=0), 0, 1)

    def of(k: int) -> Any:
        return np.clip((k - nearer) / equal, 0, 1).mean()

    return {
        "counts ties as found: a model for which all are alike would be perfect": (nearer < k).mean(),
        "counts ties as not found: one of them may be the own one": (nearer + equal <= k).mean(),
        "lets the first of equal columns win, so it depends on their order": (order[:, :k] == at).any(axis=1).mean(),
        "lets the last of equal columns win, so it depends on their order": (last[:, :k] == at).any(axis=1).mean(),
        "counts half for a tie: of several equal ones a part fits into the first k": (
            ((nearer + equal <= k) * 1.0 + (nearer < k)).mean() / 2
        ),
        "counts 1/(number of equals) wherever one fits: all that fit count": ((nearer < k) / equal).mean(),
        "has the mean place of the equals, and counts it as found or not": (nearer + (equal + 1) / 2 <= k).mean(),
        "leaves out rows with ties": right[equal == 1].mean() if (equal == 1).any() else -1.0,
        "goes down the columns: row i is what is asked, and its columns are the answers": down.mean(),
        "is the mean of both directions: rows ask": (right.mean() + down.mean()) / 2,
        "has found a pair only if both directions find it": (right * down).mean(),
        "has found a pair if either direction finds it": np.maximum(right, down).mean(),
        "is that of k + 1": of(k + 1),
        "is that of k − 1": of(k - 1) if k > 1 else -1.0,
        "is that of 1, whatever k is": of(1),
        "takes the smallest first: similarities are large where things are near": (
            np.clip((k - (s < own).sum(axis=1)) / equal, 0, 1).mean()
        ),
        "is divided by k: one of the k is the right one": right.mean() / k,
        "is a number of rows, and must be their share": right.sum(),
        "is the share of rows that are not found": 1 - right.mean(),
        "is in percent": 100 * right.mean(),
        "is a mean place": (nearer + (equal + 1) / 2).mean(),
        "is a median place": np.median(nearer + (equal + 1) / 2),
        "is a mean of 1/place": (1 / (nearer + (equal + 1) / 2)).mean(),
        "is not cut off: a row counts at most 1, and at least 0": ((k - nearer) / equal).mean(),
        "is not cut off above: a row counts at most 1": np.maximum((k - nearer) / equal, 0).mean(),
        "is not cut off below: a row counts at least 0": np.minimum((k - nearer) / equal, 1).mean(),
        "compares with the places of all rows together: each row has its own columns": (
            np.clip((k - (s[None] > own[:, :, None]).sum(axis=(1, 2))) / equal, 0, 1).mean()
        ),
        "compares sizes, without signs": np.clip(
            (k - (abs(s) > abs(own)).sum(axis=1)) / (abs(s) == abs(own)).sum(axis=1), 0, 1
        ).mean(),
        "is by chance: k of N": k / N,
        "is 0 or 1 for all rows together": float(right.mean() > 0.5),
        "does not count the own column among its equals": np.clip((k - nearer) / np.maximum(equal - 1, 1), 0, 1).mean(),
        "counts the own column among those before it": np.clip((k - nearer - 1) / equal, 0, 1).mean(),
    }
