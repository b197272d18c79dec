"""The jobs of attention heads: where their weight lies and which dependencies they resolve, with pictures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from numpy.typing import NDArray

from minitransformer.decoding import AttentionMaps, Translator
from minitransformer.grammar import Example
from minitransformer.plots.attention import COLOURS, SCALE
from minitransformer.plots.page import BLUE, GREY, INK, VERMILION, Page, fitted, text_style
from study.trials.bootstrap import MEAN, Interval, interval

from .dependencies import FAR, Dependency, Kind, pieces

END = "</s>"
JOBS = ("same place", "one before", "one after", "first", "marks", "elsewhere")
"""The places where a weight may lie, relative to its query: a key counts for the first of these that fits it. `marks`
are punctuation and the end of the sentence. In the decoder the same place is the word written last."""

SPREAD = "no one place"

EVEN = 0.1
"""A head has a job only if it puts this much more of its weight in one place than even attention would."""

FEWEST = 8
"""The fewest sentences on which a dependency is judged."""


def axes_of(maps: AttentionMaps, kind: Kind) -> tuple[list[str], list[str]]:
    """The labels of the queries and of the keys of one attention."""
    return {
        "encoder": (maps.source_tokens, maps.source_tokens),
        "decoder": (maps.target_tokens, maps.target_inputs),
        "cross": (maps.target_tokens, maps.source_tokens),
    }[kind]


def is_mark(token: str) -> bool:
    """Return True if a token, as `AttentionMaps` labels it, is punctuation or the end of the sentence."""
    return token == END or not any(character.isalnum() for character in token)


def visible(kind: Kind, num_queries: int, num_keys: int) -> NDArray[np.bool_]:
    """Return the mask of the keys that each query may see, `(Tq, Tk)`: in the decoder those read so far."""
    everything = np.ones((num_queries, num_keys), bool)
    return np.tril(everything) if kind == "decoder" else everything


def even(seen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The weights `(Tq, Tk)` of a head that attends evenly to all keys that it may see."""
    return seen / seen.sum(-1, keepdims=True)


