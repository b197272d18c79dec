"""The cost of a token in decoding, in time and memory, with full, grouped and linear attention.

Grouped heads: Ainslie et al. 2023; linear attention: Katharopoulos et al. 2020.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator

from minitransformer.costs import FLOAT_BYTES, flops_per_token, inference_bytes
from minitransformer.layers import Attention, Cache, LinearSelfAttention
from minitransformer.models import GPT, GPTConfig
from minitransformer.models.decoding import Decoding
from minitransformer.plots.page import BLUE, GREY, INK, ORANGE, VERMILION, Page
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.system.threads import Threads
from study.charts import finish, plain_logarithm
from study.experiment import Context, Findings
from study.markdown import listed, paragraph, picture, table
from study.measuring import crossing, crossing_text, in_rounds, over_rounds, rounds_text
from study.trials.trial import Trial

from ..predictions import Outcome, prediction_blocks, predictions_of
from ..task import Texts

NAME, TITLE, MINUTES, ALONE = "decoding", "Decoding: what a token costs at each length", 0.5, 0.5

FULL, GROUPED, LINEAR = "full", "grouped", "linear"
COLOURS = {FULL: BLUE, GROUPED: ORANGE, LINEAR: VERMILION}
PAIRS = {"linear": (FULL, LINEAR), "grouped": (FULL, GROUPED), "linear, grouped": (GROUPED, LINEAR)}
"""Pairs whose crossing is sought: the length from which on the second takes less time than the first."""

MIB = 2**20


@dataclass(frozen=True)
class Sizes:
    """The model's sizes, the lengths at which a token is timed, and how often.

    kv_heads  heads of keys and values with grouped attention
    steps     tokens timed at each length in a round, of which the fastest counts
    shown     the lengths in the table
    """

    d_model: int = 256
    num_heads: int = 8
    kv_heads: int = 2
    num_layers: int = 4
    vocab_size: int = 1000
    lengths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    shown: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096, 8192)
    rounds: int = 9
    steps: int = 16

    def config(self, kind: str) -> GPTConfig:
        """The model with this kind of attention."""
        full = GPTConfig(
            self.vocab_size,
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_ff=4 * self.d_model,
            num_layers=self.num_layers,
            max_length=2 * max(self.lengths),
            positions="rotary",
            dropout=0.0,
            attention_dropout=0.0,
        )
        return {
            FULL: full,
            GROUPED: replace(full, num_kv_heads=self.kv_heads),
            LINEAR: replace(full, attention="linear"),
        }[kind]


SIZES = Sizes()


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """Return no trials: the cost of a token does not depend on the weights."""
    return []


def find(context: Context[Texts], sizes: Sizes = SIZES) -> Findings:
    """Count operations and bytes of a token at each length, and time it with one BLAS thread."""
    keep_freed_memory()
    configs = {kind: sizes.config(kind) for kind in COLOURS}
    with Threads(1):
        models = {kind: GPT(config) for kind, config in configs.items()}
        rounds: dict[str, list[list[float]]] = {kind: [] for kind in models}
        for _ in range(sizes.rounds):
            for kind, model in models.items():
                rounds[kind].append([seconds(model, length, sizes.steps) for length in sizes.lengths])
    kinds = {
        kind: {
            "parameters": config.num_parameters,
            "operations": [flops_per_token(config, length).target for length in sizes.lengths],
            "moved": [moved_bytes(config, length) for length in sizes.lengths],
            "kept": [kept_bytes(config, length) for length in sizes.lengths],
            "rounds": rounds[kind],
            "best": np.min(rounds[kind], axis=0).tolist(),
        }
        for kind, config in configs.items()
    }
    return {
        "predictions": predictions_of(NAME),
        "sizes": asdict(sizes),
        "kinds": kinds,
        "equal": {
            "operations": equal(sizes, lambda config, length: flops_per_token(config, length).target),
            "bytes": equal(sizes, moved_bytes),
        },
        "crossings": {
            name: in_rounds(lambda *times: crossing(sizes.lengths, *times), *(rounds[kind] for kind in pair))
            for name, pair in PAIRS.items()
        },
        "ratios": {name: _ratios(kinds, *pair) for name, pair in PAIRS.items()},
        "growth": in_rounds(lambda times: times[-1] / times[sizes.lengths.index(sizes.shown[0])], rounds[LINEAR]),
    }


def equal(sizes: Sizes, cost: Callable[[GPTConfig, int], float]) -> int | None:
    """The least length at which a token of full attention has at least the cost of one of linear attention."""
    full, linear = sizes.config(FULL), sizes.config(LINEAR)
    return next((n for n in range(1, max(sizes.lengths) + 1) if cost(full, n) >= cost(linear, n)), None)


def _ratios(kinds: dict[str, Any], one: str, other: str) -> dict[str, Any]:
    """Return the ratios of the cost of `one` to that of `other` at the greatest length."""
    first, second = kinds[one], kinds[other]
    return {
        "moved": first["moved"][-1] / second["moved"][-1],
        "time": in_rounds(lambda a, b: a[-1] / b[-1], first["rounds"], second["rounds"]),
    }


def kept_bytes(config: GPTConfig, length: int) -> int:
    """The bytes that decoding keeps of `length` tokens: keys and values, or linear attention's state."""
    return inference_bytes(config, 0, length, beam=1)


