"""What is made of the ledgers, without a GPU and without PyTorch: README's section on kernels, and the targets met.

`python -m kernels.bench.report` puts the section into README. The targets are for an H200, where a bf16 product runs at
788 TFLOP/s and a copy at 4.3 TB/s.
"""

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import KERNELS
from .ledger import RESULTS, Entry, Ledger, current, entries, ledgers, number, size_of, state

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- kernels: made by python -m kernels.bench.report -->\n", "<!-- end of kernels -->\n"

DTYPES = ("float32", "float16", "bfloat16")

LENGTHS, WIDTH, COLUMNS = (4096, 16_384), 128, (512, 2048, 4096, 131_072)
"""What README shows of attention and of rows; pictures show all."""

RUNGS = ("unfused", "online", "naive")
"""Earlier versions of our kernels: their columns come last."""


def section(folder: Path = RESULTS) -> str:
    """Everything between README's two marks."""
    found = [ledger for ledger in ledgers(folder).values() if not ledger["smoke"]]
    if not found:
        rows = [[f"`{op}`", what, "not yet verified on a GPU"] for op, (_, what) in KERNELS.items()]
        return _table(["op", "its kernels", "state"], rows)
    return "\n".join(part for ledger in found for part in _of_a_gpu(ledger) if part)


def targets_met(ledger: Ledger) -> list[str]:
    """A line for each target that was measured; on other GPUs than theirs for scale."""
    lines = []
    for target in TARGETS:
        value = target.measured(ledger)
        if value is not None:
            verdict = "met" if target.met(ledger) else "not met"
            verdict = verdict if GPU in ledger["gpu"] else f"an {GPU}'s target, for scale"
            bound = f"at {'most' if target.at_most else 'least'} {target.bound:g}"
            lines.append(f"{target.what}: {value:,.3g} {target.unit}, {bound} ({verdict})")
    return lines


def main() -> None:
    """Puts the section between README's marks; prints it where there are none."""
    text = README.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        print(BEGIN + section() + END, end="")
        sys.exit(f"{README.name} has no place for this: it needs the first line and the last")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(before + BEGIN + section() + END + after, encoding="utf-8")


def _of_a_gpu(ledger: Ledger) -> list[str]:
    targets = "".join(f"- {line}\n" for line in targets_met(ledger))
    return [_heading(ledger), _verified(ledger), _attention(ledger), *_rows(ledger), _swap(ledger), targets]


def _heading(ledger: Ledger) -> str:
    """The GPU, what it ran, when, and which times are no longer those of the code as it is."""
    stamps = [(entry["date"], entry["versions"]) for entry in ledger["ops"].values()]
    for name, section in ledger["sections"].items():
        stamps += [(entry["date"], section["versions"]) for entry in entries(ledger, name) if "date" in entry]
    lines = {f"{date}: {_words(versions)}": None for date, versions in stamps}
    hashes = [timed["hashes"] for timed in ledger["sections"].values()]
    changed = [op for op in KERNELS if any(timed.get(op) != current(op) for timed in hashes)]
    stale = f"; changed since they were timed: {', '.join(changed)}" if changed else ""
    return f"**{ledger['gpu']}** ({'; '.join(lines)}){stale}\n"


