"""A call of every op in every dtype, with the shapes of the models that are trained with them.

What these calls launch is what `compilation` compiles for GPUs that are not here.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import kernels
from kernels.attention.minimal import attention_minimal
from kernels.checks import EXACT
from kernels.eager.packed import Packed
from kernels.eager.quantized import on_device
from kernels.linear_attention import WIDE_HEADS_MEMORY
from kernels.proof.cases import SMOOTHED, draw, name_of, shapes
from kernels.tuning import Tile, capability
from minitransformer.ops import Dropout, Pattern, quantize
from minitransformer.ops.elementwise import ACTIVATIONS

DROPPING = {"dropout": Dropout(0.1, key=1)}

TIME, WIDTH = 256, 512
"""The paper's base, in short sentences."""

WIDTHS = (1, 20, 100, WIDTH, 1000, 5000, 8192, 10_000, 20_000, 32_768, 131_072)
"""Widths of rows on Hopper, up to where each op takes them in blocks. A row's tile has the next power of 2; and where
16 does not divide the width, its numbers are loaded one by one, by another kernel."""

FEW_WIDTHS = (WIDTH, 10_000, 131_072)
"""Widths of rows elsewhere."""

MOST_TILES = 5
"""No kernel of attention has more to choose from."""


Example = tuple[str, Callable[[], Any]]
"""A name and a call, forward and backward together."""


def examples(target: str) -> Iterator[Example]:
    """Each op in each dtype that the GPU has; on Hopper with rows of every width and with each of attention's tiles."""
    hopper, half = target == "cuda:90", torch.float16 if target == "cuda:75" else torch.bfloat16
    for dtype in (torch.float32, torch.float16, torch.bfloat16)[: 2 if target == "cuda:75" else 3]:
        widths = WIDTHS if hopper and dtype != torch.float16 else FEW_WIDTHS
        for name, call in (*_rows(dtype, widths), *_attention(dtype, half, every_tile=hopper)):
            yield f"{name}, {name_of(dtype)}", call


def call_of(op: str, dtype: torch.dtype, options: dict[str, Any], rows: tuple[int, ...] = (), **sizes: int) -> partial:
    """A call of a pair on zeros of these sizes."""
    zeros = []
    for argument, shape in shapes(op, rows, **sizes).items():
        narrow = torch.float32 if argument.name in EXACT else dtype
        zeros.append(torch.zeros(shape, dtype=torch.int64 if argument.kind == "ids" else narrow))
    return partial(_both, op, *zeros, **options)


def _both(op: str, *tensors: Any, **options: Any) -> None:
    out, cache = getattr(kernels, f"{op}_forward")(*tensors, **options)
    getattr(kernels, f"{op}_backward")(torch.ones_like(out) if out.ndim else 1.0, cache)


