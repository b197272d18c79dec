"""README's section on kernels, made of the ledgers: `python -m kernels.bench.report`. Needs no GPU and no PyTorch."""

import sys
from pathlib import Path

from ..ledger import RESULTS, current, ledgers, state
from .results import Entry, Ledger, entries, number, size_of
from .targets import GPU, TARGETS

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- kernels: made by python -m kernels.bench.report -->\n", "<!-- end of kernels -->\n"

KERNELS = {
    "attention": "FlashAttention-style, forward and backward: causal, padding, window, dropout inside; any length",
    "softmax": "one pass where a row fits, online beyond",
    "layernorm": "one pass; sums for gamma and beta without atomics",
    "add_layernorm": "residual, dropout and norm in one kernel",
    "cross_entropy": "label smoothing, ignored targets; three passes over the logits",
    "linear_cross_entropy": "projection and loss, never all logits at once",
    "embedding": "look-up; sums by token without atomics",
    "dropout": "masks computed from coordinates, none stored",
    "relu": "one pass",
    "adam": "one pass over all parameters; the global norm",
}
DTYPES = ("float32", "float16", "bfloat16")

LENGTHS, WIDTH, COLUMNS = (4096, 16_384), 128, (512, 2048, 4096, 131_072)
"""What README shows of attention and of rows; pictures show all."""

RUNGS = ("unfused", "online", "naive")
"""Come last."""


def section(folder: Path = RESULTS) -> str:
    """Everything between README's two marks."""
    found = [ledger for ledger in ledgers(folder).values() if not ledger["smoke"]]
    if not found:
        rows = [[f"`{op}`", what, "not yet verified on a GPU"] for op, what in KERNELS.items()]
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
    for op, what in KERNELS.items():
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


if __name__ == "__main__":
    main()