def moved_bytes(config: GPTConfig, length: int) -> int:
    """The bytes that the next token moves, at least: every weight once, and the cache of the tokens before.

    Keys and values are read; linear attention's state is read and written.
    """
    passes = 2 if config.attention == "linear" else 1
    return FLOAT_BYTES * config.num_parameters + passes * kept_bytes(config, length)


def filled(model: GPT, length: int) -> Decoding:
    """The state of one text after `length` tokens, with random keys and values."""
    config, rng = model.config, np.random.default_rng(0)
    attention = config.decoder.block.attention
    heads, width = attention.kv_heads, attention.d_k

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    cache = Cache(model.ops, 1, 1)
    for name, layer in model.named_layers():
        if isinstance(layer, LinearSelfAttention):
            cache.rows[name] = np.abs(draw(1, heads, width, width)), np.abs(draw(1, heads, width))
        elif isinstance(layer, Attention):
            cache.extended(name, draw(1, heads, length, width), draw(1, heads, length, width))
    cache.position = length
    return Decoding(cache)


def seconds(model: GPT, length: int, steps: int) -> float:
    """The least time of a token after `length` others, of `steps` that follow each other.

    The first one is not timed: it may double the room of the cache.
    """
    state, ids = filled(model, length), np.ones((1, 1), np.int64)
    model.decode_step(ids, state)
    times = []
    for _ in range(steps):
        start = perf_counter()
        model.decode_step(ids, state)
        times.append(perf_counter() - start)
    return min(times)


