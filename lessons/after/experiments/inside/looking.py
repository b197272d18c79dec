"""Look inside a trained model: distances of attention, parts that can be removed, predictions after each layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import PAD_ID, Batch
from minitransformer.data.preparation import PreparedData, Split
from minitransformer.data.text import TextDataset
from minitransformer.data.token_dataset import TokenDataset
from minitransformer.inside import attention_maps, logit_lens
from minitransformer.layers import Attention, FeedForward, Parameter
from minitransformer.models import IGNORED, EncoderDecoder
from study.trials.bootstrap import MEAN, Interval, Metric, interval
from study.trials.likelihood import question, row_losses, target_losses
from study.trials.text_models import text_dataset


@dataclass(frozen=True)
class Subject:
    """A trained model, and the batches of text that it is asked."""

    model: Any
    batches: list[Any]

    def losses(self) -> NDArray[np.float64]:
        """The losses of all rows and their targets, `(N, 2)`, with the weights as they are now."""
        return np.concatenate([row_losses(self.model, batch) for batch in self.batches])

    def loss(self) -> float:
        """The mean loss of a target, in nats, with the weights as they are now."""
        total, count = self.losses().sum(0)
        return total / count


def subject(model: Any, data: PreparedData, sentences: int, split: Split = "test") -> Subject:
    """A model with the first sentences of a split of its text, but for those that are too long for a model."""
    encode, longest = data.tokenizer.encode, data.choice.max_length
    pairs = islice(data.choice.pairs(split), sentences)
    if isinstance(model, EncoderDecoder):
        asked: Any = TokenDataset.from_pairs((encode(pair.source), encode(pair.target)) for pair in pairs)
    else:
        lines = (encode(pair.source) for pair in pairs)
        asked = text_dataset(model.config, TextDataset.from_lines(line for line in lines if len(line) + 2 <= longest))
    return Subject(model, list(asked.batches(2048, None, model.config).epoch(0)))


def look_inside(seen: Subject, chosen_on: Subject, some: float) -> dict[str, Any]:
    """Return all measurements of a model; heads are removed in the order of their cost on other text."""
    return {
        "loss": seen.loss(),
        "distances": distances(seen),
        "heads": heads_off(seen, chosen_on, some),
        "sublayers": sublayers_off(seen),
        "lens": lens(seen),
    }


# --- Where attention looks --------------------------------------------------------------------------------------


def kind_of(name: str) -> str:
    """Return the kind of an attention, "encoder", "decoder" or "cross", from the name of its layer."""
    return "cross" if name.endswith("cross_attention") else name.partition(".")[0]


def distances(seen: Subject) -> dict[str, Any]:
    """The mean distance at which each head of each self-attention looks, beside that of even attention.

    By the kind of attention: `heads` `(layers, heads)` and `even`, in tokens, over all queries of real tokens.
    """
    sums: dict[str, list[NDArray]] = {}
    even: dict[str, float] = {}
    count: dict[str, int] = {}
    for arguments in _single_rows(seen):
        layers: dict[str, list[NDArray]] = {}
        for name, weights in attention_maps(seen.model, *arguments).items():
            if kind_of(name) != "cross":
                layers.setdefault(kind_of(name), []).append(weights[0])  # (H, T, T)
        for kind, maps in layers.items():
            time = maps[0].shape[-1]
            apart = np.abs(np.subtract.outer(np.arange(time), np.arange(time)))
            visible = np.tril(np.ones((time, time))) if kind == "decoder" else np.ones((time, time))
            here = np.array([(each * apart).sum((1, 2)) for each in maps])  # (layers, H), summed over queries
            sums.setdefault(kind, []).append(here)
            even[kind] = even.get(kind, 0.0) + float((visible * apart / visible.sum(1, keepdims=True)).sum())
            count[kind] = count.get(kind, 0) + time
    return {
        kind: {"heads": (np.sum(each, 0) / count[kind]).round(3).tolist(), "even": round(even[kind] / count[kind], 3)}
        for kind, each in sums.items()
    }


def _single_rows(seen: Subject) -> Iterator[tuple[Any, ...]]:
    """The arguments of `forward` for each row of the batches by itself, without padding."""
    for batch in seen.batches:
        for row in range(batch.num_sentences):
            if isinstance(batch, Batch):
                source = batch.source[row][batch.source[row] != PAD_ID]
                yield (source[None], batch.target_in[row][batch.target_out[row] != PAD_ID][None])
            else:
                mask = batch.inputs[3] if len(batch.inputs) > 3 else None
                ids = batch.inputs[0][row]
                yield (ids[None] if mask is None else ids[mask[row]][None],)


# --- Which heads and sub-layers can go ----------------------------------------------------------------------------


@contextmanager
def zeroed(model: Any, *parts: tuple[Parameter, slice]) -> Iterator[None]:
    """Set these rows of parameters to zero inside this context."""
    before = [parameter.data[rows].copy() for parameter, rows in parts]
    for parameter, rows in parts:
        parameter.data[rows] = 0
    model.parameters.refresh()
    try:
        yield
    finally:
        for (parameter, rows), values in zip(parts, before, strict=True):
            parameter.data[rows] = values
        model.parameters.refresh()


def head_rows(layer: Attention, head: int) -> tuple[Parameter, slice]:
    """The rows of the output projection that read a head: without them the head says nothing."""
    weight = layer.output.weight
    width = weight.shape[0] // layer.num_heads
    return weight, slice(head * width, (head + 1) * width)


def heads_off(seen: Subject, chosen_on: Subject, some: float) -> dict[str, Any]:
    """Measure the rise of the loss, in nats, without each head alone, and as heads are removed one after the other.

    single  for each head its layer's name, its number, and the rise with its interval over the test rows
    rises   the rise without the first n heads, n = 0, 1, …: those first that cost least alone on other text, chosen_on
    can_go  the share of the heads that can go until the loss has risen by `some` nats, with its interval
    """
    everything, single = seen.losses(), []
    attentions = {name: layer for name, layer in seen.model.named_layers() if isinstance(layer, Attention)}
    heads = [(name, head) for name, layer in attentions.items() for head in range(layer.num_heads)]
    costs = {}
    for name, head in heads:
        with zeroed(seen.model, head_rows(attentions[name], head)):
            single.append({"layer": name, "head": head, **asdict(_rise(everything, seen.losses()))})
            costs[name, head] = chosen_on.loss()
    order = sorted(heads, key=costs.__getitem__)
    sums = []  # for each number of removed heads, the loss of each row
    for count in range(len(order) + 1):
        with zeroed(seen.model, *(head_rows(attentions[name], head) for name, head in order[:count])):
            sums.append(seen.losses()[:, 0])

    def share(totals: NDArray) -> float:
        return share_that_can_go((totals[:-1] - totals[0]) / totals[-1], some)

    statistics = np.stack([*sums, everything[:, 1]], axis=1)
    totals = statistics.sum(0)
    return {
        "single": single,
        "rises": ((totals[:-1] - totals[0]) / totals[-1]).tolist(),
        "can_go": asdict(interval(Metric("share", share), statistics)),
    }


def share_that_can_go(rises: NDArray, some: float) -> float:
    """The share of the heads, of which n have gone at `rises[n]`, until the loss has risen by more than `some`."""
    return float((rises <= some)[1:].cumprod().sum()) / (len(rises) - 1)


def _rise(before: NDArray, after: NDArray) -> Interval:
    """The rise of the mean loss of a target, and its interval over the same rows."""
    return interval(MEAN, np.stack([after[:, 0] - before[:, 0], before[:, 1]], axis=1))


def sublayers_off(seen: Subject) -> list[dict[str, Any]]:
    """Measure the rise of the loss without each sub-layer, in nats, with its interval over the test rows."""
    everything, found = seen.losses(), []
    for name, layer in seen.model.named_layers():
        if not isinstance(layer, Attention | FeedForward):
            continue
        last = layer.output if isinstance(layer, Attention) else layer.contract
        parts = [(each, slice(None)) for each in (last.weight, last.bias) if each is not None]
        with zeroed(seen.model, *parts):
            found.append({"layer": name, **asdict(_rise(everything, seen.losses()))})
    return found


# --- The logit lens ---------------------------------------------------------------------------------------------


def lens(seen: Subject) -> dict[str, list[Any]]:
    """Return, after 0, 1, … layers, the mean `loss` and the share of best guesses equal to the last layer's, `agrees`.

    `agrees` are intervals over the test rows.
    """
    rows = []  # for each row the sums of the losses after each layer, then of the equal guesses, then its targets
    for batch in seen.batches:
        arguments, options, targets = question(seen.model, batch)
        logits = logit_lens(seen.model, *arguments, **options)  # (L + 1, B, T, V)
        real = targets != IGNORED
        guesses = logits.argmax(-1)
        losses = [target_losses(each, targets, seen.model).sum(1) for each in logits]
        equal = ((guesses == guesses[-1]) & real).sum(2)
        rows.append(np.stack([*losses, *equal, real.sum(1)], axis=1))
    sums = np.concatenate(rows)
    depth = sums.shape[1] // 2
    return {
        "loss": (sums[:, :depth].sum(0) / sums[:, -1].sum()).tolist(),
        "agrees": [asdict(interval(MEAN, sums[:, [depth + n, -1]])) for n in range(depth)],
    }
