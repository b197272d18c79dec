"""Lesson 24: a header, bfloat16, a gradient in the layout of a file, and one of few numbers beside it."""

import json
import struct
from typing import Any

import numpy as np

from minitransformer.gradcheck import error

from ..checks import (
    in_case,
    peak_memory,
    require,
    require_arrays,
    require_close,
    require_gradients,
    require_none_of,
    require_vectorized,
    type_name,
)
from ..exercise import Attempt, Wrong, exercise
from . import solutions
from .stranger import BYTES, safetensors

# --- The header -----------------------------------------------------------------------------------------------


@exercise(answer=solutions.read_header)
def read_header(attempt: Attempt) -> None:
    plain = _file({"wte.weight": ("F32", [5, 3]), "h.0.attn.c_attn.weight": ("BF16", [3, 9])})
    with in_case("of a file with two tensors:"):
        _judge_header(attempt, plain)
    with in_case("of a file with __metadata__:"):
        _judge_header(attempt, _file({"wte.weight": ("F32", [5, 3])}, metadata=True))
    many = {f"transformer.h.{layer}.ln_{n}.weight": ("BF16", [7]) for layer in range(60) for n in (1, 2)}
    with in_case("of a file with 120 tensors:"):
        _judge_header(attempt, _file(many))
    mixed: dict[str, tuple[str, list[int]]] = {"mask": ("U8", [1, 1, 3, 3]), "scale": ("F32", []), "none": ("F32", [0])}
    with in_case("of a file with a mask (U8), a single number (shape []) and an empty tensor (shape [0]):"):
        _judge_header(attempt, _file(mixed))
    turned = _file({"b": ("F32", [2]), "a": ("F64", [3]), "c": ("BF16", [5])}, turned=True)
    with in_case("of a file whose header names the tensors in another order than they lie in:"):
        _judge_header(attempt, turned)
    with in_case("of a file whose header has more than 65,536 bytes, as those of large models have:"):
        _judge_header(attempt, _file({f"h.{layer}.ln_1.weight": ("U8", [1]) for layer in range(1000)}))
    with in_case("of a file with the name größe.weight:"):
        _judge_header(attempt, _file({"größe.weight": ("F32", [4])}))
    with in_case("of a file without a tensor:"):
        _judge_header(attempt, _file({}, metadata=True))
    longer = (int.from_bytes(plain[:8], "little") + 2**32).to_bytes(8, "little") + plain[8:]
    with in_case("of a file that is cut off inside its header, which the first 8 bytes say is 4 GiB long,"):
        _refused(attempt, longer, "it must raise ValueError", "the header's length is read as if it had 4 bytes")
    for data, missing, why in (
        (plain, 2, ""),
        (plain, 40, ""),
        (plain, len(plain) - 12, ""),
        (turned, 2, "; the header names the tensors in another order than they lie in"),
        (plain, len(plain) - 5, "; it has 5 bytes, fewer than the header's length alone"),
        (plain, len(plain), "; it is empty"),
    ):
        with in_case(f"of a file that is cut off ({missing} bytes short{why})"):
            _refused(
                attempt,
                data[:-missing],
                "it must raise ValueError",
                "it is read as if it were whole: compare the largest stop with the length of `data`, and raise "
                "ValueError",
            )


def _refused(attempt: Attempt, data: bytes, must: str, read: str) -> None:
    """Raise `Wrong`, with `must` or `read` in its words, unless the attempt raises ValueError."""
    try:
        attempt(data)
    except Wrong as wrong:
        require(isinstance(wrong.__cause__, ValueError), f"{must}, and {wrong}")
    else:
        raise Wrong(read)


def _file(tensors: dict[str, tuple[str, list[int]]], metadata: bool = False, turned: bool = False) -> bytes:
    """A file of zeros and ones. `turned`: its header lists the tensors from the last to the first."""
    contents = {}
    for name, (sort, shape) in tensors.items():
        count = int(np.prod(shape))
        contents[name] = sort, shape, bytes([1] * BYTES[sort] * count)
    data = safetensors(contents)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    if not metadata:
        del header["__metadata__"]
    if turned:
        header = dict(reversed(header.items()))
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[start:]


