"""Table 1: layers derived, counted and timed; and what a long path does to a gradient (Vaswani 2017, §4)."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.memory import keep_freed_memory
from minitransformer.ops.attention import SMALLEST_BLOCK
from minitransformer.threads import Threads

from ...experiment import Context, Findings, Task
from ...markdown import picture, scientific, table
from ...trials.bootstrap import MEAN, Interval, difference, interval
from ...trials.trial import Trial
from .complexity import (
    ATTENTION,
    KERNEL_WIDTH,
    LAYER_TYPES,
    RECURRENT,
    RESTRICTED,
    WINDOW,
    LayerType,
    crossing,
    dilated_layers,
    exponent,
    num_calls,
    operations,
    path_length,
    two_terms,
)
from .distances import KINDS, draw_distances, gradient_logarithms
from .distances import WIDTH as GRADIENT_WIDTH
from .report import comparison_lines, operation_lines, path_lines, time_lines
from .timing import ALONE_SUFFIX, Effort, Times, draw_times, in_rounds, timed

NAME, TITLE = "table1", "Table 1: what a layer costs, and how far a signal travels"
MINUTES, ALONE = 1.5, 1.5


@dataclass(frozen=True)
class Sizes:
    """What is measured; n is a length, d a width.

    lengths, width           times against n, at this d, which is one of the lengths
    widths, length           times against d, at this n
    counted, counted_widths  operations against n and against d, each at the first of the other
    called, paths            lengths at which calls and paths are counted
    effort                   of the times
    positions, seeds         of the gradients
    """

    lengths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096)
    width: int = 64
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    length: int = 512
    counted: tuple[int, ...] = (256, 512, 1024, 2048)
    counted_widths: tuple[int, ...] = (8, 16, 32, 64)
    called: tuple[int, int] = (64, 128)
    paths: tuple[int, ...] = (16, 64, 256, 1024)
    effort: Effort = field(default_factory=Effort)
    positions: int = 100
    seeds: int = 20


SIZES = Sizes()


def trials(task: Task, scale: float) -> Sequence[Trial]:
    """None: layers are measured at their initial weights."""
    return []


def find(context: Context, sizes: Sizes = SIZES) -> Findings:
    """Count, time with one thread of BLAS, and follow gradients back."""
    keep_freed_memory()
    with Threads(1):
        over_n = timed(sizes.lengths, [(n, sizes.width) for n in sizes.lengths], sizes.effort)
        over_d = timed(sizes.widths, [(sizes.length, d) for d in sizes.widths], sizes.effort)
    return {
        "sizes": asdict(sizes),
        "kernel": KERNEL_WIDTH,
        "window": WINDOW,
        "block": SMALLEST_BLOCK,
        "layers": [_counted(kind, sizes) for kind in LAYER_TYPES],
        "dilated": [dilated_layers(n, KERNEL_WIDTH) for n in sizes.paths],
        "over_n": over_n,
        "over_d": over_d,
        "compared": _compared(over_n, sizes.width),
        "gradients": _gradients(sizes),
    }


def draw(findings: Findings, folder: Path) -> None:
    """`table1-time.png`, time against n and d, and `table1-gradients.png`, gradients against distance."""
    sizes = findings["sizes"]
    labels = f"length n, positions (d = {sizes['width']})", f"width d (n = {sizes['length']})"
    draw_times(findings["over_n"], findings["over_d"], labels, folder / f"{NAME}-time.png")
    norms = {kind: np.array(found["norms"]) for kind, found in findings["gradients"]["kinds"].items()}
    draw_distances(norms, folder / f"{NAME}-gradients.png")


def report(findings: Findings) -> list[str]:
    """The paper's formulas beside what was derived, counted and timed, and gradients over a distance."""
    symbols = (
        f"n is the length of a sequence, d its width, k = {findings['kernel']} the convolution's kernel, and "
        f"r = {findings['window']} how far the window reaches to either side. The formulas are the paper's, the counts "
        "come from running our layers, by the shapes that each op is given (of a window by the pairs that it lets "
        "meet), and the times are those of one thread."
    )
    return [
        symbols,
        "",
        *operation_lines(findings),
        *path_lines(findings),
        *time_lines(findings, f"{NAME}-time"),
        *comparison_lines(findings),
        *_gradient_lines(findings["gradients"], findings["sizes"]),
    ]


