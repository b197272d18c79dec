"""Lesson 19: the backward of a pre-norm block, a tied table, attention with a cache, and the nucleus."""

from typing import Any

import numpy as np

from minitransformer.decoding.sampling import Sampling
from minitransformer.ops import attention_forward

from ..checks import (
    in_case,
    require,
    require_array,
    require_arrays,
    require_close,
    require_gradients,
    require_none_of,
    require_precision,
)
from ..exercise import Attempt, exercise
from . import solutions

SINGLE = 1e-6

# --- The block ------------------------------------------------------------------------------------------------

PARTS = ("the first norm", "self-attention", "the second norm", "the feed-forward network")
KINDS = ("norm", "self_attention", "norm", "feed_forward")


class _Layers:
    """Layers like those of lesson 19, each part a matrix; the caches are the numbers of the parts, 0 to 3."""

    def __init__(self, rng: np.random.Generator, width: int) -> None:
        self.matrices = rng.standard_normal((4, width, width))
        self.called: list[int] = []

    def _through(self, kind: str, dy: np.ndarray, cache: Any) -> np.ndarray:
        if not isinstance(cache, int):
            raise ValueError(f"{kind}_backward was given something that is no part of the block's cache")
        if KINDS[cache] != kind:
            raise ValueError(f"{kind}_backward was given the cache of {PARTS[cache]}: they are in the forward's order")
        self.called.append(cache)
        return dy @ self.matrices[cache]

    def norm_backward(self, dy, cache):
        return self._through("norm", dy, cache)

    def self_attention_backward(self, dout, cache):
        return self._through("self_attention", dout, cache)

    def feed_forward_backward(self, dy, cache):
        return self._through("feed_forward", dy, cache)


@exercise(answer=solutions.block_backward)
def block_backward(attempt: Attempt) -> None:
    _judge_block(attempt, 0, (2, 3, 4))
    with in_case("for one row of a single token,"):
        _judge_block(attempt, 1, (1, 1, 6))


