"""Table 1: costs of layers by formula, by count and by time; and gradients over long paths (Vaswani 2017, §4)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.ops.pattern import SMALLEST_BLOCK
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.system.threads import Threads
from study.experiment import Context, Findings
from study.markdown import bullets, paragraph, table
from study.trials.trial import Trial

from ...task import Task
from .complexity import (
    ATTENTION,
    CONVOLUTION,
    KERNEL_WIDTH,
    LAYER_TYPES,
    RECURRENT,
    RESTRICTED,
    WINDOW,
    LayerType,
    dilated_layers,
    exponent,
    num_calls,
    operations,
    path_length,
)
from .gradients import draw_distances, gradient_blocks, gradients_left
from .times import Effort, compared, comparison_blocks, draw_times, time_blocks, timed

NAME, TITLE = "table1", "Table 1: what a layer costs, and how far a signal travels"
MINUTES, ALONE = 1.5, 1.5


@dataclass(frozen=True)
class Sizes:
    """The sizes to measure at; n is a length, d a width.

    lengths, width           for times against n, at this d, which is one of the lengths
    widths, length           for times against d, at this n
    counted, counted_widths  for operations against n and against d, each at the first value of the other
    called, paths            lengths at which calls and paths are counted
    effort                   how long times are measured
    positions, seeds         for the gradients
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
    """Return no trials: layers are measured with their initial weights."""
    return []


def find(context: Context[Task], sizes: Sizes = SIZES) -> Findings:
    """Count operations, time layers with one BLAS thread, and measure gradients over distance."""
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
        "compared": compared(over_n, sizes.width),
        "gradients": gradients_left(sizes.positions, sizes.seeds),
    }


def draw(findings: Findings, folder: Path) -> None:
    """Draw `table1-time.png`, time against n and d, and `table1-gradients.png`, gradients against distance."""
    sizes = findings["sizes"]
    labels = f"length n, positions (d = {sizes['width']})", f"width d (n = {sizes['length']})"
    draw_times(findings["over_n"], findings["over_d"], labels, folder / f"{NAME}-time.png")
    norms = {kind: np.array(found["norms"]) for kind, found in findings["gradients"]["kinds"].items()}
    draw_distances(norms, folder / f"{NAME}-gradients.png")


def report(findings: Findings) -> list[str]:
    """Report the paper's formulas beside what was derived, counted and timed, and gradients over distance."""
    return [
        paragraph(f"""
            n is the length of a sequence, d its width, k = {findings["kernel"]} the convolution's kernel, and
            r = {findings["window"]} how far the window reaches to either side. The formulas are the paper's, the counts
            come from running our layers, by the shapes that each op is given (of a window by the pairs that it lets
            meet), and the times are those of one thread.
        """),
        *_operation_blocks(findings),
        *_path_blocks(findings),
        *time_blocks(findings, f"{NAME}-time"),
        *comparison_blocks(findings),
        *gradient_blocks(findings["gradients"], findings["sizes"], f"{NAME}-gradients"),
    ]


def _counted(kind: LayerType, sizes: Sizes) -> dict[str, Any]:
    """A row of the table: the paper's formulas, and the counts of a layer of ours."""
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
        "exponents": {"n": exponent(sizes.counted, counted["n"]), "d": exponent(sizes.counted_widths, counted["d"])},
        "whole_at_d": operations(kind, sizes.width, sizes.width, whole=True),
        "calls": [num_calls(kind, n) for n in sizes.called],
        "paths": [path_length(kind, n) for n in sizes.paths],
    }


DERIVED = {
    ATTENTION: (
        "4 n² d",
        "each of n queries meets n keys in a product of d numbers, d multiplications and d additions: 2 n² d.",
        "The weights times the values take as many.",
    ),
    RECURRENT: (
        "4 n d²",
        "at each of n positions the input goes through a d × d matrix: 2 d².",
        "The state of the position before goes through another.",
    ),
    CONVOLUTION: (
        "4 k n d²",
        "each of n positions sees k positions, each through a matrix of its own.",
        "It is d × 2d, for a value and its gate, and takes 4 d²; without gates it would be half.",
    ),
    RESTRICTED: (
        "4 (n (2r + 1) − r (r + 1)) d",
        "a query meets itself and r keys on either side, r (r + 1) fewer in all at the two ends.",
        "A pair takes 4 d, as in self-attention. The paper's r is the whole neighbourhood, 2r + 1 here.",
    ),
}
"""For each layer the operations in the forward by which positions meet, and why."""