def _counted(kind: LayerType, sizes: Sizes) -> dict[str, Any]:
    """A row of the table, and what a layer of ours comes to."""
    points = {
        "n": [(n, sizes.counted_widths[0]) for n in sizes.counted],
        "d": [(sizes.counted[0], d) for d in sizes.counted_widths],
    }
    counted = {axis: [operations(kind, n, d) for n, d in each] for axis, each in points.items()}
    return {
        "name": kind.name,
        "complexity": kind.complexity,
        "sequential": kind.sequential,
        "path": kind.path,
        "operations": counted,
        "derived": {axis: [kind.derived(n, d) for n, d in each] for axis, each in points.items()},
        "exponents": {
            "n": exponent(sizes.counted, counted["n"]),
            "d": exponent(sizes.counted_widths, counted["d"]),
        },
        "whole_at_d": operations(kind, sizes.width, sizes.width, whole=True),
        "calls": [num_calls(kind, n) for n in sizes.called],
        "paths": [path_length(kind, n) for n in sizes.paths],
    }


def _compared(over_n: Times, width: int) -> dict[str, Any]:
    """What the times say of self-attention: its two terms, and where it becomes slower than others."""
    lengths = over_n["sizes"]
    rounds = {name: found["rounds"] for name, found in over_n["series"].items()}
    linear, square = two_terms(lengths, over_n["series"][ATTENTION]["best"])
    fitted = [linear * n + square * n * n for n in lengths]
    misses = [abs(fit / time - 1) for fit, time in zip(fitted, over_n["series"][ATTENTION]["best"], strict=True)]

    def crossed(first: str, second: str) -> dict[str, Any]:
        return in_rounds(lambda *times: crossing(lengths, *times), rounds[first], rounds[second])

    at = lengths.index(width)
    attention, recurrent = ([kind.derived(n, width) for n in lengths] for kind in LAYER_TYPES[:2])
    return {
        "linear": linear,
        "square": square,
        "miss": max(misses),
        "worst": lengths[int(np.argmax(misses))],
        "counted": crossing(lengths, attention, recurrent),
        "layer": crossed(ATTENTION, RECURRENT),
        "alone": crossed(f"{ATTENTION}{ALONE_SUFFIX}", RECURRENT),
        "restricted": crossed(ATTENTION, RESTRICTED),
        "at_d": in_rounds(lambda a, b: a[at] / b[at], rounds[RECURRENT], rounds[ATTENTION]),
        "shortest": in_rounds(lambda a, b: a[0] / b[0], rounds[RECURRENT], rounds[ATTENTION]),
    }


def _gradients(sizes: Sizes) -> dict[str, Any]:
    """What is left of a gradient, relative to distance 0: logarithms' means over seeds, with their intervals."""
    far = sizes.positions - 1
    distances = [*(d for d in (1, 10, 50) if d < far), far]
    near = distances[1]
    kinds, lost = {}, {}
    for kind in KINDS:
        logarithms = gradient_logarithms(kind, sizes.positions, seeds=sizes.seeds)
        lost[kind] = logarithms - logarithms[:, :1]  # (seeds, positions)
        slopes = np.polyfit(np.arange(1, sizes.positions), lost[kind][:, 1:].T, 1)[0]  # (seeds,)
        kinds[kind] = {
            "norms": np.exp(lost[kind].mean(0)).tolist(),
            "left": {str(d): asdict(interval(MEAN, _each(lost[kind][:, d]))) for d in distances},
            "slope": asdict(interval(MEAN, _each(slopes))),
            "late": asdict(interval(MEAN, _each(lost[kind][:, far] - lost[kind][:, near]))),
        }
    last = {kind: _each(each[:, far]) for kind, each in lost.items()}
    pairs = [
        {"more": more, "less": less, "by": asdict(difference(MEAN, last[more], last[less]))}
        for less, more in itertools.pairwise(KINDS)
    ]
    return {"width": GRADIENT_WIDTH, "distances": distances, "near": near, "far": far, "kinds": kinds, "pairs": pairs}


