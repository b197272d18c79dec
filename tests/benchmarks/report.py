"""The tables of `README.md` and the races' pictures, from `results/*.json`: `python tests/benchmarks/report.py`."""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import results
from matplotlib.axes import Axes
from race import Ratio
from steps import SHAPES, STEPS, TRICKS
from workloads import SHAPES as SHAPES_RACED
from workloads import TRANSLATION_SHAPE

from minitransformer import costs
from minitransformer.models import TransformerConfig
from minitransformer.plots.page import GREY, INK, Page

README, STEPS_PAGE, PROCESSES_PAGE = (Path(__file__).parent / f"{name}.md" for name in ("README", "STEPS", "PROCESSES"))
LEDGER = Path(__file__).parents[2] / "kernels" / "results" / "nvidia-h200.json"
BEGIN, END = "<!-- measured: made by tests/benchmarks/report.py -->\n", "<!-- end of measured -->\n"
PEER_COLOURS = ("#92c5de", "#4393c3", "#2166ac", "#8073ac")
OURS = "#d6604d"

Race = dict[str, Any]


def readme_section() -> str:
    """Everything between README's two marks."""
    parts = [_training(), _memory(), _translation(), _engine(), _continuation(), _tokenization(), _shared(), _machine()]
    return "\n".join(parts)


def sections() -> list[tuple[Path, str]]:
    """The pages, and for each what stands between its two marks."""
    return [(README, readme_section()), (STEPS_PAGE, steps_section()), (PROCESSES_PAGE, processes_section())]


def steps_section() -> str:
    """The tables of `STEPS.md`: what was expected of each step, what happened, and what each op's trick saves."""
    races = [race for race in _races("steps") if "shape" in race]
    rows = []
    for step in STEPS:
        measured = [Ratio.of(_seconds(race, step.name), _seconds(race, "ours")) for race in races]
        predicted = " · ".join(f"{ratio:.2f}" for ratio in step.predicted)
        rows.append([step.name, step.what, predicted, " · ".join(f"{r.median:.2f}" for r in measured), step.why])
    heads = ["step", "what it is", "time without it ÷ with it, predicted (S · M)", "measured", "why it was expected"]
    times, memory = [f"time, {shape}" for shape in SHAPES], f"peak memory, {' · '.join(SHAPES)}"
    trick_heads = ["op", "where it is not the formula as printed", *times, memory, "stays for"]
    trick_rows = [[trick.op, trick.what, *_as_printed(trick.op), trick.kept] for trick in TRICKS]
    translations = [
        [
            f"{race['sentences']} sentence{'s' * (race['sentences'] > 1)}{', a core busy' * race['busy']}",
            _ms(race),
            f"{1000 * _median(race, 'BLAS threads'):,.1f}",
        ]
        for race in _races("steps")
        if "sentences" in race
    ]
    decoding_heads = ["greedy translation", "Python threads, BLAS with one each, ms", "BLAS's own two threads, ms"]
    tables = _table(heads, rows), _table(trick_heads, trick_rows), _table(decoding_heads, translations), _profiles()
    return "\n".join(tables)


def _profiles() -> str:
    """Return the table of a translation's time: the shares of ops, those of under 2 % together, and of Python."""
    races = [race for race in _races("engine") if race["profile"]]
    names = dict.fromkeys(name for race in races for name, share in race["profile"].items() if share >= 0.02)
    rows = [[name, *(f"{100 * race['profile'][name]:.0f} %" for race in races)] for name in names]
    rows.append(
        ["other ops", *(f"{100 * sum(s for n, s in r['profile'].items() if n not in names):.0f} %" for r in races)]
    )
    rows.append(
        ["Python between them, and the cache", *(f"{100 * (1 - sum(r['profile'].values())):.0f} %" for r in races)]
    )
    heads = [f"{race['model']}, {'greedy' if race['beams'] == 1 else 'beam 4'}" for race in races]
    return _table(["one thread translates 1,000 sentences", *heads], rows)


def _as_printed(op: str) -> list[str]:
    """A step with an op as printed ÷ as it is: for each shape the median time and the middle half; then the memory."""
    cells, memory = [], []
    races = {race["shape"]: race for race in _races("tricks") if race["op"] == op}
    for race in map(races.get, SHAPES):
        if race is None:  # not measured yet
            cells.append("–")
            memory.append("–")
            continue
        ratios = np.divide(_seconds(race, "printed"), _seconds(race, "ours"))
        low, median, high = np.percentile(ratios, [25, 50, 75])
        cells.append(f"{median:.2f} ({low:.2f} to {high:.2f})")
        memory.append(f"{race['contestants']['printed']['memory_mb'] / _memory_of(race):.2f}")
    return [*cells, " · ".join(memory)]


