"""Lesson 29: wrong answers by the clause that names the mistake, for `require_none_of`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Ids = NDArray[np.integer]


def score(weights: Floats, ids: Ids) -> dict[str, Floats]:
    """Return wrong induction scores."""
    B, T = ids.shape
    pairs = [(b, t, [s for s in range(t) if ids[b, s] == ids[b, t]]) for b in range(B) for t in range(T)]
    again = [pair for pair in pairs if pair[2]]

    def of(key: Callable[[int, list[int]], int], among: list = again) -> Floats:
        return np.array([weights[b, :, t, key(t, same) % T] for b, t, same in among])

    def over(combine: Callable[..., Floats]) -> Floats:
        """All earlier same tokens of each token, combined."""
        return np.mean([combine(weights[b][:, t, np.array(same) + 1], axis=-1) for b, t, same in again], axis=0)

    after = of(lambda t, same: same[-1] + 1)  # (pairs, H)
    total = after.sum(axis=0)
    texts = np.array([b for b, _, _ in again])
    half = [(b, t, []) for b in range(B) for t in range(T // 2, T)]
    later = [(b, t, [s for s in range(T) if s != t and ids[b, s] == ids[b, t]]) for b in range(B) for t in range(T)]
    first = [(b, t, [s for s in range(t) if ids[0, s] == ids[b, t]]) for b in range(B) for t in range(T)]
    apart = [(b, t, same) for b, t, same in again if same[-1] + 1 < t]
    best = np.array([weights[b, :, t].argmax(axis=-1) == same[-1] + 1 for b, t, same in again])
    return {
        "is attention to the last same token itself: what came next stands one place later": (
            of(lambda t, same: same[-1]).mean(axis=0)
        ),
        "is attention two places after the last same token: it is one place": of(lambda t, s: s[-1] + 2).mean(axis=0),
        "is attention to the token before the last same one: what came next stands after it": (
            of(lambda t, same: same[-1] - 1).mean(axis=0)
        ),
        "looks after the first earlier same token, and must look after the last": (
            of(lambda t, same: same[0] + 1).mean(axis=0)
        ),
        "adds up the attention after all earlier same tokens: only the last counts": over(np.sum),
        "is a mean over all earlier same tokens of each token: only the last counts": over(np.mean),
        "takes the earlier same token that gets most: it is always the last": over(np.max),
        "has queries and keys exchanged: weights[b, h, query, key]": (
            np.mean([weights[b, :, same[-1] + 1, t] for b, t, same in again], axis=0)
        ),
        "is that of the query one place late: the token that comes again asks itself": (
            np.mean([weights[b, :, (t + 1) % T, same[-1] + 1] for b, t, same in again], axis=0)
        ),
        "is that of the query one place early: the token that comes again asks itself": (
            np.mean([weights[b, :, t - 1, same[-1] + 1] for b, t, same in again], axis=0)
        ),
        "is divided by all tokens: the mean is over those with an earlier same one": total / (B * T),
        "is divided by the length of a text: the mean is over the tokens with an earlier same one": total / T,
        "is divided by the number of texts: the mean is over the tokens with an earlier same one": total / B,
        "is a sum, and must be a mean": total,
        "is divided by one too few": total / (len(again) - 1),
        "is a mean of the texts' own means: each token counts the same": (
            np.mean([after[texts == b].mean(axis=0) for b in sorted(set(texts))], axis=0)
        ),
        "is that of the first text alone": after[texts == texts[0]].mean(axis=0),
        "is that of the last text with a token that comes again": after[texts == texts[-1]].mean(axis=0),
        "is that of the first token that comes again alone": after[0],
        "is that of the last token that comes again alone": after[-1],
        "is attention to the token before the query, of all tokens: that is another kind of head": (
            of(lambda t, same: t - 1, [pair for pair in pairs if pair[1]]).mean(axis=0)
        ),
        "is attention to the token before the query": of(lambda t, same: t - 1).mean(axis=0),
        "is attention of each token to itself": of(lambda t, same: t).mean(axis=0),
        "is attention to the first token of the text": of(lambda t, same: 0).mean(axis=0),
        "looks back by half of the text, whatever stands there: `ids` tells where the same token was": (
            of(lambda t, same: t - T // 2 + 1, half).mean(axis=0)
        ),
        "finds same tokens later in the text too: only earlier ones count": (
            of(lambda t, same: same[-1] + 1, [pair for pair in later if pair[2]]).mean(axis=0)
        ),
        "takes each token for the same as itself: only earlier ones count": (
            of(lambda t, same: t + 1, pairs).mean(axis=0)
        ),
        "compares all texts with the first one's tokens": (
            of(lambda t, same: same[-1] + 1, [pair for pair in first if pair[2]]).mean(axis=0)
        ),
        "leaves out a token that stands twice in a row: what came next is then itself, and counts": (
            of(lambda t, same: same[-1] + 1, apart).mean(axis=0)
        ),
        "is a median, and must be a mean": np.median(after, axis=0),
        "is the largest of all tokens, and must be their mean": after.max(axis=0),
        "is the smallest of all tokens, and must be their mean": after.min(axis=0),
        "counts how often the largest weight stands there: it is the mean of the weights": best.mean(axis=0),
        "is a mean of squares": (after**2).mean(axis=0),
        "is a mean of logarithms": np.log(np.maximum(after, 1e-300)).mean(axis=0),
        "is what is left of 1": 1 - after.mean(axis=0),
        "has the mean over the heads at each head": 0 * total + after.mean(),
        "has the heads in the reverse order": after.mean(axis=0)[::-1],
    }


def terms(terms: Floats, gamma: Floats, beta: Floats, w: Floats, eps: float) -> dict[str, Floats]:
    """Return wrong contributions."""
    x, N, C = terms.sum(axis=0), len(terms), terms.shape[-1]
    centred = terms - terms.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    scale = 1 / np.sqrt(variance + eps)
    right = (centred * scale * gamma) @ w

    def scaled(by: Floats | float) -> Floats:
        return (centred * by * gamma) @ w

    def logit(x: Floats) -> Floats:
        normal = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + eps)
        return (normal * gamma) @ w

    own = 1 / np.sqrt(terms.var(axis=-1, keepdims=True) + eps)
    return {
        "lack the scale of the norm": scaled(1.0),
        "lack the gain gamma": (centred * scale) @ w,
        "lack what the norm subtracts: it takes the mean off each term": (terms * scale * gamma) @ w,
        "are those of the terms as they are: the norm stands between them and the logit": terms @ w,
        "have a scale of their own for each term: frozen is that of the whole stream": scaled(own),
        "are divided by the variance, and must be by its root": scaled(scale**2),
        "are multiplied by the deviation, and must be divided": scaled(1 / scale),
        "lack eps under the root": scaled(1 / np.sqrt(variance)),
        "have eps outside of the root": scaled(1 / (np.sqrt(variance) + eps)),
        "have eps squared": scaled(1 / np.sqrt(variance + eps**2)),
        "have eps subtracted from the variance": scaled(1 / np.sqrt(variance - eps)),
        "have a variance with C − 1 in place of C": scaled(1 / np.sqrt(variance * C / (C - 1) + eps)),
        "have the scale of RMS normalisation, without a mean": scaled(
            1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
        ),
        "have one scale for all positions: each has its own": scaled(1 / np.sqrt(variance.mean() + eps)),
        "have a variance over the positions: it is over the channels": scaled(1 / np.sqrt(x.var(axis=0) + eps)),
        "have the scale of the mean of the terms: the stream is their sum": scaled(1 / np.sqrt(variance / N**2 + eps)),
        "have the scale of the first term, the embedding": scaled(own[0]),
        "have the scale of the last term": scaled(own[-1]),
        "have the scale of the stream before the last term": scaled(
            1 / np.sqrt((x - terms[-1]).var(axis=-1, keepdims=True) + eps)
        ),
        "have the stream's mean taken off each term: subtract its own": (
            ((terms - x.mean(axis=-1, keepdims=True)) * scale * gamma) @ w
        ),
        "have equal parts of the stream's mean taken off: subtract each term's own": (
            ((terms - x.mean(axis=-1, keepdims=True) / N) * scale * gamma) @ w
        ),
        "have the mean over the terms taken off": ((terms - terms.mean(axis=0)) * scale * gamma) @ w,
        "have the mean over the positions taken off": (
            ((terms - terms.mean(axis=1, keepdims=True)) * scale * gamma) @ w
        ),
        "have one mean of all channels and positions taken off": (
            ((terms - terms.mean(axis=(1, 2), keepdims=True)) * scale * gamma) @ w
        ),
        "have the mean taken off after gamma: subtract it before": (
            (terms * gamma - (terms * gamma).mean(axis=-1, keepdims=True)) * scale
        )
        @ w,
        "have beta in each of them: it is one constant": right + beta @ w,
        "have a part of beta in each of them: it is one constant": right + beta @ w / N,
        "have the constant subtracted": right - beta @ w,
        "have gamma twice": (centred * scale * gamma**2) @ w,
        "are divided by gamma": (centred * scale / gamma) @ w,
        "have the gain 1 + gamma, as Gemma's": (centred * scale * (1 + gamma)) @ w,
        "have a direction of length 1: its length counts": right / np.linalg.norm(w),
        "have the mean taken off the direction twice": (centred * scale * gamma) @ (w - w.mean()),
        "add up all terms so far: each stands alone": right.cumsum(axis=0),
        "are shares of the logit: they are to add up to it": right / right.sum(axis=0),
        "are the whole logit for each term": right.sum(axis=0) + 0 * right,
        "are what changes where a term is left out, and the norm with it: here its scale is frozen": (
            logit(x) - np.stack([logit(x - term) for term in terms])
        ),
        "are logits of each term alone, normalised by itself, with beta": logit(terms) + beta @ w,
        "are logits of all terms so far, each normalised anew: that is the logit lens": logit(terms.cumsum(axis=0)),
        "are means over the channels: the product with the direction is a sum": right / C,
        "have no sign: a term may lower a logit": np.abs(right),
        "have the terms in the reverse order": right[::-1],
        "have the positions in the reverse order": right[:, ::-1],
    }


def constant(gamma: Floats, beta: Floats, w: Floats, count: int) -> dict[str, Floats | float]:
    """Return wrong constants."""
    right = beta @ w
    return {
        "is 0, and the norm adds beta": 0.0,
        "is that of gamma, and must be that of beta": gamma @ w,
        "has the gain gamma: beta is added after it": (gamma * beta) @ w,
        "is the sum of beta, without the direction": beta.sum(),
        "is a mean over the channels: it is a sum": right / len(w),
        "is once there for each term: it is added once": count * right,
        "is divided among the terms": right / count,
        "has the mean of beta taken off": (beta - beta.mean()) @ w,
        "has the wrong sign": -right,
    }


def shares(after: Callable[[Floats], float], own: Floats, other: Floats) -> dict[str, Floats]:
    """Return wrong shares of patches."""
    T = len(own)
    before, wanted = after(own), after(other)

    def each(change: Callable[[Floats, int], None], start: Floats = own) -> Floats:
        found = []
        for t in range(T):
            patched = start.copy()
            change(patched, t)
            found.append(after(patched))
        return np.array(found)

    def put(value: Callable[[int], Floats | float]) -> Floats:
        def change(x: Floats, t: int) -> None:
            x[t] = value(t)

        return share(each(change))

    def share(values: Floats) -> Floats:
        return (values - before) / (wanted - before)

    def slices(place: Callable[[int], Any]) -> Floats:
        def change(x: Floats, t: int) -> None:
            x[place(t)] = other[place(t)]

        return share(each(change))

    def back(x: Floats, t: int) -> None:
        x[t] = own[t]

    values = before + put(lambda t: other[t]) * (wanted - before)
    right, backwards = share(values), each(back, other)
    small = put(lambda t: own[t] + 1e-5 * (other[t] - own[t])) / 1e-5
    return {
        "are the measures themselves: how much of the way to the other run's is it?": values,
        "are differences: divide them by that of the whole runs": values - before,
        "are divided by the other run's measure: it is the difference of both runs' measures": (
            (values - before) / wanted
        ),
        "are divided by the own run's measure: it is the difference of both runs' measures": (values - before) / before,
        "are the measure over the difference, without the own run's taken off": values / (wanted - before),
        "are what is missing to the other run: 0 is the own run, 1 the other": (wanted - values) / (wanted - before),
        "have the wrong sign": -right,
        "are from the other run's measure on, not from the own run's": (values - wanted) / (wanted - before),
        "begin with the other run, and put the own run's values into it": share(backwards),
        "begin with the other run, and say how much is lost": (backwards - wanted) / (before - wanted),
        "keep what was patched before: each patch begins with the own run again": slices(lambda t: slice(t + 1)),
        "patch all positions before, and not the one itself": slices(lambda t: slice(t)),
        "patch all positions from one on: it is one alone": slices(lambda t: slice(t, None)),
        "patch two neighbours: it is one position alone": slices(lambda t: slice(t, t + 2)),
        "patch the next position": slices(lambda t: (t + 1) % T),
        "patch the position before": slices(lambda t: t - 1),
        "put the other run's first position everywhere": put(lambda t: other[0]),
        "put the other run's last position everywhere": put(lambda t: other[-1]),
        "put the other run's values in the reverse order": put(lambda t: other[T - 1 - t]),
        "put zeros there: that switches a position off": put(lambda t: 0.0),
        "put ones there": put(lambda t: 1.0),
        "put the mean of the other run there": put(lambda t: other.mean(axis=0)),
        "put the mean of its channels there": put(lambda t: other[t].mean()),
        "put the mean of both runs there": put(lambda t: (own[t] + other[t]) / 2),
        "add the other run's values to the own ones: they take their place": put(lambda t: own[t] + other[t]),
        "put the difference of both runs there: the other run's value takes the place": (
            put(lambda t: other[t] - own[t])
        ),
        "add the difference twice": put(lambda t: 2 * other[t] - own[t]),
        "put the other run's value with the wrong sign there": put(lambda t: -other[t]),
        "patch a channel at all positions: a row is a position": slices(lambda t: (slice(None), t)),
        "patch the first channel alone": slices(lambda t: (t, slice(1))),
        "patch all channels but the last": slices(lambda t: (t, slice(-1))),
        "patch nothing: the copy is not what runs": 0 * right,
        "patch everything at once": 0 * right + 1,
        "are a gradient's estimate: patch the whole difference": small,
        "are divided by their sum: patches need not add up to 1": right / right.sum(),
        "have no sign: a patch may lead away from the other run": np.abs(right),
        "are cut off at 0": np.maximum(right, 0),
        "are squares": right**2,
        "stand in the reverse order": right[::-1],
        "are divided by the number of positions": right / T,
    }


def qk(query: Floats, key: Floats, value: Floats, H: int) -> dict[str, Floats]:
    """Return wrong QK circuits."""
    C, D = len(query), query.shape[1] // H

    def heads(matrix: Floats) -> Floats:
        return matrix.reshape(C, H, D).swapaxes(0, 1)  # (H, C, D)

    def apart(matrix: Floats) -> Floats:
        return matrix.reshape(C, D, H).transpose(2, 0, 1)

    def of(left: Floats, right: Floats) -> Floats:
        return left @ right.swapaxes(1, 2) / np.sqrt(D)

    q, k, v = heads(query), heads(key), heads(value)
    right = of(q, k)
    exponentials = np.exp(right - right.max(axis=-1, keepdims=True))
    return {
        "lack the scale 1/√D of the scores": right * np.sqrt(D),
        "are divided by D, and must be by its root": right / np.sqrt(D),
        "are multiplied by √D, and must be divided": right * D,
        "are divided by the root of C: it is that of a head's width D": right * np.sqrt(D / C),
        "are divided by the root of all heads' width: it is that of one head": right / np.sqrt(H),
        "have keys on the left: x_query @ QK @ x_key": right.swapaxes(1, 2),
        "are that of all heads together, for each head": 0 * right + query @ key.T / np.sqrt(D),
        "have heads whose columns lie apart: a head's columns are neighbours, h·D to (h + 1)·D": (
            of(apart(query), apart(key))
        ),
        "have queries whose columns lie apart: a head's columns are neighbours": of(apart(query), k),
        "have the keys of the next head": of(q, np.roll(k, -1, axis=0)),
        "have the keys of the head before": of(q, np.roll(k, 1, axis=0)),
        "have the keys of the first head": of(q, k[:1]),
        "have the queries of the first head": of(q[:1], k),
        "are all that of the first head": 0 * right + right[:1],
        "are products of queries with queries": of(q, q),
        "are products of keys with keys": of(k, k),
        "have the values in place of the keys": of(q, v),
        "have the values in place of the queries": of(v, k),
        "have the heads in the reverse order": right[::-1],
        "have been through a softmax: scores are linear in both vectors": (
            exponentials / exponentials.sum(axis=-1, keepdims=True)
        ),
        "are divided by their norm": right / np.linalg.norm(right, axis=(1, 2), keepdims=True),
        "add up a matrix with its transpose": right + right.swapaxes(1, 2),
        "have the wrong sign": -right,
    }


def ov(key: Floats, query: Floats, value: Floats, output: Floats, H: int) -> dict[str, Floats]:
    """Return wrong OV circuits."""
    C, D = len(value), value.shape[1] // H

    def heads(matrix: Floats) -> Floats:
        return matrix.reshape(C, H, D).swapaxes(0, 1)

    def apart(matrix: Floats) -> Floats:
        return matrix.reshape(C, D, H).transpose(2, 0, 1)

    v, rows = heads(value), output.reshape(H, D, C)
    apart_rows = output.reshape(D, H, C).swapaxes(0, 1)
    right = v @ rows
    return {
        "have the scale of the scores: values have none": right / np.sqrt(D),
        "are transposed: vectors are rows, x @ OV": right.swapaxes(1, 2),
        "are that of all heads together, for each head": 0 * right + value @ output,
        "have heads whose columns and rows lie apart: those of a head are neighbours": apart(value) @ apart_rows,
        "have values whose columns lie apart: a head's columns are neighbours": apart(value) @ rows,
        "have rows of `output` that lie apart: a head's rows are neighbours": v @ apart_rows,
        "have the rows of the next head in `output`": v @ np.roll(rows, -1, axis=0),
        "have the rows of the head before in `output`": v @ np.roll(rows, 1, axis=0),
        "have the first rows of `output` for every head": v @ rows[:1],
        "have the first head's values for every head": v[:1] @ rows,
        "are all that of the first head": 0 * right + right[:1],
        "have the keys in place of the values": heads(key) @ rows,
        "have the queries in place of the values": heads(query) @ rows,
        "have values on both sides": v @ v.swapaxes(1, 2),
        "have `output` on both sides": rows.swapaxes(1, 2) @ rows,
        "have the heads in the reverse order": right[::-1],
        "are divided by the number of heads: heads are added": right / H,
        "have what passes by the head in them: a head adds to the stream": right + np.eye(C),
        "have the wrong sign": -right,
    }


def composition(qk: Floats, ov: Floats) -> dict[str, Floats]:
    """Return wrong K-composition scores."""
    norm, C = (lambda x: np.linalg.norm(x, axis=(-2, -1))), qk.shape[-1]
    reads, writes = qk[:, None], ov[None]  # (H, 1, C, C), (1, E, C, C)
    product = reads @ writes.swapaxes(2, 3)
    sizes = norm(reads) * norm(writes)
    right = norm(product) / sizes
    return {
        "are those of queries: the earlier head's output stands on the key's side": norm(writes @ reads) / sizes,
        "lack the transpose: x_key is a row of what the earlier head wrote": norm(reads @ writes) / sizes,
        "have the earlier head's inputs on the query's side, and are to have its outputs on the key's": (
            norm(writes.swapaxes(2, 3) @ reads) / sizes
        ),
        "are not divided by the norms of both circuits": norm(product),
        "are divided by the norm of the later head's circuit alone": norm(product) / norm(reads),
        "are divided by the norm of the earlier head's circuit alone": norm(product) / norm(writes),
        "are divided by the sum of the norms, and must be by their product": (
            norm(product) / (norm(reads) + norm(writes))
        ),
        "are divided by the root of the norms' product": norm(product) / np.sqrt(sizes),
        "are divided by the squares of the norms": norm(product) / sizes**2,
        "are squares": right**2,
        "are roots": np.sqrt(right),
        "have the largest singular value of the product: the norm is Frobenius', the root of all squares": (
            np.linalg.norm(product, 2, axis=(-2, -1)) / sizes
        ),
        "have spectral norms: all are Frobenius'": np.linalg.norm(product, 2, axis=(-2, -1))
        / (np.linalg.norm(reads, 2, axis=(-2, -1)) * np.linalg.norm(writes, 2, axis=(-2, -1))),
        "have sums of sizes for norms: it is the root of the sum of squares": (
            np.abs(product).sum(axis=(-2, -1)) / (np.abs(reads).sum(axis=(-2, -1)) * np.abs(writes).sum(axis=(-2, -1)))
        ),
        "have the largest number for a norm": (
            np.abs(product).max(axis=(-2, -1)) / (np.abs(reads).max(axis=(-2, -1)) * np.abs(writes).max(axis=(-2, -1)))
        ),
        "have the trace of the product, a cosine of both matrices: the norm is Frobenius'": (
            np.trace(product, axis1=-2, axis2=-1) / sizes
        ),
        "have an elementwise product: it is that of matrices": norm(reads * writes) / sizes,
        "are less 1/√C, what random matrices have: here the score is as it is": right - C**-0.5,
        "are multiples of 1/√C, what random matrices have: here the score is as it is": right * C**0.5,
        "add up to 1 for each later head": right / right.sum(axis=1, keepdims=True),
        "add up to 1 for each earlier head": right / right.sum(axis=0),
        "have one norm of all later heads": norm(product) / (np.linalg.norm(qk) * norm(writes)),
        "have one norm of all earlier heads": norm(product) / (norm(reads) * np.linalg.norm(ov)),
        "have the later heads in the reverse order": right[::-1],
        "have the earlier heads in the reverse order": right[:, ::-1],
        "have the mean of the later heads in each row": right.mean(axis=0) + 0 * right,
    }
