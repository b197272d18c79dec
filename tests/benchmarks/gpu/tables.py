"""What is made of the ledgers, without a GPU or PyTorch: a section of `kernels/README.md`, and the targets met.

`lease.py report` puts the section there, and all times of a GPU into `<gpu>.md`. The targets are
for an H200, where a bf16 product runs at 788 TFLOP/s and a copy at 4.3 TB/s.
"""

import math
import sys
from pathlib import Path
from typing import Any

from kernels import KERNELS
from kernels.proof.ledger import (
    BACKWARD,
    BOTH,
    DTYPES,
    FORWARD,
    RESULTS,
    Ledger,
    current,
    entries,
    ledgers,
    machine_state,
    manifest,
    number,
    path_of,
    state,
    task_of,
    timed,
)

README = RESULTS.parent / "README.md"
BEGIN, END = "<!-- kernels: made by tests/benchmarks/gpu/lease.py report -->\n", "<!-- end of kernels -->\n"

PICTURES = {
    "attention": "Attention's TFLOP/s and memory against the length",
    "rows": "What each op reaches of a copy's GB/s, beside others' kernels",
}
"""The pictures of a page of times, and what they show."""

RUNGS = ("unfused", "online", "naive")
"""Earlier versions of our kernels: their columns come last."""


def section(folder: Path = RESULTS) -> str:
    """Everything between README's two marks."""
    found = [ledger for ledger in ledgers(folder).values() if not ledger["smoke"]]
    executed = _executed(manifest(folder))
    if not found:
        return executed + "\nNot yet verified on a GPU: there is none here.\n"
    parts = (part for ledger in found for part in _of_a_gpu(ledger) if part)
    return executed + "\n" + "\n".join(parts)


def times(folder: Path = RESULTS) -> dict[Path, str]:
    """The text of `<gpu>.md` for each GPU: all tasks that were timed."""
    texts = {}
    for ledger in ledgers(folder).values():
        if not ledger["smoke"]:
            path = path_of(folder, ledger["gpu"]).with_suffix(".md")
            parts = [f"# Times on an {ledger['gpu']}\n", _heading(ledger), *_times(ledger)]
            texts[path] = "\n".join(filter(None, [*parts, *_pictures(path)]))
    return texts


def _pictures(path: Path) -> list[str]:
    """The pictures beside a page of times, as `charts` draws them."""
    pictures = {path.with_name(f"{path.stem}-{name}.png"): said for name, said in PICTURES.items()}
    return [f"![{said}]({picture.name})\n" for picture, said in pictures.items() if picture.is_file()]


def _executed(found: dict[str, Any]) -> str:
    """A table of what was executed as machine code, with the worst errors."""
    rows = []
    for op, (_, what) in KERNELS.items():
        rows.append([f"`{op}`", what, machine_state(op, found), *_worst(found.get(op, {}).get("dtypes", {}))])
    return _table(["op", "its kernels", "state", *WORST], rows)


WORST = [f"worst error, {dtype}" for dtype in DTYPES]


def _worst(errors: dict[str, dict[str, float]]) -> list[str]:
    return [f"{errors[dtype]['error']:.1e}" if dtype in errors else "–" for dtype in DTYPES]


