"""Attention on 16,384 tokens of 2,048 channels, and one query against a cache, beside PyTorch's backends.

Operations are counted as is usual: 4 · D for each pair of a query and a key that attend to each other (two products, a
multiplication and an addition each), a causal mask counted as half of all pairs; 2.5 times as many for the backward.

FlexAttention compiles for seconds, for each mask and each change of scores: it is asked at 4,096 × 128.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from timing import Machine, Prepare, Task, of_autograd, of_function, of_pair
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from kernels.attention.minimal import attention_minimal
from kernels.eager.attention import attention_mask
from kernels.proof.ledger import BOTH, FLEX, FORWARD, OURS
from minitransformer.ops import Dropout, Pattern

BACKENDS = {
    "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
"""Ways of `scaled_dot_product_attention`."""

RATE, MINIMAL = 0.1, "minimal"


@dataclass(frozen=True)
class Shape:
    """Queries and the keys that they attend to."""

    kind: str
    B: int
    H: int
    Tq: int
    Tk: int
    D: int
    window: int | None = None
    group: int = 1  # heads of queries for each head of keys and values

    @property
    def pattern(self) -> Pattern:
        """The keys that a query sees."""
        return Pattern(self.kind in ("causal", "grouped heads"), self.window)

    def pairs(self) -> float:
        """Return the number of queries and keys of a head that attend to each other, over all sentences."""
        if self.window is not None:
            query = torch.arange(self.Tk - self.Tq, self.Tk)  # the last is as far as the last key
            keys = (query + self.window + 1).clamp(max=self.Tk) - (query - self.window).clamp(min=0)
            return self.B * keys.sum().item()
        return self.B * self.Tq * self.Tk / (2 if self.pattern.causal else 1)

    def mask(self, device: str) -> Tensor | None:
        """Return who sees whom, in an array."""
        return attention_mask(self.Tq, self.Tk, device, pattern=self.pattern)

    def draw(self, machine: Machine) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return query, key and value, perhaps a bias for all sentences, and the gradient of what comes out."""
        few = self.H // self.group
        places = (self.H, self.Tq), (few, self.Tk), (few, self.Tk), (self.H, self.Tq)
        *inputs, dout = (machine.randn(self.B, *place, self.D) for place in places)
        if self.kind == "bias":
            inputs.append(machine.randn(1, self.H, self.Tq, self.Tk))
        return tuple(inputs), dout


def tasks(machine: Machine) -> Iterator[Task]:
    """Yield attention's tasks beside its peers, the most important first."""
    peers = OURS, "FlashAttention-2", "cuDNN", MINIMAL, FLEX
    whole = [(kind, T, D) for D in (128, 64) for T in (4096, 16_384) for kind in ("full", "causal")]
    special = {
        "bias": {},
        "window": {"window": machine.size(256, 5)},
        "dropout": {},
        "grouped heads": {"group": machine.size(4, 2)},
    }
    for shapes in (whole[:2], whole[2:]):
        for what in (FORWARD, BOTH):
            yield from (attending(machine, *shape, peers, what) for shape in shapes)
    for what in (FORWARD, BOTH):
        yield from (attending(machine, kind, 4096, 128, peers, what, **more) for kind, more in special.items())


def attending(
    machine: Machine, kind: str, T: int, D: int, who: Collection[str], what: str = FORWARD, **options: Any
) -> Task:
    """Return a task on 16,384 tokens of 2,048 channels."""
    flex = (T, D) == (4096, 128)
    T, D = machine.size((T, D), (T // 512, D // 16))
    B, H = machine.size((16_384 // T, 2048 // D), (1, 2))
    shape = Shape(kind, **({"B": B, "H": H, "Tq": T, "Tk": T, "D": D} | options))
    work = {"flops": {FORWARD: 1.0, BOTH: 3.5}[what] * 4 * H * shape.pairs() * D}
    return of_shape(machine, shape, what, work, [each for each in who if flex or each != FLEX])


def decoding(machine: Machine, who: Collection[str]) -> Iterator[Task]:
    """Yield tasks of one query against a cache of T keys, for one sentence. The bytes are those of keys and values."""
    group, D = machine.size((4, 128), (1, 8))
    for H, T in machine.size(((32, 4096), (32, 32_768), (32, 1024), (4, 32_768)), ((2, 40), (2, 70))):
        moved = 2 * H // group * T * D * machine.dtype.itemsize
        shape = Shape("decoding", 1, H, 1, T, D, group=group)
        yield of_shape(machine, shape, FORWARD, {"moved": float(moved)}, who)


def of_shape(machine: Machine, shape: Shape, what: str, work: dict[str, float], who: Collection[str]) -> Task:
    """Return the task on a shape, with those of these contestants that can compute it."""
    size = {name: value for name, value in vars(shape).items() if value is not None}
    prepares = {name: prepare for name, prepare in contestants(shape, what, machine).items() if name in who}
    return Task.of(machine, "attention", what, size, work, partial(shape.draw, machine), prepares)


def contestants(shape: Shape, what: str, machine: Machine) -> dict[str, Prepare]:
    """Return ours, PyTorch's function on each backend or not at all, and FlexAttention where it has what to change."""
    rate = RATE if shape.kind == "dropout" else 0.0
    dropout = Dropout(rate, key=1) if rate else None
    prepares = {OURS: of_pair("attention", what, pattern=shape.pattern, dropout=dropout)}
    mask = cache(lambda: None if shape.window is None else shape.mask(machine.device))  # made when first needed

    def pinned(backend: SDPBackend, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        options: dict[str, Any] = {"is_causal": shape.pattern.causal, "dropout_p": rate, "enable_gqa": shape.group > 1}
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(query, key, value, mask() if bias is None else bias, **options)

    for name, backend in BACKENDS.items():
        prepares[name] = of_autograd(partial(pinned, backend), what)
    if what == FORWARD and shape.kind in ("full", "causal") and shape.D in (16, 32, 64, 128):
        prepares[MINIMAL] = of_function(partial(attention_minimal, causal=shape.pattern.causal))
    if shape.pattern.causal or shape.window is not None or shape.kind == "bias":
        prepares[FLEX] = of_autograd(_flex(shape, machine), what)
    return prepares


def _flex(shape: Shape, machine: Machine) -> Callable[..., Tensor]:
    """Return FlexAttention, compiled; its list of blocks is made when it is first called."""

    def attend(blocks: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Any:
        bent = None if bias is None else lambda score, b, h, i, j: score + bias[0, h, i, j]
        return flex_attention(query, key, value, bent, blocks, enable_gqa=shape.group > 1)

    @cache
    def blocks() -> Any:
        def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
            return shape.pattern.allows(shape.Tk - shape.Tq + i, j)

        return create_block_mask(sees, None, None, shape.Tq, shape.Tk, machine.device)

    compiled = machine.compiled(attend)
    return lambda *inputs: compiled(None if shape.kind == "bias" else blocks(), *inputs)
