"""Lesson 26: the exchange of gradients, the gather's backward, the norm of a gradient in slices."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from minitransformer.training.parallel.shards import TreeSum, share, subtrees

from ..checks import require, require_array, require_close, type_name
from ..exercise import Attempt, Wrong, exercise
from . import solutions
from .network import Network

CASES = [(8, 1), (8, 2), (8, 4), (8, 8), (8, 3), (8, 5), (8, 6), (8, 7), (6, 1), (6, 4), (7, 2), (5, 8)]
"""Pairs of a number of shards and a number of processes."""


def _add(left: Any, right: Any) -> None:
    left += right


def _tree(values: list[np.ndarray]) -> np.ndarray:
    """The sum of a whole subtree, or of all shards, along the tree."""
    tree = TreeSum[np.ndarray](_add)
    for number, value in enumerate(values):
        tree.push(number, value.copy())
    return tree.total()


def _in_order(values: list[np.ndarray]) -> np.ndarray:
    total = values[0].copy()
    for value in values[1:]:
        total += value
    return total


def _exchange(grads: Any, shares: Any, parts: Any, send: Any) -> list[Any]:
    """Simulate `minitransformer.training.parallel.shards.exchange` in all processes."""
    sums = [[(first, size, _tree(grads[first : first + size])) for first, size in subtrees(s)] for s in shares]
    totals = []
    for receiver, part in enumerate(parts):
        tree = TreeSum[np.ndarray](_add)
        for sender, made in enumerate(sums):
            for first, size, value in made:
                mine = value[part].copy() if sender == receiver else send(sender, receiver, value[part])
                tree.push(first, mine, size)
        totals.append(tree.total())
    return totals


@exercise(answer=_exchange)
def exchange(attempt: Attempt) -> None:
    for shards, size in CASES:
        _judge_exchange(attempt, shards, size)


def _judge_exchange(attempt: Attempt, shards: int, size: int) -> None:
    rng = np.random.default_rng(10 * shards + size)
    width = 96
    grads = [array.astype(np.float32) for array in rng.standard_normal((shards, width))]
    shares = [share(shards, rank, size) for rank in range(size)]
    edges = [0, *sorted(rng.choice(np.arange(1, width), size - 1, replace=False).tolist()), width]
    parts = [slice(start, stop) for start, stop in pairwise(edges)]
    network = Network(size)
    place = f"with {shards} shards and {size} process{'es' * (size > 1)},"
    try:
        result = attempt(grads, shares, parts, network.send)
    except Wrong:  # the messages before the exception may show the mistake
        network.complain(place)
        _judge_messages(network, grads, shares, parts, place)
        raise
    require(
        isinstance(result, list | tuple) and len(result) == size,
        f"{place} it must return a list of {size}, an array for each process, not {_listed(result)}",
    )
    network.complain(place)
    _judge_sums(result, grads, shares, parts, place)
    missing = _judge_messages(network, grads, shares, parts, place)
    require(
        network.messages or size == 1,
        f"{place} nothing is sent: a process has the gradients of its own shards alone, and what others have made "
        "comes to it through `send`",
    )
    for sender, receiver, first in sorted(missing):
        raise Wrong(
            f"{place} process {sender} does not send process {receiver} the sum of its subtree that begins with shard "
            f"{first}, and yet the result has it: what others have made comes through `send`"
        )
    _judge_bits(result, grads, shares, parts, place)


def _judge_sums(result: Any, grads: Any, shares: Any, parts: Any, place: str) -> None:
    """Raise `Wrong` unless the results are the sums, up to rounding."""
    total = np.asarray(np.sum(grads, axis=0, dtype=np.float64))
    for rank, (mine, part) in enumerate(zip(result, parts, strict=True)):
        who = f"{place} process {rank}"
        require(isinstance(mine, np.ndarray), f"{who} gets {type_name(mine)} and must get an array")
        require(
            len(parts) == 1 or mine.shape != total.shape,
            f"{who} gets the whole array: it wants its own slice of the sum alone, parts[{rank}]",
        )
        right = total[part]
        require(mine.shape == right.shape, f"{who} gets shape {mine.shape}, and its slice has {right.shape}")
        if np.allclose(mine, right, atol=1e-4):
            continue
        require(
            not np.allclose(mine, right / len(grads), atol=1e-4),
            f"{who} gets the mean of the shards: each gradient is weighted already, so they are only added",
        )
        own = np.sum([grads[shard][part] for shard in shares[rank]], axis=0)
        require(
            not np.allclose(mine, own, atol=1e-4),
            f"{who} gets the sum of its own shards alone: those of the others are missing",
        )
        if len(right) > len(grads):
            factors = np.linalg.lstsq(np.array(grads, np.float64)[:, part].T, mine, rcond=None)[0]
            times = float(factors[0])
            require(
                abs(times) < 1e-3 or np.abs(factors - times).max() > 1e-3,
                f"{who} gets {times:.3g} times the sum: each gradient is weighted already, and is added as it is",
            )
            missing = np.flatnonzero(np.abs(factors) < 1e-3).tolist()
            require(
                not missing or np.abs(factors - factors.round()).max() > 1e-3,
                f"{who} gets a sum without {', '.join(f'shard {each}' for each in missing)}: a process may have "
                "several subtrees, and the last may be smaller",
            )
        raise Wrong(f"{who} gets something else than the sum of all shards' gradients in its slice")


def _judge_messages(network: Network, grads: Any, shares: Any, parts: Any, place: str) -> set[tuple[int, int, int]]:
    """Raise `Wrong` unless all messages are sums of the largest subtrees, in the receiver's slice, each sent once.

    Returns the missing ones: sender, receiver, first shard.
    """
    numbers = range(len(parts))
    missing = {(s, r, first) for s in numbers for r in numbers if s != r for first, _ in subtrees(shares[s])}
    for sender, receiver, message in network.messages:
        found = [
            first
            for first, count in subtrees(shares[sender])
            if message.dtype == np.float32 and _is_slice(message, grads, first, count, parts[receiver])
        ]
        if not found:
            what = _what(message, sender, receiver, grads, shares, parts)
            raise Wrong(f"{place} process {sender} sends process {receiver} {what}")
        require(
            (sender, receiver, found[0]) in missing,
            f"{place} process {sender} sends process {receiver} the same sum twice",
        )
        missing.remove((sender, receiver, found[0]))
    return missing


def _is_slice(message: np.ndarray, grads: Any, first: int, count: int, part: slice) -> bool:
    """Return True if a message has the bits of a subtree's sum, in a slice."""
    return np.array_equal(_tree(grads[first : first + count])[part], message)


