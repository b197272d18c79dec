"""Answers to lesson 26: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.training.parallel.shards import subtrees


def _by_recursion(grads, shares, parts, send):
    count = len(grads)

    def total(sums, first, size):
        if (first, size) in sums:
            return sums[first, size]
        left, middle = total(sums, first, size // 2), first + size // 2
        return left + total(sums, middle, size // 2) if middle < count else left

    known = [{} for _ in parts]
    for sender, numbers in enumerate(shares):
        own = {(shard, 1): grads[shard] for shard in numbers}
        for first, size in subtrees(numbers):
            for receiver, part in enumerate(parts):
                mine = total(own, first, size)[part]
                known[receiver][first, size] = mine if sender == receiver else send(sender, receiver, mine)
    return [np.array(total(sums, 0, 1 << (count - 1).bit_length())) for sums in known]


def _pairs_level_by_level(grads, shares, parts, send):
    results = []
    for receiver, part in enumerate(parts):
        level = {}
        for sender, numbers in reversed(list(enumerate(shares))):  # in whatever order they come
            for first, size in subtrees(numbers):
                sums = [grads[shard][part] for shard in range(first, first + size)]
                while len(sums) > 1:
                    sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
                level[first] = sums[0] if sender == receiver else send(sender, receiver, sums[0])
        step = 1
        while len(level) > 1:
            for first in sorted(level):
                if first % (2 * step) and first - step in level and first in level:
                    level[first - step] = level[first - step] + level.pop(first)
            step *= 2
        results.append(level[0].copy())
    return tuple(results)


def _cut_and_added(dwholes, widths):
    return list(np.split(np.add.reduce(np.stack(dwholes)), np.cumsum(widths)[:-1]))


def _by_a_factor(part, clip_norm, sum_of_all):
    squares = sum_of_all(float(part @ part))
    return part * min(1.0, clip_norm / max(squares**0.5, 1e-300))


def _after_the_root(part, clip_norm, sum_of_all):
    squares = sum_of_all(np.linalg.norm(part) ** 2)
    clipped = part.copy()
    if squares > clip_norm**2:
        clipped *= clip_norm / np.sqrt(squares)
    return clipped


RIGHT = {
    "exchange": [_by_recursion, _pairs_level_by_level],
    "gather_backward": [_cut_and_added],
    "clip_slice": [_by_a_factor, _after_the_root],
}


def _one_after_the_other(grads, shares, parts, send):
    return [_in_turn(grads)[part] for part in parts]


def _every_shard(grads, shares, parts, send):
    answer = []
    for receiver, part in enumerate(parts):
        values = {
            shard: grads[shard][part] if sender == receiver else send(sender, receiver, grads[shard][part])
            for sender, numbers in enumerate(shares)
            for shard in numbers
        }
        answer.append(_tree([values[shard] for shard in range(len(grads))]))
    return answer


def _one_sum_a_process(grads, shares, parts, send):
    answer = []
    for receiver, part in enumerate(parts):
        sums = []
        for sender, numbers in enumerate(shares):
            if numbers:
                mine = _tree([grads[shard] for shard in numbers])[part]
                sums.append(mine if sender == receiver else send(sender, receiver, mine))
        answer.append(_tree(sums))
    return answer


def _tree(values):
    while len(values) > 1:
        values = [_in_turn(values[i : i + 2]) for i in range(0, len(values), 2)]
    return values[0]


def _in_the_middle(values):
    half = len(values) // 2
    return _in_the_middle(values[:half]) + _in_the_middle(values[half:]) if half else values[0]


def _arrived(grads, shares, parts, send, order):
    """The sums of subtrees, sent as they should be, and added as `order` has them: a function of (receiver, sums)."""
    answer = []
    for receiver, part in enumerate(parts):
        sums = [
            (sender, mine if sender == receiver else send(sender, receiver, mine))
            for sender, numbers in enumerate(shares)
            for first, size in subtrees(numbers)
            for mine in [_tree(grads[first : first + size])[part]]
        ]
        answer.append(order(receiver, sums))
    return answer


def _own_first(grads, shares, parts, send):
    def order(receiver, sums):
        return _in_turn([value for sender, value in sorted(sums, key=lambda one: one[0] != receiver)])

    return _arrived(grads, shares, parts, send, order)


def _as_they_come(grads, shares, parts, send):
    return _arrived(grads, shares, parts, send, lambda receiver, sums: _in_turn([value for _, value in sums]))


def _in_a_star(grads, shares, parts, send):
    collected = []
    for sender, numbers in enumerate(shares):
        for first, size in subtrees(numbers):
            mine = _tree(grads[first : first + size])[parts[0]]
            collected.append(send(sender, 0, mine) if sender else mine)
    totals = [_tree(grads)[part] for part in parts]
    return [send(0, receiver, total) if receiver else total for receiver, total in enumerate(totals)]


def _in_turn(values):
    total = values[0].copy()
    for value in values[1:]:
        total += value
    return total


def _only_if_long(part, clip_norm, sum_of_all):
    if np.linalg.norm(part) <= clip_norm:
        return part
    return _by_a_factor(part, clip_norm, sum_of_all)


MISTAKES = r"""
[exchange]
one after the other | is _one_after_the_other | ((0 + 1) + 2) + …
from the last to the first | returns [_in_turn(grads[::-1])[part] for part in parts] | from the last shard
in float64
    returns [np.sum(grads, axis=0, dtype=np.float64).astype(np.float32)[part] for part in parts]
    more exact, and other bits
