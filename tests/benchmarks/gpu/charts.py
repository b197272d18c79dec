"""The pictures of a ledger, drawn from its file alone."""

from pathlib import Path

from matplotlib.axes import Axes

from kernels.proof.ledger import BACKWARD, BOTH, FORWARD, OURS, Entry, Ledger, entries, number, read, size_of, timed
from minitransformer.plots.page import GREY, INK, PALE, Page

COLOURS = {
    OURS: "#d6604d", "online": "#f4a582", "sweeps": "#f4a582", "unfused": "#f0c8b4", "naive": GREY, "NumPy": GREY,
    "minimal": "#f4a582",
    "FlashAttention-2": "#4393c3", "cuDNN": "#2166ac", "memory-efficient": "#92c5de", "math": "#8073ac",
    "FlexAttention": "#4dac26",
    "PyTorch": "#4393c3", "PyTorch, fused": "#92c5de", "torch.compile": "#2166ac", "Liger": "#8073ac",
}  # fmt: skip


def draw(path: Path) -> list[Path]:
    """Draws, beside the file, a picture for each section in which something has been timed."""
    ledger = read(path)
    pictures = {"attention": _attention, "rows": _rows, "swap": _swap}
    drawn = [section for section in pictures if any(map(timed, entries(ledger, section)))]
    for section in drawn:
        pictures[section](ledger).save(path.with_name(f"{path.stem}-{section}.png"))
    return [path.with_name(f"{path.stem}-{section}.png") for section in drawn]


def _attention(ledger: Ledger) -> Page:
    """TFLOP/s, and memory, over the length of the sentences; a row for each width of the heads."""
    found = [entry for entry in entries(ledger, "attention") if entry["size"]["kind"] in ("full", "causal")]
    widths = sorted({entry["size"]["D"] for entry in found})
    page = Page(10.0, 1.0 + 2.8 * len(widths), layout="constrained")
    panels = page.figure.subplots(len(widths), 3, squeeze=False, sharex=True)
    for width, (forward, both, memory) in zip(widths, panels, strict=True):
        chosen = [entry for entry in found if entry["size"]["D"] == width]
        for panel, what, measure in (forward, FORWARD, "tflops"), (both, BOTH, "tflops"), (memory, BOTH, "peak_mb"):
            for kind, style in (("full", "o-"), ("causal", "o--")):
                shown = [entry for entry in chosen if (entry["what"], entry["size"]["kind"]) == (what, kind)]
                _lines(panel, shown, "Tq", measure, style)
            panel.set_title(f"{what}, D = {width}", loc="left", fontsize=9)
            panel.set_xscale("log", base=2)
            panel.set_yscale("linear" if measure == "tflops" else "log")
            _finish(panel, "TFLOP/s" if measure == "tflops" else "peak memory, MB")
        memory.set_visible(bool(memory.lines))  # in host memory nobody counts
    for panel in panels[-1]:
        lengths = sorted({entry["size"]["Tq"] for entry in found})
        panel.set_xticks(lengths, [f"{length:,}" for length in lengths], fontsize=7)
        panel.set_xlabel("T", fontsize=8)
    _legend(page, found)
    matmul = ledger["sections"]["attention"]["ceilings"]["matmul_tflops"]
    _title(page, ledger, f"attention: solid in full, dashed causal; a large product of matrices: {matmul:,.3g} TFLOP/s")
    return page