def _what(message: np.ndarray, sender: int, receiver: int, grads: Any, shares: Any, parts: Any) -> str:
    """Describe, in the end of a sentence, a message that is no sum of one of the sender's largest subtrees."""
    numbers, own, part = shares[sender], parts[sender], parts[receiver]
    if message.dtype != np.float32:
        return f"{message.dtype}: the gradients are float32, and so is what is sent"
    whole, width = len(grads[0]), part.stop - part.start
    if message.shape == (whole,):
        return f"all {whole} numbers: a receiver adds up its own slice alone, parts[{receiver}]"
    if any(_is_slice(message, grads, first, count, own) for first, count in subtrees(numbers)):
        return f"a sum in the sender's own slice: the receiver wants the slice parts[{receiver}]"
    if any(_is_slice(message, grads, first, count, own) for first, count in subtrees(shares[receiver])):
        return f"what process {receiver} has made itself: send(sender, receiver, array) is the order"
    if message.shape != (width,):
        return f"an array of shape {message.shape}, and the slice parts[{receiver}] has ({width},)"

    def is_sum(first: int, count: int) -> bool:
        return np.allclose(message, np.sum(grads[first : first + count], axis=0)[part], atol=1e-5)

    for first, count in subtrees(numbers):
        if is_sum(first, count):
            return (
                f"the sum of shards {first} to {first + count - 1} in other bits than the tree's: inside a subtree "
                "neighbours are added first, then pairs of neighbours"
            )
        smaller = [(s, c) for c in range(1, count) for s in range(first, first + count - c + 1) if is_sum(s, c)]
        if smaller:
            return (
                f"{_shards(*smaller[0])} alone, though the sender has all of shards {first} to {first + count - 1}: "
                "for a whole subtree one sum is enough"
            )
    if is_sum(numbers.start, len(numbers)):
        return (
            f"the sum of {_shards(numbers.start, len(numbers))}, which are not one subtree: that cannot be added in "
            "the tree's order any more (see `subtrees`)"
        )
    if is_sum(0, len(grads)):
        return "the sum of all shards: each process adds up its own slice, so no process waits for one that does all"
    others = [shard for shard in range(len(grads)) if shard not in numbers and is_sum(shard, 1)]
    if others:
        return f"the gradient of shard {others[0]}, which another process has made"
    return f"something that is no sum of one of its largest subtrees, {[first for first, _ in subtrees(numbers)]} …"


def _shards(first: int, count: int) -> str:
    return f"shard {first}" if count == 1 else f"shards {first} to {first + count - 1}"


