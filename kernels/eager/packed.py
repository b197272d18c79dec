"""Attention within each of several sentences that are packed one behind the other, without padding between them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minitransformer.ops import Dropout, Pair

from ..checks import check_device, check_kind
from .attention import attention, attention_lse


class Packed(NamedTuple):
    """The places of B packed sentences on an axis of all queries and one of all keys, in flash-attention's form.

    Sentence b has the rows `starts[b]` to `starts[b + 1] − 1`. No sentence is longer than the two lengths, which the
    host knows, so that it never waits for starts on a GPU.
    """

    query_starts: Tensor  # (B + 1,) int32
    key_starts: Tensor  # (B + 1,) int32
    longest_query: int
    longest_key: int

    @property
    def batch(self) -> int:
        """The number of sentences."""
        return self.query_starts.shape[0] - 1

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise, with flash-attention's names, unless the sentences fit a query `(1, H, total, D)` and a key."""
        self._check("q", self.query_starts, self.longest_query, query)
        self._check("k", self.key_starts, self.longest_key, key)
        if self.query_starts.shape != self.key_starts.shape:
            shapes = tuple(self.query_starts.shape), tuple(self.key_starts.shape)
            raise ValueError(f"cu_seqlens_q has shape {shapes[0]} and cu_seqlens_k {shapes[1]}, expected one shape")

    def _check(self, of: str, starts: Tensor, longest: int, x: Tensor) -> None:
        name, total = f"cu_seqlens_{of}", x.shape[2]
        if check_kind(name, starts, "ids").dtype != torch.int32:
            raise TypeError(f"{name} is {starts.dtype}, expected torch.int32")
        check_device(name, starts, of, x)
        if starts.ndim != 1 or not starts.shape[0]:
            raise ValueError(f"{name} has shape {tuple(starts.shape)}, expected (B + 1,) for B sentences")
        if total and (longest < 1 or starts.shape[0] == 1):
            given = f"max_seqlen_{of} is {longest} and {name} has shape {tuple(starts.shape)}"
            raise ValueError(f"{given}, expected sentences for {of}'s {total} rows")
        if starts.device.type == "cpu":
            places = starts.tolist()
            lengths = [stop - start for start, stop in pairwise(places)]
            if places[0] != 0 or places[-1] != total or min(lengths, default=0) < 0:
                raise ValueError(f"{name} holds {places}, expected numbers that rise from 0 to {of}'s {total} rows")
            if max(lengths, default=0) > longest:
                raise ValueError(f"max_seqlen_{of} is {longest}, and {name} has a sentence of {max(lengths)}")

    def sentences(
        self, slopes: Tensor | None, query: Tensor, key: Tensor, *value: Tensor
    ) -> Iterator[tuple[Tensor | None, tuple[Tensor, ...]]]:
        """Yield each sentence's slopes and parts `(1, heads, T, D)`; this waits for a GPU that holds the starts."""
        self.check(query, key)
        of_queries, of_keys = (starts.diff().tolist() for starts in self[:2])
        parts = zip(query.split(of_queries, 2), *(x.split(of_keys, 2) for x in (key, *value)), strict=True)
        for b, own in enumerate(parts):
            yield slopes if slopes is None or slopes.ndim == 1 else slopes[b], own


def packed_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    packed: Packed | None = None,
    slopes: Tensor | None = None,
    dropout: Dropout | None = None,
    **options: Any,
) -> tuple[Tensor, Any]:
    """Call `attention_forward` for one sentence after the other; without `packed` once for all."""
    if packed is None:
        return attention.forward(query, key, value, bias, slopes=slopes, dropout=dropout, **options)
    outs, caches = [query.new_empty((*query.shape[:2], 0, value.shape[3]))], []
    for b, (own, parts) in enumerate(packed.sentences(slopes, query, key, value)):
        drops = None if dropout is None else replace(dropout, sentence=b)
        out, cache = attention.forward(*parts, slopes=own, dropout=drops, **options)
        outs.append(out)
        caches.append(cache)
    nothing = tuple(x[:, :, :0] for x in (query, key, value))
    return torch.cat(outs, 2), [nothing, [out.shape[2] for out in outs[1:]], caches]


def packed_backward(dout: Tensor, cache: Any) -> tuple[Tensor, ...]:
    """Gradients `(dquery, dkey, dvalue)`, and dbias if a bias was given, as `attention_backward`."""
    if not isinstance(cache, list):
        return attention.backward(dout, cache)
    nothing, lengths, caches = cache
    gradients = map(attention.backward, dout.split(lengths, 2), caches)
    return tuple(torch.cat(parts, 2) for parts in zip(nothing, *gradients, strict=True))


packed_attention = Pair(packed_forward, packed_backward)


def packed_lse(query: Tensor, key: Tensor, *, packed: Packed | None, slopes: Tensor | None, **options: Any) -> Tensor:
    """Return `attention_lse`; of packed sentences `(H, total)`."""
    if packed is None:
        return attention_lse(query, key, slopes=slopes, **options)
    found = [query.new_empty((query.shape[1], 0), dtype=torch.float32)]
    found += [attention_lse(*parts, slopes=own, **options)[0] for own, parts in packed.sentences(slopes, query, key)]
    return torch.cat(found, 1)
