"""The report of the ledgers, made without a GPU or PyTorch: a section of `kernels/README.md`, and the targets met.

`lease.py report` puts the section there, and all times of a GPU into `<gpu>.md`. The targets are
for an H200, where a bf16 product runs at 788 TFLOP/s and a copy at 4.3 TB/s.
"""

import math
from pathlib import Path
from typing import Any

from kernels import KERNELS
from kernels.proof.ledger import (
    BACKWARD,
    BOTH,
    DTYPES,
    FORWARD,
    OURS,
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


def main() -> None:
    """Write each GPU's times, and put the section between README's marks."""
    for path, said in times().items():
        path.write_text(said, encoding="utf-8")
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    README.write_text(before + BEGIN + section() + END + rest.split(END)[1], encoding="utf-8")


def section(folder: Path = RESULTS) -> str:
    """Return everything between README's two marks."""
    executed, parts = manifest(folder), []
    about = [(op, what, machine_state(op, executed)) for op, (_, what) in KERNELS.items()]
    parts.append(_table("op", ["its kernels", "state", *WORST], [
        [f"`{op}`", what, said, *_worst(executed.get(op, {}).get("dtypes", {}))] for op, what, said in about
    ]))  # fmt: skip
    for ledger in ledgers(folder).values():
        if not ledger["smoke"]:
            parts += _of_a_gpu(ledger)
    return (
        "\n".join(filter(None, parts)) if parts[1:] else parts[0] + "\nNot yet verified on a GPU: there is none here.\n"
    )


def times(folder: Path = RESULTS) -> dict[Path, str]:
    """Return the text of `<gpu>.md` for each GPU: all tasks that were timed."""
    texts = {}
    for ledger in ledgers(folder).values():
        if not ledger["smoke"]:
            path = path_of(folder, ledger["gpu"]).with_suffix(".md")
            pictures = {path.with_name(f"{path.stem}-{name}.png"): said for name, said in PICTURES.items()}
            drawn = [f"![{said}]({picture.name})\n" for picture, said in pictures.items() if picture.is_file()]
            parts = [f"# Times on an {ledger['gpu']}\n", _heading(ledger), *_times(ledger), *drawn]
            texts[path] = "\n".join(filter(None, parts))
    return texts


WORST = [f"worst error, {dtype}" for dtype in DTYPES]


def _worst(errors: dict[str, dict[str, float]]) -> list[str]:
    return [f"{errors[dtype]['error']:.1e}" if dtype in errors else "–" for dtype in DTYPES]


def _of_a_gpu(ledger: Ledger) -> list[str]:
    """Return the parts of its section."""
    rows = [[f"`{op}`", state(op, ledger), *_worst(ledger["ops"].get(op, {}).get("errors", {}))] for op in KERNELS]
    targets = "".join(f"- {line}\n" for line in targets_met(ledger))
    name = path_of(RESULTS, ledger["gpu"]).stem
    link = f"[All times, beside those of others](results/{name}.md).\n" if any(_times(ledger)) else ""
    verified = _table(f"op, on an {ledger['gpu']}", ["state", *WORST], rows)
    return [_heading(ledger), verified, _steps(ledger), targets, link]


def _heading(ledger: Ledger) -> str:
    """Return the GPU, what it ran, when, and which times are no longer those of the code as it is."""
    parts = ledger["sections"].values()
    stamps = [(entry["date"], entry["versions"]) for entry in ledger["ops"].values()]
    stamps += [(entry["date"], part["versions"]) for part in parts for entry in part["entries"] if "date" in entry]
    ran = dict.fromkeys(f"{date}: {', '.join(map(' '.join, versions.items()))}" for date, versions in stamps)

    def changed(op: str, part: dict[str, Any]) -> bool:
        has_times = any(entry["op"] in (op, "training step") for entry in part["entries"] if timed(entry))
        return has_times and part["hashes"].get(op, now := current(op)) != now

    old = [op for op in KERNELS if any(changed(op, part) for part in parts)]
    since = f"; changed since they were timed: {', '.join(old)}" if old else ""
    return f"**{ledger['gpu']}** ({'; '.join(ran)}){since}\n"


def _times(ledger: Ledger) -> list[str]:
    """Return tables of tasks down and contestants across."""
    rows, tables = entries(ledger, "rows"), []
    for head, found, measure in (
        ("attention: TFLOP/s, and how much of a product's", entries(ledger, "attention"), "tflops"),
        ("GB/s, and how much of a copy's", [entry for entry in rows if "moved" in entry], "gbs"),
        ("TFLOP/s, and how much of a product's", [entry for entry in rows if "flops" in entry], "tflops"),
    ):
        each = {task_of(entry): timed(entry) for entry in found if timed(entry)}
        names = sorted(dict.fromkeys(name for cells in each.values() for name in cells), key=lambda name: name in RUNGS)
        said = [[task, *(_rate(cells.get(name, {}), measure) for name in names)] for task, cells in each.items()]
        tables.append(_table(head, names, said))
    return tables


def _rate(found: dict[str, Any], measure: str) -> str:
    return f"{number(found[measure])} ({found['share']:.0%})" if measure in found else "–"


def _steps(ledger: Ledger) -> str:
    """Return a table of training steps."""
    rows, step = [], ""
    for entry in entries(ledger, "swap"):
        sentences, length = entry["size"]["sentences"], entry["size"]["length"]
        tokens = f"{sentences * length:,}"
        step = f"a training step of `base`, {tokens} + {tokens} tokens, {length} a sentence"
        for found in timed(entry).values():
            part = found.get("estimated_from")
            mark = f", estimated from {part['sentences']} of {sentences} sentences" if part else ""
            rows.append([entry["what"] + mark, number(found["ms"]), number(found["hours"])])
    return _table(step, ["ms", "hours for the paper's 100,000"], rows)


def _table(head: str, names: list[str], rows: list[list[str]]) -> str:
    lines = [[head, *names], ["---"] * (1 + len(names)), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) if rows else ""


# --- Targets --------------------------------------------------------------------------------------------------

GPU = "H200"
"""The targets count on a GPU with this in its name; on others they are shown for scale."""

LONG = (4096, 16_384)
TIMES, COPIED = "times as fast", "% of a copy"

Target = tuple[str, list[float], str, float]
"""A quantity, the values that were measured of it (NaN for one that was not), its unit, and the least that is asked.

Of costs, "%", it is the most.
"""


def targets(ledger: Ledger) -> list[Target]:
    """Return what the kernels are to reach."""
    attended = {
        (entry["what"], *(entry["size"][name] for name in ("kind", "D", "Tq"))): entry["contestants"]
        for entry in entries(ledger, "attention")
        if entry["size"]["Tq"] == entry["size"]["Tk"]
    }
    steps = {e["what"]: each.get("ms", math.nan) for e in entries(ledger, "swap") for each in e["contestants"].values()}
    step, compiled = (steps.get(what, math.nan) for what in ("+ CUDA graph", "PyTorch, torch.compile"))

    def found(what: str, kind: str, D: int, T: int, measure: str = "tflops", who: str = OURS) -> float:
        return attended.get((what, kind, D, T), {}).get(who, {}).get(measure, math.nan)

    def tflops(kind: str, D: int, *lengths: int) -> list[float]:
        return [found(FORWARD, kind, D, T) for T in lengths]

    def faster_than(peer: str) -> list[float]:
        tasks = [(BOTH, kind, D, T, "ms") for kind in ("full", "causal") for D in (64, 128) for T in LONG]
        return [found(*task, peer) / found(*task) for task in tasks]

    def share(op: str, what: str, longer: int = 0, longest: float = math.inf) -> list[float]:
        """Return percentages of a copy's GB/s, for rows of all lengths or of some."""
        return [
            100 * entry["contestants"][OURS].get("share", math.nan)
            for entry in entries(ledger, "rows")
            if (entry["op"], entry["what"]) == (op, what) and longer < entry["size"].get("columns", 1) <= longest
        ]

    # How much longer each pair that attends takes than where nothing is dropped.
    cost = [100 * (found(way, "full", 128, 4096) / found(way, "dropout", 128, 4096) - 1) for way in (FORWARD, BOTH)]
    return [
        ("attention forward, D 128, full, 4k–16k", tflops("full", 128, *LONG), "TFLOP/s", 520),
        ("attention forward, D 128, causal, 16k", tflops("causal", 128, LONG[-1]), "TFLOP/s", 460),
        ("attention forward, D 64, full, 4k–16k", tflops("full", 64, *LONG), "TFLOP/s", 420),
        ("attention forward, D 64, causal, 16k", tflops("causal", 64, LONG[-1]), "TFLOP/s", 375),
        ("attention, both ways, against FlashAttention-2", faster_than("FlashAttention-2"), TIMES, 1.15),
        ("attention, both ways, against cuDNN", faster_than("cuDNN"), TIMES, 0.7),
        ("dropout costs", cost, "%", 25),
        ("softmax, up to 64k columns", share("softmax", FORWARD, longest=65_536), COPIED, 92),
        ("softmax, beyond 64k columns", share("softmax", FORWARD, longer=65_536), COPIED, 62),
        ("layernorm forward", share("layernorm", FORWARD), COPIED, 92),
        ("add_layernorm forward", share("add_layernorm", FORWARD), COPIED, 92),
        ("layernorm backward", share("layernorm", BACKWARD), COPIED, 80),
        ("add_layernorm backward", share("add_layernorm", BACKWARD), COPIED, 80),
        ("cross_entropy forward + backward", share("cross_entropy", BOTH), COPIED, 85),
        ("Adam", share("adam", "step"), COPIED, 92),
        ("dropout", share("dropout", FORWARD), COPIED, 92),
        ("base training step, against torch.compile with SDPA", [compiled / step], TIMES, 1.0),
    ]


def targets_met(ledger: Ledger) -> list[str]:
    """Return a line for each target that was measured, with the worst of its values; on other GPUs for scale."""
    lines = []
    for what, values, unit, bound in targets(ledger):
        if values and not any(map(math.isnan, values)):
            costs = unit == "%"
            worst = max(values) if costs else min(values)
            verdict = "met" if (worst <= bound if costs else worst >= bound) else "not met"
            whose, verdict = ("goal", verdict) if GPU in ledger["gpu"] else (f"an {GPU}'s goal", "for scale")
            limit = "at most" if costs else "at least"
            lines.append(f"{what}: {worst:,.3g} {unit} ({whose}: {limit} {bound:g}, {verdict})")
    return lines