def _rows(dtype: torch.dtype, widths: tuple[int, ...]) -> Iterator[Example]:
    """Calls of everything but attention, with rows of these widths."""
    N = 64
    for C in widths:
        sizes = {"rows": (N,), "C": C, "n": C}
        for op in ("softmax", "layernorm", "add_layernorm", "rmsnorm", "add_rmsnorm"):
            yield f"{op}, {C} wide", call_of(op, dtype, {}, **sizes)
        for op in ("add_layernorm", "add_rmsnorm"):
            yield f"{op}, dropout, {C} wide", call_of(op, dtype, DROPPING, **sizes)
        yield f"dropout, {C} wide", call_of("dropout", dtype, DROPPING, **sizes)
        yield f"embedding, {C} wide", call_of("embedding", dtype, {"scale": 2.0}, (2, TIME), V=N, C=C)
        yield f"cross_entropy, {C} wide", call_of("cross_entropy", dtype, SMOOTHED, (N,), V=C)
        for V, width in ((C, 8), (100, C)):  # logits are as wide as the table is long, gradients as it is wide
            call = call_of("linear_cross_entropy", dtype, SMOOTHED, N=N, C=width, V=V)
            yield f"linear_cross_entropy, table {V}×{width}", call
        yield (
            f"cross_entropy, probabilities, {C} wide",
            partial(_both, "cross_entropy", *torch.zeros(2, N, C, dtype=dtype)),
        )
        if C in FEW_WIDTHS:
            weighted = SMOOTHED | {"weights": torch.zeros(N)}
            yield f"cross_entropy, weights, {C} wide", call_of("cross_entropy", dtype, weighted, (N,), V=C)
            call = call_of("linear_cross_entropy", dtype, weighted, N=N, C=C, V=100)
            yield f"linear_cross_entropy, weights, table 100×{C}", call
            yield (
                f"cross_entropy, probabilities, weights, {C} wide",
                partial(_both, "cross_entropy", *torch.zeros(2, N, C, dtype=dtype), weights=torch.zeros(N)),
            )
    all_count = {"label_smoothing": SMOOTHED["label_smoothing"]}
    yield "cross_entropy, none ignored", call_of("cross_entropy", dtype, all_count, (N,), V=widths[-1])
    for op in ("relu", "silu", "gelu"):
        yield op, call_of(op, dtype, {}, (4096,))
    heads = [(64, {"causal": True}), (40, PADDING)]
    if capability(torch.device("cpu")).shared_memory >= WIDE_HEADS_MEMORY and dtype != torch.float32:
        heads.append((128, {"causal": True}))
    for D, options in heads:
        sizes = {"B": 1, "H": 4, "Hk": 2, "T": TIME, "D": D, "Dv": D}
        yield f"linear_attention, {D} wide", call_of("linear_attention", dtype, options, **sizes)
    for D, pairs, interleaved in ((128, 64, False), (128, 64, True), (64, 16, False), (80, 40, True), (100, 50, False)):
        sizes = {"B": 1, "H": 12, "T": TIME, "D": D, "R/2": pairs}
        said = f"{2 * pairs} of {D} wide" + ", neighbours" * interleaved
        yield f"rope, {said}", call_of("rope", dtype, {"interleaved": interleaved}, (), **sizes)
    for rows in (1, TIME):
        for bits, symmetric in ((8, True), (8, False), (4, True), (4, False)):
            weight = on_device(quantize(np.ones((WIDTH, WIDTH)), bits, symmetric=symmetric), "cpu")
            kind = f"{bits} bits{'' if symmetric else ' with minima'}"
            x, bias = torch.zeros(rows, WIDTH, dtype=dtype), torch.zeros(WIDTH, dtype=dtype)
            yield f"quantized_linear, {rows} rows, {kind}", partial(_both, "quantized_linear", x, weight, bias)
    yield "gelu, tanh", call_of("gelu", dtype, {"approximate": "tanh"}, (4096,))
    for activation in ACTIVATIONS:
        yield f"gated, {activation}", call_of("gated", dtype, {"activation": activation}, (N,), F=WIDTH)
    if dtype == torch.float32:
        flat = torch.zeros(4096)
        yield "adam_step", partial(kernels.adam_step, flat, flat, flat, flat, step=1, lr=0.1)
        yield "global_norm", partial(kernels.global_norm, flat)


PADDING = {"key_mask": torch.ones(1, TIME, dtype=torch.bool)}
OPTIONS = {"": {}, ", padding": PADDING, ", dropout": DROPPING, ", padding and dropout": PADDING | DROPPING}
ALONE, PADDED, DROPPED, BOTH = OPTIONS
Case = tuple[int, int, str]
"""Head widths of queries and of values, and a key of `OPTIONS`."""

USUAL: list[Case] = [(64, 64, ALONE), (64, 64, DROPPED), (128, 128, PADDED), (128, 128, BOTH)]
UNUSUAL: list[Case] = [(80, 80, ALONE), (40, 72, BOTH), (256, 256, BOTH)]
MANY: list[Case] = [
    *((width, width, options) for width in (64, 128) for options in OPTIONS),
    *((width, width, BOTH) for width in (32, 48, 80, 256)),
    *((16, 16, PADDED), (256, 256, PADDED), (40, 72, BOTH), (16, 256, BOTH)),
]
IEEE: list[Case] = [(64, 64, ALONE), (64, 64, BOTH), (128, 128, ALONE), (128, 128, BOTH), (256, 256, BOTH)]
"""Cases with products of float32 as it is."""
TF32: list[Case] = [(64, 64, BOTH), (128, 128, PADDED), (128, 128, BOTH), (256, 256, BOTH)]
"""Cases with products of float32 rounded to tf32."""


