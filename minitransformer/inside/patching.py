"""Activation patching: what a model says when some place inside it has the value of another run, or none.

head = Site("self_attention", layer=1, head=3)
patch(model, {head: 0.0}, ids)                               # the head is switched off
other = record(model, other_ids)
patch(model, {head: other}, ids)                             # it says what it said in the other run
sites = grid(other, "stream", by="position")                 # (L + 1, T) of them
effects(model, sites, other, logit_difference(7, 9), ids)    # what patching each of them changes
estimated_effects(model, sites, other, logit_difference(7, 9), ids)    # all at once, by one backward
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np

from ..layers import Layer, Linear
from ..ops import Array
from .recording import Recording, Stream, adds, record, stack_of, sublayers

Measure = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""A function of the logits, in host memory, that returns one number and its gradient."""


@dataclass(frozen=True)
class Site:
    """A place in a run.

    part      "stream": the residual stream; the name of a sub-layer: what it adds to the stream
    layer     counted from 0; in the stream, how many layers are behind it: 0 is what enters the first block
    head      an attention's head: what it gives before `output`, W^O, reads it; None: all that the sub-layer adds
    position  a token's place, counted from the end where it is negative; None: all
    stack     "encoder" or "decoder"; None: the stack that the logits are read from
    """

    part: str
    layer: int
    head: int | None = None
    position: int | None = None
    stack: Literal["encoder", "decoder"] | None = None

    def of(self, recording: Recording) -> np.ndarray:
        """Return its value in a recorded run: `(B, T, C)`, of a head `(B, T, Dv)`, at one position without T."""
        return self.within(_of_part(recording.stream(self.stack), self)[self.layer])

    def within(self, array: Array) -> Array:
        """Return its view of its part's array `(B, T, C)`, or of heads `(B, T, H, Dv)`."""
        places = slice(None) if self.position is None else self.position
        return array[:, places] if self.head is None else array[:, places, self.head]


def _of_part(stream: Stream, site: Site) -> np.ndarray:
    if site.part == "stream":
        return stream.states
    return stream.contributions[site.part] if site.head is None else stream.heads[site.part]


def patch(model: Any, values: Mapping[Site, Any], *inputs: Any, **options: Any) -> np.ndarray:
    """Run a model with other values at some sites; return its logits, in host memory.

    values   by site, the recording of another run, whose value it gets, or what broadcasts to `site.of` a recording
             of this run: a mean over texts, or 0.0, which switches the site off
    inputs   and options are those of `model.forward`

    All that comes after a site is computed anew from its value. Works on every backend, and changes nothing in the
    model. Raises `ValueError` for a site that there is not, for a value of another shape, and for a model without a
    stack of blocks. Source: Vig et al. 2020, "Causal mediation analysis"; Meng et al. 2022, §2.1.
    """
    seen = model.replica()
    turns: dict[Layer, dict[int, list[Site]]] = {}
    for site in values:
        layer, turn = _place(seen, site)
        turns.setdefault(layer, {}).setdefault(turn, []).append(site)

    def changed(x: Array, sites: list[Site]) -> Array:
        new = model.ops.zeros(tuple(x.shape), x.dtype)
        new[...] = x
        for site in sites:
            view = _view(seen, site, new)
            given = np.asarray(_value(site, values[site]))
            try:
                value = np.broadcast_to(given, tuple(view.shape))
            except ValueError:
                raise ValueError(f"the value of {site} has shape {given.shape}, expected {tuple(view.shape)}") from None
            view[...] = model.ops.asarray(value, x.dtype)
        return new

    for layer, sites in turns.items():
        _change(layer, sites, changed)
    return model.ops.to_numpy(seen.forward(*inputs, **options)[0])


def grid(recording: Recording, part: str, by: Literal["position", "head"], stack: Any = None) -> np.ndarray:
    """Return the sites of a part, `(layers, T)` or, by head, `(layers, H)`: those of a heat map.

    The stream has a row more: its first one is what enters the first block. Raises `ValueError` for the stream by head,
    for a part that the model does not have, and for another `by`.
    """
    if by not in ("position", "head"):
        raise ValueError(f"by is {by!r}, expected 'position' or 'head'")
    seen = recording.stream(stack)
    known = seen.heads if by == "head" else {"stream", *seen.contributions}
    if part not in known:
        raise ValueError(f"part is {part!r}, expected {' or '.join(map(repr, sorted(known)))} by {by}")
    array = _of_part(seen, Site(part, 0, head=0 if by == "head" else None))
    rows, columns = len(array), array.shape[3 if by == "head" else 2]
    sites = np.empty((rows, columns), object)
    for n, i in np.ndindex(rows, columns):
        sites[n, i] = Site(part, n, **{by: i}, stack=stack)
    return sites


def logit_difference(wanted: Any, other: Any = None, position: int = -1) -> Measure:
    """Return the measure `logits[wanted] − logits[other]` at a position, or of `wanted` alone; the mean over the batch.

    wanted, other: a token, or one for each text, `(B,)`.
    """

    def measure(logits: np.ndarray) -> tuple[float, np.ndarray]:
        dlogits, texts = np.zeros(logits.shape), np.arange(len(logits))
        at = dlogits if logits.ndim == 2 else dlogits[:, position]  # (B, V), a view
        at[texts, wanted] += 1 / len(logits)
        if other is not None:
            at[texts, other] -= 1 / len(logits)
        return float((dlogits * logits).sum()), dlogits

    return measure