def main() -> None:
    """Draws the pictures and writes the sections of the pages."""
    _draw_training()
    _draw_growth()
    for page, section in sections():
        before, rest = page.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        page.write_text(before + BEGIN + section + END + after, encoding="utf-8")


def _training() -> str:
    rows = []
    for race in _races("training"):
        if race["dropout"] == 0.1:
            eager, best_name = _ratio(race, "PyTorch eager"), _best_peer(race)
            best = f"{_ratio(race, best_name)} {best_name.removeprefix('PyTorch ')}"
            rows.append([_shape(race), _ms(race), f"{race['tokens'] / _median(race):,.0f}", str(eager), best])
    for race in _races("ragged"):
        name = f"real batches of Multi30k, shape {race['shape']}"
        milliseconds = f"{_ms(race)} for {race['sentences']:,} sentences"
        rate = f"{race['tokens'] / _median(race):,.0f}"
        best = f"{_ratio(race, _best_peer(race))} {_best_peer(race).removeprefix('PyTorch ')}"
        rows.append([name, milliseconds, rate, str(_ratio(race, "PyTorch eager")), best])
    peers = ["PyTorch eager ÷ NumPy", "best of PyTorch ÷ NumPy"]
    return _table(["a training step, dropout 0.1", "NumPy, ms", "tokens/s", *peers], rows)


def _memory() -> str:
    rows = []
    for race in _races("training"):
        if race["dropout"] == 0.1:
            row = [race["shape"]]
            for basis in ("memory_mb", "memory_rehearsed_mb"):
                ours, theirs = (race["contestants"][name][basis] for name in ("ours", "PyTorch eager"))
                row += [f"{ours:,.0f} MB", f"{theirs:,.0f} MB", f"{ours / theirs:.2f}"]
            rows.append(row)
    heads = ["NumPy", "PyTorch eager", "÷", "beyond a first tiny step: NumPy", "PyTorch eager", "÷"]
    return _table(["peak memory of training, beyond the imports", *heads], rows)


def _translation() -> str:
    rows = []
    for race in _races("translation"):
        search = ("greedy" if race["beams"] == 1 else f"beam {race['beams']}") + ", a core busy" * race["busy"]
        sentences = "1 sentence" if race["sentences"] == 1 else f"{race['sentences']} sentences"
        ratios = []
        for peer in ("PyTorch with a cache", "Hugging Face"):
            best = min((peer, f"{peer}, 1 thread"), key=lambda name: _median(race, name))
            ratios.append(f"{_ratio(race, best)}{', 1 thread' * best.endswith('1 thread')}")
        rows.append([f"{sentences}, {search}", _ms(race), *ratios])
    peers = ["PyTorch with a cache ÷ NumPy", "Hugging Face `generate` ÷ NumPy"]
    heads = ["translation, 16 → 20 tokens", "NumPy, ms", *peers]
    return _table(heads, rows)


def _engine() -> str:
    rows = []
    for race in _races("engine"):
        search = "greedy" if race["beams"] == 1 else f"beam {race['beams']}"
        count = "1 sentence" if race["sentences"] == 1 else f"{race['sentences']:,} sentences"
        names = [name for name in race["contestants"] if name != "ours"]
        best = min(names, key=lambda name: _median(race, name))
        rate = f"{race['sentences'] / _median(race):,.0f}"
        row = [f"{race['model']}, {count}, {search}", _ms(race), rate, str(_ratio(race, best)), best.split(", ")[1]]
        rows.append(row)
    heads = [
        "translation of text",
        "NumPy, ms",
        "sentences a second",
        "CTranslate2, float32 ÷ NumPy",
        "its workers × threads",
    ]
    return _table(heads, rows)


def _continuation() -> str:
    rows = []
    for race in _races("continuation"):
        new, best = race["new"], _best_peer(race)
        what = f"a token, {race['prompt']} → {new} tokens" if new > 1 else f"a prompt of {race['prompt']}"
        ratio = f"{_ratio(race, best)}{', 1 thread' * best.endswith('1 thread')}"
        rows.append([what, f"{1000 * _median(race) / new:,.1f}", ratio])
    return _table(["GPT-2, 124 M parameters, one text", "NumPy, ms", "Hugging Face `generate` ÷ NumPy"], rows)