STARTS = torch.tensor([0, 100, TIME], dtype=torch.int32)
LENGTHS = Packed(STARTS, STARTS, TIME, TIME)
SPARSE = Pattern(causal=True, window=32, block=64, summary=4, stride=100, global_tokens=(0, 9))
WITH_MORE: dict[str, tuple[int, int, tuple[int, ...] | None, dict[str, Any]]] = {
    "grouped heads": (128, 4, None, {"causal": True}),
    "softcap": (128, 4, None, {"softcap": 50.0}),
    "slopes": (128, 2, None, {"slopes": torch.zeros(2), "causal": True}),
    "variable lengths": (128, 4, None, {"packed": LENGTHS, "causal": True}),
    "variable lengths and more": (
        64,
        2,
        None,
        {"packed": LENGTHS, "softcap": 50.0, "slopes": torch.zeros(2, 2)} | DROPPING,
    ),
    "a bias for all sentences": (64, 2, (1, 2, TIME, TIME), {}),
    "a bias of keys": (64, 4, (1, 1, 1, TIME), DROPPING | PADDING),
    "a pattern": (64, 2, None, {"pattern": SPARSE}),
    "a pattern and everything": (64, 4, (1, 4, TIME, TIME), {"pattern": SPARSE, "softcap": 50.0} | DROPPING | PADDING),
    "slopes and more": (64, 4, (4, TIME, TIME), {"slopes": torch.zeros(4), "pattern": SPARSE} | DROPPING | PADDING),
}
"""Head width, heads of queries for two of keys, the shape of a bias, and options; each with the default tiles."""


def _attention(dtype: torch.dtype, half: torch.dtype, every_tile: bool) -> Iterator[Example]:
    """Calls of attention, with the default tiles, or with each that tuning may try and heads of many widths."""
    if dtype == half:
        cases = [(case, "ieee") for case in (MANY if every_tile else USUAL + UNUSUAL)]
    elif dtype == torch.float16:
        cases = [(case, "ieee") for case in USUAL[::3]]
    else:
        cases = [(case, "ieee") for case in IEEE] + [(case, "tf32") for case in TF32[0 if every_tile else 1 :]]
    for (D, DV, options), precision in cases:
        chosen = OPTIONS[options] | {"precision": precision}
        call = call_of("attention", dtype, chosen, B=1, H=2, Tq=TIME, Tk=TIME, D=D, Dv=DV)
        widths = f"{D} wide" if D == DV else f"{D} and {DV} wide"
        for number in range(MOST_TILES if every_tile else 1):
            yield f"attention, {widths}{options}, {precision}", partial(_with_tile, number, call)
    yield "attention, one query", call_of("attention", dtype, {}, B=1, H=2, Tq=1, Tk=4 * TIME, D=64, Dv=64)
    for name, (D, H, bias, options) in WITH_MORE.items():
        arrays = draw("attention", np.random.default_rng(0), B=1, H=H, Hk=2, Tq=TIME, Tk=TIME, D=D, Dv=D)
        tensors = [torch.zeros(x.shape, dtype=dtype) for x in arrays.values()]
        given = {} if bias is None else {"bias": torch.zeros(bias, dtype=dtype)}
        yield f"attention with {name}", partial(_both, "attention", *tensors, **given, **options)
    yield "minimal attention", partial(attention_minimal, *torch.zeros(3, 1, 2, TIME, 64, dtype=dtype), causal=True)


def _with_tile(number: int, call: Callable[[], Any]) -> None:
    """The call with that one of the tiles that tuning would try; with the first where there are not so many."""
    from kernels.attention import tiles

    def only(*arguments: Any) -> list[Tile]:
        found = candidates(*arguments)
        return [found[number] if number < len(found) else found[0]]

    candidates = tiles.candidates
    with patch.object(tiles, "candidates", only):
        call()