def shares(weights: NDArray, keys: Sequence[str], seen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The shares of the weights `(..., Tq, Tk)` in each place and their evenness: `(..., 7)`, means over the queries.

    The last is the entropy divided by that of even attention, over the queries that may see more than one key.
    """
    num_queries, num_keys = weights.shape[-2:]
    row, column = np.arange(num_queries)[:, None], np.arange(num_keys)
    marks = np.array([is_mark(key) for key in keys])
    wheres = [column == row, column == row - 1, column == row + 1, column == 0, marks]
    left, parts = np.ones((num_queries, num_keys), bool), []
    for where in wheres:
        parts.append((weights * (where & left)).sum(-1))
        left = left & ~where
    parts.append((weights * left).sum(-1))
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)  # (..., Tq)
    count = seen.sum(-1)  # (Tq,)
    evenness = (entropy / np.log(np.maximum(count, 2)))[..., count > 1].mean(-1)
    return np.concatenate([np.stack(parts, axis=-1).mean(-2), evenness[..., None]], axis=-1)


def job_of(share: Sequence[float], evenly: Sequence[float]) -> str:
    """The one of JOBS where a head exceeds even attention most; SPREAD if it exceeds it nowhere by much."""
    beyond = [ours - theirs for ours, theirs in zip(share[: len(JOBS)], evenly, strict=False)]
    best = max(range(len(JOBS)), key=beyond.__getitem__)
    return JOBS[best] if beyond[best] > EVEN else SPREAD


@dataclass(frozen=True)
class Observation:
    """A dependency in one sentence: every head's weight from the first piece of the dependent to its governor's pieces.

    weights  `(layers, heads)`
    even     the weight that even attention would give
    query    the row of the dependent; `keys` are the columns of the governor
    apart    tokens between the two; None if they are in two texts
    """

    dependent: str
    governor: str
    maps: AttentionMaps
    weights: NDArray
    even: float
    query: int
    keys: list[int]
    apart: int | None = None


def observe(translator: Translator, dependency: Dependency, examples: Iterable[Example]) -> list[Observation]:
    """Observe a dependency in every sentence that has it, while the model reads the reference translation."""
    observations = []
    for example in examples:
        places = dependency.find(example)
        if places is None:
            continue
        maps = translator.attention(example.english, example.german)
        decoder = dependency.kind == "decoder"
        sides = (example.english, maps.source_tokens[:-1]), (example.german, maps.target_tokens[:-1])  # without </s>
        queries, keys = sides[dependency.kind != "encoder"], sides[decoder]
        of_dependent, of_governor = pieces(*queries, places[0]), pieces(*keys, places[1])
        if of_dependent is None or of_governor is None:
            continue
        query, columns = of_dependent[0], [number + decoder for number in of_governor]  # the decoder's begin with <s>
        weights = getattr(maps, dependency.kind)[:, :, query]  # (layers, heads, Tk)
        visible = query + 1 if decoder else weights.shape[-1]
        dependent, governor = queries[0][slice(*places[0])], keys[0][slice(*places[1])]
        found, evenly = weights[:, :, columns].sum(-1), len(columns) / visible
        apart = None if dependency.kind == "cross" else min(abs(query - number) for number in of_governor)
        observations.append(Observation(dependent, governor, maps, found, evenly, query, columns, apart))
    return observations


@dataclass(frozen=True)
class Resolution:
    """The head that resolves a dependency best: chosen on one half of the sentences, measured on the other.

    layer, head  counted from 0
    weight       its mean weight over `sentences`
    beyond       the same minus even attention's
    others       the mean weight of all heads of this attention; `even` is that of even attention
    apart        the mean of the tokens between the two; None if they are in two texts
    typical      the observation with the median weight, among sentences that may be drawn
    """

    layer: int
    head: int
    sentences: int
    weight: Interval
    beyond: Interval
    others: float
    even: float
    apart: float | None
    typical: Observation


def resolve(observations: Sequence[Observation], longest: int) -> Resolution | None:
    """The best head, or None with too few sentences; `typical` has at most `longest` tokens on a side, if possible."""
    chosen_on, measured_on = observations[::2], observations[1::2]
    if len(measured_on) < FEWEST:
        return None
    means = np.mean([each.weights for each in chosen_on], axis=0)  # (layers, heads)
    layer, head = (int(i) for i in np.unravel_index(means.argmax(), means.shape))
    weights = np.array([each.weights[layer, head] for each in measured_on], dtype=np.float64)
    evenly, ones = np.array([each.even for each in measured_on]), np.ones(len(measured_on))
    distances = [each.apart for each in measured_on if each.apart is not None]
    short = [
        number
        for number, each in enumerate(measured_on)
        if max(len(each.maps.source_tokens), len(each.maps.target_tokens)) <= longest
    ]
    drawn = sorted(short or range(len(measured_on)), key=lambda number: weights[number])
    return Resolution(
        layer,
        head,
        len(measured_on),
        weight=interval(MEAN, np.stack([weights, ones], axis=1)),
        beyond=interval(MEAN, np.stack([weights - evenly, ones], axis=1)),
        others=float(np.mean([each.weights for each in measured_on])),
        even=float(evenly.mean()),
        apart=float(np.mean(distances)) if distances else None,
        typical=measured_on[drawn[len(drawn) // 2]],
    )


LONGEST = 20
"""The most tokens of a sentence that is drawn."""

TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
COLUMNS = {"encoder": ["from", "to"], "decoder": ["writing", "has read"], "cross": ["writing", "source"]}


def measured_jobs(maps: Sequence[AttentionMaps], kind: Kind) -> dict[str, Any]:
    """The mean shares over the sentences of each head, and those of even attention."""
    measured, evenly = [], []
    for each in maps:
        weights, (_, keys) = getattr(each, kind), axes_of(each, kind)
        seen = visible(kind, *weights.shape[-2:])
        measured.append(shares(weights, keys, seen))  # (layers, heads, 7)
        evenly.append(shares(even(seen), keys, seen))  # (7,)
    return {"shares": np.mean(measured, 0).round(4).tolist(), "even": np.mean(evenly, 0).round(4).tolist()}


def most_different(maps: Sequence[AttentionMaps], jobs: dict[str, Any]) -> dict[str, Any]:
    """The two heads of one encoder layer whose jobs differ most, and their weights on a sentence."""
    measured = np.array(jobs["encoder"]["shares"])[..., : len(JOBS)]
    layer, one, other = max(
        ((i, *pair) for i, heads in enumerate(measured) for pair in combinations(range(len(heads)), 2)),
        key=lambda found: np.abs(measured[found[0], found[1]] - measured[found[0], found[2]]).sum(),
    )
    chosen = _readable(maps)
    panels = [_panel(chosen, "encoder", layer, head, colour) for head, colour in ((one, BLUE), (other, VERMILION))]
    return {"layer": layer, "heads": [one, other], "panels": panels}


def dependency_row(dependency: Dependency, best: Resolution | None) -> dict[str, Any]:
    """The row of a dependency: how well its best head resolves it; `sentences` is 0 if there were too few."""
    row: dict[str, Any] = {"name": dependency.name, "kind": dependency.kind, "sentences": 0}
    if best is None:
        return row
    return row | {
        "sentences": best.sentences,
        "layer": best.layer,
        "head": best.head,
        "weight": _rounded(best.weight),
        "beyond": _rounded(best.beyond),
        "others": round(best.others, 4),
        "even": round(best.even, 4),
        "apart": None if best.apart is None else round(best.apart, 1),
    }


def dependency_picture(dependency: Dependency, best: Resolution) -> dict[str, Any]:
    """The picture of the typical sentence: all weights of the head, and those of the dependent alone."""
    seen = best.typical
    whole = _panel(seen.maps, dependency.kind, best.layer, best.head, BLUE)
    return {
        **dependency_row(dependency, best),
        "words": [seen.dependent, seen.governor],
        "one": round(float(seen.weights[best.layer, best.head]), 4),
        "panels": [whole, whole | {"title": f"from “{seen.dependent}”", "shown": [seen.query], "marked": seen.keys}],
    }


def sharpest(maps: Sequence[AttentionMaps], kind: Kind) -> dict[str, Any]:
    """The head with most weight on single words elsewhere, for texts without derivations."""
    measured = np.array(measured_jobs(maps, kind)["shares"])  # (layers, heads, 7)
    elsewhere, evenness = measured[..., JOBS.index("elsewhere")], measured[..., -1]
    layer, head = (int(i) for i in np.unravel_index((elsewhere * (1 - evenness)).argmax(), elsewhere.shape))
    chosen = _readable(maps)
    whole = _panel(chosen, kind, layer, head, BLUE)
    weights = np.array(whole["weights"])
    far = np.abs(np.subtract.outer(*map(np.arange, weights.shape))) > FAR
    words = np.logical_and.outer(*([not is_mark(token) for token in whole[side]] for side in ("queries", "keys")))
    query, key = (int(i) for i in np.unravel_index((weights * far * words).argmax(), weights.shape))
    title = f"from “{whole['queries'][query]}”"
    return {
        "kind": kind,
        "layer": layer,
        "head": head,
        "elsewhere": float(elsewhere[layer, head]),
        "panels": [whole, whole | {"title": title, "shown": [query], "marked": [key]}],
    }


def _readable(maps: Sequence[AttentionMaps]) -> AttentionMaps:
    """The longest sentence that may be drawn, or else the shortest."""
    short = [each for each in maps if _length(each) <= LONGEST]
    return max(short, key=_length) if short else min(maps, key=_length)


def _length(maps: AttentionMaps) -> int:
    return max(len(maps.source_tokens), len(maps.target_tokens))


def _panel(maps: AttentionMaps, kind: Kind, layer: int, head: int, colour: str) -> dict[str, Any]:
    """The arguments of a `Panel`."""
    queries, keys = axes_of(maps, kind)
    return {
        "title": f"{TITLES[kind]}, {head_name(layer, head)}",
        "queries": queries,
        "keys": keys,
        "weights": getattr(maps, kind)[layer, head].astype(float).round(4).tolist(),
        "columns": COLUMNS[kind],
        "colour": colour,
    }


def _rounded(interval: Interval) -> list[float]:
    return [round(interval.value, 4), round(interval.low, 4), round(interval.high, 4)]


def head_name(layer: int, head: int) -> str:
    """The name in a title of a layer and a head counted from 0."""
    return f"layer {layer + 1}, head {head + 1}"


Jobs = Mapping[str, Mapping[str, Sequence[Any]]]
"""For each attention the `shares` of its heads, `(layers, heads, 7)`, and those of `even` attention, `(7,)`."""


def draw_jobs(jobs: Jobs, path: str | Path) -> None:
    """Draw the attentions side by side, with even attention below each. Raises `OSError` as `Page.save` does."""
    rows = max(np.shape(each["shares"])[0] * np.shape(each["shares"])[1] for each in jobs.values()) + 1
    page = Page(7.4, 1.45 + 0.17 * rows, layout="constrained")
    columns = [*JOBS, "evenness"]
    every = np.atleast_1d(page.figure.subplots(1, len(jobs)))
    for axes, (kind, each) in zip(every, jobs.items(), strict=True):
        shares = np.array(each["shares"])  # (layers, heads, 7)
        layers, heads = shares.shape[:2]
        table = np.vstack([shares.reshape(layers * heads, -1), each["even"]])
        axes.imshow(table, cmap=COLOURS, norm=SCALE, aspect="auto", interpolation="nearest")
        ends = [heads * (layer + 1) - 0.5 for layer in range(layers)]
        axes.hlines(ends, -0.5, len(columns) - 0.5, colors=GREY, lw=0.8)
        axes.vlines(len(JOBS) - 0.5, -0.5, len(table) - 0.5, colors=GREY, lw=0.8)
        names = [*(f"{layer + 1}.{head + 1}" for layer in range(layers) for head in range(heads)), "even"]
        axes.set_yticks(range(len(table)), names, **text_style([], 7))
        axes.set_xticks(range(len(columns)), columns, rotation=90, **text_style([], 7.5))
        axes.tick_params(length=0, pad=2)
        axes.spines[:].set(linewidth=0.5, color=GREY)
        axes.set_title(TITLES[kind], **text_style([], 9))
    every[0].set_ylabel("layer.head", **text_style([], 8.5))
    bar = page.figure.colorbar(ScalarMappable(SCALE, COLOURS), ax=list(every), pad=0.02, aspect=30, ticks=[0, 0.5, 1])
    bar.ax.tick_params(labelsize=7.5, labelcolor=INK)
    bar.set_label("part of a head's weight", **text_style([], 8))
    page.save(path)


LINE, TOP, FOOT = 0.185, 0.62, 0.08
"""In inches: the distance from a word to the next, and the room above and below them."""

FAINTEST = 0.02
"""The least weight that is drawn."""

THICKEST = 5.0
WORDS = 1.15
"""The width of a line with weight 1 in points; the widest column of words in inches."""


@dataclass(frozen=True)
class Panel:
    """One head on one sentence.

    queries, keys  words, with the queries on the left
    weights        `(Tq, Tk)`
    columns        titles above the queries and above the keys
    shown          the queries whose lines are drawn, all if it is None; their words and `marked` keys are in colour
    """

    title: str
    queries: list[str]
    keys: list[str]
    weights: list[list[float]]
    columns: list[str]
    colour: str
    shown: list[int] | None = None
    marked: list[int] | None = None


def draw_lines(panels: Sequence[Panel], path: str | Path) -> None:
    """Draw the panels side by side on one page. Raises `OSError` as `Page.save` does.

    Raises `ValueError` unless a panel's weights have one row for each query and one column for each key.
    """
    for panel in panels:
        if [len(row) for row in panel.weights] != [len(panel.keys)] * len(panel.queries):
            raise ValueError(f"{panel.title}: the weights are not {len(panel.queries)} rows of {len(panel.keys)}")
    rows = max(max(len(panel.queries), len(panel.keys)) for panel in panels)
    page = Page(7.4, TOP + rows * LINE + FOOT)
    each = page.width / len(panels)
    for number, panel in enumerate(panels):
        axes = page.axes(number * each, 0, each, page.height)
        axes.set(xlim=(0, each), ylim=(0, page.height))
        axes.set_axis_off()
        _draw(axes, panel, each, page.height)
    page.save(path)


def _draw(axes: Axes, panel: Panel, width: float, height: float) -> None:
    left, right = 0.1 + WORDS, width - 0.1 - WORDS
    top = height - TOP
    axes.text(width / 2, height - 0.1, panel.title, ha="center", va="top", **text_style([panel.title], 9))
    shown = range(len(panel.queries)) if panel.shown is None else panel.shown
    for x, align, name, words, marked in (
        (left, "right", panel.columns[0], panel.queries, panel.shown or []),
        (right, "left", panel.columns[1], panel.keys, panel.marked or []),
    ):
        axes.text(x, top + 0.12, name, ha=align, va="center", **text_style([name], 7, GREY))
        for number, word in enumerate(words):
            text = fitted(word, 8, WORDS)
            style = text_style([text], 8, panel.colour if number in marked else INK)
            weight = "bold" if number in marked else "normal"
            axes.text(x, _y(top, number), text, ha=align, va="center", fontweight=weight, **style)
    for query in shown:
        for key, weight in enumerate(panel.weights[query]):
            if weight >= FAINTEST:
                ends = [left + 0.05, right - 0.05], [_y(top, query), _y(top, key)]
                strength = min(weight, 1.0)
                axes.plot(*ends, color=panel.colour, lw=THICKEST * strength, alpha=0.25 + 0.6 * strength)


def _y(top: float, number: int) -> float:
    return top - (number + 0.5) * LINE