def _tokenization() -> str:
    rows = []
    for race in _races("tokenization"):
        seconds = _median(race)
        ours = f"{race['megabytes'] / seconds:.0f} MB/s" if race["encode"] else f"{seconds:.1f} s"
        what = f"encoding, words {race['encode']}" if race["encode"] else "learning 8,000 tokens"
        rows.append([what, ours, *(str(_ratio(race, name)) for name in ("tokenizers", "subword-nmt"))])
    heads = ["byte pairs of Multi30k", "minitransformer", "`tokenizers` (Rust) ÷ ours", "subword-nmt ÷ ours"]
    return _table(heads, rows)


ALONE = "1 process, no shards"


def _shared() -> str:
    """A training step shared by two processes, against the same machine's threads."""
    rows = []
    for race in _varying("who"):
        others = [name for name in race["contestants"] if name != ALONE]
        faster = [Ratio.of(_seconds(race, ALONE), _seconds(race, name)) for name in others]
        rows.append([_shape(race), f"{1000 * _median(race, ALONE):,.1f}", *map(str, faster)])
    heads = [f"{name}: speed" for name in _varying("who")[0]["contestants"] if name != ALONE]
    return _table(["a training step, dropout 0.1, two threads in all", f"{ALONE}, ms", *heads], rows)


def _varying(what: str) -> list[Race]:
    return [race for race in _races("processes") if race["varies"] == what]


def processes_section() -> str:
    """Return the tables of what processes send each other, measured and modelled; of slow links; of GPUs on paper."""
    points = _varying("processes")
    talks = {(race["shape"], race["processes"]): race for race in points if not race["computes"]}
    latency, per_byte = _fitted_talk(talks)
    rows = []
    for (shape, count), race in talks.items():
        sent, predicted = _bytes_sent(race), latency * (count > 1) * count + per_byte * count * _bytes_sent(race)
        rows.append(
            [
                shape,
                f"{count}",
                f"{sent / 1e6:,.1f} MB",
                _ms(race),
                "fitted" if count == 2 else f"{1000 * predicted:,.1f}",
            ]
        )
    talk = _table(["shape", "processes", "each sends", "exchange and gather, ms", "predicted from two, ms"], rows)
    steps = [race for race in points if race["computes"]]
    alone, rows = _median(steps[0]), []
    for race in steps:
        count = race["processes"]
        predicted = alone / min(count, CORES) + _median(talks[race["shape"], count])
        rows.append([race["shape"], f"{count}", _ms(race), f"{1000 * predicted:,.1f}"])
    step = _table(["shape", "processes", "a step with 8 shards, ms", "one's time ÷ cores + exchange, ms"], rows)
    rows = []
    for race in _varying("link"):
        after, beside = "after the backward", "beside it"
        saved = Ratio.of(_seconds(race, after), _seconds(race, beside))
        share = 4 * TransformerConfig(**SHAPES_RACED[race["shape"]], max_length=128).num_parameters / 1e6
        slow = 1000 * share / race["megabytes_per_second"]
        times = [f"{1000 * _median(race, name):,.0f}" for name in (after, beside)]
        rows.append([f"{race['shards']}", f"{race['megabytes_per_second']:g} MB/s: {slow:,.0f} ms", *times, str(saved)])
    heads = [
        "shards of a process",
        "sending the gradient",
        "after the backward, ms",
        "from the encoder on, ms",
        "speed",
    ]
    return "\n".join([talk, step, _table(heads, rows), _on_paper()])


CORES = 2


def _bytes_sent(race: Race) -> float:
    """Return the bytes that each of n processes sends in a step: (n − 1)/n of the parameters, twice, in float32."""
    return 2 * (race["processes"] - 1) / race["processes"] * 4 * race["parameters"]


def _fitted_talk(talks: dict[tuple[str, int], Race]) -> tuple[float, float]:
    """Seconds for each process, and for each byte that any sends: one machine's memory carries them all."""
    pairs = [race for (_, count), race in talks.items() if count == 2]
    rows = [[race["processes"], race["processes"] * _bytes_sent(race)] for race in pairs]
    latency, per_byte = np.linalg.solve(rows, [_median(race) for race in pairs])
    return float(latency), float(per_byte)


LINK, LINK_SHARE, TOKENS, PAPER_VOCABULARY = 50e9, 0.8, 25_088, 37_000
"""400 Gb/s in bytes a second, the share of it that a collective is assumed to reach, and the paper's batch."""


