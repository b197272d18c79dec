"""Answers to lesson 28: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np

from minitransformer.ops import quantized


def _as_the_package(weight, group):
    made = quantized.quantize(weight, 4, group)
    return quantized.fields(made.packed, 4), made.scales, made.zeros


def _from_what_is_kept(weight, group):
    """Levels of the scale and the minimum as float16 has them."""
    groups = weight.T.reshape(weight.shape[1], -1, group)
    minima = groups.min(axis=-1).astype(np.float16)
    scales = (np.ptp(groups, axis=-1) / 15).astype(np.float16)
    levels = np.arange(16, dtype=np.float32) * scales[..., None] + minima[..., None].astype(np.float32)
    numbers = abs(groups[..., None] - levels[..., None, :]).argmin(axis=-1)
    return numbers.astype(np.uint8), scales, minima


def _packed_by_a_product(numbers):
    return np.stack(np.split(numbers, 2, axis=-1), axis=-1) @ np.array([1, 16], np.uint8)


def _unpacked_by_a_division(packed):
    upper, lower = np.divmod(packed, np.uint8(16))
    return np.append(lower, upper, axis=-1)


def _output_by_output(dy, weight):
    rows = dy.reshape(-1, dy.shape[-1])
    dx = np.zeros(())
    for output, (packed, scales, minima) in enumerate(zip(*weight, strict=True)):
        q = np.concatenate([packed & 15, packed // 16], axis=-1).astype(float)
        column = scales[:, None] * q + minima[:, None]
        dx = dx + np.outer(rows[:, output], column)
    return dx.reshape(*dy.shape[:-1], -1).astype(dy.dtype), np.ones(len(rows), dy.dtype) @ rows


def _at_once(drafted, p, q, numbers):
    k = len(drafted)
    places = np.arange(k), np.array(drafted, int)
    refused = np.flatnonzero(numbers[:k] * q[places] >= p[:k][places])
    n = int(refused[0]) if len(refused) else k
    left = p[n] - np.minimum(p[n], q[n]) if n < k else p[k]
    edges = np.cumsum(left) / left.sum()
    return np.array([*drafted[:n], int((edges <= numbers[k]).sum())])


RIGHT = {
    "quantize": [_as_the_package, _from_what_is_kept],
    "pack": [_packed_by_a_product],
    "unpack": [_unpacked_by_a_division],
    "quantized_linear_backward": [_output_by_output],
    "accept": [_at_once],
}


def _neighbours(groups):
    return np.roll(groups, -1, axis=1)


def _restarted(drafted, p, q, numbers):
    passed = [numbers[i] * q[i, token] < p[i, token] for i, token in enumerate(drafted)]
    kept = [token for token, good in zip(drafted, passed, strict=True) if good]
    return [*kept, _accepted(drafted, p, q, numbers)[-1]]


def _draw(chances, number):
    return int(np.searchsorted(np.cumsum(chances), number, side="right"))


def _accepted(*each):
    """The solution, by a name that edits do not change: all but the last are accepted."""
    from course.lesson_28.solutions import accept

    return accept(*each)


def _count(*each):
    return [len(_accepted(*each)) - 1]


def _length(*each):
    return len(_accepted(*each)) - 1


def _drawn_alone(*each):
    return _accepted(*each)[-1:]


def _first_alone(*each):
    return _accepted(*each)[:1]


def _reversed(*each):
    return _accepted(*each)[::-1]


def _drawn_first(*each):
    *kept, new = _accepted(*each)
    return [new, *kept]


def _drawn_again(drafted, p, q, numbers):
    *kept, new = _accepted(drafted, p, q, numbers)
    return [*(_draw(row, numbers[-1]) for row, _ in zip(p, kept, strict=False)), new]


def _probabilities(drafted, p, q, numbers):
    return [float(p[i, token]) for i, token in enumerate(_accepted(drafted, p, q, numbers))]


MISTAKES = r"""
[quantize]
sixteen steps | (high - low) / 15 → (high - low) / 16 | / 16: sixteen levels have fifteen steps
fourteen steps | (high - low) / 15 → (high - low) / 14 | / 14: sixteen levels
eight bits | (high - low) / 15 → (high - low) / 255 | / 255: that is for eight bits
eight bits, one more | (high - low) / 15 → (high - low) / 256 | / 256: that is for eight bits
seven steps | (high - low) / 15 → (high - low) / 7 | / 7: four bits without a sign
eight steps | (high - low) / 15 → (high - low) / 8 | / 8: four bits have sixteen levels
four steps | (high - low) / 15 → (high - low) / 4 | the number of bits
half a step | (high - low) / 15 → (high - low) / 30 | not half of it
the range for a step | (high - low) / 15 → high - low | that is fifteen steps
the largest for the range | (high - low) / 15 → high / 15 | max / 15: the levels begin at the minimum
the largest size for the range | (high - low) / 15 → abs(groups).max(axis=-1) / 15 | max |weight| / 15
as about 0, seven | (high - low) / 15 → abs(groups).max(axis=-1) / 7 | max |weight| / 7, as of levels about 0
as about 0, eight | (high - low) / 15 → abs(groups).max(axis=-1) / 8 | max |weight| / 8, as of levels about 0
as eight bits about 0 | (high - low) / 15 → abs(groups).max(axis=-1) / 127 | max |weight| / 127
as eight bits about 0, 128 | (high - low) / 15 → abs(groups).max(axis=-1) / 128 | max |weight| / 128
twice the largest size | (high - low) / 15 → 2 * abs(groups).max(axis=-1) / 15 | wider than the group's
min less max | (high - low) / 15 → (low - high) / 15 | negative: max − min
levels for a distance | steps.astype(np.float16), → (1 / np.where(steps, steps, 1)).astype(np.float16), | upside down
one scale for all | (high - low) / 15 → np.full_like(low, (weight.max() - weight.min()) / 15) | of the whole matrix
one scale for an output
    (high - low) / 15 → (high.max(axis=1, keepdims=True) - low.min(axis=1, keepdims=True) + 0 * low) / 15
    scales are those of each output