def _rows(ledger: Ledger) -> Page:
    """Shares of what a copy moves: softmax over the length of its rows, and each of the others."""
    found = entries(ledger, "rows")
    softmax = [entry for entry in found if entry["op"] == "softmax"]
    others = [entry for entry in found if entry["op"] != "softmax"]
    page = Page(10.0, 1.4 + max(0.24 * len(others), 5.0), layout="constrained")
    grid = page.figure.add_gridspec(2, 2, width_ratios=[1, 1.5])
    for row, what in enumerate((FORWARD, BACKWARD)):
        panel = page.figure.add_subplot(grid[row, 0])
        _lines(panel, [entry for entry in softmax if entry["what"] == what], "columns", "share", "o-")
        panel.set_title(f"softmax, {what}: over the columns of a row", loc="left", fontsize=9)
        panel.set_xscale("log", base=2)
        _finish(panel, "of a copy's GB/s")
    panel = page.figure.add_subplot(grid[:, 1])
    for place, entry in enumerate(others):
        for name, contestant in entry["contestants"].items():
            if "share" in contestant:
                panel.plot(contestant["share"], place, "o", color=COLOURS[name], markersize=6 if name == OURS else 4)
    names = [f"{entry['op']}, {entry['what']}\n{size_of(entry)}" for entry in others]
    panel.set_yticks(range(len(others)), names, fontsize=7)
    panel.invert_yaxis()
    panel.grid(axis="y", color=PALE, linewidth=0.8)
    panel.set_title("of a copy's GB/s (with C: of a product's TFLOP/s)", loc="left", fontsize=9)
    _finish(panel, "")
    _legend(page, found)
    copy = ledger["sections"]["rows"]["ceilings"]["copy_gbs"]
    _title(page, ledger, f"what memory allows; a large copy, read and written: {copy:,.4g} GB/s")
    return page


def _swap(ledger: Ledger) -> Page:
    """A step's milliseconds, and the hours of the paper's 100,000."""
    found = [(entry["what"], name, each) for entry in entries(ledger, "swap") for name, each in timed(entry).items()]
    page = Page(10.0, 1.2 + 0.36 * len(found), layout="constrained")
    axes = page.figure.subplots()
    times = [contestant["ms"] for _, name, contestant in found if name != "NumPy"]
    longest = 1.1 * max(times or [1.0])  # NumPy's bar is cut
    for place, (_, name, contestant) in enumerate(found):
        width = min(contestant["ms"], longest)
        estimated = ", estimated from a part of the batch" if "estimated_from" in contestant else ""
        cut = "  »" if contestant["ms"] > width else ""
        text = f"{cut} {number(contestant['ms'])} ms; 100,000 steps in {number(contestant['hours'])} hours{estimated}"
        axes.barh(place, width, 0.66, color=COLOURS[name])
        axes.text(width, place, text, va="center", fontsize=8, color=INK)
    axes.set_xlim(0, 2.2 * longest)
    axes.set_yticks(range(len(found)), [what for what, _, _ in found], fontsize=8)
    axes.set_xlabel("milliseconds a step", fontsize=8)
    axes.invert_yaxis()
    _finish(axes, "")
    size = entries(ledger, "swap")[0]["size"]
    tokens = size["sentences"] * size["length"]
    _title(page, ledger, f"a training step of base, {tokens:,} + {tokens:,} tokens in sentences of {size['length']}")
    return page


def _lines(panel: Axes, found: list[Entry], over: str, measure: str, style: str) -> None:
    """A line for each contestant."""
    for name in {name: None for entry in found for name in entry["contestants"]}:
        points = sorted(
            (entry["size"][over], entry["contestants"][name][measure])
            for entry in found
            if entry["contestants"].get(name, {}).get(measure) is not None
        )
        if points:
            line, front = {"color": COLOURS[name], "markersize": 3, "linewidth": 1.2}, 3 if name == OURS else 2
            panel.plot(*zip(*points, strict=True), style, zorder=front, **line)


def _finish(panel: Axes, ylabel: str) -> None:
    panel.set_ylabel(ylabel, fontsize=8)
    panel.tick_params(which="both", labelsize=7)
    panel.spines[["top", "right"]].set_visible(False)
    if panel.get_yscale() == "linear" and ylabel:
        panel.set_ylim(bottom=0)


def _legend(page: Page, found: list[Entry]) -> None:
    """The colours of those who have a time."""
    names = {name: None for entry in found for name in timed(entry)}
    marks = [page.figure.axes[0].plot([], [], "o-", color=COLOURS[name], markersize=4)[0] for name in names]
    page.figure.legend(marks, list(names), loc="outside lower center", ncols=len(names), fontsize=8, frameon=False)


def _title(page: Page, ledger: Ledger, text: str) -> None:
    rehearsed = " (a rehearsal)" if ledger["smoke"] else ""
    page.figure.suptitle(f"{ledger['gpu']}{rehearsed}; {text}", fontsize=10, x=0.01, ha="left")