def draw(findings: Findings, folder: Path) -> None:
    """Draw `decoding-cost.png`: the time of a token, and the memory of the cache, against the length."""
    lengths = findings["sizes"]["lengths"]
    page = Page(7.4, 3.4, layout="constrained")
    left, right = page.figure.subplots(1, 2)
    for kind, found in findings["kinds"].items():
        times = 1000 * np.array(found["rounds"])  # (rounds, lengths)
        left.fill_between(lengths, times.min(0), times.max(0), color=COLOURS[kind], alpha=0.25, lw=0)
        left.plot(lengths, times.min(0), color=COLOURS[kind], lw=1.6, label=kind)
        right.plot(lengths, [size / MIB for size in found["kept"]], color=COLOURS[kind], lw=1.6, label=kind)
    if found := findings["crossings"]["linear"]["value"]:
        left.axvline(found, color=GREY, lw=0.9, ls=":")
    for axes, label in ((left, "ms a token"), (right, "kept of the text, MiB")):
        axes.set(xscale="log", yscale="log")
        plain_logarithm(axes.xaxis)
        plain_logarithm(axes.yaxis)
        axes.xaxis.set_major_locator(FixedLocator(lengths[1::2]))
        finish(axes, "length, tokens", label)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    page.save(folder / f"{NAME}-cost.png")


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""
    sizes, crossings, ratios = findings["sizes"], findings["crossings"], findings["ratios"]
    same, found = findings["equal"], crossings["linear"]
    width = sizes["d_model"] // sizes["num_heads"]

    def times(measured: dict[str, Any]) -> Outcome:
        return Outcome(f"{rounds_text(measured, 3)} times", found=over_rounds(measured))

    return {
        "equal": Outcome(
            f"{same['operations']:,} by operations, {same['bytes']:,} by bytes, D = {width}",
            same["operations"] == same["bytes"] == width + 1,
        ),
        "crossing": Outcome(crossing_text(found, sizes["lengths"]), found=over_rounds(found)),
        "full against linear": times(ratios["linear"]["time"]),
        "full against grouped": times(ratios["grouped"]["time"]),
        "grouped against linear": times(ratios["linear, grouped"]["time"]),
        "flat": times(findings["growth"]),
    }