scales of the neighbour | (high - low) / 15 → _neighbours(high - low) / 15 | neighbouring group of the same output
scales of the next output | (high - low) / 15 → np.roll(high - low, -1, axis=0) / 15
    scales are those of the neighbouring output
a standard deviation | (high - low) / 15 → groups.std(axis=-1) / 15 | the standard deviation / 15
cut along the wrong axis | weight.T.reshape(C_out, C_in // group, group) → weight.reshape(C_out, C_in // group, group)
    minima are those of groups along C_out
scales along the wrong axis
    (high - low) / 15 → np.ptp(weight.reshape(-1, low.shape[1], group)[: len(low)], axis=-1) / 15
    scales are those of groups along C_out
no minimum | low.astype(np.float16) → np.zeros_like(low, np.float16) | without a minimum the levels begin at 0
the largest for the minimum | low.astype(np.float16) → high.astype(np.float16) | the largest weight of each group
the minimum of all | low.astype(np.float16) → np.full_like(low, weight.min(), np.float16) | the smallest of the whole
the minimum of an output | low.astype(np.float16) → (low.min(axis=1, keepdims=True) + 0 * low).astype(np.float16)
    the smallest of each output
the smallest size | low.astype(np.float16) → abs(groups).min(axis=-1).astype(np.float16) | weights have signs
minus the largest size | low.astype(np.float16) → (-abs(groups).max(axis=-1)).astype(np.float16) | lay about 0
the mean | low.astype(np.float16) → groups.mean(axis=-1).astype(np.float16) | half of the weights lie below
the middle | low.astype(np.float16) → ((low + high) / 2).astype(np.float16) | the middle between
the minimum's sign | low.astype(np.float16) → (-low).astype(np.float16) | of the wrong sign: weight =
a zero point in steps | low.astype(np.float16) → (low / np.where(steps, steps, 1)).astype(np.float16) | a zero point
minima of the neighbour | low.astype(np.float16) → _neighbours(low).astype(np.float16)
    minima are those of the neighbouring group
minima of the next output | low.astype(np.float16) → np.roll(low, -1, axis=0).astype(np.float16)
    minima are those of the neighbouring output
the first weight | low.astype(np.float16) → groups[..., 0].astype(np.float16) | the first weight of each group
half a step lower | low.astype(np.float16) → (low - steps / 2).astype(np.float16) | half a step below
one step lower | low.astype(np.float16) → (low - steps).astype(np.float16) | one step below
scales in float32 | steps.astype(np.float16), → steps, | scales are float32: two bytes
minima in float32 | low.astype(np.float16) → low | minima are float32: two bytes
numbers in float | .astype(np.uint8) → | numbers are float32: they are whole numbers
numbers with a sign | .astype(np.uint8) → .astype(np.int8) | numbers are int8
numbers of eight bytes | .astype(np.uint8) → .astype(int) | numbers are int64
rounded down | + 0.5) → ) | rounded down
rounded up | np.floor( → np.ceil( | + 0.5) → ) | rounded up
rounded and then up | + 0.5) → + 1.5) | rounded, and then rounded up
no minimum subtracted | groups - low[..., None] → groups | of weight / scale: the minimum
subtracted after the division
    (groups - low[..., None]) / steps[..., None] → groups / steps[..., None] - low[..., None]
    before the division
