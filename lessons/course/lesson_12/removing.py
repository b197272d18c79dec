"""Lesson 12: the model without some of its heads, and the words that change in its translations."""

from collections import Counter
from contextlib import contextmanager


def attention_of(model, kind, layer):
    """The layer's attention of this kind, as it stands in the model."""
    stack = model.encoder if kind == "encoder" else model.decoder
    return stack.layers[layer].cross_attention if kind == "cross" else stack.layers[layer].self_attention


@contextmanager
def removed(model, without_head, *heads):
    """The model without these heads, each (kind, layer, head), for the length of a `with`."""
    kept = model.parameters.data.copy()
    for kind, layer, head in heads:
        weight = attention_of(model, kind, layer).output.weight.data
        weight[...] = without_head(weight, head, model.config.num_heads)
    try:
        yield
    finally:  # whatever happens inside, the model is whole again
        model.parameters.data[...] = kept


def newly_wrong(output, intact, references):
    """For the sentences that only the intact model has right, count "wanted → got" of the first word that differs."""
    first = Counter()
    for text, before, reference in zip(output, intact, references, strict=True):
        if text != before == reference:
            pairs = [(a.strip(",."), b.strip(",.")) for a, b in zip(reference.split(), text.split(), strict=False)]
            first.update([f"{wanted} → {got}" for wanted, got in pairs if wanted != got][:1])
    return first