PATHS: dict[str, tuple[str, Callable[[int, int, int], int]]] = {
    ATTENTION: ("1", lambda n, k, r: 1),
    RECURRENT: ("n − 1", lambda n, k, r: n - 1),
    CONVOLUTION: ("⌈(n − 1) / ((k − 1) / 2)⌉", lambda n, k, r: math.ceil((n - 1) / (k // 2))),
    RESTRICTED: ("⌈(n − 1) / r⌉", lambda n, k, r: math.ceil((n - 1) / r)),
}
"""Hops from one end of n positions to the other, derived by hand from n, k and r."""


def _operation_blocks(findings: Findings) -> list[str]:
    """The part of the report on the cost of the mixing: printed, derived and counted."""
    sizes, layers = findings["sizes"], findings["layers"]
    (first, *_, n), (d, *_, last) = sizes["counted"], sizes["counted_widths"]
    wrong = [row["name"] for row in layers if row["operations"] != row["derived"]]
    agreement = f"except for {', '.join(wrong)}" if wrong else "for all four layers"
    rows = (
        [
            row["name"],
            row["complexity"],
            DERIVED[row["name"]][0],
            f"{row['operations']['n'][-1]:,.0f}",
            *(f"{row['exponents'][axis]:.2f}" for axis in "nd"),
        ]
        for row in layers
    )
    return [
        "### Operations",
        table(["layer", "paper", "derived", f"counted, n = {n:,}, d = {d}", "exponent of n", "exponent of d"], rows),
        paragraph("""
            As in the paper, only operations that let positions meet are counted, here in the forward. Attention's
            projections, four products with d × d matrices at each position, come on top: 8 n d².
        """),
        bullets(f"{kind}, {formula}: {' '.join(why)}" for kind, (formula, *why) in DERIVED.items()),
        paragraph(f"""
            The exponents are fitted to counts at n from {first:,} to {n:,} and at d from {d} to {last}. There the count
            and the derivation are the same number {agreement}.
        """),
    ]


def _path_blocks(findings: Findings) -> list[str]:
    """The part of the report on sequential operations and path lengths."""
    sizes, layers, k, r = findings["sizes"], findings["layers"], findings["kernel"], findings["window"]
    (shorter, longer), lengths = sizes["called"], sizes["paths"]
    rows = [
        [row["name"], row["sequential"], *map(str, row["calls"]), row["path"], *(f"{hops:,}" for hops in row["paths"])]
        for row in layers
    ]
    rows.append([f"{CONVOLUTION}, dilated", "", "", "", "", *map(str, findings["dilated"])])
    head = ["layer", "sequential: paper", *(f"ops called, n = {n}" for n in (shorter, longer)), "longest path: paper"]
    more = {row["name"]: (row["calls"][1] - row["calls"][0]) / (longer - shorter) for row in layers}
    growing = [name for name, each in more.items() if each and name != RECURRENT]
    others = f"more too: {', '.join(growing)}" if growing else "as many at any n"
    wrong = [row["name"] for row in layers if row["paths"] != [PATHS[row["name"]][1](n, k, r) for n in lengths]]
    agreement = f"The counts differ from that for {', '.join(wrong)}." if wrong else "These are the counts."
    return [
        "### Sequential operations, and the longest path",
        table([*head, *(f"hops, n = {n:,}" for n in lengths)], rows),
        paragraph(f"""
            An op works on all its positions at once; ops are called one after the other. With each further position a
            recurrent layer calls {more[RECURRENT]:g} more: the product with a state, and its tanh, wait for the state
            before. The others call {others}.
        """),
        paragraph(f"""
            A hop is a layer, or in a recurrent layer a step from state to state. From one end to the other it takes
            {"; ".join(f"{name}: {formula}" for name, (formula, _) in PATHS.items())}. {agreement} Our convolution sees
            neighbours, (k − 1) / 2 on either side; for such contiguous kernels the paper too gives O(n/k) (§4).
            O(log_k(n)) belongs to dilated ones: in the l-th layer, from 0, a position sees itself and the k − 1 before
            it at multiples of k^l, so that L layers reach k^L positions, and n take ⌈log_k n⌉. The last row follows a
            signal through such a stack until it has travelled from the first position to the last.
        """),
    ]
