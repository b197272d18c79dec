"""The inputs of every op, drawn as it declares them; and the cases that the ops with kernels are checked on.

The cases are shapes that cross the borders of blocks, with all options of an op. Sizes come in two: those for a GPU,
and tiny ones for the interpreter, which takes milliseconds for each block.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from minitransformer import ops as reference
from minitransformer.check import random_arguments
from minitransformer.ops import Dropout, Pattern, quantize
from minitransformer.ops.arguments import ArrayArgument, Declaration
from minitransformer.ops.elementwise import ACTIVATIONS

from .. import functions_of

DROPOUT = Dropout(0.3, key=2**40 + 3, sentence=1, position=2)
SMOOTHED = {"label_smoothing": 0.1, "ignore_index": 0}

PEAKED = 4.0
"""Times a normal number: a softmax of many such has some probabilities of order one, beside which errors count."""


def declaration_of(op: str) -> Declaration:
    """Return what the op takes, as `minitransformer.ops` declares it; but masks and weights, which are options here.

    And but attention's bias, which it may lack: the cases that have one add it.
    """
    declared: Declaration = getattr(reference, functions_of(op)[0]).declaration
    options = {each.name for each in declared.arrays if each.kind == "mask" or each.broadcast} | {"weights"}
    arrays = (each for each in declared.arrays if each.name not in options)
    return replace(declared, arrays=tuple(arrays))


def shapes(op: str, rows: tuple[int, ...] = (), **sizes: int) -> dict[ArrayArgument, tuple[int, ...]]:
    """Return the arrays that an op declares, and their shapes; `...` stands for `rows`."""
    declared = declaration_of(op)
    sizes = {part: sizes[whole] for part, whole in declared.multiples.items()} | sizes  # as many key as query heads
    return {
        argument: tuple(n for axis in argument.axes for n in (rows if axis == "..." else (sizes[axis],)))
        for argument in declared.arrays
    }


def name_of(dtype: Any) -> str:
    """Return "float32" of `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def draw(op: str, rng: np.random.Generator, rows: tuple[int, ...] = (), **sizes: int) -> dict[str, np.ndarray]:
    """Return normal numbers, squares of them for Adam's v, and ids; the first two are 0, which `SMOOTHED` ignores."""
    arrays = random_arguments(declaration_of(op), {"...": rows} | sizes, rng)
    for argument in declaration_of(op).arrays:
        if argument.kind == "ids":
            arrays[argument.name].flat[:2] = 0
    return arrays | ({"v": arrays["v"] ** 2} if op == "adam" else {})


@dataclass(frozen=True)
class Case:
    """The arrays of an op in its order, float64 or integer, and options that the reference takes too.

    A weight in few bits counts as an option: it has no gradient, and its type does not change with the arrays'.
    """

    name: str
    arrays: dict[str, np.ndarray]
    options: dict[str, Any] = field(default_factory=dict)
    float32: bool = False  # only in float32
    tf32: bool = False  # only in float32, with products of 10 bits of mantissa: an option of the kernels' own


def cases(op: str, full: bool) -> Iterator[Case]:
    """Yield the cases of an op; `full` for a GPU's sizes."""
    rng = np.random.default_rng(0)
    if op in OF_ITS_OWN:
        yield from OF_ITS_OWN[op](rng, full)
        return
    axes, tiny, large, *options = SIZES[op]
    for sizes in large if full else tiny:
        for chosen in options or [{}]:
            arrays = draw(op, rng, **dict(zip(axes.split(), sizes, strict=True)))
            if op == "layernorm":
                arrays["x"] += 3  # a mean that matters
            said = [value if isinstance(value, str) else option for option, value in chosen.items()]
            yield Case(", ".join(map(str, [*sizes, *(said if len(options) > 1 else ())])), arrays, chosen)


FLAT = "rows", [[(3, 5)], [(3, 1000)]], [[(3, 5)], [(1000, 2049)]]
NORMED = "rows C", [[(3,), 5], [(40,), 130]], [[(3,), 5], [(1000,), 512], [(70,), 4097], [(9,), 8200]], {"eps": 1e-3}
ADDED = (
    "rows C",
    [[(2, 3), 5], [(2, 20), 130]],
    [[(2, 3), 5], [(3, 300), 512], [(2, 9), 8200]],
    {},
    {"dropout": DROPOUT},
)
SIZES: dict[str, tuple] = {
    "relu": FLAT,
    "gelu": (*FLAT, {"approximate": "none"}, {"approximate": "tanh"}),
    "silu": FLAT,
    "gated": (
        "rows F", [[(3,), 5], [(3,), 1000]], [[(3,), 5], [(1000,), 2049]],
        *({"activation": activation} for activation in ACTIVATIONS),
    ),
    "dropout": (
        "rows C", [[(2, 3), 7], [(2, 2, 5), 9]], [[(100,), 512], [(2, 3, 70), 3001]], {"dropout": DROPOUT}
    ),
    "layernorm": NORMED,
    "add_layernorm": ADDED,
    "rmsnorm": NORMED,
    "add_rmsnorm": ADDED,
    "embedding": (
        "rows V C", [[(2, 5), 7, 6], [(2, 35), 3, 40]], [[(2, 5), 7, 6], [(50, 100), 1000, 512], [(4, 500), 3, 5000]],
        {"scale": 1.5},
    ),
    "rope": (
        "B H T D R/2", [[2, 3, 5, 7, 2], [1, 4, 1, 8, 4], [2, 6, 20, 16, 8]],
        [[2, 3, 5, 7, 2], [64, 12, 1, 128, 64], [2, 40, 300, 128, 64], [2, 9, 300, 80, 16], [1, 2, 3, 5000, 2300]],
        {}, {"interleaved": True},
    ),
    "adam": ("P", [[7], [1100]], [[7], [1_000_003]]),
}  # fmt: skip
"""The axes that an op is drawn with, their tiny sizes and a GPU's, and options to try with each."""


def _attention(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    drawn = partial(draw, "attention", rng)
    H, T, D, window = (3, 200, 64, 37) if full else (1, 18, 8, 3)
    padding = np.arange(T) < np.array([[T - 3], [1]])  # (2, T)
    scattered = np.stack([rng.random(T) < 0.7, np.zeros(T, bool)])  # and a sentence with no key at all
    everything = {"causal": True, "window": window, "key_mask": scattered, "dropout": DROPOUT}
    every = {
        "full": {},
        "causal": {"causal": True},
        "padding": {"key_mask": padding},
        "scattered padding": {"key_mask": scattered},
        "window": {"window": window},
        "negative scale": {"scale": -0.3},
        "dropout": {"dropout": DROPOUT},
        "everything": everything,
    }
    square = {"B": 2, "H": H, "Tq": T, "Tk": T, "D": D, "Dv": D}
    for name in every if full else ("padding", "negative scale", "everything"):
        yield Case(name, drawn(**square), every[name])
    yield Case("tf32", drawn(**square), tf32=True)

    def biased(*shape: int, **sizes: int) -> dict[str, np.ndarray]:
        return drawn(**square | sizes) | {"bias": rng.standard_normal(shape)}

    decoding = {"B": 1, "H": 2, "Hk": 1, "Tq": 1, "Tk": 5000 if full else 520}
    yield Case("one query of many keys", drawn(**square | decoding), {"causal": True})
    group = {"H": 6, "Hk": 2} if full else {"H": 2, "Hk": 1}
    block, far = (64, 129) if full else (7, 17)
    pattern = Pattern(True, 2, block, 1, far, (1, T - 4))
    yield Case("grouped heads, a bias for all sentences", biased(1, group["H"], T, T, **group), {"causal": True})
    yield Case("softcap, a bias of keys", biased(2, 1, 1, T), {"softcap": 2.0, "key_mask": scattered})
    yield Case("pattern", drawn(**square), {"pattern": pattern})
    slopes = rng.random((2, group["H"]), np.float32)
    if full:
        window = {"window": (window, 3)}
        yield Case("grouped heads", drawn(**square | group), {"dropout": DROPOUT})
        yield Case("one head of keys, window to both sides", drawn(**square | {"Hk": 1}), window)
        for shape in ((2, H, T, T), (T, T), (2, 1, T, 1), (1, 1, 1, 1)):
            yield Case(f"a bias {shape}", biased(*shape), {"dropout": DROPOUT} | window)
        yield Case("slopes", drawn(**square), {"slopes": slopes[0, :H]})
        yield Case("slopes, causal", drawn(**square | group), {"slopes": slopes, "causal": True})
        yield Case("slopes, 130 × 257", drawn(**square | {"Tq": 130, "Tk": 257}), {"slopes": slopes[:, :H]} | window)
        both_ways = Pattern(window=9, global_tokens=(0, 77))
        yield Case("a pattern without causality", drawn(**square), {"pattern": both_ways})
    more = {"pattern": pattern, "softcap": 2.0, "key_mask": scattered, "dropout": DROPOUT}
    for name, own in {"": {}, ", slopes": {"slopes": slopes}}.items():
        arrays = biased(2, group["H"], T, T, **group)
        yield Case(f"grouped heads, a bias, a pattern and everything{name}", arrays, more | own)
    for Tq, Tk in ((1, 300), (130, 257), (257, 130), (1100, 1100)) if full else ((18, 5),):
        yield Case(f"causal, {Tq} × {Tk}", drawn(**square | {"B": 1, "Tq": Tq, "Tk": Tk}), {"causal": True})
    for D, Dv in ((1, 3), (40, 72), (128, 128), (256, 64)) if full else ((20, 5),):
        yield Case(f"everything, {D} and {Dv} wide", drawn(**square | {"D": D, "Dv": Dv}), everything)


def _linear_attention(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for T, D, Dv, H, Hk in (
        ((1, 3, 5, 1, 1), (1100, 64, 64, 6, 2), (300, 40, 128, 4, 4)) if full else ((40, 3, 5, 2, 1),)
    ):
        padding = np.stack([rng.random(T) < 0.7, np.zeros(T, bool)])  # and a sentence without a key
        for name, options in {
            "all": {}, "padding": {"key_mask": padding}, "causal": {"causal": True, "eps": 1e-3, "key_mask": padding},
        }.items():  # fmt: skip
            arrays = draw("linear_attention", rng, B=2, H=H, Hk=Hk, T=T, D=D, Dv=Dv)
            yield Case(f"{name}, {T}, {D} and {Dv} wide, {H} of {Hk} heads", arrays, options)


def _softmax(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    for rows in ((5, 3, 7), (1000, 128), (300, 4097), (2, 32_769), (3, 131_072)) if full else ((5, 3, 7), (3, 1100)):
        yield Case(f"{rows}", {"x": PEAKED * draw("softmax", rng, rows[:-1], n=rows[-1])["x"]})
    x = PEAKED * draw("softmax", rng, (3,), n=100)["x"]
    x[0], x[1, 1:] = -np.inf, -np.inf
    yield Case("nothing but −inf", {"x": x})


def _cross_entropy(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    """Yield ids as targets, with and without weights, and at last probabilities."""
    for N, V in ((7, 11), (300, 37_000), (5, 128_001)) if full else ((7, 11), (5, 1100), (1, 4099)):
        for options in ({}, SMOOTHED, SMOOTHED | weights_of(rng, N)):
            arrays = draw("cross_entropy", rng, (N,), V=V)
            yield Case(", ".join(map(str, (N, V, *options))), arrays | {"logits": PEAKED * arrays["logits"]}, options)
        logits = PEAKED * draw("cross_entropy", rng, (N,), V=V)["logits"]
        targets = np.exp(logits[::-1] - logits.max())
        targets /= targets.sum(-1, keepdims=True)
        arrays = {"logits": logits, "targets": targets}
        for weights in ({}, weights_of(rng, N)):
            yield Case(
                ", ".join(map(str, (N, V, "probabilities", *weights))), arrays, {"label_smoothing": 0.1} | weights
            )


def weights_of(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Return weights of losses, of any sign."""
    return {"weights": rng.standard_normal(count).astype(np.float32)}


def _linear_cross_entropy(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    sizes = [(7, 4, 11, {}), (300, 64, 37_000, SMOOTHED) if full else (20, 6, 1100, SMOOTHED)]
    sizes.append((*sizes[-1][:3], SMOOTHED | weights_of(rng, sizes[-1][0])))
    if full:  # more logits than are ever held at once; the reference takes seconds
        sizes.append((2000, 64, 37_000, SMOOTHED))
    for N, C, V, options in sizes:
        arrays = draw("linear_cross_entropy", rng, N=N, C=C, V=V)
        arrays["table"] *= PEAKED / np.sqrt(C)
        yield Case(", ".join(map(str, (N, C, V, *options))), arrays, options, float32=N == 2000)


def _quantized_linear(rng: np.random.Generator, full: bool) -> Iterator[Case]:
    """Yield few rows and many, with each kind of levels in groups of 32, and in 4 bits also groups of three bytes."""
    kinds = [(8, 32, True), (8, 32, False), (4, 32, True), (4, 32, False), (4, 6, False)]
    sizes = ((1, 4096, 4096), (300, 960, 1000)) if full else ((1, 96, 5), (18, 96, 70))
    for rows, width_in, width_out in sizes:
        for bits, group, symmetric in kinds if rows > 1 else kinds[::3]:
            x, bias = (rng.standard_normal(shape) for shape in ((rows, width_in), width_out))
            weight = rng.standard_normal((width_in // group * group, width_out)) / np.sqrt(width_in)
            packed = {"weight": quantize(weight, bits, group, symmetric)}
            name = f"{rows}, {width_in} to {width_out}, {bits} bits by {group}{'' if symmetric else ' with minima'}"
            yield Case(name, {"x": x[:, : len(weight)], "bias": bias}, packed)


OF_ITS_OWN = {
    "attention": _attention,
    "linear_attention": _linear_attention,
    "softmax": _softmax,
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": _linear_cross_entropy,
    "quantized_linear": _quantized_linear,
}
"""Cases that are more than sizes times options."""
