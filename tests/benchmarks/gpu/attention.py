"""Attention on 16,384 tokens of 2,048 channels, in sentences of 512 to 16,384, against PyTorch's backends.

Operations are counted as is usual: 4 · D for each pair of a query and a key that attend to each other (two products, a
multiplication and an addition each), a causal mask counted as half of all pairs; 2.5 times as many for the backward.

FlexAttention, which makes a kernel for each mask and each change of scores, is timed once for each kind that has one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.attention import attention_naive
from kernels.eager.attention import alibi_bias, attention_mask
from kernels.proof.ledger import BOTH, FLEX, FORWARD, OURS
from kernels.proof.machine import Machine
from kernels.proof.race import Prepare, Task, of_autograd, of_pair, task
from minitransformer.ops import Dropout, Pattern

BACKENDS = {
    "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
"""The ways of `scaled_dot_product_attention`. The third is timed only with a mask, which the first does not take."""

RATE, SOFTCAP = 0.1, 50.0


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
    group: int = 1  # heads of queries for each head of keys and values

    @property
    def causal(self) -> bool:
        """Whether a query sees only what lies before it."""
        return self.kind in ("causal", "grouped heads", "alibi", "pattern")

    @property
    def pattern(self) -> Pattern:
        """Which keys a query sees, but for padding: of a "pattern" a window and the first token."""
        return Pattern(self.causal, self.window, global_tokens=(0,) if self.kind == "pattern" else ())

    def pairs(self) -> float:
        """How many queries and keys of a head attend to each other, over all sentences."""
        everything = float(self.B * self.Tq * self.Tk)
        if self.window is not None:
            query = torch.arange(self.Tk - self.Tq, self.Tk)  # the last is as far as the last key
            after = 0 if self.causal else self.window
            keys = (query + after + 1).clamp(max=self.Tk) - (query - self.window).clamp(min=0)
            farther = (query > self.window) & (self.kind == "pattern")  # these see the first token too
            return self.B * (keys + farther).sum().item()
        if self.causal:
            return everything / 2
        key_mask = self.key_mask("cpu")
        return everything if key_mask is None else self.Tq * key_mask.sum().item()

    def mask(self, device: str) -> Tensor | None:
        """Who sees whom, in an array."""
        return attention_mask(self.Tq, self.Tk, device, key_mask=self.key_mask(device), pattern=self.pattern)

    def slopes(self, device: str) -> Tensor | None:
        """ALiBi's `2^(−8h/H)` of the heads h = 1, …, H."""
        return 2 ** (-8 * torch.arange(1, self.H + 1, device=device) / self.H) if self.kind == "alibi" else None

    def key_mask(self, device: str) -> Tensor | None:
        """`(B, Tk)`: up to an eighth of each sentence is padding, on the right, or every sixteenth key anywhere."""
        key = torch.arange(self.Tk, device=device)
        sentence = torch.arange(self.B, device=device)[:, None]
        if self.kind == "padding":
            return key < self.Tk * (63 - sentence % 8) // 64
        return (key + sentence) % 16 != 5 if self.kind == "scattered padding" else None

    def draw(self, machine: Machine) -> tuple[tuple[Tensor, ...], Tensor]:
        """Query, key and value, perhaps a bias for all sentences, and the gradient of what comes out."""
        few = self.H // self.group
        places = (self.H, self.Tq), (few, self.Tk), (few, self.Tk), (self.H, self.Tq)
        *inputs, dout = (machine.randn(self.B, *place, self.D) for place in places)
        if self.kind == "bias":
            inputs.append(machine.randn(1, self.H, self.Tq, self.Tk))
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
    yield shape("grouped heads", usual, widths[0], group=machine.size(4, 1))
    yield shape("bias", usual, widths[0])
    yield shape("softcap", usual, widths[0])
    yield shape("alibi", usual, widths[0])
    yield shape("pattern", usual, widths[0], window=window)
    for D in widths:
        for T in lengths[3:]:
            yield from (shape(kind, T, D) for kind in ("full", "causal"))