def _judge_bits(result: Any, grads: Any, shares: Any, parts: Any, place: str) -> None:
    """Raise `Wrong` unless the results have the bits of the tree."""
    for rank, mine in enumerate(result):
        require(
            mine.dtype == np.float32,
            f"{place} process {rank} gets {mine.dtype}: the gradients are float32, and so is their sum",
        )

    def same(total: Callable[[int], np.ndarray]) -> bool:
        """Return True if every process has its slice of `total(rank)`."""
        return all(np.array_equal(mine, total(rank)[parts[rank]]) for rank, mine in enumerate(result))

    def in_turn(first: int) -> np.ndarray:
        """Return the sum of all subtrees' sums in order, those of process `first` before all others."""
        ranks = sorted(range(len(parts)), key=lambda rank: rank != first)
        return _in_order([_tree(grads[f : f + s]) for rank in ranks for f, s in subtrees(shares[rank])])

    exact: np.ndarray = np.asarray(np.sum(grads, axis=0, dtype=np.float64), np.float32)
    tree, in_order, backwards, halves = _tree(grads), _in_order(grads), _in_order(grads[::-1]), _halves(grads)
    if same(lambda rank: tree):
        return
    for total, why in (
        (lambda rank: in_order, "one shard after the other, ((0 + 1) + 2) + …, and not along the tree"),
        (lambda rank: backwards, "from the last shard to the first, and not along the tree"),
        (lambda rank: exact, "in float64 and rounded at the end: more exact, and other bits than the tree's"),
        (lambda rank: halves, "along another tree, cut in the middle: a subtree of 2ᵏ begins at a multiple of 2ᵏ"),
        (lambda rank: in_turn(0), "one subtree after the other, as they come: its bits depend on the processes"),
        (in_turn, "in an order that begins with each process's own: another one in every process"),
    ):
        require(not same(total), f"{place} the sum is added {why}")
    raise Wrong(
        f"{place} the sum has other bits than the tree's, ((0 + 1) + (2 + 3)) + …, though the gradients are the same"
    )


def _halves(values: list[np.ndarray]) -> np.ndarray:
    if len(values) == 1:
        return values[0]
    middle = len(values) // 2
    return _halves(values[:middle]) + _halves(values[middle:])


def _listed(result: Any) -> str:
    return f"one of {len(result)}" if isinstance(result, list | tuple) else f"one {type_name(result)}"


