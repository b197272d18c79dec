"""The pictures of a ledger, drawn from its file alone."""

import math
from pathlib import Path

from matplotlib.axes import Axes

from kernels import speedup
from kernels.proof.ledger import BOTH, FORWARD, OURS, Entry, Ledger, entries, read, size_of, timed
from minitransformer.plots.page import GREY, Page


def draw(path: Path) -> list[Path]:
    """Draw, beside the file, a picture for each section in which something has been timed."""
    ledger, drawn = read(path), []
    for section, picture in {"attention": _attention, "rows": _rows, "swap": _swap}.items():
        if any(map(timed, entries(ledger, section))):
            drawn.append(path.with_name(f"{path.stem}-{section}.png"))
            page = picture(ledger)
            page.save(drawn[-1])
    return drawn


def _attention(ledger: Ledger) -> Page:
    """Return TFLOP/s, and memory, over the length of the sentences; a row for each width of the heads."""
    found = [entry for entry in entries(ledger, "attention") if entry["size"]["kind"] in ("full", "causal")]
    widths, colours = sorted({entry["size"]["D"] for entry in found}), _colours(found)
    page = Page(10.0, 1.0 + 2.8 * len(widths), layout="constrained")
    measures = (FORWARD, "tflops", "TFLOP/s"), (BOTH, "tflops", "TFLOP/s"), (BOTH, "peak_mb", "peak memory, MB")
    panels = page.figure.subplots(len(widths), len(measures), squeeze=False)
    for width, row in zip(widths, panels, strict=True):
        for panel, (what, measure, unit) in zip(row, measures, strict=True):
            for kind, style in {"full": "o-", "causal": "o--"}.items():
                about = what, kind, width
                shown = [e for e in found if (e["what"], e["size"]["kind"], e["size"]["D"]) == about]
                for name, colour in colours.items():
                    points = [(e["size"]["Tq"], timed(e).get(name, {}).get(measure)) for e in shown]
                    if points := sorted(point for point in points if point[1] is not None):
                        panel.plot(*zip(*points, strict=True), style, color=colour, markersize=3)
            panel.set(title=f"{what}, D = {width}", xlabel="T", ylabel=unit, ylim=(0, None))
            panel.set_xscale("log", base=2)
    matmul = ledger["sections"]["attention"]["ceilings"]["matmul_tflops"]
    said = f"attention: solid in full, dashed causal; a large product of matrices: {matmul:,.3g} TFLOP/s"
    return _finished(page, panels[0, 0], colours, f"{ledger['gpu']}; {said}")


def _rows(ledger: Ledger) -> Page:
    """Return shares of what a copy moves, a line for each task."""
    found = entries(ledger, "rows")
    colours, names = _colours(found), [f"{entry['op']}, {entry['what']}: {size_of(entry)}" for entry in found]
    page = Page(10.0, 1.4 + 0.22 * len(found), layout="constrained")
    panel = page.figure.subplots()
    for place, entry in enumerate(found):
        for name, contestant in timed(entry).items():
            panel.plot(contestant["share"], place, "o", color=colours[name], markersize=6 if name == OURS else 4)
    panel.set_yticks(range(len(found)), names, fontsize=7)
    panel.set(xlabel="of a copy's GB/s (with C: of a product's TFLOP/s)", ylim=(len(found) - 0.5, -0.5))
    panel.grid(axis="y")
    copy = ledger["sections"]["rows"]["ceilings"]["copy_gbs"]
    said = f"what memory allows; a large copy, read and written: {copy:,.4g} GB/s"
    return _finished(page, panel, colours, f"{ledger['gpu']}; {said}")


def _swap(ledger: Ledger) -> Page:
    """Return a step's milliseconds with one kernel more at a time, as `kernels.speedup` draws them; but NumPy's."""
    steps = [entry for entry in entries(ledger, "swap") if entry["what"] != "NumPy"]
    rows = {entry["what"]: found["ms"] for entry in steps for found in timed(entry).values()}
    size = "{sentences} pairs of sentences of {length} tokens".format(**steps[0]["size"])
    rows = {speedup.FIRST: math.nan} | rows
    page = speedup.draw(rows, f"{ledger['gpu']}: a training step of base, {size}")
    for bar, name in zip(page.figure.axes[0].patches, rows, strict=True):
        if name.startswith("PyTorch"):
            bar.set_color(GREY)
    return page


def _colours(found: list[Entry]) -> dict[str, str]:
    """Return a colour for each contestant that has a time."""
    names = dict.fromkeys(name for entry in found for name in timed(entry))
    return {name: f"C{number}" for number, name in enumerate(names)}


def _finished(page: Page, panel: Axes, colours: dict[str, str], title: str) -> Page:
    """Return the page with a title and a legend."""
    marks = [panel.plot([], [], "o-", color=colour)[0] for colour in colours.values()]
    page.figure.legend(marks, list(colours), loc="outside lower center", ncols=len(colours), fontsize=8)
    page.figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return page