wide results | returns [total.astype(np.float64) for total in totals] | gets float64
every shard | is _every_shard | for a whole subtree one sum is enough
one sum a process | is _one_sum_a_process | which are not one subtree
its own sum first | is _own_first | an order that begins with each process's own
as they come | is _as_they_come | as they come
the sender's slice | send(sender, receiver, value[part]) → send(sender, receiver, value[parts[sender]])
    a sum in the sender's own slice
everything | send(sender, receiver, value[part]) → send(sender, receiver, value)[part] | all 96 numbers
nothing is sent | if own else send(sender, receiver, value[part]) → | nothing is sent
to itself | value[part].copy() if own else → | sends something to itself
wide messages
    send(sender, receiver, value[part]) → send(sender, receiver, value[part].astype("d")).astype("f")
    process 1 sends process 0 float64
from the other end
    send(sender, receiver, value[part]) → send(receiver, sender, value[part])
    send(sender, receiver, array) is the order
not to the last | if own else → if own or receiver == 7 else | process 0 does not send process 7
twice
    if own else send(sender, receiver, value[part]) → if own else
        send(sender, receiver, value[part]) + 0 * send(sender, receiver, value[part])
    the same sum twice
only its own | for sender, sums in enumerate(made): → for sender, sums in [(receiver, made[receiver])]:
    the sum of its own shards alone
a mean | returns [total / len(grads) for total in totals] | each gradient is weighted already
the whole for all
    for receiver, part in enumerate(parts): → for receiver, part in enumerate([slice(None) for _ in parts]):
    gets the whole array
in a star | is _in_a_star | the sum of all shards
cut in the middle
    returns [_in_the_middle(grads)[part] for part in parts] | subtree of 2ᵏ begins at a multiple
only the first subtree | for first, size, value in sums: → for first, size, value in sums[:1]: | without shard 4
one array | returns np.concatenate(totals) | it must return a list of 1
[gather_backward]
pieces one too far | np.cumsum([0, *widths]) → np.cumsum(widths) | and piece 0 begins at 0
its own copy alone
    returns [d[start : start + width] for d, start, width in zip(dwholes, edges, widths, strict=False)]
    is what process 0 alone sends back
a mean | returns [each / len(dwholes) for each in answer] | is the mean over the processes
without its own
    returns [a - d[s : s + w] for a, d, s, w in zip(answer, dwholes, edges, widths, strict=False)]
    leaves out process 0 itself
pieces of one width | returns np.array_split(total, len(widths)) | pieces are as wide as `widths` says
the whole | returns [total for _ in widths] | has shape
one array | returns total | it must return a list of 2
the first process's | total = np.sum(dwholes, axis=0) → total = dwholes[0] | those of the first process's copy alone
[clip_slice]
its own norm
    sum_of_all(np.sum(part**2)) → sum_of_all(np.sum(part**2)) * 0 + np.sum(part**2)
    the direction of the whole gradient changes
only where it is long | is _only_if_long | would wait for its number for ever
norms added | np.sqrt(sum_of_all(np.sum(part**2))) → sum_of_all(np.linalg.norm(part)) | norms of slices do not add up
the sum of the elements | np.sum(part**2) → np.sum(part) | the sum of the squares of the slice is
all squares sent | sum_of_all(np.sum(part**2)) → np.sum(sum_of_all(part**2)) | one number is enough
no root | np.sqrt(sum_of_all(np.sum(part**2))) → sum_of_all(np.sum(part**2)) | is the root taken?
always of one length | if norm > clip_norm else part → | clip only what is longer
never clipped | if norm > clip_norm else part → if norm < 0 else part | stays as it is
asked twice
    return part * → norm = np.sqrt(sum_of_all(np.sum(part**2)))\n    return part * | calls sum_of_all 2 times
the scale | returns clip_norm / norm | it must return an array
"""