def _judge_header(attempt: Attempt, data: bytes) -> None:
    right = solutions.read_header(data)
    try:
        found = attempt(data)
    except Wrong as wrong:
        length = int.from_bytes(data[:8], "little")
        if isinstance(wrong.__cause__, json.JSONDecodeError | UnicodeDecodeError):
            raise Wrong(
                f"{wrong} (what is parsed is not the header: that is the {length} bytes after the first 8, and those 8 "
                "are its length, the lowest byte first)"
            ) from None
        if isinstance(wrong.__cause__, ValueError):
            raise Wrong(f"{wrong} (this file is whole: its {len(data)} bytes are what the header promises)") from None
        raise
    require(isinstance(found, dict), f"it must return a dictionary by the tensors' names, not {type_name(found)}")
    require("__metadata__" not in found, "__metadata__ is no tensor: it is left out")
    missing, surplus = sorted(right.keys() - found.keys()), sorted(map(str, found.keys() - right.keys()))
    require(
        not (missing and surplus),
        f"a tensor is called {surplus[:1]}, where the file has {missing[:1]}: keep names as they are",
    )
    require(
        not missing, f"{missing[:1]} is missing: every entry of the header is a tensor, whatever its type and shape"
    )
    require(not surplus, f"the file has no tensor {surplus[:1]}")
    for name, entry in sorted(right.items(), key=lambda item: item[1][3], reverse=True):
        # Begin with the last tensor: others lie before it, so that its stop differs from its size.
        _judge_entry(name, found[name], entry, data)


def _judge_entry(name: str, found: Any, right: tuple[str, tuple[int, ...], int, int], data: bytes) -> None:
    require(
        isinstance(found, tuple | list) and len(found) == 4,
        f"{name} must have four entries (type, shape, start, stop), not "
        f"{len(found) if isinstance(found, tuple | list) else type_name(found)}",
    )
    sort, shape, start, stop = found
    first = 8 + int.from_bytes(data[:8], "little")
    require(
        isinstance(sort, str) and sort == right[0],
        f"{name} has type {sort!r}, and the header says {right[0]!r}: keep the text as it is",
    )
    require(
        isinstance(shape, tuple),
        f"the shape of {name} is of type {type(shape).__name__}, and must be a tuple, as NumPy's shapes are",
    )
    require(shape == right[1], f"{name} has shape {shape}, and the header says {right[1]}")
    whole = all(isinstance(each, int | np.integer) for each in (start, stop))
    require(whole, f"{name}: start and stop must be whole numbers, not {start!r} and {stop!r}")
    if (start, stop) == right[2:]:
        return
    require(
        (start, stop) != (right[2] - first, right[3] - first) or first == 0,
        f"{name} begins at byte {start}, counted from the end of the header: start and stop are places in the whole "
        "file",
    )
    require(
        (start, stop) != (right[2] - 8, right[3] - 8),
        f"{name} begins at byte {start}, which is 8 too early: the header's length has 8 bytes of its own",
    )
    require(
        start != right[2] or stop != right[3] - right[2],
        f"{name} has {stop} as its fourth entry, which is how many bytes it has: the byte after its last is wanted",
    )
    require(
        start != right[2] or stop != right[3] - 1,
        f"{name} stops at {stop}, its last byte: the byte after it is wanted, as in a slice",
    )
    raise Wrong(
        f"{name} is found in bytes {start} to {stop}, and lies in {right[2]} to {right[3]}: its data_offsets say "
        "where, counted from the end of the header"
    )


# --- bfloat16 -------------------------------------------------------------------------------------------------