the minimum added | groups - low[..., None] → groups + low[..., None] | so it is subtracted
multiplied | (groups - low[..., None]) / → (groups - low[..., None]) * | it is a division
from the top | np.clip(nearest, 0, 15) → 15 - nearest | counted from the largest weight down
up to 14 | np.clip(nearest, 0, 15) → np.clip(nearest, 0, 14) | cut off at 14
up to 7 | np.clip(nearest, 0, 15) → np.clip(nearest, 0, 7) | cut off at 7
from 1 | np.clip(nearest, 0, 15) → np.clip(nearest, 1, 15) | from 1 on
plus 8 | np.clip(nearest, 0, 15) → np.clip(nearest + 8, 0, 15) | 8 too large
minus 8 | np.clip(nearest, 0, 15) → np.clip(nearest - 8, 0, 15) | 8 too small
not cut off
    steps = np.where → steps, low = scales.astype("f"), minima.astype("f")\n    steps = np.where
    np.clip(nearest, 0, 15).astype(np.uint8) → nearest.astype(int).astype(np.uint8)
    beyond 15: cut off what lies outside
wrapped
    steps = np.where → steps, low = scales.astype("f"), minima.astype("f")\n    steps = np.where
    np.clip(nearest, 0, 15).astype(np.uint8) → (nearest % 16).astype(np.uint8)
    it does not begin again
another one's minimum | groups - low[..., None] → groups - _neighbours(low)[..., None]
    those of the neighbouring group's minimum
another one's scale | / steps[..., None] → / _neighbours(steps)[..., None] | those of the neighbouring group's scale
the largest scale | / steps[..., None] → / steps.max() | one scale for all, the largest
sizes | (groups - low[..., None]) → (abs(groups) - low[..., None]) | the size of a weight, without its sign
in reverse | returns numbers[..., ::-1], scales, minima | in the reverse order in each group
sorted | returns np.sort(numbers, axis=-1), scales, minima | weights keep their places
one bit less | returns numbers & 14, scales, minima | of one bit less
three bits
    np.clip(nearest, 0, 15) → np.rint((groups - low[..., None]) / (15 * steps[..., None]) * 7)
    those of three bits
