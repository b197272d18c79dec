"""Attention patterns: one value for which queries attend to which keys, its mask, and the pieces of a sparse one.

A mask only hides: every score is computed. A pattern that keeps few pairs is computed in pieces instead, each a product
of some queries with the keys that they reach together. So it costs what it keeps: Table 1's O(r · n · d).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np

from .arguments import Array, arguments, check_flag, check_integer

SMALLEST_BLOCK = 128
"""A sparse pattern takes at least this many neighbouring queries at a time; shorter sequences are computed in full."""

FAR = 2**62
"""A distance without a limit."""

HIDDEN = 2.0**15
"""It is subtracted from a hidden score, whose exponential is then 0; float16 and bfloat16 have this number exactly."""

Window = int | tuple[int | None, int | None] | None
Places = slice | np.ndarray
Part = tuple[Callable[[Array, Array], Array], Callable[[int, int], Iterator[tuple[Places, Places]]]]
"""The mask of a part, for positions of queries and of keys; and its pieces' queries and keys, for Tq and Tk."""

Piece = tuple[Places, Places, Array]
"""Queries, keys, and the mask of these queries and keys."""

check_distance = partial(check_integer, at_least=0)
check_mask_size = partial(check_integer, at_least=0, at_most=2**31 - 1)


def check_window(name: str, value: Any) -> None:
    """Raise unless the value is a distance, or a pair (left, right) of distances or `None`."""
    if not isinstance(value, tuple | list):
        check_distance(name, value)
        return
    if len(value) != 2:
        raise ValueError(f"{name} has {len(value)} numbers, expected an integer or a pair (left, right)")
    for side, distance in zip(("left", "right"), value, strict=True):
        if distance is not None:
            check_distance(f"{name}'s {side}", distance)


