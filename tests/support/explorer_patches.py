"""Activation patching in NumPy: a donor's numbers in the place of a model's own, on the way through its layers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from support.explorer_engine import forward_of

PAIR = "The old teacher reads a book.", "The old woman reads a book."


def patch_at(stack: str, layer: int, position: int | None, head: int | None = None) -> dict[str, Any]:
    """As `PatchPlace` of the explorer's types.js: after `layer` layers, or a head of self-attention in that layer."""
    kind = None if head is None else "self_attention"
    return {"stack": stack, "layer": layer, "kind": kind, "head": head, "position": position}


@contextmanager
def patched(model: Any, spot: dict[str, Any], values: np.ndarray) -> Iterator[None]:
    """For a while `values` `(T, ·)` stand in a place of NumPy's model, through which then no gradient goes."""
    here = slice(0, len(values)) if spot["position"] is None else slice(spot["position"], spot["position"] + 1)

    def put(x: np.ndarray) -> None:
        x[here] = values[here]

    def forget(dx: np.ndarray) -> None:
        dx[here] = 0

    with _changed(model, spot, put, forget):
        yield


def values_in(model: Any, spot: dict[str, Any], source: list[int] | None, target: list[int]) -> np.ndarray:
    """Return what the run on a sentence has in a place, `(T, ·)`."""
    found: list[np.ndarray] = []
    with _changed(model, spot, lambda x: found.append(x.copy()), lambda dx: None):
        forward_of(model, source, target)
    return found[0]


@contextmanager
def _changed(
    model: Any, spot: dict[str, Any], see: Callable[[Any], None], back: Callable[[Any], None]
) -> Iterator[None]:
    """Gives `see` what stands in a place `(T, ·)` and `back` its gradient, to change them as they pass."""
    stack, head = getattr(model, spot["stack"]), spot["head"]
    layer, columns = [stack.embedding, *stack.layers][spot["layer"]], slice(None)
    if head is not None:
        attention = stack.layers[spot["layer"] - 1].self_attention
        width = attention.value_width // attention.kv_heads
        layer, columns = attention.output, slice(head * width, (head + 1) * width)  # W^O, which joins the heads
    run, rerun = layer.forward, layer.backward

    def forward(x: np.ndarray, *rest: Any) -> Any:
        if head is not None:
            return run(_seen(x, columns, see), *rest)
        out, cache = run(x, *rest)
        return _seen(out, columns, see), cache

    def backward(dout: np.ndarray, cache: Any) -> Any:
        if head is not None:
            return _seen(rerun(dout, cache), columns, back)
        return rerun(_seen(dout, columns, back), cache)

    layer.forward, layer.backward = forward, backward
    try:
        yield
    finally:
        del layer.forward, layer.backward


def _seen(x: np.ndarray, columns: slice, see: Callable[[np.ndarray], None]) -> np.ndarray:
    """Return a copy of x `(1, T, ·)` whose columns were given to `see`."""
    x = x.copy()
    see(x[0, :, columns])
    return x


def shares_of(model: Any, own: list[int], other: list[int]) -> tuple[list[int], list[list[float]]]:
    """Return the best first tokens of two sentences and, after each number of layers, what each position brings over.

    It is the share of the way from one sentence's logit difference to the other's; the last one is of all positions.
    """
    target = [model.config.bos_id]
    logits = [forward_of(model, source, target)[-1] for source in (own, other)]
    tokens = [int(each.argmax()) for each in logits]

    def difference(of: np.ndarray) -> float:
        return float(of[tokens[1]] - of[tokens[0]])

    first, last = map(difference, logits)
    rows = []
    for layer in range(len(model.encoder.layers) + 1):
        values = values_in(model, patch_at("encoder", layer, None), other, target)
        row = []
        for position in (*range(len(own)), None):
            with patched(model, patch_at("encoder", layer, position), values):
                row.append((difference(forward_of(model, own, target)[-1]) - first) / (last - first))
        rows.append(row)
    return tokens, rows
