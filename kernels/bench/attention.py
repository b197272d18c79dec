"""Attention on 16,384 tokens of 2,048 channels, in sentences of 512 to 16,384, against PyTorch's backends.

Operations are counted as is usual: 4 · D for each pair of a query and a key that attend to each other (two products, a
multiplication and an addition each), a causal mask counted as half of all pairs; 2.5 times as many for the backward.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from minitransformer.ops import Dropout

from ..attention import attention_naive
from ..eager.attention import attention_mask
from .ledger import BOTH, FORWARD, OURS
from .machine import Machine
from .race import Prepare, Task, of_autograd, of_pair, task

BACKENDS = {
    "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
"""The ways of `scaled_dot_product_attention`. The third is timed only with a mask, which the first does not take."""

RATE = 0.1


@dataclass(frozen=True)
class Shape:
    """What attends to what."""

    kind: str
    B: int
    H: int
    Tq: int
    Tk: int
    D: int
    window: int | None = None

    def pairs(self) -> float:
        """How many queries and keys of a head attend to each other, over all sentences."""
        everything = float(self.B * self.Tq * self.Tk)
        if self.kind == "causal":
            return everything / 2
        if self.window is not None:
            query = torch.arange(self.Tk - self.Tq, self.Tk)  # the last is as far as the last key
            keys = (query + self.window + 1).clamp(max=self.Tk) - (query - self.window).clamp(min=0)
            return self.B * keys.sum().item()
        key_mask = self.key_mask("cpu")
        return everything if key_mask is None else self.Tq * key_mask.sum().item()

    def mask(self, device: str) -> Tensor | None:
        """What PyTorch is given, where the shape is not causal."""
        return attention_mask(self.Tq, self.Tk, device, False, self.key_mask(device), self.window)

    def key_mask(self, device: str) -> Tensor | None:
        """`(B, Tk)`: up to an eighth of each sentence is padding, on the right, or every sixteenth key anywhere."""
        key = torch.arange(self.Tk, device=device)
        sentence = torch.arange(self.B, device=device)[:, None]
        if self.kind == "padding":
            return key < self.Tk * (63 - sentence % 8) // 64
        return (key + sentence) % 16 != 5 if self.kind == "scattered padding" else None

    def draw(self, machine: Machine) -> tuple[tuple[Tensor, ...], Tensor]:
        """Query, key and value, and the gradient of what comes out."""
        lengths = self.Tq, self.Tk, self.Tk, self.Tq
        *inputs, dout = (machine.randn(self.B, self.H, length, self.D) for length in lengths)
        return tuple(inputs), dout


def shapes(machine: Machine) -> Iterator[Shape]:
    """What the targets name comes first, in case that the time does not suffice."""
    tokens, width, window = machine.size((16_384, 2_048, 256), (32, 8, 5))
    lengths, widths = machine.size(((4096, 16_384, 8192, 2048, 1024, 512), (128, 64)), ((16, 32), (8, 5)))

    def shape(kind: str, T: int, D: int, **options: int) -> Shape:
        sizes = {"B": tokens // T, "H": width // D, "Tq": T, "Tk": T, "D": D}
        return Shape(kind, **sizes | options)

    usual, long = lengths[:2]
    for D in widths:
        for T in lengths[:3]:
            yield from (shape(kind, T, D) for kind in ("full", "causal"))
    for kind in ("padding", "dropout", "scattered padding"):
        yield shape(kind, usual, widths[0])
    yield shape("window", long, widths[0], window=window)
    yield shape("cross", usual, widths[0], Tq=usual // 4)
    for D in widths:
        for T in lengths[3:]:
            yield from (shape(kind, T, D) for kind in ("full", "causal"))


def tasks(machine: Machine) -> Iterator[Task]:
    """Forward, and forward with backward, of every shape."""
    for shape in shapes(machine):
        size = {name: value for name, value in vars(shape).items() if value is not None}
        for what, factor in ((FORWARD, 1.0), (BOTH, 3.5)):
            work = {"flops": factor * 4 * shape.H * shape.pairs() * shape.D}
            draw, contestants = partial(shape.draw, machine), _contestants(shape, what, machine)
            yield task(machine, "attention", what, size, work, draw, contestants)


def _contestants(shape: Shape, what: str, machine: Machine) -> dict[str, Prepare]:
    causal = shape.kind == "causal"
    options: dict[str, Any] = {"causal": causal, "key_mask": shape.key_mask(machine.device), "window": shape.window}
    rate = RATE if shape.kind == "dropout" else 0.0
    dropout = Dropout(rate, key=1) if rate else None
    prepares = {OURS: of_pair("attention", what, **options, dropout=dropout)}
    mask = cache(lambda: shape.mask(machine.device))
    masked = options["key_mask"] is not None or shape.window is not None
    for name, backend in BACKENDS.items():
        if name != "memory-efficient" or masked:
            prepares[name] = of_autograd(_pinned(backend, mask, is_causal=causal, dropout_p=rate), what)
    if not rate:
        prepares["naive"] = of_autograd(lambda *inputs: attention_naive(*inputs, **options), what)
    return prepares


def _pinned(backend: SDPBackend, mask: Callable[[], Tensor | None], **options: Any) -> Callable[..., Tensor]:
    """`scaled_dot_product_attention` on this backend or not at all; the mask is made when it is first needed."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=mask(), **options)

    return attend