a division by zero | steps = np.where(scales == 0, 1, steps) → steps = steps + 0 | with a group of zeros
packed already | returns numbers[..., : group // 2], scales, minima | not packed yet
not in groups | returns numbers.reshape(C_out, C_in), scales, minima | a group is an axis of its own
as the weight lies | returns numbers.transpose(1, 2, 0), scales, minima | outputs come first: weight.T
transposed | returns numbers.swapaxes(0, 1), scales, minima | is it transposed?
an axis of one | returns numbers, scales[..., None], minima[..., None] | keepdims has left an axis
one for an output | returns numbers, scales[:, 0], minima[:, 0] | not for each output alone
one for all | returns numbers, scales.max(), minima.min() | not one for the whole matrix
two of three | returns numbers, scales | it must return 3 arrays
[pack]
halves swapped | returns numbers[..., :half] * 16 + numbers[..., half:] | the halves are swapped
neighbours | returns numbers[..., ::2] + (numbers[..., 1::2] << 4) | neighbours share a byte: byte j
neighbours, the first one up | returns (numbers[..., ::2] << 4) + numbers[..., 1::2] | the first one in the upper half
only the first half | returns numbers[..., :half] | the second half of the group is lost
only the second half | returns numbers[..., half:] << 4 | the first half of the group is lost
not moved | numbers[..., half:] << 4 → numbers[..., half:] | is not moved up by four bits
moved by three | numbers[..., half:] << 4 → numbers[..., half:] << 3 | moved by three bits
moved by five | numbers[..., half:] << 4 → numbers[..., half:] << 5 | moved by five bits
added | returns numbers[..., :half] + numbers[..., half:] | added, and not put side by side
and for or | returns numbers[..., :half] & (numbers[..., half:] << 4) | joined by &
second half in reverse | numbers[..., half:] << 4 → numbers[..., half:][..., ::-1] << 4
    the second half is in the reverse
first half in reverse | return numbers[..., :half] → return numbers[..., :half][..., ::-1]
    the first half is in the reverse
bytes in reverse | returns answer[..., ::-1] | the bytes are in the reverse order
with a sign | returns (numbers[..., :half] - 8 & 15) + (numbers[..., half:] - 8 << 4) | taken as signed
the mask 7 | returns (numbers[..., :half] & 7) + ((numbers[..., half:] & 7) << 4) | loses its highest bit
in base 10 | returns numbers[..., :half] + 10 * numbers[..., half:] | in base 10
in base 15 | returns numbers[..., :half] + 15 * numbers[..., half:] | in base 15
both up | returns np.bitwise_or(numbers[..., :half] << 4, numbers[..., half:] << 4) | both numbers are moved up
the first half twice | returns numbers[..., :half] * 17 | the first half stands in both
the second half twice | returns numbers[..., half:] * 17 | the second half stands in both
inverted | returns ~answer | inverted
one further | returns numbers[..., :half] + (np.roll(numbers[..., half:], -1, axis=-1) << 4) | with the one after it
two bytes | returns answer.astype(np.uint16) | uint16 and must return uint8
signed bytes | returns answer.view(np.int8) | int8 and must return uint8
whole numbers of Python | returns answer.tolist() | an array, not list
a byte each | returns numbers | as many bytes as numbers
the first axis | returns numbers[: len(numbers) // 2] | only
flat | returns answer.ravel() | only the last axis is halved
bytes | returns answer.tobytes() | an array, not bytes
[unpack]
halves swapped | returns np.concatenate([packed >> 4, packed & 15], axis=-1) | the lower halves of all bytes come first
neighbours | returns np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    neighbours: all lower halves
neighbours, the upper one first
    returns np.stack([packed >> 4, packed & 15], axis=-1).reshape(*packed.shape[:-1], -1)
    neighbours, the upper one first
the mask 7 | packed & 15 → packed & 7 | is 15, not 7
the mask 31 | packed & 15 → packed & 31 | is 15, not 31
the mask 240 | packed & 15 → packed & 240 | the mask 240
no mask | packed & 15 → packed | mask them
not moved down | packed >> 4 → packed & 240 | still moved up
moved by three | packed >> 4 → packed >> 3 | moved down by three
moved by five | packed >> 4 → packed >> 5 | moved down by five
a shift with a sign | packed >> 4 → (packed.view(np.int8) >> 4).view(np.uint8) | taken as signed
the upper half in reverse | packed >> 4 → (packed >> 4)[..., ::-1] | the upper half is in the reverse
in reverse | returns answer[..., ::-1] | all numbers are in the reverse
less 8 | returns answer - np.uint8(8) | 8 is subtracted
lower ones twice | packed >> 4 → packed & 15 | both halves are the lower
upper ones twice | packed & 15 → packed >> 4 | both halves are the upper
the remainder of 15 | packed & 15 → packed % 15 | the remainder of 15
divided by 15 | packed >> 4 → packed // 15 | divided by 15
in base 10 | packed & 15 → packed % 10 | packed >> 4 → packed // 10 | the remainder of 10
the sum | packed & 15 → (packed & 15) + (packed >> 4) | the sum of both halves
inverted | returns 15 - answer | inverted
shifted up | packed >> 4 → packed << 4 | shifted up where it is down
in float32 | returns answer.astype(np.float32) | float32 and must
with a sign | returns answer.astype(np.int8) | int8 and must
eight bytes | returns answer.astype(int) | int64 and must
along the first axis | axis=-1 → axis=0 | the numbers of a group lie along
one in a byte | returns packed & 15 | there are two numbers in a byte
side by side | returns np.stack([packed & 15, packed >> 4], axis=-1) | lie along its last axis
a list | returns answer.tolist() | an array, not list
[quantized_linear_backward]
forwards | block in columns(weight): → block in [(slice(None), np.concatenate([b for _, b in columns(weight)]).T)]:
    as the forward goes
no minima | numbers + weight.minima[part, :, None] → numbers | without its minima
minima scaled | * numbers + weight.minima[part, :, None] → * (numbers + weight.minima[part, :, None]) | is not scaled
numbers alone | weight.scales[part, :, None] * numbers + weight.minima[part, :, None] → numbers | numbers q alone
no scales | weight.scales[part, :, None] * numbers → numbers | without scales
scales alone
    weight.scales[part, :, None] * numbers + weight.minima[part, :, None] → weight.scales[part, :, None] + 0 * numbers
    the scales alone
subtracted | weight.scales[part, :, None] * numbers → -weight.scales[part, :, None] * numbers | both are added
less 8 | numbers = unpack(weight.packed[part]).astype(np.float32) →
        numbers = unpack(weight.packed[part]).astype(np.float32) - 8
    the minimum takes the place
about 0
    weight.scales[part, :, None] * numbers + weight.minima[part, :, None] → weight.scales[part, :, None] * (numbers - 8)
    and here a group has a minimum
only the last block | dx += rows[:, part] @ block → dx = rows[:, part] @ block | of the last block alone
only the first block | @ block  # y → @ block; break  # y | of the first block alone
without the last block | in columns(weight): → in list(columns(weight))[: max(1, -(-C_out // 64) - 1)]:
    lacks the last block
a mean over rows | dx.reshape(*dy.shape[:-1], dx.shape[1]) → dx.reshape(*dy.shape[:-1], dx.shape[1]) / len(rows)
    is divided by the rows
a mean over outputs | dx.reshape(*dy.shape[:-1], dx.shape[1]) → dx.reshape(*dy.shape[:-1], dx.shape[1]) / C_out
    is the mean over the outputs
the bias in dx | return dx.reshape(*dy.shape[:-1], dx.shape[1]) →
        return dx.reshape(*dy.shape[:-1], dx.shape[1]) + rows.sum()
    has the bias's gradient in it
groups in reverse | groups.reshape(len(groups), -1) → groups[:, ::-1].reshape(len(groups), -1) | in the reverse order
neighbours in a byte
    [packed & 15, packed >> 4], axis=-1) →
        [(packed & 15)[..., None], (packed >> 4)[..., None]], axis=-1).reshape(*packed.shape[:-1], -1)
    whose neighbours share a byte
twice | dx += rows → dx += 2 * rows | is twice
the sign | dx += rows → dx -= rows | wrong sign
as many outputs | dx += rows → dx += C_out * rows | times what it should be
halves swapped | [packed & 15, packed >> 4] → [packed >> 4, packed & 15] | is wrong in
signed | packed >> 4 → packed.view(np.int8) >> 4 | is wrong in
dx as rows | return dx.reshape(*dy.shape[:-1], dx.shape[1]) → return dx | axes that were made one
a gradient of the weight | return dx.reshape(*dy.shape[:-1], dx.shape[1]) →
        return np.concatenate([b for _, b in columns(weight)]).T.astype(float)
    the weight is frozen
three gradients | returns answer[0], weight, answer[1] | it must return 2 arrays
exchanged | returns answer[1], answer[0] | dx and dbias are exchanged
transposed | returns answer[0].T, answer[1] | dx has shape
dx in float32 | dy.dtype) → np.float32) | which rounds
dx in float64 always | dy.dtype) → float) | dx is float64 for dy of float32
dbias in float64 always | rows.sum(axis=0) → rows.sum(axis=0, dtype=float) | dbias is float64 for dy of float32
numbers of half the bytes | rows[:, part] @ block → np.float32(rows[:, part]) @ block | off by up to
dbias of the first axis | rows.sum(axis=0) → dy.sum(axis=0) | not over the first alone
dbias for each row | rows.sum(axis=0) → dy | each row had the same bias
dbias over outputs | rows.sum(axis=0) → rows.sum(axis=1) | dbias has shape
dbias as a number | rows.sum(axis=0) → rows.sum() | dbias has shape ()
a mean for dbias | rows.sum(axis=0) → rows.mean(axis=0) | is the mean over the rows: it is their sum
no dbias | rows.sum(axis=0) → None | dbias is None
dbias 0 | rows.sum(axis=0) → np.zeros(C_out) | a bias has a gradient
dbias of the first row | rows.sum(axis=0) → rows[0].copy() | that of the first row alone
dbias of the last row | rows.sum(axis=0) → rows[-1].copy() | that of the last row alone
the largest for dbias | rows.sum(axis=0) → rows.max(axis=0) | the largest of the rows
dbias of dx | rows.sum(axis=0) → dx.sum(axis=0) | the sum of dx's rows
dbias in float32 | rows.sum(axis=0) → rows.sum(axis=0).astype(np.float32) | dbias must be
dbias as a row | rows.sum(axis=0) → rows.sum(axis=0, keepdims=True) | and must have
the whole matrix
    in columns(weight): → in [(slice(None), np.concatenate([b for _, b in columns(weight)]))]:
    at a time, where the whole weight