def _each(values: np.ndarray) -> np.ndarray:
    """Statistics of seeds for `MEAN`, `(seeds, 2)`."""
    return np.stack([values, np.ones(len(values))], axis=1)


def _gradient_lines(found: dict[str, Any], sizes: dict[str, Any]) -> list[str]:
    distances, near, far, seeds = found["distances"], found["near"], found["far"], sizes["seeds"]
    rows = (
        [
            kind,
            *(_share(each["left"][str(d)]["value"]) for d in distances),
            f"{_share(each['left'][str(far)]['low'])} to {_share(each['left'][str(far)]['high'])}",
            *(_decay(Interval(**each["slope"])) if kind in ("RNN", "LSTM") else ("", "")),
        ]
        for kind, each in found["kinds"].items()
    )
    head = [
        "",
        *(f"distance {d}" for d in distances),
        f"interval at {far}",
        "a position leaves",
        "half-life, positions",
    ]
    method = (
        "Of the last position's output in a random direction, the gradient at each position before, relative to that "
        f"at the last position itself: layers of width {found['width']} at their initial weights, noise of "
        f"{sizes['positions']} positions, the geometric mean of {seeds} seeds and its 95 % interval over them. "
        f"Rate and half-life are fitted to the logarithm over the distances from 1 to {far}."
    )
    why = (
        "Between two positions a recurrent layer's gradient is multiplied once for each position. Attention reaches "
        f"all n positions in one hop, each with a share, 1/n = {1 / sizes['positions']:.2g} where it looks at all "
        "alike. What a Transformer's layer has at distance 0 also came past attention, by the residual connection."
    )
    return [
        "### What a long path does to a gradient",
        "",
        method,
        "",
        picture(f"{NAME}-gradients", "What is left of a gradient at each distance"),
        "",
        *table(head, rows),
        "",
        *(f"- {_order(pair['more'], pair['less'], Interval(**pair['by']), far, seeds)}" for pair in found["pairs"]),
        *(
            f"- {kind}, from distance {near} to {far}: {_late(Interval(**found['kinds'][kind]['late']), seeds)}"
            for kind in ("RNN + attention", "Transformer")
        ),
        "",
        why,
    ]


def _order(more: str, less: str, by: Interval, far: int, seeds: int) -> str:
    """Two kinds at the largest distance; `by` in natural logarithms."""
    tens = Interval(*(x / math.log(10) for x in (by.value, by.low, by.high)))
    text = f"At distance {far}, {more} against {less}, in powers of ten: {tens.text(sign=True)}"
    if not tens.excludes_zero:
        return f"{text}, no difference that {seeds} seeds can show."
    return f"{text}. {more if tens.value > 0 else less} keeps more."


def _late(lost: Interval, seeds: int) -> str:
    factor = Interval(*(math.exp(x) for x in (lost.value, lost.low, lost.high))).text(2)
    if not lost.excludes_zero:
        return f"times {factor}, no change that {seeds} seeds can show."
    return f"times {factor}, a {'loss' if lost.value < 0 else 'gain'}."


def _decay(slope: Interval) -> tuple[str, str]:
    """What a position leaves of a gradient, and after how many half is left: the steeper, the fewer."""
    left = f"{math.exp(slope.value):.3f}"
    if slope.high >= 0:
        return left, "no decay shown"
    return left, Interval(*(-math.log(2) / x for x in (slope.value, slope.low, slope.high))).text(2)


def _share(logarithm: float) -> str:
    share = math.exp(logarithm)
    return f"{share:.2f}" if share >= 0.1 else scientific(share)
