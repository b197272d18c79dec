"""What four bits are: the numbers in GGUF, the files of llama.cpp ([`gguf_file.py`](gguf_file.py) opens them).

Four bits tell 16 numbers apart, so a weight can only be one of 16 levels. If all weights of a
model shared the same levels, the largest weight would set their distance, and most weights would round to 0. So a row
is cut into blocks of 32 weights, and each block has levels of its own: a scale d, and in some types a lowest level m.
The file holds d and m as float16, and for each weight the number q of its level. In type Q4_1

    weight = d·q + m,   q = 0, …, 15

and a block takes 16·2 + 32·4 = 160 bits: 5 for a weight, where float32 takes 32. The error is at most half a step, d/2.
The types whose names end in K save bits at the scales: 256 weights share d and m in float16, and groups of 16 or 32 of
them have scales of their own, in six or eight bits.

    type   a weight is                         q is               bits for a weight, all in all
    Q8_0   d·q                                 −128, …, 127       8.5
    Q4_0   d·(q − 8)                           0, …, 15           4.5
    Q4_1   d·q + m                             0, …, 15           5
    Q5_0   d·(q − 16)                          0, …, 31           5.5
    Q5_1   d·q + m                             0, …, 31           6
    Q4_K   d·s·q − m·t, s and t of a group     0, …, 15           4.5
    Q5_K   d·s·q − m·t                         0, …, 31           5.5
    Q6_K   d·s·(q − 32)                        0, …, 63           6.5625

Fewer than eight bits are packed into bytes: `fields` cuts them out. A fifth and a sixth bit lie apart from the first
four. The arithmetic is that of llama.cpp, in float32, to the last bit. The first three types are also those that
[`ops/quantized.py`](../ops/quantized.py) makes of weights and computes with.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..ops.quantized import Quantized, fields, unpacked

Array = np.ndarray

# Each function below gets blocks, `(n, bytes of a block)`, and returns their weights, `(n, weights of a block)`.


def numbers(blocks: Array, start: int, stop: int, kind: str) -> Array:
    """Return some bytes of each block as numbers of a type of NumPy's, in float32."""
    return np.ascontiguousarray(blocks[:, start:stop]).view(kind).astype(np.float32)


def q8_0(blocks: Array) -> Array:
    """Bytes of a block: 2 of d, 32 of q."""
    return unpacked(blocks[:, 2:].view("i1"), 8, numbers(blocks, 0, 2, "<f2"))


def q4_0(blocks: Array) -> Array:
    """Bytes of a block: 2 of d, 16 of q."""
    return unpacked(blocks[:, 2:], 4, numbers(blocks, 0, 2, "<f2"))


def q4_1(blocks: Array) -> Array:
    """Bytes of a block: 2 of d, 2 of m, 16 of q."""
    return unpacked(blocks[:, 4:], 4, numbers(blocks, 0, 2, "<f2"), numbers(blocks, 2, 4, "<f2"))


def q5_0(blocks: Array) -> Array:
    """Bytes of a block: 2 of d, 4 of the fifth bits of q, 16 of the others."""
    q = fields(blocks[:, 6:], 4) | np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little") << 4
    return numbers(blocks, 0, 2, "<f2") * (q.astype(np.float32) - 16)


def q5_1(blocks: Array) -> Array:
    """Bytes of a block: 2 of d, 2 of m, 4 of the fifth bits of q, 16 of the others."""
    q = fields(blocks[:, 8:], 4) | np.unpackbits(blocks[:, 4:8], axis=1, bitorder="little") << 4
    return numbers(blocks, 0, 2, "<f2") * q.astype(np.float32) + numbers(blocks, 2, 4, "<f2")


def q4_k(blocks: Array) -> Array:
    """Bytes of a block: 2 of d, 2 of m, 12 of s and t, 128 of q."""
    q = fields(blocks[:, 16:].reshape(-1, 4, 32), 4)  # (n, 4, 64): 32 bytes hold two groups
    return _in_groups(blocks, q)


def q5_k(blocks: Array) -> Array:
    """Bytes of a block: 2 of d, 2 of m, 12 of s and t, 32 of the fifth bits of q, 128 of the others."""
    fifth = fields(blocks[:, 16:48], 1)  # the first group's are the lowest bits of all 32 bytes
    return _in_groups(blocks, fields(blocks[:, 48:].reshape(-1, 4, 32), 4) | fifth.reshape(-1, 4, 64) << 4)