all blocks in a list | in columns(weight): → in list(columns(weight)): | kB at a time
[accept]
upside down | numbers[i] * q[i, token] >= p[i, token] → numbers[i] * p[i, token] >= q[i, token] | upside down
above | numbers[i] * q[i, token] >= → numbers[i] * q[i, token] <= | its number is above p / q
p for the chance | numbers[i] * q[i, token] >= → numbers[i] >= | below p: the draft has chosen
q for the chance | numbers[i] * q[i, token] >= p[i, token] → numbers[i] >= q[i, token] | below q, whatever
only what the target prefers | numbers[i] * q[i, token] >= → q[i, token] > | only where p ≥ q
only the target's best | numbers[i] * q[i, token] >= p[i, token] → p[i].argmax() != token | that is greedy decoding
a coin | numbers[i] * q[i, token] >= p[i, token] → numbers[i] >= 0.5 | with the chance 1/2
all refused | numbers[i] * q[i, token] >= p[i, token] → True | every token is refused
all accepted | numbers[i] * q[i, token] >= p[i, token] → False | every token is accepted
the first number for all | if numbers[i] * → if numbers[0] * | with the first number: each has
the last number for all | if numbers[i] * → if numbers[k] * | which is for the draw
the next one's number | if numbers[i] * → if numbers[i + 1] * | the next one's number
p of the next position | >= p[i, token] → >= p[i + 1, token] | p is that of the next position
the first rows | numbers[i] * q[i, token] >= p[i, token] → numbers[i] * q[0, token] >= p[0, token]
    the first rows of p and q