def _words(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _verified(ledger: Ledger) -> str:
    rows = []
    for op, (_, what) in KERNELS.items():
        errors = ledger["ops"].get(op, {"errors": {}})["errors"]
        worst = [f"{errors[dtype]['error']:.1e}" if dtype in errors else "–" for dtype in DTYPES]
        rows.append([f"`{op}`", what, state(op, ledger), *worst])
    return _table(["op", "its kernels", "state", *(f"worst error, {dtype}" for dtype in DTYPES)], rows)


def _attention(ledger: Ledger) -> str:
    found = entries(ledger, "attention")
    shown = [entry for entry in found if entry["size"]["Tk"] in LENGTHS and entry["size"]["D"] == WIDTH]
    return _measured("attention: TFLOP/s, and how much of a product's", shown, "tflops")


def _rows(ledger: Ledger) -> list[str]:
    found = [entry for entry in entries(ledger, "rows") if entry["size"].get("columns", COLUMNS[0]) in COLUMNS]
    moving, multiplying = ([entry for entry in found if kind in entry] for kind in ("moved", "flops"))
    return [
        _measured("GB/s, and how much of a copy's", moving, "gbs"),
        _measured("TFLOP/s, and how much of a product's", multiplying, "tflops"),
    ]


def _swap(ledger: Ledger) -> str:
    rows = []
    for entry in entries(ledger, "swap"):
        for contestant in entry["contestants"].values():
            if "ms" in contestant:
                part = contestant.get("estimated_from")
                mark = f", estimated from {part['sentences']} of {entry['size']['sentences']} sentences" if part else ""
                rows.append([entry["what"] + mark, number(contestant["ms"]), number(contestant["hours"])])
    if not rows:
        return ""
    size = entries(ledger, "swap")[0]["size"]
    tokens = size["sentences"] * size["length"]
    step = f"a training step of `base`, {tokens:,} + {tokens:,} tokens, {size['length']} a sentence"
    return _table([step, "ms", "hours for the paper's 100,000"], rows)


def _measured(head: str, found: list[Entry], measure: str) -> str:
    """Tasks down, contestants across."""
    timed = {name: None for entry in found for name, each in entry["contestants"].items() if measure in each}
    names = sorted(timed, key=lambda name: name in RUNGS)
    rows = []
    for entry in found:
        contestants = (entry["contestants"].get(name, {}) for name in names)
        cells = [f"{number(each[measure])} ({each['share']:.0%})" if measure in each else "–" for each in contestants]
        rows.append([f"{entry['op']}, {entry['what']}: {size_of(entry)}", *cells])
    return _table([head, *names], rows) if rows else ""


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


# --- Targets --------------------------------------------------------------------------------------------------

GPU = "H200"
"""Whose name has to hold this for the targets to count; on others they are shown for scale."""

Values = Callable[[Ledger], Iterable[float | None]]

BOTH = "forward + backward"
LONG = (4096, 8192, 16_384)


@dataclass(frozen=True)
class Target:
    """A quantity, what it has to be at least (or at most), and how it is read from a ledger; in `unit`."""

    what: str
    bound: float
    unit: str
    values: Values
    at_most: bool = False

    def measured(self, ledger: Ledger) -> float | None:
        """The worst of its values; `None` unless all of them were measured."""
        values = list(self.values(ledger))
        if not values or None in values:
            return None
        return (max if self.at_most else min)(value for value in values if value is not None)

    def met(self, ledger: Ledger) -> bool | None:
        """`None` where it was not measured."""
        value = self.measured(ledger)
        return None if value is None else value <= self.bound if self.at_most else value >= self.bound


def _tflops(kind: str, D: int, lengths: Iterable[int]) -> Values:
    return lambda ledger: (_found(ledger, "forward", kind, D, T).get("tflops") for T in lengths)


def _against(peer: str) -> Values:
    """How many times as fast as a peer, forward and backward."""
    return lambda ledger: (
        _ratio(_found(ledger, BOTH, kind, D, T, peer).get("ms"), _found(ledger, BOTH, kind, D, T).get("ms"))
        for kind in ("full", "causal")
        for D in (64, 128)
        for T in LONG
    )


def _cost(kind: str) -> Values:
    """How much longer each pair that attends takes than where all do, in percent."""

    def values(ledger: Ledger) -> Iterable[float | None]:
        for what in ("forward", BOTH):
            full, other = (_found(ledger, what, k, 128, 4096).get("tflops") for k in ("full", kind))
            ratio = _ratio(full, other)
            yield None if ratio is None else 100 * (ratio - 1)

    return values


def _share(op: str, what: str, longer: int = 0, longest: float = math.inf) -> Values:
    """The percentages of a copy's GB/s at all sizes, or only where rows are `longer` than one and at most `longest`."""

    def values(ledger: Ledger) -> Iterable[float | None]:
        for entry in entries(ledger, "rows"):
            length = entry["size"].get("columns", 1)
            if (entry["op"], entry["what"]) == (op, what) and longer < length <= longest:
                share = entry["contestants"]["ours"].get("share")
                yield None if share is None else 100 * share

    return values


def _step(ledger: Ledger) -> Iterable[float | None]:
    """How many times as fast as `torch.compile` the best of our steps is."""
    times = {e["what"]: c.get("ms") for e in entries(ledger, "swap") for c in e["contestants"].values()}
    yield _ratio(times.get("PyTorch, torch.compile"), times.get("+ CUDA graph"))


def _found(ledger: Ledger, what: str, kind: str, D: int, T: int, who: str = "ours") -> dict[str, Any]:
    for entry in entries(ledger, "attention"):
        size = entry["size"]
        if (entry["what"], size["kind"], size["D"], size["Tq"], size["Tk"]) == (what, kind, D, T, T):
            return entry["contestants"].get(who, {})
    return {}


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


TARGETS = (
    Target("attention forward, D 128, full, 4k–16k", 520, "TFLOP/s", _tflops("full", 128, LONG)),
    Target("attention forward, D 128, causal, 16k", 460, "TFLOP/s", _tflops("causal", 128, LONG[-1:])),
    Target("attention forward, D 64, full, 4k–16k", 420, "TFLOP/s", _tflops("full", 64, LONG)),
    Target("attention forward, D 64, causal, 16k", 375, "TFLOP/s", _tflops("causal", 64, LONG[-1:])),
    Target("attention, both ways, against FlashAttention-2", 1.15, "times as fast", _against("FlashAttention-2")),
    Target("attention, both ways, against cuDNN", 0.7, "times as fast", _against("cuDNN")),
    Target("padding costs", 5, "%", _cost("padding"), at_most=True),
    Target("dropout costs", 25, "%", _cost("dropout"), at_most=True),
    Target("softmax, up to 64k columns", 92, "% of a copy", _share("softmax", "forward", longest=65_536)),
    Target("softmax, beyond 64k columns", 62, "% of a copy", _share("softmax", "forward", longer=65_536)),
    Target("layernorm forward", 92, "% of a copy", _share("layernorm", "forward")),
    Target("add_layernorm forward", 92, "% of a copy", _share("add_layernorm", "forward")),
    Target("layernorm backward", 80, "% of a copy", _share("layernorm", "backward")),
    Target("add_layernorm backward", 80, "% of a copy", _share("add_layernorm", "backward")),
    Target("cross_entropy forward + backward", 85, "% of a copy", _share("cross_entropy", BOTH)),
    Target("Adam", 92, "% of a copy", _share("adam", "step")),
    Target("dropout", 92, "% of a copy", _share("dropout", "forward")),
    Target("base training step, against torch.compile with SDPA", 1.0, "times as fast", _step),
)


if __name__ == "__main__":
    main()