def _on_paper() -> str:
    """The paper's models on H200s that are joined by 400 Gb/s each."""
    ledger = json.loads(LEDGER.read_text(encoding="utf-8"))
    (step,) = (entry for entry in ledger["sections"]["swap"]["entries"] if entry["what"] == "+ CUDA graph")
    measured = 1e-3 * step["contestants"]["ours"]["ms"]
    sizes = {name: getattr(TransformerConfig, name)(PAPER_VOCABULARY) for name in ("base", "big")}
    work = {name: costs.flops_per_token(config, step["size"]["length"]).training for name, config in sizes.items()}
    rows = []
    for name, config in sizes.items():
        alone = measured * work[name] / work["base"]
        for what, share in (("a batch for each GPU", 1.0), ("one batch, shared out", None)):
            for count in (8, 64):
                computing = alone * (share or 1 / count)
                sending = 2 * (count - 1) / count * 4 * config.num_parameters / (LINK * LINK_SHARE)
                speed = (count if share else 1) * alone / (computing + sending)
                times = [f"{1000 * seconds:,.1f}" for seconds in (computing, sending)]
                rows.append([name, what, f"{count}", *times, f"{speed:,.1f}", f"{100 * speed / count:,.0f} %"])
    heads = ["model", "25,000 tokens on each side are", "GPUs", "computing, ms", "sending, ms", "speed", "of n times"]
    return _table(heads, rows)


def _machine() -> str:
    report = results.read("training")
    machine = report["machine"]
    rounds, translated, continued = (
        len(_seconds(_races(section)[0], "ours")) for section in ("training", "translation", "continuation")
    )
    real, large = (
        ", ".join(f"{_memory_of(race):,.0f}" for race in _races("memory") if race["shape"] == shape)
        for shape in (TRANSLATION_SHAPE, "B")
    )
    alone, all_of_it = (1000 * statistics.median(race["contestants"]["ours"]["seconds"]) for race in _races("imports"))
    return (
        f"Times: ratios above 1 are in NumPy's favour, median of {rounds} rounds, of {translated} for "
        f"translations and {continued} for continuations (least to most). "
        f"{machine['processor']}, {machine['cores']} cores, {report['threads']} threads each; "
        f"Python {machine['python']}, NumPy {machine['numpy']} ({machine['blas']}), PyTorch {machine['torch']}, "
        f"Transformers {machine['transformers']}. *Memory kept* lends PyTorch our setting of the allocator; "
        "in translation and continuation all have it. *A core busy* is beside a process that does nothing but keep one "
        "of the cores busy. PyTorch and Hugging Face decode with 1 and with 2 threads, and the better is shown. "
        f"After 6, 102 and 1,002 steps training has taken {real} MB on real batches, {large} MB with shape B. "
        f"Importing `minitransformer` takes {alone:.1f} ms beyond NumPy's own, "
        f"with all that trains and translates {all_of_it:.0f} ms.\n"
    )