@exercise(answer=solutions.gather_backward)
def gather_backward(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    for widths in ([4, 4], [3, 3, 3], [5, 2, 1, 4], [6], [2, 0, 3]):
        n, whole = len(widths), sum(widths)
        douts = list(rng.standard_normal((n, whole)))
        result = attempt(douts, list(widths))
        place = f"with pieces of {', '.join(map(str, widths))}"
        require(
            isinstance(result, list | tuple) and len(result) == n,
            f"{place} it must return a list of {n}, a gradient for each process's piece, not {_listed(result)}",
        )
        starts = np.cumsum([0, *widths])
        pieces = [slice(starts[rank], starts[rank + 1]) for rank in range(n)]
        equal = [len(each) for each in np.array_split(np.zeros(whole), n)]
        require(
            [np.size(mine) for mine in result] == widths or [np.size(mine) for mine in result] != equal,
            f"{place} the gradients are {', '.join(map(str, equal))} numbers long: pieces are as wide as `widths` says",
        )
        require(
            n == 1 or not all(np.array_equal(mine, douts[0][part]) for mine, part in zip(result, pieces, strict=True)),
            f"{place} the gradients are those of the first process's copy alone: every process has one, and all count",
        )
        for rank, (mine, part) in enumerate(zip(result, pieces, strict=True)):
            name = f"{place} the gradient of piece {rank}"
            right = np.sum(douts, axis=0)[part]
            mine = require_array(mine, name)
            if mine.shape == right.shape and n > 1 and right.size:
                _judge_piece(mine, right, douts, part, rank, name)
            require_close(name, mine, right)


def first_of(numbers: list[int]) -> int:
    """The first of a list, which may be empty: for a hint that is then not given."""
    return numbers[0] if numbers else 0


def _judge_piece(mine: np.ndarray, right: np.ndarray, douts: Any, part: slice, rank: int, name: str) -> None:
    """Raise `Wrong` with the mistake that gives a wrong gradient of a piece, if it is a known one."""
    n, whole = len(douts), np.sum(douts, axis=0)
    starts = [start for start in range(len(whole) - len(mine) + 1) if np.allclose(mine, whole[start:][: len(mine)])]
    require(
        part.start in starts or not starts,
        f"{name} is that of the numbers {first_of(starts)} to {first_of(starts) + len(mine) - 1}, and piece {rank} "
        f"begins at {part.start}: the first at 0, each next one where the last has ended",
    )
    require(
        not np.allclose(mine, n * right),
        f"{name} counts each copy {n} times: the sum over the processes has them all, once",
    )
    require(
        not np.allclose(mine, douts[rank][part]),
        f"{name} is what process {rank} alone sends back: its piece went to all {n} processes, so the gradients of all "
        "copies are added",
    )
    require(
        not np.allclose(mine, right - douts[rank][part]),
        f"{name} leaves out process {rank} itself, whose own copy of the whole has a gradient too",
    )
    require(
        not np.allclose(mine, np.max(douts, axis=0)[part]),
        f"{name} is the largest of the copies' gradients: they are added",
    )
    require(
        not np.allclose(mine, right / n),
        f"{name} is the mean over the processes: a number that is used in {n} places has the sum of {n} gradients",
    )


@exercise(answer=solutions.clip_slice)
def clip_slice(attempt: Attempt) -> None:
    rng = np.random.default_rng(0)
    # In the last case a slice's norm is far below the limit, and that of the whole gradient far above.
    for clip_norm, scales in ((1.0, [3, 5, 4]), (100.0, [3, 5, 4]), (2.0, [1.0]), (1.0, [0.01, 20.0]), (1.0, [0, 2])):
        parts = [scale * rng.standard_normal(6) for scale in scales]
        norm = math.sqrt(sum(float(np.sum(part**2)) for part in parts))
        for rank in range(len(parts)):
            _judge_clipped(attempt, parts, rank, clip_norm, norm)
    zero = attempt(np.zeros(3), 1.0, lambda number: number)
    require(
        isinstance(zero, np.ndarray) and not zero.any(),
        "where the whole gradient is 0 its slice is no longer 0: is it divided by a norm of 0?",
    )


def _judge_clipped(attempt: Attempt, parts: list[np.ndarray], rank: int, clip_norm: float, norm: float) -> None:
    part, calls = parts[rank], list[Any]()
    squares = [float(np.sum(each**2)) for each in parts]
    others = sum(squares) - squares[rank]

    def sum_of_all(number: Any) -> Any:
        calls.append(np.array(number, copy=True))
        return number + others

    result = attempt(part, clip_norm, sum_of_all)
    own = math.sqrt(squares[rank])
    place = f"of {len(parts)} slices, number {rank}, of norm {own:.3g}, of a gradient of norm {norm:.3g}"
    require(
        calls,
        f"{place}, does not call sum_of_all: its own slice does not tell how long the whole gradient is, and the other "
        "processes would wait for its number for ever",
    )
    require(len(calls) == 1, f"{place}, calls sum_of_all {len(calls)} times: each process calls it once")
    given = calls[0]
    require(given.ndim == 0, f"{place}, hands sum_of_all an array of shape {given.shape}: one number is enough")
    require(
        np.isclose(given, squares[rank]) or not np.isclose(given, own),
        f"{place}, hands sum_of_all its norm: norms of slices do not add up to the norm of the whole, squares do",
    )
    require(
        np.isclose(given, squares[rank]),
        f"{place}, hands sum_of_all {float(given):.4g}: the sum of the squares of the slice is {squares[rank]:.4g}",
    )
    result = require_array(result)
    require(result.shape == part.shape, f"{place}, becomes shape {result.shape} and must keep {part.shape}")
    scale = min(1.0, clip_norm / norm)
    if own:
        alone, stretched, squared = min(1.0, clip_norm / own), clip_norm / norm, min(1.0, clip_norm / norm**2)
        if not np.allclose(result, scale * part):
            require(
                not np.allclose(result, alone * part),
                f"{place}, is scaled by its own norm: then slices are scaled by different factors, and the direction "
                "of the whole gradient changes",
            )
            require(
                scale == stretched or not np.allclose(result, stretched * part),
                f"{place}, is stretched to {clip_norm:g}: clip only what is longer",
            )
            require(
                not np.allclose(result, squared * part),
                f"{place}, is scaled by the square of the norm: is the root taken?",
            )
            require(
                not np.allclose(result, norm / clip_norm * part),
                f"{place}, is multiplied by norm / clip_norm, and must be by clip_norm / norm",
            )
            require(
                not np.allclose(result, np.clip(part, -clip_norm, clip_norm)) or np.allclose(result, part),
                f"{place}, has each number clipped by itself: scale the whole, so that its direction stays",
            )
            require(
                not np.allclose(result, part), f"{place}, stays as it is, and must be scaled to {clip_norm:g} / norm"
            )
    require_close(f"{place}: what it becomes", result, scale * part)
