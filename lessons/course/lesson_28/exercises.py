"""Lesson 28: sixteen levels for each group, two numbers in a byte, back through packed weights, and drafts."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..checks import (
    in_case,
    peak_memory,
    require,
    require_array,
    require_close,
    require_gradients,
    require_none_of,
    type_name,
)
from ..checks import unpack as unpack_results
from ..exercise import Attempt, Wrong, exercise
from . import solutions
from .packed import Packed
from .rounds import Round, likely

# --- Levels -----------------------------------------------------------------------------------------------------


def _weight(C_in: int, C_out: int, group: int) -> np.ndarray:
    """A weight whose groups lie at different places and are of different sizes, some on one side of 0."""
    rng = np.random.default_rng(C_in + C_out)
    shape = C_out, C_in // group, 1
    groups = rng.uniform(0.2, 4, shape) * (rng.standard_normal((*shape[:2], group)) + rng.uniform(-2, 2, shape))
    return np.ascontiguousarray(groups.reshape(C_out, C_in).T.astype(np.float32))


@exercise(answer=solutions.quantize)
def quantize(attempt: Attempt) -> None:
    for C_in, C_out, group in ((8, 8, 4), (12, 3, 4), (64, 5, 32), (18, 9, 6)):
        with in_case(f"for a weight {(C_in, C_out)} in groups of {group},"):
            _judge_levels(attempt, _weight(C_in, C_out, group), group)
    with np.errstate(divide="raise", invalid="raise"):
        _judge_small_scales(attempt)
    with in_case("with weights from 100 to 100.1, whose minimum float16 rounds by up to 0.03,"):
        _judge_levels(attempt, np.float32(100) + np.linspace(0, 0.1, 16, dtype=np.float32).reshape(8, 2), 8)


def _judge_small_scales(attempt: Attempt) -> None:
    flat, tiny = _weight(16, 2, 8), _weight(16, 2, 8)
    flat[:8, 0], flat[8:, 1] = 0, 0.375
    tiny[:8] *= np.float32(1e-8)
    with in_case("with a group of zeros and one in which all weights are 0.375,"):
        numbers, scales, minima = unpack_results(attempt(flat, 8), "numbers", "scales", "minima")
        alike = scales == 0
        require(
            np.array_equal(alike, [[True, False], [False, True]]) and not numbers[alike].any(),
            f"the scales are {scales.ravel()} and these groups' numbers {numbers[alike].ravel()}: both are 0 there",
        )
        require(minima[1, 1] == 0.375, f"the minimum of the latter is {minima[1, 1]}: it is the weight itself")
    with in_case("with weights of about 1e-8, whose scale is 0 in float16,"):
        _judge_levels(attempt, tiny, 8)


def _judge_levels(attempt: Attempt, weight: np.ndarray, group: int) -> None:
    C_in, C_out = weight.shape
    shape = C_out, C_in // group
    groups = weight.T.reshape(*shape, group)
    numbers, scales, minima = unpack_results(attempt(weight, group), "numbers", "scales", "minima")
    for name, array, wanted in (
        ("numbers", numbers, (*shape, group)),
        ("scales", scales, shape),
        ("minima", minima, shape),
    ):
        _judge_shape(name, array.shape, wanted)
    for name, array in (("scales", scales), ("minima", minima)):
        require(
            array.dtype == np.float16,
            f"{name} are {array.dtype}: two bytes a group are kept, so they are float16",
        )
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    _judge_minima(minima, groups, weight)
    _judge_scales(scales, groups, weight)
    require(
        numbers.dtype == np.uint8,
        f"numbers are {numbers.dtype}: they are whole numbers from 0 to 15, of type uint8",
    )
    _judge_numbers(numbers, groups, low[..., None], high[..., None])


def _judge_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if found == wanted:
        return
    transposed = *wanted[1::-1], *wanted[2:]
    likely = {
        (wanted[1], *wanted[2:], wanted[0]): ": outputs come first: weight.T has a row for each",
        transposed: ": outputs come first, their groups second: is it transposed?",
        (*wanted, 1): ": keepdims has left an axis of one number",
        (wanted[0],): ": there is one for each group, not for each output alone",
        (): ": there is one for each group, not one for the whole matrix",
        (wanted[0], wanted[1] * wanted[-1]): ": a group is an axis of its own",
        (*wanted[:-1], wanted[-1] / 2): ": they are not packed yet, two in a byte",
    }.get(found, "")
    raise Wrong(f"{name} have shape {found} and must have {wanted}{likely}")


def _differs(found: np.ndarray, other: Any) -> bool:
    other = np.broadcast_to(np.asarray(other, np.float32), found.shape)
    return not np.allclose(found.astype(np.float32), other, rtol=2e-3, atol=1e-7)


def _judge_minima(minima: np.ndarray, groups: np.ndarray, weight: np.ndarray) -> None:
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    if np.array_equal(minima, low.astype(np.float16)):
        return
    across = weight.reshape(groups.shape)  # of inputs, where the weight is square
    steps = (high - low) / 15
    mistakes = {
        "0 everywhere: without a minimum the levels begin at 0, whatever the weights are": 0,
        "the largest weight of each group: the levels begin at the smallest, at q = 0": high,
        "the smallest of the whole matrix: each group has its own": weight.min(),
        "the smallest of each output: each of its groups has its own": low.min(axis=-1, keepdims=True),
        "those of groups along C_out: a group lies along C_in, so it is weight.T that is cut": across.min(axis=-1),
        "the smallest absolute value: weights have signs": abs(groups).min(axis=-1),
        "minus the largest absolute value, as if the levels lay about 0": -abs(groups).max(axis=-1),
        "the mean of each group, and half of the weights lie below it": groups.mean(axis=-1),
        "the middle between the smallest and the largest: level 0 is the smallest": (low + high) / 2,
        "of the wrong sign: weight = scale · q + minimum": -low,
        "in steps, as other libraries keep a zero point: here they are weights": low / np.where(steps == 0, 1, steps),
        "those of the neighbouring group of the same output": np.roll(low, -1, axis=1),
        "those of the neighbouring output": np.roll(low, -1, axis=0),
        "the first weight of each group: is it the smallest?": groups[..., 0],
        "half a step below the smallest weight: level 0 is that weight": low - steps / 2,
        "one step below the smallest weight: level 0 is that weight": low - steps,
    }
    for mistake, other in mistakes.items():
        require(_differs(minima, other) or not _differs(low, other), f"minima are {mistake}")
    place = tuple(map(int, np.argwhere(minima != low.astype(np.float16))[0]))
    raise Wrong(f"minima[{place[0]}, {place[1]}] is {minima[place]}, and the smallest weight is {low[place]:.5g}")


def _judge_scales(scales: np.ndarray, groups: np.ndarray, weight: np.ndarray) -> None:
    low, high, most = groups.min(axis=-1), groups.max(axis=-1), abs(groups).max(axis=-1)
    right = (high - low) / 15
    if not _differs(scales, right.astype(np.float16)):
        return
    across = weight.reshape(groups.shape)
    mistakes = {
        "(max − min) / 16: sixteen levels have fifteen steps between them": (high - low) / 16,
        "(max − min) / 14: sixteen levels have fifteen steps between them, not fourteen": (high - low) / 14,
        "(max − min) / 255: that is for eight bits": (high - low) / 255,
        "(max − min) / 256: that is for eight bits, and there it would be 255": (high - low) / 256,
        "(max − min) / 7: four bits without a sign go up to 15": (high - low) / 7,
        "(max − min) / 8: four bits have sixteen levels": (high - low) / 8,
        "(max − min) / 4, the number of bits: it is the number of steps": (high - low) / 4,
        "(max − min) / 30: a step, not half of it": (high - low) / 30,
        "max − min itself: that is fifteen steps": high - low,
        "max / 15: the levels begin at the minimum, so it is (max − min) / 15": high / 15,
        "max |weight| / 15: the levels begin at the minimum, so it is (max − min) / 15": most / 15,
        "max |weight| / 7, as of levels about 0": most / 7,
        "max |weight| / 8, as of levels about 0": most / 8,
        "max |weight| / 127, as of eight bits about 0": most / 127,
        "max |weight| / 128, as of eight bits about 0": most / 128,
        "2 max |weight| / 15: that range is wider than the group's": 2 * most / 15,
        "negative: max − min, not min − max": -right,
        "upside down: they are the distance of two levels, not the levels in a distance of 1": (
            1 / np.where(right == 0, 1, right)
        ),
        "those of the whole matrix: each group has its own": (weight.max() - weight.min()) / 15,
        "those of each output: each of its groups has its own": (
            (high.max(axis=-1, keepdims=True) - low.min(axis=-1, keepdims=True)) / 15
        ),
        "those of groups along C_out: a group lies along C_in, so it is weight.T that is cut": (
            np.ptp(across, axis=-1) / 15
        ),
        "those of the neighbouring group of the same output": np.roll(right, -1, axis=1),
        "those of the neighbouring output": np.roll(right, -1, axis=0),
        "the standard deviation / 15, and weights lie beyond it": groups.std(axis=-1) / 15,
        "the group's size / 15: it is the range of its weights": groups.shape[-1] / 15,
    }
    for mistake, other in mistakes.items():
        require(_differs(scales, other) or not _differs(right, other), f"scales are {mistake}")
    place = tuple(map(int, np.argwhere(~np.isclose(scales, right, rtol=1e-3, atol=1e-7))[0]))
    raise Wrong(f"scales[{place[0]}, {place[1]}] is {scales[place]}, and (max − min) / 15 is {right[place]:.5g} there")


def _judge_numbers(numbers: np.ndarray, groups: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    steps, minima = (high - low) / 15, low.astype(np.float16).astype(np.float32)
    scales = steps.astype(np.float16).astype(np.float32)
    safe = np.where(scales == 0, 1, steps)
    exact = (groups - low) / safe
    require(numbers.max() <= 15, f"a number is {numbers.max()}, beyond 15: cut off what lies outside, before uint8")
    off = abs(scales * numbers + minima - groups)
    rounding = 2.0**-11 * (15 * scales + abs(minima)) + 2.0**-21  # of a scale and a minimum in float16
    if np.all(off <= scales / 2 + rounding):
        require(
            not numbers[np.broadcast_to(scales == 0, numbers.shape)].any(), "numbers are not 0 where the scale is 0"
        )
        return
    nearest = np.clip(np.rint(exact), 0, 15)
    mistakes = {
        "rounded down: the nearest level may be the one above": np.floor(exact),
        "rounded up: the nearest level may be the one below": np.clip(np.ceil(exact), 0, 15),
        "those of weight / scale: the minimum is subtracted first": np.clip(np.rint(groups / safe), 0, 15),
        "those of weight / scale − minimum: it is subtracted before the division": (
            np.clip(np.rint(groups / safe - low), 0, 15)
        ),
        "those of (weight + minimum) / scale: weight = scale · q + minimum, so it is subtracted": (
            np.clip(np.rint((groups + low) / safe), 0, 15)
        ),
        "those of (weight − minimum) · scale: it is a division": np.clip(np.rint((groups - low) * safe), 0, 15),
        "counted from the largest weight down: q = 0 is the smallest": 15 - nearest,
        "cut off at 14: they go up to 15": np.minimum(nearest, 14),
        "cut off at 7: four bits without a sign go up to 15": np.minimum(nearest, 7),
        "from 1 on: the smallest weight has q = 0": np.clip(nearest, 1, 15),
        "one too large: rounded, and then rounded up": np.clip(nearest + 1, 0, 15),
        "8 too large, as if the levels lay about 0": np.clip(nearest + 8, 0, 15),
        "8 too small, as if the levels lay about 0": np.clip(nearest - 8, 0, 15),
        "wrapped: what lies outside 0 to 15 is cut off, it does not begin again at the other end": (
            np.rint((groups - minima) / np.where(scales == 0, 1, scales)) % 16
        ),
        "those of the neighbouring group's minimum": np.clip(np.rint((groups - np.roll(low, -1, 1)) / safe), 0, 15),
        "those of the neighbouring group's scale": np.clip(np.rint((groups - low) / np.roll(safe, -1, 1)), 0, 15),
        "those of one scale for all, the largest": np.clip(np.rint((groups - low) / safe.max()), 0, 15),
        "those of the size of a weight, without its sign": np.clip(np.rint((abs(groups) - low) / safe), 0, 15),
        "in the reverse order in each group": nearest[..., ::-1],
        "sorted in each group: weights keep their places": np.sort(nearest, axis=-1),
        "of one bit less: they are 0, 2, 4, …": 2 * (nearest // 2),
        "those of three bits, 0 to 7": np.rint((groups - low) / np.where(scales == 0, 1, high - low) * 7),
    }
    for mistake, other in mistakes.items():
        require(not np.array_equal(numbers, other), f"numbers are {mistake}")
    place = tuple(map(int, np.argwhere(off > scales / 2 + rounding)[0]))
    raise Wrong(
        f"numbers{list(place)} is {numbers[place]}: scale · q + minimum is {off[place] / scales[place[:2]][0]:.2f} "
        f"steps away from the weight, and the nearest level, q = {int(nearest[place])}, is at most half a step away"
    )


# --- Two numbers in a byte ----------------------------------------------------------------------------------------


def _fields() -> dict[str, np.ndarray]:
    """Numbers below 16: every pair that a byte may hold, and a few axes."""
    rng = np.random.default_rng(0)
    low, high = np.arange(256, dtype=np.uint8) & 15, np.arange(256, dtype=np.uint8) >> 4
    more = {shape: rng.integers(0, 16, shape).astype(np.uint8) for shape in ((2, 3, 8), (4,), (32,), (8, 8))}
    return {str(shape): each for shape, each in more.items()} | {"(512,), all bytes": np.concatenate([low, high])}


def _is_bytes(result: Any) -> np.ndarray:
    require(isinstance(result, np.ndarray), f"it must return an array, not {type_name(result)}")
    require(
        result.dtype == np.uint8,
        f"it returns {result.dtype} and must return uint8: a byte without a sign",
    )
    return result


@exercise(answer=solutions.pack)
def pack(attempt: Attempt) -> None:
    for name, numbers in _fields().items():
        right = solutions.pack(numbers)
        half = numbers.shape[-1] // 2
        first, second = numbers[..., :half], numbers[..., half:]
        even, odd = numbers[..., ::2], numbers[..., 1::2]
        with in_case(f"for numbers {name},"):
            found = _is_bytes(attempt(numbers))
            require(
                found.shape != numbers.shape,
                f"the result has shape {found.shape}, as many bytes as numbers: two of them share a byte",
            )
            if found.shape != right.shape:
                likely = ": only the last axis is halved" if found.size == right.size else ""
                raise Wrong(f"the result has shape {found.shape} and must have {right.shape}{likely}")
            _require_bytes(
                found,
                right,
                {
                    "the halves are swapped: number j is in the lower half of byte j": first << 4 | second,
                    "neighbours share a byte: byte j holds the numbers j and j + group/2": even | odd << 4,
                    "neighbours share a byte, the first one in the upper half: byte j holds the numbers j and j + "
                    "group/2, that in the lower half": even << 4 | odd,
                    "the second half of the group is lost": first,
                    "the first half of the group is lost": second << 4,
                    "the second half is not moved up by four bits, so both lie on each other": first | second,
                    "the second half is moved by three bits, and a number has four": first | second << 3,
                    "the second half is moved by five bits, and a number has four": first | second << 5,
                    "the numbers are added, and not put side by side": first + second,
                    "joined by & where it is |: the halves have no bit in common": first & second << 4,
                    "the second half is in the reverse order": first | second[..., ::-1] << 4,
                    "the first half is in the reverse order": first[..., ::-1] | second << 4,
                    "the bytes are in the reverse order": right[..., ::-1],
                    "the numbers are taken as signed, less 8": (first - 8 & 15) | (second - 8 & 15) << 4,
                    "a number loses its highest bit: four bits are 15, not 7": first & 7 | (second & 7) << 4,
                    "joined in base 10: four bits are a factor of 16": first + 10 * second,
                    "joined in base 15: four bits are a factor of 16": first + 15 * second,
                    "both numbers are moved up": first << 4 | second << 4,
                    "the first half stands in both halves of the byte": first | first << 4,
                    "the second half stands in both halves of the byte": second | second << 4,
                    "the bits of a byte are inverted": ~right,
                    "number 0 does not share its byte with number group/2, but with the one after it": (
                        first | np.roll(second, -1, axis=-1) << 4
                    ),
                },
            )


@exercise(answer=solutions.unpack)
def unpack(attempt: Attempt) -> None:
    for name, numbers in _fields().items():
        packed = solutions.pack(numbers)
        low, high = packed & 15, packed >> 4
        with in_case(f"for bytes of the numbers {name},"):
            found = _is_bytes(attempt(packed))
            if found.shape != numbers.shape:
                likely = ""
                if found.shape == packed.shape:
                    likely = ": there are two numbers in a byte"
                elif found.size == numbers.size:
                    likely = ": the numbers of a group lie along its last axis"
                raise Wrong(f"the result has shape {found.shape} and must have {numbers.shape}{likely}")
            flat = np.concatenate([low, high], axis=-1)
            _require_bytes(
                found,
                numbers,
                {
                    "the halves are swapped: the lower halves of all bytes come first": np.concatenate([high, low], -1),
                    "the two numbers of a byte are neighbours: all lower halves come first, then all upper ones": (
                        np.stack([low, high], axis=-1).reshape(numbers.shape)
                    ),
                    "the two numbers of a byte are neighbours, the upper one first": (
                        np.stack([high, low], axis=-1).reshape(numbers.shape)
                    ),
                    "the lower numbers lose a bit: the mask of four bits is 15, not 7": np.concatenate(
                        [packed & 7, high], -1
                    ),
                    "the lower numbers have a bit too many: the mask of four bits is 15, not 31": (
                        np.concatenate([packed & 31, high], -1)
                    ),
                    "the lower numbers are multiplied by 16: the mask 240 takes the upper half": (
                        np.concatenate([packed & 240, high], -1)
                    ),
                    "the lower numbers still have the upper half's bits: mask them": np.concatenate([packed, high], -1),
                    "the upper numbers are still moved up by four bits": np.concatenate([low, packed & 240], -1),
                    "the upper numbers are moved down by three bits, and it is four": np.concatenate(
                        [low, packed >> 3], -1
                    ),
                    "the upper numbers are moved down by five bits, and it is four": np.concatenate(
                        [low, packed >> 5], -1
                    ),
                    "the upper numbers are negative from 8 on, which uint8 shows as 248 and more: the bytes were taken "
                    "as signed before the shift": np.concatenate([low, (packed.view(np.int8) >> 4).view(np.uint8)], -1),
                    "the upper half is in the reverse order": np.concatenate([low, high[..., ::-1]], -1),
                    "all numbers are in the reverse order": flat[..., ::-1],
                    "8 is subtracted: that is the next step's work, and not of all types": flat - 8,
                    "both halves are the lower numbers": np.concatenate([low, low], -1),
                    "both halves are the upper numbers": np.concatenate([high, high], -1),
                    "the remainder of 15 is taken, and four bits are that of 16": np.concatenate(
                        [packed % 15, high], -1
                    ),
                    "the bytes are divided by 15, and four bits are 16": np.concatenate([low, packed // 15], -1),
                    "the remainder of 10 is taken: four bits are that of 16": np.concatenate(
                        [packed % 10, packed // 10], -1
                    ),
                    "a number is the sum of both halves": np.concatenate([low + high, high], -1),
                    "the bits of a number are inverted": np.concatenate([~packed & 15, ~packed >> 4 & 15], -1),
                    "they are shifted up where it is down": np.concatenate([low, packed << 4], -1),
                },
            )


def _require_bytes(found: np.ndarray, right: np.ndarray, mistakes: dict[str, np.ndarray]) -> None:
    if np.array_equal(found, right):
        return
    for mistake, other in mistakes.items():
        require(not np.array_equal(found, other.astype(np.uint8)), mistake)
    place = tuple(map(int, np.argwhere(found != right)[0]))
    at = f"[{', '.join(map(str, place))}]"
    raise Wrong(
        f"the result{at} is {found[place]} ({found[place]:08b}) and should be {right[place]} ({right[place]:08b})"
    )


# --- Back through packed weights ----------------------------------------------------------------------------------


def _packed(C_in: int, C_out: int, group: int) -> Packed:
    numbers, scales, minima = solutions.quantize(_weight(C_in, C_out, group), group)
    return Packed(solutions.pack(numbers), scales, minima)


def _whole(weight: Packed) -> np.ndarray:
    return np.concatenate([rows for _, rows in solutions.columns(weight)]).T.astype(np.float64)  # (C_in, C_out)


@exercise(answer=solutions.quantized_linear_backward)
def quantized_linear_backward(attempt: Attempt) -> None:
    # A square one first: with it a missing transpose raises no exception, and the hint can name it.
    for shape, C_in, C_out, group in (((5,), 8, 8, 4), ((7,), 32, 150, 8), ((2, 3), 16, 5, 16), ((), 8, 3, 8)):
        with in_case(f"with dy {(*shape, C_out)} and a weight {(C_in, C_out)} in groups of {group},"):
            _judge_backward(attempt, shape, _packed(C_in, C_out, group))
    weight = _packed(512, 1024, 32)
    dy = np.random.default_rng(0).standard_normal((2, 1024))
    for kind in (np.float32, np.float64):
        for name, found in zip(("dx", "dbias"), attempt(dy.astype(kind), weight), strict=True):
            require(found.dtype == kind, f"{name} is {found.dtype} for dy of {np.dtype(kind)}: it has dy's type")
    most = peak_memory(lambda: attempt.function(dy, weight))  # not `attempt(…)`, whose copies would count too
    require(
        most < 2 * 512 * 1024,
        f"it is right, and for a weight (512, 1024) it needs {most / 1e3:,.0f} kB at a time, where the whole weight in "
        f"float32 has {4 * 512 * 1024 / 1e3:,.0f} kB: take the columns that `columns` yields one block after the other",
    )


def _judge_backward(attempt: Attempt, shape: tuple[int, ...], weight: Packed) -> None:
    W = _whole(weight)
    C_in, C_out = W.shape
    dy = np.random.default_rng(C_out).standard_normal((*shape, C_out))
    dx, dbias = unpack_results(attempt(dy, weight), "dx", "dbias")
    rows = dy.reshape(-1, C_out)
    right, right_bias = dy @ W.T, rows.sum(axis=0)
    dx, dbias = require_array(dx, "dx"), require_array(dbias, "dbias")
    require(
        (dx.shape, dbias.shape) != (right_bias.shape, right.shape) or right.shape == right_bias.shape,
        "dx and dbias are exchanged: the order is dx, dbias",
    )
    require(
        dx.shape == right.shape or dx.shape != (len(rows), C_in),
        f"dx has shape {dx.shape} and must have {right.shape}: give back the axes that were made one",
    )
    require(
        dx.shape == right.shape or dx.shape != W.shape,
        f"dx has shape {dx.shape}, the weight's, and must have {right.shape}: the weight is frozen, it has no gradient",
    )
    sums = dy.sum(axis=0) if len(shape) > 1 else None
    require(
        sums is None or dbias.shape != sums.shape,
        f"dbias has shape {dbias.shape}: it is summed over all axes but the last, not over the first alone",
    )
    require(
        dbias.shape != dy.shape or right_bias.shape == dy.shape,
        f"dbias has shape {dbias.shape}, dy's: each row had the same bias, so it is the sum over all rows",
    )
    scales, minima = (np.repeat(part.astype(float), C_in // part.shape[1], axis=1).T for part in weight[1:])
    blocks = [(part, dy[..., part] @ W[:, part].T) for part, _ in solutions.columns(weight)]
    q = np.rint((W - minima) / scales)
    groups = W.T.reshape(C_out, weight.scales.shape[1], -1)
    flipped = groups[:, ::-1].reshape(C_out, C_in).T
    neighbours = groups.reshape(*groups.shape[:2], 2, -1).swapaxes(2, 3).reshape(C_out, C_in).T
    mistakes: dict[str, Any] = {
        "is that of the weight without its minima: weight = scale · q + minimum": dy @ (scales * q).T,
        "is that of scale · (q + minimum): the minimum is not scaled": dy @ (scales * (q + minima)).T,
        "is that of the numbers q alone, without scales and minima": dy @ q.T,
        "is that of q + minimum, without scales": dy @ (q + minima).T,
        "is that of the scales alone: they are multiplied by q": dy @ scales.T,
        "is that of minima − scale · q: both are added": dy @ (minima - scales * q).T,
        "is that of scale · (q − 8), and here a group has a minimum": dy @ (scales * (q - 8)).T,
        "is that of scale · (q − 8) + minimum: the minimum takes the place of the 8": dy
        @ (scales * (q - 8) + minima).T,
        "is that of the columns of the last block alone: blocks are added, dx += …": blocks[-1][1],
        "is that of the columns of the first block alone: go on after it": blocks[0][1],
        "lacks the last block of columns": sum(part for _, part in blocks[:-1]) + 0 * right,
        "is divided by the rows: it is the loss that has a mean, if there is one": right / len(rows),
        "is the mean over the outputs: it is their sum": right / C_out,
        "is a mean over the blocks: blocks are added": right / len(blocks),
        "has the bias's gradient in it: that goes to the bias alone": right + right_bias.sum(),
        "is that of the groups in the reverse order": dy @ flipped.T,
        "is that of a weight whose neighbours share a byte: `unpack` puts all lower halves first": dy @ neighbours.T,
        "is twice what it should be: a block is added twice": 2 * right,
    }
    if C_in == C_out:
        mistakes["is dy @ W, as the forward goes: backwards it is W transposed"] = dy @ W
    require_none_of("dx", dx, right, mistakes, tolerance=1e-6)  # as float32 rounds scale · q + minimum
    require_close("dx", dx, right)
    bias_mistakes = {
        "is the mean over the rows: it is their sum": right_bias / len(rows),
        "is 0: a bias has a gradient, it is not packed": 0 * right_bias,
        "is that of the first row alone": rows[0],
        "is that of the last row alone": rows[-1],
        "is the largest of the rows: it is their sum": rows.max(axis=0),
    }
    if C_in == C_out:
        bias_mistakes["is the sum of dx's rows: it is that of dy's"] = dx.reshape(-1, C_in).sum(axis=0)
    require_none_of("dbias", dbias, right_bias, bias_mistakes)
    require_close("dbias", dbias, right_bias)
    if C_in == C_out:
        arrays = {"x": np.random.default_rng(1).standard_normal((*shape, C_in)), "bias": right_bias}
        require_gradients(lambda x, bias: (x @ W + bias, weight), attempt, arrays)


# --- Drafts -------------------------------------------------------------------------------------------------------


@exercise(answer=solutions.accept)
def accept(attempt: Attempt) -> None:
    rounds = list(_rounds())
    found = [_tokens(attempt(*each), len(each[0])) for each in rounds]
    right = [solutions.accept(*each) for each in rounds]
    wrong = [place for place, tokens in enumerate(found) if tokens != right[place]]
    if not wrong:
        return
    mistakes = [likely(*each) for each in rounds]
    names = dict.fromkeys(name for each in mistakes for name in each)
    explains = [
        name
        for name in names
        if all(each.get(name, right[place]) == found[place] for place, each in enumerate(mistakes))
    ]
    first = wrong[0]
    drafted, p, q, numbers = rounds[first]
    ratios = ", ".join(f"{p[i, token] / q[i, token]:.3g}" for i, token in enumerate(drafted))
    case = (
        f"with {drafted} drafted, p / q {ratios or 'of none'} and the numbers {', '.join(f'{n:.3g}' for n in numbers)},"
    )
    raise Wrong(f"{case} it returns {found[first]}: {explains[0] if explains else _told(found[first], right[first])}")


def _rounds() -> Iterator[Round]:
    rng = np.random.default_rng(0)

    def distributions(count: int, V: int) -> np.ndarray:
        chances = rng.random((count, V)) ** 2 + 0.02
        return chances / chances.sum(axis=-1, keepdims=True)

    for k, V, count in ((1, 5, 40), (3, 5, 120), (4, 9, 60)):
        for _ in range(count):
            p, q = distributions(k + 1, V), distributions(k, V)
            yield [int(rng.choice(V, p=each)) for each in q], p, q, rng.random(k + 1)
    p, q = np.array([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]), np.array([[0.25, 0.25, 0.5]])
    yield [2], p, q, np.array([0.0, 0.75])  # impossible for the large model, whatever the number is
    p, q = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[0.2, 0.8]])
    yield [1], p, q, np.array([0.999, 0.25])  # where p is q, all are accepted
    yield [], distributions(1, 5), np.zeros((0, 5)), np.array([0.5])


def _tokens(result: Any, k: int) -> list[int]:
    require(
        isinstance(result, list | tuple) or (isinstance(result, np.ndarray) and result.ndim == 1),
        f"it must return a list of tokens, not {type_name(result)}",
    )
    tokens = [*result]
    require(
        all(isinstance(token, int | np.integer) and not isinstance(token, bool) for token in tokens),
        f"it returns {tokens[:3]}: a token is a whole number, its place in p",
    )
    return [int(token) for token in tokens]


def _told(found: list[int], right: list[int]) -> str:
    """Say how a round ends otherwise than it should, if no likely mistake explains it."""
    accepted = len(right) - 1
    if found[:accepted] != right[:accepted]:
        return f"{right[:accepted]} are kept, as each number is below its p / q"
    if len(found) != len(right):
        return f"it must be {len(right)} tokens: {accepted} are kept, and one is drawn"
    return f"the token that is drawn at the end should be {right[-1]}"