def report(findings: Findings) -> list[str]:
    """Report time and bytes of a token at each length, where the kinds cross, and the predictions."""
    sizes, kinds, crossings = findings["sizes"], findings["kinds"], findings["crossings"]
    lengths = sizes["lengths"]
    places = [lengths.index(length) for length in sizes["shown"]]
    columns = {"ms": ("best", 1e-3, ".2f"), "MiB kept": ("kept", MIB, ".3g"), "MiB moved": ("moved", MIB, ".3g")}
    rows = [
        [f"{name}, {kind}", *(f"{found[key][n] / unit:{digits}}" for n in places)]
        for name, (key, unit, digits) in columns.items()
        for kind, found in kinds.items()
    ]
    head = ["a token after", *(f"{length:,}" for length in sizes["shown"])]
    return [
        paragraph(f"""
            A GPT with {sizes["num_layers"]} layers of width {sizes["d_model"]} and {sizes["num_heads"]} heads writes
            one text; how a token is chosen does not matter. We time the next token after n others, and take the least
            of {sizes["steps"]} in each of {sizes["rounds"]} rounds. Below, brackets show the range over single rounds.
            They are not 95 % intervals, and another run of the command can leave them. Grouped: {sizes["kv_heads"]}
            heads of keys and values serve the {sizes["num_heads"]} of queries. *Kept*: the keys and values of the text
            so far, or linear attention's state. *Moved*: these and all weights, which every token reads once (a state
            is written too). A further token of the text needs {_a_token(findings, FULL):.3g} KiB with full attention,
            {_a_token(findings, GROUPED):.3g} KiB with grouped attention, and nothing with linear attention.
        """),
        table(head, rows),
        picture(f"{NAME}-cost", "Time for a token, and memory kept, against the length, for three kinds of attention"),
        paragraph("""
            A line is the least time of all rounds, and the shade above it reaches to the slowest round's. Dotted: the
            length from which linear attention is faster than full attention.
        """),
        paragraph(f"""
            From which length on does linear attention cost less than full attention? They cost the same at n =
            {findings["equal"]["operations"]} in operations and at n = {findings["equal"]["bytes"]} in bytes, and beyond
            it linear attention costs less. The state of a head has D · (D + 1) numbers, and each is used twice; n
            positions of full attention have 2 D · n numbers, and each is used once. The two are equal at n = D + 1, and
            D, the width of a head, is {sizes["d_model"] // sizes["num_heads"]}. In time linear attention costs less
            than full attention {crossing_text(crossings["linear"], lengths)}, and less than grouped attention
            {crossing_text(crossings["linear, grouped"], lengths)}. Grouped attention takes less time than full
            attention {crossing_text(crossings["grouped"], lengths)}.
        """),
        _what_takes_time(findings),
        *_found_apart(sizes),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


def _a_token(findings: Findings, kind: str) -> float:
    """Return the memory that one further token takes, in KiB."""
    lengths, kept = findings["sizes"]["lengths"], findings["kinds"][kind]["kept"]
    return (kept[-1] - kept[0]) / (lengths[-1] - lengths[0]) / 1024


def _what_takes_time(findings: Findings) -> str:
    """A paragraph on the operations and bytes a second of what each length adds, with full and with grouped heads."""
    ratios, lengths = findings["ratios"]["grouped"], findings["sizes"]["lengths"]
    added = {
        kind: {name: each[name][-1] - each[name][0] for name in ("operations", "moved", "best")}
        for kind, each in findings["kinds"].items()
        if kind != LINEAR
    }
    if min(each["best"] for each in added.values()) <= 0:
        return f"Between n = {lengths[0]} and n = {lengths[-1]:,} noise hides the extra cost of a token."
    rates = {
        kind: {name: added[kind][name] / added[kind]["best"] / 1e9 for name in ("operations", "moved")}
        for kind in added
    }
    last = range(max(0, len(lengths) - 3), len(lengths))
    shares = {
        name: listed([f"{findings['kinds'][FULL][name][n] / findings['kinds'][GROUPED][name][n]:.2f}" for n in last])
        for name in ("moved", "best")
    }
    text = f"""
        Grouped heads save bytes, but no operations of attention. At n = {listed([f"{lengths[n]:,}" for n in last])}
        full attention moves {shares["moved"]} times as many bytes as grouped attention, and takes {shares["best"]}
        times as long. A token at n = {lengths[-1]:,} costs more operations, bytes and time than one at n =
        {lengths[0]}. The extra operations and bytes, divided by the extra time, are speeds: full attention computes
        {rates[FULL]["operations"]:.1f} · 10⁹ operations and moves {rates[FULL]["moved"]:.1f} · 10⁹ bytes a second,
        grouped attention {rates[GROUPED]["operations"]:.1f} · 10⁹ and {rates[GROUPED]["moved"]:.1f} · 10⁹.
    """
    if ratios["time"]["value"] < ratios["moved"] ** 0.5 and rates[GROUPED]["moved"] < rates[FULL]["moved"]:
        text += """
            Grouped heads save less time than bytes. So bandwidth does not limit grouped attention here: with full
            attention the same core moves more bytes a second. We did not measure what limits either. Where bandwidth is
            the limit, as on a GPU, fewer bytes are less time. And keys and values need less memory everywhere.
        """
    return paragraph(text)


def _found_apart(sizes: Mapping[str, Any]) -> list[str]:
    """Return a paragraph on two causes of grouped attention's times, measured separately, if the lengths reach them."""
    multiplications = sizes["d_model"] // sizes["kv_heads"]  # for each position, in a head of values
    last = 10**6 // multiplications
    if sizes["lengths"][-1] <= last:
        return []
    return [
        paragraph(f"""
            Two facts explain a part of grouped attention's times (measured apart, on the machine of the committed
            results). With a few queries and many keys, BLAS takes half the time if the keys are the first factor. The
            first results were without this: grouped attention took 3.4 ms at n = 8,192, 4.0 times as long as linear
            attention, and so that prediction was wrong. Then we improved the code, and measured all of this section
            again. (The prediction of full against linear attention was wrong too, with 4.6 times. Nothing was changed
            there: the two runs differ.) And the product of weights and values takes 2.3 times as long at n =
            {last + 1:,} as at n = {last:,}: its {multiplications} n multiplications pass 10⁶ there, and beyond that
            OpenBLAS takes another path. So grouped attention loses a part of its lead at n = 8,192.
        """)
    ]