def _draw_training() -> None:
    """One group of bars for each shape: how many times as long as NumPy each peer takes."""
    races = [race for race in _races("training") if race["dropout"] == 0.1]
    peers = [name for name in races[0]["contestants"] if name != "ours"]
    page = Page(8.0, 3.4, layout="constrained")
    axes = page.figure.subplots()
    places = np.arange(len(races))
    for index, (peer, colour) in enumerate(zip(peers, PEER_COLOURS, strict=True)):
        ratios = [_ratio(race, peer) for race in races]
        medians = np.array([ratio.median for ratio in ratios])
        reach = [[r.median - r.least for r in ratios], [r.most - r.median for r in ratios]]
        bars = axes.bar(
            places + 0.2 * (index - 1.5), medians, 0.18, color=colour, label=peer, yerr=reach, ecolor=GREY, capsize=2
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=2, color=INK)
    axes.axhline(1.0, color=OURS, linewidth=1.5)
    axes.text(len(races) - 0.55, 1.0, "NumPy", color=OURS, fontsize=8, va="bottom")
    axes.set_xticks(places, [_shape(race).replace(", ", "\n", 1) for race in races], fontsize=8)
    axes.set_xlim(-0.5, len(races) - 0.35)
    axes.set_ylim(0, 1.3 * max(_ratio(race, peer).most for race in races for peer in peers))
    axes.set_ylabel("time ÷ NumPy's", fontsize=9)
    axes.set_title("A training step, dropout 0.1: how many times as long as NumPy", loc="left", fontsize=10)
    axes.legend(fontsize=8, ncols=2, loc="upper left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    page.save(results.FOLDER / "training.png")


GROWTH_TITLES = {
    "length": "length T, one sentence",
    "d_model": "width d_model, d_ff = 4 d_model",
    "num_layers": "layers",
    "sentences": "sentences in a batch",
    "vocab_size": "vocabulary",
}


def _draw_growth() -> None:
    """Time and memory against each size with the slopes of measurement and arithmetic; attention with a window."""
    page = Page(10.0, 6.2, layout="constrained")
    panels = page.figure.subplots(2, 3).flat
    for panel, (varies, title) in zip(panels, GROWTH_TITLES.items(), strict=False):
        points = [race for race in _races("growth") if race["varies"] == varies]
        sizes = [point[varies] for point in points]
        flops, memory = zip(*map(_counted, points), strict=True)
        for what, measured, counted, colour in (
            ("time", [_median(point) for point in points], flops, OURS),
            ("memory", [_memory_of(point) for point in points], memory, PEER_COLOURS[2]),
        ):
            label = f"{what}: exponent {_slope(sizes, measured):.2f}, arithmetic {_slope(sizes, counted):.2f}"
            panel.loglog(sizes, np.array(measured) / measured[0], "o-", markersize=3, color=colour, label=label)
            panel.loglog(sizes, np.array(counted) / counted[0], ":", color=colour, linewidth=1)
        _finish(panel, title, sizes)
    panel = page.figure.axes[5]
    points = [race for race in _races("growth") if race["varies"] == "attention"]
    for window, colour in ((None, OURS), (32, PEER_COLOURS[2])):
        chosen = [point for point in points if point["window"] == window]
        sizes, seconds = [point["length"] for point in chosen], [_median(point) for point in chosen]
        name = "full" if window is None else f"window {window}"
        label = f"{name}: exponent {_slope(sizes[-4:], seconds[-4:]):.2f} from 512"
        panel.loglog(sizes, 1000 * np.array(seconds), "o-", markersize=3, color=colour, label=label)
    _finish(panel, "attention alone, length T: milliseconds", sizes)
    title = "A training step, relative to the smallest size; dotted: what counting operations and numbers gives"
    page.figure.suptitle(title, fontsize=10)
    page.save(results.FOLDER / "growth.png")


def _finish(panel: Axes, title: str, sizes: list[int]) -> None:
    panel.set_title(title, loc="left", fontsize=9)
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=7)
    panel.minorticks_off()
    panel.tick_params(axis="y", labelsize=7)
    panel.legend(fontsize=7, loc="upper left", frameon=False)
    panel.spines[["top", "right"]].set_visible(False)


def _counted(point: Race) -> tuple[float, float]:
    """The floating-point operations of a step and the bytes it holds, by `minitransformer.costs`."""
    names = ("vocab_size", "d_model", "num_heads", "d_ff", "num_layers")
    config = TransformerConfig(**{name: point[name] for name in names}, max_length=point["length"])
    tokens = point["sentences"] * point["length"]
    parameters = sum(costs.parameter_groups(config).values())
    flops = 2 * tokens * costs.flops_per_token(config, point["length"]).training
    return flops, costs.training_bytes(config, parameters, tokens, point["length"], threads=1)


def _slope(sizes: Iterable[float], values: Iterable[float]) -> float:
    """The exponent p of the fit `value = c · size^p`: the slope of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(list(sizes)), np.log(list(values)), 1)[0])


def _races(name: str) -> list[Race]:
    return results.read(name)["races"]


def _seconds(race: Race, contestant: str) -> list[float]:
    return race["contestants"][contestant]["seconds"]


def _median(race: Race, contestant: str = "ours") -> float:
    return statistics.median(_seconds(race, contestant))


def _memory_of(race: Race) -> float:
    return race["contestants"]["ours"]["memory_mb"]


def _ms(race: Race) -> str:
    return f"{1000 * _median(race):,.1f}"


def _ratio(race: Race, peer: str) -> Ratio:
    return Ratio.of(_seconds(race, peer), _seconds(race, "ours"))


def _best_peer(race: Race) -> str:
    return min((name for name in race["contestants"] if name != "ours"), key=lambda name: _median(race, name))


def _shape(race: Race) -> str:
    shapes = {
        "S": "S: d_model 128, 2+2 layers, 32 × 32 tokens",
        "M": "M: d_model 256, 3+3 layers, 32 × 32 tokens",
        "B": "B: the paper's base, 8 × 64 tokens",
    }
    return shapes[race["shape"]]


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    main()