def tasks(machine: Machine) -> Iterator[Task]:
    """Forward, and forward with backward, of every shape."""
    known: set[str] = set()
    for shape in shapes(machine):
        first = shape.kind not in known
        known.add(shape.kind)
        size = {name: value for name, value in vars(shape).items() if value is not None}
        for what, factor in ((FORWARD, 1.0), (BOTH, 3.5)):
            work = {"flops": factor * 4 * shape.H * shape.pairs() * shape.D}
            draw, prepares = partial(shape.draw, machine), contestants(shape, what, machine, with_flex=first)
            yield task(machine, "attention", what, size, work, draw, prepares)


def contestants(shape: Shape, what: str, machine: Machine, with_flex: bool) -> dict[str, Prepare]:
    """Ours and all others; FlexAttention only where it is asked for and has something to change."""
    options: dict[str, Any] = {"pattern": shape.pattern, "key_mask": shape.key_mask(machine.device)}
    options |= {"softcap": SOFTCAP if shape.kind == "softcap" else None, "slopes": shape.slopes(machine.device)}
    rate = RATE if shape.kind == "dropout" else 0.0
    dropout = Dropout(rate, key=1) if rate else None
    prepares = {OURS: of_pair("attention", what, **options, dropout=dropout)}
    masked = shape.window is not None or shape.kind in ("padding", "scattered padding", "bias", "alibi")
    mask = cache(lambda: _mask_of_pytorch(shape, machine) if masked else None)
    for name, backend in BACKENDS.items() if shape.kind != "softcap" else ():  # which that function lacks
        if name != "memory-efficient" or masked:
            pinned = _pinned(backend, mask, is_causal=shape.causal and not masked, dropout_p=rate)
            prepares[name] = of_autograd(pinned, what)
    if not rate:
        prepares["naive"] = of_autograd(lambda *inputs: attention_naive(*inputs, **options), what)
    if with_flex and (flex := _flex(shape, machine)):
        prepares[FLEX] = of_autograd(flex, what)
    return prepares


def _mask_of_pytorch(shape: Shape, machine: Machine) -> Tensor | None:
    """What `scaled_dot_product_attention` is given: `True` where a query sees a key, or with ALiBi what is added."""
    mask, slopes = shape.mask(machine.device), shape.slopes(machine.device)
    if mask is None or slopes is None:
        return mask
    return alibi_bias(slopes, shape.Tq, shape.Tk)[None].to(machine.dtype).masked_fill_(~mask, -math.inf)


def _pinned(backend: SDPBackend, mask: Callable[[], Tensor | None], **options: Any) -> Callable[..., Tensor]:
    """`scaled_dot_product_attention` on this backend or not at all; the mask is made when it is first needed."""

    def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        hiding, grouped = mask() if bias is None else bias, query.shape[1] != key.shape[1]
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=hiding, enable_gqa=grouped, **options)

    return attend


def _flex(shape: Shape, machine: Machine) -> Callable[..., Tensor] | None:
    """FlexAttention, compiled; `None` for dropout, which it lacks, and where it would change nothing.

    It is imported, and its list of blocks made, when it is first called: a PyTorch without it is noted as any failure.
    """
    device, last = machine.device, shape.Tk - shape.Tq
    slopes, real, pattern = shape.slopes(device), shape.key_mask(device), shape.pattern
    hides = shape.causal or shape.window is not None or real is not None
    bends = shape.kind in ("alibi", "bias", "softcap")
    if shape.kind == "dropout" or not (hides or bends):
        return None

    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
        return pattern.allows(last + i, j) if real is None else real[b, j]

    def attend(blocks: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        def bent(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            if slopes is not None:
                return score - slopes[h] * (last + i - j).abs()
            return SOFTCAP * torch.tanh(score / SOFTCAP) if bias is None else score + bias[0, h, i, j]

        options: dict[str, Any] = {"score_mod": bent if bends else None, "block_mask": blocks}
        return flex_attention(query, key, value, enable_gqa=shape.group > 1, **options)

    @cache
    def blocks() -> Any:
        from torch.nn.attention.flex_attention import create_block_mask

        return create_block_mask(sees, None if real is None else shape.B, None, shape.Tq, shape.Tk, device)

    compiled = machine.compiled(attend)
    return lambda *inputs: compiled(blocks() if hides else None, *inputs)