def effects(
    model: Any, sites: Any, other: Recording | float, measure: Measure, *inputs: Any, **options: Any
) -> np.ndarray:
    """Return by how much each site, patched alone, changes a measure of the logits; in the shape of `sites`.

    other: the run that values are from, or a number for all of them, such as 0.0. The model runs once for each site.
    """
    sites = np.asarray(sites, object)
    before, _ = _measured(measure, patch(model, {}, *inputs, **options))
    found = np.zeros(sites.shape)
    for place in np.ndindex(sites.shape):
        site = sites[place]
        found[place] = _measured(measure, patch(model, {site: other}, *inputs, **options))[0] - before
    return found


def estimated_effects(
    model: Any, sites: Any, other: Recording | float, measure: Measure, *inputs: Any, **options: Any
) -> np.ndarray:
    """Return an estimate of `effects`: `(other − own) · gradient` of the measure at each site.

    The first term of the effect's series, for all sites by one forward and one backward more; it is near the effect
    where the difference of the values is small. Source: Nanda 2023, "Attribution patching"; Syed et al. 2023.
    """
    sites = np.asarray(sites, object)
    own = record(model, *inputs, **options)
    seen, gradients = model.replica(), dict[Layer, list[Array]]()
    for site in sites.flat:
        layer, _ = _place(seen, site)
        if layer not in gradients:
            gradients[layer] = []
            _keep_gradients(layer, isinstance(layer, Linear), gradients[layer])
    logits, cache = seen.forward(*inputs, **options)
    seen.backward(_measured(measure, model.ops.to_numpy(logits))[1], cache)
    found = np.zeros(sites.shape)
    for place in np.ndindex(sites.shape):
        site = sites[place]
        layer, turn = _place(seen, site)
        gradient = _view(seen, site, gradients[layer][-1 - turn])  # they came in the reverse order
        found[place] = ((_value(site, other) - site.of(own)) * model.ops.to_numpy(gradient)).sum()
    return found


def _value(site: Site, other: Any) -> Any:
    return site.of(other) if isinstance(other, Recording) else other


def _measured(measure: Measure, logits: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the number of a measure and its gradient. Raises TypeError for a measure that returns anything else."""
    found = measure(logits)
    if not (isinstance(found, tuple) and len(found) == 2 and not np.ndim(found[0])):
        raise TypeError("a measure returns one number and its gradient, such as logit_difference does")
    return found


def _place(model: Any, site: Site) -> tuple[Layer, int]:
    """Return the layer whose output a site is (of a head: whose input), and how many of its calls come before it."""
    stack = stack_of(model, site.stack)
    known = ["stream", *sublayers(stack)]
    if site.part not in known or (site.head is not None and not site.part.endswith("attention")):
        heads = " with a head" * (site.head is not None)
        raise ValueError(f"part is {site.part!r}{heads}, expected one of {', '.join(known)}, and heads of attentions")
    layers: list[Layer] = [stack.embedding, *stack.layers]
    if site.part != "stream":
        of_heads = [getattr(block, site.part).output for block in stack.layers] if site.head is not None else None
        layers = of_heads or [adds(block, site.part) for block in stack.layers]
    if not 0 <= site.layer < len(layers):
        raise ValueError(f"layer is {site.layer}, expected 0 to {len(layers) - 1} for {site.part!r}")
    layer = layers[site.layer]
    return layer, layers[: site.layer].count(layer)  # one may stand in several places


def _view(model: Any, site: Site, x: Array) -> Array:
    """Return a site's view of `(B, T, C)`, or of `(B, T, H·Dv)`. Raises ValueError for a place outside it."""
    if site.position is not None and not -x.shape[1] <= site.position < x.shape[1]:
        raise ValueError(f"position is {site.position}, expected {-x.shape[1]} to {x.shape[1] - 1}")
    if site.head is None:
        return site.within(x)
    heads = stack_of(model, site.stack).layers[0].self_attention.num_heads
    if not 0 <= site.head < heads:
        raise ValueError(f"head is {site.head}, expected 0 to {heads - 1}")
    return site.within(x.reshape(*x.shape[:2], heads, -1))


def _change(layer: Any, turns: dict[int, list[Site]], changed: Callable[[Array, list[Site]], Array]) -> None:
    """Let a layer change its output at some of its calls, counted from 0; for heads its input."""
    run, calls = layer.forward, count()

    def forward(x: Array, *rest: Any) -> tuple[Array, Any]:
        sites = turns.get(next(calls), [])
        if sites and sites[0].head is not None:
            return run(changed(x, sites), *rest)
        out, cache = run(x, *rest)
        return (changed(out, sites) if sites else out), cache

    layer.forward = forward


def _keep_gradients(layer: Any, of_input: bool, kept: list[Array]) -> None:
    """Let a layer's backward keep the gradient of its output, or of its input."""
    run = layer.backward

    def backward(dout: Array, cache: Any) -> Any:
        gradients = run(dout, cache)
        kept.append(gradients if of_input else dout)
        return gradients

    layer.backward = backward