def _judge_block(attempt: Attempt, seed: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    layers, above = _Layers(rng, shape[-1]), rng.standard_normal(shape)
    result = attempt(layers, above, (0, 1, 2, 3))
    for part, name in enumerate(PARTS):
        times = layers.called.count(part)
        name = f"{name} (number {part + 1} of the cache)"
        require(times, f"the backward of {name} is never called")
        require(times == 1, f"the backward of {name} is called {times} times, and each call adds to gradients")
    norm1, attention, norm2, feed_forward = layers.matrices
    right = _block(above, norm1, attention, norm2, feed_forward)
    result = require_array(result)
    require(result.shape == shape, f"dx has shape {result.shape} and must have that of the block's output, {shape}")
    past_first = above + above @ feed_forward @ norm2  # the gradient after the second residual connection
    through_attention = past_first @ attention @ norm1
    for likely, wrong in _block_mistakes(above, layers.matrices, past_first, through_attention).items():
        require(not np.allclose(result, wrong), f"dx is {likely}")
    require(
        layers.called == [3, 2, 1, 0],
        f"the parts are taken in the order {', '.join(str(part + 1) for part in layers.called)} of the cache: a "
        "backward goes through the forward from its end",
    )
    require_close("dx", result, right)


def _block(dx, norm1, attention, norm2, feed_forward):
    dx = dx + dx @ feed_forward @ norm2
    return dx + dx @ attention @ norm1


def _block_mistakes(above, matrices, past_first, through_attention) -> dict[str, np.ndarray]:
    norm1, attention, norm2, feed_forward = matrices
    dh = above @ feed_forward @ norm2
    post = (above @ norm2) @ (np.eye(len(norm2)) + feed_forward)
    return {
        "what comes through the sub-layers alone: what passes by them is to be added, twice": dh @ attention @ norm1,
        "what comes through self-attention: what passes by it is to be added": through_attention,
        "what comes through the feed-forward network, taken on through self-attention: what passes by the "
        "feed-forward network is to be added": dh + dh @ attention @ norm1,
        "what there is if self-attention gets the gradient of the block's output: between the two stands the "
        "feed-forward network's residual connection": past_first + above @ attention @ norm1,
        "what there is if the gradient of the block's output passes by self-attention: what passes by it is the sum, "
        "with the feed-forward network's share": above + through_attention,
        "the backward of a post-norm layer, LayerNorm(x + f(x)): here the norm stands before f, and not on the "
        "residual stream": ((post @ norm1) @ (np.eye(len(norm1)) + attention)),
        "what there is if only what passes by goes through the norm: the norm stands on the way through the "
        "sub-layer": _crossed(above, matrices),
        "what there is if the sum goes through the norm too: no norm stands on the residual stream": _summed(
            above, matrices
        ),
        "what there is if the gradient from above is added once more at the end: the residual stream has handed it on "
        "already": (above + past_first + through_attention),
        "what there is if self-attention gets the feed-forward network's share alone: it gets the whole sum": (
            above + dh + dh @ attention @ norm1
        ),
        "what there is if the feed-forward network's share goes on to self-attention alone: it stays in the sum too": (
            above + dh @ attention @ norm1
        ),
        "what there is if the gradient of the norm's output passes by: what passes by a sub-layer is the gradient that "
        "came, before the feed-forward network and before self-attention": _inner_stream(above, matrices),
        "a mean of the two ways: gradients add, they are not averaged": 0.25 * (past_first + through_attention),
        "what there is if what comes through self-attention is subtracted: gradients add": past_first
        - through_attention,
        "what there is if what comes through self-attention counts twice": past_first + 2 * through_attention,
        "what there is if what passes by the feed-forward network counts twice": (
            (above + past_first) @ (np.eye(len(norm1)) + attention @ norm1)
        ),
    }


def _crossed(dx, matrices):
    norm1, attention, norm2, feed_forward = matrices
    dx = dx @ norm2 + dx @ feed_forward
    return dx @ norm1 + dx @ attention


def _inner_stream(dx, matrices):
    norm1, attention, norm2, feed_forward = matrices
    dx = dx @ feed_forward @ (np.eye(len(norm2)) + norm2)
    return dx @ attention @ (np.eye(len(norm1)) + norm1)


def _summed(dx, matrices):
    norm1, attention, norm2, feed_forward = matrices
    dx = (dx + dx @ feed_forward) @ norm2
    return (dx + dx @ attention) @ norm1


# --- The table ------------------------------------------------------------------------------------------------


@exercise(answer=solutions.tied_backward)
def tied_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    ids = np.array([[1, 4, 1, 0], [4, 1, 6, 1], [2, 2, 2, 5]])  # some ids occur twice, in one row or in several
    _judge_tied(attempt, rng, ids, V=7, C=3, longest=6)
    with in_case("for one row of two tokens, with positions for no more,"):
        _judge_tied(attempt, rng, np.array([[3, 0]]), V=5, C=4, longest=2)
    with in_case("for a row of one token, which the vocabulary has last,"):
        _judge_tied(attempt, rng, np.array([[8]]), V=9, C=2, longest=12)


class _Stack:
    """A stack x (B, T, C) → tanh(x) @ matrix, mixed over positions."""

    def __init__(self, rng: np.random.Generator, T: int, C: int) -> None:
        self.matrix, self.mix = rng.standard_normal((C, C)), np.tri(T) * rng.standard_normal((T, T))
        self.received: list[np.ndarray] = []

    def forward(self, x):
        self.active = np.tanh(x)
        return self.mix @ self.active @ self.matrix

    def backward(self, dhidden):
        if np.shape(dhidden) != self.active.shape:
            raise ValueError(
                f"stack_backward was given shape {np.shape(dhidden)}, expected that of hidden, {self.active.shape}"
            )
        self.received.append(np.array(dhidden))
        return (self.mix.T @ dhidden @ self.matrix.T) * (1 - self.active**2)


def _judge_tied(attempt: Attempt, rng, ids: np.ndarray, V: int, C: int, longest: int) -> None:
    T = ids.shape[1]
    table, positions = rng.standard_normal((V, C)), rng.standard_normal((longest, C))
    stack = _Stack(rng, T, C)

    def forward(table, positions):
        hidden = stack.forward(table[ids] + positions[:T])
        return hidden @ table.T, (hidden, table, positions)

    def backward(dlogits, cache):
        return attempt(dlogits, *cache, ids, stack.backward)

    logits, cache = forward(table, positions)
    dlogits = rng.standard_normal(logits.shape)
    found = backward(dlogits, cache)
    dtable, dpositions = require_arrays(found, "dtable", "dpositions")
    require(stack.received, "stack_backward is never called: the look-up lies below the stack")
    require(
        len(stack.received) == 1,
        f"stack_backward is called {len(stack.received)} times, and each call adds to the gradients of the blocks",
    )
    dhidden = dlogits @ table
    require(
        np.allclose(stack.received[0], dhidden),
        "stack_backward gets something else than the gradient of hidden: logits = hidden @ tableᵀ, so it is "
        "dlogits @ table",
    )
    dx = stack.backward(dhidden)
    _name_table_mistakes(dtable, dlogits, cache, ids, dx)
    _name_position_mistakes(dpositions, dx, positions, dhidden, ids)
    require_gradients(forward, backward, {"table": table, "positions": positions})


def _name_table_mistakes(dtable, dlogits, cache, ids, dx) -> None:
    hidden, table, positions = cache
    C = table.shape[1]
    looked_up = table[ids] + positions[: ids.shape[1]]
    above = np.einsum("btv,btc->vc", dlogits, hidden)
    below, once = np.zeros_like(table), np.zeros_like(table)
    np.add.at(below, ids, dx)
    once[ids] += dx
    right = above + below
    require(
        dtable.shape == table.shape,
        f"dtable has shape {dtable.shape} and must have that of the table, (V, C) = {table.shape}",
    )
    replaced = above.copy()
    replaced[ids] = dx
    for likely, wrong in (
        ("is that of the output layer alone: the same table is looked up below the stack, and the two parts add",
         above),
        ("is that of the look-up alone: the same table makes the logits, and the two parts add", below),
        ("counts each token of the look-up once: `dtable[ids] += dx` keeps one of several (lesson 02)", above + once),
        ("has the look-up's part where its tokens stand and the output layer's elsewhere: the two parts add",
         replaced),
        ("has the look-up's part times √C: GPT does not scale what it looks up", above + np.sqrt(C) * below),
        ("is the mean of its two parts: they add", right / 2),
        ("has the look-up's part with the wrong sign: both parts add", above - below),
        ("has the gradient of hidden where that of the stack's input belongs: it goes through the stack first",
         _looked_up(above, ids, dlogits @ table)),
        ("has what was looked up where hidden belongs: the logits are made above the stack",
         below + np.einsum("btv,btc->vc", dlogits, looked_up)),
        ("has the last position's logits alone: every position has predicted",
         below + dlogits[:, -1].T @ hidden[:, -1]),
        ("has the look-up's part in the rows of other tokens: id i is row i",
         above + np.roll(below, 1, axis=0)),
        ("counts the output layer's part twice", above + right),
        ("counts the look-up's part twice", right + below),
        ("has the mean of a token's places: the gradients of all its places add",
         above + below / np.maximum(np.bincount(ids.ravel(), minlength=len(table)), 1)[:, None]),
    ):  # fmt: skip
        require(not np.allclose(dtable, wrong) or np.allclose(wrong, right), f"dtable {likely}")
    require_precision("dtable", dtable, right)
    require_close(
        "dtable", dtable, right, factors={"a mean over the positions: dlogits has that in it already": 1 / ids.size}
    )


def _looked_up(above, ids, dx):
    total = above.copy()
    np.add.at(total, ids, dx)
    return total


def _name_position_mistakes(dpositions, dx, positions, dhidden, ids) -> None:
    B, T, _ = dx.shape
    require(
        dpositions.shape == positions.shape,
        f"dpositions has shape {dpositions.shape} and must have that of positions, (longest, C) = {positions.shape}: "
        "positions beyond T were not used, so their gradient is 0",
    )
    right = np.zeros_like(positions)
    right[:T] = dx.sum(axis=0)
    last = np.zeros_like(positions)
    last[:T] = dx[-1]
    require(
        B == 1 or not np.allclose(dpositions, last),
        "dpositions is that of the last row of the batch: every row has position 0, so the rows add",
    )
    late = np.zeros_like(positions)
    late[len(positions) - T :] = dx.sum(axis=0)
    require(
        len(positions) == T or not np.allclose(dpositions, late),
        "dpositions has its numbers in the last rows: the forward takes positions[:T]",
    )
    early = np.zeros_like(positions)
    early[:T] = dhidden.sum(axis=0)
    require(
        not np.allclose(dpositions, early),
        "dpositions is made of the gradient of hidden: positions are added below the stack, so of that of its input",
    )
    by_ids, alike, first = (np.zeros(positions.shape) for _ in range(3))
    np.add.at(by_ids, ids.clip(0, len(positions) - 1), dx)
    alike[:T], first[:T] = dx.sum(axis=(0, 1)), dx[0]
    mistakes = {
        "has its numbers in the rows of the tokens' ids: a position's row is its place in the text": by_ids,
        "adds up over the places too: each place has a row of its own": alike,
        "is that of the first row of the batch: every row has position 0, so the rows add": first,
    }
    require_none_of("dpositions", dpositions, right, mistakes)
    require_close("dpositions", dpositions, right, factors={"a mean over the rows of the batch: they add": 1 / B})


# --- The cache ------------------------------------------------------------------------------------------------


def _cached_attention(query, key, value, keys, values):
    keys, values = np.concatenate([keys, key], axis=2), np.concatenate([values, value], axis=2)
    return attention_forward(query, keys, values, causal=True)[0], keys, values


@exercise(answer=_cached_attention)
def cached_attention(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    B, H, D, Dv = 2, 3, 4, 5
    query, key = rng.standard_normal((2, B, H, 7, D))
    value = rng.standard_normal((B, H, 7, Dv))
    whole = attention_forward(query, key, value, causal=True)[0]
    for pieces in ((7,), (1, 1, 5), (3, 4), (2, 3, 2)):
        keys, values = np.zeros((B, H, 0, D)), np.zeros((B, H, 0, Dv))
        start = 0
        for n in pieces:
            new = slice(start, start + n)
            with in_case(f"with {n} new position{'s' * (n > 1)} and {start or 'none'} in the cache,"):
                arguments = query[:, :, new], key[:, :, new], value[:, :, new], keys, values
                mixed, keys, values = _judge_piece(attempt, arguments, key, value, start + n)
                _name_cache_mistakes(mixed, arguments, start, n)
                require_close("mixed", mixed, whole[:, :, new])
            start += n
    _judge_large_scores(attempt, query, key, value)
    with in_case("with 70 positions in the cache and 3 new ones,"):
        many = [rng.standard_normal((1, 2, time, 6)) for time in (3, 3, 3, 70, 70)]
        require_close(
            "mixed", require_arrays(attempt(*many), "mixed", "keys", "values")[0], _cached_attention(*many)[0]
        )


def _judge_large_scores(attempt: Attempt, query, key, value) -> None:
    """Raise `Wrong` for a wrong softmax of large scores.

    In the first row one head has scores of both signs; another has negative ones, larger at later keys.
    """
    query, key = query.copy(), key.copy()
    query[0, 0] *= 1e4
    query[0, 1], key[0, 1, :, 0] = [-1e4, 0, 0, 0], 5 - 0.3 * np.arange(7)
    arguments = query[:, :, 3:], key[:, :, 3:], value[:, :, 3:], key[:, :, :3], value[:, :, :3]
    with in_case("where two heads' scores are in the thousands,"):
        mixed, right = (
            require_arrays(attempt(*arguments), "mixed", "keys", "values")[0],
            _cached_attention(*arguments)[0],
        )
        require(
            np.isfinite(mixed[1]).all() or not np.isfinite(mixed[0, 0]).any(),
            "mixed of the other heads is NaN: each row of scores has a largest of its own, which the softmax subtracts",
        )
        require(
            np.isfinite(mixed[0, 1]).all() or not np.isfinite(mixed[0, 0]).all(),
            "mixed of a head whose scores are all far below 0 is NaN: the softmax subtracts the largest of the scores "
            "that a position sees, so mask first, and subtract then",
        )
        require(
            np.isfinite(mixed).all(),
            "mixed holds NaN or infinity: the softmax subtracts each row's own largest score before the exponential "
            "(lesson 01)",
        )
        require_close("mixed", np.delete(mixed, 1, axis=1), np.delete(right, 1, axis=1))
        require(
            np.allclose(mixed[:, 1], right[:, 1]),
            "a position sees what stands behind it if its own scores are very negative: put −∞ there, and not another "
            "number, since a score may be below it",
        )
        require_close("mixed", mixed, right)


def _judge_piece(attempt: Attempt, arguments, key, value, filled: int) -> list[np.ndarray]:
    found = require_arrays(attempt(*arguments), "mixed", "keys", "values")
    *_, old_keys, old_values = arguments
    n = arguments[0].shape[2]
    for name, grown, every, old in zip(
        ("keys", "values"), found[1:], (key, value), (old_keys, old_values), strict=True
    ):
        right = every[:, :, :filled]
        require(
            grown.shape == right.shape,
            f"the new {name} have shape {grown.shape} and must have {right.shape}: the cache grows by the new "
            "positions, on axis 2",
        )
        mistakes = {
            "has the new positions before the old ones: they come last": (
                np.concatenate([right[:, :, filled - n :], old], axis=2)
            ),
            "has the newest position first: positions stay in the order of the text": right[:, :, ::-1],
            "has the new positions last, and in the reverse order": (
                np.concatenate([old, right[:, :, filled - n :][:, :, ::-1]], axis=2)
            ),
        }
        require_none_of(f"the cache of {name}", grown, right, mistakes)
        require_close(f"the cache of {name}, in which the new positions come last,", grown, right)
    return found


def _name_cache_mistakes(mixed, arguments, start: int, n: int) -> None:
    query, key, value, keys, values = arguments
    keys, values = np.concatenate([keys, key], axis=2), np.concatenate([values, value], axis=2)
    right = _cached_attention(*arguments)[0]
    if mixed.shape != right.shape:
        require_close("mixed", mixed, right)
    total, D = keys.shape[2], query.shape[-1]

    def softmax(mask, divisor=D**0.5, hidden=-np.inf):
        scores = np.where(mask, query @ keys.swapaxes(-1, -2) / divisor, hidden)
        with np.errstate(invalid="ignore"):
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            return weights / weights.sum(axis=-1, keepdims=True)

    def attended(mask, **options):
        return softmax(mask, **options) @ values

    own = np.tri(n, total, start, dtype=bool)
    for likely, wrong in (
        ("lets each new position see all others: also in a piece a position must not see those behind it",
         attended(np.True_)),
        ("has the triangle at the top left: row i of the new positions is position t + i, and sees t + i + 1 keys",
         attended(np.tri(n, total, dtype=bool))),
        ("sees one position too far: row i of the new ones sees t + i + 1 keys", attended(np.tri(n, total, start + 1))),
        ("leaves each position out of what it sees: it attends to itself too", attended(np.tri(n, total, start - 1))),
        ("sees the new positions alone: the keys in the cache are what came before them",
         attended(own & (np.arange(total) >= start))),
        ("lets a new position see the cache and not the new ones before it",
         attended((np.arange(total) < start) | np.eye(n, total, start, dtype=bool))),
        ("lets all new positions see the first of them and no other",
         attended(np.broadcast_to(np.arange(total) <= start, own.shape))),
        ("has scores of 0 where a position must not look, which is no small score: put −∞ there",
         attended(own, hidden=0.0)),
        ("is masked after the softmax, so that a row of weights no longer sums to 1: mask the scores",
         (softmax(np.True_) * own) @ values),
        ("has scores that are not divided: divide by √D", attended(own, divisor=1.0)),
        ("has scores divided by D: divide by √D", attended(own, divisor=D)),
        ("has scores divided by the root of the number of keys: divide by √D, the width of queries and keys",
         attended(own, divisor=total**0.5)),
        ("has scores multiplied by √D: divide by it", attended(own, divisor=D**-0.5)),
        ("has weights that are not divided by their sum", _unshared(query, keys, own) @ values),
        ("has the rows of the mask in the reverse order: row i of the new ones sees t + i + 1 keys",
         attended(own[::-1])),
        ("mixes the keys, and must mix the values", _alike(softmax(own) @ keys, value)),
        ("has scores divided by √Dv: divide by √D, the width of queries and keys",
         attended(own, divisor=value.shape[-1] ** 0.5)),
    ):  # fmt: skip
        same = np.allclose(wrong, right) or not np.isfinite(wrong).all()
        require(same or not np.allclose(mixed, wrong), f"mixed {likely}")


def _unshared(query, keys, own):
    """The exponentials of a softmax, relative to the largest of each row."""
    scores = np.where(own, query @ keys.swapaxes(-1, -2) / query.shape[-1] ** 0.5, -np.inf)
    return np.exp(scores - scores.max(axis=-1, keepdims=True))


def _alike(array, value):
    """The array, or NaN where its width is not the values'."""
    return array if array.shape[-1] == value.shape[-1] else np.full((*array.shape[:-1], value.shape[-1]), np.nan)


# --- The nucleus ----------------------------------------------------------------------------------------------


def _top_p(logits, p):
    sampling = Sampling(top_p=p)
    return np.stack([sampling.probabilities(row, np.array([], int)) for row in logits])


@exercise(answer=_top_p)
def top_p(attempt: Attempt) -> None:
    def kept(logits, p):
        found = require_array(attempt(logits, p))
        require(
            found.shape == logits.shape,
            f"it returns shape {found.shape} and must return the probability of each token, (B, V) = {logits.shape}",
        )
        require(not np.isneginf(found).any(), "the result holds −∞: it must hold probabilities, and 0 for what is cut")
        return found

    shares = np.array([[0.05, 0.4, 0.25, 0.1, 0.2]])
    logits = np.log(shares) + 3.0
    for p, right in ((0.5, [0, 0.4, 0.25, 0, 0]), (0.7, [0, 0.4, 0.25, 0, 0.2])):
        found = kept(logits, p)
        right = np.array([right]) / np.sum(right)
        with in_case(f"for probabilities 0.05, 0.4, 0.25, 0.1, 0.2 and p = {p},"):
            require(
                np.isfinite(found).all(),
                "it returns NaN, as 0 / 0 gives where nothing is kept: the sum of the best tokens must reach p, and "
                "not each token's own probability",
            )
            _name_nucleus_mistakes(found, shares, right, p)
            require_close("what it returns", found, right)
    _check_edges(kept, logits, shares)
    rng = np.random.default_rng(0)
    for B, V, spread in ((4, 9, 1.0), (3, 50, 2.0), (2, 300, 0.5), (1, 1, 1.0)):
        rows = spread * rng.standard_normal((B, V))
        rows[0] *= 3  # a sharper distribution, which keeps fewer tokens
        for p in (0.3, 0.55, 0.95, 1.0):
            with in_case(f"for {B} row{'s' * (B > 1)} of {V} and p = {p},"):
                found = kept(rows, p)
                require(
                    p < 1 or found.all(),
                    f"{np.count_nonzero(found == 0)} tokens are cut: all are to be kept, also where rounding leaves "
                    "their sum below 1",
                )
                require_close("what it returns", found, _top_p(rows, p))
    one_more = [
        np.count_nonzero(kept(np.zeros((1, V)), n / V)) == n + 1 for V, n in ((2, 1), (4, 1), (4, 2), (8, 3), (16, 8))
    ]
    require(
        not all(one_more),
        "where the best tokens sum to exactly p, as two of four equal ones do with p = 0.5, one more is kept: a token "
        "is kept if those before it sum to less than p",
    )
    equal = kept(np.zeros((1, 8)), 0.45)
    require(
        np.count_nonzero(equal) == 4 and np.allclose(equal[equal > 0], 0.25),
        f"of 8 equal tokens and p = 0.45 {np.count_nonzero(equal)} are kept, and the fewest that sum to p are 4, "
        "whichever",
    )


def _best(logits, count: int):
    """The probabilities of the best `count` tokens of each row, 0 for all others."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    least = np.sort(exponentials, axis=-1)[:, -count, None]
    return np.where(exponentials >= least, exponentials, 0) / np.where(exponentials >= least, exponentials, 0).sum(
        axis=-1, keepdims=True
    )


def _check_edges(kept, logits, shares) -> None:
    first = kept(logits, 0.1)
    require(
        np.allclose(first, [[0, 1, 0, 0, 0]]),
        "with p = 0.1 and a best token of probability 0.4 that token alone must be left, with probability 1: the "
        "fewest tokens that sum to p or more, so at least one",
    )
    require_close("with p = 1, which keeps all, what it returns", kept(logits, 1.0), shares)
    cut = logits.copy()
    cut[0, [0, 3]] = -np.inf
    right = np.array([[0, 0.4, 0.25, 0, 0.2]]) / 0.85
    require_close(
        "where two logits are −∞ (another rule has cut them) and p = 1, what it returns", kept(cut, 1.0), right
    )
    two = np.concatenate([logits, logits[:, ::-1] * 3])
    case, right = "for two rows, each with a nucleus of its own, what it returns", _top_p(two, 0.7)
    counts = np.count_nonzero(right, axis=-1)
    mistakes = {
        f"keeps as many tokens in each row: {why}": _best(two, count)
        for why, count in (
            ("the count of the row that needs most", counts.max()),
            ("the count of the row that needs fewest", counts.min()),
            ("the mean count", round(counts.mean())),
        )
    }
    require_none_of(case, kept(two, 0.7), right, mistakes)
    require_close(case, kept(two, 0.7), right)
    for off in (3e3, -3e3):
        require_close(f"with logits near {off:+,.0f}, what it returns", kept(logits + off, 0.7), kept(logits, 0.7))
    apart = kept(np.concatenate([logits + 3e3, logits - 3e3]), 0.7)
    require(
        np.isfinite(apart).all(),
        "with a row near +3,000 and one near −3,000 it returns NaN: subtract each row's own largest logit",
    )
    require_close(
        "with a row near +3,000 and one near −3,000, what it returns", apart, np.repeat(kept(logits, 0.7), 2, axis=0)
    )


def _name_nucleus_mistakes(found, shares, right, p: float) -> None:
    order = np.argsort(-shares[0])
    descending = shares[0, order]
    cumulative = np.cumsum(descending)
    fewer = np.zeros_like(shares)
    fewer[0, order[cumulative <= p]] = descending[cumulative <= p]
    raw = np.where(right > 0, shares, 0)
    sorted_out = np.sort(right, axis=-1)[:, ::-1]
    low = np.zeros_like(shares)
    ascending = order[::-1]
    low[0, ascending] = np.where(np.cumsum(shares[0, ascending]) - shares[0, ascending] < p, shares[0, ascending], 0)
    unsorted = np.where(np.cumsum(shares, axis=-1) - shares < p, shares, 0)
    ordered = np.where(cumulative - descending < p, descending, 0)  # the kept probabilities, in descending order
    again = ordered[order] / ordered.sum()
    unmoved = np.where(ordered > 0, shares, 0)
    rest = np.zeros_like(shares)
    rest[0, order] = np.where(cumulative - descending < 1 - p, descending, 0)
    flat = np.exp(np.where(right > 0, np.log(shares) + 3, 0))  # the exponentials of the judge's logits, 0 for the rest
    more = np.where(shares >= descending[np.count_nonzero(right)], shares, 0)
    beyond = np.where(right > 0, 0, shares)
    again_soft = np.exp(raw) / np.exp(raw).sum()
    elsewhere = np.zeros_like(shares)
    elsewhere[0, np.argsort(order)] = ordered / ordered.sum()
    for likely, wrong in (
        ("nothing is cut", shares),
        ("what is kept sums to less than p: the token with which the sum reaches p is kept too", fewer / fewer.sum()),
        ("what is kept sums to less than p: the token with which the sum reaches p is kept too", fewer),
        ("the kept probabilities are not divided by their sum: they must sum to 1", raw),
        ("the result is in the order of the probabilities, and must be in that of the tokens", sorted_out),
        ("the least probable tokens are kept: begin with the best", low / low.sum()),
        ("the first tokens of the vocabulary are kept: sort them by probability first", unsorted / unsorted.sum()),
        ("the result is put in order a second time: `order` says where each one comes from, and there it must go back",
         again[None]),
        ("what is kept is known in the order of the best, and is applied in that of the vocabulary: put it back first",
         unmoved / unmoved.sum()),
        ("the kept tokens sum to 1 − p or more: p is what is kept, not what is cut", rest / rest.sum()),
        ("more tokens are kept than the fewest that sum to p or more", more / more.sum()),
        ("what is cut is kept, and the other way round: the best tokens, until their sum reaches p, are kept",
         beyond / beyond.sum()),
        ("a softmax is taken of the kept probabilities: divide them by their sum", again_soft),
        ("the result is put back by the inverse of the order: `order` says where each one comes from", elsewhere),
        ("the kept tokens are all as likely: they keep their proportions", (right > 0) / np.sum(right > 0)),
        ("the cut tokens get a logit of 0, which is no probability of 0: that of −∞ is", flat / flat.sum()),
    ):  # fmt: skip
        require(not np.allclose(found, wrong) or np.allclose(wrong, right), likely)
    require(
        abs(found.sum() - 1) < SINGLE,
        f"the probabilities sum to {found.sum():.3f} and must sum to 1: divide what is kept by its own sum",
    )