@dataclass(frozen=True)
class Pattern:
    """An attention pattern: a query may attend to the keys in any of the parts that are given, to all if none is given.

    window         keys at distance ≤ r, or the pair (left, right): at most `left` before the query and `right` after
                   it, `None` for no limit on that side
    block          keys of the query's own block: positions 0 … block − 1, and so on (Sparse Transformer, fixed)
    summary        the last `summary` keys of every block (the same)
    stride         keys whose distance is a multiple of it (Sparse Transformer, strided)
    global_tokens  positions that every query sees, and that see every key (Longformer)

    These parts are joined; `causal` and `key_mask` then hide what they hide from all of them:

    causal         keys after the query
    key_mask       `(B, Tk)` bool, `False`: this key is padding

    Query i stands at position `Tk − Tq + i`: the last query at the last key.
    Raises `TypeError` or `ValueError`, naming the field, for what is no pattern.
    Sources: Child et al. 2019, §4.2 and §4.3; Beltagy et al. 2020, §3.1.
    """

    causal: bool = False
    window: Window = None
    block: int | None = None
    summary: int = 0
    stride: int | None = None
    global_tokens: tuple[int, ...] = ()
    key_mask: Array | None = None

    def __post_init__(self) -> None:
        """Check every field; NumPy's integers become Python's, which do not overflow."""
        check_flag("causal", self.causal)
        if self.window is not None:
            check_window("window", self.window)
            pair = self.window if isinstance(self.window, tuple | list) else (self.window,)
            numbers = tuple(None if distance is None else int(distance) for distance in pair)
            object.__setattr__(self, "window", numbers if len(numbers) == 2 else numbers[0])
        if not isinstance(self.global_tokens, tuple | list):
            raise TypeError(f"global_tokens must be a tuple of positions, got {type(self.global_tokens).__name__}")
        for name, value, least in (
            *(("global_tokens", token, 0) for token in self.global_tokens),
            *((name, value, 1) for name in ("block", "stride") if (value := getattr(self, name)) is not None),
            ("summary", self.summary, 0),
        ):
            check_integer(name, value, at_least=least)
            if name != "global_tokens":
                object.__setattr__(self, name, int(value))
        object.__setattr__(self, "global_tokens", tuple(map(int, self.global_tokens)))
        if self.summary > (self.block or 0):
            raise ValueError(f"summary is {self.summary}, expected at most block, which is {self.block}")
        mask: Any = self.key_mask
        if mask is not None and not str(getattr(mask, "dtype", "")).endswith("bool"):  # of any library
            raise TypeError(f"key_mask must be a boolean array, got {getattr(mask, 'dtype', type(mask).__name__)}")
        if mask is not None and len(mask.shape) != 2:
            raise ValueError(f"key_mask has shape {tuple(mask.shape)}, expected 2 axes (B, Tk)")

    @property
    def reach(self) -> tuple[int, int]:
        """The window's distances to the left and to the right of a query."""
        pair = self.window if isinstance(self.window, tuple) else (self.window, self.window)
        left, right = (FAR if distance is None else min(distance, FAR) for distance in pair)
        return left, right

    def allows(self, query: Array, key: Array) -> Array | None:
        """Return the mask `(Tq, Tk)` of queries at positions `(Tq, 1)` and keys at `(1, Tk)`; `None` if it hides none.

        The positions are integers of any library. The key mask is left out.
        """
        masks = [mask(query, key) for mask, _ in self._parts()]
        mask = reduce(or_, masks) if masks else None
        if self.causal:
            return key <= query if mask is None else mask & (key <= query)
        return mask

    def pieces(self, num_queries: int, num_keys: int, arange: Callable[..., Array] = np.arange) -> list[Piece] | None:
        """Return the pieces of the matrix of scores that hold all pairs that attend, each pair in one of them.

        `None` where they would save little: then the whole matrix is one piece. The masks are arrays of the library,
        and on the device, for which `arange` makes positions.
        """
        parts = self._parts()
        if not parts or num_keys <= 2 * self._block_size:
            return None
        first = num_keys - num_queries
        queries_at, keys_at = arange(first, num_keys)[:, None], arange(num_keys)[None]
        found = []
        for i, (part, pieces) in enumerate(parts):
            for queries, keys in pieces(num_queries, num_keys):
                query, key = queries_at[queries], keys_at[:, keys]
                mask = part(query, key)
                for earlier, _ in parts[:i]:
                    mask = mask & ~earlier(query, key)
                if self.causal:
                    mask = mask & (key <= query)
                if self.key_mask is not None:
                    mask = mask & self.key_mask[:, None, None, keys]
                found.append((queries, keys, mask))
        return found

    def bias(self, ops: Any, num_queries: int, num_keys: int, padding: Array, dtype: str) -> Array:
        """Return `(B, 1, Tq, Tk)`, to be added to scores: it hides the same pairs behind `padding` `(B,)` positions.

        An op counts positions from the first column; in a row with padding before it the pattern begins later.
        """
        before = padding[:, None, None, None]
        key = ops.asarray(range(num_keys), "int64") - before  # (B, 1, 1, Tk)
        query = ops.asarray(range(num_keys - num_queries, num_keys), "int64")[:, None] - before  # (B, 1, Tq, 1)
        return ops.cast(self.allows(query, key), dtype) * HIDDEN - HIDDEN

    # --- The parts --------------------------------------------------------------------------------------------

    def _parts(self) -> list[Part]:
        near = self.window is not None or self.block is not None
        seen_by_all = bool(self.summary or self.global_tokens)
        return [
            *([(self._near, self._near_pieces)] if near else []),
            *([(self._strided, self._strided_pieces)] if self.stride is not None else []),
            *([(self._seen_by_all, self._seen_by_all_pieces)] if seen_by_all else []),
            *([(self._seeing_all, self._seeing_all_pieces)] if self.global_tokens else []),
        ]

    def _near(self, query: Array, key: Array) -> Array:
        """The window, and the query's own block."""
        masks = []
        if self.window is not None:
            (left, right), back = self.reach, query - key
            masks.append((back <= left) & (back >= -right))
        if self.block is not None:
            masks.append(query // self.block == key // self.block)
        return reduce(or_, masks)

    def _near_pieces(self, num_queries: int, num_keys: int) -> Iterator[tuple[Places, Places]]:
        """Neighbouring queries, and the one run of keys that they reach together."""
        for start in range(0, num_queries, self._block_size):
            stop = min(start + self._block_size, num_queries)
            first, last = (num_keys - num_queries + i for i in (start, stop - 1))  # their positions
            begin, end = num_keys, 0
            if self.window is not None:
                left, right = self.reach
                begin, end = first - left, last + right + 1
            if self.block is not None:
                begin = min(begin, first // self.block * self.block)
                end = max(end, (last // self.block + 1) * self.block)
            end = min(end, last + 1 if self.causal else num_keys)
            yield slice(start, stop), slice(min(max(begin, 0), num_keys), max(end, 0))

    def _strided(self, query: Array, key: Array) -> Array:
        return (query - key) % self.stride == 0

    def _strided_pieces(self, num_queries: int, num_keys: int) -> Iterator[tuple[Places, Places]]:
        """The queries and keys whose positions leave the same remainder."""
        stride = self.stride or 1
        for remainder in range(stride):
            start = (remainder - num_keys + num_queries) % stride
            yield slice(start, num_queries, stride), slice(remainder, num_keys, stride)

    def _seen_by_all(self, query: Array, key: Array) -> Array:
        """The keys that all queries see: global tokens, and each block's summary."""
        masks = [key == token for token in self.global_tokens]
        if self.block is not None and self.summary:
            masks.append(key % self.block >= self.block - self.summary)
        return reduce(or_, masks)

    def _seen_by_all_pieces(self, num_queries: int, num_keys: int) -> Iterator[tuple[Places, Places]]:
        keys = np.arange(num_keys)
        yield slice(0, num_queries), np.flatnonzero(self._seen_by_all(keys, keys))

    def _seeing_all(self, query: Array, key: Array) -> Array:
        """The queries that are global tokens."""
        return reduce(or_, [query == token for token in self.global_tokens])

    def _seeing_all_pieces(self, num_queries: int, num_keys: int) -> Iterator[tuple[Places, Places]]:
        queries = np.arange(num_keys - num_queries, num_keys)
        yield np.flatnonzero(self._seeing_all(queries, queries)), slice(0, num_keys)

    @property
    def _block_size(self) -> int:
        """The number of neighbouring queries of a piece: as many as each of them reaches on one side."""
        reach = self.reach if self.window is not None else (0, 0)
        return max(SMALLEST_BLOCK, self.block or 0, reach[0], 0 if self.causal else reach[1])


def check_pattern(name: str, value: Any) -> None:
    """Raise `TypeError` unless the value is a `Pattern`."""
    if not isinstance(value, Pattern):
        raise TypeError(f"{name} must be a Pattern or None, got {type(value).__name__}")


def pattern_of(
    pattern: Pattern | None,
    causal: bool,
    key_mask: Array | None,
    window: Window,
    shape: tuple[int, int] | None = None,
) -> Pattern:
    """Return an op's `pattern` with what its other options add to it.

    Raises `ValueError` for what is given twice, and for a key mask of another shape than `shape`.
    """
    whole = Pattern(bool(causal), window, key_mask=key_mask)
    if pattern is not None:
        for name in ("window", "key_mask"):
            if getattr(whole, name) is not None and getattr(pattern, name) is not None:
                raise ValueError(f"{name} is given twice, in pattern and beside it: expected once")
        whole = replace(
            pattern,
            causal=pattern.causal or whole.causal,
            window=pattern.window if window is None else window,
            key_mask=pattern.key_mask if key_mask is None else key_mask,
        )
    if shape is not None and whole.key_mask is not None and tuple(whole.key_mask.shape) != shape:
        raise ValueError(f"key_mask has shape {tuple(whole.key_mask.shape)}, expected {shape}")
    return whole


@arguments(
    "key_mask?:bool B Tk",
    num_queries=check_mask_size,
    num_keys=check_mask_size,
    causal=check_flag,
    window=check_window,
    pattern=check_pattern,
)
def attention_mask(
    num_queries: int,
    num_keys: int,
    causal: bool,
    key_mask: Array | None,
    window: Window,
    pattern: Pattern | None = None,
) -> Array | None:
    """Return the mask of attention, `True` = may attend, which broadcasts to `(B, H, Tq, Tk)`; `None` if it hides none.

    Query i stands at position `Tk − Tq + i`: aligned bottom-right, as a key/value cache needs.
    `causal`: keys at or before it. `window = r`: keys at distance ≤ r; `(left, right)`: at most `left` before it and
    `right` after it. `key_mask (B, Tk)`: keys that are real, not padding. A `pattern` says these and more in one value.
    """
    num_queries, num_keys = int(num_queries), int(num_keys)
    whole = pattern_of(pattern, causal, key_mask, window)
    if whole.key_mask is not None and whole.key_mask.shape[-1] != num_keys:
        raise ValueError(f"key_mask has shape {whole.key_mask.shape}, expected (B, {num_keys})")
    return mask_of(whole, num_queries, num_keys)


def mask_of(pattern: Pattern, num_queries: int, num_keys: int) -> Array | None:
    """Return the mask of a pattern, as `attention_mask` does."""
    mask = pattern.allows(np.arange(num_keys - num_queries, num_keys)[:, None], np.arange(num_keys)[None])
    if pattern.key_mask is None:
        return mask
    real = pattern.key_mask[:, None, None, :]  # (B, 1, 1, Tk)
    return real if mask is None else mask & real