def main() -> None:
    """Writes each GPU's times, and puts the section between README's marks; prints it where there are none."""
    for path, said in times().items():
        path.write_text(said, encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        print(BEGIN + section() + END, end="")
        sys.exit(f"{README.name} has no place for this: it needs the first line and the last")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(before + BEGIN + section() + END + after, encoding="utf-8")


def _of_a_gpu(ledger: Ledger) -> list[str]:
    """The parts of its section."""
    targets = "".join(f"- {line}\n" for line in targets_met(ledger))
    name = path_of(RESULTS, ledger["gpu"]).stem
    link = f"[All times, beside those of others](results/{name}.md).\n" if any(_times(ledger)) else ""
    return [_heading(ledger), _verified(ledger), _steps(ledger), targets, link]


def _heading(ledger: Ledger) -> str:
    """The GPU, what it ran, when, and which times are no longer those of the code as it is."""
    stamps = [(entry["date"], entry["versions"]) for entry in ledger["ops"].values()]
    for part in ledger["sections"].values():
        stamps += [(entry["date"], part["versions"]) for entry in part["entries"] if "date" in entry]
    ran = [f"{date}: {', '.join(map(' '.join, versions.items()))}" for date, versions in stamps]
    parts = ledger["sections"].values()
    changed = [op for op in KERNELS if any(_ran(op, part) and part["hashes"].get(op) != current(op) for part in parts)]
    since = f"; changed since they were timed: {', '.join(changed)}" if changed else ""
    return f"**{ledger['gpu']}** ({'; '.join(dict.fromkeys(ran))}){since}\n"


def _ran(op: str, part: dict[str, Any]) -> bool:
    """Whether a section has times of an op; a training step runs all."""
    return any(entry["op"] in (op, "training step") for entry in part["entries"] if timed(entry))


def _verified(ledger: Ledger) -> str:
    errors = {op: ledger["ops"].get(op, {}).get("errors", {}) for op in KERNELS}
    rows = [[f"`{op}`", state(op, ledger), *_worst(errors[op])] for op in KERNELS]
    return _table([f"op, on an {ledger['gpu']}", "state", *WORST], rows)


def _times(ledger: Ledger) -> list[str]:
    """Tables of tasks down and contestants across."""
    attention, rows = entries(ledger, "attention"), entries(ledger, "rows")
    moved, multiplied = ([entry for entry in rows if work in entry] for work in ("moved", "flops"))
    return [
        _measured("attention: TFLOP/s, and how much of a product's", attention, "tflops"),
        _measured("GB/s, and how much of a copy's", moved, "gbs"),
        _measured("TFLOP/s, and how much of a product's", multiplied, "tflops"),
    ]


def _measured(head: str, found: list, measure: str) -> str:
    """A table of these tasks."""
    found = [entry for entry in found if timed(entry)]
    names = sorted({name: None for entry in found for name in timed(entry)}, key=lambda name: name in RUNGS)
    rows = []
    for entry in found:
        cells = [timed(entry).get(name, {}) for name in names]
        said = [f"{number(cell[measure])} ({cell['share']:.0%})" if measure in cell else "–" for cell in cells]
        rows.append([task_of(entry), *said])
    return _table([head, *names], rows) if rows else ""


def _steps(ledger: Ledger) -> str:
    """A table of training steps."""
    rows, steps = [], entries(ledger, "swap")
    for entry in steps:
        for found in timed(entry).values():
            part = found.get("estimated_from")
            mark = f", estimated from {part['sentences']} of {entry['size']['sentences']} sentences" if part else ""
            rows.append([entry["what"] + mark, number(found["ms"]), number(found["hours"])])
    if not rows:
        return ""
    size = steps[0]["size"]
    tokens = size["sentences"] * size["length"]
    step = f"a training step of `base`, {tokens:,} + {tokens:,} tokens, {size['length']} a sentence"
    return _table([step, "ms", "hours for the paper's 100,000"], rows)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


# --- Targets --------------------------------------------------------------------------------------------------

GPU = "H200"
"""The targets count on a GPU with this in its name; on others they are shown for scale."""

LONG = (4096, 16_384)
LEAST, MOST = "at least", "at most"
ELSEWHERE = f"an {GPU}'s goal"
TIMES, COPIED = "times as fast", "% of a copy"

Target = tuple[str, list[float], str, str, float]
"""A quantity, the values that were measured of it (NaN for one that was not), its unit, and its bound."""


def targets(ledger: Ledger) -> list[Target]:
    """What the kernels are to reach."""
    names = "kind", "D", "Tq", "Tk"
    attended = {
        (entry["what"], *(entry["size"][name] for name in names)): entry["contestants"]
        for entry in entries(ledger, "attention")
    }
    steps = {e["what"]: each.get("ms", math.nan) for e in entries(ledger, "swap") for each in e["contestants"].values()}
    step, compiled = (steps.get(what, math.nan) for what in ("+ CUDA graph", "PyTorch, torch.compile"))

    def found(what: str, kind: str, D: int, T: int, measure: str = "tflops", who: str = "ours") -> float:
        return attended.get((what, kind, D, T, T), {}).get(who, {}).get(measure, math.nan)

    def tflops(kind: str, D: int, *lengths: int) -> list[float]:
        return [found(FORWARD, kind, D, T) for T in lengths]

    def faster_than(peer: str) -> list[float]:
        tasks = [(BOTH, kind, D, T, "ms") for kind in ("full", "causal") for D in (64, 128) for T in LONG]
        return [found(*task, peer) / found(*task) for task in tasks]

    def cost(kind: str) -> list[float]:
        """How much longer each pair that attends takes than where all do, in percent."""
        return [100 * (found(what, "full", 128, 4096) / found(what, kind, 128, 4096) - 1) for what in (FORWARD, BOTH)]

    def share(op: str, what: str, longer: int = 0, longest: float = math.inf) -> list[float]:
        """Percentages of a copy's GB/s, for rows of all lengths or of some."""
        return [
            100 * entry["contestants"]["ours"].get("share", math.nan)
            for entry in entries(ledger, "rows")
            if (entry["op"], entry["what"]) == (op, what) and longer < entry["size"].get("columns", 1) <= longest
        ]

    return [
        ("attention forward, D 128, full, 4k–16k", tflops("full", 128, *LONG), "TFLOP/s", LEAST, 520),
        ("attention forward, D 128, causal, 16k", tflops("causal", 128, LONG[-1]), "TFLOP/s", LEAST, 460),
        ("attention forward, D 64, full, 4k–16k", tflops("full", 64, *LONG), "TFLOP/s", LEAST, 420),
        ("attention forward, D 64, causal, 16k", tflops("causal", 64, LONG[-1]), "TFLOP/s", LEAST, 375),
        ("attention, both ways, against FlashAttention-2", faster_than("FlashAttention-2"), TIMES, LEAST, 1.15),
        ("attention, both ways, against cuDNN", faster_than("cuDNN"), TIMES, LEAST, 0.7),
        ("dropout costs", cost("dropout"), "%", MOST, 25),
        ("softmax, up to 64k columns", share("softmax", FORWARD, longest=65_536), COPIED, LEAST, 92),
        ("softmax, beyond 64k columns", share("softmax", FORWARD, longer=65_536), COPIED, LEAST, 62),
        ("layernorm forward", share("layernorm", FORWARD), COPIED, LEAST, 92),
        ("add_layernorm forward", share("add_layernorm", FORWARD), COPIED, LEAST, 92),
        ("layernorm backward", share("layernorm", BACKWARD), COPIED, LEAST, 80),
        ("add_layernorm backward", share("add_layernorm", BACKWARD), COPIED, LEAST, 80),
        ("cross_entropy forward + backward", share("cross_entropy", BOTH), COPIED, LEAST, 85),
        ("Adam", share("adam", "step"), COPIED, LEAST, 92),
        ("dropout", share("dropout", FORWARD), COPIED, LEAST, 92),
        ("base training step, against torch.compile with SDPA", [compiled / step], TIMES, LEAST, 1.0),
    ]


def targets_met(ledger: Ledger) -> list[str]:
    """A line for each target that was measured, with the worst of its values; on other GPUs than theirs for scale."""
    lines = []
    for what, values, unit, limit, bound in targets(ledger):
        if values and not any(map(math.isnan, values)):
            worst = max(values) if limit == MOST else min(values)
            met = worst <= bound if limit == MOST else worst >= bound
            whose, verdict = ("goal", "met" if met else "not met") if GPU in ledger["gpu"] else (ELSEWHERE, "for scale")
            lines.append(f"{what}: {worst:,.3g} {unit} ({whose}: {limit} {bound:g}, {verdict})")
    return lines