a product along the draft
    numbers[i] * q[i, token] >= p[i, token] →
        numbers[i] >= np.prod([p[j, drafted[j]] / q[j, drafted[j]] for j in range(i + 1)])
    multiplied along the draft
the largest ones | numbers[i] * q[i, token] >= p[i, token] → numbers[i] * q[i].max() >= p[i].max() | at their largest
the overlap | numbers[i] * q[i, token] >= p[i, token] → numbers[i] >= np.minimum(p[i], q[i]).sum() | is the overlap
p of p and q | numbers[i] * q[i, token] → numbers[i] * (p[i, token] + q[i, token]) | p / (p + q)
one less the distance | numbers[i] * q[i, token] >= p[i, token] → numbers[i] >= 1 - abs(p[i, token] - q[i, token])
    1 − |p − q|
a root | numbers[i] * q → numbers[i] ** 2 * q | the root of p / q
a square | numbers[i] * q → numbers[i] ** 0.5 * q | the square of p / q
an impossible token | q[i, token] >= p → q[i, token] > p | a token with p = 0
a favourite refused | >= p[i, token]: → >= p[i, token] or p[i, token] > q[i, token]: | above 1 is always accepted
from p again | left = np.maximum(p[i] - q[i], 0) → left = p[i] | from p itself
not renormalised | draw(left / left.sum(), → draw(left, | must sum to 1 again
q less p | left = np.maximum(p[i] - q[i], 0) → left = np.maximum(q[i] - p[i], 0) | drawn from max(q − p, 0)
absolute differences | left = np.maximum(p[i] - q[i], 0) → left = abs(p[i] - q[i]) | drawn from |p − q|
all but the refused | left = np.maximum(p[i] - q[i], 0) → left = np.where(np.arange(len(p[i])) == token, 0, p[i])
    p without the refused token
half of both | left / left.sum() → left / (p[i] + q[i]).sum() | with that of p + q
from q again | left = np.maximum(p[i] - q[i], 0) → left = q[i] | the draft's q again
the next row to draw | left = np.maximum(p[i] - q[i], 0) → left = p[i + 1] | from the next position's p
the next row less q | left = np.maximum(p[i] - q[i], 0) → left = np.maximum(p[i + 1] - q[i], 0)
    both are of one position
times p | left = np.maximum(p[i] - q[i], 0) → left = np.maximum(p[i] - q[i], 0) * p[i] | max(p − q, 0) · p
squares | left = np.maximum(p[i] - q[i], 0) → left = np.maximum(p[i] - q[i], 0) ** 2 | squares of what is left
the likeliest of the rest | draw(left / left.sum(), numbers[k])] → int(left.argmax())] | likeliest token of what is left
the likeliest of all | draw(left / left.sum(), numbers[k])] → int(p[i].argmax())] | the large model's likeliest token
the number that has refused | draw(left / left.sum(), numbers[k]) → draw(left / left.sum(), numbers[i])
    has refused draws
