"""What a trained model's heads do, as JSON holds it: figures, and the arguments of the panels that show it."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from minitransformer.plots.page import BLUE, VERMILION
from minitransformer.translator import AttentionMaps

from ...trials.bootstrap import Interval
from .dependencies import FAR, Dependency, Kind
from .heads import JOBS, Resolution, axes_of, even, is_mark, shares, visible

LONGEST = 20
"""Tokens of a sentence that is drawn."""

TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
COLUMNS = {"encoder": ["from", "to"], "decoder": ["writing", "has read"], "cross": ["writing", "source"]}


def measured_jobs(maps: Sequence[AttentionMaps], kind: Kind) -> dict[str, Any]:
    """The mean over the sentences of what each head does, and of what even attention would."""
    measured, evenly = [], []
    for each in maps:
        weights, (_, keys) = getattr(each, kind), axes_of(each, kind)
        seen = visible(kind, *weights.shape[-2:])
        measured.append(shares(weights, keys, seen))  # (layers, heads, 7)
        evenly.append(shares(even(seen), keys, seen))  # (7,)
    return {"shares": np.mean(measured, 0).round(4).tolist(), "even": np.mean(evenly, 0).round(4).tolist()}


def most_different(maps: Sequence[AttentionMaps], jobs: dict[str, Any]) -> dict[str, Any]:
    """The two heads of an encoder layer whose weights lie in the most different places, on a sentence."""
    measured = np.array(jobs["encoder"]["shares"])[..., : len(JOBS)]
    layer, one, other = max(
        ((i, *pair) for i, heads in enumerate(measured) for pair in combinations(range(len(heads)), 2)),
        key=lambda found: np.abs(measured[found[0], found[1]] - measured[found[0], found[2]]).sum(),
    )
    chosen = _readable(maps)
    panels = [_panel(chosen, "encoder", layer, head, colour) for head, colour in ((one, BLUE), (other, VERMILION))]
    return {"layer": layer, "heads": [one, other], "panels": panels}


def dependency_row(dependency: Dependency, best: Resolution | None) -> dict[str, Any]:
    """How well its best head resolves it; `sentences` is 0 where there were too few."""
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
    """The typical sentence: all that the head does, and what the dependent alone does."""
    seen = best.typical
    whole = _panel(seen.maps, dependency.kind, best.layer, best.head, BLUE)
    return {
        **dependency_row(dependency, best),
        "words": [seen.dependent, seen.governor],
        "one": round(float(seen.weights[best.layer, best.head]), 4),
        "panels": [whole, whole | {"title": f"from “{seen.dependent}”", "shown": [seen.query], "marked": seen.keys}],
    }


def sharpest(maps: Sequence[AttentionMaps], kind: Kind) -> dict[str, Any]:
    """The head with most weight on single words elsewhere, where no derivation says which word depends on which."""
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
    """The longest that may be drawn, or the shortest."""
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