@exercise(answer=solutions.widen)
def widen(attempt: Attempt) -> None:
    # 1, −2, 0.5, 3.140625, the smallest normal number, the largest number
    bits = np.array([0x3F80, 0xC000, 0x3F00, 0x4049, 0x0080, 0x7F7F], np.uint16)
    right = solutions.widen(bits)
    found = attempt(bits)
    require(isinstance(found, np.ndarray), f"it must return an array, not {type_name(found)}")
    require(found.dtype == np.float32, f"it must return float32, not {found.dtype}")
    require(
        found.size == bits.size,
        f"bits of shape {bits.shape} have become {found.shape}: one number comes from 16 bits, so widen them to 32 "
        "before they are looked at as float32",
    )
    shape = f"bits of shape {bits.shape} have become {found.shape}: the shape stays as it is"
    require(found.shape == bits.shape, shape)
    with np.errstate(all="ignore"):
        for other, why in (
            (bits.astype(np.float32), "are the bits' values as whole numbers: not `astype`, look at the bits (`view`)"),
            (bits.view(np.float16).astype(np.float32), "are those of float16, which has 5 bits of exponent, not 8"),
            (
                (bits.astype(np.uint32) << 16).astype(np.float32),
                (
                    "are whole numbers, 65,536 times the bits' values: look at the 32 bits as float32 (`view`), where "
                    "`astype` or a product makes another number of them"
                ),
            ),
            (
                bits.astype(np.uint32).view(np.float32),
                "have the 16 bits in the lower half of the 32: they are the upper half",
            ),
            (
                solutions.widen(bits.byteswap()),
                "have their two bytes exchanged: the file's lowest byte comes first, and `bits` has been read so",
            ),
            (solutions.widen(bits & 0x7FFF), "have lost their sign: the highest of the 16 bits"),
        ):
            require(not np.array_equal(found, other, equal_nan=True), f"the numbers {why}")
    require(
        found.any(),
        "all numbers are 0: were the 16 bits shifted out (to the right, or as uint16, which has no room above them), "
        "or put at the lower end of more than 32?",
    )
    for shift in (8, 15, 24):
        moved = solutions.widen((bits.astype(np.uint32) << shift >> 16).astype(np.uint16))
        low = (bits.astype(np.uint32) << shift).view(np.float32)
        require(
            not (np.array_equal(found, low, equal_nan=True) or np.array_equal(found, moved, equal_nan=True)),
            f"the bits are shifted by {shift}: there are 16, and 16 zeros come after them",
        )
    if not np.array_equal(found, right):
        place = int(np.argmax(found != right))
        raise Wrong(
            f"0x{int(bits[place]):04X} has become {found[place]:.9g} and must become {right[place]:.9g}: the 16 bits, "
            "and 16 zeros after them"
        )
    special = np.array([0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x0001, 0x8001], np.uint16)
    names = "0, −0, infinity, −infinity, NaN, the smallest number, minus the smallest number".split(", ")
    for name, mine, own in zip(names, attempt(special), special, strict=True):
        wanted = solutions.widen(np.array([own]))
        require(
            _same(np.array([mine]), wanted),
            f"{name}, 0x{int(own):04X}, has become {mine:.9g}: no arithmetic is needed, only bits that move",
        )
    every = np.arange(65536, dtype=np.uint16).reshape(2, 4, 8192)
    table = attempt(every)
    require(
        table.shape == every.shape, f"bits of shape {every.shape} have become {table.shape}: the shape stays as it is"
    )
    require(
        _same(table, solutions.widen(every)),
        "of all 65,536 patterns of bits not all are right, though the first ones were",
    )
    strided = every[:, ::2, ::3].transpose(1, 0, 2)
    require(
        _same(attempt(strided), solutions.widen(strided)),
        "where `bits` is a part of a larger array, with gaps, the result is wrong",
    )
    require(attempt(np.zeros((0, 3), np.uint16)).shape == (0, 3), "an empty array must stay one, of its shape")
    require_vectorized(
        lambda: attempt(np.ones(8, np.uint16)),
        lambda: attempt(np.ones(1024, np.uint16)),
        "it loops over the numbers, and a real file has hundreds of millions: shift the whole array at once",
    )


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return True if the numbers are equal; 0 and −0 differ, and all NaNs are equal."""
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a)[a == 0], np.signbit(b)[b == 0])


# --- Gradients in the file's layout ---------------------------------------------------------------------------


def split_c_attn(weight: np.ndarray, bias: np.ndarray, num_heads: int) -> tuple[np.ndarray, np.ndarray]:
    """As in the lesson."""
    weights = weight.reshape(len(weight), 3, num_heads, -1).transpose(1, 2, 0, 3)  # (3, H, C, D)
    return weights, bias.reshape(3, num_heads, -1)


@exercise(answer=solutions.split_c_attn_backward)
def split_c_attn_backward(attempt: Attempt) -> None:
    for C, H, D in ((10, 2, 5), (8, 4, 2), (7, 3, 4), (9, 1, 9)):
        with in_case(f"with C = {C} and {H} head{'s' * (H > 1)} of {D},"):
            _judge_split(attempt, C, H, D)


def _judge_split(attempt: Attempt, C: int, H: int, D: int) -> None:
    # Each number encodes its place: 10000 · row of the weight + 1000 · kind + 100 · head + column of the head.
    sort, head, row, column = np.meshgrid(np.arange(3), np.arange(H), np.arange(C), np.arange(D), indexing="ij")
    dweights = 10000.0 * row + 1000 * sort + 100 * head + column
    dbiases = dweights[:, :, 0] + 0.5
    dweight, dbias = require_arrays(attempt(dweights, dbiases), "dweight", "dbias")
    require(not (dweight.ndim == 1 and dbias.ndim == 2), "the two are returned in the other order: dweight, then dbias")
    wanted = (C, 3 * H * D)
    if dweight.shape != wanted:
        transposed = dweight.shape == wanted[::-1]
        likely = ": that is a Linear's layout, (out, in), and GPT-2's file has (in, out)" if transposed else ""
        likely = ": that is one third of it" if dweight.shape == (C, H * D) else likely
        raise Wrong(f"dweight has shape {dweight.shape} and must have {wanted}, as c_attn.weight{likely}")
    require(dbias.shape == wanted[1:], f"dbias has shape {dbias.shape} and must have {wanted[1:]}, as c_attn.bias")
    expected, expected_bias = solutions.split_c_attn_backward(dweights, dbiases)
    for name, mine, right in (("dweight", dweight, expected), ("dbias", dbias, expected_bias)):
        factor = float(np.vdot(right, mine) / np.vdot(right, right))
        if factor and error(mine / factor, right) < 1e-9:
            require_close(name, mine, right)  # the hint names a constant factor
    require(
        np.array_equal(dweight // 10000, np.broadcast_to(np.arange(C)[:, None], wanted)),
        "rows of dweight hold numbers of other rows: before the reshape the axis of C must be the first, since reshape "
        "itself moves no number",
    )
    _judge_columns("dweight", dweight[0], expected[0], H)
    require_close("dweight", dweight, expected)
    _judge_columns("dbias", dbias, expected_bias, H)
    require_close("dbias", dbias, expected_bias)

    def forward(weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, Any]:
        weights, biases = split_c_attn(weight, bias, H)
        return np.concatenate([weights.ravel(), biases.ravel()]), None

    def backward(dout: np.ndarray, _: Any) -> Any:
        size = dweights.size
        return attempt(dout[:size].reshape(dweights.shape), dout[size:].reshape(dbiases.shape))

    rng = np.random.default_rng(0)
    require_gradients(
        forward, backward, {"weight": rng.standard_normal(wanted), "bias": rng.standard_normal(wanted[1])}
    )


def _judge_columns(name: str, row: np.ndarray, right: np.ndarray, H: int) -> None:
    """Raise `Wrong` with the wrong order of kinds, heads or columns in one row of dweight or in dbias."""
    if not np.array_equal(np.sort(row), np.sort(right)):  # the numbers themselves are wrong, not only their order
        return
    kinds, heads, columns = (row // 1000, row // 100 % 10, row % 100)
    if np.array_equal(kinds, right // 1000) and np.array_equal(heads, right // 100 % 10):
        require(np.array_equal(columns, right % 100), f"in {name} the columns of a head are in another order")
        return
    width = len(row) // 3
    if np.array_equal(kinds, right // 1000):
        firsts = heads[:width]
        reverse = np.array_equal(firsts, right[:width][::-1] // 100 % 10)
        require(
            not reverse or H == 1,
            f"in {name} the heads are in the reverse order: head 0 has the first columns of a third",
        )
        raise Wrong(
            f"in {name} the columns of the heads are mixed: a third begins with all columns of head 0, then come those "
            "of head 1"
        )
    order = [int(kinds[start]) for start in (0, width, 2 * width)]
    blocks = all((kinds[start : start + width] == kinds[start]).all() for start in (0, width, 2 * width))
    names = "QKV"
    require(
        not blocks,
        f"in {name} the thirds are [{'|'.join(names[k] if k in (0, 1, 2) else '?' for k in order)}], and the file has "
        "[Q|K|V]",
    )
    raise Wrong(
        f"in {name} queries, keys and values alternate: the file has the queries of all heads, then all keys, then all "
        "values"
    )


# --- The gradient of an adapter -------------------------------------------------------------------------------


def adapter_forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, A: np.ndarray, B: np.ndarray, alpha: float
) -> tuple[np.ndarray, Any]:
    """As in the lesson."""
    low = x @ A  # (..., r)
    return x @ weight + bias + alpha / A.shape[1] * (low @ B), (x, low, weight, A, B, alpha)


@exercise(answer=solutions.adapter_backward)
def adapter_backward(attempt: Attempt) -> None:
    # Square matrices first: with them a missing transpose raises no exception, and the hint can name it.
    for shape, (C, F, r), alpha in (
        ((7,), (4, 4, 4), 6),
        ((2, 5), (6, 9, 2), 3),
        ((2, 3, 4), (5, 7, 1), 0.5),
        ((), (6, 4, 3), 2),
    ):
        with in_case(f"with x {(*shape, C)}, W {(C, F)}, r = {r}, alpha = {alpha}:"):
            _judge_adapter(attempt, shape, C, F, r, alpha)
    with in_case("where B is 0, as before the first step:"):
        _judge_first_step(attempt)
    _judge_memory(attempt)


def _adapter_case(shape: tuple[int, ...], C: int, F: int, r: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(C)
    sizes = {"x": (*shape, C), "weight": (C, F), "bias": (F,), "A": (C, r), "B": (r, F)}
    return rng.standard_normal((*shape, F)), {name: rng.standard_normal(size) for name, size in sizes.items()}


def _judge_adapter(attempt: Attempt, shape: tuple[int, ...], C: int, F: int, r: int, alpha: float) -> None:
    dout, arguments = _adapter_case(shape, C, F, r)
    _, cache = adapter_forward(**arguments, alpha=alpha)
    found = attempt(dout, cache)
    count = len(found) if isinstance(found, tuple | list) else 1
    require(
        count <= 3,
        f"it returns {count} arrays, and only dx, dA and dB are wanted: W and its bias are frozen, so nothing needs "
        "their gradients",
    )
    dx, dA, dB = require_arrays(found, "dx", "dA", "dB")
    _judge_shapes(dx.shape, dA.shape, dB.shape, shape, C, F, r)
    right = solutions.adapter_backward(dout, cache)
    exchanged = dA.shape == dB.shape and error(dA, right[2]) + error(dB, right[1]) < 1e-9
    require(not exchanged, "dA and dB are exchanged: they are returned in the order dx, dA, dB")
    _judge_dA(dA, right, dout, cache)
    _judge_dB(dB, right, dout, cache)
    _judge_dx(dx, right, dout, cache)

    def forward(x: np.ndarray, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, Any]:
        return adapter_forward(x, arguments["weight"], arguments["bias"], A, B, alpha)

    require_gradients(forward, attempt, {name: arguments[name] for name in ("x", "A", "B")})


def _judge_shapes(
    dx: tuple[int, ...], dA: tuple[int, ...], dB: tuple[int, ...], shape: tuple[int, ...], C: int, F: int, r: int
) -> None:
    wanted = {"dx": (*shape, C), "dA": (C, r), "dB": (r, F)}
    require(
        sorted((dx, dA, dB)) != sorted(wanted.values()) or (dx, dA, dB) == tuple(wanted.values()),
        f"the three have the shapes {dx}, {dA}, {dB}: they are returned in the order dx, dA, dB",
    )
    for name, given in zip(wanted, (dx, dA, dB), strict=True):
        if given == wanted[name]:
            continue
        likely = ": is it transposed?" if given == wanted[name][::-1] else ""
        if name != "dx" and given == (*shape, *wanted[name]):
            likely = ": all rows of x go through the same matrix, so sum over the axes before the last one"
        elif given == (C, F):
            likely = {
                "dA": ": x and dout alone make W's gradient; what arrives at low = x A has come back through B",
                "dB": ": x and dout alone make W's gradient; B has got low = x A, not x",
            }.get(name, "")
        elif name == "dA" and given == (r, r):
            likely = ": A has got x, and `low` is what it made of it"
        raise Wrong(f"{name} has shape {given} and must have {wanted[name]}{likely}")


def _factors(cache: Any) -> dict[str, float]:
    """Return the factors by which mistakes make a gradient of A or B too large, by their description.

    A factor of 1 is never needed: that gradient is right.
    """
    x, _, _, A, B, alpha = cache
    r, scale, N = A.shape[1], alpha / A.shape[1], x.size // x.shape[-1]
    factors = {
        "1 / (alpha/r): has the factor alpha/r been forgotten?": 1 / scale,
        "alpha/r once more: it belongs in here only once": scale,
        "r: the factor is alpha/r, not alpha": r,
        "r²: the factor is alpha/r, not alpha · r": r**2,
        "√r: the factor is alpha/r, not alpha/√r": r**0.5,
        "r/F: r is how many columns A has": r / B.shape[1],
        "r/C: r is how many columns A has": r / len(A),
        "1 / (alpha/r)², so is the factor r/alpha? It is alpha/r": scale**-2,
        "1 / (the number of rows of x): that is a mean, and a sum is wanted": 1 / N,
        "1/alpha: the factor is alpha/r, not 1/r": 1 / alpha,
    }
    if x.ndim > 2:
        factors["1 / (the first axis of x): that is a mean, and a sum is wanted"] = 1 / len(x)
    return factors


def _rows(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, array.shape[-1])


def _is_of_the_forward(name: str, found: np.ndarray, right: np.ndarray, other: str, moved: np.ndarray) -> None:
    """Raise `Wrong` if the other matrix has taken a step, which makes `found` wrong by a multiple of `moved`."""
    step = float(np.vdot(moved, found - right) / np.vdot(moved, moved))
    require(
        abs(step) < 1e-6 or error(found - right, step * moved) > 1e-9,
        f"{name} is computed with another {other}, one that has taken a step along d{other}: all gradients belong to "
        "the A and B of the forward",
    )


def _judge_dA(dA: np.ndarray, rights: tuple[np.ndarray, ...], dout: np.ndarray, cache: Any) -> None:
    x, low, _, A, B, alpha = cache
    scale = alpha / A.shape[1]
    dlow = scale * (dout @ B.T)
    mistakes = {"has only what the first of x gives: sum over all of them": _rows(x[:1]).T @ _rows(dlow[:1])}
    if x.ndim > 2:
        joined = x.T.reshape(x.shape[-1], -1) @ _rows(dlow)
        mistakes["pairs rows of x with other rows of dout: `.T` turns all axes round, so reshape to rows first"] = (
            joined
        )
        mistakes["lacks a part of x: sum over all axes before the last one"] = _rows(x[-1]).T @ _rows(dlow[-1])
    if B.shape[0] == B.shape[1]:
        without = _rows(x).T @ _rows(dout)
        mistakes["is x and dout alone: what arrives at low = x A has come back through B"] = without
        mistakes["is x and dout alone, scaled: what arrives at low = x A has come back through B"] = scale * without
        turned = scale * _rows(x).T @ _rows(dout @ B)
        mistakes["has B where Bᵀ belongs: the forward multiplies by B, so the backward by Bᵀ"] = turned
    mistakes["has `low` where x belongs: A has got x, and `low` is what it made of it"] = _rows(low).T @ _rows(dlow)
    _, right, of_B = rights
    if x.ndim > 1:
        require_none_of("dA", dA, right, mistakes)
        _is_of_the_forward("dA", dA, right, "B", _rows(x).T @ _rows(dout @ of_B.T))
    require_close("dA", dA, right, factors=_factors(cache))


def _judge_dB(dB: np.ndarray, rights: tuple[np.ndarray, ...], dout: np.ndarray, cache: Any) -> None:
    x, low, _, A, B, alpha = cache
    scale = alpha / A.shape[1]
    mistakes = {"has only what the first of x gives: sum over all of them": scale * _rows(low[:1]).T @ _rows(dout[:1])}
    if x.ndim > 2:
        joined = scale * low.T.reshape(low.shape[-1], -1) @ _rows(dout)
        mistakes["pairs rows of `low` with other rows of dout: `.T` turns all axes round, reshape to rows first"] = (
            joined
        )
    for factor, words in ((scale, ""), (1.0, ", and without the factor alpha/r")):
        likely = f"has x where `low` belongs{words}: B has got low = x A"
        mistakes[likely] = factor * _rows(x).T @ _rows(dout)
        likely = f"has what arrives at `low`, dout Bᵀ, where `low` itself belongs{words}"
        mistakes[likely] = factor * _rows(dout @ B.T).T @ _rows(dout)
    _, of_A, right = rights
    if x.ndim > 1:
        require_none_of("dB", dB, right, mistakes)
        _is_of_the_forward("dB", dB, right, "A", _rows(x @ of_A).T @ _rows(dout))
    require_close("dB", dB, right, factors=_factors(cache))


def _judge_dx(dx: np.ndarray, rights: tuple[np.ndarray, ...], dout: np.ndarray, cache: Any) -> None:
    x, _, weight, A, B, alpha = cache
    scale, r = alpha / A.shape[1], A.shape[1]
    frozen, adapter = dout @ weight.T, dout @ B.T @ A.T
    mistakes = {
        "is what comes back through W alone: x goes into A too": frozen,
        "is what comes back through A and B alone: W is frozen, and x still goes through it": scale * adapter,
        "has the adapter's part without the factor alpha/r": frozen + adapter,
        "has the adapter's part with the factor alpha/r twice": frozen + scale**2 * adapter,
        "has the adapter's part with the factor alpha, and it is alpha/r": frozen + scale * r * adapter,
        "has the adapter's part with the factor r/alpha, and it is alpha/r": frozen + adapter / scale,
        "has the factor alpha/r on W's part too: it belongs to the adapter's": scale * (frozen + adapter),
        "has W's part with a minus: y is a sum, and so is dx": scale * adapter - frozen,
        "is what comes back through W, with the factor alpha/r, and nothing through A": scale * frozen,
        "has the bias's gradient added: x is no part of the bias": frozen + scale * adapter + _rows(dout).sum(axis=0)
        if dout.shape == x.shape
        else frozen,
        "has the difference of W's part and the adapter's: y is a sum, and so is dx": frozen - scale * adapter,
    }
    if weight.shape == A.shape == B.shape:
        mistakes |= {
            "has W where Wᵀ belongs: the forward multiplies by W, so the backward by Wᵀ": (
                dout @ weight + scale * adapter
            ),
            "has A where Aᵀ belongs: the forward multiplies by A, so the backward by Aᵀ": (
                frozen + scale * dout @ B.T @ A
            ),
            "has B where Bᵀ belongs: the forward multiplies by B, so the backward by Bᵀ": (
                frozen + scale * dout @ B @ A.T
            ),
            "has A and B where Aᵀ and Bᵀ belong: backwards comes first Bᵀ, then Aᵀ": frozen + scale * dout @ A @ B,
            "goes back through A first: the forward ends with B, so the backward begins with Bᵀ": (
                frozen + scale * dout @ A.T @ B.T
            ),
        }
    right, of_A, of_B = rights
    require_none_of("dx", dx, right, mistakes)
    if x.ndim > 1:
        _is_of_the_forward("dx", dx, right, "A", dout @ B.T @ of_A.T)
        _is_of_the_forward("dx", dx, right, "B", dout @ of_B.T @ A.T)
    require_close("dx", dx, right)


def _judge_first_step(attempt: Attempt) -> None:
    dout, arguments = _adapter_case((3, 4), 5, 6, 2)
    _, cache = adapter_forward(**arguments | {"B": np.zeros((2, 6))}, alpha=3)
    dx, dA, dB = require_arrays(attempt(dout, cache), "dx", "dA", "dB")
    right = solutions.adapter_backward(dout, cache)
    require(dB.any(), "dB is 0, so that nothing would ever move: dB needs `low` and dout, and not B")
    require(not dA.any(), "dA must be 0: what arrives at `low` has come back through B")
    for name, mine, wanted in zip(("dx", "dA", "dB"), (dx, dA, dB), right, strict=True):
        require_close(name, mine, wanted)


def _judge_memory(attempt: Attempt) -> None:
    C, F, r = 400, 500, 2  # large in comparison with np.einsum's buffers
    dout, arguments = _adapter_case((3,), C, F, r)
    _, cache = adapter_forward(**arguments, alpha=3)
    attempt(dout, cache)
    most = peak_memory(lambda: attempt.function(dout, cache))  # not `attempt(…)`, whose copies would count too
    require(
        most < 4 * C * F,
        f"it is right, and with W {(C, F)}, 3 rows and r = {r} it needs {most / 1e3:,.0f} kB at a time; W itself has "
        f"{8 * C * F / 1e3:,.0f} kB: make no array of W's shape, such as A @ B or W's gradient; products with rows of "
        "x and dout come first",
    )
