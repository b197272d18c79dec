"""The dropout mask inside a kernel: the same bits as `minitransformer.ops.dropout_mask`, from the same numbers.

A row's hash mixes the key's low half, the row's coordinates and the key's high half, one after the other. Two
neighbouring channels share one hash of the row and their pair, with 16 bits each. `lowbias32` is by Chris Wellons
("Prospecting for Hash Functions", 2018); 0x9E3779B9 is `minitransformer.ops.dropout.GOLDEN`. The functions contain
their constants as numbers: with a global in a function that a kernel calls, the name of the compiled kernel in Triton's
cache would depend on which kernel was compiled first.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from minitransformer.ops import Dropout

from .checks import check_key, check_rows_numbered

UNSPECIALIZED = ["key_low", "key_high", "sentence", "position", "threshold", "scale"]
"""Arguments that change from step to step: Triton must not compile another kernel if one is 1 or a multiple of 16."""


@triton.jit
def mix(x):
    """`lowbias32`, a permutation of 32 bits, on a tensor of uint32."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def load_key(key_ptr, key_low, key_high):
    """Return the key's halves as uint32, from device memory if there is a pointer, as in a captured graph."""
    if key_ptr is not None:
        key_low = tl.load(key_ptr)
        key_high = tl.load(key_ptr + 1)
    return tl.cast(key_low, tl.uint32), tl.cast(key_high, tl.uint32)


@triton.jit
def mix_in(hashed, coordinate):
    """Mix a number into a row's hash, which begins as the key's low half: each coordinate, then the high half."""
    return mix(hashed ^ coordinate.to(tl.uint32))


@triton.jit
def row_hashes(
    row, key_ptr, key_low, key_high, sentence, position, sentences_ptr, positions_ptr, T, H, HEADS: tl.constexpr
):
    """Return the hashes of rows of a `(B, T, C)` array, with `HEADS` of a `(B, H, T, C)`, with T = N of an `(N, C)`.

    With `sentences_ptr` and `positions_ptr` each row's sentence and position are read from arrays `(N,)`.
    """
    low, high = load_key(key_ptr, key_low, key_high)
    if sentences_ptr is not None:
        hashed = mix_in(low, tl.load(sentences_ptr + row))
        return mix_in(mix_in(hashed, tl.load(positions_ptr + row)), high)
    if HEADS:
        hashed = mix_in(mix_in(low, row // (T * H) + sentence), (row // T) % H)
    else:
        hashed = mix_in(low, row // T + sentence)
    return mix_in(mix_in(hashed, row % T + position), high)


@triton.jit
def kept(row_hash, channel, threshold):
    """Return True for each element that is kept; row_hash and channel broadcast against each other."""
    channel = channel.to(tl.uint32)
    word = mix(row_hash + (channel >> 1) * 0x9E3779B9)
    bits = (word >> ((channel & 1) << 4)) & 0xFFFF  # the low half belongs to the even channel
    return bits >= threshold.to(tl.uint32)


def is_active(dropout: Dropout | None) -> bool:
    """Return True if this dropout can drop elements."""
    return dropout is not None and dropout.threshold > 0


def key_arguments(dropout: Dropout) -> dict[str, Any]:
    """Return a kernel's arguments for the key, the threshold and the scale."""
    if isinstance(dropout.key, Tensor):
        key = {"key_ptr": check_key(dropout.key).contiguous(), "key_low": 0, "key_high": 0}
    else:
        key = {"key_ptr": None, "key_low": _int32(dropout.key), "key_high": _int32(dropout.key >> 32)}
    return key | {"threshold": dropout.threshold, "scale": dropout.scale}


def row_arguments(dropout: Dropout, x: Tensor) -> dict[str, Any]:
    """Return `key_arguments`, and those of `row_hashes` for rows of x `(N, C)`, `(B, T, C)` or `(B, H, T, C)`."""
    if x.ndim > 4:
        raise ValueError(f"x has {x.ndim} axes, expected (N, C), (B, T, C) or (B, H, Tq, Tk)")
    rows = {"sentences_ptr": None, "positions_ptr": None, "sentence": 0, "position": 0}
    sentence, position = (torch.as_tensor(number) for number in (dropout.sentence, dropout.position))
    if sentence.ndim or position.ndim:
        check_rows_numbered(sentence, position, x.shape[:-1])
        rows["sentences_ptr"] = sentence.to(x.device, torch.int32).contiguous()
        rows["positions_ptr"] = position.to(x.device, torch.int32).contiguous()
    else:
        rows["sentence"], rows["position"] = int(sentence), int(position)
    lengths = {"T": x.shape[-2] if x.ndim > 1 else 1, "H": x.shape[1] if x.ndim == 4 else 1, "HEADS": x.ndim == 4}
    return key_arguments(dropout) | rows | lengths


def _int32(number: int) -> int:
    """Return the lowest 32 bits, read as a signed number."""
    number &= 0xFFFFFFFF
    return number - 2**32 if number >= 2**31 else number