the refused one too | return [*drafted[:i], → return [*drafted[: i + 1], | the refused token is kept, too
the refused one for a draw | return [*drafted[:i], draw(left / left.sum(), numbers[k])] → return drafted[: i + 1]
    the refused token is kept, and none is drawn
none in its place | return [*drafted[:i], draw(left / left.sum(), numbers[k])] → return drafted[:i]
    in the place of the refused
it goes on
    return [*drafted[:i], draw(left / left.sum(), numbers[k])] →
        return [*drafted[:i], draw(left / left.sum(), numbers[k]), *drafted[i + 1 :]]
    the round goes on after a refusal
others are tested | is _restarted | tokens behind the refused one are tested
none after all | return [*drafted, draw(p[k], numbers[k])] → return drafted | and none is added
the likeliest after all | draw(p[k], numbers[k]) → int(p[k].argmax()) | the token after them is the likeliest
the row before | draw(p[k], numbers[k]) → draw(p[k - 1], numbers[k]) | from the row before
from the draft's q | draw(p[k], numbers[k]) → draw(q[-1] if k else p[k], numbers[k]) | one is drawn from the draft's q
the first row | draw(p[k], numbers[k]) → draw(p[0], numbers[k]) | from the first row of p
the first number to draw | draw(p[k], numbers[k]) → draw(p[k], numbers[0]) | with the first number, which
the last one replaced | return [*drafted, draw(p[k] → return [*drafted[:-1], draw(p[k] | replaced by the new one
two more | draw(p[k], numbers[k])] → draw(p[k], numbers[k]), draw(p[k], numbers[k])] | and two are added
a count | is _count | only the number of accepted
the drawn one alone | is _drawn_alone | only the token that was drawn
the first one alone | is _first_alone | only the first token
in reverse | is _reversed | the tokens are in the reverse order
drawn first | is _drawn_first | the drawn token is in front
accepted ones drawn again | is _drawn_again | accepted tokens are drawn again
all drafted | return [*drafted[:i], → return [*drafted, | and the drawn one behind them
probabilities | is _probabilities | a token is a whole number
a number | is _length | it must return a list of tokens
"""
