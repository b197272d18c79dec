"""Table 1 derived, and in tables beside it what `complexity` and `timing` found: lines of Markdown."""

import math
from collections.abc import Callable
from typing import Any

from ...experiment import Findings
from ...markdown import picture, table
from .complexity import ATTENTION, CONVOLUTION, RECURRENT, RESTRICTED
from .timing import ALONE_SUFFIX, Times

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
"""Of each layer: the operations by which positions meet, forward, and why."""

PRINTED = {
    ATTENTION + ALONE_SUFFIX: ("2", "1"),
    RESTRICTED + ALONE_SUFFIX: ("1", "1"),
    RECURRENT: ("1", "2"),
    CONVOLUTION: ("1", "2"),
}
"""The paper's exponents of n and of d. Attention with its projections is a sum, which has none."""

PATHS: dict[str, tuple[str, Callable[[int, int, int], int]]] = {
    ATTENTION: ("1", lambda n, k, r: 1),
    RECURRENT: ("n − 1", lambda n, k, r: n - 1),
    CONVOLUTION: ("⌈(n − 1) / ((k − 1) / 2)⌉", lambda n, k, r: math.ceil((n - 1) / (k // 2))),
    RESTRICTED: ("⌈(n − 1) / r⌉", lambda n, k, r: math.ceil((n - 1) / r)),
}
"""Hops from one end of n positions to the other, by hand, of n, k and r."""


def operation_lines(findings: Findings) -> list[str]:
    """What the mixing costs: printed, derived, counted."""
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
    meaning = (
        "As in the paper, what counts is what lets positions meet, here forward. Attention's projections, four "
        "products with d × d matrices at each position, come on top: 8 n d²."
    )
    counted = (
        f"The exponents are fitted to counts at n from {first:,} to {n:,} and at d from {d} to {last}. There the count "
        f"and the derivation are the same number {agreement}."
    )
    return [
        "### Operations",
        "",
        *table(["layer", "paper", "derived", f"counted, n = {n:,}, d = {d}", "exponent of n", "exponent of d"], rows),
        "",
        meaning,
        "",
        *(f"- {kind}, {formula}: {' '.join(why)}" for kind, (formula, *why) in DERIVED.items()),
        "",
        counted,
        "",
    ]


def path_lines(findings: Findings) -> list[str]:
    """What must wait, and how far a signal travels."""
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
    waiting = (
        "An op works on all positions that it is given at once; ops are called one after the other. With each further "
        f"position a recurrent layer calls {more[RECURRENT]:g} more: the product with a state, and its tanh, wait for "
        f"the state before. The others call {others}."
    )
    wrong = [row["name"] for row in layers if row["paths"] != [PATHS[row["name"]][1](n, k, r) for n in lengths]]
    hops = (
        "A hop is a layer, or in a recurrent layer a step from state to state. From one end to the other it takes "
        f"{'; '.join(f'{name}: {formula}' for name, (formula, _) in PATHS.items())}. "
        + (f"The counts differ from that for {', '.join(wrong)}." if wrong else "These are the counts.")
    )
    convolutions = (
        "Our convolution sees neighbours, (k − 1) / 2 on either side; for such contiguous kernels the paper too gives "
        "O(n/k) (§4). O(log_k(n)) is of dilated ones: in the l-th layer, from 0, a position sees itself and the k − 1 "
        "before it at multiples of k^l, so that L layers reach k^L positions, and n take ⌈log_k n⌉. The last row "
        "follows a signal through such a stack until the last position has heard of the first."
    )
    return [
        "### Sequential operations, and the longest path",
        "",
        *table([*head, *(f"hops, n = {n:,}" for n in lengths)], rows),
        "",
        waiting,
        "",
        f"{hops} {convolutions}",
        "",
    ]


def time_lines(findings: Findings, name: str) -> list[str]:
    """Times against n and d, beneath the picture of that name."""
    sizes, effort = findings["sizes"], findings["sizes"]["effort"]
    method = (
        f"Forward and backward of one sequence, the least of at least {effort['repeats']} in each of "
        f"{effort['rounds']} rounds; in brackets, from the lowest to the highest, what single rounds and their least "
        "give. *Attention alone* is what the paper counts, without projections; with them a layer is a sum, of which "
        "the paper gives one term."
    )
    return [
        "### Time",
        "",
        method,
        "",
        picture(name, "Time of each layer against n and against d, in logarithms"),
        "",
        *_time_table(findings["over_n"], "n", f"against n, d = {sizes['width']}", 0),
        "",
        *_time_table(findings["over_d"], "d", f"against d, n = {sizes['length']}", 1),
        "",
        _away_from_theory(findings),
        "",
    ]


def _time_table(times: Times, axis: str, title: str, column: int) -> list[str]:
    points, half = times["sizes"], (len(times["sizes"]) + 1) // 2
    shown = (0, half - 1, len(points) - 1)
    head = [title, *(f"ms, {axis} = {points[i]:,}" for i in shown)]
    head += [f"exponent up to {points[half - 1]:,}", f"exponent from {points[-half]:,}", "paper"]
    rows = (
        [
            name,
            *(f"{1000 * found['best'][i]:.2f}" for i in shown),
            *(_rounds(found[part]) for part in ("lower", "upper")),
            PRINTED[name][column] if name in PRINTED else "",
        ]
        for name, found in times["series"].items()
    )
    return table(head, rows)


def _away_from_theory(findings: Findings) -> str:
    """Why exponents of times are not those of operations: what calls cost, and memory."""
    fits = [found for axis in ("over_n", "over_d") for found in findings[axis]["series"].values()]
    flatter = sum(found["lower"]["value"] < found["upper"]["value"] for found in fits)
    length, widths = findings["sizes"]["length"], findings["over_d"]["sizes"]
    times = findings["over_d"]["series"][RECURRENT]["best"]
    work, longer = (widths[1] / widths[0]) ** 2, times[1] / times[0]
    text = (
        f"{flatter} of the {len(fits)} exponents are lower over the lower half of the sizes than over the upper: a "
        "call costs something however little it is given. A recurrent layer makes the most calls: from "
        f"d = {widths[0]} to d = {widths[1]} it has {work:g} times the operations and takes {longer:.2f} times as "
        f"long, {1e6 * times[0] / length:.1f} and {1e6 * times[1] / length:.1f} µs a position."
    )
    if longer < work / 2:
        text += " What it pays for there is calls that wait for each other, not arithmetic."
    longest = findings["over_n"]["sizes"][-1]
    steep = min(findings["over_n"]["series"][ATTENTION + ALONE_SUFFIX]["upper"]["rounds"])
    if steep > 2:
        text += (
            f" Attention alone grows faster than n² in every round, by n^{steep:.2f} or more. Operations do not; but "
            f"the weights of all pairs take {4 * longest**2 / 2**20:,.3g} MiB at n = {longest:,}, and are read and "
            "written several times."
        )
    return text


def comparison_lines(findings: Findings) -> list[str]:
    """What self-attention's time consists of, and where it costs as much as others."""
    found, d, lengths = findings["compared"], findings["sizes"]["width"], findings["over_n"]["sizes"]
    whole = {row["name"]: row["whole_at_d"] for row in findings["layers"]}
    linear, square, block, r = found["linear"], found["square"], findings["block"], findings["window"]
    terms = f"equal at n ≈ {linear / square:,.0f}" if linear and square else "one of which is nothing"
    fit = (
        f"Self-attention's time, projections included, at d = {d}: a · n + b · n² with a = {1e6 * linear:.2f} µs a "
        f"position and b = {1e9 * square:.2f} ns a pair, two terms {terms}; in operations, 8 n d² and 4 n² d, they "
        f"are equal at n = 2 d = {2 * d}. The fit is furthest from the times at n = {found['worst']:,}, by "
        f"{100 * found['miss']:.0f} %."
    )
    counts = (
        f"In operations, attention alone from n = d, where 4 n² d = 4 n d²; by the counts, {_counted(found, lengths)}. "
        f"With its projections it takes more at any n, {whole[ATTENTION] / whole[RECURRENT]:g} times as many at n = d."
    )
    times = (
        f"In time, attention alone {_crossing(found['alone'], lengths)}, with its projections "
        f"{_crossing(found['layer'], lengths)}."
    )
    faster = _crossing(found["restricted"], lengths)
    blocks = (
        f"Restricted to r = {r} on either side, it is faster than unrestricted {faster}. Up to n = {2 * block} our "
        f"window is only a mask on full attention. Beyond, {block} queries at a time meet up to {block + 2 * r} keys, "
        f"though each may attend to {2 * r + 1}: {(block + 2 * r) / (2 * r + 1):.1f} times the pairs that are counted, "
        "but linear in n."
    )
    return [
        fit,
        "",
        f"When does attention cost more than a recurrent layer of width d = {d}?",
        "",
        f"- {counts}",
        f"- {times} {_waiting(found['shortest'], found['at_d'], lengths[0], d)}",
        "",
        blocks,
        "",
    ]


def _waiting(shortest: dict[str, Any], at_d: dict[str, Any], n: int, d: int) -> str:
    """How a recurrent layer's time compares with self-attention's; what is claimed holds in every round."""
    text = (
        f"At n = {n} a recurrent layer takes {_rounds(shortest)} times as long as self-attention with its "
        f"projections, and {_rounds(at_d)} times as long at n = d = {d}"
    )
    rounds = [*shortest["rounds"], *at_d["rounds"]]
    if min(rounds) > 1:
        return f"{text}: with fewer operations, since each position waits for the one before."
    return f"{text}." if max(rounds) < 1 else f"{text}: recurrence is not slower in every round."


def _rounds(found: dict[str, Any]) -> str:
    """A figure, and from the lowest to the highest what single rounds give, and their least times."""
    values = [found["value"], *found["rounds"]]
    text = f"{found['value']:.2f} ({min(values):.2f} to {max(values):.2f})"
    return text.replace("-", "−")


def _counted(found: dict[str, Any], lengths: list[int]) -> str:
    return f"at no n up to {lengths[-1]:,}" if found["counted"] is None else f"from n = {found['counted']:,.0f}"


def _crossing(found: dict[str, Any], lengths: list[int]) -> str:
    """From which length on; where it never was, in a round, it lies beyond the longest."""
    value, rounds = found["value"], [math.inf if each is None else each for each in found["rounds"]]
    if value is None:
        return f"at no n up to {lengths[-1]:,} (single rounds: {_span(rounds, lengths)})"
    if value <= lengths[0]:
        return f"at every n from {lengths[0]:,} (single rounds: {_span(rounds, lengths)})"
    return f"from n ≈ {value:,.0f} ({_span([value, *rounds], lengths)})"


def _span(values: list[float], lengths: list[int]) -> str:
    low, high = (f"{x:,.0f}" if x < math.inf else f"more than {lengths[-1]:,}" for x in (min(values), max(values)))
    return f"{low} to {high}"