def _in_groups(blocks: Array, q: Array) -> Array:
    """Return d·s·q − m·t for 8 groups of 32; s and t have six bits.

    Of the 12 bytes, the first four hold the s of groups 0 to 3 in their lower six bits, the next four the t. The last
    four hold four bits of the s and of the t of groups 4 to 7, whose other two are the upper bits of the first eight.
    """
    low, high = blocks[:, 4:12], fields(blocks[:, 12:16], 4)  # of s, then of t
    parts = np.stack([low & 63, high | low >> 6 << 4]).reshape(2, -1, 2, 4)  # (groups 0–3 or 4–7, n, s or t, 4)
    s, t = parts.transpose(2, 1, 0, 3).reshape(2, -1, 8).astype(np.float32)
    steps, lowest = numbers(blocks, 0, 2, "<f2") * s, numbers(blocks, 2, 4, "<f2") * t
    return (steps[..., None] * q.reshape(-1, 8, 32).astype(np.float32) - lowest[..., None]).reshape(-1, 256)


def q6_k(blocks: Array) -> Array:
    """Bytes of a block: 128 of four bits of q, 64 of the other two, 16 of the groups' s, 2 of d."""
    q = fields(blocks[:, :128].reshape(-1, 2, 64), 4) | fields(blocks[:, 128:192].reshape(-1, 2, 32), 2) << 4
    steps = numbers(blocks, 208, 210, "<f2") * numbers(blocks, 192, 208, "i1")
    return (steps[..., None] * (q.reshape(-1, 16, 16).astype(np.float32) - 32)).reshape(-1, 256)


class Packing(NamedTuple):
    """A type of tensors: its name, the weights and the bytes of a block, and the function that reads blocks."""

    name: str
    weights: int
    bytes: int
    read: Callable[[Array], Array]


def _plain(kind: str) -> Callable[[Array], Array]:
    return lambda blocks: blocks.view(kind).astype(np.float32)


def bf16(blocks: Array) -> Array:
    """Bfloat16 numbers are the upper halves of float32 numbers."""
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


PACKINGS = {
    0: Packing("F32", 1, 4, _plain("<f4")),
    1: Packing("F16", 1, 2, _plain("<f2")),
    2: Packing("Q4_0", 32, 18, q4_0),
    3: Packing("Q4_1", 32, 20, q4_1),
    6: Packing("Q5_0", 32, 22, q5_0),
    7: Packing("Q5_1", 32, 24, q5_1),
    8: Packing("Q8_0", 32, 34, q8_0),
    12: Packing("Q4_K", 256, 144, q4_k),
    13: Packing("Q5_K", 256, 176, q5_k),
    14: Packing("Q6_K", 256, 210, q6_k),
    30: Packing("BF16", 1, 2, bf16),
}
"""By the number of a type in the file."""

OTHERS = {10: "Q2_K", 11: "Q3_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S"}
OTHERS |= {22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0"}
OTHERS |= {35: "TQ2_0", 39: "MXFP4"}
"""The names of types that are refused."""


# --- Weights that stay as they are ----------------------------------------------------------------------------

QUANTIZED = {(8, False): "Q8_0", (4, False): "Q4_0", (4, True): "Q4_1"}
"""The types that a `Quantized` in groups of 32 is, by its bits and by whether it has minima."""


def as_blocks(weight: Quantized) -> tuple[str, Array]:
    """Return the type of a weight in few bits and its bytes, `(C_out, bytes of a row)`, as a GGUF file holds them.

    Each of its rows is an output's. Raises `ValueError` for groups of another size than 32, and for minima in 8 bits.
    """
    kind = (weight.bits, weight.zeros is not None)
    if weight.group != 32 or kind not in QUANTIZED:
        has = f"groups of {weight.group} in {weight.bits} bits with{'' if kind[1] else 'out'} minima"
        raise ValueError(f"weight has {has}, expected what is one of {', '.join(QUANTIZED.values())}")
    heads = [each[..., None].astype("<f2") for each in (weight.scales, weight.zeros) if each is not None]
    blocks = np.concatenate([each.view(np.uint8) for each in (*heads, weight.packed)], axis=-1)
    return QUANTIZED[kind], blocks.reshape(len(blocks), math.prod(blocks.shape[1:]))


def from_blocks(kind: str, blocks: Array) -> Quantized:
    """Return the weight in few bits that a file's bytes are, `(C_out, bytes of a row)`: nothing is rounded again.

    kind: a type of `QUANTIZED`. Raises `ValueError` for another, and for bytes that are no whole blocks.
    """
    known = {name: key for key, name in QUANTIZED.items()}
    if kind not in known:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(known)}")
    bits, has_minima = known[kind]
    head = 4 if has_minima else 2
    size = head + 4 * bits
    if blocks.ndim != 2 or blocks.dtype != np.uint8 or blocks.shape[1] % size:
        given = f"{blocks.dtype} of shape {blocks.shape}"
        raise ValueError(f"blocks are {given}, expected uint8 rows of a multiple of {size} bytes")
    split = blocks.reshape(len(blocks), blocks.shape[1] // size, size)
    d, m, packed = (np.ascontiguousarray(each) for each in np.split(split, [2, head], axis=-1))
    scales, minima = (each.view("<f2").astype(np.float16)[..., 0] for each in (d, m if has_minima else d))
    return Quantized(packed.view(np.int8) if bits == 8 else packed, scales, minima if has_minima else None, bits)
